//! Drivers convert a loop's waits into events. All offer the same completion-style operations: an operation
//! is polled until it is done.
//!
//! Called by `net` (operations) and by the worker (one [`turn`](Driver::turn) per loop turn). A driver
//! never runs its users' code: it collects the wakers and leaves waking them to its caller.

mod accept_batch;
mod calls;
mod epoll;
mod options;
pub(crate) mod sim;
mod socket;
mod uring;
mod waiters;

use std::io;
use std::net::{Shutdown, SocketAddr};
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use nowait_sys::udp::{DatagramBatch, SendTrain};
use rustix::io::Errno;
use rustix::net::{SocketAddrAny, SocketFlags};

use crate::buf::{Chain, OutBuf, RECV_BUF_BYTES, ReceivedBuf, RecvBuf};
use crate::net::{Address, Packet};
use calls::{accept, receive_batch, receive_datagram, receive_packet, shutdown};
use epoll::Epoll;
use sim::NetworkFaults;
pub(crate) use sim::{Sim, placeholder};
use uring::Uring;

pub use options::DriverKind;
pub(crate) use options::DriverOptions;
pub(crate) use socket::{AfterSend, DatagramAddresses, Role, SocketKey, Wait};

/// The event mechanism requested by the configuration (`use`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Requested {
    /// Not configured: epoll. io_uring gains 5 % or more of CPU time for few kinds of requests only
    /// (bench/results), and needs several times the memory for clients that read slowly.
    Default,
    /// `use epoll;`
    Epoll,
    /// `use io_uring;`: epoll if the kernel lacks a required feature.
    IoUring,
}

/// Chooses the driver by trying it; the text gives the reason, for the startup log.
pub fn choose(requested: Requested) -> (DriverKind, String) {
    match requested {
        Requested::Default => return (DriverKind::Epoll, "the default".to_owned()),
        Requested::Epoll => return (DriverKind::Epoll, "as configured".to_owned()),
        Requested::IoUring => {}
    }
    match uring::setup::probe() {
        Ok(()) => (DriverKind::IoUring, "the kernel provides everything it needs".to_owned()),
        Err(why) => (DriverKind::Epoll, why),
    }
}

/// The driver of one worker.
pub(crate) enum Driver {
    Epoll(Epoll),
    Uring(Box<Uring>),
    Sim(Box<Sim>),
}

impl Driver {
    /// A driver whose wait also ends when `event`, an eventfd, is written to. It never reads `event`.
    pub(crate) fn new(options: DriverOptions, event: Arc<OwnedFd>) -> io::Result<Driver> {
        match options.kind {
            DriverKind::Epoll => Epoll::new(options, event).map(Driver::Epoll),
            DriverKind::IoUring => Ok(Driver::Uring(Box::new(Uring::new(options, event)?))),
        }
    }

    /// The simulated driver.
    pub(crate) fn simulated(seed: u64, faults: NetworkFaults) -> Driver {
        Driver::Sim(Box::new(Sim::new(seed, faults)))
    }

    /// The simulation behind this driver.
    ///
    /// # Panics
    /// If it is a real driver: simulated connections were requested outside a simulation.
    pub(crate) fn simulation(&mut self) -> &mut Sim {
        match self {
            Driver::Sim(driver) => driver,
            Driver::Epoll(_) | Driver::Uring(_) => panic!("not inside sim::run"),
        }
    }

    /// Waits for events for at most `max` (`None`: indefinitely) and collects the wakers of the
    /// tasks that can continue.
    pub(crate) fn turn(&mut self, max: Option<Duration>, woken: &mut Vec<Waker>) -> io::Result<()> {
        match self {
            Driver::Epoll(driver) => driver.turn(max, woken),
            Driver::Uring(driver) => driver.turn(max, woken),
            Driver::Sim(driver) => driver.turn(max, woken),
        }
    }

    /// The driver's own time since its start; `None`: use the system's clock.
    pub(crate) fn virtual_time(&self) -> Option<Duration> {
        match self {
            Driver::Epoll(_) | Driver::Uring(_) => None,
            Driver::Sim(driver) => Some(driver.now()),
        }
    }

    /// Registers a socket. The caller keeps its descriptor until it calls `detach`.
    pub(crate) fn attach(&mut self, fd: BorrowedFd<'_>, role: Role) -> io::Result<SocketKey> {
        match self {
            Driver::Epoll(driver) => driver.attach(fd, role),
            Driver::Uring(driver) => driver.attach(fd, role),
            Driver::Sim(driver) => driver.attach(fd.as_raw_fd()),
        }
    }

    /// Starts connecting a socket that is attached next; false: the connection is not established yet.
    pub(crate) fn connect(
        &mut self,
        fd: BorrowedFd<'_>,
        to: &SocketAddrAny,
    ) -> Result<bool, Errno> {
        if let Driver::Sim(driver) = self {
            let to = SocketAddr::try_from(to.clone()).map_err(|_| Errno::AFNOSUPPORT)?;
            driver.begin_connect(fd.as_raw_fd(), None, to);
            return Ok(false);
        }
        match rustix::net::connect(fd, to) {
            Ok(()) => Ok(true),
            // A Unix socket with a full queue reports that at once.
            Err(Errno::INPROGRESS) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Whether files can be sent by `sendfile`.
    pub(crate) fn sends_files(&self) -> bool {
        !matches!(self, Driver::Sim(_))
    }

    /// Releases a socket and closes it as soon as no operation uses it. Its wakers are appended to
    /// `dropped` so that the caller drops them outside the borrow. Returns whether data reported as
    /// sent is still being sent: [`take_gone`](Self::take_gone) then counts the socket once it is
    /// closed.
    pub(crate) fn detach(&mut self, key: SocketKey, fd: OwnedFd, dropped: &mut Vec<Waker>) -> bool {
        match self {
            Driver::Epoll(driver) => driver.detach(key, fd, dropped),
            Driver::Uring(driver) => return driver.detach(key, fd, dropped),
            Driver::Sim(driver) => driver.detach(key, &fd, dropped),
        }
        false
    }

    /// Whether a detached socket is still sending.
    pub(crate) fn is_sending(&self) -> bool {
        match self {
            Driver::Epoll(_) | Driver::Sim(_) => false,
            Driver::Uring(driver) => driver.is_sending(),
        }
    }

    /// Number of sockets that were still sending when they were detached and have been closed since
    /// the last call.
    pub(crate) fn take_gone(&mut self) -> usize {
        match self {
            Driver::Epoll(_) | Driver::Sim(_) => 0,
            Driver::Uring(driver) => driver.take_gone(),
        }
    }

    /// Cancels the operations in flight on a socket that will be [`release`](Self::release)d. False if data
    /// was received before, which the next receive returns.
    pub(crate) fn poll_release(
        &mut self,
        key: SocketKey,
        fd: BorrowedFd<'_>,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<bool>> {
        match self {
            Driver::Epoll(driver) => Poll::Ready(driver.unregister(key, fd)),
            Driver::Uring(driver) => driver.poll_release(key, cx),
            Driver::Sim(_) => Poll::Ready(Err(io::ErrorKind::Unsupported.into())),
        }
    }

    /// Removes a socket from the driver without closing it, after `poll_release`.
    pub(crate) fn release(&mut self, key: SocketKey, dropped: &mut Vec<Waker>) {
        match self {
            Driver::Epoll(driver) => driver.release(key, dropped),
            Driver::Uring(driver) => driver.release(key, dropped),
            Driver::Sim(_) => {}
        }
    }

    /// Receives into a buffer of the driver's choice; an empty one is the end of the stream.
    /// Dropping a receive loses nothing: the next one continues where it stopped.
    pub(crate) fn poll_recv(
        &mut self,
        key: SocketKey,
        fd: BorrowedFd<'_>,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<RecvBuf>> {
        match self {
            Driver::Epoll(driver) => driver.poll_recv(key, fd, cx),
            Driver::Uring(driver) => driver.poll_recv(key, cx),
            Driver::Sim(driver) => driver.poll_recv(key, RECV_BUF_BYTES, cx),
        }
    }

    /// Like `poll_recv`, but may return more than a regular buffer holds; at most `max` bytes where
    /// the driver can choose.
    pub(crate) fn poll_recv_large(
        &mut self,
        key: SocketKey,
        fd: BorrowedFd<'_>,
        max: usize,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<ReceivedBuf>> {
        match self {
            Driver::Epoll(driver) => driver.poll_recv_large(key, fd, max, cx),
            Driver::Uring(driver) => driver.poll_recv_large(key, fd, max, cx),
            Driver::Sim(driver) => {
                driver.poll_recv(key, max, cx).map(|result| result.map(ReceivedBuf::Lent))
            }
        }
    }

    /// Sends from the front of `chain`, consumes the sent bytes, and returns their number. After an
    /// error, or when dropped midway, the stream is unusable.
    pub(crate) fn poll_send(
        &mut self,
        key: SocketKey,
        fd: BorrowedFd<'_>,
        chain: &mut Chain,
        follows: AfterSend,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        match self {
            Driver::Epoll(driver) => driver.poll_send(key, fd, chain, follows, cx),
            Driver::Uring(driver) => driver.poll_send(key, fd, chain, follows, cx),
            Driver::Sim(driver) => driver.poll_send(key, chain, cx),
        }
    }

    /// Appends a few bytes to a send in flight that was reported as sent. Without one, they stay in
    /// `chain`.
    pub(crate) fn append_behind(&mut self, key: SocketKey, chain: &mut Chain) {
        match self {
            Driver::Epoll(_) | Driver::Sim(_) => {}
            Driver::Uring(driver) => driver.append_behind(key, chain),
        }
    }

    /// Whether [`try_send`](Self::try_send) may succeed.
    pub(crate) fn sends_at_once(&self, key: SocketKey) -> bool {
        match self {
            Driver::Epoll(driver) => driver.is_writable(key),
            Driver::Uring(_) | Driver::Sim(_) => false,
        }
    }

    /// Sends as much of two pieces, one behind the other, as the kernel takes at once; 0 where sending is
    /// asynchronous.
    pub(crate) fn try_send(
        &mut self,
        key: SocketKey,
        fd: BorrowedFd<'_>,
        pieces: [&[u8]; 2],
    ) -> io::Result<usize> {
        match self {
            Driver::Epoll(driver) => driver.try_send(key, fd, pieces),
            Driver::Uring(_) | Driver::Sim(_) => Ok(0),
        }
    }

    /// Whether [`send_behind`](Self::send_behind) is possible for this many bytes.
    pub(crate) fn sends_behind(&self, key: SocketKey, len: usize) -> bool {
        match self {
            Driver::Epoll(_) | Driver::Sim(_) => false,
            Driver::Uring(driver) => driver.sends_behind(key, len),
        }
    }

    /// Submits both pieces, which are reported as sent, as by [`poll_send`](Self::poll_send) with nothing to
    /// follow.
    pub(crate) fn send_behind(&mut self, key: SocketKey, first: OutBuf, second: Bytes) {
        match self {
            Driver::Epoll(_) | Driver::Sim(_) => debug_assert!(false, "sends nothing behind"),
            Driver::Uring(driver) => driver.send_behind(key, first, second),
        }
    }

    /// Receives a datagram and its source address. A datagram longer than a receive buffer is
    /// truncated.
    pub(crate) fn poll_recv_from(
        &mut self,
        key: SocketKey,
        fd: BorrowedFd<'_>,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<(RecvBuf, Option<SocketAddr>)>> {
        match self {
            Driver::Epoll(driver) => driver.poll_datagram(key, fd, cx, receive_datagram),
            Driver::Uring(driver) => driver.poll_datagram(key, fd, cx, receive_datagram),
            Driver::Sim(driver) => driver.poll_recv_from(key, cx),
        }
    }

    /// Like `poll_recv_from`, but nothing is truncated, and the local address is returned as well.
    pub(crate) fn poll_recv_packet(
        &mut self,
        key: SocketKey,
        fd: BorrowedFd<'_>,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<Packet>> {
        match self {
            Driver::Epoll(driver) => driver.poll_datagram(key, fd, cx, receive_packet),
            Driver::Uring(driver) => driver.poll_datagram(key, fd, cx, receive_packet),
            Driver::Sim(driver) => driver.poll_recv_from(key, cx).map(|received| {
                let (data, from) = received?;
                Ok(Packet { data: data.into_bytes(), from, local: None })
            }),
        }
    }

    /// Sends a datagram whole, to the given address or to the connected peer, from `local` or from
    /// an address that the kernel chooses.
    pub(crate) fn poll_send_to(
        &mut self,
        key: SocketKey,
        fd: BorrowedFd<'_>,
        data: &[u8],
        ends: DatagramAddresses,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        match self {
            Driver::Epoll(driver) => driver.poll_send_to(key, fd, data, ends, cx),
            Driver::Uring(driver) => driver.poll_send_to(key, fd, data, ends, cx),
            Driver::Sim(driver) => Poll::Ready(driver.send_to(key, data, ends.to)),
        }
    }

    /// Receives a batch of datagrams; true: there may be more.
    pub(crate) fn poll_receive_batch(
        &mut self,
        key: SocketKey,
        fd: BorrowedFd<'_>,
        batch: &mut DatagramBatch,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<bool>> {
        match self {
            Driver::Epoll(driver) => {
                driver.poll_datagram(key, fd, cx, |fd| receive_batch(fd, batch))
            }
            Driver::Uring(driver) => {
                driver.poll_datagram(key, fd, cx, |fd| receive_batch(fd, batch))
            }
            Driver::Sim(driver) => driver.poll_recv_from(key, cx).map(|received| {
                let (data, from) = received?;
                batch.set(&data, from.ok_or(io::ErrorKind::InvalidData)?);
                Ok(true)
            }),
        }
    }

    /// Sends a train of datagrams, without waiting.
    pub(crate) fn send_train(
        &mut self,
        key: SocketKey,
        fd: BorrowedFd<'_>,
        data: &[u8],
        train: SendTrain,
    ) -> io::Result<()> {
        match self {
            Driver::Epoll(_) | Driver::Uring(_) => nowait_sys::udp::send(fd, data, train),
            Driver::Sim(driver) => {
                let segment = train.segment.map_or(data.len(), usize::from).max(1);
                data.chunks(segment).try_for_each(|one| driver.send_to(key, one, Some(train.to)))
            }
        }
    }

    /// Resolves when sending datagrams may be tried again. The caller has just seen EAGAIN.
    pub(crate) fn poll_datagram_writable(
        &mut self,
        key: SocketKey,
        fd: BorrowedFd<'_>,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        match self {
            Driver::Epoll(driver) => driver.poll_datagram_writable(key, fd, cx),
            Driver::Uring(driver) => driver.poll_datagram_writable(key, fd, cx),
            Driver::Sim(_) => Poll::Ready(Ok(())),
        }
    }

    /// Resolves when a direct call may follow the preceding sends: a driver may report small sends
    /// as done as soon as they are submitted.
    pub(crate) fn poll_flush(
        &mut self,
        key: SocketKey,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        match self {
            Driver::Epoll(_) | Driver::Sim(_) => Poll::Ready(Ok(())),
            Driver::Uring(driver) => driver.poll_flush(key, cx),
        }
    }

    /// Shuts down one or both sides of a connection, after pending sends.
    pub(crate) fn shutdown(
        &mut self,
        key: SocketKey,
        fd: BorrowedFd<'_>,
        how: Shutdown,
    ) -> io::Result<()> {
        match self {
            Driver::Epoll(_) => shutdown(fd, how),
            Driver::Uring(driver) => driver.shutdown(key, fd, how),
            Driver::Sim(driver) => driver.shutdown(key, how),
        }
    }

    /// Accepts a connection.
    pub(crate) fn poll_accept(
        &mut self,
        key: SocketKey,
        fd: BorrowedFd<'_>,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<(OwnedFd, Option<Address>)>> {
        match self {
            Driver::Epoll(driver) => driver.poll_accept(key, fd, cx),
            Driver::Uring(driver) => driver.poll_accept(key, fd, cx),
            Driver::Sim(driver) => driver.poll_accept(key, cx),
        }
    }

    /// Stops watching a listener, so that queued connections are left to other workers.
    pub(crate) fn pause_accept(&mut self, key: SocketKey, fd: BorrowedFd<'_>) {
        match self {
            Driver::Epoll(driver) => driver.pause_accept(key, fd),
            Driver::Uring(driver) => driver.pause_accept(key),
            Driver::Sim(_) => {}
        }
    }

    /// Takes connections queued at a listener that was paused and is not watched again: of several
    /// listeners that share a socket the kernel wakes one per connection, and if it woke this one,
    /// no other was notified. `None`: nothing is queued.
    pub(crate) fn poll_queued(
        &mut self,
        key: SocketKey,
        fd: BorrowedFd<'_>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<(OwnedFd, Option<Address>)>> {
        let flags = match self {
            Driver::Epoll(_) => SocketFlags::NONBLOCK | SocketFlags::CLOEXEC,
            Driver::Uring(driver) => {
                // The poll must end first: connections that arrive once the queue is empty must
                // wake another listener.
                std::task::ready!(driver.poll_paused(key, cx));
                SocketFlags::CLOEXEC
            }
            Driver::Sim(driver) => {
                return Poll::Ready(driver.take_queued(key).and_then(Result::ok));
            }
        };
        // Any failure concerns one connection, or leaves the others to the next listener.
        Poll::Ready(accept(fd, flags).ok())
    }

    /// Resolves when the peer has closed its side, or the connection has failed.
    pub(crate) fn poll_hangup(
        &mut self,
        key: SocketKey,
        fd: BorrowedFd<'_>,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        match self {
            Driver::Epoll(driver) => driver.poll_hangup(key, fd, cx),
            Driver::Uring(driver) => driver.poll_hangup(key, cx),
            Driver::Sim(driver) => driver.poll_hangup(key, cx),
        }
    }

    /// Whether the next bytes are in the socket, where a direct call finds them: no receive that would take them
    /// is in flight or done.
    pub(crate) fn reads_directly(&self, key: SocketKey) -> bool {
        match self {
            Driver::Epoll(driver) => driver.reads_directly(key),
            Driver::Uring(driver) => driver.reads_directly(key),
            Driver::Sim(_) => false,
        }
    }

    /// Prepares the descriptor for direct non-blocking system calls, until `finish_direct`.
    pub(crate) fn prepare_direct(&mut self, key: SocketKey, fd: BorrowedFd<'_>) -> io::Result<()> {
        match self {
            Driver::Epoll(_) | Driver::Sim(_) => Ok(()),
            Driver::Uring(driver) => driver.prepare_direct(key, fd),
        }
    }

    /// Ends the period of direct calls.
    pub(crate) fn finish_direct(&mut self, key: SocketKey) {
        match self {
            Driver::Epoll(_) | Driver::Sim(_) => {}
            Driver::Uring(driver) => driver.finish_direct(key),
        }
    }

    /// Resolves when a direct read that found nothing may be retried. The caller has just seen
    /// EAGAIN.
    pub(crate) fn poll_readable(
        &mut self,
        key: SocketKey,
        fd: BorrowedFd<'_>,
        cx: &mut Context<'_>,
        armed: &mut bool,
    ) -> Poll<io::Result<()>> {
        match self {
            Driver::Epoll(driver) => driver.poll_readable(key, fd, cx, armed),
            Driver::Uring(driver) => driver.poll_readable(key, cx, armed).map(Ok),
            Driver::Sim(_) => Poll::Ready(Err(io::ErrorKind::Unsupported.into())),
        }
    }

    /// Resolves when a direct system call that would have blocked may be retried. The caller has
    /// just seen EAGAIN.
    pub(crate) fn poll_writable(
        &mut self,
        key: SocketKey,
        fd: BorrowedFd<'_>,
        cx: &mut Context<'_>,
        armed: &mut bool,
    ) -> Poll<io::Result<()>> {
        match self {
            Driver::Epoll(driver) => driver.poll_writable(key, fd, cx, armed),
            Driver::Uring(driver) => driver.poll_writable(key, cx, armed),
            Driver::Sim(driver) => driver.poll_writable(key, cx),
        }
    }

    /// Returns the waker of a waiting future that was dropped.
    pub(crate) fn forget(&mut self, key: SocketKey, wait: Wait) -> Option<Waker> {
        match self {
            Driver::Epoll(driver) => driver.forget(key, wait),
            Driver::Uring(driver) => driver.forget(key, wait),
            Driver::Sim(driver) => driver.forget(key, wait),
        }
    }
}
