//! Decides whether a client receives Brotli or Zstandard.
//!
//! Called by the filter and the handler of these codings. Compresses nothing itself.

use std::rc::Rc;

use nowait_message::Known;

use crate::gzip::Counts;
use crate::request::Request;
use crate::slots::Key;
use crate::variables::Builtin;
use crate::variables::core::builtins;

/// A coding of content besides gzip.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Coding {
    /// RFC 7932.
    Brotli,
    /// RFC 8878.
    Zstd,
}

/// Compression of a response.
#[derive(Debug)]
pub struct Coded {
    /// The coding used.
    pub coding: Coding,
    /// Lengths before and after.
    pub counts: Rc<Counts>,
}

/// The compression of the body, if any.
pub(crate) static CODED: Key<Option<Coded>> = Key::new();

/// The variables of these codings.
pub const BUILTINS: &[Builtin] = builtins! {
    /// Compression ratio achieved by `brotli`: original size divided by compressed size.
    "brotli_ratio" => |r, out| ratio(r, Coding::Brotli, out);
    /// Compression ratio achieved by `zstd`: original size divided by compressed size.
    "zstd_ratio" => |r, out| ratio(r, Coding::Zstd, out);
};

fn ratio(request: &Request, coding: Coding, out: &mut Vec<u8>) -> bool {
    let coded = request.state.get(&CODED).and_then(Option::as_ref);
    let coded = coded.filter(|coded| coded.coding == coding);
    coded.is_some_and(|coded| coded.counts.append_ratio(out))
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
    let field = request.head.header(Known::AcceptEncoding).unwrap_or_default();
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
