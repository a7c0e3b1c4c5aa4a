//! Which entries are being made: few at a time, and each once.
//!
//! Clients that ask for the same new path at the same time would have an entry made by several threads, of
//! which all but the last are thrown away.

use std::sync::atomic::AtomicU64;
#[cfg(test)]
use std::sync::atomic::Ordering::Acquire;
use std::sync::atomic::Ordering::{Relaxed, Release};

/// Most entries that are being made at a time.
pub(super) const MAKING_MAX: usize = 64;

/// The hashes of their paths; 0: free.
#[derive(Debug)]
pub(super) struct BuildSet([AtomicU64; MAKING_MAX]);

impl Default for BuildSet {
    fn default() -> BuildSet {
        BuildSet([const { AtomicU64::new(0) }; MAKING_MAX])
    }
}

/// Why an entry is not made now.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum BuildBusy {
    /// It is being made.
    WithThis,
    /// There are enough others.
    WithOthers,
}

/// An entry is being made, until this is dropped.
#[derive(Debug)]
pub(super) struct Permit<'a>(&'a AtomicU64);

impl BuildSet {
    /// Begins to make the entry of a path. Two threads that do so at the same moment may both succeed.
    pub(super) fn begin(&self, hash: u64) -> Result<Permit<'_>, BuildBusy> {
        // 0 is taken for another path, which costs nothing but a wait.
        let hash = hash.max(1);
        if self.0.iter().any(|place| place.load(Relaxed) == hash) {
            return Err(BuildBusy::WithThis);
        }
        let take = |place: &&AtomicU64| {
            place.load(Relaxed) == 0 && place.compare_exchange(0, hash, Relaxed, Relaxed).is_ok()
        };
        self.0.iter().find(take).map(Permit).ok_or(BuildBusy::WithOthers)
    }

    /// Whether none is being made.
    #[cfg(test)]
    pub(super) fn is_idle(&self) -> bool {
        self.0.iter().all(|place| place.load(Acquire) == 0)
    }
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        self.0.store(0, Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_are_made_at_a_time_and_each_once() {
        let making = BuildSet::default();
        let mut permits: Vec<_> = (0..MAKING_MAX as u64).map(|n| making.begin(n + 7)).collect();
        assert!(permits.iter().all(Result::is_ok));
        assert_eq!(making.begin(7).unwrap_err(), BuildBusy::WithThis);
        assert_eq!(making.begin(1).unwrap_err(), BuildBusy::WithOthers);
        permits.pop();
        assert!(making.begin(0).is_ok());
        drop(permits);
        assert!(making.is_idle());
    }
}
