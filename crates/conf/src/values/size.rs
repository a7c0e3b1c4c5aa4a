//! Sizes in bytes with the units `k`, `m`, and for offsets `g`.

use std::fmt;

use crate::arity::{self, Arity};
use crate::cx::Cx;
use crate::diagnostic::Diagnostic;
use crate::field::{Setting, Value, ValueError};
use crate::tree::Node;
use crate::values::number;

/// A size in bytes: digits with an optional `k` or `m` (nginx: `ngx_parse_size`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Size(pub u64);

/// A size or position in bytes: as [`Size`], and `g` (nginx: `ngx_parse_offset`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Offset(pub u64);

fn parse(text: &[u8], giga: bool) -> Option<u64> {
    let (digits, shift) = match text.split_last()? {
        (b'k' | b'K', digits) => (digits, 10),
        (b'm' | b'M', digits) => (digits, 20),
        (b'g' | b'G', digits) if giga => (digits, 30),
        _ => (text, 0),
    };
    let value = number(digits)?;
    (value <= i64::MAX as u64 >> shift).then_some(value << shift)
}

impl Size {
    /// Bytes as an index type.
    pub fn bytes(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for Size {
    /// With the largest unit that leaves no rest: `8k`, `1m`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            0 => f.write_str("0"),
            bytes if bytes.is_multiple_of(1 << 20) => write!(f, "{}m", bytes >> 20),
            bytes if bytes.is_multiple_of(1 << 10) => write!(f, "{}k", bytes >> 10),
            bytes => write!(f, "{bytes}"),
        }
    }
}

impl Value for Size {
    fn from_word(text: &[u8]) -> Result<Size, ValueError> {
        parse(text, false).map(Size).ok_or_else(|| {
            let invalid = ValueError::value().expected("a size such as 512, 8k or 1m");
            match parse(text, true) {
                Some(bytes) => {
                    invalid.hint(format!("this directive knows no \"g\": write {}m", bytes >> 20))
                }
                None => invalid,
            }
        })
    }
}

impl Value for Offset {
    fn from_word(text: &[u8]) -> Result<Offset, ValueError> {
        let invalid = || ValueError::value().expected("a size such as 512, 8k, 1m or 2g");
        parse(text, true).map(Offset).ok_or_else(invalid)
    }
}

/// A number of buffers and the size of each: `4 8k`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Buffers {
    pub count: usize,
    /// Bytes of one buffer.
    pub size: Size,
}

impl Setting for Buffers {
    const ARITY: Arity = arity::exactly(2);

    fn parse(node: &Node, _cx: &mut Cx<'_>) -> Result<Buffers, Diagnostic> {
        let [count, size] = node.args.as_slice() else {
            return Err(node.arity_error());
        };
        let invalid = |expected: &'static str| ValueError::value().expected(expected);
        let number = number(&count.text).filter(|&n| n > 0);
        let number = number.ok_or_else(|| invalid("a number of buffers").in_node(node, count))?;
        let bytes = Size::from_word(&size.text).map_err(|e| e.in_node(node, size))?;
        if bytes.0 == 0 {
            return Err(invalid("a size above 0").in_node(node, size));
        }
        Ok(Buffers { count: number as usize, size: bytes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        let size = |text: &str| Size::from_word(text.as_bytes()).map(|s| s.0).ok();
        assert_eq!(size("0"), Some(0));
        assert_eq!(size("8k"), Some(8192));
        assert_eq!(size("8K"), Some(8192));
        assert_eq!(size("1m"), Some(1 << 20));
        assert_eq!(size("9007199254740991k"), Some(9_007_199_254_740_991 << 10));
        for wrong in ["", "k", "1g", "1kk", "-1", "1 k", "9007199254740992k", "1b"] {
            assert_eq!(size(wrong), None, "{wrong}");
        }
        for text in ["0", "512", "1000", "8k", "1025k", "1m", "2048m"] {
            assert_eq!(Size::from_word(text.as_bytes()).unwrap().to_string(), text);
        }
        assert_eq!(Offset::from_word(b"2g"), Ok(Offset(2 << 30)));
        assert!(Offset::from_word(b"9223372036854775807g").is_err());
    }
}
