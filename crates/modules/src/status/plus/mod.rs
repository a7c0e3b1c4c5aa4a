//! `api`: version 9 of NGINX Plus's API, and paths of our own beside it (`nowait/1`).
//!
//! The tree that is read is built for each request ([`tree`]); with `write=on`, requests change servers of groups
//! ([`servers`]) and pairs of key-value zones
//! ([`keyvals`]), reset statistics ([`reset`]), purge caches ([`caches`]) and set the level of error logs
//! ([`error_log`]). Changes are logged with their client;
//! pages of other sites can make none ([`origin`]).

mod answer;
mod caches;
mod error;
mod error_log;
mod keyvals;
mod origin;
mod reset;
mod servers;
mod tree;

use bytes::Bytes;
use nowait_conf::{Cx, Diagnostic, Node};
use nowait_http::exchange::OnHangup;
use nowait_http::log::Level;
use nowait_http::module::{Handler, Step, set_content};
use nowait_http::outcome::Outcome;
use nowait_http::request::Request;
use nowait_http::response::{Body, Head, Response};
use nowait_message::Method;
use serde_json::{Value, json};

use super::maker;
use super::report::Report;
use answer::{Answer, fields};
use error::ApiError;

/// The versions of the API whose paths work. What later versions add to the fields of version 9 is left out.
const VERSIONS: [u64; 9] = [1, 2, 3, 4, 5, 6, 7, 8, 9];

/// `api [write=on|off];` and, as in Angie, `api path;`
pub fn api(cx: &mut Cx<'_>, node: &Node) -> Result<(), Diagnostic> {
    let write = match node.args.first() {
        None => false,
        Some(word) => match &*word.text {
            b"write=off" => false,
            b"write=on" => true,
            path if path.starts_with(b"/") || path.starts_with(b"$") => {
                return super::angie::api(cx, node, word);
            }
            _ => {
                return Err(word
                    .error(format!("invalid parameter \"{word}\""))
                    .expected("write=on, write=off, or a path such as /status/"));
            }
        },
    };
    set_content(cx, node, move |_, _, _| Api { write });
    Ok(())
}

struct Api {
    write: bool,
}

impl Handler for Api {
    fn handle<'r>(&'r self, request: &'r mut Request) -> Step<'r> {
        if matches!(request.method(), Method::Get | Method::Head) {
            return Step::start(async move {
                let outcome = finish(request, read(request).await);
                Step::Done(request, outcome)
            });
        }
        if !self.write {
            let outcome = finish(request, Err(ApiError::METHOD));
            return Step::Done(request, outcome);
        }
        if origin::is_foreign(request) {
            request.log(
                Level::Info,
                format_args!("api: the request comes from a page of another origin"),
            );
            let outcome = finish(request, Err(ApiError::FOREIGN));
            return Step::Done(request, outcome);
        }
        Step::wait(async move {
            // A half-done change is worse than a response to a closed connection.
            let _watch = request.watch(OnHangup::Ignore);
            let answer = change(request).await;
            let outcome = finish(request, answer);
            Step::Done(request, outcome)
        })
    }
}

fn finish(request: &Request, answer: Result<Answer, ApiError>) -> Outcome {
    match answer {
        Ok(Answer { status, text: Some(text) }) => page(status, text),
        Ok(Answer { status, text: None }) => {
            Response { head: Head::new(status), body: Body::Empty }.into()
        }
        Err(error) => {
            let mut id = Vec::new();
            request.append_id(&mut id);
            page(error.status, error.json(&String::from_utf8_lossy(&id)).to_string())
        }
    }
}

/// The parts of a path below the location.
fn steps(path: &str) -> Vec<&str> {
    path.split('/').filter(|step| !step.is_empty()).collect()
}

/// The parts behind the version.
fn versioned(path: &str) -> Result<Vec<&str>, ApiError> {
    let steps = steps(path);
    match steps.first().map(|version| version.parse()) {
        Some(Ok(version)) if VERSIONS.contains(&version) => Ok(steps[1..].to_vec()),
        _ => Err(ApiError::VERSION),
    }
}

/// The response to GET and HEAD.
async fn read(request: &Request) -> Result<Answer, ApiError> {
    let path = super::part(request).ok_or(ApiError::PATH)?;
    if steps(&path).is_empty() {
        return Ok(Answer::ok(&json!(VERSIONS)));
    }
    if steps(&path)[..] == ["nowait", "1", "error_log"] {
        return Ok(error_log::read());
    }
    match versioned(&path)?[..] {
        [protocol @ ("http" | "stream"), "upstreams", name, "servers", ref rest @ ..] => {
            return servers::read(request, protocol, name, rest);
        }
        [protocol @ ("http" | "stream"), "keyvals", ref rest @ ..] => {
            return keyvals::read(request, protocol, rest).await;
        }
        _ => {}
    }
    let fields = fields(request);
    let answer = move |report: Report| {
        let value = find(&report, &versioned(&path)?)?;
        Ok(Answer::ok(&with_fields(value, &path, fields.as_deref())))
    };
    made(request, answer).await
}

/// Makes something of the report ([`maker`]).
async fn made<T: Send + 'static>(
    request: &Request,
    make: impl FnOnce(Report) -> Result<T, ApiError> + Send + 'static,
) -> Result<T, ApiError> {
    maker::make(request, make).await.unwrap_or(Err(ApiError::BUSY))
}

/// The response to all other methods, with `write=on`.
async fn change(request: &mut Request) -> Result<Answer, ApiError> {
    let path = super::part(request).ok_or(ApiError::PATH)?;
    let method = request.method();
    if let ["nowait", "1", ref rest @ ..] = steps(&path)[..] {
        return match (method, rest) {
            (Method::Post, ["caches", name, "purge"]) => caches::purge(request, name).await,
            (Method::Patch, ["error_log"]) => error_log::change(request).await,
            _ => Err(ApiError::METHOD),
        };
    }
    let steps = versioned(&path)?;
    match (method, &steps[..]) {
        (_, [protocol @ ("http" | "stream"), "upstreams", name, "servers", rest @ ..]) => {
            servers::change(request, method, (protocol, name), rest).await
        }
        (_, [protocol @ ("http" | "stream"), "keyvals", rest @ ..]) => {
            keyvals::change(request, method, protocol, rest).await
        }
        (Method::Delete, _) => reset::reset(request, &steps).await,
        _ => Err(ApiError::METHOD),
    }
}

fn page(status: u16, text: String) -> Outcome {
    let mut head = Head::new(status);
    head.content_type = Some(Bytes::from_static(b"application/json"));
    head.content_length = Some(text.len() as u64);
    head.add("Cache-Control", Bytes::from_static(b"no-cache"));
    Response { head, body: Body::Bytes(text.into()) }.into()
}

/// The value at a path behind the version.
fn find(report: &Report, steps: &[&str]) -> Result<Value, ApiError> {
    let mut value = tree::root(report);
    reset::subtract(&mut value);
    for (depth, step) in steps.iter().enumerate() {
        let missing = || ApiError::missing(&steps[..=depth]);
        value = match value {
            Value::Object(mut members) => members.remove(*step).ok_or_else(missing)?,
            Value::Array(mut elements) => {
                let id: u64 = step.parse().map_err(|_| missing())?;
                let at = elements.iter().position(|element| element["id"] == id);
                elements.swap_remove(at.ok_or_else(missing)?)
            }
            _ => return Err(ApiError::PATH),
        };
    }
    Ok(listed(value, steps))
}

/// The names of the inner paths in place of the whole root, `http` and `stream`.
fn listed(value: Value, steps: &[&str]) -> Value {
    match (steps, value) {
        ([] | ["http" | "stream"], Value::Object(members)) => {
            members.into_iter().map(|(name, _)| name).collect()
        }
        (_, value) => value,
    }
}

/// Collections by name, to whose members `fields` applies.
const COLLECTIONS: [&str; 10] = [
    "server_zones",
    "location_zones",
    "caches",
    "limit_conns",
    "limit_reqs",
    "upstreams",
    "keyvals",
    "resolvers",
    "slabs",
    "zone_sync",
];

fn with_fields(value: Value, path: &str, fields: Option<&[String]>) -> Value {
    let Some(fields) = fields else { return value };
    let keep = |value: Value| match value {
        Value::Object(members) => {
            Value::Object(members.into_iter().filter(|(name, _)| fields.contains(name)).collect())
        }
        other => other,
    };
    let last = path.rsplit('/').find(|step| !step.is_empty()).unwrap_or_default();
    match value {
        Value::Object(members) if COLLECTIONS.contains(&last) => {
            // Without fields, only the names.
            if fields.is_empty() {
                return members.into_iter().map(|(name, _)| Value::String(name)).collect();
            }
            Value::Object(members.into_iter().map(|(name, value)| (name, keep(value))).collect())
        }
        Value::Array(elements) => elements.into_iter().map(keep).collect(),
        other => keep(other),
    }
}
