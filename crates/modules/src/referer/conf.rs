//! Settings of `valid_referers`. nginx: `ngx_http_referer_module`.

use std::sync::Arc;

use nowait_conf::{Cx, Diagnostic, Node, Regex as Compiled, Scope, Word};
use nowait_front::servers::ServerName;
use nowait_http::conf::uri_scope::ServerNames;
use nowait_http::server_name::{InsertResult, Names};
use nowait_variables::Regex;

nowait_conf::directives! {
    /// Tuning, which is not needed.
    #[derive(Debug)]
    module "referer";
    pub struct RefererHashConf with RefererHashConfLayer;

    /// Accepted for compatibility: the table needs no tuning.
    referer_hash_max_size: u32 = "2048", in SERVER | LOCATION, args "size";
    /// Accepted for compatibility: the table needs no tuning.
    referer_hash_bucket_size: u32 = "64", in SERVER | LOCATION, args "size";
}

nowait_conf::rows! {
    pub static REFERER_ROWS, module "referer";

    /// Pages that requests may come from: `$invalid_referer` is empty if the `Referer` field
    /// matches, else `1`. `none` matches a missing field; `blocked` one without `http://` or
    /// `https://`, as some proxies leave it; `server_names` one with a name of the server. Other
    /// values are a host, optionally with `*` at its beginning or end and with the beginning of a
    /// path, or `~` and a case-insensitive regular expression for the text after the scheme.
    "valid_referers" => valid_referers, in SERVER | LOCATION, take at_least(1), inheritance List, args "none | blocked | server_names | string ...";
}

/// The `valid_referers` of one block.
#[derive(Default)]
struct RefererLayer {
    none: bool,
    blocked: bool,
    server_names: bool,
    hosts: Vec<(Word, Option<Box<[u8]>>)>,
    regexes: Vec<Compiled>,
}

/// Valid origins of requests.
#[derive(Debug)]
pub struct Referers {
    /// Whether a missing `Referer` is valid.
    pub none: bool,
    /// Whether a value without a scheme is valid.
    pub blocked: bool,
    /// Hosts with the beginnings of their paths; expressions for hosts.
    pub hosts: Names<Option<Box<[u8]>>, Regex>,
    /// Expressions for host and path.
    pub regexes: Box<[Compiled]>,
}

fn valid_referers(cx: &mut Cx<'_>, node: &Node) -> Result<(), Diagnostic> {
    for word in &node.args {
        let layer = cx.layer::<RefererLayer>();
        match &word.text[..] {
            b"" => return Err(word.error("invalid referer \"\"")),
            b"none" => layer.none = true,
            b"blocked" => layer.blocked = true,
            b"server_names" => layer.server_names = true,
            b"~" => return Err(word.error("empty regex in \"~\"")),
            [b'~', pattern @ ..] => {
                let regex = Compiled::new(pattern, true);
                layer.regexes.push(regex.map_err(|error| word.error(error.to_string()))?);
            }
            text => {
                let slash = text.iter().position(|&byte| byte == b'/');
                let path = slash.map(|at| text[at..].into());
                let mut host = word.clone();
                host.text.truncate(slash.unwrap_or(text.len()));
                host.text.make_ascii_lowercase();
                layer.hosts.push((host, path));
            }
        }
    }
    Ok(())
}

impl Referers {
    /// Resolves a chain of blocks: the innermost one with such a directive counts.
    pub fn resolve(cx: &mut Cx<'_>, chain: &[&Scope]) -> Option<Arc<Self>> {
        RefererHashConf::resolve(cx, chain);
        let layer = chain.iter().rev().find_map(|scope| scope.get::<RefererLayer>())?;
        let mut hosts = Names::new();
        for (host, path) in &layer.hosts {
            match hosts.insert(&host.text, path.clone()) {
                Ok(InsertResult::New) => {}
                Ok(InsertResult::Conflict) => {
                    cx.report(host.error(format!("conflicting parameter \"{host}\"")));
                }
                Err(_) => {
                    let text = format!("invalid hostname or wildcard \"{host}\"");
                    cx.report(host.error(text));
                }
            }
        }
        if layer.server_names {
            for name in &cx.global::<ServerNames>().0 {
                match name {
                    ServerName::Regex(regex) => hosts.insert_regex(regex.clone(), None),
                    // A host given explicitly may have a path. Invalid names were rejected before.
                    ServerName::Plain(name) => drop(hosts.insert(name, None)),
                }
            }
        }
        if (layer.none || layer.blocked) && hosts.is_empty() && layer.regexes.is_empty() {
            cx.report(Diagnostic::emerg(
                "the \"none\" or \"blocked\" referers are specified in the \"valid_referers\" \
                 directive without any valid referer",
            ));
        }
        let regexes = layer.regexes.clone().into();
        Some(Arc::new(Self { none: layer.none, blocked: layer.blocked, hosts, regexes }))
    }
}
