//! The output of `nowait explain`.

use std::fmt::Write as _;
use std::net::IpAddr;
use std::path::Path;

use nowait_conf::{Node, Registry, Span, Tree};
use nowait_http::explain::{Explanation, Finish};
use nowait_http::trace::{TraceStep, TraceSubject};
use serde_json::{Value, json};

use super::{reasons, settings};

/// The limits of explanations, printed with each of them.
const NOT_JUDGED: &str = "the counts of limits, the contents of caches and pages (SSI), SNI and client \
    certificates, geoip2 databases, and what upstream servers respond";

/// The request to explain.
pub struct ExplainedRequest<'a> {
    pub method: &'a str,
    pub url: &'a str,
    pub from: IpAddr,
}

/// The content of an explanation.
pub struct ExplainReport<'a> {
    pub asked: ExplainedRequest<'a>,
    /// The main file.
    pub conf_file: &'a Path,
    pub tree: &'a Tree,
    pub registry: Registry,
    pub explanation: &'a Explanation,
}

impl ExplainReport<'_> {
    /// `FILE:LINE`, relative to the directory of the main file.
    fn place(&self, span: Option<Span>) -> Option<String> {
        let span = span?;
        let name = self.tree.sources.name(span.file);
        let base = self.conf_file.parent();
        match name.and_then(|name| name.strip_prefix(base?).ok()) {
            Some(name) => Some(format!("{}:{}", name.display(), span.line)),
            None => Some(self.tree.sources.place(span)),
        }
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

    /// The text for people.
    pub fn text(&self) -> String {
        let Explanation { listen, remarks, server, servers, path, end, .. } = self.explanation;
        let mut out = String::new();
        // Writing to a string cannot fail.
        let ExplainedRequest { method, url, from } = &self.asked;
        let _ = writeln!(out, "{method} {url} from {from}\n");
        let file = self.conf_file.display();
        let _ = writeln!(out, "config     {file}; places are relative to its directory");
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
        if let Some(record) = &self.explanation.https_record {
            let _ = writeln!(out, "HTTP/3     found at once with this record in DNS:");
            let _ = writeln!(out, "           {record}");
        }
        for (step, span) in self.steps() {
            self.step(&mut out, step, span);
        }
        match end {
            Finish::Response(status, fields) => {
                let _ = writeln!(out, "response   {status}");
                self.conditions(&mut out);
                list(&mut out, fields);
            }
            Finish::Closed => out.push_str("response   none: the connection is closed\n"),
            Finish::Elsewhere(fields) => {
                out.push_str("response   from the upstream server\n");
                self.conditions(&mut out);
                if !fields.is_empty() {
                    out.push_str("           added if its status is 200:\n");
                    list(&mut out, fields);
                }
            }
            Finish::Unknown => {
                let _ = writeln!(out, "response   not known in advance, for the path \"{path}\"");
                self.conditions(&mut out);
            }
        }
        let settings = self.settings();
        if !settings.is_empty() {
            out.push_str("\nSettings that apply\n");
        }
        for setting in settings {
            let place = self.place(Some(setting.node.name.span)).unwrap_or_default();
            let directive = settings::shown(setting.node);
            let _ = writeln!(out, "  {:<12} {directive}  {place}", setting.module);
        }
        let _ = writeln!(out, "\nNot judged: {NOT_JUDGED}");
        printable(&out)
    }

    /// Conditions that the result depends on.
    fn conditions(&self, out: &mut String) {
        for condition in &self.explanation.trace.conditions {
            let _ = writeln!(out, "           {}", condition.replace('\n', " "));
        }
    }

    fn step(&self, out: &mut String, step: &TraceStep, span: Option<Span>) {
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
    fn steps(&self) -> Vec<(&TraceStep, Option<Span>)> {
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
    fn others(&self, step: &TraceStep) -> Vec<reasons::RejectedLocation> {
        match (step.about, &step.path, step.span, self.server()) {
            (TraceSubject::Location, Some(path), Some(chosen), Some(server)) => {
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
        let chain = reasons::chain(&self.tree.nodes, innermost);
        let blocks = settings::Blocks::of(&self.tree.nodes, &chain);
        blocks.settings(&self.registry, self.explanation.is_tls)
    }

    /// The same for programs.
    pub fn json(&self) -> Value {
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
            if step.about == TraceSubject::Location {
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
            let value = json!({"module": setting.module, "directive": directive});
            with(value, Some(setting.node.name.span))
        });
        json!({
            "configuration": self.conf_file.to_string_lossy(),
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
            "https_record": self.explanation.https_record,
            "steps": steps.collect::<Vec<_>>(),
            "path": path,
            "end": {"kind": kind, "status": status, "fields": fields},
            "conditions": self.explanation.trace.conditions,
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
