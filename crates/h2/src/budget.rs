//! Budgets against floods, counted without a clock: costly frames without effect spend them, useful
//! work refills them. A caller with a clock may refill them for time that has passed, so that
//! long-lived connections with little traffic never run out.

use crate::Limits;
use crate::error::{ConnectionError, Flood};

/// Bytes of content, sent or received, that pay for one frame.
const BYTES_PER_FRAME: u32 = 256;

/// Frames that a finished message pays for.
const FRAMES_PER_MESSAGE: u32 = 8;

/// Frames that a second pays for.
const FRAMES_PER_SECOND: u32 = 50;

/// Resets, and refused streams, that a second pays for.
const STREAMS_PER_SECOND: u32 = 10;

/// The remaining budget of each [`Flood`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct Budgets {
    frames: u32,
    resets: u32,
    refused: u32,
    /// Bytes that have not yet paid for a frame.
    bytes: u32,
    /// Bytes of windows that content has used up, of a stream and of the connection, and that the peer
    /// has not given back.
    lent: u64,
}

impl Budgets {
    pub(crate) fn new(limits: &Limits) -> Self {
        Budgets {
            frames: limits.idle_frames_max,
            resets: limits.resets_max,
            refused: limits.refused_max,
            bytes: 0,
            lent: 0,
        }
    }

    /// Counts one event against its budget.
    #[inline]
    pub(crate) fn spend(&mut self, flood: Flood) -> Result<(), ConnectionError> {
        let left = match flood {
            Flood::Frames => &mut self.frames,
            Flood::Resets => &mut self.resets,
            Flood::Refused => &mut self.refused,
        };
        *left = left.checked_sub(1).ok_or(ConnectionError::Flood(flood))?;
        Ok(())
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
        let bytes = self.bytes as usize + bytes;
        self.bytes = (bytes % BYTES_PER_FRAME as usize) as u32;
        let frames = (bytes / BYTES_PER_FRAME as usize).min(limits.idle_frames_max as usize);
        self.frames = limits.idle_frames_max.min(self.frames.saturating_add(frames as u32));
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
        self.frames = limits.idle_frames_max.min(self.frames.saturating_add(frames));
        self.resets = limits.resets_max.min(self.resets.saturating_add(streams));
        self.refused = limits.refused_max.min(self.refused.saturating_add(streams));
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
        budgets.content(&limits, usize::MAX / 2);
        assert_eq!(spendable(&mut budgets, Flood::Frames), 10);
        assert_eq!(spendable(&mut budgets, Flood::Resets), 2);
        budgets.message(&limits);
        assert_eq!(spendable(&mut budgets, Flood::Frames), 8);
        assert_eq!(spendable(&mut budgets, Flood::Resets), 1);
        budgets.elapse(&limits, u32::MAX);
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
