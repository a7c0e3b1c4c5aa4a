//! Another protocol over a stream: WebSocket by extended CONNECT (RFC 8441, RFC 9220), and any protocol of a server
//! to which CONNECT leads (RFC 9113 section 8.5, RFC 9114 section 4.4).
//!
//! WebSocket: handlers and upstream servers see the handshake that HTTP/1.1 has: a GET with `Upgrade`,
//! `Connection` and `Sec-WebSocket-Key` ([`super::heads`] makes it). Their 101 is the client's 200. Any
//! other 2xx would tell the client that the tunnel exists; it becomes 501.

use std::cell::Cell;
use std::io;

use bytes::Bytes;
use nowait_http::request::{ReadError, Request};
use nowait_http::response::{Duplex, Head, Part, Takeover};
use nowait_runtime::buf::{Chain, Chunk, ReceivedBuf, RecvBuf};
use nowait_runtime::net::{Channel, ChannelFuture, Endpoint, SendOptions};
use nowait_runtime::task::{Either, select};

use super::outgoing;
use super::stream::RequestStream;
use crate::send_error::{SendError, left};

/// The protocol that may be asked for.
pub(crate) const WEBSOCKET: &[u8] = b"websocket";

/// Fields of the handshake that only HTTP/1.1 has.
const OF_HTTP1: [&str; 3] = ["Upgrade", "Connection", "Sec-WebSocket-Accept"];

/// The field of the handshake with a random value, which streams do without.
pub(crate) const KEY: &[u8] = b"sec-websocket-key";

/// The head of a response that opens a tunnel.
pub(crate) fn open(head: &mut Head) {
    head.status = 200;
    head.content_length = None;
    head.headers.retain(|header| {
        !OF_HTTP1.iter().any(|name| header.name.eq_ignore_ascii_case(name.as_bytes()))
    });
}

/// Passes bytes on in both directions until the tunnel ends.
///
/// # Errors
/// Like [`Takeover::run`]; the client has left.
pub(crate) async fn run<S: RequestStream>(
    stream: &S,
    request: &Request,
    tunnel: Box<dyn Takeover>,
) -> Result<(), SendError> {
    stream.invite();
    let ends = Ends { stream, moved: Cell::new(0) };
    let client = Duplex {
        end: Endpoint::Channel(&ends),
        received: RecvBuf::empty(),
        sent: request.sent().counter(),
        send_timeout: request.send_timeout(),
        lingering_timeout: request.location().client.lingering_timeout.duration(),
    };
    // Unlike a connection whose client has finished sending, a stream that was reset takes nothing
    // more.
    match select(tunnel.run(client), stream.state().presence.gone()).await {
        Either::Left(ended) => Ok(ended?),
        Either::Right(()) => Err(left()),
    }
}

/// The client's side of a tunnel.
struct Ends<'a, S> {
    stream: &'a S,
    /// Bytes received and sent.
    moved: Cell<u64>,
}

impl<S> Ends<'_, S> {
    fn count(&self, bytes: usize) {
        self.moved.set(self.moved.get() + bytes as u64);
    }
}

impl<S: RequestStream> Channel for Ends<'_, S> {
    fn recv(&self) -> ChannelFuture<'_, ReceivedBuf> {
        Box::pin(async move {
            let bytes = self.stream.next(None).await.map_err(|error| match error {
                ReadError::Closed(error) => error,
                _ => io::ErrorKind::InvalidData.into(),
            })?;
            let Some(bytes) = bytes else { return Ok(ReceivedBuf::empty()) };
            self.count(bytes.len());
            Ok(ReceivedBuf::Joined(bytes.into()))
        })
    }

    fn send(&self, mut chain: Chain, options: SendOptions) -> ChannelFuture<'_, ()> {
        Box::pin(async move {
            while let Some(chunk) = chain.pop_front() {
                let bytes = match chunk {
                    Chunk::Bytes(bytes) => bytes,
                    Chunk::Static(bytes) => Bytes::from_static(bytes),
                    chunk => Bytes::copy_from_slice(chunk.memory()),
                };
                let length = bytes.len();
                // Nothing of it is read from a file.
                let mut unread = None;
                let part = Part::Bytes(bytes);
                let put = outgoing::put(self.stream, part, false, options.timeout, &mut unread);
                put.await.map_err(|error| match error {
                    SendError::Client(error) => error,
                    SendError::Body(error) => io::Error::other(error),
                })?;
                self.count(length);
            }
            Ok(())
        })
    }

    fn shutdown_write(&self) -> io::Result<()> {
        self.stream.end();
        Ok(())
    }

    fn bytes_moved(&self) -> u64 {
        self.moved.get()
    }
}
