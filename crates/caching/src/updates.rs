//! Changes of stored responses by others: a 304 renews the fields (RFC 9111 sections 3.2, 4.3.4),
//! and so does a response to HEAD (section 4.3.5); a response to an unsafe method invalidates
//! (section 4.4). Used in the strict mode only.

use bytes::Bytes;
use nowait_message::Method;

use crate::facts::{ResponseFacts, joined};
use crate::meta::Field;
use crate::storage;

/// Replaces the stored fields with those of a 304.
///
/// Section 3.2: "the cache MUST add each header field in the provided response to the stored
/// response, replacing field values that are already present, with the following exceptions".
pub fn freshen(stored: &mut Vec<Field>, newer: &[Field], response: &ResponseFacts) {
    let pairs = newer.iter().map(|field| (&field.name[..], &field.value[..]));
    let connection = connection(pairs);
    let taken: Vec<&Field> = newer
        .iter()
        .filter(|header| {
            !storage::excluded(&header.name, &connection, response)
                && !describes_content(&header.name)
        })
        .collect();
    stored.retain(|old| !taken.iter().any(|new| new.name.eq_ignore_ascii_case(&old.name)));
    stored.extend(taken.into_iter().cloned());
}

/// Whether a 304 with this `ETag` applies to the stored response with that one.
///
/// Section 4.3.4: "If the new response contains one or more strong validators, then each of those strong
/// validators identifies a selected representation for update. […] If none of the initial set contains
/// at least one of the same strong validators, then the cache MUST NOT use the new response to update
/// any stored responses."
pub fn is_about(stored: Option<&[u8]>, newer: Option<&[u8]>) -> bool {
    newer.is_none_or(|newer| newer.starts_with(b"W/") || stored == Some(newer))
}

/// Whether a 200 to HEAD applies to the stored response to GET, which it then renews as a 304 does.
/// Validators are the text of `ETag` and the time of `Last-Modified`.
///
/// Section 4.3.5: "if the stored response and HEAD response have matching values for any received
/// validator fields (ETag and Last-Modified) and, if the HEAD response has a Content-Length header
/// field, the value of Content-Length matches that of the stored response, the cache SHOULD update the
/// stored response". One without validators says nothing of it.
pub fn head_is_about(
    stored: (Option<&[u8]>, Option<i64>, u64),
    newer: (Option<&[u8]>, Option<i64>, Option<u64>),
) -> bool {
    (newer.0.is_some() || newer.1.is_some())
        && newer.0.is_none_or(|etag| stored.0 == Some(etag))
        && newer.1.is_none_or(|modified| stored.1 == Some(modified))
        && newer.2.is_none_or(|length| stored.2 == length)
}

/// The members of all lines of `Connection`.
pub fn connection<'a>(fields: impl Iterator<Item = (&'a [u8], &'a [u8])>) -> Bytes {
    let lines = fields.filter(|(name, _)| name.eq_ignore_ascii_case(b"connection"));
    joined(lines.map(|(_, value)| value))
}

/// "Header fields that the cache's stored response depends upon", and Content-Length: "for example,
/// […] Content-Encoding, Content-Type and Content-Range".
fn describes_content(name: &[u8]) -> bool {
    let is = |other: &[u8]| name.eq_ignore_ascii_case(other);
    [&b"content-length"[..], b"content-encoding", b"content-type", b"content-range"]
        .iter()
        .any(|other| is(other))
}

/// Whether a response invalidates the stored response for the URI.
///
/// Section 4.4: "a cache MUST invalidate the target URI […] when it receives a non-error status code
/// in response to an unsafe request method (including methods whose safety is unknown)"; "A
/// "non-error response" is one with a 2xx (Successful) or 3xx (Redirection) status code."
pub fn invalidates(method: Method, status: u16) -> bool {
    let safe = matches!(
        method,
        Method::Get | Method::Head | Method::Options | Method::Trace | Method::Propfind
    );
    !safe && (200..400).contains(&status)
}

/// The path and query of a URI in `Location` or `Content-Location` whose origin is the request's.
///
/// Section 4.4: "a cache MUST NOT trigger an invalidation under these conditions if the origin […]
/// of the URI to be invalidated differs from that of the target URI. This helps prevent denial-of-
/// service attacks."
pub fn same_origin<'a>(uri: &'a [u8], scheme: &[u8], host: &[u8]) -> Option<&'a [u8]> {
    if uri.starts_with(b"//") {
        return path_behind(&uri[2..], host);
    }
    if uri.starts_with(b"/") {
        return Some(without_fragment(uri));
    }
    let colon = uri.iter().position(|&b| b == b':')?;
    let (named, rest) = uri.split_at(colon);
    if !named.eq_ignore_ascii_case(scheme) {
        return None;
    }
    path_behind(rest.strip_prefix(b"://")?, host)
}

fn path_behind<'a>(rest: &'a [u8], host: &[u8]) -> Option<&'a [u8]> {
    let slash = rest.iter().position(|&b| b == b'/')?;
    let (authority, path) = rest.split_at(slash);
    authority.eq_ignore_ascii_case(host).then(|| without_fragment(path))
}

fn without_fragment(path: &[u8]) -> &[u8] {
    path.split(|&b| b == b'#').next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(name: &'static str, value: &'static str) -> Field {
        Field { known: None, name: name.into(), value: value.into() }
    }

    #[test]
    fn a_304_renews_the_fields() {
        let mut stored = vec![
            header("ETag", "\"1\""),
            header("X-A", "1"),
            header("x-a", "2"),
            header("Content-Type", "a"),
        ];
        let newer = [
            header("x-A", "3"),
            header("Content-Type", "b"),
            header("Content-Length", "0"),
            header("Connection", "x-hop"),
            header("X-Hop", "1"),
            header("X-New", "n"),
        ];
        freshen(&mut stored, &newer, &ResponseFacts::default());
        let expected = [
            header("ETag", "\"1\""),
            header("Content-Type", "a"),
            header("x-A", "3"),
            header("X-New", "n"),
        ];
        assert_eq!(stored, expected);
    }

    #[test]
    fn a_304_is_about_one_response() {
        let (one, two, weak) = (&b"\"1\""[..], &b"\"2\""[..], &b"W/\"2\""[..]);
        assert!(is_about(Some(one), None) && is_about(Some(one), Some(one)));
        assert!(is_about(Some(one), Some(weak)) && is_about(None, None));
        assert!(!is_about(Some(one), Some(two)) && !is_about(None, Some(two)));
    }

    #[test]
    fn a_response_to_head_is_about_the_same_content() {
        let (one, two) = (Some(&b"\"1\""[..]), Some(&b"\"2\""[..]));
        let stored = (one, Some(100), 5);
        for same in [(one, None, None), (None, Some(100), Some(5)), (one, Some(100), Some(5))] {
            assert!(head_is_about(stored, same), "{same:?}");
        }
        for other in [
            (None, None, None),
            (None, None, Some(5)),
            (two, None, None),
            (one, Some(101), None),
            (one, None, Some(6)),
        ] {
            assert!(!head_is_about(stored, other), "{other:?}");
        }
        assert!(!head_is_about((None, Some(100), 5), (one, Some(100), None)), "it had no ETag");
    }

    #[test]
    fn unsafe_methods_invalidate() {
        assert!(invalidates(Method::Post, 200) && invalidates(Method::Delete, 303));
        assert!(invalidates(Method::Other, 204));
        assert!(!invalidates(Method::Get, 200) && !invalidates(Method::Put, 404));
    }

    #[test]
    fn only_of_the_same_origin() {
        let path = |uri: &'static str| same_origin(uri.as_bytes(), b"http", b"a.example:8080");
        assert_eq!(path("/x?y#z"), Some(&b"/x?y"[..]));
        assert_eq!(path("http://A.example:8080/x"), Some(&b"/x"[..]));
        assert_eq!(path("//a.example:8080/x"), Some(&b"/x"[..]));
        for other in ["https://a.example:8080/x", "http://b.example/x", "x", "", "http:/x", "//b/x"]
        {
            assert_eq!(path(other), None, "{other}");
        }
    }
}
