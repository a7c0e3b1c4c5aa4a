//! QPACK (RFC 9204): field sections of HTTP/3.
//!
//! [`Decoder`] and [`Encoder`] are one direction of a connection each: a table, the instructions that change it, and
//! the acknowledgements of the other side. Both are bounded, and allocate nothing once their memory has grown.
//!
//! ```text
//! peer's encoder stream ──► Decoder ──► our decoder stream       section ──► fields
//! peer's decoder stream ──► Encoder ──► our encoder stream       fields ──► section
//! ```

mod decoder;
mod encoder;
mod static_table;

use std::fmt;

use nowait_fields::CodingError;

pub use decoder::{Decoder, FieldError, Refused, Section};
pub use encoder::Encoder;

/// The overhead of an entry beyond its name and value (RFC 9204 section 3.2.1).
const ENTRY_OVERHEAD: u64 = 32;

/// What can't be decoded: the connection is lost. The peer's fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum QpackError {
    /// A section or instruction ends inside a field.
    Truncated,
    /// An integer of more than 62 bits.
    IntegerTooLong,
    /// A reference to an entry that does not exist.
    InvalidIndex,
    /// A Huffman code that does not exist, EOS, or wrong padding.
    InvalidHuffman,
    /// A Required Insert Count or a Base that can't be, or that is not what the section needs.
    InvalidPrefix,
    /// More streams wait for insertions than we allow.
    TooManyBlocked,
    /// A table larger than we allow.
    InvalidCapacity,
    /// An entry larger than the table.
    EntryTooLarge,
    /// A string longer than its bound.
    StringTooLong,
    /// An acknowledgement of something that was not sent.
    InvalidAcknowledgement,
}

impl fmt::Display for QpackError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            QpackError::Truncated => "header section with incorrect length",
            QpackError::IntegerTooLong => "too long integer",
            QpackError::InvalidIndex => "invalid header table index",
            QpackError::InvalidHuffman => "invalid encoded header field",
            QpackError::InvalidPrefix => "invalid prefix of a header section",
            QpackError::TooManyBlocked => "too many blocked streams",
            QpackError::InvalidCapacity => "invalid dynamic table capacity",
            QpackError::EntryTooLarge => "too large dynamic table entry",
            QpackError::StringTooLong => "too large header field",
            QpackError::InvalidAcknowledgement => "invalid acknowledgement",
        })
    }
}

impl std::error::Error for QpackError {}

impl From<CodingError> for QpackError {
    fn from(error: CodingError) -> Self {
        match error {
            CodingError::Truncated => QpackError::Truncated,
            CodingError::IntegerTooLong => QpackError::IntegerTooLong,
            CodingError::InvalidHuffman => QpackError::InvalidHuffman,
            CodingError::StringTooLong => QpackError::StringTooLong,
        }
    }
}
