//! The content codings that a client accepts. nginx: `ngx_http_gzip_ok`.
//!
//! Used by modules that compress, decompress, or have compressed files.

use nowait_message::{Known, Version};

use crate::conf::accept_encoding::{AcceptEncodingConf, GzipProxied, HttpVersion};
use crate::log::Level;
use crate::request::Request;
use crate::response::Head;
use crate::slots::Key;
use nowait_message::http_date;

/// A coding of content besides gzip.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Coding {
    /// RFC 7932.
    Brotli,
    /// RFC 8878.
    Zstd,
}

/// The cached results for a request and its response.
#[derive(Debug, Default)]
struct State {
    /// Whether the client accepts gzip, once determined.
    accepted: Option<bool>,
    varies: bool,
}

static STATE: Key<State> = Key::new();

/// Records that the response depends on `Accept-Encoding`.
pub fn set_varies(request: &mut Request) {
    request.state_mut().of_mut(&STATE).varies = true;
}

/// Whether the response depends on `Accept-Encoding`.
pub fn varies(request: &Request) -> bool {
    request.state().get(&STATE).is_some_and(|state| state.varies)
}

/// Whether the client accepts gzip; determined once per request, as in nginx.
pub fn is_accepted(request: &mut Request, head: &Head) -> bool {
    if let Some(accepted) = request.state().get(&STATE).and_then(|state| state.accepted) {
        return accepted;
    }
    let accepted = test(request, head);
    request.state_mut().of_mut(&STATE).accepted = Some(accepted);
    accepted
}

fn test(request: &Request, head: &Head) -> bool {
    let conf = &request.location().accept_encoding;
    let lowest = match conf.gzip_http_version {
        HttpVersion::Http10 => Version::Http10,
        HttpVersion::Http11 => Version::Http11,
    };
    if request.is_nested() {
        // A part of another response, which is compressed as a whole.
        return false;
    }
    let Some(field) = request.head().header(Known::AcceptEncoding) else { return false };
    if !accepts_gzip(field) || request.head().version() < lowest {
        return false;
    }
    let disable = conf.gzip_disable.as_ref();
    if disable.is_some_and(|disable| disable.msie6) && request.is_msie6() {
        return false;
    }
    if request.head().fields().named(b"via").next().is_some() && !may_for_proxy(request, head, conf)
    {
        return false;
    }
    let agents = disable.map_or(&[][..], |disable| &disable.agents);
    let Some(agent) = request.head().header(Known::UserAgent) else { return true };
    !agents.iter().any(|regex| match regex.is_match(agent) {
        Ok(matches) => matches,
        Err(error) => {
            request.log(Level::Alert, format_args!("{error}"));
            true
        }
    })
}

/// `gzip_proxied`
fn may_for_proxy(request: &Request, head: &Head, conf: &AcceptEncodingConf) -> bool {
    let when = |flag| conf.gzip_proxied.contains(flag);
    if when(GzipProxied::OFF) {
        return false;
    }
    if when(GzipProxied::ANY)
        || (when(GzipProxied::AUTH) && request.head().header(Known::Authorization).is_some())
    {
        return true;
    }
    if let Some(expires) = head.header(b"expires") {
        let now = i64::try_from(nowait_runtime::clock().unix_seconds()).unwrap_or(i64::MAX);
        return when(GzipProxied::EXPIRED)
            && http_date::parse(expires).is_some_and(|expires| expires < now);
    }
    if head.header(b"cache-control").is_some() {
        return [
            (GzipProxied::NO_CACHE, "no-cache"),
            (GzipProxied::NO_STORE, "no-store"),
            (GzipProxied::PRIVATE, "private"),
        ]
        .into_iter()
        .any(|(flag, name)| when(flag) && has_cache_control(head, name));
    }
    let dated = when(GzipProxied::NO_LAST_MODIFIED) && head.last_modified.is_some();
    let tagged = when(GzipProxied::NO_ETAG) && head.etag.is_some();
    !dated && !tagged
}

fn has_cache_control(head: &Head, wanted: &str) -> bool {
    head.headers
        .iter()
        .filter(|header| header.name.eq_ignore_ascii_case(b"cache-control"))
        .flat_map(|header| header.value.split(|&byte| byte == b','))
        .any(|part| {
            let name = part.split(|&byte| matches!(byte, b'=' | b';')).next().unwrap_or_default();
            name.trim_ascii().eq_ignore_ascii_case(wanted.as_bytes())
        })
}

/// Whether an `Accept-Encoding` names gzip with a weight above zero (RFC 9110 section 12.5.3). As
/// in nginx, `*` and `x-gzip` don't count, and the first `gzip` decides.
fn accepts_gzip(field: &[u8]) -> bool {
    let mut from = 0;
    let rest = loop {
        let Some(at) = field[from..].windows(4).position(|part| part.eq_ignore_ascii_case(b"gzip"))
        else {
            return false;
        };
        let at = from + at;
        from = at + 4;
        if at == 0 || matches!(field[at - 1], b',' | b' ') {
            break &field[from..];
        }
    };
    let rest = rest.trim_ascii_start();
    let Some((sign, parameter)) = rest.split_first() else { return true };
    match sign {
        b',' => true,
        b';' => match parameter.trim_ascii_start() {
            [] => true,
            [b'q' | b'Q', b'=', weight @ ..] => is_above_zero(weight),
            _ => false,
        },
        _ => false,
    }
}

/// Whether the text begins with a weight of `0.001` to `1.000`.
fn is_above_zero(text: &[u8]) -> bool {
    let end = text.iter().position(|byte| matches!(byte, b',' | b' ')).unwrap_or(text.len());
    let (whole, digits) = match &text[..end] {
        [whole @ (b'0' | b'1')] => (whole, &[][..]),
        [whole @ (b'0' | b'1'), b'.', digits @ ..] => (whole, digits),
        _ => return false,
    };
    if digits.len() > 3 || !digits.iter().all(u8::is_ascii_digit) {
        return false;
    }
    let fraction = digits.iter().any(|digit| *digit != b'0');
    (*whole == b'1') != fraction
}

impl Coding {
    /// The name in `Accept-Encoding` and `Content-Encoding`.
    pub fn name(self) -> &'static [u8] {
        match self {
            Self::Brotli => b"br",
            Self::Zstd => b"zstd",
        }
    }
}

/// The client's weight for a coding, in thousandths; 0 if it does not accept it. Parts of other
/// responses are not compressed. `*` does not count, as for gzip.
pub fn weight(request: &Request, coding: Coding) -> u16 {
    if request.is_nested() {
        return 0;
    }
    let field = request.head().header(Known::AcceptEncoding).unwrap_or_default();
    weight_in(field, coding.name())
}

/// RFC 9110 section 12.5.3. Malformed members are not accepted.
fn weight_in(field: &[u8], name: &[u8]) -> u16 {
    for member in field.split(|&byte| byte == b',') {
        let mut parts = member.split(|&byte| byte == b';').map(<[u8]>::trim_ascii);
        if !parts.next().is_some_and(|coding| coding.eq_ignore_ascii_case(name)) {
            continue;
        }
        return match (parts.next(), parts.next()) {
            (None, _) => 1000,
            (Some([b'q' | b'Q', b'=', weight @ ..]), None) => thousandths(weight).unwrap_or(0),
            _ => 0,
        };
    }
    0
}

/// A weight of `0` to `1.000`.
fn thousandths(text: &[u8]) -> Option<u16> {
    let (whole, digits) = match text {
        [whole @ (b'0' | b'1')] => (whole, &[][..]),
        [whole @ (b'0' | b'1'), b'.', digits @ ..] if digits.len() <= 3 => (whole, digits),
        _ => return None,
    };
    let mut value = u16::from(whole - b'0');
    for n in 0..3 {
        let digit = *digits.get(n).unwrap_or(&b'0');
        if !digit.is_ascii_digit() {
            return None;
        }
        value = value * 10 + u16::from(digit - b'0');
    }
    (value <= 1000).then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accept_encoding_is_read_as_nginx_does() {
        for yes in [
            "gzip",
            "GZip",
            "gzip, deflate",
            "deflate,gzip",
            "deflate, gzip",
            "gzip;q=1",
            "gzip; q=0.5",
            "gzip ;Q=0.001, br",
            "gzip;q=1.000",
            "gzip;q=0.,gzip;q=1, gzip;q=1".get(11..).unwrap(),
            "x-gzip, gzip",
            "gzip;",
        ] {
            assert!(accepts_gzip(yes.as_bytes()), "{yes}");
        }
        for no in [
            "",
            "gz",
            "*",
            "identity",
            "x-gzip",
            "gzipped",
            "gzip;q=0",
            "gzip;q=0.000",
            "gzip; q=0, gzip",
            "gzip;q=1.001",
            "gzip;q=2",
            "gzip;q=",
            "gzip;q=0.0001",
            "gzip;q=0.x",
            "gzip;x=1",
            "deflate;q=1",
        ] {
            assert!(!accepts_gzip(no.as_bytes()), "{no}");
        }
    }

    #[test]
    fn parameters_of_cache_control() {
        let mut head = Head::default();
        head.add("Cache-Control", "max-age=5, Private=\"x\"");
        head.add("cache-control", "no-store");
        for (name, has) in [("private", true), ("no-store", true), ("no-cache", false)] {
            assert_eq!(has_cache_control(&head, name), has, "{name}");
        }
    }

    #[test]
    fn weights() {
        for (field, expected) in [
            ("br", 1000),
            ("gzip, BR", 1000),
            ("gzip,br;q=0.5", 500),
            ("br; q=1.000, gzip", 1000),
            ("br;q=0.001", 1),
            ("br;q=0", 0),
            ("br;q=0.000", 0),
            ("br;q=1.001", 0),
            ("br;q=2", 0),
            ("br;q=0.x", 0),
            ("br;q=0.1234", 0),
            ("br;x=1", 0),
            ("brotli", 0),
            ("xbr", 0),
            ("*", 0),
            ("", 0),
            ("gzip, deflate, br, zstd", 1000),
        ] {
            assert_eq!(weight_in(field.as_bytes(), b"br"), expected, "{field}");
        }
    }
}
