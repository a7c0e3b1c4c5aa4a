//! HTTP/2 connections to servers, each shared by many requests.
//!
//! A connection ([`connection`]) has a task ([`task`]) that receives for all its streams and sends what
//! they have ready: everything that becomes ready within one turn leaves in one write. The engine holds
//! one stream of it per try, a [`UpstreamStream`], in place of a connection of its own. [`peers`] knows the
//! worker's connections to each peer, and decides which of them takes a request, whether a new one is
//! opened, or whether the request waits.
//!
//! Calls of the server itself have a connection of their own ([`calls`]).
//!
//! What never happens here: choosing peers, retries, writing heads (the protocol's codec does).
//!
//! Bounds: [`connection::STREAMS_MAX`] streams per connection, and fewer if the server says so;
//! [`peers::CONNECTIONS_MAX`] connections and [`peers::WAITING_MAX`] waiting requests per worker and
//! peer; content received for a stream by its window, content to be sent by [`stream::QUEUED_BYTES_MAX`].

mod calls;
mod connection;
mod heads;
mod peers;
mod stream;
mod task;

pub use calls::{CallResponse, OwnConnection};
pub use stream::{Fields, Line, UpstreamStream};

pub(super) use connection::Usage;
pub(super) use peers::{Key, Opening, QueueError, StreamChoice, find};
pub(super) use stream::{HeldStream, QUEUED_BYTES_MAX};
