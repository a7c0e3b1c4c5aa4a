//! The static table (RFC 9204 appendix A).

use std::sync::LazyLock;

use nowait_fields::{Facts, Token, known, token};

/// The fields of the static table; the first has index 0.
#[rustfmt::skip]
const TABLE: [(&str, &str); LEN] = [
    (":authority", ""),
    (":path", "/"),
    ("age", "0"),
    ("content-disposition", ""),
    ("content-length", "0"),
    ("cookie", ""),
    ("date", ""),
    ("etag", ""),
    ("if-modified-since", ""),
    ("if-none-match", ""),
    ("last-modified", ""),
    ("link", ""),
    ("location", ""),
    ("referer", ""),
    ("set-cookie", ""),
    (":method", "CONNECT"),
    (":method", "DELETE"),
    (":method", "GET"),
    (":method", "HEAD"),
    (":method", "OPTIONS"),
    (":method", "POST"),
    (":method", "PUT"),
    (":scheme", "http"),
    (":scheme", "https"),
    (":status", "103"),
    (":status", "200"),
    (":status", "304"),
    (":status", "404"),
    (":status", "503"),
    ("accept", "*/*"),
    ("accept", "application/dns-message"),
    ("accept-encoding", "gzip, deflate, br"),
    ("accept-ranges", "bytes"),
    ("access-control-allow-headers", "cache-control"),
    ("access-control-allow-headers", "content-type"),
    ("access-control-allow-origin", "*"),
    ("cache-control", "max-age=0"),
    ("cache-control", "max-age=2592000"),
    ("cache-control", "max-age=604800"),
    ("cache-control", "no-cache"),
    ("cache-control", "no-store"),
    ("cache-control", "public, max-age=31536000"),
    ("content-encoding", "br"),
    ("content-encoding", "gzip"),
    ("content-type", "application/dns-message"),
    ("content-type", "application/javascript"),
    ("content-type", "application/json"),
    ("content-type", "application/x-www-form-urlencoded"),
    ("content-type", "image/gif"),
    ("content-type", "image/jpeg"),
    ("content-type", "image/png"),
    ("content-type", "text/css"),
    ("content-type", "text/html; charset=utf-8"),
    ("content-type", "text/plain"),
    ("content-type", "text/plain;charset=utf-8"),
    ("range", "bytes=0-"),
    ("strict-transport-security", "max-age=31536000"),
    ("strict-transport-security", "max-age=31536000; includesubdomains"),
    ("strict-transport-security", "max-age=31536000; includesubdomains; preload"),
    ("vary", "accept-encoding"),
    ("vary", "origin"),
    ("x-content-type-options", "nosniff"),
    ("x-xss-protection", "1; mode=block"),
    (":status", "100"),
    (":status", "204"),
    (":status", "206"),
    (":status", "302"),
    (":status", "400"),
    (":status", "403"),
    (":status", "421"),
    (":status", "425"),
    (":status", "500"),
    ("accept-language", ""),
    ("access-control-allow-credentials", "FALSE"),
    ("access-control-allow-credentials", "TRUE"),
    ("access-control-allow-headers", "*"),
    ("access-control-allow-methods", "get"),
    ("access-control-allow-methods", "get, post, options"),
    ("access-control-allow-methods", "options"),
    ("access-control-expose-headers", "content-length"),
    ("access-control-request-headers", "content-type"),
    ("access-control-request-method", "get"),
    ("access-control-request-method", "post"),
    ("alt-svc", "clear"),
    ("authorization", ""),
    ("content-security-policy", "script-src 'none'; object-src 'none'; base-uri 'none'"),
    ("early-data", "1"),
    ("expect-ct", ""),
    ("forwarded", ""),
    ("if-range", ""),
    ("origin", ""),
    ("purpose", "prefetch"),
    ("server", ""),
    ("timing-allow-origin", "*"),
    ("upgrade-insecure-requests", "1"),
    ("user-agent", ""),
    ("x-forwarded-for", ""),
    ("x-frame-options", "deny"),
    ("x-frame-options", "sameorigin"),
];

/// The number of fields.
const LEN: usize = 99;

/// Facts of each field, and where names begin.
struct Index {
    facts: [Facts; LEN],
    /// The next field with the same name; 0: none.
    next: [u8; LEN],
    /// The first field of each token's name.
    first: [Option<u8>; token::LEN + 1],
}

static INDEX: LazyLock<Index> = LazyLock::new(|| {
    let name = |at: usize| TABLE[at].0.as_bytes();
    let mut first = [None; token::LEN + 1];
    for at in (0..LEN).rev() {
        match Token::of(name(at)) {
            Token::OTHER => {}
            token => first[token.index()] = Some(at as u8),
        }
    }
    let next = |at: usize| (at + 1..LEN).find(|&other| name(other) == name(at)).unwrap_or(0);
    let facts =
        |at: usize| Facts { token: Token::of(name(at)), known: known(name(at)), fault: None };
    Index {
        facts: std::array::from_fn(facts),
        next: std::array::from_fn(|at| next(at) as u8),
        first,
    }
});

/// The field at `index`, which counts from 0.
#[inline]
pub(super) fn field(index: u64) -> Option<(&'static [u8], &'static [u8], Facts)> {
    let index = usize::try_from(index).ok()?;
    let (name, value) = TABLE.get(index)?;
    Some((name.as_bytes(), value.as_bytes(), INDEX.facts[index]))
}

/// The index of the first field of this name.
#[inline]
pub(super) fn name(token: Token, name: &[u8]) -> Option<u64> {
    if token != Token::OTHER {
        return INDEX.first[token.index()].map(u64::from);
    }
    // Names that HPACK's table lacks.
    let is_it = |&at: &u64| TABLE[at as usize].0.as_bytes() == name;
    match name.len() {
        6 | 7 | 9 | 10 | 15 | 16 | 19 | 22 | 23 | 25 | 28..=32 => OTHERS.into_iter().find(is_it),
        _ => None,
    }
}

/// First fields of the names that HPACK's table lacks.
const OTHERS: [u64; 19] =
    [33, 61, 62, 73, 76, 79, 80, 81, 83, 85, 86, 87, 88, 90, 91, 93, 94, 96, 97];

/// The index of the field with the name of the one at `first`, and this value.
#[inline]
pub(super) fn value(first: u64, value: &[u8]) -> Option<u64> {
    let mut at = first as usize;
    loop {
        if TABLE[at].1.as_bytes() == value {
            return Some(at as u64);
        }
        at = usize::from(INDEX.next[at]);
        if at == 0 {
            return None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indexes_are_those_of_the_rfc() {
        let at = |index| field(index).map(|(name, value, _)| (name, value));
        assert_eq!(at(0), Some((&b":authority"[..], &b""[..])));
        assert_eq!(at(17), Some((&b":method"[..], &b"GET"[..])));
        assert_eq!(at(25), Some((&b":status"[..], &b"200"[..])));
        assert_eq!(at(52), Some((&b"content-type"[..], &b"text/html; charset=utf-8"[..])));
        assert_eq!(at(71), Some((&b":status"[..], &b"500"[..])));
        assert_eq!(at(98), Some((&b"x-frame-options"[..], &b"sameorigin"[..])));
        assert_eq!(at(99), None);
        assert_eq!(at(u64::MAX), None);
    }

    #[test]
    fn every_field_is_found() {
        for (at, (text, content)) in TABLE.iter().enumerate() {
            let octets = text.as_bytes();
            let first = name(Token::of(octets), octets).unwrap();
            assert_eq!(TABLE[first as usize].0, *text);
            assert!(TABLE[..first as usize].iter().all(|(other, _)| other != text));
            assert_eq!(value(first, content.as_bytes()), Some(at as u64));
            assert_eq!(value(first, b"something else"), None);
            let facts = Facts::of(octets, content.as_bytes(), Token::of(octets));
            // An empty path or scheme is malformed, but the table has none.
            assert_eq!((facts.token, facts.known), (INDEX.facts[at].token, INDEX.facts[at].known));
            assert_eq!(facts.fault, None, "{text}: {content}");
        }
        for text in ["", "x", "host", ":protocol", "grpc-status", "via"] {
            assert_eq!(name(Token::of(text.as_bytes()), text.as_bytes()), None);
        }
    }
}
