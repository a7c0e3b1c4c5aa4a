//! What HTTP/2 and HTTP/3 have in common: how fields are coded, what a well-formed message is, which stream has its turn.
//!
//! Contents:
//! - [`huffman`], [`integer`], [`table`]: the parts of HPACK (RFC 7541) of which QPACK (RFC 9204) consists, too.
//! - [`token`]: HPACK's static table, by whose numbers both versions know names.
//! - [`FieldLine`]: a decoded field; [`HeadCheck`]: the rules for whole messages (RFC 9113 section 8, RFC 9114 section 4).
//! - [`write`](mod@write): what any writer of heads needs. [`indexing`]: which fields enter a dynamic table.
//! - [`MessageState`]: which heads may come on a stream, and how much content.
//! - [`OpenStreams`]: the streams of a connection, and whose turn it is. [`Priority`]: RFC 9218.
//! - [`budget`]: bounds for input that costs work and has no effect.
//!
//! Used by the cores of both versions. It knows neither frames nor connections.
//!
//! `unsafe` is forbidden.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod budget;
mod check;
mod field;
pub mod huffman;
pub mod indexing;
pub mod integer;
mod malformed;
mod message;
mod priority;
mod streams;
pub mod table;
pub mod token;
pub mod write;

pub use check::{Expected, HeadCheck, HeadFacts, is_connection_specific};
pub use field::{CodingError, Facts, FieldLine, known};
pub use malformed::Malformed;
pub use message::{MessageState, ResponseKind};
pub use priority::Priority;
pub use streams::{OpenStream, OpenStreams, Turn};
pub use token::Token;
