//! `api PATH`: the statistics of Angie's API (`/status/`), for programs and pages that read them.
//!
//! The directive is `api` of NGINX Plus ([`super::plus`]) if its argument is no path. The tree is that of Angie's
//! documentation ([`tree`]); it is read only, as in Angie without its paid part.

pub(super) mod prometheus;
pub(super) mod tree;

use bytes::Bytes;
use nowait_conf::{Cx, Diagnostic, Node, Word};
use nowait_http::conf::complex;
use nowait_http::conf::uri_scope::{UriScope, place};
use nowait_http::module::{Handler, Step, set_content};
use nowait_http::outcome::Outcome;
use nowait_http::request::Request;
use nowait_http::response::{Body, Head, Response};
use nowait_http::variables::complex::Complex;
use nowait_message::Method;
use serde_json::{Value, json};

use super::maker;
use tree::Dates;

/// `api path;`
pub(super) fn api(cx: &mut Cx<'_>, node: &Node, word: &Word) -> Result<(), Diagnostic> {
    let path = complex(word, cx)?;
    let known = |first: &[u8]| first.is_empty() || first == b"status";
    let steps = word.text.split(|byte| *byte == b'/').find(|step| !step.is_empty());
    if !word.text.contains(&b'$') && !known(steps.unwrap_or_default()) {
        let error = word.error(format!("there is no \"{word}\" in the API"));
        return Err(error.expected("a path that begins with /status/").hint(
            "servers of groups, caches and key-value zones are changed by \"api write=on\"",
        ));
    }
    let prefix = match place(cx) {
        UriScope::Prefix(prefix) => Some(prefix),
        UriScope::Other => None,
    };
    set_content(cx, node, move |_, _, _| Api { path: path.clone(), prefix: prefix.clone() });
    Ok(())
}

/// Responds with a part of the tree.
struct Api {
    path: Complex,
    /// The beginning of URIs that the path replaces; `None`: it is the whole path.
    prefix: Option<Bytes>,
}

impl Handler for Api {
    fn handle<'r>(&'r self, request: &'r mut Request) -> Step<'r> {
        let path = self.path(request);
        if !matches!(request.method(), Method::Get | Method::Head) {
            let method = request.method_name().escape_ascii();
            let text =
                format!("The {method} method is not allowed for the API element \"{path}\".");
            return Step::Done(request, error(405, "MethodNotAllowed", &text));
        }
        Step::start(async move {
            let outcome = read(request, path).await;
            Step::Done(request, outcome)
        })
    }
}

impl Api {
    /// The path of the requested element.
    fn path(&self, request: &Request) -> String {
        let mut path = request.evaluate(&self.path).to_vec();
        let rest =
            self.prefix.as_ref().and_then(|prefix| request.uri().path.strip_prefix(&prefix[..]));
        path.extend_from_slice(rest.unwrap_or_default());
        String::from_utf8_lossy(&path).into_owned()
    }
}

async fn read(request: &Request, path: String) -> Outcome {
    let has = |argument: &[u8]| {
        request.uri().query().split(|byte| *byte == b'&').any(|one| one == argument)
    };
    let dates = if has(b"date=epoch") { Dates::Epoch } else { Dates::Iso8601 };
    let is_pretty = !has(b"pretty=off");
    let wanted = path.clone();
    let made = maker::make(request, move |report| {
        let value = find(tree::root(&report, dates), &wanted)?;
        Some(if is_pretty { format!("{value:#}") } else { value.to_string() })
    });
    match made.await {
        Some(Some(text)) => page(200, text),
        Some(None) => error(404, "PathNotFound", &format!("There is no API element \"{path}\".")),
        None => error(503, "InternalError", "Too many requests wait for a report."),
    }
}

/// The element at a path.
fn find(root: Value, path: &str) -> Option<Value> {
    let mut steps = path.split('/').filter(|step| !step.is_empty());
    steps.try_fold(root, |value, step| match value {
        Value::Object(mut members) => members.remove(step),
        _ => None,
    })
}

fn error(status: u16, name: &str, description: &str) -> Outcome {
    page(status, format!("{:#}", json!({ "error": name, "description": description })))
}

fn page(status: u16, text: String) -> Outcome {
    let mut head = Head::new(status);
    head.content_type = Some(Bytes::from_static(b"application/json"));
    head.content_length = Some(text.len() as u64);
    head.add("Cache-Control", Bytes::from_static(b"no-cache"));
    Response { head, body: Body::Bytes(text.into()) }.into()
}
