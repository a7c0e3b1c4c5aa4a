//! What HTTP/2 and HTTP/3 have in common towards clients: a request is a stream of a connection, which has several.
//!
//! Used by the front ends of both. Nothing here knows frames, windows, or which of the two it is.

pub(crate) mod body_reader;
pub(crate) mod heads;
pub(crate) mod outgoing;
pub(crate) mod presence;
pub(crate) mod request_future;
pub(crate) mod requests;
pub(crate) mod response;
pub(crate) mod response_head;
pub(crate) mod serving;
pub(crate) mod tunnel;

use std::cell::{Cell, RefCell};
use std::time::Duration;

use bytes::Bytes;
use nowait_front::servers::Virtual;
use nowait_http::client::Client;
use nowait_http::generation::Current;
use nowait_http::request::{ReadError, Request};
use nowait_http::response::{Body, BodyError, Head, Header};

use crate::connections::Connections;
use crate::send_error::SendError;

use outgoing::Outgoing;
use presence::Presence;

/// Bytes of a request that are discarded after its response, so that clients that send the whole request
/// first get no reset. If more is expected, or the length is unknown, the stream is stopped.
pub(crate) const DISCARD_BYTES_MAX: u64 = 32 * 1024;

/// Streams of a connection whose requests are being discarded; further ones are stopped at once.
pub(crate) const DISCARDING_STREAMS_MAX: usize = 32;

/// Maximum memory of the heads of a connection's requests at a time, in bytes: 8 KB for each of 128
/// streams. Further streams are refused. A head that refers to fields of earlier ones costs a client a few
/// hundred bytes, and the server all that `large_client_header_buffers` allows.
pub(crate) const HEADS_BYTES_MAX: usize = 1024 * 1024;

/// Fields that a request may have beyond `max_headers`: those that are not counted.
pub(crate) const FIELDS_MORE: u16 = 128;

/// The end of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StreamEnd {
    /// The response is complete; the rest of the request is discarded.
    Complete,
    /// The response is complete, and the rest of the request will not come: it was not asked for.
    CompleteWithoutRequest,
    /// The client has left.
    Cancelled,
    /// The client was too slow, or broke off.
    ClientFault,
    /// The response can't be completed.
    OwnFault,
}

/// A stream: one request's channel to its client.
pub(crate) trait RequestStream {
    /// The version, for the log.
    const NAME: &'static str;

    /// The worker's connections.
    fn all(&self) -> &Connections;

    /// The servers behind the connection's address; `None` if it is no longer listened on.
    fn virtual_servers<'a>(&self, current: &'a Current) -> Option<&'a Virtual>;

    /// Whether this version is enabled for the request's server.
    fn is_enabled(&self, request: &Request, servers: Option<&Virtual>) -> bool;

    /// The client.
    fn client(&self) -> &Client;

    /// Whether the client is still there.
    fn presence(&self) -> &Presence;

    /// Content to be sent.
    fn outgoing(&self) -> &RefCell<Outgoing>;

    /// There is content to be sent.
    fn offer(&self);

    /// The content can't be sent.
    fn withdraw(&self);

    /// Ends a response whose parts have all been sent.
    fn end(&self);

    /// Sends what is held back, before a wait.
    fn flush(&self) {}

    /// Waits until nothing of a response is held back, for at most this long.
    async fn flushed(&self, _timeout: Duration) -> Result<(), SendError> {
        Ok(())
    }

    /// How many streams of the connection read files that are not in memory.
    fn cold_streams(&self) -> &Cell<usize>;

    /// The client asks for a tunnel: CONNECT.
    fn asks_for_tunnel(&self) -> bool;

    /// Whether the request is complete, as far as has been received.
    fn has_ended(&self) -> bool;

    /// A reader begins.
    fn invite(&self);

    /// Waits for content, and takes it, at most so many bytes; `None`: all of it was taken.
    async fn next(&self, limit: Option<usize>) -> Result<Option<Bytes>, ReadError>;

    /// Asks for content with 100 Continue, unless it is coming already.
    fn send_continue(&self);

    /// Writes a head; `end`: without a body. Counts its bytes.
    fn write_head(&self, request: &Request, head: &Head, end: bool) -> Result<(), SendError>;

    /// A body follows, of this length if it is known.
    fn begin_content(&self, request: &Request, length: Option<u64>);

    /// Sends all of a response's content, if it is small and in memory, and nothing precedes it; returns
    /// whether that was possible.
    ///
    /// # Errors
    /// The file can't be read, and there is no other source.
    fn send_whole(&self, content: &Body) -> Result<bool, BodyError>;

    /// Ends the response with trailers. Returns their length.
    fn write_trailers(&self, trailers: &[Header]) -> u64;

    /// The request's task has ended.
    fn finish(&self, end: StreamEnd);

    /// An idle connection is to be kept for this long.
    fn keep(&self, time: Duration);
}
