//! What carries a try's bytes: a connection of its own, or a stream of a shared one.

use std::io;
use std::rc::Rc;
use std::time::Duration;

use nowait_runtime::buf::{Chain, RECV_BUF_BYTES, ReceivedBuf};
use nowait_runtime::net::{Endpoint, SendOptions, Stream};

use super::http2::Lane;

/// The way to an upstream, and back. Nothing received means that the upstream has closed its side of a
/// connection of one's own; on a lane, the codec knows more.
#[derive(Clone)]
pub(super) enum Pipe {
    /// A connection: its bytes are the protocol's.
    Own(Rc<Stream>),
    /// A stream: its bytes are content, and everything else passes between the lane and the codec.
    Lane(Rc<Lane>),
}

impl Pipe {
    /// The connection, unless it is shared.
    pub(super) fn own(&self) -> Option<&Rc<Stream>> {
        match self {
            Self::Own(stream) => Some(stream),
            Self::Lane(_) => None,
        }
    }

    /// The lane of a shared connection.
    pub(super) fn lane(&self) -> Option<&Rc<Lane>> {
        match self {
            Self::Own(_) => None,
            Self::Lane(lane) => Some(lane),
        }
    }

    /// A side of a relay.
    pub(super) fn end(&self) -> Endpoint<'_> {
        match self {
            Self::Own(stream) => Endpoint::Stream(stream),
            Self::Lane(lane) => Endpoint::Channel(&**lane),
        }
    }

    /// Receives at most `large` bytes, or a regular buffer's if it is zero.
    pub(super) async fn recv(&self, timeout: Duration, large: usize) -> io::Result<ReceivedBuf> {
        match (self, large) {
            (Self::Own(stream), 0) => stream.recv(timeout).await.map(ReceivedBuf::Lent),
            (Self::Own(stream), max) => stream.recv_large(timeout, max).await,
            (Self::Lane(lane), 0) => lane.recv(timeout, RECV_BUF_BYTES).await,
            (Self::Lane(lane), max) => lane.recv(timeout, max).await,
        }
    }

    /// Receives what is there; `None`: nothing.
    pub(super) fn try_recv(&self, max: usize) -> io::Result<Option<ReceivedBuf>> {
        match self {
            Self::Own(stream) => stream.try_recv_large(max),
            Self::Lane(lane) => lane.try_recv(max),
        }
    }

    /// Sends. A codec of a lane has handed it everything already.
    pub(super) async fn send(&self, chain: Chain, options: SendOptions) -> io::Result<()> {
        match self {
            Self::Own(stream) => stream.send(chain, options).await,
            Self::Lane(_) => Ok(()),
        }
    }

    /// Sends what can be sent at once.
    pub(super) fn try_send(&self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Own(stream) => stream.try_send(bytes),
            Self::Lane(_) => Ok(0),
        }
    }

    pub(super) fn bytes_sent(&self) -> u64 {
        match self {
            Self::Own(stream) => stream.bytes_sent(),
            Self::Lane(lane) => lane.bytes_sent(),
        }
    }

    pub(super) fn bytes_received(&self) -> u64 {
        match self {
            Self::Own(stream) => stream.bytes_received(),
            Self::Lane(lane) => lane.bytes_received(),
        }
    }
}
