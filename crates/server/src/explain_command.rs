//! `nowait explain URL`: what a request would meet.
//!
//! Called by `main`. The way of the request is that of `nowait_http::explain`, which runs the server's
//! own code; this makes the request from the command line, and adds places and reasons from the
//! directives (`explain_command/reasons.rs`, `settings.rs`). Nothing is sent, and nothing written.

mod reasons;
mod settings;

use std::ffi::OsString;
use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use clap::builder::OsStringValueParser;
use clap::error::ErrorKind;
use clap::{Arg, ArgAction, ArgMatches, Command, ValueHint, value_parser};
use nowait_conf::{Node, Span, Tree};
use nowait_http::explain::{Explanation, Finish, Question, explain};
use nowait_http::trace::{About, Step};
use serde_json::{Value, json};

use crate::cli::Options;
use crate::config;
use crate::output;
use crate::place::Place;

/// The arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explain {
    url: String,
    tls: bool,
    host: String,
    port: Option<u16>,
    port_given: bool,
    target: String,
    method: String,
    fields: Vec<(String, String)>,
    from: IpAddr,
    options: Options,
    json: bool,
}

/// The client's port, which no user can know.
const CLIENT_PORT: u16 = 50_000;

/// What this never finds out; printed with every explanation.
const NOT_JUDGED: &str = "the counts of limits, the contents of caches and pages (SSI), SNI and client \
    certificates, geoip2 databases, and what upstream servers respond";

/// The command line of `explain`.
pub fn arguments() -> Command {
    let option = |letter: char, name: &'static str, value: &'static str, help: &'static str| {
        Arg::new(name)
            .short(letter)
            .value_name(value)
            .value_parser(OsStringValueParser::new())
            .help(help)
    };
    Command::new("explain")
        .about("Show what a request would meet; nothing is sent")
        .arg(
            Arg::new("url")
                .required(true)
                .value_name("URL")
                .help("http://HOST[:PORT]/PATH, https://..., or a path at the first socket"),
        )
        .arg(
            Arg::new("field")
                .short('H')
                .value_name("NAME: VALUE")
                .action(ArgAction::Append)
                .help("Field of the request; may be repeated"),
        )
        .arg(
            Arg::new("method")
                .short('X')
                .value_name("METHOD")
                .default_value("GET")
                .help("Method of the request"),
        )
        .arg(
            Arg::new("from")
                .long("from")
                .value_name("ADDRESS")
                .value_parser(value_parser!(IpAddr))
                .help("Address of the client; 127.0.0.1 without it"),
        )
        .arg(Arg::new("json").long("json").action(ArgAction::SetTrue).help("Print JSON"))
        .arg(option('c', "file", "FILE", "Configuration file").value_hint(ValueHint::FilePath))
        .arg(option('p', "path", "PREFIX", "Prefix of relative paths"))
        .arg(option('g', "globals", "DIRECTIVES", "Global directives"))
}

impl Explain {
    /// The parsed command line.
    ///
    /// # Errors
    /// A URL or a field that is none.
    pub fn of(matches: &ArgMatches) -> Result<Explain, clap::Error> {
        let invalid = |text: String| clap::Error::raw(ErrorKind::ValueValidation, text + "\n");
        let text = |name: &str| matches.get_one::<String>(name).cloned().unwrap_or_default();
        let value = |name: &str| matches.get_one::<OsString>(name).cloned();
        let url = text("url");
        let Url { tls, host, port, port_given, target } =
            Url::parse(&url).map_err(|why| invalid(format!("invalid URL '{url}': {why}")))?;
        let mut fields = Vec::new();
        for field in matches.get_many::<String>("field").into_iter().flatten() {
            let Some((name, value)) = field.split_once(':').filter(|(name, _)| is_token(name))
            else {
                return Err(invalid(format!(
                    "invalid value '{field}' for '-H': expected NAME: VALUE"
                )));
            };
            if value.contains(|letter: char| letter.is_control() && letter != '\t') {
                return Err(invalid(format!("control characters in the value of '-H {name}'")));
            }
            fields.push((name.to_owned(), value.trim().to_owned()));
        }
        let method = text("method");
        if !is_token(&method) {
            return Err(invalid(format!("invalid method '{method}'")));
        }
        Ok(Explain {
            url,
            tls,
            host,
            port,
            port_given,
            target,
            method,
            fields,
            from: matches.get_one("from").copied().unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST)),
            options: Options {
                conf: value("file"),
                prefix: value("path"),
                globals: value("globals"),
                ..Options::default()
            },
            json: matches.get_flag("json"),
        })
    }

    /// Explains the request; the result is the exit code: 1 if the configuration is invalid.
    ///
    /// # Errors
    /// The message: no request can be made of the URL, or the text can't be printed.
    pub fn run(&self) -> Result<u8, String> {
        let place = Place::find(&self.options)?;
        if place.serve.is_some() {
            return Err(place.no_configuration());
        }
        let (tree, settings, plan) = match config::with_tree(&place) {
            Ok(valid) => valid,
            Err(refused) => {
                output::print_error(&refused.rendered);
                return Ok(1);
            }
        };
        let pools: Vec<String> = settings.pools.iter().map(|pool| pool.name.clone()).collect();
        let question = Question {
            tls: self.tls,
            host: self.host.clone(),
            port: self.port,
            port_given: self.port_given,
            target: self.target.clone(),
            method: self.method.clone(),
            fields: self.fields.clone(),
            from: SocketAddr::new(self.from, CLIENT_PORT),
        };
        let explanation = explain(plan.into_http(), &pools, &question)?;
        let answer = Answer { asked: self, tree: &tree, explanation: &explanation };
        let text = if self.json { format!("{:#}\n", answer.json()) } else { answer.text() };
        output::print(&text).map(|()| 0)
    }
}

/// The parts of a URL.
#[derive(Debug, PartialEq, Eq)]
struct Url {
    tls: bool,
    host: String,
    port: Option<u16>,
    port_given: bool,
    target: String,
}

impl Url {
    fn parse(url: &str) -> Result<Url, String> {
        // Fragments are not sent.
        let url = url.split('#').next().unwrap_or_default();
        if url.contains(|letter: char| letter.is_control() || letter == ' ') {
            return Err("it contains spaces or control characters".to_owned());
        }
        if url.starts_with('/') {
            let (host, target) = ("localhost".to_owned(), url.to_owned());
            return Ok(Url { tls: false, host, port: None, port_given: false, target });
        }
        let (tls, rest) = match url.split_once("://") {
            Some(("http", rest)) => (false, rest),
            Some(("https", rest)) => (true, rest),
            _ => return Err("expected http://, https:// or a path".to_owned()),
        };
        let at = rest.find(['/', '?']).unwrap_or(rest.len());
        let (authority, target) = rest.split_at(at);
        let (host, port) = authority_parts(authority)?;
        let target = match target.starts_with('/') {
            true => target.to_owned(),
            false => format!("/{target}"),
        };
        let default = if tls { 443 } else { 80 };
        let port_given = port.is_some_and(|port: u16| port != default);
        Ok(Url {
            tls,
            host: host.to_owned(),
            port: Some(port.unwrap_or(default)),
            port_given,
            target,
        })
    }
}

/// The host and the port of an authority.
fn authority_parts(authority: &str) -> Result<(&str, Option<u16>), String> {
    let (host, rest) = if authority.starts_with('[') {
        let Some(closed) = authority.find(']') else {
            return Err(format!(
                "the \"[\" in \"{authority}\" is not closed; expected [ADDRESS] or [ADDRESS]:PORT"
            ));
        };
        let (host, rest) = authority.split_at(closed + 1);
        if host[1..closed].parse::<Ipv6Addr>().is_err() {
            return Err(format!("\"{host}\" is not an IPv6 address"));
        }
        (host, rest)
    } else {
        if authority.parse::<Ipv6Addr>().is_ok() {
            return Err(format!("an IPv6 address needs brackets: [{authority}]"));
        }
        authority.split_at(authority.find(':').unwrap_or(authority.len()))
    };
    if host.is_empty() || authority.contains('@') {
        return Err("expected a host name or an address".to_owned());
    }
    if rest.is_empty() {
        return Ok((host, None));
    }
    let port = rest.strip_prefix(':').filter(|port| port.bytes().all(|b| b.is_ascii_digit()));
    match port.and_then(|port| port.parse().ok()) {
        Some(port) => Ok((host, Some(port))),
        None => Err(format!("expected a port instead of \"{rest}\" after \"{host}\"")),
    }
}

fn is_token(text: &str) -> bool {
    !text.is_empty()
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b))
}

/// What is printed.
struct Answer<'a> {
    asked: &'a Explain,
    tree: &'a Tree,
    explanation: &'a Explanation,
}

impl Answer<'_> {
    fn place(&self, span: Option<Span>) -> Option<String> {
        span.map(|span| self.tree.sources.place(span))
    }

    fn server(&self) -> Option<&Node> {
        reasons::chain(&self.tree.nodes, self.explanation.server).pop()
    }

    /// The `listen` of the server that stands for the socket, if there is no doubt.
    fn socket(&self) -> Option<String> {
        let port = self.explanation.listen.rsplit(':').next()?;
        let has_port = |node: &&Node| {
            let address = node.args.first().map(|word| word.lossy().into_owned());
            address.is_some_and(|address| address.rsplit(':').next() == Some(port))
        };
        let listens = self.server()?.children().iter().filter(|node| node.name == "listen");
        let mut listens = listens.filter(has_port);
        match (listens.next(), listens.next()) {
            (Some(only), None) => self.place(Some(only.span)),
            _ => None,
        }
    }

    fn text(&self) -> String {
        let Explanation { listen, remarks, server, servers, path, end, .. } = self.explanation;
        let mut out = String::new();
        // Writing to a string cannot fail.
        let _ =
            writeln!(out, "{} {} from {}\n", self.asked.method, self.asked.url, self.asked.from);
        let socket = self.socket().map(|place| format!("  {place}")).unwrap_or_default();
        let _ = writeln!(out, "socket     {listen}{socket}");
        for remark in remarks {
            let _ = writeln!(out, "           {remark}");
        }
        let place = self.place(Some(*server)).unwrap_or_default();
        let names = self.server().map(reasons::names).unwrap_or_default();
        let _ = writeln!(out, "server     {names}  {place}");
        let servers = match servers {
            1 => "the only one on this socket".to_owned(),
            several => format!("one of {several} on this socket"),
        };
        let _ = writeln!(out, "           {} ({servers})", self.reason());
        for (step, span) in self.steps() {
            self.step(&mut out, step, span);
        }
        match end {
            Finish::Response(status, fields) => {
                let _ = writeln!(out, "response   {status}");
                list(&mut out, fields);
            }
            Finish::Closed => out.push_str("response   none: the connection is closed\n"),
            Finish::Elsewhere(fields) => {
                out.push_str("response   from the upstream server\n");
                if !fields.is_empty() {
                    out.push_str("           added if its status is 200:\n");
                    list(&mut out, fields);
                }
            }
            Finish::Unknown => {
                let _ = writeln!(out, "response   not known in advance, for the path \"{path}\"");
            }
        }
        let settings = self.settings();
        if !settings.is_empty() {
            out.push_str("\nSettings that apply\n");
        }
        for setting in settings {
            let place = self.place(Some(setting.node.name.span)).unwrap_or_default();
            let directive = settings::shown(setting.node);
            let _ = writeln!(out, "  {:<12} {directive}  {place}", setting.about);
        }
        let _ = writeln!(out, "\nNot judged: {NOT_JUDGED}");
        printable(&out)
    }

    fn step(&self, out: &mut String, step: &Step, span: Option<Span>) {
        let place = self.place(span).map(|place| format!("  {place}")).unwrap_or_default();
        let indent = "  ".repeat(usize::from(step.depth));
        let text = step.text.replace('\n', " ");
        let _ = writeln!(out, "{:<10} {indent}{text}{place}", step.about.name());
        for other in self.others(step) {
            let place = self.place(Some(other.span)).unwrap_or_default();
            let _ = writeln!(out, "           {indent}not {}  {place}: {}", other.name, other.why);
        }
    }

    /// The steps with the directives behind them.
    fn steps(&self) -> Vec<(&Step, Option<Span>)> {
        let steps = self.explanation.trace.steps.iter();
        let with_span = steps.map(|step| {
            let behind = || {
                let block = step.block.unwrap_or(self.explanation.server);
                let chain = reasons::chain(&self.tree.nodes, block);
                settings::behind(&chain, step.by).map(|node| node.name.span)
            };
            (step, step.span.or_else(behind))
        });
        with_span.collect()
    }

    /// Locations that match too, but were not chosen.
    fn others(&self, step: &Step) -> Vec<reasons::Other> {
        match (step.about, &step.path, step.span, self.server()) {
            (About::Location, Some(path), Some(chosen), Some(server)) => {
                reasons::others(server, chosen, path)
            }
            _ => Vec::new(),
        }
    }

    fn reason(&self) -> String {
        let Explanation { host, is_default, .. } = self.explanation;
        reasons::of_server(self.server(), host, *is_default)
    }

    fn settings(&self) -> Vec<settings::Setting<'_>> {
        let innermost = self.explanation.trace.blocks.last().copied();
        let innermost = innermost.unwrap_or(self.explanation.server);
        settings::of(&reasons::chain(&self.tree.nodes, innermost))
    }

    fn json(&self) -> Value {
        let Explanation { listen, remarks, host, server, servers, path, end, .. } =
            self.explanation;
        let at = |span: Option<Span>| {
            let file = span.and_then(|span| self.tree.sources.name(span.file));
            json!({
                "file": file.map(|file| file.to_string_lossy()),
                "line": span.map(|span| span.line),
            })
        };
        let with = |mut value: Value, span: Option<Span>| {
            let place = at(span);
            value["file"] = place["file"].clone();
            value["line"] = place["line"].clone();
            value
        };
        let steps = self.steps().into_iter().map(|(step, span)| {
            let others = self.others(step).into_iter().map(|other| {
                with(json!({"location": other.name, "reason": other.why}), Some(other.span))
            });
            let mut value = json!({
                "about": step.about.name(),
                "text": step.text,
                "depth": step.depth,
            });
            if step.about == About::Location {
                value["others"] = others.collect();
            }
            with(value, span)
        });
        let pairs = |fields: &[(String, String)]| {
            let all = fields.iter().map(|(name, value)| json!({"name": name, "value": value}));
            all.collect::<Vec<_>>()
        };
        let (kind, status, fields) = match end {
            Finish::Response(status, fields) => ("response", Some(status), pairs(fields)),
            Finish::Closed => ("closed", None, Vec::new()),
            Finish::Elsewhere(fields) => ("upstream", None, pairs(fields)),
            Finish::Unknown => ("unknown", None, Vec::new()),
        };
        let settings = self.settings().into_iter().map(|setting| {
            let directive = settings::shown(setting.node);
            let value = json!({"about": setting.about, "directive": directive});
            with(value, Some(setting.node.name.span))
        });
        json!({
            "method": self.asked.method,
            "url": self.asked.url,
            "from": self.asked.from.to_string(),
            "socket": listen,
            "remarks": remarks,
            "server": with(json!({
                "names": self.server().map(reasons::names),
                "host": host,
                "reason": self.reason(),
                "servers": servers,
            }), Some(*server)),
            "steps": steps.collect::<Vec<_>>(),
            "path": path,
            "end": {"kind": kind, "status": status, "fields": fields},
            "settings": settings.collect::<Vec<_>>(),
            "not_judged": NOT_JUDGED,
        })
    }
}

fn list(out: &mut String, fields: &[(String, String)]) {
    for (name, value) in fields {
        let _ = writeln!(out, "           {name}: {}", value.replace('\n', " "));
    }
}

/// A text for a terminal: control characters other than line ends are shown.
fn printable(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '\n' => out.push('\n'),
            letter if letter.is_control() => out.extend(letter.escape_default()),
            letter => out.push(letter),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls() {
        let url = |text: &str| Url::parse(text);
        let expected = Url {
            tls: true,
            host: "[::1]".into(),
            port: Some(8443),
            port_given: true,
            target: "/?a=b".into(),
        };
        assert_eq!(url("https://[::1]:8443?a=b#c"), Ok(expected));
        let plain = url("http://example.org:80").unwrap();
        assert!(!plain.port_given && plain.port == Some(80) && plain.target == "/");
        assert_eq!(url("/a").unwrap().port, None);
        for wrong in
            ["", "example.org", "ftp://a/", "http://", "http://a:x/", "http://u@h/", "/a b"]
        {
            assert!(url(wrong).is_err(), "{wrong}");
        }
        for (wrong, message) in [
            (
                "http://[::1/",
                "the \"[\" in \"[::1\" is not closed; expected [ADDRESS] or [ADDRESS]:PORT",
            ),
            (
                "http://[::1:80",
                "the \"[\" in \"[::1:80\" is not closed; expected [ADDRESS] or \
                [ADDRESS]:PORT",
            ),
            ("http://[a]/", "\"[a]\" is not an IPv6 address"),
            ("http://[::1]80/", "expected a port instead of \"80\" after \"[::1]\""),
            ("http://::1/", "an IPv6 address needs brackets: [::1]"),
            ("http://a:+80/", "expected a port instead of \":+80\" after \"a\""),
        ] {
            assert_eq!(url(wrong), Err(message.to_owned()), "{wrong}");
        }
    }

    #[test]
    fn arguments_are_checked() {
        let parsed = |line: &[&str]| {
            arguments().try_get_matches_from(line).and_then(|matches| Explain::of(&matches))
        };
        let given = ["explain", "-H", "A: b", "-X", "PUT", "--from", "::1", "http://a/"];
        let given = parsed(&given).unwrap();
        assert_eq!(given.fields, [("A".to_owned(), "b".to_owned())]);
        assert_eq!((given.method.as_str(), given.from.to_string()), ("PUT", "::1".to_owned()));
        for wrong in [
            &["explain"][..],
            &["explain", "-H", "no colon", "http://a/"],
            &["explain", "-H", "a: b\rc", "http://a/"],
            &["explain", "-X", "A B", "http://a/"],
            &["explain", "--from", "x", "http://a/"],
        ] {
            assert!(parsed(wrong).is_err(), "{wrong:?}");
        }
    }
}
