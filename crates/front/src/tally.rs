//! Counters of workers. Each worker writes only its own memory, with plain loads and stores; readers sum up
//! all workers. A sum may miss concurrent changes.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

/// The counters of all workers that this process has had. `T` should have its cache lines to
/// itself: `#[repr(align(128))]`.
pub struct Tally<T>(RwLock<Vec<Arc<T>>>);

impl<T: Default> Tally<T> {
    /// Without workers.
    pub const fn new() -> Tally<T> {
        Tally(RwLock::new(Vec::new()))
    }

    /// The counters of a new worker; they stay in the sums when it ends.
    pub fn join(&self) -> Arc<T> {
        let counters = Arc::new(T::default());
        self.0.write().unwrap_or_else(PoisonError::into_inner).push(counters.clone());
        counters
    }

    /// Sums up the workers.
    pub fn sum(&self, counter: fn(&T) -> &AtomicU64) -> u64 {
        let workers = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let values = workers.iter().map(|worker| counter(worker).load(Ordering::Relaxed));
        values.fold(0, u64::saturating_add)
    }
}

impl<T: Default> Default for Tally<T> {
    fn default() -> Tally<T> {
        Tally::new()
    }
}

/// Adds one to a counter that no other thread writes to.
pub fn add(counter: &AtomicU64) {
    add_many(counter, 1);
}

/// Adds to a counter that no other thread writes to.
pub fn add_many(counter: &AtomicU64, by: u64) {
    counter.store(counter.load(Ordering::Relaxed).wrapping_add(by), Ordering::Relaxed);
}

/// Subtracts from a counter that no other thread writes to.
pub fn take(counter: &AtomicU64) {
    counter.store(counter.load(Ordering::Relaxed).saturating_sub(1), Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_are_added_up() {
        let tally = Tally::<AtomicU64>::new();
        let workers = [tally.join(), tally.join()];
        add(&workers[0]);
        add(&workers[0]);
        add(&workers[1]);
        assert_eq!(tally.sum(|counter| counter), 3);
        take(&workers[0]);
        drop(workers);
        assert_eq!(tally.sum(|counter| counter), 2);
        let one = tally.join();
        take(&one);
        assert_eq!(one.load(Ordering::Relaxed), 0, "never below zero");
    }
}
