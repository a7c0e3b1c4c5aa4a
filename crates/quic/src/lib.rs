//! QUIC (RFC 9000, 9001, 9002) on the runtime, for servers, and for clients in tests.
//!
//! The protocol itself is `quinn-proto`, which has no sockets, clocks or threads. Around it, here: datagrams and
//! the worker that they belong to ([`Directory`], [`Endpoint`]); the client's hello, by which the caller chooses a
//! server before there is any state ([`Service::choose`]); handshakes in the pool; connections and their streams
//! ([`Connection`]), with one pass over the sockets per turn.
//!
//! ```text
//! socket → datagrams → route ┬→ connection → quinn-proto → streams → caller
//!                            ├→ hello → Service::choose → handshake (pool) → Service::serve
//!                            └→ another worker, or the stateless answers (Retry, Version Negotiation, reset)
//! ```
//!
//! Nothing here knows HTTP or configurations.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod connection;
mod counters;
mod directory;
mod endpoint;
mod host_key;
mod service;
mod settings;
mod streams;

pub use connection::{
    ConnectError, Connection, ConnectionEvent, ConnectionLost, MovedConnection, Statistics,
};
pub use counters::Counters;
pub use directory::Directory;
pub use endpoint::{Endpoint, Listening};
pub use host_key::{HOST_KEY_BYTES_MIN, HostKey};
pub use quinn_proto::{Dir, Side, StreamId};
pub use service::{
    Admission, Arrival, Chosen, Failure, FailureReason, Greeting, LocalFuture, Refused, Service,
};
pub use settings::Settings;
pub use streams::{Read, ReadError, WriteError};
