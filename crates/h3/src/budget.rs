//! Budgets against floods, counted without a clock: costly input without effect spends them, useful work refills
//! them. A caller with a clock may refill them for time that has passed, so that long-lived connections with little
//! traffic never run out.

use crate::Limits;
use crate::error::{ConnectionError, Flood};

/// Bytes of content, sent or received, that pay for one frame.
const BYTES_PER_FRAME: u64 = 256;

/// Frames that a finished message pays for.
const FRAMES_PER_MESSAGE: u32 = 8;

/// Insertions that a finished message pays for.
const INSERTIONS_PER_MESSAGE: u32 = 64;

/// Frames, and insertions, that a second pays for.
const FRAMES_PER_SECOND: u32 = 50;

/// Resets that a second pays for.
const RESETS_PER_SECOND: u32 = 10;

/// The remaining budget of each [`Flood`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct Budgets {
    frames: u32,
    resets: u32,
    insertions: u32,
    /// Bytes that have not yet paid for a frame.
    bytes: u64,
}

impl Budgets {
    pub(crate) fn new(limits: &Limits) -> Self {
        Budgets {
            frames: limits.idle_frames_max,
            resets: limits.resets_max,
            insertions: limits.insertions_max,
            bytes: 0,
        }
    }

    /// Counts one event against its budget.
    #[inline]
    pub(crate) fn spend(&mut self, flood: Flood) -> Result<(), ConnectionError> {
        let left = match flood {
            Flood::Frames => &mut self.frames,
            Flood::Resets => &mut self.resets,
            Flood::Insertions => &mut self.insertions,
            // Bounded by bytes.
            Flood::Sections | Flood::Unread => return Err(ConnectionError::Flood(flood)),
        };
        *left = left.checked_sub(1).ok_or(ConnectionError::Flood(flood))?;
        Ok(())
    }

    /// How many insertions there may be.
    pub(crate) fn insertions(&self) -> u32 {
        self.insertions
    }

    /// Some of them were made; so many may follow.
    pub(crate) fn insertions_left(&mut self, left: u32) {
        self.insertions = self.insertions.min(left);
    }

    /// Content was sent or received.
    #[inline]
    pub(crate) fn content(&mut self, limits: &Limits, bytes: u64) {
        let bytes = self.bytes.saturating_add(bytes);
        self.bytes = bytes % BYTES_PER_FRAME;
        let frames = (bytes / BYTES_PER_FRAME).min(limits.idle_frames_max.into());
        self.frames = limits.idle_frames_max.min(self.frames.saturating_add(frames as u32));
    }

    /// A message was completed.
    #[inline]
    pub(crate) fn message(&mut self, limits: &Limits) {
        self.refill(limits, FRAMES_PER_MESSAGE, 1, INSERTIONS_PER_MESSAGE);
    }

    /// Time has passed.
    pub(crate) fn elapse(&mut self, limits: &Limits, seconds: u32) {
        let frames = seconds.saturating_mul(FRAMES_PER_SECOND);
        self.refill(limits, frames, seconds.saturating_mul(RESETS_PER_SECOND), frames);
    }

    fn refill(&mut self, limits: &Limits, frames: u32, resets: u32, insertions: u32) {
        self.frames = limits.idle_frames_max.min(self.frames.saturating_add(frames));
        self.resets = limits.resets_max.min(self.resets.saturating_add(resets));
        self.insertions = limits.insertions_max.min(self.insertions.saturating_add(insertions));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_refills_up_to_the_limit() {
        let limits = Limits { idle_frames_max: 10, resets_max: 2, ..Limits::default() };
        let mut budgets = Budgets::new(&limits);
        let spendable = |budgets: &mut Budgets, flood| {
            (0..100).take_while(|_| budgets.spend(flood).is_ok()).count()
        };
        assert_eq!(spendable(&mut budgets, Flood::Frames), 10);
        budgets.content(&limits, 255);
        assert_eq!(spendable(&mut budgets, Flood::Frames), 0);
        budgets.content(&limits, 1);
        assert_eq!(spendable(&mut budgets, Flood::Frames), 1);
        budgets.content(&limits, u64::MAX);
        assert_eq!(spendable(&mut budgets, Flood::Frames), 10);
        assert_eq!(spendable(&mut budgets, Flood::Resets), 2);
        budgets.message(&limits);
        assert_eq!(spendable(&mut budgets, Flood::Frames), 8);
        assert_eq!(spendable(&mut budgets, Flood::Resets), 1);
        budgets.elapse(&limits, u32::MAX);
        assert_eq!(spendable(&mut budgets, Flood::Resets), 2);
        assert_eq!(spendable(&mut budgets, Flood::Sections), 0);
    }
}
