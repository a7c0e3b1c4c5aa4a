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
//!                            └→ another worker or process, or the stateless answers (Retry, Version Negotiation,
//!                               reset)
//! ```
//!
//! Nothing here knows HTTP or configurations.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod bundle;
mod client;
mod congestion;
mod connection;
mod connection_id;
mod counters;
mod crypto;
mod datagram;
mod directory;
mod endpoint;
mod events;
mod handshake;
mod hello;
mod host_key;
mod keys;
mod live;
mod moved;
mod packet;
mod processes;
mod service;
mod settings;
mod socket;
mod streams;
mod tokens;

pub use connection::{Connection, Statistics};
pub use counters::Counters;
pub use directory::{Directory, MAILBOX_BYTES_MAX, MAILBOX_DATAGRAMS_MAX};
pub use endpoint::{Endpoint, HANDSHAKES_MAX, HANDSHAKES_WITHOUT_RETRY_MAX, Listening};
pub use events::{ConnectError, ConnectionEvent, ConnectionLost};
pub use handshake::{HANDSHAKE_DATAGRAM_BYTES_MAX, HANDSHAKE_DATAGRAMS_MAX};
pub use hello::HelloCollector;
pub use host_key::{HOST_KEY_BYTES_MIN, HostKey};
pub use moved::MovedConnection;
pub use processes::{Processes, is_newer};
pub use quinn_proto::{Dir, Side, StreamId};
pub use service::{
    Admission, Arrival, Chosen, Failure, FailureReason, Greeting, LocalFuture, Refused, Service,
};
pub use settings::{CONNECTION_WINDOW_BYTES, STREAM_WINDOW_BYTES, Settings};
pub use streams::{Read, ReadError, WriteError};
