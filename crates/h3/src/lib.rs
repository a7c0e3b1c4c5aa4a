//! HTTP/3 (RFC 9114) and QPACK (RFC 9204) without sockets, files, clocks or threads, for both sides.
//!
//! Contents:
//! - [`server::ServerConnection`] and [`client::ClientConnection`]: bytes of streams in, events and bytes out. Most
//!   of it is in [`connection`], which both share.
//! - [`frame`]: the frame layer. Lengths are checked before anything is kept.
//! - [`qpack`]: field sections, and the streams of encoder and decoder.
//! - [`Limits`]: what a peer may have and do.
//! - [`error`]: errors of the peer; the type says whether the connection or one stream ends.
//!
//! Ownership: streams, their windows and their order belong to the transport, QUIC. A connection keeps what outlives
//! an input: tables, the state of streams, an incomplete frame other than DATA, and what it has to say on its three
//! unidirectional streams. Bodies stay with the caller in both directions: received DATA is reported as ranges of
//! the input, and DATA is sent behind a header written here. Heads go through a [`Sink`], so that this crate knows
//! no type of head.
//!
//! What it never does: decide policy (timeouts, body sizes, how many requests a connection serves), read a clock,
//! log, push. Frames, streams and settings of unknown types are ignored.
//!
//! `unsafe` is forbidden.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod budget;
pub mod client;
pub mod connection;
pub mod error;
pub mod frame;
pub mod limits;
pub mod qpack;
pub mod server;
pub mod settings;
mod stream;

pub use connection::{CriticalStream, Event, HeadWriter, ReceiveStep, SendError, Sink};
pub use error::{ConnectionError, ErrorCode, Flood, StreamError};
pub use frame::{FrameType, StreamId};
pub use limits::Limits;
pub use nowait_fields::{FieldLine, Malformed, Priority, Token};
pub use settings::Settings;
