//! A connection, as the code that speaks its application protocol sees it.
//!
//! Everything is a call on the worker's thread and sends nothing by itself: what a turn has written leaves together
//! at its end. Where a call would have to wait, it is `poll_…` and keeps the task's waker: one for each stream and
//! direction.
//!
//! A task that looks after the whole connection may instead call [`poll_event`](Connection::poll_event): it reports
//! what happens to streams that no other task waits for.

use std::any::Any;
use std::cell::RefCell;
use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use nowait_sys::listen::ListenAddress;
use nowait_tls::Session;
use quinn_proto::{self as quinn, VarInt};

use crate::live::{Live, LiveState, Waiting};
use crate::moved::MovedConnection;
use crate::{
    ConnectionEvent, ConnectionLost, Dir, Directory, Read, ReadError, Side, StreamId, WriteError,
};

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
    /// Datagrams sent, and received.
    pub datagrams: (u64, u64),
    /// Size of the largest datagram that the path carries.
    pub mtu: u16,
    /// NEW_TOKEN frames sent, and received.
    pub new_tokens: (u64, u64),
}

/// A connection of this worker. When the handle is dropped, the connection is closed with code 0.
pub struct Connection {
    live: Rc<Live>,
    listen: Arc<ListenAddress>,
    session: RefCell<Option<Session>>,
    context: RefCell<Option<Box<dyn Any>>>,
}

/// A code of the application; those that the protocol cannot carry are replaced by the largest.
fn varint(code: u64) -> VarInt {
    VarInt::from_u64(code).unwrap_or(VarInt::MAX)
}

impl Connection {
    pub(crate) fn new(
        live: Rc<Live>,
        listen: Arc<ListenAddress>,
        session: Option<Session>,
        context: Option<Box<dyn Any>>,
    ) -> Rc<Connection> {
        let (session, context) = (RefCell::new(session), RefCell::new(context));
        Rc::new(Connection { live, listen, session, context })
    }

    /// Calls `act` with the library's connection; `None`: it has ended.
    fn with<T>(&self, act: impl FnOnce(&mut LiveState) -> Option<T>) -> Option<T> {
        let mut state = self.live.state.borrow_mut();
        if state.bundle.is_none() { None } else { act(&mut state) }
    }

    /// The same for something that may cause packets.
    fn act<T>(&self, act: impl FnOnce(&mut quinn::Connection) -> T) -> Option<T> {
        let result = self.with(|state| state.connection().map(act));
        if result.is_some() {
            self.live.touch();
        }
        result
    }

    fn is_server(state: &mut LiveState) -> bool {
        state.connection().is_some_and(|connection| connection.side().is_server())
    }

    /// Whether this side can receive on a stream. The library panics where it can't.
    fn receives(state: &mut LiveState, stream: StreamId) -> bool {
        let own = if Self::is_server(state) { Side::Server } else { Side::Client };
        stream.dir() == Dir::Bi || stream.initiator() != own
    }

    /// Whether this side can send on a stream.
    fn sends(state: &mut LiveState, stream: StreamId) -> bool {
        let own = if Self::is_server(state) { Side::Server } else { Side::Client };
        stream.dir() == Dir::Bi || stream.initiator() == own
    }

    /// The next stream that the peer has opened.
    pub fn accept(&self, dir: Dir) -> Option<StreamId> {
        self.with(|state| state.connection()?.streams().accept(dir))
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
        if let Some(stream) = self.accept(dir) {
            return Poll::Ready(Ok(stream));
        }
        let mut state = self.live.state.borrow_mut();
        if let Some(lost) = &state.lost {
            return Poll::Ready(Err(lost.clone()));
        }
        state.waiting.accept[dir as usize] = Some(cx.waker().clone());
        Poll::Pending
    }

    /// Opens a stream. `None`: the peer allows no more for now, or the connection has ended.
    pub fn open(&self, dir: Dir) -> Option<StreamId> {
        self.with(|state| state.connection()?.streams().open(dir))
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
        if let Some(stream) = self.open(dir) {
            return Poll::Ready(Ok(stream));
        }
        let mut state = self.live.state.borrow_mut();
        if let Some(lost) = &state.lost {
            return Poll::Ready(Err(lost.clone()));
        }
        state.waiting.open[dir as usize] = Some(cx.waker().clone());
        Poll::Pending
    }

    /// The next bytes of a stream, at most `max`, in order. They are no copy.
    ///
    /// # Errors
    /// [`ReadError`]
    pub fn read(&self, stream: StreamId, max: usize) -> Result<Read, ReadError> {
        let mut touched = false;
        let result = {
            let mut state = self.live.state.borrow_mut();
            let receives = Self::receives(&mut state, stream);
            let is_lost = state.lost.is_some();
            match state.connection() {
                Some(connection) if receives => {
                    let read = read(connection, stream, max, &mut touched);
                    // What had arrived can still be read; more won't come.
                    if is_lost && read == Ok(Read::Blocked) { Err(ReadError::Lost) } else { read }
                }
                Some(_) => Err(ReadError::Closed),
                None => Err(ReadError::Lost),
            }
        };
        if touched {
            self.live.touch();
        }
        result
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
        match self.read(stream, max) {
            Ok(Read::Blocked) => {
                let mut state = self.live.state.borrow_mut();
                state.waiting.read.insert(stream, cx.waker().clone());
                Poll::Pending
            }
            result => Poll::Ready(result),
        }
    }

    /// The code with which the peer has reset a stream. It is told once, by this or by [`read`](Self::read).
    pub fn received_reset(&self, stream: StreamId) -> Option<u64> {
        let mut state = self.live.state.borrow_mut();
        if !Self::receives(&mut state, stream) {
            return None;
        }
        let reset = state.connection()?.recv_stream(stream).received_reset();
        drop(state);
        let code = reset.ok()??;
        // Another stream may be opened in its place.
        self.live.touch();
        Some(code.into_inner())
    }

    /// Tells the peer to send no more on a stream (STOP_SENDING); what has arrived is dropped.
    pub fn stop(&self, stream: StreamId, code: u64) {
        let receives = self.with(|state| Some(Self::receives(state, stream)));
        if receives == Some(true) {
            // Fails if nothing more would come anyway.
            self.act(|connection| connection.recv_stream(stream).stop(varint(code)).is_ok());
        }
    }

    /// Writes as much as the windows allow, without a copy: chunks that were written are empty afterwards, and a
    /// chunk written in part begins where the next write has to. Returns the number of bytes; zero: blocked.
    ///
    /// # Errors
    /// [`WriteError`]
    pub fn write(&self, stream: StreamId, chunks: &mut [Bytes]) -> Result<usize, WriteError> {
        let written = {
            let mut state = self.live.state.borrow_mut();
            let state = &mut *state;
            let sends = Self::sends(state, stream);
            let is_lost = state.lost.is_some();
            match &mut state.bundle {
                Some(bundle) if sends && !is_lost => {
                    bundle.open_window();
                    match bundle.connection.send_stream(stream).write_chunks(chunks) {
                        Ok(written) => {
                            *state.written.entry(stream).or_default() += written.bytes as u64;
                            written.bytes
                        }
                        Err(quinn::WriteError::Blocked) => return Ok(0),
                        Err(quinn::WriteError::Stopped(code)) => {
                            return Err(WriteError::Stopped(code.into_inner()));
                        }
                        Err(quinn::WriteError::ClosedStream) => return Err(WriteError::Closed),
                    }
                }
                Some(_) if !sends => return Err(WriteError::Closed),
                _ => return Err(WriteError::Lost),
            }
        };
        self.live.touch();
        Ok(written)
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
        match self.write(stream, chunks) {
            Ok(0) if chunks.iter().any(|chunk| !chunk.is_empty()) => {
                let mut state = self.live.state.borrow_mut();
                state.waiting.write.insert(stream, cx.waker().clone());
                Poll::Pending
            }
            result => Poll::Ready(result),
        }
    }

    /// Ends a stream: everything written is delivered first.
    ///
    /// # Errors
    /// [`WriteError`]
    pub fn finish(&self, stream: StreamId) -> Result<(), WriteError> {
        if self.with(|state| Some(Self::sends(state, stream))) == Some(false) {
            return Err(WriteError::Closed);
        }
        self.forget_written(stream);
        let finished = self.act(|connection| connection.send_stream(stream).finish());
        match finished {
            Some(Ok(())) => Ok(()),
            Some(Err(quinn::FinishError::Stopped(code))) => {
                Err(WriteError::Stopped(code.into_inner()))
            }
            Some(Err(quinn::FinishError::ClosedStream)) => Err(WriteError::Closed),
            None => Err(WriteError::Lost),
        }
    }

    /// Resolves when the peer has received the end of a finished stream (`Ok(None)`), or reads no more of it
    /// (`Ok(Some(code))`). `Ok(None)` also for a stream that was reset here and is done with.
    ///
    /// # Errors
    /// The connection has ended.
    pub fn poll_stopped(
        &self,
        stream: StreamId,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Option<u64>, ConnectionLost>> {
        let mut state = self.live.state.borrow_mut();
        if let Some(lost) = &state.lost {
            return Poll::Ready(Err(lost.clone()));
        }
        if !Self::sends(&mut state, stream) {
            return Poll::Ready(Ok(None));
        }
        let Some(connection) = state.connection() else {
            return Poll::Ready(Err(ConnectionLost::Dropped));
        };
        match connection.send_stream(stream).stopped() {
            Ok(Some(code)) => Poll::Ready(Ok(Some(code.into_inner()))),
            Err(_) => Poll::Ready(Ok(None)),
            Ok(None) => {
                state.waiting.stopped.insert(stream, cx.waker().clone());
                Poll::Pending
            }
        }
    }

    /// Whether the peer has acknowledged everything that was written to streams. If not, it is reported that this open
    /// stream of ours is writable when it has; meanwhile no task may wait for room on a stream.
    pub fn is_acknowledged(&self, stream: StreamId) -> bool {
        let mut state = self.live.state.borrow_mut();
        let sends = Self::sends(&mut state, stream);
        state.bundle.as_mut().is_none_or(|bundle| !sends || bundle.is_acknowledged(stream))
    }

    /// Whether the peer reads no more of a stream.
    pub fn is_stopped(&self, stream: StreamId) -> bool {
        let mut state = self.live.state.borrow_mut();
        Self::sends(&mut state, stream)
            && state.connection().is_some_and(|connection| {
                matches!(connection.send_stream(stream).stopped(), Ok(Some(_)))
            })
    }

    /// Gives up a stream that this side sends on (RESET_STREAM).
    pub fn reset(&self, stream: StreamId, code: u64) {
        if self.with(|state| Some(Self::sends(state, stream))) == Some(true) {
            self.forget_written(stream);
            // Fails if the stream is closed already.
            self.act(|connection| connection.send_stream(stream).reset(varint(code)).is_ok());
        }
    }

    fn forget_written(&self, stream: StreamId) {
        self.live.state.borrow_mut().written.remove(&stream);
    }

    /// Streams of a higher priority send first; those of the same take turns. Zero at first.
    pub fn set_priority(&self, stream: StreamId, priority: i32) {
        self.with(|state| {
            if Self::sends(state, stream) {
                // Fails if the stream is closed already.
                let _ = state.connection()?.send_stream(stream).set_priority(priority);
            }
            Some(())
        });
    }

    /// Bidirectional streams that the peer may have open from now on.
    pub fn set_bidi_streams_max(&self, number: u32) {
        self.act(|connection| connection.set_max_concurrent_streams(Dir::Bi, number.into()));
    }

    /// While true, the connection does not end for lack of packets: pings are sent. For requests that take longer
    /// than the idle timeout.
    pub fn set_keep_alive(&self, on: bool) {
        self.live.set_keep_alive(on);
        if on {
            self.live.touch();
        }
    }

    /// The workers of its process, with their counters. `None`: its worker has ended.
    pub fn directory(&self) -> Option<Arc<Directory>> {
        self.live.endpoint.upgrade().map(|endpoint| endpoint.directory().clone())
    }

    /// Closes the connection with an error code of the application. Nothing more can be sent or received.
    pub fn close(&self, code: u64, reason: &[u8]) {
        self.live.close(varint(code), Bytes::copy_from_slice(reason));
        self.live.touch();
    }

    /// Resolves when the connection has ended.
    pub fn poll_closed(&self, cx: &mut Context<'_>) -> Poll<ConnectionLost> {
        let mut state = self.live.state.borrow_mut();
        if let Some(lost) = &state.lost {
            return Poll::Ready(lost.clone());
        }
        Waiting::add(&mut state.waiting.closed, cx);
        Poll::Pending
    }

    /// The reason why the connection has ended, if it has.
    pub fn lost(&self) -> Option<ConnectionLost> {
        self.live.state.borrow().lost.clone()
    }

    /// The next event. One task may call it; see [`ConnectionEvent`].
    pub fn poll_event(&self, cx: &mut Context<'_>) -> Poll<ConnectionEvent> {
        match self.live.state.borrow_mut().next_event(cx) {
            Some(event) => Poll::Ready(event),
            None => Poll::Pending,
        }
    }

    /// The peer's address. It changes when the peer migrates.
    pub fn peer(&self) -> SocketAddr {
        self.live.state.borrow().peer()
    }

    /// The local address.
    pub fn local(&self) -> SocketAddr {
        let bound = self.live.socket.borrow().local_addr();
        let ip = match self.live.local.get() {
            Some(ip) => ip.to_canonical(),
            None => bound.ip(),
        };
        SocketAddr::new(ip, bound.port())
    }

    /// The listening socket through which it came; of a client's connection, an address without meaning.
    pub fn listen(&self) -> &Arc<ListenAddress> {
        &self.listen
    }

    /// Takes the session, which shows the facts of the handshake: for `nowait_front::tls::Tls`. It seals nothing, and
    /// changes by itself when a handshake with early data becomes complete. `None`: it was taken.
    pub fn take_session(&self) -> Option<Session> {
        self.session.borrow_mut().take()
    }

    /// Takes the context of [`Chosen`](crate::Chosen).
    pub fn take_context(&self) -> Option<Box<dyn Any>> {
        self.context.borrow_mut().take()
    }

    /// Whether the handshake is complete. Until then, what is read is early data, which may be replayed.
    pub fn is_confirmed(&self) -> bool {
        self.live.state.borrow().confirmed
    }

    /// Resolves when the handshake is complete.
    ///
    /// # Errors
    /// The connection has ended.
    pub fn poll_confirmed(&self, cx: &mut Context<'_>) -> Poll<Result<(), ConnectionLost>> {
        let mut state = self.live.state.borrow_mut();
        match &state.lost {
            _ if state.confirmed => Poll::Ready(Ok(())),
            Some(lost) => Poll::Ready(Err(lost.clone())),
            None => {
                Waiting::add(&mut state.waiting.confirmed, cx);
                Poll::Pending
            }
        }
    }

    /// Measurements.
    pub fn statistics(&self) -> Statistics {
        let stats = self.with(|state| state.connection().map(|connection| connection.stats()));
        let Some(stats) = stats else { return Statistics::default() };
        Statistics {
            rtt: stats.path.rtt,
            congestion_window: stats.path.cwnd,
            lost_packets: stats.path.lost_packets,
            bytes: (stats.udp_tx.bytes, stats.udp_rx.bytes),
            datagrams: (stats.udp_tx.datagrams, stats.udp_rx.datagrams),
            mtu: stats.path.current_mtu,
            new_tokens: (stats.frame_tx.new_token, stats.frame_rx.new_token),
        }
    }

    /// Takes the connection from this worker, to continue on another one: with its streams, but without wakers.
    /// Calls on this handle fail from now on. Datagrams that come before it has arrived are lost, and sent again.
    /// `None`: it has ended, or its handshake is not complete.
    pub fn depart(&self) -> Option<Box<MovedConnection>> {
        let endpoint = self.live.endpoint.upgrade()?;
        let (session, context) = (&self.session, &self.context);
        endpoint.depart(&self.live, &self.listen, || {
            drop(context.borrow_mut().take());
            session.borrow_mut().take()
        })
    }
}

/// Reads a chunk; `touched`: packets may result.
fn read(
    connection: &mut quinn::Connection,
    stream: StreamId,
    max: usize,
    touched: &mut bool,
) -> Result<Read, ReadError> {
    let mut stream = connection.recv_stream(stream);
    // All reads here are in order.
    let mut chunks = stream.read(true).map_err(|_| ReadError::Closed)?;
    let result = match chunks.next(max) {
        Ok(Some(chunk)) => Ok(Read::Data(chunk.bytes)),
        Ok(None) => Ok(Read::End),
        Err(quinn::ReadError::Blocked) => Ok(Read::Blocked),
        Err(quinn::ReadError::Reset(code)) => Err(ReadError::Reset(code.into_inner())),
    };
    *touched = chunks.finalize().should_transmit();
    result
}

impl Drop for Connection {
    fn drop(&mut self) {
        if self.live.state.borrow().lost.is_none() {
            self.close(0, b"");
        }
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").field("peer", &self.peer()).finish_non_exhaustive()
    }
}

/// The listening address of connections that this side has opened.
pub(crate) fn no_listen() -> Arc<ListenAddress> {
    Arc::new(ListenAddress::Udp(SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0))))
}
