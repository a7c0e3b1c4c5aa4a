//! Budgets against floods, counted without a clock: costly input without effect spends them, useful work refills them. A
//! caller with a clock may refill them for time that has passed, so that long-lived connections with little traffic never
//! run out.
//!
//! Used by the cores of both versions, which name their floods. A budget never decides what follows from its end.

/// Bytes of content, sent or received, that pay for one frame.
pub const BYTES_PER_FRAME: u32 = 256;

/// Frames that a finished message pays for.
pub const FRAMES_PER_MESSAGE: u32 = 8;

/// Frames that a second pays for.
pub const FRAMES_PER_SECOND: u32 = 50;

/// Streams that were reset or refused that a second pays for.
pub const STREAMS_PER_SECOND: u32 = 10;

/// A budget is spent: the peer floods the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Spent;

/// The remaining budget for events of one kind. Its maximum stands in the limits of the connection, and is handed in.
#[derive(Debug, Clone, Copy)]
pub struct Budget {
    left: u32,
}

impl Budget {
    /// A full budget for so many events.
    pub fn new(max: u32) -> Budget {
        Budget { left: max }
    }

    /// Counts one event.
    ///
    /// # Errors
    /// [`Spent`]
    #[inline]
    pub fn spend(&mut self) -> Result<(), Spent> {
        self.left = self.left.checked_sub(1).ok_or(Spent)?;
        Ok(())
    }

    /// Events that may still come.
    pub fn left(&self) -> u32 {
        self.left
    }

    /// Counts events until only so many are left.
    pub fn spend_down_to(&mut self, left: u32) {
        self.left = self.left.min(left);
    }

    /// Work pays for so many events, up to the maximum.
    #[inline]
    pub fn refill(&mut self, events: u32, max: u32) {
        self.left = max.min(self.left.saturating_add(events));
    }
}

/// The remaining budget for frames without effect, for which content pays.
#[derive(Debug, Clone, Copy)]
pub struct FrameBudget {
    frames: Budget,
    /// Bytes that have not yet paid for a frame.
    bytes: u32,
}

impl FrameBudget {
    /// A full budget for so many frames.
    pub fn new(max: u32) -> FrameBudget {
        FrameBudget { frames: Budget::new(max), bytes: 0 }
    }

    /// Counts one frame.
    ///
    /// # Errors
    /// [`Spent`]
    #[inline]
    pub fn spend(&mut self) -> Result<(), Spent> {
        self.frames.spend()
    }

    /// Content was sent or received: so many bytes.
    #[inline]
    pub fn content(&mut self, bytes: u64, max: u32) {
        let bytes = bytes.saturating_add(self.bytes.into());
        self.bytes = (bytes % u64::from(BYTES_PER_FRAME)) as u32;
        let frames = bytes / u64::from(BYTES_PER_FRAME);
        self.frames.refill(u32::try_from(frames).unwrap_or(u32::MAX), max);
    }

    /// Other work pays for so many frames.
    #[inline]
    pub fn refill(&mut self, frames: u32, max: u32) {
        self.frames.refill(frames, max);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_refills_up_to_the_limit() {
        let mut budget = Budget::new(2);
        assert_eq!((budget.spend(), budget.spend(), budget.spend()), (Ok(()), Ok(()), Err(Spent)));
        budget.refill(1, 2);
        assert_eq!(budget.left(), 1);
        budget.refill(u32::MAX, 2);
        assert_eq!(budget.left(), 2);
        budget.spend_down_to(5);
        assert_eq!(budget.left(), 2);
        budget.spend_down_to(0);
        assert_eq!(budget.spend(), Err(Spent));
    }

    #[test]
    fn content_pays_for_frames() {
        let mut budget = FrameBudget::new(10);
        let spendable =
            |budget: &mut FrameBudget| (0..100).take_while(|_| budget.spend().is_ok()).count();
        assert_eq!(spendable(&mut budget), 10);
        budget.content(255, 10);
        assert_eq!(spendable(&mut budget), 0);
        budget.content(1, 10);
        assert_eq!(spendable(&mut budget), 1);
        budget.content(u64::MAX, 10);
        assert_eq!(spendable(&mut budget), 10);
        budget.refill(3, 10);
        assert_eq!(spendable(&mut budget), 3);
    }
}
