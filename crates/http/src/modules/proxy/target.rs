//! The URI to request from a server. nginx: the beginning of `ngx_http_proxy_create_request`.

use bytes::Bytes;

use crate::backend::url::Destination;
use crate::modules::proxy::conf::Pass;
use crate::request::Request;
use nowait_message::escape::{self, Set};
use nowait_message::scan;
use nowait_runtime::buf::{OutBuf, copy_briefly};

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
    let mut out = OutBuf::new();
    Some(match append(request, pass, destination, &mut out)? {
        Form::Unparsed => Target::Unparsed,
        Form::Text => Target::Text(copy_briefly(&out)),
    })
}

/// Appends the URI to request; `None` if it is empty.
///
/// * Without a URI in `proxy_pass`: the client's, as it was sent, if it was not changed since.
/// * With a URI that has variables: their value.
/// * Otherwise: the URI in place of the location's name, and the rest of the path.
pub fn append(
    request: &Request,
    pass: &Pass,
    destination: &Destination,
    out: &mut Vec<u8>,
) -> Option<Form> {
    let own = &destination.uri[..];
    let start = out.len();
    let variable = matches!(pass, Pass::Variable { .. });
    if variable && !own.is_empty() {
        // `http://server?args` requests the root.
        if own[0] == b'?' {
            out.push(b'/');
        }
        out.extend_from_slice(own);
        return Some(Form::Text);
    }
    if is_unparsed(request, destination) {
        return Some(Form::Unparsed);
    }
    let location = match pass {
        Pass::Static(pass) => &pass.location[..],
        Pass::Variable { .. } => b"",
    };
    let replaces = !request.rewriting.rewritten && !own.is_empty();
    let skip = if replaces { location.len().min(request.uri.path.len()) } else { 0 };
    let rest = &request.uri.path[skip..];
    if replaces {
        out.extend_from_slice(own);
    }
    if was_quoted(request) || request.internal {
        escape::push_uri(out, Set::Uri, rest);
    } else {
        out.extend_from_slice(rest);
    }
    if !request.uri.query().is_empty() {
        out.push(b'?');
        out.extend_from_slice(request.uri.query());
    }
    (out.len() > start).then_some(Form::Text)
}

/// Whether the URI is the one that the client sent.
fn is_unparsed(request: &Request, destination: &Destination) -> bool {
    destination.uri.is_empty() && request.rewriting.unparsed
}

/// Whether the path in the request line had escapes, so that the decoded path may need them again.
/// nginx: `r->quoted_uri`.
fn was_quoted(request: &Request) -> bool {
    let uri = request.head.uri();
    scan::has_byte(uri, b'%')
        && uri.split(|&b| b == b'?').next().is_some_and(|path| scan::has_byte(path, b'%'))
}
