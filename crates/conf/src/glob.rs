//! glob(3) as `include` uses it: `*`, `?`, `[...]`, `\x`; sorted bytewise; a leading dot must be
//! matched by a dot; unreadable directories count as empty.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

/// Paths a pattern may match; more is an error.
const MATCHES_MAX: usize = 10_000;

/// Whether glob(3) treats the text as a pattern (nginx: `strpbrk(file, "*?[")`).
pub fn is_pattern(text: &[u8]) -> bool {
    text.iter().any(|b| b"*?[".contains(b))
}

/// The existing paths that match, in byte order.
pub fn glob(pattern: &[u8]) -> io::Result<Vec<PathBuf>> {
    // Candidates are texts, so that a match is spelt as the pattern is ("./x", "a//b").
    let mut found: Vec<Vec<u8>> = vec![Vec::new()];
    let mut rest = pattern;
    while !rest.is_empty() {
        let slashes = rest.iter().take_while(|&&b| b == b'/').count();
        let length = rest[slashes..].iter().take_while(|&&b| b != b'/').count();
        let (separator, part) = (&rest[..slashes], &rest[slashes..slashes + length]);
        rest = &rest[slashes + length..];
        found = extend(found, separator, part);
        if found.len() > MATCHES_MAX {
            return Err(io::Error::other(format!("more than {MATCHES_MAX} files match")));
        }
    }
    found.retain(|path| !path.is_empty() && OsStrPath(path).exists());
    found.sort();
    Ok(found.into_iter().map(|path| PathBuf::from(OsString::from_vec(path))).collect())
}

/// Every candidate with the next path component appended in all ways that match.
fn extend(found: Vec<Vec<u8>>, separator: &[u8], part: &[u8]) -> Vec<Vec<u8>> {
    let mut next = Vec::new();
    for mut base in found {
        base.extend_from_slice(separator);
        if !is_pattern(part) {
            base.extend_from_slice(&unescape(part));
            next.push(base);
            continue;
        }
        let directory: &[u8] = if base.is_empty() { b"." } else { &base };
        let Ok(entries) = std::fs::read_dir(OsStr::from_bytes(directory)) else {
            continue;
        };
        for entry in entries.flatten() {
            let name = entry.file_name();
            if matches(part, name.as_bytes()) {
                next.push([&base, name.as_bytes()].concat());
            }
        }
    }
    next
}

struct OsStrPath<'a>(&'a [u8]);

impl OsStrPath<'_> {
    /// Dangling symbolic links exist, as they do for glob(3).
    fn exists(&self) -> bool {
        std::fs::symlink_metadata(OsStr::from_bytes(self.0)).is_ok()
    }
}

fn unescape(part: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(part.len());
    let mut bytes = part.iter();
    while let Some(&b) = bytes.next() {
        out.push(if b == b'\\' { *bytes.next().unwrap_or(&b'\\') } else { b });
    }
    out
}

/// Whether one path component matches. Linear in space, and in time quadratic at worst: only the
/// last `*` is ever tried again.
fn matches(pattern: &[u8], name: &[u8]) -> bool {
    if name.first() == Some(&b'.') && pattern.first() != Some(&b'.') {
        return false;
    }
    let (mut p, mut n) = (0, 0);
    let mut retry: Option<(usize, usize)> = None;
    while n < name.len() {
        if pattern.get(p) == Some(&b'*') {
            p += 1;
            retry = Some((p, n));
            continue;
        }
        if let Some(after) = match_one(pattern, p, name[n]) {
            p = after;
            n += 1;
            continue;
        }
        let Some((star, start)) = retry else {
            return false;
        };
        retry = Some((star, start + 1));
        p = star;
        n = start + 1;
    }
    pattern[p..].iter().all(|&b| b == b'*')
}

/// Matches the element at `p` with one byte; the position after the element if it does.
fn match_one(pattern: &[u8], p: usize, byte: u8) -> Option<usize> {
    match *pattern.get(p)? {
        b'?' => Some(p + 1),
        b'\\' if p + 1 < pattern.len() => (pattern[p + 1] == byte).then_some(p + 2),
        b'[' => match bracket(&pattern[p + 1..], byte) {
            Some((true, length)) => Some(p + 1 + length),
            Some((false, _)) => None,
            None => (byte == b'[').then_some(p + 1),
        },
        literal => (literal == byte).then_some(p + 1),
    }
}

/// Whether the set that starts after `[` holds `byte`, and its length up to and with `]`; `None`
/// if it is never closed and `[` therefore means itself.
fn bracket(set: &[u8], byte: u8) -> Option<(bool, usize)> {
    let negated = matches!(set.first(), Some(b'!' | b'^'));
    let first = usize::from(negated);
    let mut at = first;
    let mut inside = false;
    loop {
        match *set.get(at)? {
            b']' if at > first => return Some((inside != negated, at + 1)),
            b'[' if set.get(at + 1) == Some(&b':') => {
                let length = set[at + 2..].windows(2).position(|w| w == b":]")?;
                inside |= class_holds(&set[at + 2..at + 2 + length], byte);
                at += length + 4;
            }
            mut low => {
                if low == b'\\' {
                    at += 1;
                    low = *set.get(at)?;
                }
                let mut high = low;
                if set.get(at + 1) == Some(&b'-') && set.get(at + 2).is_some_and(|&b| b != b']') {
                    high = set[at + 2];
                    at += 2;
                }
                inside |= (low..=high).contains(&byte);
                at += 1;
            }
        }
    }
}

fn class_holds(class: &[u8], byte: u8) -> bool {
    match class {
        b"alpha" => byte.is_ascii_alphabetic(),
        b"digit" => byte.is_ascii_digit(),
        b"alnum" => byte.is_ascii_alphanumeric(),
        b"lower" => byte.is_ascii_lowercase(),
        b"upper" => byte.is_ascii_uppercase(),
        b"punct" => byte.is_ascii_punctuation(),
        b"space" => byte.is_ascii_whitespace(),
        b"xdigit" => byte.is_ascii_hexdigit(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn components() {
        let yes: &[(&str, &str)] = &[
            ("*.conf", "a.conf"),
            ("*", "a"),
            ("a*b*c", "aXbYbZc"),
            ("?.conf", "x.conf"),
            ("[a-c]x", "bx"),
            ("[!a-c]x", "dx"),
            ("[]]x", "]x"),
            ("[[:digit:]]*", "7up"),
            ("\\*", "*"),
            (".*", ".hidden"),
            ("[", "["),
        ];
        for (pattern, name) in yes {
            assert!(matches(pattern.as_bytes(), name.as_bytes()), "{pattern} {name}");
        }
        let no: &[(&str, &str)] = &[
            ("*.conf", "a.config"),
            ("*", ".hidden"),
            ("?hidden", ".hidden"),
            ("[a-c]x", "dx"),
            ("[^a-c]x", "ax"),
            ("a", "ab"),
            ("ab", "a"),
            ("\\*", "x"),
        ];
        for (pattern, name) in no {
            assert!(!matches(pattern.as_bytes(), name.as_bytes()), "{pattern} {name}");
        }
    }

    #[test]
    fn walks_directories_in_order() {
        let root = std::env::temp_dir().join(format!("nowait-glob-{}", std::process::id()));
        std::fs::create_dir_all(root.join("b")).unwrap();
        std::fs::create_dir_all(root.join("a")).unwrap();
        for name in ["b/2.conf", "b/10.conf", "a/1.conf", "a/.x.conf", "a/1.txt"] {
            std::fs::write(root.join(name), "").unwrap();
        }
        let list = |pattern: &str| -> Vec<String> {
            let full = format!("{}/{pattern}", root.display());
            let strip = format!("{}/", root.display());
            let found = glob(full.as_bytes()).unwrap();
            found.iter().map(|p| p.to_str().unwrap().replace(&strip, "")).collect()
        };
        assert_eq!(list("*/*.conf"), ["a/1.conf", "b/10.conf", "b/2.conf"]);
        assert_eq!(list("[b]/1*.conf"), ["b/10.conf"]);
        assert_eq!(list("*/1.conf"), ["a/1.conf"]);
        assert_eq!(list("c/*"), Vec::<String>::new());
        std::fs::remove_dir_all(&root).unwrap();
    }
}
