//! How many connections are accepted before the kernel is asked for events again. Used by both drivers.

/// Maximum number of connections taken at once.
const BATCH_MAX: u16 = 32;

/// After this many consecutive full batches, the next ones are larger.
const STREAK: u16 = 8;

/// Number of connections to take before asking the kernel for events again: roughly as many as are queued, to
/// avoid the call that finds none.
#[derive(Clone, Copy)]
pub(super) struct AcceptBatch {
    size: u16,
    /// Left to take of the current batch.
    left: u16,
    /// Consecutive full batches.
    streak: u16,
}

impl AcceptBatch {
    pub(super) fn new() -> AcceptBatch {
        AcceptBatch { size: 1, left: 0, streak: 0 }
    }

    /// The kernel has reported queued connections.
    pub(super) fn begin(&mut self) {
        self.left = self.size;
    }

    /// No batch is in progress.
    pub(super) fn is_over(&self) -> bool {
        self.left == 0
    }

    /// A connection was taken. Returns whether to try the next one at once.
    pub(super) fn taken(&mut self) -> bool {
        self.left = self.left.saturating_sub(1);
        if self.left > 0 {
            return true;
        }
        self.streak += 1;
        if self.streak >= STREAK {
            *self = AcceptBatch { size: (self.size * 2).min(BATCH_MAX), left: 0, streak: 0 };
        }
        false
    }

    /// No connection was found.
    pub(super) fn found_none(&mut self) {
        *self = AcceptBatch { size: (self.size - self.left).max(1), left: 0, streak: 0 };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Number of calls that find none, with `at_a_time` connections arriving each of `times` times.
    fn misses(batch: &mut AcceptBatch, at_a_time: u32, times: u32) -> u32 {
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
        let mut batch = AcceptBatch::new();
        assert!(misses(&mut batch, 1, 100) <= 13);
        assert!(misses(&mut batch, 100, 100) <= 100);
        assert!(batch.size > 1);
        assert!(misses(&mut batch, 1, 100) <= 14);
    }
}
