//! Purging: by key, tag, prefix, or all objects; hard or soft.
//!
//! A purge takes effect at once, through the index. What remains is to remove files and, for some
//! kinds, to read heads in order to find them. That continues in a separate task if the caller
//! leaves. Affected fills under way are not stored; their readers are not cut.

use std::sync::Arc;

use crate::fill::Committing;
use crate::fill_reader::FillReader;
use crate::growth::Growth;
use crate::index::{How, Purge, PurgeError, Verified, What};
use crate::key::Key;
use crate::object::{ObjectReadError, names_of};
use crate::options::Steps;
use crate::pace::Pace;
use crate::statistics::count;
use crate::store::{Hit, Store, now};

/// Index entries handled per step.
const ENTRIES: usize = 1000;

/// The result of a purge.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Purged {
    /// Objects removed, or marked as stale.
    pub objects: u64,
    /// Fills under way that will not be stored.
    pub fills: u64,
}

/// An object that was served, for a caller that may find out that its origin has replaced it.
#[derive(Clone)]
pub struct Served {
    store: Arc<Store>,
    key: Key,
    main: Key,
    state: ServedState,
}

#[derive(Clone)]
enum ServedState {
    /// Stored, with this stamp.
    Stored(u64),
    /// Being stored.
    Growing(Arc<Growth>),
}

impl Served {
    /// The [stamp](Hit::stamp) of a stored object.
    pub fn stamp(&self) -> Option<u64> {
        match self.state {
            ServedState::Stored(stamp) => Some(stamp),
            ServedState::Growing(_) => None,
        }
    }

    /// The last steps to the disk of an object whose body is complete; `None`: they are done, or its body is
    /// not complete.
    pub fn committing(&self) -> Option<Committing> {
        match &self.state {
            ServedState::Growing(growth) if growth.received().1 => Some(Committing::of(growth)),
            _ => None,
        }
    }

    /// Removes the object with all its variants, in the background, unless another one has taken its
    /// place.
    pub fn purge(&self) {
        let (store, key) = (self.store.clone(), self.key);
        let is_current = match &self.state {
            ServedState::Stored(stamp) => store.has_stamp(key, *stamp),
            ServedState::Growing(growth) => {
                store.fills().find(key).is_none_or(|other| Arc::ptr_eq(growth, &other))
            }
        };
        if is_current {
            let what = What::Key(self.main);
            drop(nowait_runtime::spawn(async move { store.purge(what, How::Hard).await }));
        }
    }
}

impl std::fmt::Debug for Served {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Served").field("key", &self.key).finish_non_exhaustive()
    }
}

impl Store {
    /// An object that this store, or the slower one behind it, has found.
    pub fn served(self: &Arc<Self>, hit: &Hit) -> Served {
        let identity = &hit.head().identity;
        let (key, main) = (identity.key, identity.main);
        Served { store: self.store_of(hit), key, main, state: ServedState::Stored(hit.stamp) }
    }

    /// An object that is being stored here or in the slower store.
    pub fn served_growing(self: &Arc<Self>, growing: &FillReader) -> Served {
        let identity = &growing.head().identity;
        let (key, main) = (identity.key, identity.main);
        let state = ServedState::Growing(growing.growth().clone());
        Served { store: self.store_of_growing(growing), key, main, state }
    }

    /// Purges; resolves when all of it is done.
    ///
    /// # Errors
    /// [`PurgeError::TooMany`]: too many purges are under way.
    pub async fn purge(self: &Arc<Self>, what: What, how: How) -> Result<Purged, PurgeError> {
        let neighbours = self.neighbours();
        let all: Vec<Arc<Store>> = [self.clone()].into_iter().chain(neighbours).collect();
        if all.iter().all(|store| store.recall.is_known()) {
            return Store::purge_all(&all, what, how).await;
        }
        let purge = nowait_runtime::spawn(async move {
            for store in &all {
                store.recall_for(&what, how).await?;
            }
            Store::purge_all(&all, what, how).await
        });
        // A panic was reported by the worker.
        purge.await.unwrap_or(Ok(Purged::default()))
    }

    /// Waits until the store knows the objects stored by an earlier process. If the disk does not
    /// respond, the purge is deferred and run once more when it does.
    async fn recall_for(&self, what: &What, how: How) -> Result<(), PurgeError> {
        let recalled = async {
            self.recall.known().await;
            Ok(())
        };
        match self.watch(recalled).await {
            Ok(()) => Ok(()),
            Err(_) => self.recall.defer(what, how),
        }
    }

    /// Purges all of these stores together.
    async fn purge_all(all: &[Arc<Store>], what: What, how: How) -> Result<Purged, PurgeError> {
        let begin = |store: &Arc<Store>| store.begin_purge(what.clone(), how);
        let begun = Store::tell(all, || all.iter().map(begin).collect::<Result<Vec<_>, _>>())?;
        let mut purged = Purged::default();
        for one in begun {
            // An object in one store is in the other, too, unless it was removed there.
            let one = one.await;
            purged.objects = purged.objects.max(one.objects);
            purged.fills += one.fills;
        }
        Ok(purged)
    }

    /// Makes the purge take effect; the future resolves when all of it is done.
    pub(crate) fn begin_purge(
        self: &Arc<Self>,
        what: What,
        how: How,
    ) -> Result<impl Future<Output = Purged> + use<>, PurgeError> {
        let mut purge = self.index().purge(what.clone(), how, now())?;
        // Before anything waits for the disk.
        purge.advance(ENTRIES);
        let fills = match how {
            How::Hard => self.fills().doom(|growth| concerns(&what, growth)),
            // The index marks them when they are stored.
            How::Soft => self.fills().soften(|growth| concerns(&what, growth)),
        };
        let store = self.clone();
        let walk = nowait_runtime::spawn(async move {
            store.index().published(&purge.ban().what).await;
            store.keep_purge(purge.ban().stamp, how).await;
            store.walk_purge(purge).await
        });
        // A panic was reported by the worker.
        Ok(async move { Purged { objects: walk.await.unwrap_or(0), fills: fills as u64 } })
    }

    /// Runs a purge in steps. Returns how many objects it found.
    pub(crate) async fn walk_purge(self: &Arc<Self>, mut purge: Purge) -> u64 {
        let mut pace = Pace::new(self.options().purger.unwrap_or(Steps::NGINX));
        let mut objects = 0;
        loop {
            let mut step = purge.step(ENTRIES);
            objects += step.marked as u64;
            let mut victims = step.victims.into_iter();
            loop {
                let batch: Vec<_> = victims.by_ref().take(BATCH).collect();
                if batch.is_empty() {
                    break;
                }
                let removed = self.remove(batch, &self.counters.purged).await;
                objects += removed as u64;
                if !pace.did(removed).await {
                    // The worker ends: remaining victims go with the index of this process.
                    return objects;
                }
            }
            while let Some(key) = step.verify.pop_front() {
                objects += u64::from(self.verify(&purge, key).await);
                if !pace.did(1).await {
                    return objects;
                }
            }
            if step.done {
                purge.finish();
                return objects;
            }
        }
    }

    /// Reads an object's head to know whether it is purged.
    async fn verify(self: &Arc<Self>, purge: &Purge, key: Key) -> bool {
        let head = match self.open_any(&self.own_io(), key).await {
            Ok(head) => head,
            Err(ObjectReadError::Trouble(error)) => {
                purge.unreadable(&key);
                self.note_error("open", &self.names().object(key), &error);
                return false;
            }
            // The next look-up or the loader detects that.
            Err(_) => return false,
        };
        match purge.verified(&key, names_of(&head.identity)) {
            Verified::Kept => false,
            Verified::Marked => {
                count(&self.counters.purged);
                true
            }
            Verified::Victim(victim) => {
                self.remove(vec![victim], &self.counters.purged).await;
                true
            }
        }
    }
}

/// The number of files removed at the same time.
const BATCH: usize = 8;

/// Whether a fill under way is affected by the purge. Tags are known once the head is; the index
/// decides when the object is stored.
fn concerns(what: &What, growth: &Growth) -> bool {
    let target = growth.target();
    match what {
        What::All => true,
        What::Key(key) => target.key == *key || target.main == *key,
        What::Prefix(prefix) => target.text.starts_with(prefix),
        What::Tag(tag) => growth.head().is_some_and(|head| head.identity.tags.contains(tag)),
    }
}
