//! What HTTP/2 and HTTP/3 have in common: how fields are coded, and what a well-formed message is.
//!
//! Contents:
//! - [`huffman`], [`integer`], [`table`]: the parts of HPACK (RFC 7541) of which QPACK (RFC 9204) consists, too.
//! - [`token`]: HPACK's static table, by whose numbers both versions know names.
//! - [`FieldLine`]: a decoded field; [`HeadCheck`]: the rules for whole messages (RFC 9113 section 8, RFC 9114 section 4).
//! - [`write`](mod@write): what any writer of heads needs. [`indexing`]: which fields enter a dynamic table.
//! - [`Priority`]: RFC 9218.
//!
//! Used by the cores of both versions. It knows neither frames nor streams, nor connections.
//!
//! `unsafe` is forbidden.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod check;
mod field;
pub mod huffman;
pub mod indexing;
pub mod integer;
mod malformed;
mod priority;
pub mod table;
pub mod token;
pub mod write;

pub use check::{Expected, HeadCheck, HeadFacts, is_connection_specific};
pub use field::{CodingError, Facts, FieldLine, known};
pub use malformed::Malformed;
pub use priority::Priority;
pub use token::Token;
