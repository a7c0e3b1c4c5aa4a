//! `rewrite`, `return`, `if`, `set`.

use std::collections::HashMap;

use nowait_conf::{Level, Node, Regex, Word};

use crate::model::{BlockKind, BlockRef, Model, Modifier};
use crate::rule::{Rule, RuleReport};
use crate::values::{condition, variables};

pub(crate) static RULES: &[Rule] = &[
    Rule {
        name: "if-in-location",
        level: Level::Warn,
        fixes: false,
        summary: "`if` in a location with more than `return`, `rewrite` and `set`",
        text: "An `if` in a location is a location of its own, with handlers and headers of its own, \
               that takes the place of the outer one once its condition is true. Directives that \
               stand beside it, or in another `if`, then have no effect in ways that are hard to \
               foresee. Use `map` for values and separate locations for handlers.",
        wrong: "
location / {
    proxy_pass http://127.0.0.1:8080;
    if ($http_user_agent ~ bot) {
        proxy_pass http://127.0.0.1:8081;
    }
}
",
        right: "
map $http_user_agent $port {
    ~bot    8081;
    default 8080;
}
server {
    listen 80;
    location / {
        proxy_pass http://127.0.0.1:$port;
    }
}
",
        source: "https://www.nginx.com/resources/wiki/start/topics/depth/ifisevil/",
        check: if_in_location,
    },
    Rule {
        name: "if-for-files",
        level: Level::Notice,
        fixes: false,
        summary: "`if (-f ...)` with `rewrite` in place of `try_files`",
        text: "`try_files` looks for the same files, needs no `if`, and cannot go wrong with other \
               directives of the location.",
        wrong: "
location / {
    root /srv/site;
    if (!-e $request_filename) {
        rewrite ^ /index.html last;
    }
}
",
        right: "
location / {
    root /srv/site;
    try_files $uri $uri/ /index.html;
}
",
        source: "https://www.nginx.com/resources/wiki/start/topics/tutorials/config_pitfalls/",
        check: if_for_files,
    },
    Rule {
        name: "if-for-host",
        level: Level::Notice,
        fixes: false,
        summary: "`if ($host = ...)` in place of a server of its own",
        text: "The condition is evaluated for every request, regardless of its name. A second `server` \
               with the other name is chosen by a look-up that takes place anyway.",
        wrong: "
server {
    listen 80;
    server_name example.org www.example.org;
    if ($host = www.example.org) {
        return 301 http://example.org$request_uri;
    }
    root /srv/site;
}
",
        right: "
server {
    listen 80;
    server_name www.example.org;
    return 301 http://example.org$request_uri;
}
server {
    listen 80;
    server_name example.org;
    root /srv/site;
}
",
        source: "https://www.nginx.com/resources/wiki/start/topics/tutorials/config_pitfalls/",
        check: if_for_host,
    },
    Rule {
        name: "rewrite-for-redirect",
        level: Level::Notice,
        fixes: true,
        summary: "a redirect of everything by `rewrite` in place of `return`",
        text: "A regular expression that matches every path decides nothing. `return` says the same, \
               and `$request_uri` is the path with its arguments as the client sent it.",
        wrong: "
server {
    listen 80;
    server_name www.example.org;
    rewrite ^ http://example.org$request_uri? permanent;
}
",
        right: "
server {
    listen 80;
    server_name www.example.org;
    return 301 http://example.org$request_uri;
}
",
        source: "https://www.nginx.com/resources/wiki/start/topics/tutorials/config_pitfalls/",
        check: rewrite_for_redirect,
    },
    Rule {
        name: "redirect-without-scheme",
        level: Level::Error,
        fixes: false,
        summary: "a redirect to another host without `http://` or `https://`",
        text: "Without a scheme, the name of the host is taken for a path on this server.",
        wrong: "
location /old/ {
    return 301 example.org/new/;
}
",
        right: "
location /old/ {
    return 301 https://example.org/new/;
}
",
        source: "https://www.nginx.com/resources/wiki/start/topics/tutorials/config_pitfalls/",
        check: redirect_without_scheme,
    },
    Rule {
        name: "rewrite-loop",
        level: Level::Error,
        fixes: false,
        summary: "a `rewrite` whose result it rewrites again",
        text: "After `rewrite ... last` (or without a flag) in a location, a location is looked for \
               again. If it is the same one, and the expression matches the result, the request goes \
               round until the limit of ten, and fails with 500. `break` stays in the location.",
        wrong: "
location /app/ {
    rewrite ^/app/(.*)$ /app/index.html?path=$1 last;
}
",
        right: "
location /app/ {
    rewrite ^/app/(.*)$ /app/index.html?path=$1 break;
}
",
        source: "https://nginx.org/en/docs/http/ngx_http_rewrite_module.html#rewrite",
        check: rewrite_loop,
    },
    Rule {
        name: "unreachable-after-return",
        level: Level::Warn,
        fixes: false,
        summary: "directives that an unconditional `return` makes useless",
        text: "`return` ends the request: what follows it among `set`, `if` and `rewrite` is not \
               executed, and a handler of the same location is never asked, wherever it stands.",
        wrong: "
location /api/ {
    return 403;
    proxy_pass http://127.0.0.1:8080;
}
",
        right: "
location /api/ {
    proxy_pass http://127.0.0.1:8080;
}
",
        source: "https://nginx.org/en/docs/http/ngx_http_rewrite_module.html#return",
        check: after_return,
    },
    Rule {
        name: "return-hides-locations",
        level: Level::Error,
        fixes: false,
        summary: "a `return` in a server makes its locations useless",
        text: "A `return` of the server is executed before a location is looked for, also for \
               `/.well-known/acme-challenge/`. Put it into `location /`, so that other locations \
               take precedence.",
        wrong: "
server {
    listen 80;
    location /.well-known/acme-challenge/ {
        root /srv/acme;
    }
    return 301 https://$host$request_uri;
}
",
        right: "
server {
    listen 80;
    location /.well-known/acme-challenge/ {
        root /srv/acme;
    }
    location / {
        return 301 https://$host$request_uri;
    }
}
",
        source: "https://nginx.org/en/docs/http/ngx_http_rewrite_module.html",
        check: hidden_locations,
    },
    Rule {
        name: "return-before-access",
        level: Level::Error,
        fixes: false,
        summary: "`allow`, `deny`, `auth_basic` or `limit_req` beside `return` have no effect",
        text: "`return` is executed before addresses, passwords and limits are checked, so everybody gets \
               the response. Decide by `geo` and `if`, or use a handler that comes after the checks, such \
               as `try_files` or `proxy_pass`.",
        wrong: "
location = /internal-status {
    allow 10.0.0.0/8;
    deny all;
    return 200 \"up\";
}
",
        right: "
geo $is_inside {
    10.0.0.0/8 1;
}
server {
    listen 80;
    location = /internal-status {
        if ($is_inside = \"\") {
            return 403;
        }
        return 200 \"up\";
    }
}
",
        source: "https://nginx.org/en/docs/dev/development_guide.html#http_phases",
        check: return_before_access,
    },
];

fn if_in_location(model: &Model<'_>, report: &mut RuleReport) {
    /// Directives that are safe, or that the reference shows in an `if`.
    const SAFE: &[&str] = &[
        "access_log",
        "break",
        "limit_rate",
        "limit_rate_after",
        "log_not_found",
        "return",
        "rewrite",
        "rewrite_log",
        "set",
        "uninitialized_variable_warn",
    ];
    for block in model.all(BlockKind::If) {
        if block.parent().is_none_or(|outer| outer.kind() != BlockKind::Location) {
            continue;
        }
        let odd = block.nodes().iter().find(|node| !SAFE.iter().any(|safe| node.name == **safe));
        if let Some(node) = odd {
            report
                .find(node.name.span, format!("\"{}\" in an \"if\" of a location", node.name))
                .note(block.span(), "if this is true, it takes the place of the location");
        }
    }
}

fn if_for_files(model: &Model<'_>, report: &mut RuleReport) {
    for block in model.all(BlockKind::If) {
        let words = condition(block).unwrap_or_default();
        let is_test = words
            .first()
            .is_some_and(|word| matches!(word.trim_start_matches('!'), "-e" | "-f" | "-d"));
        let is_path = words.last().is_some_and(|word| word.starts_with("$request_filename"));
        if is_test && is_path && block.has("rewrite") {
            report
                .find(block.span(), "\"if\" looks for a file to decide on a rewrite")
                .hint("use \"try_files\" in a location");
        }
    }
}

fn if_for_host(model: &Model<'_>, report: &mut RuleReport) {
    for block in model.all(BlockKind::If) {
        let is_in_server = block.parent().is_some_and(|outer| outer.kind() == BlockKind::Server);
        let words = condition(block).unwrap_or_default();
        let is_host = words
            .first()
            .is_some_and(|word| matches!(word.as_str(), "$host" | "$http_host" | "$server_name"));
        // "!=" guards against unknown names, which "default_server" would do.
        if is_in_server && is_host && words.len() == 3 && block.has_any(&["return", "rewrite"]) {
            report
                .find(block.span(), format!("\"if ({})\" chooses by name", words.join(" ")))
                .hint("a \"server\" of its own for that name needs no condition");
        }
    }
}

fn flag(node: &Node) -> Option<&Word> {
    node.args.get(2)
}

fn is_redirect(node: &Node) -> bool {
    flag(node).is_some_and(|flag| *flag == *"permanent" || *flag == *"redirect")
}

fn is_absolute(text: &[u8]) -> bool {
    [&b"http://"[..], b"https://", b"$scheme://"].iter().any(|scheme| text.starts_with(scheme))
}

fn rewrite_for_redirect(model: &Model<'_>, report: &mut RuleReport) {
    for (_, node) in model.directives("rewrite") {
        let [pattern, target, flag] = node.args.as_slice() else { continue };
        let everything = ["^", "^/", ".*", "^.*", "^.*$", "^(.*)$", "^(.*)", "^/(.*)$", "^/(.*)"];
        let is_everything = everything.iter().any(|text| *pattern == **text);
        if !is_everything || !is_redirect(node) || !is_absolute(&target.text) {
            continue;
        }
        let code = if *flag == *"permanent" { "301" } else { "302" };
        let finding = report
            .find(node.name.span, format!("\"{pattern}\" matches every path: \"return\" does"));
        finding.hint(format!("return {code} http://...$request_uri;"));
        // Without the final "?" arguments are appended, with a group the path is a decoded one.
        let uses_groups = variables(&target.text).iter().any(|name| name.parse::<u8>().is_ok());
        let end = target.text.len().checked_sub(1).filter(|_| target.text.ends_with(b"?"));
        if let Some(place) = end.and_then(|end| crate::words::place_in(target, end))
            && !uses_groups
        {
            let question = nowait_conf::Span { end: place.end + 1, ..place };
            finding.replace(node.name.span, "return").replace(pattern.span, code);
            finding.replace(question, "").remove(node, &[flag]);
        }
    }
}

/// The redirect target of a `return`, if it has one.
fn target(node: &Node) -> Option<&Word> {
    match node.args.as_slice() {
        [url] if url.text.parse_code().is_none() => Some(url),
        [code, url] if matches!(code.text.parse_code(), Some(301 | 302 | 303 | 307 | 308)) => {
            Some(url)
        }
        _ => None,
    }
}

trait Code {
    fn parse_code(&self) -> Option<u16>;
}

impl Code for Vec<u8> {
    fn parse_code(&self) -> Option<u16> {
        std::str::from_utf8(self).ok()?.parse().ok()
    }
}

/// Suffixes of files that are no top-level domains.
const FILES: &[&str] = &[
    "asp", "aspx", "cgi", "css", "gif", "htm", "html", "ico", "jpeg", "jpg", "js", "json", "jsp",
    "pdf", "php", "png", "shtml", "svg", "txt", "webp", "xhtml", "xml",
];

fn redirect_without_scheme(model: &Model<'_>, report: &mut RuleReport) {
    let returns = model.directives("return").filter_map(|(_, node)| target(node));
    let rewrites = model
        .directives("rewrite")
        .filter(|(_, node)| is_redirect(node))
        .filter_map(|(_, node)| node.args.get(1));
    for word in returns.chain(rewrites) {
        let text = word.lossy();
        let host = text.split(['/', '?']).next().unwrap_or_default();
        let is_name = host.contains('.')
            && host.starts_with(|c: char| c.is_ascii_alphanumeric())
            && host.bytes().all(|b| b.is_ascii_alphanumeric() || b".-:".contains(&b));
        // "index.html" is a relative path.
        let is_file = !text.contains('/')
            && host.rsplit_once('.').is_some_and(|(_, suffix)| {
                FILES.iter().any(|known| suffix.eq_ignore_ascii_case(known))
            });
        if is_name && !is_file && !text.contains("://") {
            report
                .find(word.span, format!("\"{text}\" is a path on this server"))
                .label("\"https://\" is missing before the name");
        }
    }
}

fn rewrite_loop(model: &Model<'_>, report: &mut RuleReport) {
    let mut choices: HashMap<usize, Choices<'_>> = HashMap::new();
    let mut matches = 0;
    for block in model.all(BlockKind::Location) {
        let (Some(location), Some(server)) = (block.location(), block.parent()) else { continue };
        for node in block.own("rewrite") {
            let [pattern, target, ..] = node.args.as_slice() else { continue };
            let goes_round = flag(node).is_none_or(|flag| *flag == *"last");
            if !goes_round || !target.text.starts_with(b"/") {
                continue;
            }
            let result = sample(target);
            if result.len() > PATH_BYTES_MAX || matches > MATCHES_MAX {
                continue;
            }
            let Ok(expression) = Regex::new(&pattern.text, false) else { continue };
            matches += 1;
            let again = expression.is_match(&result).unwrap_or(false);
            let mut is_chosen = || {
                let choices = choices.entry(server.number()).or_insert_with(|| Choices::of(server));
                matches += choices.regexes.len();
                choices.chosen(&result) == Some(block)
            };
            if again && is_chosen() {
                let shown = String::from_utf8_lossy(&result);
                report
                    .find(target.span, format!("\"{shown}\" is rewritten again, without end"))
                    .note(location.word.span, "the result comes to the same location")
                    .hint("\"break\" stays in the location");
                break;
            }
        }
    }
}

/// A possible path of a replacement.
fn sample(target: &Word) -> Vec<u8> {
    let text = target.lossy();
    let path = text.split('?').next().unwrap_or_default();
    let mut out = String::new();
    let mut parts = path.split('$');
    out.push_str(parts.next().unwrap_or_default());
    for part in parts {
        let part = part.trim_start_matches('{');
        let end = match part.starts_with(|c: char| c.is_ascii_digit()) {
            true => 1,
            false => {
                part.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(part.len())
            }
        };
        out.push('x');
        out.push_str(part[end..].trim_start_matches('}'));
    }
    out.into_bytes()
}

/// The longest path that is judged, in bytes.
const PATH_BYTES_MAX: usize = 500;

/// How often expressions are matched for one configuration: each of some thousand rewrites might have to be
/// compared with thousands of locations.
const MATCHES_MAX: usize = 100_000;

/// The locations of a server, to choose from.
struct Choices<'m> {
    exact: HashMap<&'m [u8], BlockRef<'m>>,
    /// The prefixes, and whether they forbid expressions.
    prefixes: HashMap<&'m [u8], (BlockRef<'m>, bool)>,
    regexes: Vec<(BlockRef<'m>, Regex)>,
}

impl<'m> Choices<'m> {
    fn of(server: BlockRef<'m>) -> Choices<'m> {
        let mut choices =
            Choices { exact: HashMap::new(), prefixes: HashMap::new(), regexes: Vec::new() };
        for block in server.inner() {
            let Some(location) = block.own_location() else { continue };
            match location.modifier {
                Modifier::Exact => {
                    choices.exact.entry(location.text).or_insert(block);
                }
                Modifier::Prefix | Modifier::Preferred => {
                    let is_preferred = location.modifier == Modifier::Preferred;
                    choices.prefixes.entry(location.text).or_insert((block, is_preferred));
                }
                Modifier::Regex { ignores_case } => {
                    let regex = Regex::new(location.text, ignores_case);
                    choices.regexes.extend(regex.ok().map(|regex| (block, regex)));
                }
                Modifier::Named => {}
            }
        }
        choices
    }

    /// The location for a path.
    fn chosen(&self, path: &[u8]) -> Option<BlockRef<'m>> {
        if let Some(block) = self.exact.get(path) {
            return Some(*block);
        }
        let mut prefixes = (0..=path.len()).rev().filter_map(|end| self.prefixes.get(&path[..end]));
        let prefix = prefixes.next().copied();
        if let Some((block, true)) = prefix {
            return Some(block);
        }
        let matches = |regex: &Regex| regex.is_match(path).unwrap_or(false);
        let regex = self.regexes.iter().find(|(_, regex)| matches(regex));
        regex.map(|(block, _)| *block).or(prefix.map(|(block, _)| block))
    }
}

fn after_return(model: &Model<'_>, report: &mut RuleReport) {
    const REWRITING: &[&str] = &["set", "rewrite", "if", "return", "break"];
    for block in model.for_requests() {
        let nodes = block.nodes();
        let Some(at) = nodes.iter().position(|node| node.name == "return") else { continue };
        let later =
            nodes[at + 1..].iter().find(|node| REWRITING.iter().any(|name| node.name == **name));
        let is_location = block.kind() == BlockKind::Location;
        let handler = nodes.iter().find(|node| {
            is_location
                && (crate::words::PASSES.iter().any(|name| node.name == **name)
                    || node.name == "try_files")
        });
        if let Some(node) = later.or(handler) {
            let message = format!("\"{}\" is never reached", node.name);
            report.find(node.name.span, message).note(nodes[at].name.span, "the request ends here");
        }
    }
}

fn hidden_locations(model: &Model<'_>, report: &mut RuleReport) {
    for server in model.servers() {
        let Some(end) = server.own("return").next() else { continue };
        let hidden = server.inner().find(|block| {
            block.location().is_some_and(|location| {
                block.kind() == BlockKind::Location && location.modifier != Modifier::Named
            })
        });
        if let Some(location) = hidden.and_then(BlockRef::location) {
            report
                .find(
                    location.word.span,
                    format!("location \"{}\" is never used", location.lossy()),
                )
                .note(end.name.span, "every request ends here, before locations are looked for")
                .hint("put the \"return\" into \"location /\"");
        }
    }
}

fn return_before_access(model: &Model<'_>, report: &mut RuleReport) {
    const CHECKS: &[&str] =
        &["allow", "deny", "auth_basic", "auth_request", "limit_req", "limit_conn"];
    for block in model.for_requests() {
        let Some(end) = block.own("return").next() else { continue };
        let code = end.args.first().and_then(|word| word.text.parse_code());
        let refuses = code.is_some_and(|code| code >= 400);
        let check = block.nodes().iter().find(|node| {
            CHECKS.iter().any(|name| node.name == **name) && !crate::words::has_word(node, "off")
        });
        if let Some(check) = check.filter(|_| !refuses) {
            report
                .find(
                    check.name.span,
                    format!("\"{}\" has no effect beside \"return\"", check.name),
                )
                .note(end.name.span, "this is executed first, for everybody");
        }
    }
}
