//! Conditional requests (RFC 9110 section 13): whether a 200 may be sent, or a 304 or 412 instead,
//! and whether `If-Range` permits a `Range`.
//!
//! The filter calls [`evaluate`] for main requests whose response would be 200. The order is
//! nginx's (`ngx_http_not_modified_filter_module`), which differs from the RFC's: `If-Match` and
//! `If-Unmodified-Since` must both hold, and of `If-Modified-Since` and `If-None-Match` both must
//! say "unchanged" for a 304.

use crate::http_date;

/// The comparison of `If-Modified-Since`: the `if_modified_since` directive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum IfModifiedSince {
    /// The field is ignored.
    Off,
    /// Unchanged only if the dates are equal.
    #[default]
    Exact,
    /// Unchanged if the response is not younger than the field says.
    Before,
}

/// The request's fields; the first of each name.
#[derive(Debug, Clone, Copy, Default)]
pub struct Preconditions<'a> {
    /// `If-Match`
    pub if_match: Option<&'a [u8]>,
    /// `If-None-Match`
    pub if_none_match: Option<&'a [u8]>,
    /// `If-Modified-Since`
    pub if_modified_since: Option<&'a [u8]>,
    /// `If-Unmodified-Since`
    pub if_unmodified_since: Option<&'a [u8]>,
}

impl Preconditions<'_> {
    /// The usual case: nothing to evaluate.
    pub fn is_empty(&self) -> bool {
        self.if_match.is_none()
            && self.if_none_match.is_none()
            && self.if_modified_since.is_none()
            && self.if_unmodified_since.is_none()
    }
}

/// The validators of the response.
#[derive(Debug, Clone, Copy, Default)]
pub struct Validators<'a> {
    /// The `ETag` field with quotes and, if weak, `W/`.
    pub etag: Option<&'a [u8]>,
    /// `Last-Modified` in Unix seconds.
    pub last_modified: Option<i64>,
}

/// Result of the evaluation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Send it.
    Proceed,
    /// 304, without body, `Content-Type`, `Content-Length`, `Content-Encoding`, `Accept-Ranges`.
    NotModified,
    /// 412.
    Failed,
}

/// Evaluates the preconditions of a request for a response that would be 200.
pub fn evaluate(
    request: &Preconditions<'_>,
    response: &Validators<'_>,
    mode: IfModifiedSince,
) -> Outcome {
    if let Some(value) = request.if_unmodified_since
        && modified_after(value, response)
    {
        return Outcome::Failed;
    }
    if let Some(list) = request.if_match
        && !matches_list(list, response.etag, Comparison::Strong)
    {
        return Outcome::Failed;
    }
    if request.if_modified_since.is_none() && request.if_none_match.is_none() {
        return Outcome::Proceed;
    }
    if let Some(value) = request.if_modified_since
        && modified_since(value, response, mode)
    {
        return Outcome::Proceed;
    }
    if let Some(list) = request.if_none_match
        && !matches_list(list, response.etag, Comparison::Weak)
    {
        return Outcome::Proceed;
    }
    Outcome::NotModified
}

/// Whether `If-Range` holds, so that `Range` is honoured. A value that ends in a quote is an
/// entity tag and must equal the response's (byte for byte: a weak tag never qualifies a range
/// of a strong one); else it is a date and must equal `Last-Modified`.
pub fn if_range_holds(if_range: &[u8], response: &Validators<'_>) -> bool {
    if if_range.len() >= 2 && if_range.ends_with(b"\"") {
        return response.etag == Some(if_range);
    }
    response.last_modified.is_some() && http_date::parse(if_range) == response.last_modified
}

/// `If-Unmodified-Since` fails. A response without date fails it too; so does a value that is no
/// date, where the RFC would have it ignored.
fn modified_after(value: &[u8], response: &Validators<'_>) -> bool {
    match (http_date::parse(value), response.last_modified) {
        (Some(limit), Some(modified)) => modified > limit,
        _ => true,
    }
}

fn modified_since(value: &[u8], response: &Validators<'_>, mode: IfModifiedSince) -> bool {
    let Some(modified) = response.last_modified else { return true };
    let Some(since) = http_date::parse(value) else { return true };
    match mode {
        IfModifiedSince::Off => true,
        IfModifiedSince::Exact => since != modified,
        IfModifiedSince::Before => since < modified,
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Comparison {
    Strong,
    Weak,
}

/// Whether a list of entity tags, or `*`, names the response's tag.
fn matches_list(list: &[u8], etag: Option<&[u8]>, comparison: Comparison) -> bool {
    if list == b"*" {
        return true;
    }
    let Some(mut etag) = etag else { return false };
    let weak =
        |tag: &[u8]| comparison == Comparison::Weak && tag.len() > 2 && tag.starts_with(b"W/");
    if weak(etag) {
        etag = &etag[2..];
    }
    // Tags may contain commas, so the list is walked by comparing in place, not split.
    let mut rest = list;
    while !rest.is_empty() {
        if weak(rest) {
            rest = &rest[2..];
        }
        if let Some(behind) = rest.strip_prefix(etag) {
            let behind = behind.trim_ascii_start();
            if behind.is_empty() || behind[0] == b',' {
                return true;
            }
            rest = behind;
        }
        let comma = rest.iter().position(|&b| b == b',').unwrap_or(rest.len());
        rest = &rest[comma..];
        let next = rest.iter().position(|b| !b", \t".contains(b)).unwrap_or(rest.len());
        rest = &rest[next..];
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    const DATE: &[u8] = b"Sun, 06 Nov 1994 08:49:37 GMT";
    const EARLIER: &[u8] = b"Sun, 06 Nov 1994 08:49:36 GMT";
    const LATER: &[u8] = b"Sun, 06 Nov 1994 08:49:38 GMT";
    const FILE: Validators<'_> =
        Validators { etag: Some(b"\"a,b\""), last_modified: Some(784_111_777) };

    fn none_match(list: &[u8], etag: &[u8]) -> bool {
        let request = Preconditions { if_none_match: Some(list), ..Default::default() };
        let response = Validators { etag: Some(etag), last_modified: None };
        evaluate(&request, &response, IfModifiedSince::Exact) == Outcome::NotModified
    }

    fn matches(list: &[u8], etag: &[u8]) -> bool {
        let request = Preconditions { if_match: Some(list), ..Default::default() };
        let response = Validators { etag: Some(etag), last_modified: None };
        evaluate(&request, &response, IfModifiedSince::Exact) == Outcome::Proceed
    }

    #[test]
    fn entity_tag_lists() {
        for list in [&b"*"[..], b"\"a\"", b"\"b\", \"a\"", b"W/\"a\"", b"\"b\" ,\t,\"a\" , \"c\""] {
            assert!(none_match(list, b"\"a\""), "{}", list.escape_ascii());
            assert!(none_match(list, b"W/\"a\""), "{}", list.escape_ascii());
        }
        for list in [&b""[..], b"\"b\"", b"a", b"\"a", b"\"a\"x", b"\"aa\"", b"* "] {
            assert!(!none_match(list, b"\"a\""), "{}", list.escape_ascii());
        }
        assert!(none_match(b"\"x\", \"a,b\"", b"\"a,b\""));
        assert!(matches(b"\"b\", \"a\"", b"\"a\""));
        assert!(!matches(b"W/\"a\"", b"\"a\""));
        assert!(matches(b"*", b"\"a\""));
    }

    #[test]
    fn no_validators() {
        let none = Validators::default();
        let check = |request| evaluate(&request, &none, IfModifiedSince::Exact);
        let base = Preconditions::default();
        assert!(base.is_empty());
        assert_eq!(check(base), Outcome::Proceed);
        assert_eq!(check(Preconditions { if_match: Some(b"\"a\""), ..base }), Outcome::Failed);
        assert_eq!(
            check(Preconditions { if_none_match: Some(b"\"a\""), ..base }),
            Outcome::Proceed
        );
        assert_eq!(
            check(Preconditions { if_none_match: Some(b"*"), ..base }),
            Outcome::NotModified
        );
        assert_eq!(
            check(Preconditions { if_modified_since: Some(DATE), ..base }),
            Outcome::Proceed
        );
        assert_eq!(
            check(Preconditions { if_unmodified_since: Some(DATE), ..base }),
            Outcome::Failed
        );
    }

    #[test]
    fn dates() {
        use IfModifiedSince::{Before, Exact, Off};
        let since = |value, mode| {
            let request = Preconditions { if_modified_since: Some(value), ..Default::default() };
            evaluate(&request, &FILE, mode) == Outcome::NotModified
        };
        assert!(since(DATE, Exact) && since(DATE, Before) && !since(DATE, Off));
        assert!(!since(LATER, Exact) && since(LATER, Before));
        assert!(!since(EARLIER, Exact) && !since(EARLIER, Before));
        assert!(!since(b"nonsense", Exact) && !since(b"nonsense", Before));
        let until = |value| {
            let request = Preconditions { if_unmodified_since: Some(value), ..Default::default() };
            evaluate(&request, &FILE, Exact)
        };
        assert_eq!(until(DATE), Outcome::Proceed);
        assert_eq!(until(LATER), Outcome::Proceed);
        assert_eq!(until(EARLIER), Outcome::Failed);
        assert_eq!(until(b"nonsense"), Outcome::Failed);
    }

    #[test]
    fn both_fields_must_match_for_a_304() {
        let check = |date, tag| {
            let request = Preconditions {
                if_modified_since: Some(date),
                if_none_match: Some(tag),
                ..Default::default()
            };
            evaluate(&request, &FILE, IfModifiedSince::Exact)
        };
        assert_eq!(check(DATE, b"\"a,b\""), Outcome::NotModified);
        assert_eq!(check(LATER, b"\"a,b\""), Outcome::Proceed);
        assert_eq!(check(DATE, b"\"x\""), Outcome::Proceed);
    }

    #[test]
    fn if_range() {
        assert!(if_range_holds(b"\"a,b\"", &FILE));
        assert!(!if_range_holds(b"W/\"a,b\"", &FILE));
        assert!(!if_range_holds(b"\"a\"", &FILE));
        assert!(if_range_holds(DATE, &FILE));
        assert!(!if_range_holds(LATER, &FILE));
        assert!(!if_range_holds(b"\"", &FILE));
        assert!(!if_range_holds(DATE, &Validators::default()));
        assert!(!if_range_holds(b"x", &Validators::default()));
    }
}
