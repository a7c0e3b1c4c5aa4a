//! From the raw path and query of a request target to the path that locations see
//! (nginx: `$uri`, `merge_slashes`).
//!
//! The head parser runs [`Shape::scan`] while it looks for the end of the target, so that a plain
//! path needs no second pass: [`normalize_scanned`] then borrows it. Others are decoded once:
//! `%XX`, `.`, `..`, repeated slashes, `#fragment`. The result never contains NUL, a `.` or `..`
//! segment; decoding happens before dots and slashes are judged, so no encoding gets around that,
//! and what was decoded is never decoded again.

use std::borrow::Cow;

use crate::scan::{find_query_break, hex};

/// The reason why a target is rejected: 400, "client sent invalid request".
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UriError {
    /// It begins with neither `/` nor `?`, or contains a control character or space.
    Malformed,
    /// `%` without two hexadecimal digits.
    BadEscape,
    /// `%00`.
    Nul,
    /// `..` above the root.
    AboveRoot,
}

impl std::fmt::Display for UriError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("client sent invalid request")
    }
}

impl std::error::Error for UriError {}

/// A normalised target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Normalized<'a> {
    /// The decoded path: `$uri`. Begins with `/`.
    pub path: Cow<'a, [u8]>,
    /// The raw query without `?` and fragment, `$args`; `None` without `?`.
    pub args: Option<&'a [u8]>,
}

/// Result of scanning a raw target; positions count from its first byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Shape {
    /// `/.`, `//`, `%`, `#` or no leading `/`: needs decoding.
    complex: bool,
    /// There is a `#`.
    fragment: bool,
    /// After the `?`; 0 if there is none.
    query: u32,
}

const USUAL: u8 = 0;
const SLASH: u8 = 1;
const DOT: u8 = 2;
const ESCAPE: u8 = 3;
const QUERY: u8 = 4;
const FRAGMENT: u8 = 5;
const STOP: u8 = 6;

const CLASS: [u8; 256] = {
    let mut class = [USUAL; 256];
    let mut i = 0;
    while i <= 0x20 {
        class[i] = STOP;
        i += 1;
    }
    class[0x7f] = STOP;
    class[b'/' as usize] = SLASH;
    class[b'.' as usize] = DOT;
    class[b'%' as usize] = ESCAPE;
    class[b'?' as usize] = QUERY;
    class[b'#' as usize] = FRAGMENT;
    class
};

impl Shape {
    /// Scans from the first byte, `/` or `?`, to the first space or control character, or to the
    /// end. Returns where it stopped.
    #[inline]
    pub fn scan(target: &[u8]) -> (Shape, usize) {
        let mut shape = Shape { complex: target.first() != Some(&b'/'), ..Shape::default() };
        let mut at = 0;
        let mut after_slash = false;
        loop {
            let run = at;
            while target.get(at).is_some_and(|&c| CLASS[c as usize] == USUAL) {
                at += 1;
            }
            after_slash &= at == run;
            let Some(&c) = target.get(at) else { break };
            match CLASS[c as usize] {
                SLASH if after_slash => shape.complex = true,
                SLASH => after_slash = true,
                DOT => shape.complex |= after_slash,
                ESCAPE => {
                    shape.complex = true;
                    after_slash = false;
                }
                QUERY => {
                    at += 1;
                    shape.query = at as u32;
                    at += shape.scan_query(&target[at..]);
                    break;
                }
                FRAGMENT => (shape.complex, shape.fragment) = (true, true),
                _ => break,
            }
            at += 1;
        }
        (shape, at)
    }

    /// Whether the path may have escapes.
    pub fn may_be_escaped(self) -> bool {
        self.complex
    }

    /// Whether there is a fragment, which has no place in a request (RFC 9112 section 3.2).
    pub fn has_fragment(self) -> bool {
        self.fragment
    }

    /// In the query only the end and a fragment matter.
    fn scan_query(&mut self, query: &[u8]) -> usize {
        let mut at = 0;
        while let Some(found) = find_query_break(&query[at..]) {
            at += found;
            if query[at] != b'#' {
                return at;
            }
            (self.complex, self.fragment) = (true, true);
            at += 1;
        }
        query.len()
    }
}

/// Whether targets of this scheme are what this server has: HTTP's.
pub fn is_served_scheme(scheme: &[u8]) -> bool {
    scheme.eq_ignore_ascii_case(b"http") || scheme.eq_ignore_ascii_case(b"https")
}

/// Normalises a raw target, for example that of an internal redirect or of another protocol.
pub fn normalize(raw: &[u8], merge_slashes: bool) -> Result<Normalized<'_>, UriError> {
    let (shape, end) = Shape::scan(raw);
    if end != raw.len() {
        return Err(UriError::Malformed);
    }
    normalize_scanned(raw, shape, merge_slashes)
}

/// Normalises a raw target whose [`Shape`] is known.
pub fn normalize_scanned(
    raw: &[u8],
    shape: Shape,
    merge_slashes: bool,
) -> Result<Normalized<'_>, UriError> {
    if shape.complex {
        return decode(raw, merge_slashes);
    }
    let (path, args) = match shape.query as usize {
        0 => (raw, None),
        query => (raw.get(..query - 1).unwrap_or(raw), raw.get(query..)),
    };
    Ok(Normalized { path: Cow::Borrowed(path), args })
}

/// The last bytes written by the decoder.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Last {
    Other,
    Slash,
    /// `/.`
    Dot,
    /// `/..`
    DotDot,
}

fn decode(raw: &[u8], merge_slashes: bool) -> Result<Normalized<'_>, UriError> {
    let mut out = Path { bytes: Vec::with_capacity(raw.len() + 1), last: Last::Other };
    let mut args = None;
    match raw.first() {
        Some(b'/') => {}
        // An absolute-form target without a path: `http://host?args` means `/`.
        Some(b'?') => out.bytes.push(b'/'),
        _ => return Err(UriError::Malformed),
    }

    let mut at = 0;
    while let Some(&c) = raw.get(at) {
        at += 1;
        match c {
            b'%' => {
                let high = raw.get(at).copied().and_then(hex).ok_or(UriError::BadEscape)?;
                let low = raw.get(at + 1).copied().and_then(hex).ok_or(UriError::BadEscape)?;
                at += 2;
                match high << 4 | low {
                    0 => return Err(UriError::Nul),
                    // A decoded slash or dot counts as one; a decoded `?`, `#` or `%` does not.
                    c => out.push(c, merge_slashes)?,
                }
            }
            b'?' => {
                let rest = &raw[at..];
                args = rest.split(|&c| c == b'#').next();
                break;
            }
            b'#' => break,
            c => out.push(c, merge_slashes)?,
        }
    }
    out.end_segment()?;

    Ok(Normalized { path: Cow::Owned(out.bytes), args })
}

/// A path under construction.
struct Path {
    bytes: Vec<u8>,
    last: Last,
}

impl Path {
    fn push(&mut self, c: u8, merge_slashes: bool) -> Result<(), UriError> {
        match (c, self.last) {
            (b'/', Last::Slash) if merge_slashes => {}
            (b'/', Last::Dot | Last::DotDot) => {
                self.end_segment()?;
                self.last = Last::Slash;
            }
            (b'/', _) => {
                self.bytes.push(c);
                self.last = Last::Slash;
            }
            (b'.', Last::Slash) => {
                self.bytes.push(c);
                self.last = Last::Dot;
            }
            (b'.', Last::Dot) => {
                self.bytes.push(c);
                self.last = Last::DotDot;
            }
            (_, _) => {
                self.bytes.push(c);
                self.last = Last::Other;
            }
        }
        Ok(())
    }

    /// Removes a `.` segment, or a `..` segment with the one before it.
    fn end_segment(&mut self) -> Result<(), UriError> {
        match self.last {
            Last::Other | Last::Slash => return Ok(()),
            Last::Dot => {
                self.bytes.pop();
            }
            Last::DotDot => {
                // "/a/.." ends in "/..": the parent's slash is before these three bytes.
                let parent = self.bytes.len().checked_sub(3).ok_or(UriError::AboveRoot)?;
                let slash = self.bytes[..parent].iter().rposition(|&c| c == b'/');
                self.bytes.truncate(slash.ok_or(UriError::AboveRoot)? + 1);
            }
        }
        self.last = Last::Slash;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `raw` -> path, args.
    fn check(raw: &str, merge_slashes: bool, path: &str, args: Option<&str>) {
        let n = normalize(raw.as_bytes(), merge_slashes).unwrap_or_else(|e| panic!("{raw}: {e:?}"));
        assert_eq!(String::from_utf8_lossy(&n.path), path, "{raw}");
        assert_eq!(n.args, args.map(str::as_bytes), "{raw}");
    }

    /// Like [`Shape::scan`], one byte at a time.
    fn scan_plainly(target: &[u8]) -> (Shape, usize) {
        let mut shape = Shape { complex: target.first() != Some(&b'/'), ..Shape::default() };
        let mut after_slash = false;
        for (at, &c) in target.iter().enumerate() {
            match c {
                0..=b' ' | 0x7f => return (shape, at),
                b'#' => (shape.complex, shape.fragment) = (true, true),
                _ if shape.query > 0 => {}
                b'?' => shape.query = at as u32 + 1,
                b'/' if after_slash => shape.complex = true,
                b'/' => after_slash = true,
                b'.' if after_slash => shape.complex = true,
                b'.' => {}
                b'%' => (after_slash, shape.complex) = (false, true),
                _ => after_slash = false,
            }
        }
        (shape, target.len())
    }

    #[test]
    fn runs_agree_with_a_plain_scan() {
        let alphabet = b"/.%?# a\x7f";
        for length in 0..6u32 {
            for number in 0..alphabet.len().pow(length) {
                let digit = |at| number / alphabet.len().pow(at) % alphabet.len();
                let target: Vec<u8> = (0..length).map(|at| alphabet[digit(at)]).collect();
                assert_eq!(Shape::scan(&target), scan_plainly(&target), "{target:?}");
            }
        }
        for byte in 0..=255 {
            let target = [b"/long-", &[byte][..], b"run"].concat();
            assert_eq!(Shape::scan(&target), scan_plainly(&target), "{target:?}");
        }
    }

    #[test]
    fn plain_paths_are_borrowed() {
        for raw in ["/", "/a", "/a/b.html", "/a/?x=%2e%2e/", "/a.b/c?//", "/+/~a-b_c"] {
            let n = normalize(raw.as_bytes(), true).unwrap();
            assert!(matches!(n.path, Cow::Borrowed(_)), "{raw}");
        }
        check("/a/b.html", true, "/a/b.html", None);
        check("/a.b/c?x.y=1", true, "/a.b/c", Some("x.y=1"));
        check("/a?", true, "/a", Some(""));
        check("/a.", true, "/a.", None);
        check("/a.tar.gz", true, "/a.tar.gz", None);
    }

    #[test]
    fn dots_and_slashes() {
        for (raw, path) in [
            ("/./", "/"),
            ("/.", "/"),
            ("/a/.", "/a/"),
            ("/a/..", "/"),
            ("/a/../", "/"),
            ("/a/../b", "/b"),
            ("/a/b/../../c", "/c"),
            ("/a/./b", "/a/b"),
            ("/a//b", "/a/b"),
            ("//", "/"),
            ("//a", "/a"),
            ("/a/..b", "/a/..b"),
            ("/a/.b", "/a/.b"),
            ("/...", "/..."),
            ("/.../x", "/.../x"),
            ("/a..", "/a.."),
            ("/a../b", "/a../b"),
            ("/a/%2e%2e/b", "/b"),
            ("/a/.%2E/b", "/b"),
            ("/a/%2e./b", "/b"),
            ("/a%2f..%2fb", "/b"),
            ("/a%2f%2fb", "/a/b"),
            ("/a#/../..", "/a"),
            ("/a/..#", "/"),
            ("/a/..?x", "/"),
            ("/a/.?x", "/a/"),
            ("/%25%32%65%25%32%65/b", "/%2e%2e/b"),
            ("/a%20b", "/a b"),
            ("/a%3fb?c", "/a?b"),
            ("/a%23b", "/a#b"),
            ("/%D0%b0", "/\u{430}"),
            ("/a\\..\\b", "/a\\..\\b"),
        ] {
            let n = normalize(raw.as_bytes(), true).unwrap_or_else(|e| panic!("{raw}: {e:?}"));
            assert_eq!(String::from_utf8_lossy(&n.path), path, "{raw}");
        }
    }

    #[test]
    fn slashes_kept() {
        check("/a//b.c", false, "/a//b.c", None);
        check("//", false, "//", None);
        check("//../x", false, "/x", None);
        check("/a//../x", false, "/a/x", None);
        check("/a/%2f/x", false, "/a///x", None);
    }

    #[test]
    fn args_are_what_follows_a_question_mark() {
        check("?x=1", true, "/", Some("x=1"));
        check("/%61.html?x#y?z", true, "/a.html", Some("x"));
        check("/a.b/%63", true, "/a.b/c", None);
        check("/%61.b/..", true, "/", None);
        check("/%2ehidden", true, "/.hidden", None);
        check("/.hidden.txt", true, "/.hidden.txt", None);
        check("/a%2eb", true, "/a.b", None);
        // nginx: the URI ends at the `#`, and a `?` behind it is no query.
        check("/a.b#c?", true, "/a.b", None);
        check("/a#?b", true, "/a", None);
        check("/a#b?c#d", true, "/a", None);
        check("/#?", true, "/", None);
    }

    #[test]
    fn refused() {
        for (raw, error) in [
            ("", UriError::Malformed),
            ("*", UriError::Malformed),
            ("a", UriError::Malformed),
            ("#", UriError::Malformed),
            ("%2f", UriError::Malformed),
            ("/a b", UriError::Malformed),
            ("/a\n", UriError::Malformed),
            ("/\x7f", UriError::Malformed),
            ("/%", UriError::BadEscape),
            ("/%2", UriError::BadEscape),
            ("/%2g", UriError::BadEscape),
            ("/%g2", UriError::BadEscape),
            ("/%%32e", UriError::BadEscape),
            ("/%00", UriError::Nul),
            ("/a%00.jpg", UriError::Nul),
            ("/..", UriError::AboveRoot),
            ("/../", UriError::AboveRoot),
            ("/../a", UriError::AboveRoot),
            ("/a/../../b", UriError::AboveRoot),
            ("/%2e%2e/", UriError::AboveRoot),
            ("/./..", UriError::AboveRoot),
            ("//..//..", UriError::AboveRoot),
            ("/..?x", UriError::AboveRoot),
            ("/..#", UriError::AboveRoot),
        ] {
            assert_eq!(normalize(raw.as_bytes(), true), Err(error), "{raw}");
        }
    }

    /// All strings over an alphabet that reaches every branch: the guarantees of the module header
    /// hold, and normalising a normalised path does not change it.
    #[test]
    fn exhaustive_small_targets() {
        let alphabet: [&[u8]; 7] = [b"/", b".", b"a", b"%2e", b"%2F", b"?", b"#"];
        let mut count = 0u32;
        for length in 0..=6u32 {
            for mut n in 0..alphabet.len().pow(length) {
                let mut raw = b"/".to_vec();
                for _ in 0..length {
                    raw.extend_from_slice(alphabet[n % alphabet.len()]);
                    n /= alphabet.len();
                }
                for merge_slashes in [true, false] {
                    let Ok(normal) = normalize(&raw, merge_slashes) else { continue };
                    let path = &normal.path;
                    assert_eq!(path.first(), Some(&b'/'));
                    let mut segments = path.split(|&c| c == b'/');
                    assert!(segments.all(|s| s != b"." && s != b".."), "{raw:?} -> {path:?}");
                    if merge_slashes {
                        assert!(!path.windows(2).any(|w| w == b"//"), "{raw:?} -> {path:?}");
                    }
                    let again = normalize(path, merge_slashes).unwrap();
                    assert_eq!(&again.path, path, "{raw:?}");
                    count += 1;
                }
            }
        }
        assert!(count > 10_000);
    }
}
