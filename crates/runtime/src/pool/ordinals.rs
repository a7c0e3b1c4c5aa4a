//! Clients and files of a simulated pool by their order of appearance: the numbers that they have
//! outside differ between runs, and the order of service depends on them.

use std::sync::{Mutex, PoisonError};

use rustc_hash::FxHashMap;

/// Odd, so that different ordinals stay different; large, so that they look random.
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

/// The numbers seen so far.
#[derive(Default)]
pub(super) struct Ordinals(Mutex<FxHashMap<u64, u64>>);

impl Ordinals {
    /// The number that stands for `number`; 0 stays 0.
    pub(super) fn of(&self, number: u64) -> u64 {
        if number == 0 {
            return 0;
        }
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let next = known.len() as u64 + 1;
        known.entry(number).or_insert(next).wrapping_mul(SPREAD)
    }
}
