//! The channel of a try's bytes: a separate connection, or a stream of a shared one.

use std::io;
use std::rc::Rc;
use std::time::Duration;

use nowait_runtime::buf::{Chain, RECV_BUF_BYTES, ReceivedBuf};
use nowait_runtime::net::{Endpoint, SendOptions, Stream};

use super::http2::UpstreamStream;

/// The channel to an upstream. An empty receive means that the upstream has closed its side of a separate
/// connection; for a stream, the codec decides.
#[derive(Clone)]
pub(super) enum Pipe {
    /// A connection: its bytes are the protocol's.
    Own(Rc<Stream>),
    /// A stream: its bytes are content; all other events pass between the stream and the codec.
    Stream(Rc<UpstreamStream>),
}

impl Pipe {
    /// The connection, unless it is shared.
    pub(super) fn own(&self) -> Option<&Rc<Stream>> {
        match self {
            Self::Own(stream) => Some(stream),
            Self::Stream(_) => None,
        }
    }

    /// The lane of a shared connection.
    pub(super) fn lane(&self) -> Option<&Rc<UpstreamStream>> {
        match self {
            Self::Own(_) => None,
            Self::Stream(lane) => Some(lane),
        }
    }

    /// A side of a relay.
    pub(super) fn end(&self) -> Endpoint<'_> {
        match self {
            Self::Own(stream) => Endpoint::Stream(stream),
            Self::Stream(lane) => Endpoint::Channel(&**lane),
        }
    }

    /// Receives at most `large` bytes, or a regular buffer's if it is zero.
    pub(super) async fn recv(&self, timeout: Duration, large: usize) -> io::Result<ReceivedBuf> {
        match (self, large) {
            (Self::Own(stream), 0) => stream.recv(timeout).await.map(ReceivedBuf::Lent),
            (Self::Own(stream), max) => stream.recv_large(timeout, max).await,
            (Self::Stream(lane), 0) => lane.recv(timeout, RECV_BUF_BYTES).await,
            (Self::Stream(lane), max) => lane.recv(timeout, max).await,
        }
    }

    /// Receives available data, if any.
    pub(super) fn try_recv(&self, max: usize) -> io::Result<Option<ReceivedBuf>> {
        match self {
            Self::Own(stream) => stream.try_recv_large(max),
            Self::Stream(lane) => lane.try_recv(max),
        }
    }

    /// Sends. The codec of a stream has already passed all data to it.
    pub(super) async fn send(&self, chain: Chain, options: SendOptions) -> io::Result<()> {
        match self {
            Self::Own(stream) => stream.send(chain, options).await,
            Self::Stream(_) => Ok(()),
        }
    }

    /// Sends as much as possible at once.
    pub(super) fn try_send(&self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Own(stream) => stream.try_send(bytes),
            Self::Stream(_) => Ok(0),
        }
    }

    pub(super) fn bytes_sent(&self) -> u64 {
        match self {
            Self::Own(stream) => stream.bytes_sent(),
            Self::Stream(lane) => lane.bytes_sent(),
        }
    }

    pub(super) fn bytes_received(&self) -> u64 {
        match self {
            Self::Own(stream) => stream.bytes_received(),
            Self::Stream(lane) => lane.bytes_received(),
        }
    }
}
