//! A connection, as the code that speaks its application protocol sees it.
//!
//! Everything is a call on the worker's thread and sends nothing by itself: what a turn has written leaves together
//! at its end. Where a call would have to wait, it is `poll_…` and keeps the task's waker: one for each stream and
//! direction.
//!
//! A task that looks after the whole connection may instead call [`poll_event`](Connection::poll_event): it reports
//! what happens to streams that no other task waits for.

use std::any::Any;
use std::fmt;
use std::net::SocketAddr;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use nowait_sys::listen::ListenAddress;
use nowait_tls::Session;
use std::sync::Arc;

use crate::{Dir, Read, ReadError, StreamId, WriteError};

/// What happened on a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConnectionEvent {
    /// The peer has opened streams: [`Connection::accept`] returns them.
    Opened(Dir),
    /// Data, the end, or a reset arrived on a stream for which no task waits.
    Readable(StreamId),
    /// A stream for which no task waits can be written to again.
    Writable(StreamId),
    /// The peer reads no more of a stream, and gave this code.
    Stopped(StreamId, u64),
    /// The peer has received everything of a stream, up to its end.
    Finished(StreamId),
    /// More streams of this direction can be opened.
    Available(Dir),
    /// The handshake is complete, on a connection with early data.
    Confirmed,
    /// The connection has ended. The last event.
    Lost(ConnectionLost),
}

/// The reason why a connection has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConnectionLost {
    /// This side has closed it.
    Closed,
    /// The application of the peer has closed it, with this code and reason.
    Application(u64, Bytes),
    /// The transport of the peer has closed it, with this code and reason.
    Transport(u64, Bytes),
    /// The peer has broken the protocol; it was told. The text names the error.
    Violation(String),
    /// The peer has lost the connection (stateless reset).
    Reset,
    /// Nothing came for too long.
    TimedOut,
    /// The worker ends, or this program has failed.
    Dropped,
}

impl fmt::Display for ConnectionLost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ConnectionLost::Closed => f.write_str("closed"),
            ConnectionLost::Application(code, reason) => {
                write!(f, "client closed the connection: {code:#x} {}", reason.escape_ascii())
            }
            ConnectionLost::Transport(code, reason) => {
                write!(f, "client reported a transport error: {code:#x} {}", reason.escape_ascii())
            }
            ConnectionLost::Violation(text) => f.write_str(text),
            ConnectionLost::Reset => f.write_str("client lost the connection"),
            ConnectionLost::TimedOut => f.write_str("client timed out"),
            ConnectionLost::Dropped => f.write_str("connection was dropped"),
        }
    }
}

/// The reason why a client has no connection.
#[derive(Debug)]
pub enum ConnectError {
    /// No socket.
    Io(std::io::Error),
    /// The name or the settings are not usable.
    Settings(String),
    /// The handshake failed.
    Lost(ConnectionLost),
}

/// Measurements of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Smoothed round-trip time.
    pub rtt: Duration,
    /// Bytes that may be in flight.
    pub congestion_window: u64,
    /// Packets declared lost.
    pub lost_packets: u64,
    /// Bytes of datagrams sent, and received.
    pub bytes: (u64, u64),
    /// Size of the largest datagram that the path carries.
    pub mtu: u16,
}

/// A connection on its way to another worker.
pub struct MovedConnection {
    _parts: (),
}

/// A connection of this worker.
pub struct Connection {
    listen: Arc<ListenAddress>,
}

impl Connection {
    /// The next stream that the peer has opened.
    pub fn accept(&self, dir: Dir) -> Option<StreamId> {
        let _ = dir;
        todo!()
    }

    /// The next stream that the peer has opened.
    ///
    /// # Errors
    /// The connection has ended.
    pub fn poll_accept(
        &self,
        dir: Dir,
        cx: &mut Context<'_>,
    ) -> Poll<Result<StreamId, ConnectionLost>> {
        let _ = (dir, cx);
        todo!()
    }

    /// Opens a stream. `None`: the peer allows no more for now, or the connection has ended.
    pub fn open(&self, dir: Dir) -> Option<StreamId> {
        let _ = dir;
        todo!()
    }

    /// Opens a stream, when the peer allows it.
    ///
    /// # Errors
    /// The connection has ended.
    pub fn poll_open(
        &self,
        dir: Dir,
        cx: &mut Context<'_>,
    ) -> Poll<Result<StreamId, ConnectionLost>> {
        let _ = (dir, cx);
        todo!()
    }

    /// The next bytes of a stream, at most `max`, in order. They are no copy.
    ///
    /// # Errors
    /// [`ReadError`]
    pub fn read(&self, stream: StreamId, max: usize) -> Result<Read, ReadError> {
        let _ = (stream, max);
        todo!()
    }

    /// As [`read`](Self::read), but [`Read::Blocked`] is `Pending`.
    ///
    /// # Errors
    /// [`ReadError`]
    pub fn poll_read(
        &self,
        stream: StreamId,
        max: usize,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Read, ReadError>> {
        let _ = (stream, max, cx);
        todo!()
    }

    /// Tells the peer to send no more on a stream (STOP_SENDING); what has arrived is dropped.
    pub fn stop(&self, stream: StreamId, code: u64) {
        let _ = (stream, code);
        todo!()
    }

    /// Writes as much as the windows allow, without a copy: chunks that were written are empty afterwards, and a
    /// chunk written in part begins where the next write has to. Returns the number of bytes; zero: blocked.
    ///
    /// # Errors
    /// [`WriteError`]
    pub fn write(&self, stream: StreamId, chunks: &mut [Bytes]) -> Result<usize, WriteError> {
        let _ = (stream, chunks);
        todo!()
    }

    /// As [`write`](Self::write), but waits for room.
    ///
    /// # Errors
    /// [`WriteError`]
    pub fn poll_write(
        &self,
        stream: StreamId,
        chunks: &mut [Bytes],
        cx: &mut Context<'_>,
    ) -> Poll<Result<usize, WriteError>> {
        let _ = (stream, chunks, cx);
        todo!()
    }

    /// Ends a stream: everything written is delivered first.
    ///
    /// # Errors
    /// [`WriteError`]
    pub fn finish(&self, stream: StreamId) -> Result<(), WriteError> {
        let _ = stream;
        todo!()
    }

    /// Resolves when the peer has received the end of a finished stream (`Ok(None)`), or reads no more of it
    /// (`Ok(Some(code))`).
    ///
    /// # Errors
    /// The connection has ended.
    pub fn poll_stopped(
        &self,
        stream: StreamId,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Option<u64>, ConnectionLost>> {
        let _ = (stream, cx);
        todo!()
    }

    /// Gives up a stream that this side sends on (RESET_STREAM).
    pub fn reset(&self, stream: StreamId, code: u64) {
        let _ = (stream, code);
        todo!()
    }

    /// Streams of a higher priority send first; those of the same take turns. Zero at first.
    pub fn set_priority(&self, stream: StreamId, priority: i32) {
        let _ = (stream, priority);
        todo!()
    }

    /// Bidirectional streams that the peer may have open from now on.
    pub fn set_bidi_streams_max(&self, number: u32) {
        let _ = number;
        todo!()
    }

    /// While true, the connection does not end for lack of packets: pings are sent. For requests that take longer
    /// than the idle timeout.
    pub fn set_keep_alive(&self, on: bool) {
        let _ = on;
        todo!()
    }

    /// Closes the connection with an error code of the application. Nothing more can be sent or received.
    pub fn close(&self, code: u64, reason: &[u8]) {
        let _ = (code, reason);
        todo!()
    }

    /// Resolves when the connection has ended.
    pub fn poll_closed(&self, cx: &mut Context<'_>) -> Poll<ConnectionLost> {
        let _ = cx;
        todo!()
    }

    /// The reason why the connection has ended, if it has.
    pub fn lost(&self) -> Option<ConnectionLost> {
        todo!()
    }

    /// The next event. One task may call it; see [`ConnectionEvent`].
    pub fn poll_event(&self, cx: &mut Context<'_>) -> Poll<ConnectionEvent> {
        let _ = cx;
        todo!()
    }

    /// The peer's address. It changes when the peer migrates.
    pub fn peer(&self) -> SocketAddr {
        todo!()
    }

    /// The local address.
    pub fn local(&self) -> SocketAddr {
        todo!()
    }

    /// The listening socket through which it came.
    pub fn listen(&self) -> &Arc<ListenAddress> {
        &self.listen
    }

    /// Takes the session, which shows the facts of the handshake: for `nowait_front::tls::Tls`. It seals nothing, and
    /// changes by itself when a handshake with early data becomes complete. `None`: it was taken.
    pub fn take_session(&self) -> Option<Session> {
        todo!()
    }

    /// Takes the context of [`Chosen`](crate::Chosen).
    pub fn take_context(&self) -> Option<Box<dyn Any>> {
        todo!()
    }

    /// Whether the handshake is complete. Until then, what is read is early data, which may be replayed.
    pub fn is_confirmed(&self) -> bool {
        todo!()
    }

    /// Resolves when the handshake is complete.
    ///
    /// # Errors
    /// The connection has ended.
    pub fn poll_confirmed(&self, cx: &mut Context<'_>) -> Poll<Result<(), ConnectionLost>> {
        let _ = cx;
        todo!()
    }

    /// Measurements.
    pub fn statistics(&self) -> Statistics {
        todo!()
    }

    /// Bytes that were written and not yet acknowledged or sent, of all streams.
    pub fn unacknowledged_bytes(&self) -> u64 {
        todo!()
    }

    /// Takes the connection from this worker, to continue on another one: with its streams, but without wakers.
    /// Calls on this handle fail from now on. Datagrams wait meanwhile, in a bounded queue.
    /// `None`: it has ended, or its handshake is not complete.
    pub fn depart(&self) -> Option<MovedConnection> {
        todo!()
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").finish_non_exhaustive()
    }
}
