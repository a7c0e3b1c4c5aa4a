//! Common parts of FastCGI, SCGI and uwsgi: parameters, and content of requests. The form of their
//! responses is in `nowait-gateway`.

pub mod params;
pub mod plain;

use bytes::Bytes;
use nowait_conf::{Cx, Diagnostic, Scope, Span};
use nowait_http::request::{BodyLength, Request, RequestBody};
use nowait_message::Method;

use super::conf::Backend;
use super::url::Destination;
use crate::cache::conf::CacheConf;
use crate::upstream::{Content, Remark, UpstreamRequest};

pub use params::{Param, Params};

/// Response fields of FastCGI and SCGI servers that are not passed on unless `*_pass_header` names
/// them.
pub const HIDDEN: &[&str] = &[
    "Status",
    "X-Accel-Expires",
    "X-Accel-Redirect",
    "X-Accel-Limit-Rate",
    "X-Accel-Buffering",
    "X-Accel-Charset",
];

/// The content to send, and its length, if it is known.
pub fn content(request: &Request, backend: &Backend) -> (Content, Option<u64>) {
    if !backend.pass_request_body {
        return (Content::None, Some(0));
    }
    let length = match (request.body(), request.body_length()) {
        (RequestBody::None, _) => Some(0),
        (RequestBody::Memory(bytes), _) => Some(bytes.len() as u64),
        (RequestBody::File(file), _) => Some(file.len()),
        (RequestBody::Unread(_), BodyLength::Known(length)) => Some(length),
        (RequestBody::Unread(_), _) => None,
    };
    (if length == Some(0) { Content::None } else { Content::Request }, length)
}

/// Whether the request is a HEAD.
pub fn is_head(request: &Request, order: &UpstreamRequest) -> bool {
    match order.wanted.method {
        Some(method) => method == "HEAD",
        None => request.method() == Method::Head,
    }
}

/// The remark about content beyond the announced length.
pub fn excess() -> Remark {
    let text = "upstream sent more data than specified in \"Content-Length\" header".into();
    Remark { level: nowait_http::log::Level::Warn, text }
}

/// Appends the key of a cache without `…_cache_key`: server, host and URI.
pub fn append_key(request: &Request, destination: Option<&Destination>, out: &mut Vec<u8>) {
    if let Some(destination) = destination {
        out.extend_from_slice(&destination.key_start);
    }
    out.push(b' ');
    out.extend_from_slice(request.client().scheme().as_bytes());
    out.extend_from_slice(b"://");
    params::append_host(request, out);
    out.extend_from_slice(request.head().uri());
}

/// The modules whose missing keys were reported.
#[derive(Default)]
struct Keyless(Vec<&'static str>);

/// Warns once about a cache without a key of its own. nginx uses an empty one then, for all requests.
pub fn check_key(cx: &mut Cx<'_>, module: &'static str, chain: &[&Scope], cache: &CacheConf) {
    if cache.key.is_some() || cx.global::<Keyless>().0.contains(&module) {
        return;
    }
    cx.global::<Keyless>().0.push(module);
    let at: Option<Span> = chain.iter().rev().find_map(|s| s.seen(&format!("{module}_cache")));
    let text = format!("no \"{module}_cache_key\" for \"{module}_cache\"");
    let hint = format!(
        "nginx takes all requests for the same one; nowait takes server, host and URI as the key. \
         Say what tells responses apart: {module}_cache_key $scheme$host$request_uri;"
    );
    let warning = Diagnostic::warn(text).hint(hint);
    cx.report(match at {
        Some(at) => warning.at(at),
        None => warning,
    });
}

/// No URI: that of the request is one of its parameters.
pub fn no_uri() -> nowait_http::upstream_state::LogUri {
    nowait_http::upstream_state::LogUri::Text(Bytes::new())
}
