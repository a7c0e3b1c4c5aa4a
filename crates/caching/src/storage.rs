//! Whether a response may be stored, and for which requests it may be used (RFC 9111 section 3).
//!
//! Used in the strict mode for every response of an origin.

use nowait_message::Method;

use crate::facts::{RequestFacts, ResponseFacts};

/// The reason why a response is not stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// The method's responses are not stored here.
    Method,
    /// The cache does not understand the status.
    Status,
    /// `no-store`, in the request or in the response.
    NoStore,
    /// `private`
    Private,
    /// The request had `Authorization`, and the response does not allow it.
    Authorization,
    /// `Vary: *`
    Vary,
    /// It sets a cookie, and is not explicitly shareable.
    Cookie,
    /// Neither the response nor its status allows storing.
    Unmarked,
    /// The freshness is unknown, and it can't be validated either.
    Useless,
}

/// Whether a response may be stored. `lifetime` in seconds, from [`crate::freshness::lifetime`];
/// `sliced`: the range is part of the key.
///
/// # Errors
/// The first rule that forbids it.
pub fn allowed(
    request: &RequestFacts,
    response: &ResponseFacts,
    lifetime: u64,
    sliced: bool,
) -> Result<(), Refusal> {
    let control = &response.control;
    // "A cache MUST NOT store a response to a request unless: the request method is understood by
    // the cache;"
    if !matches!(request.method, Method::Get | Method::Head) {
        return Err(Refusal::Method);
    }
    // "the response status code is final; if the response status code is 206 or 304, or the
    // must-understand cache directive is present: the cache understands the response status code;"
    let partial_apart = response.status == 206 && !sliced;
    if response.status < 200
        || partial_apart
        || response.status == 304
        || (control.must_understand && !understood(response.status))
    {
        return Err(Refusal::Status);
    }
    // "the no-store cache directive is not present in the response"; section 5.2.2.3: "When a cache
    // that implements the must-understand directive receives a response that includes it, the cache
    // SHOULD ignore the no-store directive if it understands and implements the status code's caching
    // requirements."
    if (control.no_store && !control.must_understand) || request.control.no_store {
        return Err(Refusal::NoStore);
    }
    // "if the cache is shared: the private response directive is either not present or allows a
    // shared cache to store a modified response";
    if control.private.is_whole() {
        return Err(Refusal::Private);
    }
    // "if the cache is shared: the Authorization header field is not present in the request or a
    // response directive is present that explicitly allows shared caching"; section 3.5:
    // must-revalidate, public, and s-maxage.
    if request.authorization
        && !(control.public || control.must_revalidate || control.s_maxage.is_some())
    {
        return Err(Refusal::Authorization);
    }
    // Section 4.1: "A stored response with a Vary header field value containing a member "*" always
    // fails to match."
    if response.varies_always() {
        return Err(Refusal::Vary);
    }
    // Section 7.3: "The presence of the Set-Cookie response header field […] does not inhibit
    // caching". It may still be refused, which is what nginx does, unless the origin says that the
    // response is for all.
    if response.set_cookie && !(control.public || control.s_maxage.is_some()) {
        return Err(Refusal::Cookie);
    }
    // "the response contains at least one of the following: a public response directive, […] an
    // Expires header field, a max-age response directive, […] or a status code that is defined as
    // heuristically cacheable." What the operator configures is such a mark, too.
    let marked = control.public
        || response.expires.is_some()
        || control.max_age.is_some()
        || control.s_maxage.is_some()
        || heuristic(response.status)
        || lifetime > 0;
    if !marked {
        return Err(Refusal::Unmarked);
    }
    // A response that is stale at once is of use only if it can be validated, or served stale.
    let stale_use = control.stale_while_revalidate.max(control.stale_if_error).unwrap_or(0);
    if (lifetime == 0 || control.no_cache.is_whole()) && stale_use == 0 && !response.has_validator()
    {
        return Err(Refusal::Useless);
    }
    Ok(())
}

/// Statuses whose caching rules this cache implements.
fn understood(status: u16) -> bool {
    heuristic(status) || matches!(status, 302 | 303 | 307 | 400..=403 | 429 | 500..=504)
}

/// RFC 9110 section 15.1: "Responses with status codes that are defined as heuristically cacheable
/// (e.g., 200, 203, 204, 206, 300, 301, 308, 404, 405, 410, 414, and 501 in this specification)".
pub fn heuristic(status: u16) -> bool {
    matches!(status, 200 | 203 | 204 | 206 | 300 | 301 | 308 | 404 | 405 | 410 | 414 | 501)
}

/// Whether a field of a response is not stored (section 3.1): it concerns one connection or
/// proxies, or the origin forbids it. `connection` has the members of `Connection`.
pub fn excluded(name: &[u8], connection: &[u8], response: &ResponseFacts) -> bool {
    const ALWAYS: [&[u8]; 10] = [
        b"connection",
        b"proxy-connection",
        b"keep-alive",
        b"te",
        b"transfer-encoding",
        b"upgrade",
        b"trailer",
        b"proxy-authenticate",
        b"proxy-authentication-info",
        b"proxy-authorization",
    ];
    let is = |other: &[u8]| name.eq_ignore_ascii_case(other);
    ALWAYS.iter().any(|other| is(other))
        || connection.split(|&b| b == b',').any(|member| is(member.trim_ascii()))
        // Section 5.2.2.7: "private […] qualified form […]: a shared cache MUST NOT store the
        // specified header fields"; section 5.2.2.4 has the same for the use of those of no-cache.
        || response.control.private.names().iter().any(|other| is(other))
        || response.control.no_cache.names().iter().any(|other| is(other))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::validity::Ignored;

    fn check(
        request: &[(&str, &str)],
        status: u16,
        response: &[(&str, &str)],
    ) -> Result<(), Refusal> {
        let bytes = |lines: &[(&str, &str)]| -> Vec<(Vec<u8>, Vec<u8>)> {
            lines.iter().map(|(n, v)| (n.as_bytes().to_vec(), v.as_bytes().to_vec())).collect()
        };
        let (request, response) = (bytes(request), bytes(response));
        let request =
            RequestFacts::read(Method::Get, request.iter().map(|(n, v)| (&n[..], &v[..])));
        let response = ResponseFacts::read(
            status,
            response.iter().map(|(n, v)| (&n[..], &v[..])),
            Ignored::default(),
        );
        let lifetime = response.control.s_maxage.or(response.control.max_age).unwrap_or(0);
        allowed(&request, &response, lifetime, false)
    }

    #[test]
    fn what_is_stored() {
        let fresh = ("Cache-Control", "max-age=60");
        assert_eq!(check(&[], 200, &[fresh]), Ok(()));
        assert_eq!(check(&[], 299, &[fresh]), Ok(()));
        assert_eq!(check(&[], 206, &[fresh]), Err(Refusal::Status));
        assert_eq!(check(&[("Cache-Control", "no-store")], 200, &[fresh]), Err(Refusal::NoStore));
        assert_eq!(check(&[], 200, &[fresh, ("Vary", "a, *")]), Err(Refusal::Vary));
        assert_eq!(check(&[], 200, &[fresh, ("Set-Cookie", "a")]), Err(Refusal::Cookie));
        let control = |value| check(&[], 200, &[("Cache-Control", value), ("ETag", "\"a\"")]);
        assert_eq!(control("no-cache"), Ok(()));
        assert_eq!(control("private"), Err(Refusal::Private));
        assert_eq!(control("private=\"x\""), Ok(()));
        assert_eq!(control("no-store"), Err(Refusal::NoStore));
        assert_eq!(control("no-store, must-understand"), Ok(()));
        assert_eq!(
            check(&[], 299, &[("Cache-Control", "max-age=9, must-understand")]),
            Err(Refusal::Status)
        );
        assert_eq!(check(&[], 200, &[("Cache-Control", "no-cache")]), Err(Refusal::Useless));
        assert_eq!(check(&[], 200, &[]), Err(Refusal::Useless));
        let etag = ("ETag", "\"a\"");
        assert_eq!(check(&[], 302, &[etag]), Err(Refusal::Unmarked));
        assert_eq!(check(&[], 404, &[etag]), Ok(()));
        for mark in ["public", "max-age=0", "s-maxage=0"] {
            assert_eq!(check(&[], 302, &[etag, ("Cache-Control", mark)]), Ok(()), "{mark}");
        }
        assert_eq!(check(&[], 302, &[etag, ("Expires", "0")]), Ok(()));
    }

    #[test]
    fn requests_with_credentials() {
        let with = |control| check(&[("Authorization", "x")], 200, &[("Cache-Control", control)]);
        assert_eq!(with("max-age=60"), Err(Refusal::Authorization));
        for allows in ["max-age=60, public", "max-age=60, must-revalidate", "s-maxage=60"] {
            assert_eq!(with(allows), Ok(()), "{allows}");
        }
    }

    #[test]
    fn fields_that_are_not_stored() {
        let response = [(&b"Cache-Control"[..], &b"private=\"X-A\", no-cache=x-b"[..])];
        let response = ResponseFacts::read(200, response.into_iter(), Ignored::default());
        for name in [&b"Connection"[..], b"x-a", b"X-B", b"X-C", b"Proxy-Authenticate"] {
            assert!(excluded(name, b"close, x-c", &response), "{}", name.escape_ascii());
        }
        assert!(!excluded(b"X-D", b"close, x-c", &response));
    }
}
