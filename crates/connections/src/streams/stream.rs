//! What a version's stream offers to the common life of requests.
//!
//! Implemented by the streams of the front ends. It knows neither frames nor windows.

use std::time::Duration;

use bytes::Bytes;
use nowait_fields::Priority;
use nowait_front::servers::Virtual;
use nowait_http::request::{ReadError, Request};
use nowait_http::response::{Body, BodyError, Head, Header};

use crate::send_error::SendError;

use super::connection::StreamConnection;
use super::state::StreamState;

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

    /// The number of a stream.
    type Id: Ord + Copy;

    /// Its connection.
    type Connection: StreamConnection<Stream = Self>;

    /// Its number.
    fn id(&self) -> Self::Id;

    /// Its connection.
    fn connection(&self) -> &Self::Connection;

    /// What it has in every version.
    fn state(&self) -> &StreamState;

    /// Whether this version is enabled for the request's server.
    fn is_enabled(&self, request: &Request, servers: Option<&Virtual>) -> bool;

    /// The client has reset the stream, or the connection has ended.
    fn leave(&self);

    /// The request states this priority, or none.
    fn prioritise(&self, stated: Option<Priority>);

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
}
