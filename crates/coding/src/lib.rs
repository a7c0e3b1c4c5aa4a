//! Compression and decompression of texts: gzip (RFC 1952), Brotli (RFC 7932), Zstandard (RFC 8878).
//!
//! Two ways to compress, both described by a [`Recipe`], which is a coding with its settings:
//! - [`Recipe::whole`] compresses a complete text in one step, with the fastest library for that;
//!   [`Recipe::whole_while`] does the same on another thread, and stops when the result is no longer
//!   wanted.
//! - [`Recipe::begin`] returns a [`Coder`], which takes a text piece by piece: [`Coder::step`].
//!
//! [`Gunzip`] decompresses, in pieces of bounded length.
//!
//! Where this runs is the caller's decision. [`Recipe::inline_whole_bytes`] and
//! [`Recipe::inline_step_bytes`] say how much an event loop may compress by itself, and
//! [`Coder::work`] says how much a step would compress; anything longer belongs on another thread. All
//! states are `Send`. The states of completed compressions are kept for the next ones, in a bounded
//! number, and shared by all threads: creating one takes longer than compressing a short text.
//!
//! What it never does: know a request, a header field or a configuration, start a thread, or wait.
//!
//! `unsafe` is forbidden.
#![forbid(unsafe_code)]

mod coder;
mod error;
pub mod gunzip;
mod recipe;

pub use coder::{Coder, Flush};
pub use error::Error;
pub use gunzip::Gunzip;
pub use recipe::{Dictionary, Recipe, WHOLE_BYTES_MAX};
