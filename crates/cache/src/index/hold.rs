//! Holds: a fill or an update prevents the removal of its entry, and reports its result.
//!
//! Taken by the store for each fill and each revalidation, never for a plain hit: an open file
//! outlives its entry.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::key::Key;
use crate::time::UnixMs;

use super::entry::{DELETING, ERROR, EXISTS, SOFT_PURGED};
use super::{How, Index, ROOM_TRIES, Sketch, Tag, Victim, read};

/// The reason why there is no hold: the response is served, but not stored.
#[derive(Debug)]
pub enum NoHold {
    /// The key's old file is being removed; a moment later it can be stored.
    Deleting,
    /// There is no room (nginx: `could not allocate node in cache keys zone`). The object that must
    /// go to make room, if there is one: remove its file.
    Full(Option<Victim>),
}

/// Keeps an entry while its object is fetched. The steps to store the object:
/// [`Hold::may_publish`], the file gets the key's name, [`Hold::commit`]. Dropping
/// without [`Hold::commit`] changes nothing.
#[derive(Debug)]
#[must_use]
pub struct Hold {
    index: Arc<Index>,
    slot: u32,
    key: Key,
    begun: u64,
    /// The number among the objects that are getting their names.
    publishing: Option<u64>,
    /// The stored object is stale from the start.
    stale: bool,
}

/// The names by which an object can be purged.
#[derive(Debug, Clone, Copy)]
pub struct PurgeNames<'a> {
    /// The key without `Vary`; the object's own key when it is no variant.
    pub main: &'a Key,
    /// The text of the main key.
    pub key_text: &'a [u8],
    /// The tags.
    pub tags: &'a [Tag],
    /// The time of the fetch.
    pub created: UnixMs,
}

/// An object whose file now has its name.
#[derive(Debug, Clone, Copy)]
pub struct Commit<'a> {
    /// The names by which it can be purged.
    pub names: PurgeNames<'a>,
    /// Bytes of the file.
    pub length: u64,
    /// Blocks of the file system that the file takes.
    pub blocks: u32,
    /// Bytes of the file's head.
    pub head_bytes: u32,
    /// Fresh until this time.
    pub valid_until: UnixMs,
}

/// The result of a commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Committed {
    /// The object's stamp.
    pub stamp: u64,
    /// The object was purged softly while it was fetched, and is stale.
    pub soft_purged: bool,
}

/// The reason why an object was not accepted. Its file must not have the key's name: remove it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommitError {
    /// The object was purged while it was fetched.
    Purged,
}

impl Index {
    /// Holds the key's entry, made if there is none, and marks it as being updated.
    ///
    /// # Errors
    /// See [`NoHold`].
    pub fn hold(self: &Arc<Self>, key: &Key, now: UnixMs) -> Result<Hold, NoHold> {
        let (number, mut shard) = self.shard(key);
        let slot = match shard.find(key) {
            Some(slot) if shard.get(slot).is(DELETING) => return Err(NoHold::Deleting),
            Some(slot) => slot,
            None => {
                let mut slot = shard.insert(key, now);
                if slot.is_none() && shard.make_room(ROOM_TRIES) {
                    slot = shard.insert(key, now);
                }
                let Some(slot) = slot else {
                    let victim = self.oldest_of(number, &mut shard);
                    drop(shard);
                    self.wake_manager();
                    return Err(NoHold::Full(victim));
                };
                self.feel_pressure(&shard);
                slot
            }
        };
        let entry = shard.get_mut(slot);
        entry.holds += 1;
        entry.updating = entry.updating.saturating_add(1);
        let begun = self.stamp.load(Ordering::Acquire);
        Ok(Hold {
            index: Arc::clone(self),
            slot: self.global(number, slot),
            key: *key,
            begun,
            publishing: None,
            stale: false,
        })
    }
}

impl Index {
    /// The purge of an object after `begun` ([`Hold::begun`]), if any.
    pub fn overtaken(&self, begun: u64, names: PurgeNames<'_>) -> Option<How> {
        read(&self.bans).since(begun, names)
    }
}

impl Hold {
    /// The key.
    pub fn key(&self) -> &Key {
        &self.key
    }

    /// Its position in the order of purges: later ones apply to its object.
    pub fn begun(&self) -> u64 {
        self.begun
    }

    /// The object being stored was purged softly before: it is stale from the start.
    pub fn soften(&mut self) {
        self.stale = true;
    }

    /// The object being stored was requested from the origin when [`Index::newest_stamp`] was this.
    pub fn asked_at(&mut self, stamp: u64) {
        self.begun = self.begun.min(stamp);
    }

    /// Whether an object may still be stored: false after a purge. For long-running fills;
    /// [`Hold::commit`] decides finally.
    pub fn check(&self, names: PurgeNames<'_>) -> bool {
        read(&self.index.bans).since(self.begun, names) != Some(How::Hard)
    }

    /// Whether a file may get the key's name now; called right before. If so, no other fill's file
    /// may until this hold is dropped: an object that a purge has overtaken must not replace one
    /// fetched after the purge. False: it was purged, or another one is being stored.
    pub fn may_publish(&mut self, names: PurgeNames<'_>) -> bool {
        self.may_publish_over(names, EXISTS)
    }

    /// Like [`may_publish`](Self::may_publish), for a copy from another store: any object already
    /// here is newer.
    pub fn may_publish_copy(&mut self, names: PurgeNames<'_>) -> bool {
        self.may_publish_over(names, 0)
    }

    /// `flags`: those that the entry may have.
    fn may_publish_over(&mut self, names: PurgeNames<'_>, flags: u8) -> bool {
        let bans = read(&self.index.bans);
        let (_, mut shard, slot) = self.index.local(self.slot);
        let entry = shard.get_mut(slot);
        let may = self.publishing.is_some()
            || !(entry.publishing
                || entry.is((EXISTS | DELETING) & !flags)
                || bans.since(self.begun, names) == Some(How::Hard));
        entry.publishing |= may;
        if may && self.publishing.is_none() {
            // A purge has either been seen just now, or will see this hold.
            self.publishing = Some(self.index.publishing.begin(self.key, *names.main));
        }
        may
    }

    /// The key's file is a new object. Called after the file got the key's name: in between, a
    /// reader may find the old or the new one. If the commit is refused, remove the file before
    /// dropping the hold.
    ///
    /// # Errors
    /// See [`CommitError`].
    pub fn commit(&mut self, object: &Commit<'_>, now: UnixMs) -> Result<Committed, CommitError> {
        let index = &*self.index;
        // Held to the end: a purge comes either before, and is seen here, or after, and sees the
        // entry.
        let bans = read(&index.bans);
        let purged = bans.since(self.begun, object.names);
        let (number, mut shard, slot) = index.local(self.slot);
        if purged == Some(How::Hard) || shard.get(slot).is(DELETING) {
            return Err(CommitError::Purged);
        }
        index.detach_tags(&mut shard, slot);
        shard.store_file(slot, object.blocks, now);
        let variants = variants_tag(&self.key, object.names.main);
        let tags = object.names.tags.iter().copied().chain(variants);
        index.attach_tags(number, &mut shard, slot, tags);
        let entry = shard.get_mut(slot);
        if purged == Some(How::Soft) || self.stale {
            entry.set(SOFT_PURGED);
        }
        // The next fill may store its object.
        let number = self.publishing.take();
        entry.publishing &= number.is_none();
        entry.stamp = index.next_stamp();
        entry.length = object.length;
        entry.head_bytes = object.head_bytes;
        entry.valid_until = object.valid_until;
        entry.sketch = Sketch::of(object.names.key_text);
        entry.uses = entry.uses.max(1);
        let committed = Committed { stamp: entry.stamp, soft_purged: entry.is(SOFT_PURGED) };
        drop((shard, bans));
        number.into_iter().for_each(|number| index.publishing.end(number));
        Ok(committed)
    }

    /// The stored object of `stamp` was revalidated: it is fresh until `valid_until`. False: it was
    /// replaced or purged meanwhile.
    pub fn revalidated(self, names: PurgeNames<'_>, stamp: u64, valid_until: UnixMs) -> bool {
        let bans = read(&self.index.bans);
        let (_, mut shard, slot) = self.index.local(self.slot);
        let entry = shard.get_mut(slot);
        let same = entry.is(EXISTS) && entry.stamp == stamp;
        if same {
            // A soft purge after the start of the revalidation requires another one.
            if bans.since(self.begun, names).is_none() {
                entry.clear(SOFT_PURGED);
            }
            entry.valid_until = valid_until;
            entry.clear(ERROR);
        }
        same
    }

    /// The upstream failed with `status`, which is to be remembered until `valid_until`.
    pub fn remember_error(self, status: u16, valid_until: UnixMs) {
        let (_, mut shard, slot) = self.index.local(self.slot);
        let entry = shard.get_mut(slot);
        if !entry.is(DELETING) {
            entry.set(ERROR);
            entry.error = status;
            entry.valid_until = valid_until;
        }
    }
}

/// The tag that links a variant to its main key.
pub(super) fn variants_tag(key: &Key, main: &Key) -> Option<Tag> {
    (key != main).then(|| Tag::variants_of(main))
}

impl Drop for Hold {
    fn drop(&mut self) {
        let (_, mut shard, slot) = self.index.local(self.slot);
        let entry = shard.get_mut(slot);
        entry.holds -= 1;
        entry.updating = entry.updating.saturating_sub(1);
        let number = self.publishing.take();
        entry.publishing &= number.is_none();
        self.index.remove_if_unused(&mut shard, slot);
        drop(shard);
        number.into_iter().for_each(|number| self.index.publishing.end(number));
    }
}
