//! Targeted cache control (RFC 9213): `CDN-Cache-Control`, which replaces `Cache-Control` and
//! `Expires` for the operator's own caches.
//!
//! The field is a dictionary of structured fields (RFC 9651). Only the parts that cache directives
//! need are read here: keys, and values that are integers, strings, tokens or flags. If any part
//! does not parse, the whole field is ignored. Used by [`facts`](crate::facts).

use crate::control::{CacheControl, Cow};

/// The fields that target this cache, in order of precedence: the target list of RFC 9213 section
/// 2.1.
pub const TARGETS: [&[u8]; 1] = [b"cdn-cache-control"];

/// Reads the lines of a targeted field; `None` if they are empty or malformed.
///
/// RFC 9213 section 2.2: "If the targeted field […] is empty, or […] cannot be parsed, the cache
/// MUST […] ignore" it.
pub fn parse<'a>(lines: impl Iterator<Item = &'a [u8]>) -> Option<CacheControl> {
    let mut control = CacheControl::default();
    let mut members = 0;
    for line in lines {
        let mut reader = FieldReader(line.trim_ascii());
        while !reader.0.is_empty() {
            let (key, value) = reader.member()?;
            // A flag that is false counts as absent.
            if let Some(value) = value {
                control.take(key, value.text_for(key));
            }
            members += 1;
            reader.end_of_member()?;
        }
    }
    (members > 0).then_some(control)
}

/// Directives whose values are integers.
const SECONDS: [&[u8]; 4] = [b"max-age", b"s-maxage", b"stale-while-revalidate", b"stale-if-error"];

/// The value of a member.
enum Item<'a> {
    Flag,
    /// A number or a token.
    Bare(Cow<'a>),
    String(Cow<'a>),
}

impl<'a> Item<'a> {
    /// The value of a directive.
    ///
    /// RFC 9213 section 2.1: "the max-age directive has an integer value"; a string is not an
    /// integer, regardless of its contents.
    fn text_for(self, key: &[u8]) -> Option<Cow<'a>> {
        match self {
            Self::Flag => None,
            Self::String(_) if SECONDS.contains(&key) => Some(Cow::Borrowed(b"")),
            Self::Bare(text) | Self::String(text) => Some(text),
        }
    }
}

struct FieldReader<'a>(&'a [u8]);

impl<'a> FieldReader<'a> {
    /// A key and its value; the value is `None` for `?0`.
    fn member(&mut self) -> Option<(&'a [u8], Option<Item<'a>>)> {
        let key = self.key()?;
        let value = match self.0.strip_prefix(b"=") {
            None => Some(Item::Flag),
            Some(rest) => {
                self.0 = rest;
                self.item()?
            }
        };
        self.parameters()?;
        Some((key, value))
    }

    /// RFC 9651 section 3.1.2: keys are lower case.
    fn key(&mut self) -> Option<&'a [u8]> {
        let first = *self.0.first()?;
        if !(first.is_ascii_lowercase() || first == b'*') {
            return None;
        }
        let is_key = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b"_-.*".contains(&b);
        Some(self.take_while(is_key))
    }

    fn item(&mut self) -> Option<Option<Item<'a>>> {
        let text = match *self.0.first()? {
            b'?' => {
                let flag = match self.0.get(1)? {
                    b'0' => None,
                    b'1' => Some(Item::Flag),
                    _ => return None,
                };
                self.0 = &self.0[2..];
                return Some(flag);
            }
            b'"' => return Some(Some(Item::String(self.string()?))),
            b'-' | b'0'..=b'9' => self.take_while(|b| b.is_ascii_digit() || b == b'-' || b == b'.'),
            b'*' | b'A'..=b'Z' | b'a'..=b'z' => {
                let is_token =
                    |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~:/".contains(&b);
                self.take_while(is_token)
            }
            // Inner lists, byte sequences, dates: not used by any directive.
            _ => return None,
        };
        Some(Some(Item::Bare(Cow::Borrowed(text))))
    }

    fn string(&mut self) -> Option<Cow<'a>> {
        let mut value = Vec::new();
        let mut bytes = self.0.iter().enumerate().skip(1);
        while let Some((at, &byte)) = bytes.next() {
            match byte {
                b'"' => {
                    self.0 = &self.0[at + 1..];
                    return Some(Cow::Owned(value));
                }
                b'\\' => match bytes.next()?.1 {
                    escaped @ (b'"' | b'\\') => value.push(*escaped),
                    _ => return None,
                },
                0x20..=0x7e => value.push(byte),
                _ => return None,
            }
        }
        None
    }

    /// Parameters of a member are allowed but ignored.
    fn parameters(&mut self) -> Option<()> {
        while let Some(rest) = self.0.strip_prefix(b";") {
            self.0 = rest.trim_ascii_start();
            self.key()?;
            if let Some(rest) = self.0.strip_prefix(b"=") {
                self.0 = rest;
                self.item()?;
            }
        }
        Some(())
    }

    /// A comma and another member, or the end.
    fn end_of_member(&mut self) -> Option<()> {
        self.0 = self.0.trim_ascii_start();
        if self.0.is_empty() {
            return Some(());
        }
        self.0 = self.0.strip_prefix(b",")?.trim_ascii_start();
        (!self.0.is_empty()).then_some(())
    }

    fn take_while(&mut self, accepts: impl Fn(u8) -> bool) -> &'a [u8] {
        let end = self.0.iter().position(|&b| !accepts(b)).unwrap_or(self.0.len());
        let (taken, rest) = self.0.split_at(end);
        self.0 = rest;
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Option<CacheControl> {
        super::parse([line.as_bytes()].into_iter())
    }

    #[test]
    fn dictionaries() {
        let control = parse("max-age=60, must-revalidate, stale-if-error=5;x=\"y\", a=?0").unwrap();
        assert_eq!(control.max_age, Some(60));
        assert_eq!(control.stale_if_error, Some(5));
        assert!(control.must_revalidate);
        assert!(!parse("no-store=?0, max-age=1").unwrap().no_store);
        assert!(parse("no-store=?1").unwrap().no_store);
        assert_eq!(parse("private=\"x-a\"").unwrap().private.names().len(), 1);
        assert!(parse("max-age=1.5").unwrap().invalid);
        let control = parse("max-age=\"10\", stale-if-error=\"10\"").unwrap();
        assert!(control.invalid, "a string is no integer");
        assert_eq!((control.max_age, control.stale_if_error), (None, None));
    }

    #[test]
    fn malformed_fields_are_ignored() {
        for line in [
            "",
            " ",
            "Max-Age=60",
            "max-age=60,",
            "a=\"",
            "a=(1 2)",
            "a b",
            "a=;",
            ",a",
            "a=\"\\x\"",
        ] {
            assert!(parse(line).is_none(), "{line}");
        }
    }
}
