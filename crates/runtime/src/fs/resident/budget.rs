//! How many entries are made per second: making one costs more than several requests without it.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use crate::mounts::clock_ms;

/// Length of the period for which a share is given, in milliseconds; eight are a second, nearly.
const PERIOD_MS: u64 = 128;

/// So many per second, an eighth in each period. Threads that spend the last of a share at the same moment all
/// succeed.
#[derive(Debug)]
pub(super) struct Budget {
    share: u32,
    /// The period, and what was spent in it.
    spent: AtomicU64,
}

impl Budget {
    pub(super) fn per_second(max: u32) -> Budget {
        Budget { share: max / 8, spent: AtomicU64::new(0) }
    }

    pub(super) fn has_more(&self) -> bool {
        self.has_more_at(clock_ms())
    }

    pub(super) fn spend(&self) {
        self.spend_at(clock_ms());
    }

    fn spent_at(&self, now_ms: u64) -> (u64, u32) {
        let period = now_ms / PERIOD_MS % (1 << 32);
        let known = self.spent.load(Relaxed);
        (period, if known >> 32 == period { known as u32 } else { 0 })
    }

    fn has_more_at(&self, now_ms: u64) -> bool {
        self.spent_at(now_ms).1 < self.share
    }

    fn spend_at(&self, now_ms: u64) {
        let (period, spent) = self.spent_at(now_ms);
        self.spent.store(period << 32 | u64::from(spent.saturating_add(1)), Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_period_has_its_share() {
        let budget = Budget::per_second(80);
        for now_ms in [0, PERIOD_MS, 9 * PERIOD_MS + 5] {
            for _ in 0..10 {
                assert!(budget.has_more_at(now_ms));
                budget.spend_at(now_ms);
            }
            assert!(!budget.has_more_at(now_ms));
        }
    }
}
