//! The class of a directive, by the tables of facts, and the kind of its block.
//!
//! Called by [`Survey`](crate::Survey) for every directive. Values are ignored, except that of
//! `load_module`.

use std::borrow::Cow;

use nowait_catalogue::elsewhere::{self, Role, SharedObject};
use nowait_catalogue::{differs, features, unsupported};
use nowait_conf::{Context, Node, Registry, Span, Word, is_lua_block};

/// The class of a directive. The later ones weigh more, for a directive that stands in a file which several
/// blocks include.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// Works as in nginx.
    Runs,
    /// Accepted without effect, because none is needed.
    NoEffect,
    /// Works, with a relevant difference.
    Differs,
    /// Exists, but the check refuses its arguments or its place.
    Refused,
    /// nginx has it, and nowait does not.
    Missing,
    /// A module of a third party, NGINX Plus or a former release has it, and nowait does not.
    ThirdParty,
    /// Code in Lua.
    Lua,
    /// Unknown.
    Unknown,
}

impl Class {
    /// Every class.
    pub const ALL: [Class; 8] = [
        Class::Runs,
        Class::Differs,
        Class::NoEffect,
        Class::Refused,
        Class::Missing,
        Class::ThirdParty,
        Class::Lua,
        Class::Unknown,
    ];

    /// The name in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Class::Runs => "runs",
            Class::NoEffect => "no_effect",
            Class::Differs => "differs",
            Class::Refused => "refused",
            Class::Missing => "missing",
            Class::ThirdParty => "third_party",
            Class::Lua => "lua",
            Class::Unknown => "unknown",
        }
    }

    /// Whether a server can start with the directive.
    pub fn works(self) -> bool {
        matches!(self, Class::Runs | Class::NoEffect | Class::Differs)
    }
}

/// The treatment of a directive in an adapted copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Treatment {
    Keep,
    /// Turned into a comment.
    Remove,
    /// Turned into a comment; this directive refuses requests in its place.
    Instead(&'static str),
    /// Another directive does the same.
    Rename(&'static str),
}

/// The class of a directive with its reasons.
#[derive(Clone, Debug)]
pub(crate) struct Classification {
    pub class: Class,
    /// The module in the summary.
    pub module: Cow<'static, str>,
    /// The difference, or the consequence of the absence.
    pub note: Cow<'static, str>,
    /// The replacement.
    pub substitute: Cow<'static, str>,
    /// The directive refuses or protects clients: its absence must be reported.
    pub protects: bool,
    pub treatment: Treatment,
}

/// The context of a directive.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Surroundings {
    /// A block of this kind.
    Block(Context),
    /// A block whose entries are data: they are not directives.
    Data,
    /// A block that is missing as a whole: its directives share its class and its module.
    Lost(Class, Cow<'static, str>),
}

impl Classification {
    fn new(class: Class, module: impl Into<Cow<'static, str>>) -> Classification {
        Classification {
            class,
            module: module.into(),
            note: "".into(),
            substitute: "".into(),
            protects: false,
            treatment: Treatment::Keep,
        }
    }

    /// The verdict on a directive in a block that is missing as a whole.
    pub(crate) fn lost(class: Class, module: Cow<'static, str>) -> Classification {
        Classification {
            note: "stands in a block that is missing".into(),
            ..Classification::new(class, module)
        }
    }
}

/// The verdict on a directive in a block.
pub(crate) fn verdict(registry: &Registry, context: Context, node: &Node) -> Classification {
    let name = &node.name.text[..];
    if name == b"load_module" {
        return load_module(node);
    }
    let row = registry.find(name, context);
    let entry = unsupported::find(name, context);
    let here = entry.filter(|entry| entry.contexts.intersects(context));
    if let Some(row) = row {
        let built_in = elsewhere::built_in(row.module);
        let module = match (built_in, here) {
            (Some(built_in), _) => built_in.name,
            (None, Some(entry)) => entry.module,
            (None, None) if name == b"include" => "ngx_core_module",
            (None, None) => row.module,
        };
        // The reference says so in the first words.
        if row.doc.first().is_some_and(|line| line.trim_start().starts_with("Accepted ")) {
            return Classification::new(Class::NoEffect, module);
        }
        return match differs::find(name) {
            Some(difference) => Classification {
                note: format!("{} ({})", difference.note, difference.link()).into(),
                ..Classification::new(Class::Differs, module)
            },
            None => Classification::new(Class::Runs, module),
        };
    }
    if let Some(feature) = features::find(name).filter(|_| registry.named(name).is_empty()) {
        // It stays in an adapted copy: another build runs it.
        return Classification {
            note: format!(
                "belongs to the feature \"{}\", which this build leaves out",
                feature.name
            )
            .into(),
            ..Classification::new(Class::Missing, here.map_or(feature.name, |entry| entry.module))
        };
    }
    if let Some(entry) = here.or(entry.filter(|_| registry.named(name).is_empty())) {
        let role = if entry.name == "perl" { Role::Handler } else { Role::Other };
        return Classification {
            note: entry.reason.into(),
            treatment: removal(role, context),
            ..Classification::new(Class::Missing, entry.module)
        };
    }
    if !registry.named(name).is_empty() {
        return Classification {
            note: format!("is not allowed in \"{}\"", context.describe()).into(),
            ..Classification::new(Class::Refused, entry.map_or("misplaced", |entry| entry.module))
        };
    }
    match elsewhere::find(name) {
        Some(origin) => foreign(origin, context, node),
        None => Classification {
            note:
                "no module known to nowait has this directive: a misspelling, or a module of your \
                   own"
                .into(),
            ..Classification::new(Class::Unknown, "unknown")
        },
    }
}

/// The verdict on a directive of a third party.
fn foreign(origin: &'static elsewhere::Origin, context: Context, node: &Node) -> Classification {
    let name = &node.name.text[..];
    let lua = is_lua_block(name) && node.block.is_some();
    // `auth_ldap off;` admits everybody, and so does its absence.
    let off = node.args.first().is_some_and(|word| word == "off" || word == "0");
    let role = if off { Role::Other } else { origin.role(name) };
    let renamed = match name {
        b"fancyindex" => Some("autoindex"),
        b"fancyindex_exact_size" => Some("autoindex_exact_size"),
        b"fancyindex_localtime" => Some("autoindex_localtime"),
        _ => None,
    };
    Classification {
        note: origin.loss.into(),
        substitute: origin.advice.into(),
        protects: !off && (origin.protects || role == Role::Guard),
        treatment: match (renamed, role) {
            (Some(other), _) => Treatment::Rename(other),
            (None, _) if origin.decide => Treatment::Keep,
            (None, role) => removal(role, context),
        },
        ..Classification::new(if lua { Class::Lua } else { Class::ThirdParty }, origin.name)
    }
}

/// The substitute for a missing directive, by its role. What cannot be refused at the same place stays, so
/// that the check names it: a copy without it would admit clients, or send files.
fn removal(role: Role, context: Context) -> Treatment {
    let ifs = Context::SERVER_IF | Context::LOCATION_IF;
    let returns = (ifs | Context::SERVER | Context::LOCATION).intersects(context);
    match role {
        Role::Other => Treatment::Remove,
        Role::Handler if returns => Treatment::Instead("return 501;"),
        // Not "deny all": an "allow" before it would admit clients, and so would a list in a location.
        Role::Guard if returns => Treatment::Instead("return 403;"),
        Role::Handler | Role::Guard => Treatment::Keep,
    }
}

fn load_module(node: &Node) -> Classification {
    let file = node.args.first().map(|word| word.lossy()).unwrap_or_default();
    let name = file.rsplit('/').next().unwrap_or_default().trim_end_matches(".so").to_owned();
    let verdict = |class, note: String, substitute: &'static str, protects| Classification {
        note: note.into(),
        substitute: substitute.into(),
        protects,
        treatment: Treatment::Remove,
        ..Classification::new(class, "ngx_core_module")
    };
    match elsewhere::shared_object(&file) {
        SharedObject::BuiltIn(known) => {
            verdict(Class::NoEffect, format!("{} is built in", known.name), "", false)
        }
        SharedObject::Foreign(origin) => verdict(
            Class::ThirdParty,
            format!("{name} ({}) is missing: {}", origin.name, origin.loss),
            origin.advice,
            origin.protects,
        ),
        SharedObject::Missing(directive) => {
            let reason = unsupported::all().find(|entry| entry.name == directive);
            let reason = reason.map_or("", |entry| entry.reason);
            verdict(Class::Missing, format!("{name} is missing: {reason}"), "", false)
        }
        SharedObject::Unknown => verdict(
            Class::Unknown,
            format!("{name} is unknown: its directives are listed as unknown, too"),
            "",
            false,
        ),
    }
}

/// The kind of a directive's block in `context`.
pub(crate) fn inside(context: Context, node: &Node, verdict: &Classification) -> Surroundings {
    if !verdict.class.works() {
        return Surroundings::Lost(verdict.class, verdict.module.clone());
    }
    let Some(kind) = block_kind(context, &node.name.text) else { return Surroundings::Data };
    Surroundings::Block(kind)
}

/// The kind of a block; `None` if its entries are data.
fn block_kind(context: Context, name: &[u8]) -> Option<Context> {
    let choose = |in_http: Context, in_stream: Context| {
        if context.intersects(Context::STREAM) { in_stream } else { in_http }
    };
    Some(match name {
        b"events" => Context::EVENTS,
        b"http" => Context::HTTP,
        b"stream" => Context::STREAM,
        b"server" => choose(Context::SERVER, Context::STREAM_SERVER),
        b"upstream" => choose(Context::UPSTREAM, Context::STREAM_UPSTREAM),
        b"location" => Context::LOCATION,
        b"if" if context.intersects(Context::SERVER) => Context::SERVER_IF,
        b"if" => Context::LOCATION_IF,
        b"limit_except" => Context::LIMIT_EXCEPT,
        _ => return None,
    })
}

/// The blocks of a registry that are neither known as blocks of directives nor as data, for a test.
pub fn blocks_to_judge(registry: &Registry) -> Vec<&'static str> {
    const DATA: &[&str] = &[
        "types",
        "map",
        "num_map",
        "geo",
        "geoip2",
        "split_clients",
        "charset_map",
        "match",
        "acme_issuer",
        "otel_exporter",
        "prometheus_template",
    ];
    let blocks = registry.rows().filter(|row| row.block);
    let unknown = blocks.filter(|row| block_kind(Context::HTTP, row.name.as_bytes()).is_none());
    unknown.map(|row| row.name).filter(|name| !DATA.contains(name)).collect()
}

/// The directives of [`differs`] that are never reported as such, for a test.
pub fn silent_differences(registry: &Registry) -> Vec<&'static str> {
    const CONTEXTS: [Context; 9] = [
        Context::MAIN,
        Context::EVENTS,
        Context::HTTP,
        Context::SERVER,
        Context::LOCATION,
        Context::UPSTREAM,
        Context::STREAM,
        Context::STREAM_SERVER,
        Context::STREAM_UPSTREAM,
    ];
    let is_silent = |name: &&str| {
        let node = Node {
            name: Word::built_in(*name),
            args: Vec::new(),
            block: None,
            span: Span::BUILT_IN,
            close: None,
            entries: None,
        };
        let class = |context: Context| verdict(registry, context, &node).class;
        CONTEXTS.iter().all(|context| class(*context) != Class::Differs)
    };
    differs::all().flat_map(differs::Difference::names).filter(is_silent).collect()
}
