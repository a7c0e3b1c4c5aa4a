//! Connections.

use std::cell::{Cell, OnceCell};
use std::fmt;
use std::future::Future;
use std::io;
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::{Buf, Bytes};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::{self, sockopt};

use super::Address;
use super::layer::{DetachedLayer, Layered};
use super::send::{Send, SendOptions};
use crate::buf::{Chain, OutBuf, ReceivedBuf, RecvBuf};
use crate::driver::{Role, SocketKey, Wait};
use crate::local::{self, Local};
use crate::time::wheel::TimerId;

/// A connection, closed on drop. It counts against the worker's `connections_max` until then, and until the
/// kernel has all data that was reported as sent.
///
/// All operations take `&self`: receiving, sending and waiting for hang-up may be in progress at
/// the same time, but at most one of each kind.
pub struct Stream {
    pub(super) local: Rc<Local>,
    /// `None` only while it is dropped or given up.
    fd: Option<OwnedFd>,
    pub(super) key: SocketKey,
    /// The layer between the user and the socket, such as TLS.
    pub(super) layer: OnceCell<Box<Layered>>,
    recv_timer: Cell<Option<TimerId>>,
    pub(super) send_timer: Cell<Option<TimerId>>,
    pub(super) sent: Cell<u64>,
    pub(super) received: Cell<u64>,
}

/// The state of a socket's receive queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unread {
    /// Nothing.
    Nothing,
    /// Bytes.
    Bytes,
    /// The peer has ended its side, or the connection has failed.
    End,
}

impl Stream {
    /// Takes over a connected socket (socket pairs, inherited ones).
    ///
    /// # Errors
    /// When the descriptor cannot be watched.
    ///
    /// # Panics
    /// Outside of a worker.
    pub fn from_fd(fd: OwnedFd) -> io::Result<Stream> {
        Stream::attach(&local::current(), fd, Role::Stream, false)
    }

    pub(crate) fn attach(
        local: &Rc<Local>,
        fd: OwnedFd,
        role: Role,
        handed_over: bool,
    ) -> io::Result<Stream> {
        let key = local.driver.borrow_mut().attach(fd.as_fd(), role)?;
        local.connection_opened(handed_over);
        Ok(Stream::new(local, key, fd))
    }

    /// A connection of the simulation; `fd` is only a placeholder.
    pub(crate) fn simulated(local: &Rc<Local>, key: SocketKey, fd: OwnedFd) -> Stream {
        local.connection_opened(false);
        Stream::new(local, key, fd)
    }

    fn new(local: &Rc<Local>, key: SocketKey, fd: OwnedFd) -> Stream {
        Stream {
            local: local.clone(),
            fd: Some(fd),
            key,
            layer: OnceCell::new(),
            recv_timer: Cell::new(None),
            send_timer: Cell::new(None),
            sent: Cell::new(0),
            received: Cell::new(0),
        }
    }

    /// Receives available data, as soon as there is any. Empty: the peer has ended its side. Dropping the
    /// future loses no data.
    ///
    /// # Errors
    /// `TimedOut` when nothing arrived within `timeout`; errors reported by the network (reset).
    pub fn recv(&self, timeout: Duration) -> Recv<'_> {
        Recv { stream: self, deadline: self.local.tick_after(timeout), waiting: false }
    }

    /// Like [`recv`](Self::recv), for potentially large amounts: at most `max_bytes`, or
    /// [`RECV_BUF_BYTES`](crate::buf::RECV_BUF_BYTES) if that is more, also with a layer.
    ///
    /// # Errors
    /// As for `recv`.
    pub fn recv_large(&self, timeout: Duration, max_bytes: usize) -> RecvLarge<'_> {
        let deadline = self.local.tick_after(timeout);
        RecvLarge { stream: self, deadline, max_bytes, waiting: false }
    }

    /// Returns data that has already arrived and does not fit into a regular buffer; `None`:
    /// nothing. Does not wait.
    ///
    /// # Errors
    /// As for `recv`.
    pub fn try_recv_large(&self, max_bytes: usize) -> io::Result<Option<ReceivedBuf>> {
        let mut recv = self.recv_large(super::NO_TIMEOUT, max_bytes);
        match Pin::new(&mut recv).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(received) => received.map(Some),
            Poll::Pending => Ok(None),
        }
    }

    /// Sends the whole chain. The chain's memory is kept until the kernel has taken it. After the
    /// future is dropped midway the connection is only fit for closing. A small chain may be
    /// reported as sent when it is submitted to the kernel: everything that follows, including a
    /// shutdown or a close, then comes after it, and its failure is returned by the next send.
    ///
    /// # Errors
    /// `TimedOut` when the peer has accepted nothing for `options.timeout`; `UnexpectedEof` when a
    /// file is shorter than its range; errors of the network and the file system.
    pub fn send(&self, chain: impl Into<Chain>, options: SendOptions) -> Send<'_> {
        Send::new(self, chain.into(), options)
    }

    /// Sends as much as the kernel takes at once, and returns the number of bytes; for the
    /// beginning of data that would be passed to [`send`](Self::send), while no send is in
    /// progress. Also 0 where the driver sends by completions, and with a layer.
    ///
    /// # Errors
    /// Errors reported by the network.
    pub fn try_send(&self, data: &[u8]) -> io::Result<usize> {
        if self.layer.get().is_some() {
            return Ok(0);
        }
        let pieces = [data, &[]];
        let sent = self.local.driver.borrow_mut().try_send(self.key, self.fd(), pieces)?;
        self.sent.set(self.sent.get() + sent as u64);
        Ok(sent)
    }

    /// Begins to send two pieces, such as a head and its body, without waiting. No other send may be in
    /// progress. With epoll, the socket takes as much as it has room for; with io_uring, both pieces are
    /// submitted if they are small enough to be reported as sent then. With a layer, a send begins only if
    /// `second` is empty.
    ///
    /// Removes the bytes that were sent from the pieces, and returns whether the send is complete. If it is
    /// not, the caller must [`send`](Self::send) the remaining bytes, even if there are none: a layer may hold
    /// sealed bytes that the socket had no room for.
    ///
    /// # Errors
    /// Errors reported by the network; the layer has failed.
    pub fn begin_send(&self, first: &mut OutBuf, second: &mut Bytes) -> io::Result<bool> {
        let Some(layered) = self.layer.get() else {
            let sent = self.begin(first, second)?;
            self.sent.set(self.sent.get() + sent as u64);
            return Ok(first.is_empty() && second.is_empty());
        };
        if !second.is_empty() {
            return Ok(false);
        }
        let sealed = layered.begin_send(self, first)?;
        self.sent.set(self.sent.get() + sealed as u64);
        consume(first, sealed);
        Ok(first.is_empty() && layered.is_flushed())
    }

    /// Whether [`begin`](Self::begin) may send this many bytes.
    pub(super) fn begins(&self, len: usize) -> bool {
        let driver = self.local.driver.borrow();
        driver.sends_at_once(self.key) || driver.sends_behind(self.key, len)
    }

    /// Begins to send on the socket itself, beneath a layer if there is one. Returns the number of bytes that
    /// were taken from the two.
    pub(super) fn begin(&self, first: &mut OutBuf, second: &mut Bytes) -> io::Result<usize> {
        let mut driver = self.local.driver.borrow_mut();
        let len = first.len() + second.len();
        if len > 0 && driver.sends_behind(self.key, len) {
            driver.send_behind(self.key, std::mem::take(first), std::mem::take(second));
            return Ok(len);
        }
        let sent = driver.try_send(self.key, self.fd(), [first, second])?;
        let of_first = sent.min(first.len());
        consume(first, of_first);
        second.advance(sent - of_first);
        Ok(sent)
    }

    /// Watches a connection on which nothing is expected: ready when anything arrives, including
    /// the end or a failure. Data for the layer itself, such as late tickets, does not count.
    /// The waker stays registered until [`unwatch`](Self::unwatch); the driver's work meanwhile
    /// serves the next receive, so that idle time costs no system call. After `Ready` the
    /// connection is only fit for closing: the received data is lost.
    pub fn poll_quiet(&self, cx: &mut Context<'_>) -> Poll<()> {
        if let Some(layered) = self.layer.get() {
            return layered.poll_recv(self, cx).map(drop);
        }
        self.local.driver.borrow_mut().poll_recv(self.key, self.fd(), cx).map(drop)
    }

    /// Ends [`poll_quiet`](Self::poll_quiet).
    pub fn unwatch(&self) {
        self.forget(Wait::Read, &self.recv_timer);
    }

    /// Releases the socket for another user of its descriptor, perhaps another worker. The driver
    /// then has no operation in flight on it.
    ///
    /// # Errors
    /// `ConnectionAborted` when received data has not been consumed, or sends are not complete; the
    /// connection is closed. `Unsupported`: there is a layer; use [`into_parts`](Self::into_parts).
    pub async fn into_fd(self) -> io::Result<OwnedFd> {
        match self.has_layer() {
            true => Err(io::ErrorKind::Unsupported.into()),
            false => Ok(self.into_parts().await?.0),
        }
    }

    /// Like [`into_fd`](Self::into_fd), with the layer, which the next user has to attach.
    ///
    /// # Errors
    /// `ConnectionAborted`, as for `into_fd`.
    pub async fn into_parts(mut self) -> io::Result<(OwnedFd, Option<DetachedLayer>)> {
        if !self.release().await? {
            return Err(io::ErrorKind::ConnectionAborted.into());
        }
        let layer = self.detach_layer();
        let mut dropped = Vec::new();
        self.local.driver.borrow_mut().release(self.key, &mut dropped);
        self.drop_timers(&mut dropped);
        self.local.connection_closed();
        Ok((self.fd.take().expect("present until drop"), layer))
    }

    /// Ends what the driver has under way, after what was reported as sent has been sent. True:
    /// nothing more is taken from the socket, and all that is left to do here is to copy the
    /// descriptor ([`parted`](Self::parted)) and to drop this. False: something was received
    /// before; [`recv`](Self::recv) returns it at once, and all goes on as before.
    ///
    /// # Errors
    /// A send has failed or is not complete: the connection is fit only for closing.
    pub async fn release(&self) -> io::Result<bool> {
        std::future::poll_fn(|cx| {
            if let Some(layered) = self.layer.get() {
                std::task::ready!(layered.poll_release(self, cx))?;
            }
            let mut driver = self.local.driver.borrow_mut();
            driver.poll_release(self.key, self.fd(), cx)
        })
        .await
    }

    /// A descriptor of the same socket, for its user after [`release`](Self::release).
    ///
    /// # Errors
    /// When descriptors have run out. `Unsupported`: there is a layer, which has to be taken off
    /// first ([`detach_layer`](Self::detach_layer)).
    pub fn parted(&self) -> io::Result<OwnedFd> {
        if self.has_layer() {
            return Err(io::ErrorKind::Unsupported.into());
        }
        self.fd().try_clone_to_owned()
    }

    /// Whether bytes wait in the socket's queue, or before the layer; useful after
    /// [`release`](Self::release), when the driver takes none.
    pub fn has_bytes(&self) -> bool {
        if self.layer.get().is_some_and(|layered| layered.has_input()) {
            return true;
        }
        let flags = net::RecvFlags::PEEK | net::RecvFlags::DONTWAIT;
        matches!(net::recv(self.fd(), &mut [0u8; 1][..], flags), Ok((_, 1..)))
    }

    /// Queries the socket for data that was not yet received, in one system call: the driver may notice it
    /// only in the next turn. Pending bytes hide a following end ([`has_ended`](Self::has_ended)).
    pub fn unread(&self) -> Unread {
        if self.layer.get().is_some_and(|layered| layered.has_input()) {
            return Unread::Bytes;
        }
        let flags = net::RecvFlags::PEEK | net::RecvFlags::DONTWAIT;
        match net::recv(self.fd(), &mut [0u8; 1][..], flags) {
            Ok((_, 1..)) => Unread::Bytes,
            // A connection of the simulation has no socket.
            Err(Errno::AGAIN | Errno::INTR | Errno::NOTSOCK) => Unread::Nothing,
            Ok(_) | Err(_) => Unread::End,
        }
    }

    /// Whether the peer has ended its side, or the connection has failed, even if unread bytes come before
    /// the end: one system call.
    pub fn has_ended(&self) -> bool {
        // Errors and the end of both sides are always reported.
        let mut polled = [PollFd::from_borrowed_fd(self.fd(), PollFlags::RDHUP)];
        let now = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
        matches!(poll(&mut polled, Some(&now)), Ok(1..))
    }

    /// Wakes the task that waits in [`recv`](Self::recv), so that it checks its other conditions.
    pub fn wake_receiver(&self) {
        let waker = self.local.driver.borrow_mut().forget(self.key, Wait::Read);
        waker.into_iter().for_each(Waker::wake);
    }

    fn drop_timers(&self, dropped: &mut Vec<Waker>) {
        for timer in [&self.recv_timer, &self.send_timer] {
            if let Some(id) = timer.take() {
                dropped.extend(self.local.wheel.borrow_mut().remove(id));
            }
        }
    }

    /// Resolves when the peer has ended its side or the connection has failed. Unread data before
    /// the end does not hide it.
    pub fn hangup(&self) -> Hangup<'_> {
        Hangup { stream: self }
    }

    /// Whether the socket has room for a send of some size.
    pub(super) fn has_room(&self) -> io::Result<bool> {
        let mut polled = [PollFd::from_borrowed_fd(self.fd(), PollFlags::OUT)];
        let now = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
        match poll(&mut polled, Some(&now)) {
            Ok(count) => Ok(count > 0),
            Err(rustix::io::Errno::INTR) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Waits until a direct write to the descriptor that returned EAGAIN may be tried again.
    pub(crate) async fn writable(&self) -> io::Result<()> {
        let mut armed = false;
        std::future::poll_fn(|cx| {
            let mut driver = self.local.driver.borrow_mut();
            driver.poll_writable(self.key, self.fd(), cx, &mut armed)
        })
        .await
    }

    /// Waits until a direct read from the descriptor that returned EAGAIN may be tried again.
    pub(super) async fn readable(&self) -> io::Result<()> {
        let mut armed = false;
        std::future::poll_fn(|cx| {
            let mut driver = self.local.driver.borrow_mut();
            driver.poll_readable(self.key, self.fd(), cx, &mut armed)
        })
        .await
    }

    /// The descriptor, for socket options. Reading or writing it directly bypasses the driver.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_ref().expect("present until drop").as_fd()
    }

    /// The clock of the connection's worker as of this turn: milliseconds since its start. Cheaper than
    /// [`now`](crate::now).
    pub fn clock_ms(&self) -> u64 {
        self.local.tick()
    }

    /// Bytes sent so far; with a layer, those that it was given.
    pub fn bytes_sent(&self) -> u64 {
        self.sent.get()
    }

    /// Bytes received so far; with a layer, those that it returned.
    pub fn bytes_received(&self) -> u64 {
        self.received.get()
    }

    /// The peer's address.
    ///
    /// # Errors
    /// When the connection is closed.
    pub fn peer_addr(&self) -> io::Result<Address> {
        let any = net::getpeername(self.fd())?;
        Ok(any.map_or_else(|| Address::Unix(Box::default()), Address::from_any))
    }

    /// The local address: one system call.
    ///
    /// # Errors
    /// When descriptors or memory have run out.
    pub fn local_addr(&self) -> io::Result<Address> {
        Ok(Address::from_any(net::getsockname(self.fd())?))
    }

    /// Ends our side, first that of the layer; the peer sees the end after everything sent.
    ///
    /// # Errors
    /// When the connection is already closed.
    pub fn shutdown_write(&self) -> io::Result<()> {
        self.shutdown(Shutdown::Write)
    }

    /// Shuts down one or both sides.
    ///
    /// # Errors
    /// When the connection is already closed.
    pub fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        if let Some(layered) = self.layer.get() {
            return layered.shutdown(self, how);
        }
        self.local.driver.borrow_mut().shutdown(self.key, self.fd(), how)
    }

    /// `tcp_nodelay`. Has no effect on Unix sockets.
    ///
    /// # Errors
    /// When the connection is already closed.
    pub fn set_nodelay(&self, on: bool) -> io::Result<()> {
        tcp_only(sockopt::set_tcp_nodelay(self.fd(), on))
    }

    /// `tcp_nopush` (TCP_CORK): only full segments leave until it is turned off.
    ///
    /// # Errors
    /// When the connection is already closed.
    pub fn set_nopush(&self, on: bool) -> io::Result<()> {
        tcp_only(sockopt::set_tcp_cork(self.fd(), on))
    }

    /// `reset_timedout_connection`: closing sends a reset and frees the kernel's buffers at once.
    ///
    /// # Errors
    /// When the connection is already closed.
    pub fn set_reset_on_close(&self) -> io::Result<()> {
        Ok(sockopt::set_socket_linger(self.fd(), Some(Duration::ZERO))?)
    }

    /// Arranges for a wake-up at the deadline, a tick of the wheel; ready when it has passed.
    pub(super) fn poll_deadline(
        &self,
        timer: &Cell<Option<TimerId>>,
        deadline: u64,
        cx: &Context<'_>,
    ) -> Poll<()> {
        if deadline <= self.local.tick() {
            return Poll::Ready(());
        }
        if deadline == u64::MAX {
            return Poll::Pending;
        }
        let mut wheel = self.local.wheel.borrow_mut();
        let id = timer.get().unwrap_or_else(|| wheel.insert());
        timer.set(Some(id));
        wheel.arm(id, deadline, cx.waker());
        Poll::Pending
    }

    pub(super) fn disarm(&self, timer: &Cell<Option<TimerId>>) {
        if let Some(id) = timer.get() {
            self.local.wheel.borrow_mut().disarm(id);
        }
    }

    /// Clears the wait of a future that was dropped, or has completed without the driver.
    pub(super) fn forget(&self, wait: Wait, timer: &Cell<Option<TimerId>>) {
        self.disarm(timer);
        let waker = self.local.driver.borrow_mut().forget(self.key, wait);
        drop(waker);
    }
}

/// Ignores that Unix sockets lack an option of TCP.
fn tcp_only(result: rustix::io::Result<()>) -> io::Result<()> {
    match result {
        Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOPROTOOPT) => Ok(()),
        result => Ok(result?),
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        if let Some(layered) = self.layer.get()
            && self.fd.is_some()
        {
            layered.close(self);
        }
        // Given up: the descriptor belongs to someone else.
        let Some(fd) = self.fd.take() else { return };
        let mut dropped = Vec::new();
        let sending = self.local.driver.borrow_mut().detach(self.key, fd, &mut dropped);
        self.drop_timers(&mut dropped);
        // The loop counts a socket that is still sending when it is done.
        if !sending {
            self.local.connection_closed();
        }
    }
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stream").field("fd", &self.fd).finish_non_exhaustive()
    }
}

/// The future of [`Stream::recv`].
pub struct Recv<'a> {
    stream: &'a Stream,
    /// A tick of the wheel.
    deadline: u64,
    waiting: bool,
}

impl Recv<'_> {
    /// The remaining time.
    pub fn left(&self) -> Duration {
        Duration::from_millis(self.deadline.saturating_sub(self.stream.local.tick()))
    }
}

impl Future for Recv<'_> {
    type Output = io::Result<RecvBuf>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let stream = self.stream;
        let polled = match stream.layer.get() {
            None => stream.local.driver.borrow_mut().poll_recv(stream.key, stream.fd(), cx),
            Some(layered) => layered.poll_recv(stream, cx),
        };
        if let Poll::Ready(result) = polled {
            if std::mem::take(&mut self.waiting) {
                stream.disarm(&stream.recv_timer);
            }
            if let Ok(buf) = &result {
                stream.received.set(stream.received.get() + buf.len() as u64);
            }
            return Poll::Ready(result);
        }
        self.waiting = true;
        stream
            .poll_deadline(&stream.recv_timer, self.deadline, cx)
            .map(|()| Err(io::ErrorKind::TimedOut.into()))
    }
}

impl Drop for Recv<'_> {
    fn drop(&mut self) {
        if self.waiting {
            self.stream.forget(Wait::Read, &self.stream.recv_timer);
        }
    }
}

/// The future of [`Stream::recv_large`].
pub struct RecvLarge<'a> {
    stream: &'a Stream,
    /// A tick of the wheel.
    deadline: u64,
    max_bytes: usize,
    waiting: bool,
}

impl Future for RecvLarge<'_> {
    type Output = io::Result<ReceivedBuf>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let stream = self.stream;
        let (key, fd, max) = (stream.key, stream.fd(), self.max_bytes);
        let polled = match stream.layer.get() {
            None => stream.local.driver.borrow_mut().poll_recv_large(key, fd, max, cx),
            Some(layered) => layered.poll_recv_large(stream, max, cx),
        };
        if let Poll::Ready(result) = polled {
            if std::mem::take(&mut self.waiting) {
                stream.disarm(&stream.recv_timer);
            }
            if let Ok(buf) = &result {
                stream.received.set(stream.received.get() + buf.len() as u64);
            }
            return Poll::Ready(result);
        }
        self.waiting = true;
        stream
            .poll_deadline(&stream.recv_timer, self.deadline, cx)
            .map(|()| Err(io::ErrorKind::TimedOut.into()))
    }
}

impl Drop for RecvLarge<'_> {
    fn drop(&mut self) {
        if self.waiting {
            self.stream.forget(Wait::Read, &self.stream.recv_timer);
        }
    }
}

/// The future of [`Stream::hangup`].
pub struct Hangup<'a> {
    stream: &'a Stream,
}

impl Future for Hangup<'_> {
    type Output = io::Result<()>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let stream = self.stream;
        stream.local.driver.borrow_mut().poll_hangup(stream.key, stream.fd(), cx)
    }
}

impl Drop for Hangup<'_> {
    fn drop(&mut self) {
        let waker = self.stream.local.driver.borrow_mut().forget(self.stream.key, Wait::Hangup);
        drop(waker);
    }
}

/// Takes bytes from the front of a buffer; its memory is free once it is empty.
fn consume(buf: &mut OutBuf, count: usize) {
    match count < buf.len() {
        true => drop(buf.drain(..count)),
        false => drop(std::mem::take(buf)),
    }
}
