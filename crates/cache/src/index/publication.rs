//! Objects whose files are being renamed to their names.
//!
//! Needed for purges: such an object is not in the index yet, but may be on the disk already. Its
//! fill sees the purge and removes the file. Until then the purge must not be reported as done:
//! after a crash the file would be found, with no record that it was purged.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::key::Key;
use crate::waiters::Waiters;

use super::What;

#[derive(Debug, Default)]
pub(super) struct Publishing {
    state: Mutex<PublishingState>,
    waiters: Waiters,
}

#[derive(Debug, Default)]
struct PublishingState {
    last: u64,
    /// By their numbers: the key, and the key without `Vary`.
    under_way: BTreeMap<u64, [Key; 2]>,
}

impl Publishing {
    /// Plain data, valid after every statement: a panic elsewhere cannot break it.
    fn lock(&self) -> MutexGuard<'_, PublishingState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An object of this key (`main`: without `Vary`) may get its name from now on; returns its
    /// number.
    pub(super) fn begin(&self, key: Key, main: Key) -> u64 {
        let mut state = self.lock();
        state.last += 1;
        let number = state.last;
        state.under_way.insert(number, [key, main]);
        number
    }

    /// The object has its name and is in the index, or has no name.
    pub(super) fn end(&self, number: u64) {
        self.lock().under_way.remove(&number);
        self.waiters.wake_all();
    }

    /// Resolves when all that have begun and may be affected by `what` have ended.
    pub(super) async fn ended(&self, what: &What) {
        let last = self.lock().last;
        let concerns = |keys: &[Key; 2]| match what {
            What::Key(key) => keys.contains(key),
            // Its tags are not known here.
            What::Tag(_) | What::Prefix(_) | What::All => true,
        };
        let so = || !self.lock().under_way.range(..=last).any(|(_, keys)| concerns(keys));
        self.waiters.until(so).await;
    }
}
