//! `random` and `random two`.

use std::cell::Cell;
use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};

use super::{TRIES_MAX, TierView};
use crate::conf::BalanceCriterion;

impl TierView<'_> {
    pub(super) fn random(&self, tries: &mut u32) -> Option<usize> {
        while *tries <= TRIES_MAX {
            let n = self.any();
            if self.may(n) {
                return Some(n);
            }
            *tries += 1;
        }
        self.round_robin(None)
    }

    pub(super) fn random_two(&self, by: BalanceCriterion, tries: &mut u32) -> Option<usize> {
        let mut first = None;
        while *tries <= TRIES_MAX {
            let n = self.any();
            if first == Some(n) || !self.may(n) {
                *tries += 1;
                continue;
            }
            match first {
                None => first = Some(n),
                Some(first) => return Some(if self.is_worse(n, first, by) { first } else { n }),
            }
        }
        self.round_robin(None)
    }

    /// Any peer, by weight.
    fn any(&self) -> usize {
        self.at_weight(random() % self.tier.total_weight.max(1))
    }
}

/// A random number that need not be unpredictable: xorshift64*, seeded by the system per thread.
fn random() -> u64 {
    thread_local! {
        static STATE: Cell<u64> = Cell::new(RandomState::new().build_hasher().finish() | 1);
    }
    STATE.with(|state| {
        let mut x = state.get();
        x ^= x >> 12;
        x ^= x << 25;
        x ^= x >> 27;
        state.set(x);
        x.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 16
    })
}
