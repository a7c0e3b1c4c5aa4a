//! Conversion of text from one charset to another. nginx: `ngx_http_charset_filter_module`.
//!
//! Used by the charset filter. Pure: bytes in, bytes out; an incomplete character at the end of a piece
//! is kept for the next one.

use std::collections::BTreeMap;

/// Replaces characters that the target charset lacks.
const UNKNOWN: u8 = b'?';

/// A conversion from one charset to another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Conversion {
    /// Byte by byte: the length is unchanged.
    Bytes(Box<[u8; 256]>),
    /// Each byte becomes a character of UTF-8.
    ToUtf8(Box<[Box<[u8]>]>),
    /// Each character of UTF-8 becomes a byte, or a numeric character reference of HTML.
    FromUtf8(BTreeMap<char, u8>),
}

/// One `charset_map`, in both directions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Map {
    /// Charset of the left column.
    pub from: Box<[u8]>,
    /// Charset of the right column.
    pub to: Box<[u8]>,
    /// From left to right.
    pub there: Conversion,
    /// From right to left.
    pub back: Conversion,
}

/// All maps of a configuration.
#[derive(Debug, Clone, Default)]
pub struct Maps(pub Vec<Map>);

impl Maps {
    /// The conversion from one charset to another.
    pub fn conversion(&self, from: &[u8], to: &[u8]) -> Option<&Conversion> {
        let same = |a: &[u8], b: &[u8]| a.eq_ignore_ascii_case(b);
        self.0.iter().find_map(|map| {
            if same(&map.from, from) && same(&map.to, to) {
                Some(&map.there)
            } else if same(&map.to, from) && same(&map.from, to) {
                Some(&map.back)
            } else {
                None
            }
        })
    }
}

impl Map {
    /// A map of bytes to bytes that leaves ASCII unchanged.
    pub fn of_bytes(from: &[u8], to: &[u8], pairs: &[(u8, u8)]) -> Self {
        let mut there = Box::new([UNKNOWN; 256]);
        for (byte, ascii) in there[..128].iter_mut().zip(0..) {
            *byte = ascii;
        }
        let mut back = there.clone();
        for &(a, b) in pairs {
            there[usize::from(a)] = b;
            back[usize::from(b)] = a;
        }
        Self {
            from: from.into(),
            to: to.into(),
            there: Conversion::Bytes(there),
            back: Conversion::Bytes(back),
        }
    }

    /// A map of bytes to characters that leaves ASCII unchanged.
    pub fn of_characters(from: &[u8], to: &[u8], pairs: &[(u8, Box<[u8]>)]) -> Self {
        let mut there: Vec<Box<[u8]>> =
            (0..=255u8).map(|b| [if b < 128 { b } else { UNKNOWN }].into()).collect();
        let mut back = BTreeMap::new();
        for (byte, text) in pairs {
            there[usize::from(*byte)] = text.clone();
            let character = std::str::from_utf8(text).ok().and_then(|text| text.chars().next());
            back.extend(character.map(|character| (character, *byte)));
        }
        Self {
            from: from.into(),
            to: to.into(),
            there: Conversion::ToUtf8(there.into()),
            back: Conversion::FromUtf8(back),
        }
    }
}

impl Conversion {
    /// Whether conversion preserves the length of a text.
    pub fn keeps_length(&self) -> bool {
        matches!(self, Self::Bytes(_))
    }

    /// Converts a piece of a text. `rest` holds the beginning of a character between two pieces.
    pub fn convert(&self, piece: &[u8], rest: &mut Vec<u8>) -> Vec<u8> {
        match self {
            Self::Bytes(table) => piece.iter().map(|b| table[usize::from(*b)]).collect(),
            Self::ToUtf8(table) => {
                piece.iter().flat_map(|b| table[usize::from(*b)].iter().copied()).collect()
            }
            Self::FromUtf8(table) => from_utf8(table, piece, rest),
        }
    }
}

fn from_utf8(table: &BTreeMap<char, u8>, piece: &[u8], rest: &mut Vec<u8>) -> Vec<u8> {
    let mut text = std::mem::take(rest);
    text.extend_from_slice(piece);
    let mut out = Vec::with_capacity(text.len());
    let mut left = &text[..];
    loop {
        let (valid, error) = match std::str::from_utf8(left) {
            Ok(valid) => (valid, None),
            Err(error) => {
                let (valid, _) = left.split_at(error.valid_up_to());
                (std::str::from_utf8(valid).unwrap_or_default(), Some(error))
            }
        };
        for character in valid.chars() {
            match (table.get(&character), u8::try_from(character)) {
                (Some(byte), _) => out.push(*byte),
                (None, Ok(ascii)) if ascii < 128 => out.push(ascii),
                _ => out.extend_from_slice(format!("&#{};", u32::from(character)).as_bytes()),
            }
        }
        let Some(error) = error else { return out };
        let after = &left[error.valid_up_to()..];
        match error.error_len() {
            Some(wrong) => {
                out.push(UNKNOWN);
                left = &after[wrong..];
            }
            None => {
                *rest = after.to_vec();
                return out;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_both_ways() {
        let map = Map::of_bytes(b"koi8-r", b"windows-1251", &[(0xc1, 0xe0), (0xc2, 0xe1)]);
        let maps = Maps(vec![map]);
        let there = maps.conversion(b"KOI8-R", b"Windows-1251").unwrap();
        assert!(there.keeps_length());
        assert_eq!(there.convert(b"a\xc1\xc2\xff", &mut Vec::new()), b"a\xe0\xe1?");
        let back = maps.conversion(b"windows-1251", b"koi8-r").unwrap();
        assert_eq!(back.convert(b"a\xe0", &mut Vec::new()), b"a\xc1");
        assert!(maps.conversion(b"koi8-r", b"other").is_none());
    }

    #[test]
    fn characters_both_ways() {
        let pairs = [(0xc1, "а".as_bytes().into()), (0xc2, "€".as_bytes().into())];
        let map = Map::of_characters(b"x", b"utf-8", &pairs);
        assert_eq!(map.there.convert(b"a\xc1\xc2\xff", &mut Vec::new()), "aа€?".as_bytes());
        let text = "aа€é".as_bytes();
        for cut in 0..=text.len() {
            let mut rest = Vec::new();
            let mut out = map.back.convert(&text[..cut], &mut rest);
            out.extend(map.back.convert(&text[cut..], &mut rest));
            assert_eq!(out, b"a\xc1\xc2&#233;", "cut at {cut}");
            assert!(rest.is_empty());
        }
        let mut rest = Vec::new();
        assert_eq!(map.back.convert(b"a\xff\xfeb", &mut rest), b"a??b");
    }
}
