//! HPACK (RFC 7541): field blocks of HTTP/2.
//!
//! [`Decoder`] and [`Encoder`] are one direction of a connection each. Both have bounded tables, and
//! allocate nothing once these have grown. Strings of the decoder are bounded by its caller; how many
//! fields it accepts is the business of the layer above.

mod decoder;
mod encoder;
mod huffman;
mod integer;
mod static_table;
mod table;

use std::fmt;

use nowait_message::Known;

use crate::error::Malformed;
use crate::message;

pub use decoder::{Decoder, FieldBlock};
pub use encoder::Encoder;
pub use static_table::Token;
pub(crate) use table::SIZE_MAX;

/// The size of a dynamic table unless a setting changes it.
pub const TABLE_SIZE_DEFAULT: u32 = 4096;

/// A field as it was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HpackField<'a> {
    /// The name.
    pub name: &'a [u8],
    /// The value.
    pub value: &'a [u8],
    /// The number of the name in the static table.
    pub token: Token,
    /// The name, if it is one that heads look up by number.
    pub known: Option<Known>,
    /// The reason why it is malformed in any block.
    pub(crate) fault: Option<Malformed>,
    /// Never to be indexed (RFC 7541 section 7.1.3), also when it is forwarded.
    pub sensitive: bool,
}

/// Properties computed from the octets of a field, once for each entry of the dynamic table.
#[derive(Debug, Clone, Copy)]
struct Facts {
    token: Token,
    known: Option<Known>,
    fault: Option<Malformed>,
}

impl Facts {
    fn of(name: &[u8], value: &[u8], token: Token) -> Self {
        Facts { token, known: known(name), fault: message::fault(name, value, token) }
    }
}

/// The number by which heads look the name up, if they do; pseudo-fields have none.
fn known(name: &[u8]) -> Option<Known> {
    if name.first() == Some(&b':') { None } else { Known::from_bytes(name) }
}

impl<'a> HpackField<'a> {
    /// A field that may be indexed.
    pub fn new(name: &'a [u8], value: &'a [u8]) -> Self {
        HpackField::with(name, value, Facts::of(name, value, Token::of(name)), false)
    }

    fn with(name: &'a [u8], value: &'a [u8], facts: Facts, sensitive: bool) -> Self {
        let Facts { token, known, fault } = facts;
        HpackField { name, value, token, known, fault, sensitive }
    }
}

/// A field block that can't be decoded: the connection is lost. The peer's fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum HpackError {
    /// The block ends inside a field.
    Truncated,
    /// An integer has too many octets.
    IntegerTooLong,
    /// An index is 0 or beyond both tables.
    InvalidIndex,
    /// A Huffman code that does not exist, EOS, or wrong padding.
    InvalidHuffman,
    /// A table larger than allowed, an update inside a block, or a required one that is missing.
    InvalidTableSize,
    /// A string is longer than the decoder's bound.
    StringTooLong,
}

impl fmt::Display for HpackError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            HpackError::Truncated => "header block with incorrect length",
            HpackError::IntegerTooLong => "header block with too long integer",
            HpackError::InvalidIndex => "invalid header table index",
            HpackError::InvalidHuffman => "invalid encoded header field",
            HpackError::InvalidTableSize => "invalid header table size update",
            HpackError::StringTooLong => "too large header field",
        })
    }
}

impl std::error::Error for HpackError {}
