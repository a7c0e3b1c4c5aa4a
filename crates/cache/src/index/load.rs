//! Entering objects that were stored before, from a snapshot or found by the loader; and walking
//! all entries in steps.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::key::Key;
use crate::time::UnixMs;

use super::entry::{DELETING, ERROR, EXISTS, FREE, SOFT_PURGED, TAGS_IN_FILE, UNVERIFIED};
use super::hold::variants_tag;
use super::{How, Index, PurgeNames, Sketch, Stored, Tag, Victim, lock, read, stored};

/// The position of a walk through the index. Entries that stay are met exactly once; entries added
/// or removed meanwhile may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Cursor {
    shard: u32,
    slot: u32,
}

/// A stored object, as recorded in a snapshot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// The key.
    pub key: Key,
    /// The last use.
    pub used: UnixMs,
    /// See [`super::Stored::stamp`].
    pub stamp: u64,
    /// Bytes of the file.
    pub length: u64,
    /// Blocks of the file system that the file takes.
    pub blocks: u32,
    /// Bytes of the file's head; 0 when only the file has that number.
    pub head_bytes: u32,
    /// Fresh until this time; [`UnixMs::ZERO`] when only the file has it.
    pub valid_until: UnixMs,
    /// The number of uses.
    pub uses: u16,
    /// Purged softly.
    pub soft_purged: bool,
    /// The sketch of the key's text.
    pub sketch: Sketch,
    /// The tags; `None` when they are only in the file.
    pub tags: Option<Vec<Tag>>,
}

impl Record {
    /// A file found by the loader: name and size.
    pub fn found(key: Key, length: u64, blocks: u32, now: UnixMs) -> Self {
        Self {
            key,
            used: now,
            stamp: 0,
            length,
            blocks,
            head_bytes: 0,
            valid_until: UnixMs::ZERO,
            uses: 1,
            soft_purged: false,
            sketch: Sketch::UNKNOWN,
            tags: None,
        }
    }
}

/// The facts in a file's head.
#[derive(Debug, Clone, Copy)]
pub struct Learn<'a> {
    /// The key.
    pub key: Key,
    /// The names by which the object can be purged.
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

impl Learn<'_> {
    /// The state that the index would return for it.
    fn unknown(&self) -> Stored {
        Stored {
            stamp: 0,
            length: self.length,
            head_bytes: self.head_bytes,
            blocks: self.blocks,
            valid_until: self.valid_until,
            uses: 1,
            updating: false,
            soft_purged: false,
            names_in_file: true,
        }
    }
}

/// The result for an object whose head was read.
#[derive(Debug)]
pub enum Learned {
    /// The object is in the index.
    Stored(Stored),
    /// The object may be used, but there is no room for it in the index.
    Unknown(Stored),
    /// The object was purged, or is being replaced, and must not be used. If there is a victim, remove its
    /// file.
    Purged(Option<Victim>),
}

/// The result for a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LoadResult {
    /// The object was entered into the index.
    Added,
    /// The index had the key already.
    Known,
    /// There is no room: the caller removes the file, as nginx does, or stops.
    Full,
    /// The file is being removed, or was removed, by another task.
    Going,
}

impl Index {
    /// Enters a file found by the loader. Of a known key, only the sizes are corrected.
    pub fn found(&self, record: &Record) -> LoadResult {
        let (_, mut shard) = self.shard(&record.key);
        match shard.find(&record.key) {
            Some(slot) if shard.get(slot).is(EXISTS) => {
                if shard.get(slot).is(UNVERIFIED) {
                    shard.resize_file(slot, record.blocks);
                    let entry = shard.get_mut(slot);
                    entry.clear(UNVERIFIED);
                    entry.length = record.length;
                }
                LoadResult::Known
            }
            Some(slot) if shard.get(slot).is(DELETING) => LoadResult::Going,
            // A fill is under way: its commit will enter it. Or a failed or counted key, whose file
            // was removed before: the found file is too old to be of use.
            Some(_) => LoadResult::Known,
            None => {
                drop(shard);
                self.load(record, true)
            }
        }
    }

    /// Enters the facts from a file's head about an object that the index does not know, or whose
    /// tags it does not know ([`Stored::names_in_file`]); called on a hit before the object is
    /// used.
    pub fn learn(self: &Arc<Self>, object: &Learn<'_>, now: UnixMs) -> Learned {
        // Held to the end: a purge comes either before, and is seen here, or after, and sees the
        // entry.
        let bans = read(&self.bans);
        let (number, mut shard) = self.shard(&object.key);
        let found = shard.find(&object.key);
        let is_going = found.is_some_and(|slot| !shard.get(slot).is(EXISTS));
        if is_going {
            // A fill is under way, or the file is being removed.
            return Learned::Purged(None);
        }
        let stamp = found.map_or(0, |slot| shard.get(slot).stamp);
        let purged = bans.since(stamp, object.names);
        let slot = match found {
            Some(slot) => slot,
            None => {
                let room = shard.count() < self.watermark();
                let Some(slot) = room.then(|| shard.insert(&object.key, now)).flatten() else {
                    return match purged {
                        Some(How::Hard) => Learned::Purged(None),
                        _ => Learned::Unknown(object.unknown()),
                    };
                };
                shard.store_file(slot, object.blocks, now);
                shard.get_mut(slot).uses = 1;
                slot
            }
        };
        if purged == Some(How::Hard) {
            let is_free = shard.get(slot).holds == 0;
            let victim = is_free.then(|| self.condemn(number, &mut shard, slot));
            return Learned::Purged(victim);
        }
        let names = object.names;
        let variants = variants_tag(&object.key, names.main);
        let tags = names.tags.iter().copied().chain(variants);
        let known = !shard.get(slot).is(TAGS_IN_FILE) && found.is_some();
        if !known {
            self.detach_tags(&mut shard, slot);
            self.attach_tags(number, &mut shard, slot, tags);
        }
        let entry = shard.get_mut(slot);
        entry.clear(UNVERIFIED);
        if purged == Some(How::Soft) {
            entry.set(SOFT_PURGED);
        }
        entry.length = object.length;
        entry.head_bytes = object.head_bytes;
        entry.valid_until = object.valid_until;
        entry.sketch = Sketch::of(names.key_text);
        let stored = stored(entry);
        shard.resize_file(slot, object.blocks);
        Learned::Stored(stored)
    }

    /// Enters a record of a snapshot. Its file is checked when it is used, or by the loader;
    /// [`Index::unverified`] lists the files that the loader did not meet. Unless the snapshot is
    /// `clean`, the file may belong to another object by now, so its tags are read from its head.
    pub fn restore(&self, record: &Record, clean: bool) -> LoadResult {
        let load = self.load(record, false);
        if load == LoadResult::Added && !clean {
            let (_, mut shard) = self.shard(&record.key);
            if let Some(slot) = shard.find(&record.key) {
                shard.get_mut(slot).set(TAGS_IN_FILE);
                self.unlearned.store(true, Ordering::Release);
            }
        }
        load
    }

    fn load(&self, record: &Record, verified: bool) -> LoadResult {
        let (number, mut shard) = self.shard(&record.key);
        if shard.find(&record.key).is_some() {
            return LoadResult::Known;
        }
        if shard.count() >= self.watermark() {
            return LoadResult::Full;
        }
        let Some(slot) = shard.insert(&record.key, record.used) else { return LoadResult::Full };
        shard.store_file(slot, record.blocks, record.used);
        match &record.tags {
            Some(tags) => self.attach_tags(number, &mut shard, slot, tags.iter().copied()),
            None => {
                shard.get_mut(slot).set(TAGS_IN_FILE);
                self.unlearned.store(true, Ordering::Release);
            }
        }
        let entry = shard.get_mut(slot);
        if record.soft_purged {
            entry.set(SOFT_PURGED);
        }
        if !verified {
            entry.set(UNVERIFIED);
        }
        entry.stamp = record.stamp;
        entry.length = record.length;
        entry.head_bytes = record.head_bytes;
        entry.valid_until = record.valid_until;
        entry.uses = record.uses;
        entry.sketch = record.sketch;
        self.stamp.fetch_max(record.stamp, Ordering::AcqRel);
        LoadResult::Added
    }

    /// Sorts all entries into the order of use, after a snapshot was restored. Each shard is locked for
    /// about a millisecond.
    pub fn sort(&self) {
        self.shards.iter().for_each(|shard| lock(&shard.0).sort_queues());
    }

    /// The next stored objects of a walk, at most `limit`; appended to `records`. `None` at the end.
    pub fn records(
        &self,
        cursor: Cursor,
        limit: usize,
        records: &mut Vec<Record>,
    ) -> Option<Cursor> {
        self.step(cursor, limit, |shard, _, slot| {
            let entry = shard.get(slot);
            if !entry.is(EXISTS) {
                return;
            }
            let tags = (!entry.is(TAGS_IN_FILE))
                .then(|| lock(&self.tags).of_entry(entry.tags).collect::<Vec<_>>());
            records.push(Record {
                key: entry.key,
                used: entry.used,
                stamp: entry.stamp,
                length: entry.length,
                blocks: entry.blocks,
                head_bytes: entry.head_bytes,
                valid_until: if entry.is(ERROR) { UnixMs::ZERO } else { entry.valid_until },
                uses: entry.uses,
                soft_purged: entry.is(SOFT_PURGED),
                sketch: entry.sketch,
                tags,
            });
        })
    }

    /// The next objects of a walk that came from a snapshot and have not been seen by a loader
    /// since, with their stamps; at most `limit`, appended to `keys`. Look for their files, and
    /// [`Index::forget`] those without one. `None` at the end.
    pub fn unverified(
        &self,
        cursor: Cursor,
        limit: usize,
        keys: &mut Vec<(Key, u64)>,
    ) -> Option<Cursor> {
        self.step(cursor, limit, |shard, _, slot| {
            let entry = shard.get(slot);
            if entry.is(EXISTS) && entry.is(UNVERIFIED) {
                keys.push((entry.key, entry.stamp));
            }
        })
    }

    /// Calls `each` for the next `limit` slots, used or free, under one shard's lock.
    pub(super) fn step(
        &self,
        cursor: Cursor,
        limit: usize,
        mut each: impl FnMut(&mut super::Shard, u32, u32),
    ) -> Option<Cursor> {
        let mut shard = lock(&self.shards.get(cursor.shard as usize)?.0);
        let end = shard.slots().min(cursor.slot.saturating_add(limit as u32));
        for slot in cursor.slot..end {
            if !shard.get(slot).is(FREE) {
                each(&mut shard, cursor.shard, slot);
            }
        }
        let next = if end == shard.slots() {
            Cursor { shard: cursor.shard + 1, slot: 0 }
        } else {
            Cursor { slot: end, ..cursor }
        };
        ((next.shard as usize) < self.shards.len()).then_some(next)
    }
}
