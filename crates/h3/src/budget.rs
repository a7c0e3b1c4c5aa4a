//! The budgets of a connection against its floods.

use nowait_fields::budget::{
    Budget, FRAMES_PER_MESSAGE, FRAMES_PER_SECOND, FrameBudget, STREAMS_PER_SECOND,
};

use crate::Limits;
use crate::error::{ConnectionError, Flood};

/// Insertions that a finished message pays for.
const INSERTIONS_PER_MESSAGE: u32 = 64;

/// Insertions that a second pays for.
const INSERTIONS_PER_SECOND: u32 = 50;

/// The remaining budget of each [`Flood`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct Budgets {
    frames: FrameBudget,
    resets: Budget,
    insertions: Budget,
}

impl Budgets {
    pub(crate) fn new(limits: &Limits) -> Self {
        Budgets {
            frames: FrameBudget::new(limits.idle_frames_max),
            resets: Budget::new(limits.resets_max),
            insertions: Budget::new(limits.insertions_max),
        }
    }

    /// Counts one event against its budget.
    #[inline]
    pub(crate) fn spend(&mut self, flood: Flood) -> Result<(), ConnectionError> {
        let spent = match flood {
            Flood::Frames => self.frames.spend(),
            Flood::Resets => self.resets.spend(),
            Flood::Insertions => self.insertions.spend(),
            // Bounded by bytes.
            Flood::Sections | Flood::Unread => return Err(ConnectionError::Flood(flood)),
        };
        spent.map_err(|_| ConnectionError::Flood(flood))
    }

    /// How many insertions there may be.
    pub(crate) fn insertions(&self) -> u32 {
        self.insertions.left()
    }

    /// Some of them were made; so many may follow.
    pub(crate) fn insertions_left(&mut self, left: u32) {
        self.insertions.spend_down_to(left);
    }

    /// Content was sent or received.
    #[inline]
    pub(crate) fn content(&mut self, limits: &Limits, bytes: u64) {
        self.frames.content(bytes, limits.idle_frames_max);
    }

    /// A message was completed.
    #[inline]
    pub(crate) fn message(&mut self, limits: &Limits) {
        self.refill(limits, FRAMES_PER_MESSAGE, 1, INSERTIONS_PER_MESSAGE);
    }

    /// Time has passed.
    pub(crate) fn elapse(&mut self, limits: &Limits, seconds: u32) {
        let of = |per_second: u32| seconds.saturating_mul(per_second);
        self.refill(
            limits,
            of(FRAMES_PER_SECOND),
            of(STREAMS_PER_SECOND),
            of(INSERTIONS_PER_SECOND),
        );
    }

    fn refill(&mut self, limits: &Limits, frames: u32, resets: u32, insertions: u32) {
        self.frames.refill(frames, limits.idle_frames_max);
        self.resets.refill(resets, limits.resets_max);
        self.insertions.refill(insertions, limits.insertions_max);
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
        budgets.insertions_left(0);
        budgets.message(&limits);
        assert_eq!(spendable(&mut budgets, Flood::Frames), 8);
        assert_eq!(spendable(&mut budgets, Flood::Resets), 1);
        assert_eq!(budgets.insertions(), INSERTIONS_PER_MESSAGE);
        budgets.elapse(&limits, u32::MAX);
        assert_eq!(spendable(&mut budgets, Flood::Resets), 2);
        assert_eq!(spendable(&mut budgets, Flood::Sections), 0);
    }
}
