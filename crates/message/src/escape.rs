//! Escaping: URIs and HTML, byte for byte as nginx writes them. JSON and log lines:
//! `nowait_front::log::escape`.
//!
//! Pure functions over bytes. Each `push_*` appends to a buffer that the caller reuses; [`uri`]
//! borrows its input when nothing needs escaping, which is the usual case.

use std::borrow::Cow;

use crate::scan::hex;

/// The sets of bytes that [`uri`] escapes. All sets include control bytes; all but `Memcached`
/// include bytes from 0x80.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Set {
    /// A path: space and `"#%?<>\^{|}` and the backquote.
    Uri,
    /// A query argument: as `Uri`, plus `&+;`.
    Args,
    /// One component: all bytes but letters, digits, `-._~`.
    Component,
    /// A URI inside an HTML attribute: as `Uri` without `?`, plus the apostrophe.
    Html,
    /// A URI inside a `Refresh`: existing escapes are left alone.
    Refresh,
    /// A memcached key: control bytes, space and `%`.
    Memcached,
    /// An SMTP xtext (RFC 3461): `+XX` of space, `+`, `=`.
    MailXtext,
    /// What a URI never has, and nothing that it may have.
    Foreign,
}

const fn table(also: &[u8], high: bool) -> [bool; 256] {
    let mut table = [false; 256];
    let mut byte = 0;
    while byte < 256 {
        table[byte] = byte < 0x20 || (high && byte >= 0x7f);
        byte += 1;
    }
    let mut at = 0;
    while at < also.len() {
        table[also[at] as usize] = true;
        at += 1;
    }
    table
}

static URI: [bool; 256] = table(b" \"#%?<>\\^`{|}", true);
static ARGS: [bool; 256] = table(b" \"#%&+;?<>\\^`{|}", true);
static COMPONENT: [bool; 256] = table(b" !\"#$%&'()*+,/:;<=>?@[\\]^`{|}", true);
static HTML: [bool; 256] = table(b" \"#%'<>\\^`{|}", true);
// nginx escapes `~` here and leaves `}`.
static REFRESH: [bool; 256] = table(b" \"'<>\\^`{|~", true);
static MEMCACHED: [bool; 256] = table(b" %", false);
static MAIL_XTEXT: [bool; 256] = table(b" +=", true);
static FOREIGN: [bool; 256] = table(b" ", true);

impl Set {
    fn table(self) -> &'static [bool; 256] {
        match self {
            Set::Uri => &URI,
            Set::Args => &ARGS,
            Set::Component => &COMPONENT,
            Set::Html => &HTML,
            Set::Refresh => &REFRESH,
            Set::Memcached => &MEMCACHED,
            Set::MailXtext => &MAIL_XTEXT,
            Set::Foreign => &FOREIGN,
        }
    }
}

const HEX: &[u8; 16] = b"0123456789ABCDEF";

/// `input` with the bytes of `set` as `%XX` in uppercase.
pub fn uri(set: Set, input: &[u8]) -> Cow<'_, [u8]> {
    let table = set.table();
    if !input.iter().any(|&byte| table[byte as usize]) {
        return Cow::Borrowed(input);
    }
    let mut out = Vec::with_capacity(input.len() + 16);
    push_uri(&mut out, set, input);
    Cow::Owned(out)
}

/// Appends [`uri`] to `out`.
pub fn push_uri(out: &mut Vec<u8>, set: Set, input: &[u8]) {
    let table = set.table();
    let prefix = if set == Set::MailXtext { b'+' } else { b'%' };
    // Most bytes stay: copy runs.
    let mut rest = input;
    while let Some(at) = rest.iter().position(|&byte| table[byte as usize]) {
        let byte = rest[at];
        out.extend_from_slice(&rest[..at]);
        out.extend_from_slice(&[prefix, HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]]);
        rest = &rest[at + 1..];
    }
    out.extend_from_slice(rest);
}

/// Limits of [`unescape`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unescape {
    /// Everything is decoded.
    All,
    /// Decoding ends after a question mark, plain or decoded.
    Uri,
    /// As `Uri`, and only escapes of printable ASCII above `%` are decoded, so that the result
    /// stays a URI: for redirects.
    Redirect,
}

/// Decodes `%XX` and returns the result with the number of bytes of `input` read.
///
/// As in nginx, a `%` that is not followed by two hexadecimal digits is dropped, together with the
/// one digit, if there is one.
pub fn unescape(input: &[u8], mode: Unescape) -> (Vec<u8>, usize) {
    let mut out = Vec::with_capacity(input.len());
    let mut at = 0;
    while at < input.len() {
        let byte = input[at];
        at += 1;
        if byte != b'%' {
            out.push(byte);
            if byte == b'?' && mode != Unescape::All {
                break;
            }
            continue;
        }
        let Some(&first) = input.get(at) else { break };
        at += 1;
        let Some(high) = hex(first) else {
            out.push(first);
            continue;
        };
        let Some(&second) = input.get(at) else { break };
        at += 1;
        let Some(low) = hex(second) else { continue };
        let decoded = high << 4 | low;
        if decoded == b'?' && mode != Unescape::All {
            out.push(decoded);
            break;
        }
        if mode == Unescape::Redirect && !(decoded > b'%' && decoded < 0x7f) {
            out.extend_from_slice(&[b'%', first, second]);
        } else {
            out.push(decoded);
        }
    }
    (out, at)
}

/// Appends `input` with `<`, `>`, `&` and `"` as character references.
pub fn push_html(out: &mut Vec<u8>, input: &[u8]) {
    let mut rest = input;
    while let Some(at) = rest.iter().position(|byte| matches!(byte, b'<' | b'>' | b'&' | b'"')) {
        out.extend_from_slice(&rest[..at]);
        out.extend_from_slice(match rest[at] {
            b'<' => b"&lt;",
            b'>' => b"&gt;",
            b'&' => b"&amp;",
            _ => b"&quot;",
        });
        rest = &rest[at + 1..];
    }
    out.extend_from_slice(rest);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(set: Set) -> String {
        (0x20..0x7fu8).filter(|&b| set.table()[b as usize]).map(char::from).collect()
    }

    #[test]
    fn sets() {
        // In the order of ASCII.
        assert_eq!(all(Set::Uri), " \"#%<>?\\^`{|}");
        assert_eq!(all(Set::Args), " \"#%&+;<>?\\^`{|}");
        assert_eq!(all(Set::Html), " \"#%'<>\\^`{|}");
        assert_eq!(all(Set::Refresh), " \"'<>\\^`{|~");
        assert_eq!(all(Set::Memcached), " %");
        assert_eq!(all(Set::MailXtext), " +=");
        for byte in 0..=255u8 {
            let unreserved = byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
            assert_eq!(COMPONENT[byte as usize], !unreserved);
            assert_eq!(URI[byte as usize] && byte >= 0x7f, byte >= 0x7f);
            assert!(!MEMCACHED[byte as usize] || byte < 0x7f);
        }
    }

    #[test]
    fn escaping() {
        assert!(matches!(uri(Set::Uri, b"/plain"), Cow::Borrowed(_)));
        assert_eq!(&*uri(Set::Uri, b"/a b?\xff\n"), b"/a%20b%3F%FF%0A");
        assert_eq!(&*uri(Set::MailXtext, b"a+b"), b"a+2Bb");
    }

    #[test]
    fn unescaping() {
        let check = |input: &[u8], mode| {
            let (out, read) = unescape(input, mode);
            (String::from_utf8(out).unwrap(), read)
        };
        assert_eq!(check(b"a%20%2Fb%3fc?d", Unescape::All), ("a /b?c?d".into(), 14));
        assert_eq!(check(b"a%20b%3fc", Unescape::Uri), ("a b?".into(), 8));
        assert_eq!(check(b"a?%20", Unescape::Uri), ("a?".into(), 2));
        assert_eq!(check(b"a%20%41%2541", Unescape::Redirect), ("a%20A%2541".into(), 12));
        assert_eq!(check(b"%zz%4zb%4", Unescape::All), ("zzb".into(), 9));
        assert_eq!(check(b"%", Unescape::All), ("".into(), 1));
    }

    #[test]
    fn unescape_inverts_escape() {
        let every: Vec<u8> = (0..=255).collect();
        for set in [Set::Uri, Set::Args, Set::Component, Set::Html, Set::Memcached] {
            let escaped = uri(set, &every);
            assert_eq!(unescape(&escaped, Unescape::All), (every.clone(), escaped.len()));
        }
    }

    #[test]
    fn html() {
        let run = |push: fn(&mut Vec<u8>, &[u8]), input: &[u8]| {
            let mut out = Vec::new();
            push(&mut out, input);
            String::from_utf8(out).unwrap()
        };
        assert_eq!(run(push_html, b"<a href=\"x\">'&"), "&lt;a href=&quot;x&quot;&gt;'&amp;");
    }
}
