//! Accepting with the ring: a poll reports queued connections, and direct calls take them.
//!
//! Accept operations would save calls, but are not used: a multishot accept takes everything that
//! is queued, whether or not the worker has room for it or another worker is idle, and holds
//! descriptors that nothing serves. So a connection is taken when a task asks for one, and the rest
//! stays in the kernel's queue, bounded by `listen ... backlog`.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::task::{Context, Poll, Waker};

use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::SocketFlags;

use super::super::calls::accept;
use super::super::socket::SocketKey;
use super::super::waiters::remember;
use super::Uring;
use super::slot::{SlotFlag, UringOp};
use crate::net::Address;

/// EPOLLEXCLUSIVE: one waiter of a shared socket is woken per connection.
const EXCLUSIVE: u32 = 1 << 28;

/// Maximum number of connections taken per poll.
const BATCH_MAX: u16 = 32;

/// After this many consecutive full batches, the next ones are larger.
const STREAK: u16 = 8;

/// Number of connections to take before polling the ring again: roughly as many as are queued, to
/// avoid the call that finds none.
#[derive(Clone, Copy)]
pub(super) struct Batch {
    size: u16,
    /// Left to take of the current batch.
    left: u16,
    /// Consecutive full batches.
    streak: u16,
}

impl Batch {
    pub(super) fn new() -> Batch {
        Batch { size: 1, left: 1, streak: 0 }
    }

    /// The ring has reported queued connections.
    fn begin(&mut self) {
        self.left = self.size;
    }

    /// A connection was taken. Returns whether to try the next one at once.
    fn taken(&mut self) -> bool {
        self.left = self.left.saturating_sub(1);
        if self.left > 0 {
            return true;
        }
        self.streak += 1;
        if self.streak >= STREAK {
            *self = Batch { size: (self.size * 2).min(BATCH_MAX), left: 0, streak: 0 };
        }
        false
    }

    /// No connection was found.
    fn found_none(&mut self) {
        *self = Batch { size: (self.size - self.left).max(1), left: 0, streak: 0 };
    }
}

impl Uring {
    pub(crate) fn poll_accept(
        &mut self,
        key: SocketKey,
        fd: BorrowedFd<'_>,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<(OwnedFd, Option<Address>)>> {
        let slot = &mut self.slots[key.0 as usize];
        if slot.is(SlotFlag::CanRead) {
            // The connection itself is blocking, as the ring needs it.
            match accept(fd, SocketFlags::CLOEXEC) {
                Ok(accepted) => {
                    slot.set(SlotFlag::CanRead, self.batch.taken() || self.multi_accept);
                    return Poll::Ready(Ok(accepted));
                }
                Err(Errno::AGAIN) => {
                    slot.set(SlotFlag::CanRead, false);
                    self.batch.found_none();
                }
                Err(error) => return Poll::Ready(Err(error.into())),
            }
        }
        remember(&mut slot.read, cx);
        if !slot.has(UringOp::Accept) {
            let exclusive = if slot.is(SlotFlag::Shared) { EXCLUSIVE } else { 0 };
            let events = u32::from(PollFlags::IN.bits()) | exclusive;
            self.start_poll(key.0 as usize, UringOp::Accept, events);
        }
        Poll::Pending
    }

    pub(super) fn accept_done(
        &mut self,
        index: usize,
        result: Result<usize, Errno>,
        woken: &mut Vec<Waker>,
    ) {
        let slot = &mut self.slots[index];
        slot.set(SlotFlag::Paused, false);
        // Any other failure is reported by the call itself.
        if result != Err(Errno::CANCELED) {
            slot.set(SlotFlag::CanRead, true);
            self.batch.begin();
        }
        woken.extend(slot.read.take());
    }

    pub(crate) fn pause_accept(&mut self, key: SocketKey) {
        let slot = &mut self.slots[key.0 as usize];
        slot.set(SlotFlag::CanRead, false);
        if slot.has(UringOp::Accept) && !slot.is(SlotFlag::Paused) {
            slot.set(SlotFlag::Paused, true);
            self.cancel(key.0 as usize, UringOp::Accept);
        }
    }

    /// Resolves once a paused listener is no longer notified of connections.
    pub(crate) fn poll_paused(&mut self, key: SocketKey, cx: &mut Context<'_>) -> Poll<()> {
        let slot = &mut self.slots[key.0 as usize];
        if slot.has(UringOp::Accept) {
            remember(&mut slot.read, cx);
            return Poll::Pending;
        }
        Poll::Ready(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Number of calls that find none, with `at_a_time` connections arriving each of `times` times.
    fn misses(batch: &mut Batch, at_a_time: u32, times: u32) -> u32 {
        let mut misses = 0;
        for _ in 0..times {
            let mut queued = at_a_time;
            while queued > 0 {
                batch.begin();
                loop {
                    if queued == 0 {
                        batch.found_none();
                        misses += 1;
                        break;
                    }
                    queued -= 1;
                    if !batch.taken() {
                        break;
                    }
                }
            }
        }
        misses
    }

    #[test]
    fn few_calls_find_nothing() {
        let mut batch = Batch::new();
        assert!(misses(&mut batch, 1, 100) <= 13);
        assert!(misses(&mut batch, 100, 100) <= 100);
        assert!(batch.size > 1);
        assert!(misses(&mut batch, 1, 100) <= 14);
    }
}
