//! Decides which clients receive compressed responses. nginx: `ngx_http_gzip_ok`.
//!
//! Called by the filters and the handler of compression, which keep their findings about a request
//! in its [`State`]. Compresses nothing itself.

use std::cell::Cell;
use std::rc::Rc;

use nowait_h1::Version;
use nowait_message::Known;

use crate::conf::gzip::{GzipConf, GzipProxied, HttpVersion};
use crate::log::Level;
use crate::request::Request;
use crate::response::Head;
use crate::slots::Key;
use crate::variables::Builtin;
use crate::variables::core::builtins;
use nowait_message::http_date;

/// State of compression for a request and its response.
#[derive(Debug, Default)]
pub struct State {
    /// Whether the client accepts compressed responses, once determined.
    accepted: Option<bool>,
    /// The response depends on `Accept-Encoding`.
    pub vary: bool,
    /// The response is compressed here.
    pub counts: Option<Rc<Counts>>,
}

/// Lengths of a compressed text; zero before it is complete.
#[derive(Debug, Default)]
pub struct Counts {
    /// Length of the text by its `Content-Length`; other filters may have changed it since.
    pub expected: Option<u64>,
    /// Bytes of the text.
    pub taken: Cell<u64>,
    /// Bytes it was compressed to.
    pub made: Cell<u64>,
}

/// The variables of this module.
pub const BUILTINS: &[Builtin] = builtins! {
    /// Compression ratio achieved by `gzip`: original size divided by compressed size.
    "gzip_ratio" => |r, out| {
        let counts = r.state.get(&STATE).and_then(|state| state.counts.as_ref());
        counts.is_some_and(|counts| counts.append_ratio(out))
    };
};

impl Counts {
    /// State before anything was compressed.
    pub fn of(expected: Option<u64>) -> Self {
        Self { expected, ..Self::default() }
    }

    /// Appends the ratio with two decimals; false if there is none.
    pub(crate) fn append_ratio(&self, out: &mut Vec<u8>) -> bool {
        let (taken, made) = (u128::from(self.taken.get()), u128::from(self.made.get()));
        let Some(thousandths) = (taken * 1000).checked_div(made) else { return false };
        let hundredths = (thousandths + 5) / 10;
        let text = format!("{}.{:02}", hundredths / 100, hundredths % 100);
        out.extend_from_slice(text.as_bytes());
        true
    }
}

static STATE: Key<State> = Key::new();

/// The state of a request.
pub(crate) fn state(request: &mut Request) -> &mut State {
    request.state.of_mut(&STATE)
}

/// Whether the client accepts compressed responses; determined once per request, as in nginx.
pub fn is_accepted(request: &mut Request, head: &Head) -> bool {
    if let Some(accepted) = request.state.get(&STATE).and_then(|state| state.accepted) {
        return accepted;
    }
    let accepted = test(request, head);
    state(request).accepted = Some(accepted);
    accepted
}

fn test(request: &Request, head: &Head) -> bool {
    let conf = &request.location().gzip;
    let lowest = match conf.gzip_http_version {
        HttpVersion::Http10 => Version::Http10,
        HttpVersion::Http11 => Version::Http11,
    };
    if request.is_nested() {
        // A part of another response, which is compressed as a whole.
        return false;
    }
    let Some(field) = request.head.header(Known::AcceptEncoding) else { return false };
    if !accepts_gzip(field) || request.head.version() < lowest {
        return false;
    }
    let disable = conf.gzip_disable.as_ref();
    if disable.is_some_and(|disable| disable.msie6) && request.is_msie6() {
        return false;
    }
    if request.head.fields().named(b"via").next().is_some() && !may_for_proxy(request, head, conf) {
        return false;
    }
    let agents = disable.map_or(&[][..], |disable| &disable.agents);
    let Some(agent) = request.head.header(Known::UserAgent) else { return true };
    !agents.iter().any(|regex| match regex.is_match(agent) {
        Ok(matches) => matches,
        Err(error) => {
            request.log(Level::Alert, format_args!("{error}"));
            true
        }
    })
}

/// `gzip_proxied`
fn may_for_proxy(request: &Request, head: &Head, conf: &GzipConf) -> bool {
    let when = |flag| conf.gzip_proxied.contains(flag);
    if when(GzipProxied::OFF) {
        return false;
    }
    if when(GzipProxied::ANY)
        || (when(GzipProxied::AUTH) && request.head.header(Known::Authorization).is_some())
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
    fn ratios_are_rounded() {
        let text = |taken, made| {
            let counts = Counts { taken: Cell::new(taken), made: Cell::new(made), expected: None };
            let mut out = Vec::new();
            counts.append_ratio(&mut out).then(|| String::from_utf8(out).unwrap())
        };
        assert_eq!(text(0, 0), None);
        assert_eq!(text(0, 20).as_deref(), Some("0.00"));
        assert_eq!(text(2125, 1000).as_deref(), Some("2.13"));
        assert_eq!(text(1999, 1000).as_deref(), Some("2.00"));
        assert_eq!(text(u64::MAX, 1).as_deref(), Some("18446744073709551615.00"));
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
}
