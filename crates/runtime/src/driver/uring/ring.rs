//! The ring itself: submissions in their order, one call per turn, completions.
//!
//! The order is that of [`SubmissionRing::push`], always: a send must not overtake another on its socket, nor
//! an operation its own cancellation.

use std::collections::VecDeque;
use std::time::Duration;

use io_uring::types::{SubmitArgs, Timespec};
use io_uring::{IoUring, squeue};
use rustix::io::Errno;

/// IORING_ENTER_GETEVENTS, IORING_ENTER_EXT_ARG.
const ENTER_GETEVENTS: u32 = 1;
const ENTER_EXT_ARG: u32 = 1 << 3;

/// A ring, and the submissions that do not fit into it yet.
pub(super) struct SubmissionRing {
    ring: IoUring,
    /// Submissions in their order. Bounded, since a socket has at most one operation of each kind
    /// and its cancellation in flight.
    backlog: VecDeque<squeue::Entry>,
}

impl SubmissionRing {
    pub(super) fn new(ring: IoUring) -> SubmissionRing {
        SubmissionRing { ring, backlog: VecDeque::new() }
    }

    /// Queues a submission behind all earlier ones.
    pub(super) fn push(&mut self, entry: squeue::Entry) {
        if self.backlog.is_empty() {
            if self.offer(&entry) {
                return;
            }
            // The queue is full: submit it.
            let _ = self.ring.submit();
            if self.offer(&entry) {
                return;
            }
        }
        self.backlog.push_back(entry);
    }

    fn offer(&mut self, entry: &squeue::Entry) -> bool {
        // SAFETY: (of the operation) the descriptors and memory that entries name live until their
        // completion, by the rules on top of `mod.rs`.
        unsafe { self.ring.submission().push(entry) }.is_ok()
    }

    /// Submits queued entries and waits for a completion, for at most `max` (`None`: indefinitely).
    pub(super) fn enter(&mut self, max: Option<Duration>) -> Result<(), Errno> {
        while let Some(entry) = self.backlog.pop_front() {
            if !self.offer(&entry) {
                self.backlog.push_front(entry);
                break;
            }
        }
        let max = if self.backlog.is_empty() { max } else { Some(Duration::ZERO) };
        let submit = self.ring.submission().len() as u32;
        let wait = u32::from(max != Some(Duration::ZERO));
        let limit = max.map(Timespec::from);
        let args = match &limit {
            Some(limit) if wait > 0 => SubmitArgs::new().timespec(limit),
            _ => SubmitArgs::new(),
        };
        let flags = ENTER_GETEVENTS | ENTER_EXT_ARG;
        // SAFETY: the arguments are of the form that EXT_ARG announces and outlive the call. What
        // is submitted was vouched for in `offer`.
        let result = unsafe { self.ring.submitter().enter(submit, wait, flags, Some(&args)) };
        match result {
            Ok(_) => Ok(()),
            Err(error) => Err(Errno::from_io_error(&error).unwrap_or(Errno::IO)),
        }
    }

    /// Whether the kernel has begun everything that was queued, and has reported everything that has
    /// completed.
    pub(super) fn is_settled(&mut self) -> bool {
        let queue = self.ring.submission();
        self.backlog.is_empty() && queue.is_empty() && !queue.cq_overflow()
    }

    /// The available completions: user data, result and flags of each.
    pub(super) fn completions(&mut self) -> impl Iterator<Item = (u64, i32, u32)> {
        self.ring.completion().map(|entry| (entry.user_data(), entry.result(), entry.flags()))
    }
}

#[cfg(test)]
mod tests {
    use io_uring::opcode;

    use super::*;

    #[test]
    fn submissions_keep_their_order_when_the_queue_is_full() {
        // A disabled ring consumes no entries: those that do not fit have to wait.
        let Ok(ring) = IoUring::builder().setup_r_disabled().build(2) else {
            eprintln!("io_uring is not tested here");
            return;
        };
        let mut ring = SubmissionRing::new(ring);
        let nop = |number| opcode::Nop::new().build().user_data(number);
        (1..=3).for_each(|number| ring.push(nop(number)));
        ring.ring.submitter().register_enable_rings().unwrap();
        ring.ring.submit().unwrap();
        // Now there is room, but the third still waits.
        (4..=6).for_each(|number| ring.push(nop(number)));
        let mut completed = Vec::new();
        while completed.len() < 6 {
            ring.enter(Some(Duration::ZERO)).unwrap();
            completed.extend(ring.completions().map(|(number, ..)| number));
        }
        assert_eq!(completed, [1, 2, 3, 4, 5, 6]);
    }
}
