//! The set of entries being made: few at a time, and each once.
//!
//! Without it, concurrent requests for the same new path would make several threads build an entry, and all
//! but the last would be discarded.

use std::sync::atomic::AtomicU64;
#[cfg(test)]
use std::sync::atomic::Ordering::Acquire;
use std::sync::atomic::Ordering::{Relaxed, Release};

/// Maximum number of entries that are being made at a time.
pub(super) const MAKING_MAX: usize = 64;

/// The hashes of their paths; 0: free.
#[derive(Debug)]
pub(super) struct BuildSet([AtomicU64; MAKING_MAX]);

impl Default for BuildSet {
    fn default() -> BuildSet {
        BuildSet([const { AtomicU64::new(0) }; MAKING_MAX])
    }
}

/// The reason why an entry is not made now.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum BuildBusy {
    /// Another thread is making it.
    WithThis,
    /// There are enough others.
    WithOthers,
    /// Other entries, which are used as often, take all the room.
    NoRoom,
}

/// An entry is being made, until this is dropped.
#[derive(Debug)]
pub(super) struct Permit<'a>(&'a AtomicU64);

impl BuildSet {
    /// Registers a path whose entry is being made. Two threads that call this at the same moment may both
    /// succeed.
    pub(super) fn begin(&self, hash: u64) -> Result<Permit<'_>, BuildBusy> {
        // 0 counts as another path, which only costs a wait.
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
