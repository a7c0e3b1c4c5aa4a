//! HTTP/2 (RFC 9113) and HPACK (RFC 7541) without sockets, files, clocks or threads, for both sides.
//!
//! Contents:
//! - [`server::ServerConnection`] and [`client::ClientConnection`]: bytes in, events and bytes out. Most of it is
//!   in [`connection`], which both share.
//! - [`frame`] and [`frames`]: the frame layer. Lengths are checked before anything is kept.
//! - [`hpack`]: field blocks.
//! - [`Limits`]: what a peer may have and do.
//! - [`error`]: errors of the peer; the type says whether the connection or one stream ends.
//!
//! Ownership: a connection keeps what outlives an input: tables, streams, an incomplete frame other than
//! DATA, and control frames to be sent. Bodies stay with the caller in both directions: received DATA is
//! reported as ranges of the input, and DATA is sent behind a header written here. Heads go through a
//! [`Sink`], so that this crate knows no type of head. A warm connection allocates nothing per stream.
//!
//! What it never does: decide policy (timeouts, body sizes, how many requests a connection serves), read
//! a clock, log, push. Errors carry their code and a text in nginx's words. PRIORITY has no effect;
//! frames of unknown types are ignored.
//!
//! `unsafe` is forbidden.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod budget;
pub mod client;
pub mod connection;
pub mod error;
pub mod frame;
pub mod frames;
pub mod hpack;
pub mod limits;
pub mod server;
mod stream;
mod window;

pub use connection::{Event, HeadWriter, ReceiveStep, SendError, Sink};
pub use error::{ConnectionError, ErrorCode, Flood, StreamError};
pub use frame::{Flags, FrameHeader, FrameType, StreamId};
pub use limits::Limits;
pub use nowait_fields::{Malformed, Priority};
