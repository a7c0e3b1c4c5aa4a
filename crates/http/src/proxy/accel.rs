//! `X-Accel-Redirect`: the server says which location answers. nginx: the first part of
//! `ngx_http_upstream_process_headers`, and `ngx_http_parse_unsafe_uri`.

use bytes::Bytes;
use nowait_h1::Known;

use super::response::{Rewriter, Single, content_type};
use crate::escape::{Unescape, unescape};
use crate::log::Level;
use crate::outcome::{Outcome, Target};
use crate::request::Request;
use crate::response::{Head, Header};
use crate::upstream::UpstreamHead;

/// Leads to the location, whose response will have some of the headers of this one.
pub(super) fn redirect(
    request: &mut Request,
    rewriter: &dyn Rewriter,
    received: &UpstreamHead,
    fields: &Single,
    to: &Bytes,
) -> Outcome {
    let target = if to.first() == Some(&b'@') {
        Target::Named(to.to_vec())
    } else {
        match parse(to) {
            Some((path, args)) => {
                request.switch_to_get();
                Target::Uri { path, args }
            }
            None => {
                let to = String::from_utf8_lossy(to);
                request.log(Level::Error, format_args!("unsafe URI \"{to}\" was detected"));
                return Outcome::status(404);
            }
        }
    };
    let mut kept = Head::default();
    for field in fields.of(received) {
        let value = match field.known {
            Some(Known::ContentType) => {
                content_type(&mut kept, &field.value);
                continue;
            }
            Some(Known::SetCookie) => rewriter.cookie(request, &field.value),
            Some(
                Known::ContentDisposition
                | Known::CacheControl
                | Known::Expires
                | Known::AcceptRanges,
            ) => None,
            _ => continue,
        };
        let value = value.unwrap_or_else(|| field.value.clone());
        kept.headers.push(Header { name: field.name.clone(), value });
    }
    request.accel = Some(Box::new(kept));
    Outcome::Redirect(target)
}

/// Path and query string of a URI that comes from elsewhere; `None` if it leads out of the root.
fn parse(uri: &[u8]) -> Option<(Vec<u8>, Option<Vec<u8>>)> {
    let (path, args) = match uri.iter().position(|&b| b == b'?') {
        Some(at) => (&uri[..at], Some(uri[at + 1..].to_vec())),
        None => (uri, None),
    };
    if !is_safe(path) {
        return None;
    }
    if !path.contains(&b'%') {
        return Some((path.to_vec(), args));
    }
    let (decoded, _) = unescape(path, Unescape::All);
    is_safe(&decoded).then_some((decoded, args))
}

fn is_safe(path: &[u8]) -> bool {
    !path.is_empty()
        && !path.contains(&0)
        && !path.split(|&b| b == b'/').any(|segment| segment == b"..")
}

/// Puts the headers that the server sent along into the response of the location.
pub fn deliver(request: &mut Request, head: &mut Head) {
    let Some(kept) = request.accel.take() else { return };
    if kept.content_type.is_some() {
        head.content_type = kept.content_type;
        head.charset = kept.charset;
    }
    head.headers.extend(kept.headers);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unsafe_uris() {
        assert_eq!(parse(b"/a%20b?c=%20"), Some((b"/a b".to_vec(), Some(b"c=%20".to_vec()))));
        assert_eq!(parse(b"/a..b/..c"), Some((b"/a..b/..c".to_vec(), None)));
        for bad in [&b""[..], b"?a", b"..", b"/../a", b"/a/..", b"/%2e%2e/a", b"/a\0", b"/%00"] {
            assert_eq!(parse(bad), None, "{}", String::from_utf8_lossy(bad));
        }
    }
}
