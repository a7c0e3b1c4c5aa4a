//! `prometheus_template`, `prometheus`: metrics for Prometheus from templates over the tree of Angie's API.
//!
//! The leaves of the tree that a template wants are found on the thread that makes reports ([`maker`]). Names and values
//! are texts with variables, which only the request's event loop can evaluate; it lets others run every few samples.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use bytes::Bytes;
use nowait_conf::{Cx, Diagnostic, Node, Span, Word};
use nowait_http::conf::{HttpConf, Regex, compile_regex, complex};
use nowait_http::module::{Handler, Step, set_content};
use nowait_http::outcome::Outcome;
use nowait_http::request::Request;
use nowait_http::response::{Body, Head, Response};
use nowait_http::slots::Key;
use nowait_http::variables::Builtin;
use nowait_http::variables::complex::Complex;
use nowait_message::Method;
use nowait_runtime::yield_now;
use nowait_variables::Subject;
use serde_json::Value;

use super::super::maker;
use super::super::openmetrics::PROMETHEUS;
use super::tree::{self, Dates};

/// After this many samples other tasks have their turn.
const TURN_SAMPLES: usize = 64;

nowait_conf::rows! {
    pub static PROMETHEUS_ROWS, module "prometheus";

    /// Defines a template of metrics for `prometheus`, as in Angie. Each entry is a metric: its name with its labels,
    /// a variable with its value, and parameters.
    ///
    /// * `path=path`: the elements of the tree of `api /status/` that have this metric, from `/`, such as
    ///   `/connections/active`; with `~` at its beginning, a regular expression, whose captures can stand in the
    ///   labels. Paths of groups end with a slash, and have the number of their members as their value. An element
    ///   belongs to the first metric that matches. Without `path`, the metric has one sample.
    /// * `type=type`, `help=text`: lines before the samples.
    ///
    /// Samples without a value are left out. The file `prometheus_all.conf` has the template `all`, with Angie's names.
    ///
    /// Nowait differs: samples whose value is no number are left out, because Prometheus would refuse the whole
    /// response; captures are escaped as labels require.
    block "prometheus_template" => template, in HTTP, take exactly(1), args "name { ... }";
    /// Responds with the metrics of a template, in the text format of Prometheus. It shows what happens in the whole
    /// server: protect it by `allow` and `deny`.
    "prometheus" => prometheus, in LOCATION, take exactly(1), inheritance Own, args "template";
}

/// The variables of this module.
pub const BUILTINS: &[Builtin] = &[Builtin {
    name: "p8s_value",
    doc: "In a template of `prometheus_template`: the value of the element that a sample is made of.",
    get: |request, out| {
        let value = request.state().get(&VALUE);
        value.inspect(|value| out.extend_from_slice(value)).is_some()
    },
}];

/// The value that a sample is made of.
static VALUE: Key<Bytes> = Key::new();

/// The templates of a configuration.
static TEMPLATES: Key<BTreeMap<Vec<u8>, Arc<Template>>> = Key::new();

/// The templates that were defined and used until now.
#[derive(Default)]
struct TemplatesNamed {
    defined: BTreeMap<Vec<u8>, Arc<Template>>,
    used: Vec<(Vec<u8>, Span)>,
}

/// A template.
#[derive(Default)]
struct Template {
    metrics: Vec<Metric>,
}

struct Metric {
    /// Without its labels.
    family: String,
    /// With its labels.
    name: Complex,
    value: Complex,
    path: Option<MetricPath>,
    kind: Option<String>,
    help: Option<String>,
}

/// The elements that a metric is about.
enum MetricPath {
    Exact(String),
    Regex(Regex),
}

/// An element of the tree that a metric is about.
struct FoundElement {
    metric: usize,
    path: String,
    value: Bytes,
}

fn template(cx: &mut Cx<'_>, node: &Node) -> Result<(), Diagnostic> {
    let name = node.args.first().ok_or_else(|| node.arity_error())?;
    if cx.global::<TemplatesNamed>().defined.contains_key(&name.text[..]) {
        return Err(name.error(format!("duplicate Prometheus template \"{name}\"")));
    }
    let mut template = Template::default();
    cx.each_entry(node, |cx, entry| {
        let metric = Metric::read(cx, entry);
        template.metrics.extend(cx.accept(metric));
    });
    let name = name.text.to_vec();
    cx.global::<TemplatesNamed>().defined.insert(name, Arc::new(template));
    Ok(())
}

fn prometheus(cx: &mut Cx<'_>, node: &Node) -> Result<(), Diagnostic> {
    let word = node.args.first().ok_or_else(|| node.arity_error())?;
    let name = word.text.to_vec();
    cx.global::<TemplatesNamed>().used.push((name.clone(), word.span));
    set_content(cx, node, move |_, _, _| Prometheus(name.clone()));
    Ok(())
}

/// Checks the names of templates, when the whole configuration was read.
pub fn finish(cx: &mut Cx<'_>, conf: &mut HttpConf) {
    let TemplatesNamed { defined, used } = cx.take_global::<TemplatesNamed>();
    for (name, span) in &used {
        if !defined.contains_key(name) {
            let text = format!("unknown Prometheus template \"{}\"", name.escape_ascii());
            let hint = match &name[..] {
                b"all" => "add to the http block: include prometheus_all.conf;",
                _ => "define it in the http block: prometheus_template NAME { ... }",
            };
            cx.report(Diagnostic::emerg(text).at(*span).hint(hint));
        }
    }
    conf.settings.set(&TEMPLATES, defined);
}

impl Metric {
    fn read(cx: &mut Cx<'_>, entry: &Node) -> Result<Metric, Diagnostic> {
        let [value, parameters @ ..] = &entry.args[..] else {
            return Err(entry
                .error("invalid number of metric parameters")
                .expected("a name, a variable and parameters"));
        };
        let name = &entry.name;
        let family = name.text.split(|byte| *byte == b'{').next().unwrap_or_default();
        let is_name = |byte: &u8| byte.is_ascii_alphanumeric() || b"_:".contains(byte);
        let begins_well = family.first().is_some_and(|byte| !byte.is_ascii_digit());
        if !begins_well || !family.iter().all(is_name) {
            return Err(name
                .error(format!("invalid metric name \"{name}\""))
                .expected(
                    "letters, digits and underscores, no digit at the beginning; only labels can contain \
                     variables",
                ));
        }
        if !value.text.starts_with(b"$") {
            return Err(value.error(format!("metric value \"{value}\" is not a variable")));
        }
        let mut metric = Metric {
            family: String::from_utf8_lossy(family).into_owned(),
            name: complex(name, cx)?,
            value: complex(value, cx)?,
            path: None,
            kind: None,
            help: None,
        };
        parameters.iter().try_for_each(|word| metric.parameter(cx, word))?;
        Ok(metric)
    }

    fn parameter(&mut self, cx: &mut Cx<'_>, word: &Word) -> Result<(), Diagnostic> {
        let at = word.text.iter().position(|byte| *byte == b'=').map_or(0, |at| at + 1);
        let (name, value) = word.text.split_at(at);
        let text = || String::from_utf8_lossy(value).replace('\n', " ");
        match (name, value) {
            (b"path=" | b"type=" | b"help=", b"" | b"~") => {
                Err(word.error(format!("empty parameter \"{word}\"")))
            }
            (b"path=", [b'~', pattern @ ..]) => {
                // As there: letters in upper case make it ignore case.
                let is_caseless = pattern.iter().any(u8::is_ascii_uppercase);
                let regex = compile_regex(cx, word, pattern, is_caseless)?;
                regex.prepare();
                self.path = Some(MetricPath::Regex(regex));
                Ok(())
            }
            (b"path=", _) => {
                self.path = Some(MetricPath::Exact(text()));
                Ok(())
            }
            (b"type=", _) => {
                self.kind = Some(text());
                Ok(())
            }
            (b"help=", _) => {
                self.help = Some(text());
                Ok(())
            }
            _ => Err(word
                .error(format!("invalid metric parameter \"{word}\""))
                .expected("path=, type= or help=")),
        }
    }
}

impl MetricPath {
    fn is_match(&self, path: &str) -> bool {
        match self {
            // As there.
            MetricPath::Exact(exact) => exact.eq_ignore_ascii_case(path),
            // A match that takes too much effort is none.
            MetricPath::Regex(regex) => regex.is_match(path.as_bytes()).unwrap_or(false),
        }
    }
}

impl Template {
    /// The elements that its metrics are about.
    fn find(&self, root: &Value) -> Vec<FoundElement> {
        let mut found = Vec::new();
        let mut path = String::new();
        self.walk(root, &mut path, &mut found);
        found
    }

    fn walk(&self, value: &Value, path: &mut String, found: &mut Vec<FoundElement>) {
        let text = match value {
            Value::Object(members) => {
                path.push('/');
                let length = path.len();
                for (name, member) in members {
                    push_label(name, path);
                    self.walk(member, path, found);
                    path.truncate(length);
                }
                members.len().to_string()
            }
            Value::Bool(is_true) => u8::from(*is_true).to_string(),
            Value::String(text) => text.clone(),
            Value::Number(number) => number.to_string(),
            Value::Array(_) | Value::Null => return,
        };
        let is_match = |metric: &Metric| metric.path.as_ref().is_some_and(|of| of.is_match(path));
        if let Some(metric) = self.metrics.iter().position(is_match) {
            found.push(FoundElement { metric, path: path.clone(), value: text.into() });
        }
    }

    /// The text of all samples.
    async fn render(&self, request: &mut Request, found: Vec<FoundElement>) -> String {
        let mut samples = vec![String::new(); self.metrics.len()];
        let before = request.captures().borrow().clone();
        for (number, element) in found.into_iter().enumerate() {
            if number % TURN_SAMPLES == TURN_SAMPLES - 1 {
                yield_now().await;
            }
            let metric = &self.metrics[element.metric];
            if let Some(MetricPath::Regex(regex)) = &metric.path {
                // It has matched before.
                let _ = regex.search_in(request, element.path.as_bytes());
            }
            request.state_mut().set(&VALUE, element.value);
            metric.sample(request, &mut samples[element.metric]);
        }
        request.state_mut().take(&VALUE);
        for (metric, sample) in self.metrics.iter().zip(&mut samples) {
            if metric.path.is_none() {
                metric.sample(request, sample);
            }
        }
        *request.captures().borrow_mut() = before;
        let mut text = String::with_capacity(samples.iter().map(|one| one.len() + 200).sum());
        for (metric, samples) in self.metrics.iter().zip(samples) {
            if samples.is_empty() {
                continue;
            }
            for (what, line) in [("HELP", &metric.help), ("TYPE", &metric.kind)] {
                if let Some(line) = line {
                    let _ = writeln!(text, "# {what} {} {line}", metric.family);
                }
            }
            text.push_str(&samples);
        }
        text
    }
}

impl Metric {
    /// Adds a sample, if it has a value.
    fn sample(&self, request: &Request, out: &mut String) {
        let (name, value) = (request.evaluate(&self.name), request.evaluate(&self.value));
        let (Ok(name), Ok(value)) = (std::str::from_utf8(&name), std::str::from_utf8(&value))
        else {
            return;
        };
        if value.parse::<f64>().is_ok() && !name.contains('\n') {
            let _ = writeln!(out, "{name} {value}");
        }
    }
}

/// Adds a name to a path, escaped as labels require.
fn push_label(name: &str, path: &mut String) {
    for character in name.chars() {
        match character {
            '\\' => path.push_str("\\\\"),
            '"' => path.push_str("\\\""),
            '\n' => path.push_str("\\n"),
            other => path.push(other),
        }
    }
}

/// Responds with the metrics of the template with this name.
struct Prometheus(Vec<u8>);

impl Handler for Prometheus {
    fn handle<'r>(&'r self, request: &'r mut Request) -> Step<'r> {
        if !matches!(request.method(), Method::Get | Method::Head) {
            return Step::Done(request, Outcome::status(405));
        }
        Step::start(async move {
            let outcome = self.respond(request).await;
            Step::Done(request, outcome)
        })
    }
}

impl Prometheus {
    async fn respond(&self, request: &mut Request) -> Outcome {
        let templates = request.current().conf.settings.get(&TEMPLATES);
        let Some(template) = templates.and_then(|all| all.get(&self.0)).cloned() else {
            return Outcome::status(500);
        };
        let finds = template.clone();
        let make = move |report| finds.find(&tree::status(&report, Dates::Epoch));
        let Some(found) = maker::make(request, make).await else { return Outcome::status(503) };
        let text = template.render(request, found).await;
        let mut head = Head::new(200);
        head.content_type = Some(Bytes::from_static(PROMETHEUS));
        head.content_length = Some(text.len() as u64);
        head.add("Cache-Control", Bytes::from_static(b"no-cache"));
        Response { head, body: Body::Bytes(text.into()) }.into()
    }
}
