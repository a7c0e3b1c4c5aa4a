//! Accepting with the ring: it tells when connections are queued, and they are taken by direct calls.
//!
//! Not by accept operations, though they would spare calls: a multishot accept takes all that is
//! queued, whether the worker has room for it or another one is idle, and holds descriptors that
//! nobody serves. So a connection is taken when somebody asks for it, and the rest stays in the
//! kernel's queue, which `listen ... backlog` bounds.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::task::{Context, Poll, Waker};

use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::SocketFlags;

use super::super::uring_slot::{Is, Op};
use super::super::{Key, accept, remember};
use super::Uring;
use crate::net::Address;

/// EPOLLEXCLUSIVE: of those who wait for a shared socket one is woken per connection.
const EXCLUSIVE: u32 = 1 << 28;

/// Connections taken per poll at most.
const BATCH_MAX: u16 = 32;

/// After so many batches in a row that were taken whole, the next ones are larger.
const STREAK: u16 = 8;

/// How many connections are taken before the ring is asked for more: about as many as there are, to
/// spare the call that finds none.
#[derive(Clone, Copy)]
pub(super) struct Batch {
    size: u16,
    /// To be taken of this one.
    left: u16,
    /// Batches that were taken whole, in a row.
    streak: u16,
}

impl Batch {
    pub(super) fn new() -> Batch {
        Batch { size: 1, left: 1, streak: 0 }
    }

    /// The ring has told that there are connections.
    fn begin(&mut self) {
        self.left = self.size;
    }

    /// One was taken. Whether to try the next one at once.
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

    /// There was none.
    fn found_none(&mut self) {
        *self = Batch { size: (self.size - self.left).max(1), left: 0, streak: 0 };
    }
}

impl Uring {
    pub(crate) fn poll_accept(
        &mut self,
        key: Key,
        fd: BorrowedFd<'_>,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<(OwnedFd, Option<Address>)>> {
        let slot = &mut self.slots[key.0 as usize];
        if slot.is(Is::CanRead) {
            // The connection itself is blocking, as the ring wants it.
            match accept(fd, SocketFlags::CLOEXEC) {
                Ok(accepted) => {
                    slot.set(Is::CanRead, self.batch.taken() || self.multi_accept);
                    return Poll::Ready(Ok(accepted));
                }
                Err(Errno::AGAIN) => {
                    slot.set(Is::CanRead, false);
                    self.batch.found_none();
                }
                Err(error) => return Poll::Ready(Err(error.into())),
            }
        }
        remember(&mut slot.read, cx);
        if !slot.has(Op::Accept) {
            let exclusive = if slot.is(Is::Shared) { EXCLUSIVE } else { 0 };
            let events = u32::from(PollFlags::IN.bits()) | exclusive;
            self.start_poll(key.0 as usize, Op::Accept, events);
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
        slot.set(Is::Paused, false);
        // Whatever else has failed, the call will tell.
        if result != Err(Errno::CANCELED) {
            slot.set(Is::CanRead, true);
            self.batch.begin();
        }
        woken.extend(slot.read.take());
    }

    pub(crate) fn pause_accept(&mut self, key: Key) {
        let slot = &mut self.slots[key.0 as usize];
        slot.set(Is::CanRead, false);
        if slot.has(Op::Accept) && !slot.is(Is::Paused) {
            slot.set(Is::Paused, true);
            self.cancel(key.0 as usize, Op::Accept);
        }
    }

    /// Resolves when a paused listener is told of no more connections.
    pub(crate) fn poll_paused(&mut self, key: Key, cx: &mut Context<'_>) -> Poll<()> {
        let slot = &mut self.slots[key.0 as usize];
        if slot.has(Op::Accept) {
            remember(&mut slot.read, cx);
            return Poll::Pending;
        }
        Poll::Ready(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Calls that find none, when so many connections come at a time, each time.
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
