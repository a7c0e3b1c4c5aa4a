//! The budgets of a connection against its floods.

use nowait_fields::budget::{
    BYTES_PER_FRAME, Budget, FRAMES_PER_MESSAGE, FRAMES_PER_SECOND, FrameBudget, STREAMS_PER_SECOND,
};

use crate::Limits;
use crate::error::{ConnectionError, Flood};

/// The remaining budget of each [`Flood`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct Budgets {
    frames: FrameBudget,
    resets: Budget,
    refused: Budget,
    /// Bytes of windows that content has used up, of a stream and of the connection, and that the peer
    /// has not given back.
    lent: u64,
}

impl Budgets {
    pub(crate) fn new(limits: &Limits) -> Self {
        Budgets {
            frames: FrameBudget::new(limits.idle_frames_max),
            resets: Budget::new(limits.resets_max),
            refused: Budget::new(limits.refused_max),
            lent: 0,
        }
    }

    /// Counts one event against its budget.
    #[inline]
    pub(crate) fn spend(&mut self, flood: Flood) -> Result<(), ConnectionError> {
        let spent = match flood {
            Flood::Frames => self.frames.spend(),
            Flood::Resets => self.resets.spend(),
            Flood::Refused => self.refused.spend(),
        };
        spent.map_err(|_| ConnectionError::Flood(flood))
    }

    /// Content was sent: the peer will give back two windows, in as many updates as it reads pieces,
    /// and may do so long after.
    #[inline]
    pub(crate) fn sent(&mut self, limits: &Limits, bytes: usize) {
        self.lent = self.lent.saturating_add(2 * bytes as u64);
        self.content(limits, bytes);
    }

    /// A window was enlarged. Updates that return the window used by content are no flood, unless they are
    /// tiny.
    #[inline]
    pub(crate) fn window(&mut self, increment: u32) -> Result<(), ConnectionError> {
        match self.lent.checked_sub(increment.into()) {
            Some(left) if increment >= BYTES_PER_FRAME => {
                self.lent = left;
                Ok(())
            }
            _ => self.spend(Flood::Frames),
        }
    }

    /// Content was sent or received.
    #[inline]
    pub(crate) fn content(&mut self, limits: &Limits, bytes: usize) {
        self.frames.content(bytes as u64, limits.idle_frames_max);
    }

    /// A message was completed.
    #[inline]
    pub(crate) fn message(&mut self, limits: &Limits) {
        self.refill(limits, FRAMES_PER_MESSAGE, 1);
    }

    /// Time has passed.
    pub(crate) fn elapse(&mut self, limits: &Limits, seconds: u32) {
        let frames = seconds.saturating_mul(FRAMES_PER_SECOND);
        self.refill(limits, frames, seconds.saturating_mul(STREAMS_PER_SECOND));
    }

    fn refill(&mut self, limits: &Limits, frames: u32, streams: u32) {
        self.frames.refill(frames, limits.idle_frames_max);
        self.resets.refill(streams, limits.resets_max);
        self.refused.refill(streams, limits.refused_max);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_refills_each_budget() {
        let limits = Limits { idle_frames_max: 10, resets_max: 2, ..Limits::default() };
        let mut budgets = Budgets::new(&limits);
        let spendable = |budgets: &mut Budgets, flood| {
            (0..100).take_while(|_| budgets.spend(flood).is_ok()).count()
        };
        assert_eq!(spendable(&mut budgets, Flood::Frames), 10);
        assert_eq!(spendable(&mut budgets, Flood::Resets), 2);
        budgets.message(&limits);
        assert_eq!(spendable(&mut budgets, Flood::Frames), 8);
        assert_eq!(spendable(&mut budgets, Flood::Resets), 1);
        budgets.elapse(&limits, u32::MAX);
        assert_eq!(spendable(&mut budgets, Flood::Frames), 10);
        assert_eq!(spendable(&mut budgets, Flood::Resets), 2);
    }

    #[test]
    fn windows_that_content_has_used_up_are_given_back_for_nothing() {
        let limits = Limits { idle_frames_max: 10, ..Limits::default() };
        let mut budgets = Budgets::new(&limits);
        let given = |budgets: &mut Budgets, size| {
            (0..100).take_while(|_| budgets.window(size).is_ok()).count()
        };
        budgets.sent(&limits, 256 * 10);
        assert_eq!(given(&mut budgets, 256), 20 + 10);
        budgets.sent(&limits, 256 * 10);
        assert_eq!(given(&mut budgets, 255), 10);
        assert_eq!(given(&mut budgets, 256 * 20), 1);
        assert_eq!(given(&mut budgets, 256), 0);
    }
}
