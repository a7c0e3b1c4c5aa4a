//! Receives for several tasks before the first of them continues.
//!
//! Tasks that wait to receive are woken together. When one of them receives, the driver also receives for a
//! group of tasks after it, which find the data when they run. A loop that has to know of all changes before
//! what it has received ([`receive_epoch`]) looks for them once per group then, instead of once per receive.
//!
//! A receive needs the descriptor, which is not the driver's: a slot has its number. The owner keeps it open
//! for as long as the slot exists, and hands it over with the slot ([`Epoll::detach`](super::Epoll::detach))
//! or takes it away after the slot ([`Epoll::release`](super::Epoll::release)).

use std::collections::VecDeque;
use std::os::fd::BorrowedFd;

use rustix::io::Errno;
use rustix::net::{self, RecvFlags};
use slab::Slab;

use super::{SocketKey, SocketSlot};
use crate::buf::{self, RecvBuf};
use crate::driver::calls::retry;
use crate::receive_epoch;

/// Maximum number of buffers that wait for their tasks.
const EARLY_MAX: usize = 32;

/// The progress of the receive that a task waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReceiveAhead {
    /// No task waits for data in a regular buffer.
    No,
    /// A task waits.
    Waits,
    /// The task was woken, and has not received yet.
    Due,
    /// The received data is in [`Early::received`].
    Done,
}

/// The receives of one loop.
#[derive(Default)]
pub(super) struct Early {
    /// The sockets of tasks that were woken in this turn, in this order.
    due: Vec<SocketKey>,
    /// The number of examined sockets.
    seen: usize,
    /// Received data, usually taken in the same order.
    received: VecDeque<(SocketKey, Result<RecvBuf, Errno>)>,
}

impl Early {
    /// A turn begins.
    pub(super) fn begin(&mut self) {
        self.due.clear();
        self.seen = 0;
    }

    /// A task was woken.
    pub(super) fn add(&mut self, key: SocketKey) {
        self.due.push(key);
    }

    /// The data received for this socket, which is [`ReceiveAhead::Done`].
    pub(super) fn take(&mut self, key: SocketKey) -> Result<RecvBuf, Errno> {
        let is_it = |(other, _): &(SocketKey, _)| *other == key;
        let taken = match self.received.front() {
            Some(first) if is_it(first) => self.received.pop_front(),
            _ => {
                let at = self.received.iter().position(is_it);
                at.and_then(|at| self.received.remove(at))
            }
        };
        debug_assert!(taken.is_some(), "nothing was received");
        taken.map_or(Err(Errno::AGAIN), |(_, received)| received)
    }

    /// Receives for the next tasks that were woken.
    pub(super) fn receive(&mut self, slots: &mut Slab<SocketSlot>) {
        while self.received.len() < EARLY_MAX
            && let Some(key) = self.due.get(self.seen)
        {
            self.seen += 1;
            // Others have received by themselves, or are closed.
            let slot = slots.get_mut(key.0 as usize).filter(|slot| slot.ahead == ReceiveAhead::Due);
            let Some(slot) = slot.filter(|slot| slot.readable) else { continue };
            // SAFETY: the descriptor is open, since the slot is there.
            let fd = unsafe { BorrowedFd::borrow_raw(slot.fd) };
            match slot.receive(fd) {
                Err(Errno::AGAIN) => {}
                received => {
                    slot.ahead = ReceiveAhead::Done;
                    self.received.push_back((*key, received));
                }
            }
        }
    }
}

impl SocketSlot {
    /// Receives into a regular buffer; EAGAIN if there is no data.
    pub(super) fn receive(&mut self, fd: BorrowedFd<'_>) -> Result<RecvBuf, Errno> {
        let mut memory = buf::take_recv_memory();
        match retry(|| net::recv(fd, &mut memory[..], RecvFlags::empty())) {
            Ok((len, _)) => {
                receive_epoch::add();
                // After a short read the queue was empty: later data raises an edge, and
                // registering reports the data present by then. Not so when the peer's end was
                // already announced: it may follow right behind the data.
                self.readable = len == memory.len() || len == 0 || self.peer_closed;
                Ok(RecvBuf::filled(memory, len))
            }
            Err(error) => {
                buf::put_recv_memory(memory);
                self.readable &= error != Errno::AGAIN;
                Err(error)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;
    use std::sync::Arc;
    use std::task::{Context, Poll, Waker};
    use std::time::Duration;

    use rustix::event::{EventfdFlags, eventfd};

    use super::super::Epoll;
    use super::*;
    use crate::buf::ReceivedBuf;
    use crate::driver::{DriverKind, DriverOptions, Role, Wait};

    struct SocketPair {
        key: SocketKey,
        own: UnixStream,
        peer: UnixStream,
    }

    fn driver() -> Epoll {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).unwrap();
        let kind = DriverKind::Epoll;
        let options = DriverOptions { kind, multi_accept: false, events_max: 512, guard: false };
        Epoll::new(options, Arc::new(event)).unwrap()
    }

    /// Sockets whose tasks wait to receive.
    fn waiting(driver: &mut Epoll, count: usize) -> Vec<SocketPair> {
        let mut sockets = Vec::new();
        for _ in 0..count {
            let (own, peer) = UnixStream::pair().unwrap();
            let key = driver.attach(own.as_fd(), Role::Stream).unwrap();
            let socket = SocketPair { key, own, peer };
            assert!(socket.poll(driver).is_none());
            sockets.push(socket);
        }
        sockets
    }

    impl SocketPair {
        /// The immediate result of a receive.
        fn poll(&self, driver: &mut Epoll) -> Option<Vec<u8>> {
            let cx = &mut Context::from_waker(Waker::noop());
            match driver.poll_recv(self.key, self.own.as_fd(), cx) {
                Poll::Ready(received) => Some(received.unwrap().to_vec()),
                Poll::Pending => None,
            }
        }
    }

    /// Sockets whose data was received early: all but the first.
    fn received_for(count: usize) -> (Epoll, Vec<SocketPair>) {
        let mut driver = driver();
        let mut sockets = waiting(&mut driver, count);
        send_numbers(&mut driver, &mut sockets);
        assert_eq!(sockets[0].poll(&mut driver), Some(vec![0]));
        (driver, sockets)
    }

    /// All peers send their number, which the driver is told.
    fn send_numbers(driver: &mut Epoll, sockets: &mut [SocketPair]) {
        for (number, socket) in sockets.iter_mut().enumerate() {
            socket.peer.write_all(&[number as u8]).unwrap();
        }
        let mut woken = Vec::new();
        driver.turn(Some(Duration::ZERO), &mut woken).unwrap();
        assert_eq!(woken.len(), sockets.len());
    }

    #[test]
    fn a_group_receives_with_its_first() {
        let mut driver = driver();
        let mut sockets = waiting(&mut driver, EARLY_MAX + 3);
        for _ in 0..3 {
            send_numbers(&mut driver, &mut sockets);
            let before = receive_epoch::count();
            let mut counts = Vec::new();
            for (number, socket) in sockets.iter().enumerate() {
                assert_eq!(socket.poll(&mut driver), Some(vec![number as u8]));
                counts.push(receive_epoch::count() - before);
            }
            let group = EARLY_MAX as u64 + 1;
            assert_eq!(counts[..=EARLY_MAX], [group; EARLY_MAX + 1]);
            assert_eq!(counts[EARLY_MAX + 1..], [group + 2; 2]);
            // A task that waits again is told of the next bytes.
            assert!(sockets.iter().all(|socket| socket.poll(&mut driver).is_none()));
        }
    }

    #[test]
    fn what_is_received_early_waits_for_the_next_receive() {
        let (mut driver, mut sockets) = received_for(4);
        // The future goes away, and more comes.
        driver.forget(sockets[2].key, Wait::Read);
        sockets[2].peer.write_all(b"more").unwrap();
        driver.turn(Some(Duration::ZERO), &mut Vec::new()).unwrap();
        assert_eq!(sockets[2].poll(&mut driver), Some(vec![2]));
        assert_eq!(sockets[2].poll(&mut driver), Some(b"more".to_vec()));
        // A large receive, and out of order.
        let (fd, cx) = (sockets[3].own.as_fd(), &mut Context::from_waker(Waker::noop()));
        let Poll::Ready(Ok(ReceivedBuf::Lent(early))) =
            driver.poll_recv_large(sockets[3].key, fd, 1 << 20, cx)
        else {
            panic!("not received")
        };
        assert_eq!(early[..], [3]);
        assert_eq!(sockets[1].poll(&mut driver), Some(vec![1]));
    }

    #[test]
    fn a_socket_with_early_data_is_not_given_away() {
        let (mut driver, sockets) = received_for(3);
        assert!(!driver.unregister(sockets[1].key, sockets[1].own.as_fd()).unwrap());
        assert_eq!(sockets[1].poll(&mut driver), Some(vec![1]));
        assert!(driver.unregister(sockets[1].key, sockets[1].own.as_fd()).unwrap());
    }

    #[test]
    fn what_a_closed_socket_had_received_does_not_concern_the_next_one() {
        let (mut driver, mut sockets) = received_for(3);
        let closed = sockets.remove(1);
        driver.detach(closed.key, closed.own.into(), &mut Vec::new());
        let next = waiting(&mut driver, 1);
        assert_eq!(next[0].key, closed.key, "the slot is used again");
        assert!(next[0].poll(&mut driver).is_none());
        assert_eq!(sockets[1].poll(&mut driver), Some(vec![2]));
    }

    #[test]
    fn the_end_of_a_stream_comes_early_too() {
        let mut driver = driver();
        let mut sockets = waiting(&mut driver, 3);
        for socket in &mut sockets {
            socket.peer.write_all(b"last").unwrap();
            socket.peer.shutdown(std::net::Shutdown::Both).unwrap();
        }
        driver.turn(Some(Duration::ZERO), &mut Vec::new()).unwrap();
        for expected in [&b"last"[..], b"", b""] {
            for socket in &sockets {
                assert_eq!(socket.poll(&mut driver).unwrap(), expected);
            }
        }
    }
}
