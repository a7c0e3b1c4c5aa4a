//! Removing a socket from the ring without closing it, to move it to another worker's ring.
//!
//! By the rules at the top of `mod.rs` no operation may be in flight on the descriptor when
//! another owner gets it: a receive armed while the connection was idle could consume data meant
//! for the next owner.

use std::io;
use std::task::{Context, Poll, Waker};

use rustix::io::Errno;

use super::super::socket::SocketKey;
use super::super::waiters::remember;
use super::Uring;
use super::slot::UringOp;

impl Uring {
    /// Completes sends reported as sent, then cancels the operations in flight and waits for them to end.
    /// False if there is received data that was not taken; the next receive returns it.
    pub(crate) fn poll_release(
        &mut self,
        key: SocketKey,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<bool>> {
        std::task::ready!(self.poll_flush(key, cx))?;
        let index = key.0 as usize;
        let slot = &mut self.slots[index];
        if slot.has(UringOp::Send) || slot.sending.is_some() {
            return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
        }
        if let Some(place) = slot.received {
            let place = place.get() as usize - 1;
            if !matches!(self.received.get(place), Some(Err(Errno::CANCELED))) {
                return Poll::Ready(Ok(false));
            }
            slot.received = None;
            drop(self.received.remove(place));
        }
        let slot = &mut self.slots[index];
        if slot.in_flight == 0 {
            return Poll::Ready(Ok(true));
        }
        // Whichever completes last wakes the task.
        remember(&mut slot.read, cx);
        slot.waiters.remember_write(cx);
        slot.waiters.remember_hangup(cx);
        for op in UringOp::OF_SLOTS {
            if self.slots[index].has(op) {
                self.cancel(index, op);
            }
        }
        Poll::Pending
    }

    /// Removes a socket without operations in flight.
    pub(crate) fn release(&mut self, key: SocketKey, dropped: &mut Vec<Waker>) {
        let mut slot = self.remove(key.0 as usize);
        let waiters = [slot.waiters.take_write(), slot.waiters.take_hangup()];
        dropped.extend(slot.read.take().into_iter().chain(waiters.into_iter().flatten()));
        debug_assert!(slot.in_flight == 0 && slot.received.is_none());
    }
}
