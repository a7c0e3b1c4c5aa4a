//! The URI to request from a server. nginx: the beginning of `ngx_http_proxy_create_request`.

use std::borrow::Cow;

use bytes::Bytes;
use nowait_backend::url::Destination;
use nowait_http::request::Request;
use nowait_message::escape::{self, Set};
use nowait_message::scan;
use nowait_runtime::buf::join_briefly;

use crate::proxy::conf::Pass;

/// A URI to request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// The URI as the client sent it.
    Unparsed,
    /// This text.
    Text(Bytes),
}

/// Kind of the appended URI.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// Nothing was appended: it is the URI as the client sent it.
    Unparsed,
    /// The URI was appended.
    Text,
}

/// The URI to request; `None` if it is empty ("zero length URI to proxy").
pub fn uri(request: &Request, pass: &Pass, destination: &Destination) -> Option<Target> {
    if matches!(pass, Pass::Variable { .. }) && destination.uri.first().is_some_and(|b| *b != b'?')
    {
        return Some(Target::Text(destination.uri.clone()));
    }
    if is_unparsed(request, destination) {
        return Some(Target::Unparsed);
    }
    let text = join(request, pass, destination, join_briefly);
    (!text.is_empty()).then_some(Target::Text(text))
}

/// Appends the URI to request; `None` if it is empty.
pub fn append(
    request: &Request,
    pass: &Pass,
    destination: &Destination,
    out: &mut Vec<u8>,
) -> Option<Form> {
    if is_unparsed(request, destination) {
        return Some(Form::Unparsed);
    }
    let start = out.len();
    join(request, pass, destination, |pieces| {
        pieces.iter().for_each(|piece| out.extend_from_slice(piece));
    });
    (out.len() > start).then_some(Form::Text)
}

/// Joins the pieces of the URI to request, unless it is the one that the client sent.
///
/// * Without a URI in `proxy_pass`: the changed one.
/// * With a URI that has variables: their value.
/// * Otherwise: the URI in place of the location's name, and the rest of the path.
fn join<T>(
    request: &Request,
    pass: &Pass,
    destination: &Destination,
    with: impl FnOnce(&[&[u8]]) -> T,
) -> T {
    let own = &destination.uri[..];
    let location = match pass {
        // `http://server?args` requests the root.
        Pass::Variable { .. } if own.first() == Some(&b'?') => return with(&[b"/", own]),
        Pass::Variable { .. } if !own.is_empty() => return with(&[own]),
        Pass::Variable { .. } => b"",
        Pass::Static(pass) => &pass.location[..],
    };
    let path = &request.uri().path[..];
    let (own, rest) = match !request.rewriting().rewritten && !own.is_empty() {
        true => (own, &path[location.len().min(path.len())..]),
        false => (&b""[..], path),
    };
    let rest = match was_quoted(request) || request.is_internal() {
        true => escape::uri(Set::Uri, rest),
        false => Cow::Borrowed(rest),
    };
    match request.uri().query() {
        b"" => with(&[own, &rest]),
        query => with(&[own, &rest, b"?", query]),
    }
}

/// Whether the URI is the one that the client sent.
fn is_unparsed(request: &Request, destination: &Destination) -> bool {
    destination.uri.is_empty() && request.rewriting().unparsed
}

/// Whether the path in the request line had escapes, so that the decoded path may need them again.
/// nginx: `r->quoted_uri`.
fn was_quoted(request: &Request) -> bool {
    let path = || request.head().uri().split(|&b| b == b'?').next();
    request.head().may_be_escaped() && path().is_some_and(|path| scan::has_byte(path, b'%'))
}
