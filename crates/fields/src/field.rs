//! A field as a decoder reports it, and errors of its code.

use nowait_message::Known;

use crate::{Malformed, Token, check};

/// A field as it was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FieldLine<'a> {
    /// The name.
    pub name: &'a [u8],
    /// The value.
    pub value: &'a [u8],
    /// The number of the name in HPACK's static table.
    pub token: Token,
    /// The name, if it is one that heads look up by number.
    pub known: Option<Known>,
    /// The reason why it is malformed in any section.
    pub fault: Option<Malformed>,
    /// Never to be indexed (RFC 7541 section 7.1.3), also when it is forwarded.
    pub sensitive: bool,
}

/// Properties computed from the octets of a field, once for each entry of a dynamic table.
#[derive(Debug, Clone, Copy)]
pub struct Facts {
    /// The number of its name.
    pub token: Token,
    /// The name, if heads look it up by number.
    pub known: Option<Known>,
    /// The reason why it is malformed.
    pub fault: Option<Malformed>,
}

impl Facts {
    /// Those of a field whose name has this token.
    #[inline]
    pub fn of(name: &[u8], value: &[u8], token: Token) -> Self {
        Facts { token, known: known(name), fault: check::fault(name, value, token) }
    }
}

/// The number by which heads look the name up, if they do; pseudo-fields have none.
#[inline]
pub fn known(name: &[u8]) -> Option<Known> {
    if name.first() == Some(&b':') { None } else { Known::from_bytes(name) }
}

impl<'a> FieldLine<'a> {
    /// A field that may be indexed.
    pub fn new(name: &'a [u8], value: &'a [u8]) -> Self {
        FieldLine::with(name, value, Facts::of(name, value, Token::of(name)), false)
    }

    /// A field of which all is known.
    #[inline]
    pub fn with(name: &'a [u8], value: &'a [u8], facts: Facts, sensitive: bool) -> Self {
        let Facts { token, known, fault } = facts;
        FieldLine { name, value, token, known, fault, sensitive }
    }
}

/// A string or an integer that can't be decoded. The peer's fault; the caller decides what ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CodingError {
    /// The input ends inside.
    Truncated,
    /// An integer has too many octets.
    IntegerTooLong,
    /// A Huffman code that does not exist, EOS, or wrong padding.
    InvalidHuffman,
    /// A string is longer than the caller's bound.
    StringTooLong,
}
