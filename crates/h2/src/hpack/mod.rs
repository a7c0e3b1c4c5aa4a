//! HPACK (RFC 7541): field blocks of HTTP/2.
//!
//! [`Decoder`] and [`Encoder`] are one direction of a connection each. Both have bounded tables, and
//! allocate nothing once these have grown. Strings of the decoder are bounded by its caller; how many
//! fields it accepts is the business of the layer above.

mod decoder;
mod encoder;

use std::fmt;

use nowait_fields::CodingError;
pub(crate) use nowait_fields::table::SIZE_MAX;
pub use nowait_fields::{FieldLine as HpackField, Token};

pub use decoder::{Decoder, FieldBlock};
pub use encoder::Encoder;

/// The size of a dynamic table unless a setting changes it.
pub const TABLE_SIZE_DEFAULT: u32 = 4096;

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

impl From<CodingError> for HpackError {
    fn from(error: CodingError) -> Self {
        match error {
            CodingError::Truncated => HpackError::Truncated,
            CodingError::IntegerTooLong => HpackError::IntegerTooLong,
            CodingError::InvalidHuffman => HpackError::InvalidHuffman,
            CodingError::StringTooLong => HpackError::StringTooLong,
        }
    }
}
