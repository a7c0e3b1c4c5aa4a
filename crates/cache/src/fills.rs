//! The objects that are being filled, on any worker.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::growth::Growth;
use crate::key::Key;

/// The number of locks: keys are spread over them by their last byte.
const SHARDS: usize = 16;

type FillMap = HashMap<Key, Arc<Growth>>;

/// Fills under way by key. At most one per key can be found; others of the same key (without
/// `proxy_cache_lock`) continue unseen.
pub(crate) struct Fills {
    shards: [Mutex<FillMap>; SHARDS],
}

impl Fills {
    pub(crate) fn new() -> Fills {
        Fills { shards: std::array::from_fn(|_| Mutex::default()) }
    }

    fn shard(&self, key: Key) -> MutexGuard<'_, FillMap> {
        let shard = &self.shards[usize::from(key.0[key.0.len() - 1]) % SHARDS];
        shard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The fill of `key`.
    pub(crate) fn find(&self, key: Key) -> Option<Arc<Growth>> {
        self.shard(key).get(&key).cloned()
    }

    /// Registers a fill, unless there is already one for its key, which is then returned.
    pub(crate) fn enter(&self, growth: &Arc<Growth>) -> Result<(), Arc<Growth>> {
        let key = growth.key();
        let mut shard = self.shard(key);
        if let Some(other) = shard.get(&key) {
            return Err(other.clone());
        }
        shard.insert(key, growth.clone());
        Ok(())
    }

    /// Registers a fill in place of one that has been under way for `age` or longer, and continues unseen.
    /// False: the other one is younger, or has ended.
    pub(crate) fn replace(
        &self,
        old: &Arc<Growth>,
        new: &Arc<Growth>,
        age: Option<Duration>,
    ) -> bool {
        if age.is_none_or(|age| old.age() < age) {
            return false;
        }
        match self.shard(old.key()).get_mut(&old.key()) {
            Some(found) if Arc::ptr_eq(found, old) => {
                *found = new.clone();
                true
            }
            _ => false,
        }
    }

    /// Makes this complete fill the one that look-ups find. Of concurrent fills of a key, the one
    /// completed last stays, and a client that received its response finds the same object on its
    /// next request.
    pub(crate) fn show(&self, growth: &Arc<Growth>) {
        let hidden = self.shard(growth.key()).insert(growth.key(), growth.clone());
        drop(hidden);
        // The code that ends a fill removes it, but may have run before this insertion.
        if growth.ended().is_some() {
            self.leave(growth);
        }
    }

    /// Removes the fill, if it is this one.
    pub(crate) fn leave(&self, growth: &Arc<Growth>) {
        let key = growth.key();
        let mut shard = self.shard(key);
        if shard.get(&key).is_some_and(|found| Arc::ptr_eq(found, growth)) {
            let gone = shard.remove(&key);
            drop(shard);
            drop(gone);
        }
    }

    /// Removes the fills selected by `matches`, and marks them as not to be stored. Returns their number.
    pub(crate) fn doom(&self, matches: impl Fn(&Growth) -> bool) -> usize {
        let mut doomed = Vec::new();
        for shard in &self.shards {
            let mut shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            doomed.extend(shard.extract_if(|_, growth| matches(growth)).map(|(_, growth)| growth));
        }
        doomed.iter().for_each(|growth| growth.doom());
        doomed.len()
    }

    /// Marks the fills selected by `matches` as purged softly. Returns their number.
    pub(crate) fn soften(&self, matches: impl Fn(&Growth) -> bool) -> usize {
        let mut softened = 0;
        for shard in &self.shards {
            let shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            for growth in shard.values().filter(|growth| matches(growth)) {
                growth.soften();
                softened += 1;
            }
        }
        softened
    }

    pub(crate) fn count(&self) -> usize {
        let count =
            |shard: &Mutex<FillMap>| shard.lock().unwrap_or_else(PoisonError::into_inner).len();
        self.shards.iter().map(count).sum()
    }
}
