//! `health_check` and `match`. nginx Plus: `ngx_http_upstream_hc_module`.
//!
//! A `match` may be defined after the location that names it, so names are resolved when `http` ends.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use nowait_conf::{Cx, Diagnostic, Msec, Node, Scope, Value, Word, number};
use nowait_front::servers::ServerId;
use nowait_http::conf::upstream::{GroupId, PASSES_TO};
use nowait_http::conf::{HttpConf, LocationId};
use nowait_http::module::LocationBuilder;
use nowait_http::slots::Key;

use super::grpc::GrpcCheck;
use crate::health::matcher::{HeaderRule, HeaderTest, Match, StatusTest};
use crate::upstream::probe::PROBING;

/// Highest status in tests.
const STATUS_MAX: u64 = 999;

nowait_conf::rows! {
    pub static HEALTH_ROWS, module "upstream_hc";

    /// Probes the servers of the group named by the location's `proxy_pass` at intervals, from one
    /// of the workers. Servers that fail receive no requests. Probes follow the location's
    /// settings: `proxy_set_header`, `proxy_http_version`, timeouts. A location can have one check;
    /// if several locations check the same group, a server is healthy only while all checks pass.
    ///
    /// * `interval=time`: time between two probes; 5 seconds by default.
    /// * `jitter=time`: each probe is delayed by a random time up to this one.
    /// * `fails=number`: consecutive failures after which a server is unhealthy, and
    ///   `passes=number`: consecutive successes after which it is healthy again; 1 by default.
    /// * `uri=uri`: the URI to request; `/` by default.
    /// * `port=number`: a port to use instead of the server's.
    /// * `match=name`: the `match` block that a response must satisfy; by default its status must
    ///   be 2xx or 3xx.
    /// * `mandatory`: a new server receives no requests before its first successful probe. With
    ///   `persistent`, one that was healthy before a reload does.
    /// * `keepalive_time=time`: how long a connection is used for probes; by default each probe
    ///   opens its own.
    ///
    /// * `type=tcp`: opens a connection, and closes it without a request; with a TLS handshake, if the
    ///   servers use TLS. Not together with `uri`, `match` or `keepalive_time`.
    /// * `type=grpc`: calls `grpc.health.v1.Health/Check`, and the server must answer that it serves;
    ///   for locations with `grpc_pass`, and not together with `uri` or `match`. The parameters
    ///   after it: `grpc_service=name` asks for one service; with `grpc_status=number` the call may
    ///   also fail with this status, such as 12 of servers without health checks.
    ///
    /// nginx differs: the group needs a `zone`.
    "health_check" => health_check, in LOCATION, take any(), inheritance Own, args "[interval=time] [jitter=time] [fails=number] [passes=number] [uri=uri] [port=number] [match=name] [mandatory [persistent]] [keepalive_time=time] [type=http | type=tcp | type=grpc [grpc_service=name] [grpc_status=number]]";
    /// Conditions for responses to health checks; all of them must hold:
    ///
    /// * `status 200 300-399;`, `status ! 500-599;`: the status is, or is not, one of these.
    /// * `header name;`, `header ! name;`: the field is present, or absent; `header name = text;`,
    ///   `header name != text;`: its value; `header name ~ regex;`, `header name !~ regex;`: it
    ///   matches a regular expression, or does not (`~*` and `!~*` ignore case).
    /// * `body ~ regex;`, `body !~ regex;`: the same for the first 256 KB of the body.
    /// * `require $variable ...;`: the variables are neither empty nor `0`. They may refer to the
    ///   response: `$upstream_status`, `$upstream_http_name`.
    block "match" => match_block, in HTTP, take exactly(1), args "name { ... }";
}

/// `health_check` of a location.
#[derive(Clone, Debug)]
struct Given {
    check: Check,
    /// The name of its `match` block.
    named: Option<Word>,
    at: nowait_conf::Span,
}

/// The parameters of a check.
#[derive(Clone, Debug)]
pub struct Check {
    /// Time between two checks.
    pub interval: Duration,
    /// Largest random delay of a check.
    pub jitter: Duration,
    /// Consecutive failures that make a server unhealthy.
    pub fails: u32,
    /// Consecutive successes that make it healthy.
    pub passes: u32,
    /// The requested URI.
    pub uri: Bytes,
    /// Port to use instead of the server's.
    pub port: Option<u16>,
    /// Whether servers get no requests before their first check.
    pub mandatory: bool,
    /// Whether those that were healthy before a reload get requests nevertheless.
    pub persistent: bool,
    /// The time that a connection is used for checks.
    pub keepalive_time: Option<Duration>,
    /// `type=tcp`
    pub only_connects: bool,
    /// `type=grpc`
    pub grpc: Option<GrpcCheck>,
    /// Name of the `match` block, for logs.
    pub match_name: Bytes,
    /// The tests of responses.
    pub tests: Arc<Match>,
}

/// A health check and the settings that it uses.
#[derive(Clone, Debug)]
pub struct HealthCheck {
    /// The checked group.
    pub group: GroupId,
    /// The virtual server of the location.
    pub server: ServerId,
    /// The location.
    pub location: LocationId,
    /// The check.
    pub check: Check,
}

/// The `health_check` of a block.
#[derive(Default)]
struct HealthLayer(Option<Given>);

/// The `match` blocks.
#[derive(Default)]
struct Matches(HashMap<Vec<u8>, Arc<Match>>);

/// The `health_check` of a location.
static GIVEN: Key<Given> = Key::new();

/// The checks of a configuration.
static CHECKS: Key<Vec<HealthCheck>> = Key::new();

/// The checks of a configuration.
pub fn checks(conf: &HttpConf) -> &[HealthCheck] {
    conf.settings.get(&CHECKS).map_or(&[], |checks| &checks[..])
}

/// Notes the `health_check` of a location. It is not inherited.
pub fn build(_: &mut Cx<'_>, chain: &[&Scope], parts: &mut LocationBuilder) {
    let given = chain.last().and_then(|scope| scope.get::<HealthLayer>());
    if let Some(given) = given.and_then(|layer| layer.0.clone()) {
        parts.settings.set(&GIVEN, given);
    }
}

/// Resolves the checks of all locations.
pub fn finish(cx: &mut Cx<'_>, conf: &mut HttpConf) {
    let checks = resolve(cx, conf);
    conf.settings.set(&CHECKS, checks);
}

fn resolve(cx: &mut Cx<'_>, conf: &HttpConf) -> Vec<HealthCheck> {
    let mut checks = Vec::new();
    for (number, of) in conf.locations().iter().enumerate() {
        let Some(given) = of.settings.get(&GIVEN) else { continue };
        let location = LocationId(u32::try_from(number).unwrap_or(u32::MAX));
        let Given { mut check, named, at } = given.clone();
        let Some(&group) = of.settings.get(&PASSES_TO) else {
            let error =
                "\"health_check\" needs a \"proxy_pass\" or \"grpc_pass\" without variables";
            cx.report(Diagnostic::emerg(error).at(at));
            continue;
        };
        if check.grpc.is_some() && !of.settings.get(&PROBING).is_some_and(|one| one.is_grpc()) {
            let error = "\"health_check type=grpc\" needs a \"grpc_pass\"";
            cx.report(Diagnostic::emerg(error).at(at));
            continue;
        }
        if let Some(word) = named {
            let name = &word.text["match=".len()..];
            match cx.global::<Matches>().0.get(name) {
                Some(tests) => check.tests = tests.clone(),
                None => {
                    let name = String::from_utf8_lossy(name).into_owned();
                    let known: Vec<String> = cx
                        .global::<Matches>()
                        .0
                        .keys()
                        .map(|known| String::from_utf8_lossy(known).into_owned())
                        .collect();
                    let error = word.error(format!("unknown match \"{name}\""));
                    let near = nowait_conf::nearest(&name, known.iter().map(String::as_str));
                    cx.report(match near {
                        Some(near) => error.hint(format!("did you mean \"{near}\"?")),
                        None => {
                            error.hint(format!("define it in the http block: match {name} {{ }}"))
                        }
                    });
                    continue;
                }
            }
        }
        checks.push(HealthCheck { group, server: conf.server_of(location), location, check });
    }
    checks
}

fn health_check(cx: &mut Cx<'_>, node: &Node) -> Result<(), Diagnostic> {
    cx.once(node)?;
    let mut check = Check {
        interval: Duration::from_secs(5),
        jitter: Duration::ZERO,
        fails: 1,
        passes: 1,
        uri: Bytes::from_static(b"/"),
        port: None,
        mandatory: false,
        persistent: false,
        keepalive_time: None,
        only_connects: false,
        grpc: None,
        match_name: Bytes::new(),
        tests: Arc::default(),
    };
    let mut named = None;
    for word in &node.args {
        parameter(&mut check, &mut named, node, word)?;
    }
    if check.persistent && !check.mandatory {
        return Err(node.error("\"persistent\" requires \"mandatory\""));
    }
    let is_http = |word: &&Word| [&b"uri="[..], b"match="].iter().any(|s| word.text.starts_with(s));
    if let (Some(_), Some(word)) = (&check.grpc, node.args.iter().find(is_http)) {
        return Err(word.error(format!("\"{word}\" is incompatible with \"type=grpc\"")));
    }
    let is_about_responses =
        |word: &&Word| is_http(word) || word.text.starts_with(b"keepalive_time=");
    if let (true, Some(word)) = (check.only_connects, node.args.iter().find(is_about_responses)) {
        return Err(word.error(format!("\"{word}\" is incompatible with \"type=tcp\"")));
    }
    let given = Given { check, named, at: node.span };
    cx.layer::<HealthLayer>().0 = Some(given);
    Ok(())
}

fn parameter(
    check: &mut Check,
    named: &mut Option<Word>,
    node: &Node,
    word: &Word,
) -> Result<(), Diagnostic> {
    let (name, value) = match word.text.iter().position(|b| *b == b'=') {
        Some(at) => (&word.text[..at], Some(&word.text[at + 1..])),
        None => (&word.text[..], None),
    };
    let invalid = || node.parameter_error(word);
    let time = |value| {
        let time = Msec::from_word(value).map_err(|invalid| invalid.in_parameter(word))?;
        Ok::<Duration, Diagnostic>(time.duration())
    };
    let count = |value| match number(value) {
        Some(count @ 1..) => Ok(u32::try_from(count).unwrap_or(u32::MAX)),
        _ => Err(invalid()),
    };
    match (name, value) {
        (b"interval", Some(value)) => {
            check.interval = time(value)?;
            if check.interval.is_zero() {
                return Err(invalid());
            }
        }
        (b"jitter", Some(value)) => check.jitter = time(value)?,
        (b"fails", Some(value)) => check.fails = count(value)?,
        (b"passes", Some(value)) => check.passes = count(value)?,
        (b"uri", Some(value)) if value.starts_with(b"/") && !value.contains(&b' ') => {
            check.uri = Bytes::copy_from_slice(value);
        }
        (b"port", Some(value)) => match number(value) {
            Some(port @ 1..=65535) => check.port = u16::try_from(port).ok(),
            _ => return Err(invalid()),
        },
        (b"match", Some(value)) if !value.is_empty() => {
            check.match_name = Bytes::copy_from_slice(value);
            *named = Some(word.clone());
        }
        (b"mandatory", None) => check.mandatory = true,
        (b"persistent", None) => check.persistent = true,
        (b"keepalive_time", Some(value)) => {
            check.keepalive_time = Some(time(value)?).filter(|time| !time.is_zero());
        }
        (b"type", Some(kind @ (b"http" | b"tcp" | b"grpc"))) => {
            check.only_connects = kind == b"tcp";
            check.grpc = (kind == b"grpc").then(GrpcCheck::default);
        }
        (b"type", Some(_)) => {
            return Err(word
                .error(format!("unsupported type in \"{word}\""))
                .expected("type=http, type=tcp or type=grpc"));
        }
        (b"grpc_service" | b"grpc_status", Some(value)) => {
            let Some(grpc) = &mut check.grpc else {
                return Err(word.error(format!("\"{word}\" must follow \"type=grpc\"")));
            };
            match (name, number(value)) {
                (b"grpc_service", _) => grpc.service = Bytes::copy_from_slice(value),
                (_, Some(status @ 0..=STATUS_MAX)) => {
                    grpc.status = u16::try_from(status).unwrap_or(u16::MAX);
                }
                _ => return Err(invalid()),
            }
        }
        _ => return Err(invalid()),
    }
    Ok(())
}

fn match_block(cx: &mut Cx<'_>, node: &Node) -> Result<(), Diagnostic> {
    let name = node.args.first().ok_or_else(|| node.arity_error())?;
    if name.text.is_empty() {
        return Err(name.error(format!("invalid match name \"{name}\"")));
    }
    let mut tests = Match::default();
    for entry in cx.entries(node) {
        let read = test(&mut tests, entry, cx);
        cx.accept(read);
    }
    let matches = &mut cx.global::<Matches>().0;
    if matches.insert(name.text.to_vec(), Arc::new(tests)).is_some() {
        return Err(name.error(format!("duplicate match \"{name}\"")));
    }
    Ok(())
}

fn test(tests: &mut Match, entry: &Node, cx: &mut Cx<'_>) -> Result<(), Diagnostic> {
    let first = entry.args.first().ok_or_else(|| entry.arity_error())?;
    match &entry.name.text[..] {
        b"status" => tests.status.push(status(entry, first)?),
        b"header" => tests.headers.push(header(entry, first)?),
        b"body" => match &entry.args[..] {
            [operator, pattern] => {
                tests.body.push(expression(operator, pattern)?.ok_or_else(|| unknown(operator))?)
            }
            _ => return Err(entry.arity_error()),
        },
        b"require" => {
            for word in &entry.args {
                if word.text.first() != Some(&b'$') {
                    return Err(word.error(format!("invalid variable name \"{word}\"")));
                }
                tests.require.push(nowait_http::conf::complex(word, cx)?);
            }
        }
        _ => {
            return Err(entry
                .name
                .error(format!("unknown directive \"{}\" in \"match\"", entry.name))
                .expected("status, header, body or require"));
        }
    }
    Ok(())
}

fn unknown(operator: &Word) -> Diagnostic {
    operator.error(format!("invalid operator \"{operator}\"")).expected("~, !~, ~* or !~*")
}

/// A match operator (`~` and similar) and its pattern; `None`: another operator.
fn expression(
    operator: &Word,
    pattern: &Word,
) -> Result<Option<(bool, nowait_conf::Regex)>, Diagnostic> {
    let (negated, caseless) = match &operator.text[..] {
        b"~" => (false, false),
        b"~*" => (false, true),
        b"!~" => (true, false),
        b"!~*" => (true, true),
        _ => return Ok(None),
    };
    Ok(Some((negated, nowait_conf::Regex::parse(pattern, caseless)?)))
}

fn status(entry: &Node, first: &Word) -> Result<StatusTest, Diagnostic> {
    let negated = first == "!";
    let words = if negated { &entry.args[1..] } else { &entry.args[..] };
    if words.is_empty() {
        return Err(entry.arity_error());
    }
    let range = |word: &Word| {
        let invalid = || {
            let error = word.error(format!("invalid status \"{word}\""));
            error.expected(format!("codes from 100 to {STATUS_MAX} such as 200 or 200-399"))
        };
        let one = |text: &[u8]| match number(text) {
            Some(code @ 100..=STATUS_MAX) => Ok(code as u16),
            _ => Err(invalid()),
        };
        match word.text.iter().position(|b| *b == b'-') {
            None => one(&word.text).map(|code| code..=code),
            Some(at) => {
                let range = one(&word.text[..at])?..=one(&word.text[at + 1..])?;
                if range.is_empty() { Err(invalid()) } else { Ok(range) }
            }
        }
    };
    Ok(StatusTest { negated, ranges: words.iter().map(range).collect::<Result<_, _>>()? })
}

fn header(entry: &Node, first: &Word) -> Result<HeaderTest, Diagnostic> {
    let (name, rule) = match &entry.args[..] {
        [name] => (name, HeaderRule::Present),
        [not, name] if *first == "!" => {
            let _ = not;
            (name, HeaderRule::Absent)
        }
        [name, operator, value] => {
            let text = Bytes::copy_from_slice(&value.text);
            let rule = match &operator.text[..] {
                b"=" => HeaderRule::Equals(text),
                b"!=" => HeaderRule::Differs(text),
                _ => match expression(operator, value)? {
                    Some((negated, regex)) => HeaderRule::Matches { negated, regex },
                    None => return Err(unknown(operator)),
                },
            };
            (name, rule)
        }
        _ => return Err(entry.arity_error()),
    };
    Ok(HeaderTest { name: Bytes::copy_from_slice(&name.text), rule })
}
