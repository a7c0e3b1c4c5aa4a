//! Sends whose success has no completion (IOSQE_CQE_SKIP_SUCCESS).
//!
//! A small send that was reported as done needs no completion: the kernel copies its memory in the
//! call that submits it, or fails. Without one, `io_uring_enter` does not return before something
//! happens that matters. With one, each turn with a send was followed by a turn for its completion.
//!
//! Such a send must not wait for room (MSG_DONTWAIT). What the socket has no room for fails, and a
//! failure does have a completion; the rest is then submitted as an ordinary send. So once the kernel
//! has begun all submissions, and all completions have been seen, each of these sends that none of
//! them concerned has succeeded, and the kernel uses its memory no more.

use std::task::Waker;
use std::time::Duration;

use io_uring::squeue;

use super::Uring;
use super::slot::{Sending, UringOp};

/// More memory than this is not held while waiting for something to happen.
const HELD_BYTES_MAX: usize = 128 * 1024;

impl Uring {
    /// Marks a send that is about to be submitted.
    pub(super) fn skip_success(&mut self, index: usize, entry: squeue::Entry) -> squeue::Entry {
        self.skipped.push((index, self.turns));
        entry.flags(squeue::Flags::SKIP_SUCCESS)
    }

    /// Limits how long a turn may wait. Not at all if something depends on the success of a send, as
    /// nothing would report it.
    pub(super) fn bound_wait(&self, max: Option<Duration>) -> Option<Duration> {
        let mut held = 0;
        let mut awaited = self.skipped.iter().any(|(index, _)| {
            let Some(slot) = self.slots.get(*index) else { return false };
            let appended = |sending: &Sending| !sending.after.is_empty();
            held += slot.sending.as_ref().map_or(0, |sending| sending.offered);
            slot.closing.is_some()
                || slot.shutdown.is_some()
                || slot.waiters.await_write()
                || slot.sending.as_deref().is_some_and(appended)
        });
        awaited |= held > HELD_BYTES_MAX;
        if awaited { Some(Duration::ZERO) } else { self.lingering.bound(max) }
    }

    /// The sends of which it is known, once the completions are seen that there are now, whether they
    /// have succeeded.
    pub(super) fn take_skipped(&mut self) -> Vec<(usize, u32)> {
        match self.ring.is_settled() {
            true => std::mem::take(&mut self.skipped),
            false => Vec::new(),
        }
    }

    /// Completes those sends that no completion has concerned.
    pub(super) fn complete_skipped(
        &mut self,
        mut sends: Vec<(usize, u32)>,
        woken: &mut Vec<Waker>,
    ) {
        for (index, turn) in sends.drain(..) {
            let Some(slot) = self.slots.get_mut(index) else { continue };
            let is_this = |sending: &&Sending| sending.skips && sending.turn == turn;
            let Some(sending) = slot.sending.as_deref().filter(is_this) else { continue };
            let len = sending.offered;
            slot.in_flight &= !UringOp::Send.bit();
            self.send_done(index, Ok(len), woken);
            self.close_if_done(index);
        }
        // What was submitted meanwhile stays for the next turn.
        if self.skipped.is_empty() {
            self.skipped = sends;
        }
    }
}
