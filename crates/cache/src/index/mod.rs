//! The keys zone: the list of a cache's objects, in bounded memory, without their files.
//!
//! Used by the store on every request, and by its loader, manager and purger. It does no I/O and
//! reads no clock. The caller that must remove a file gets a [`Victim`]; until the file is removed,
//! the key can't be filled again, so that a late removal never deletes a new file.
//!
//! **Memory.** `Config::bytes` limits everything: entries, hash tables, queues. A key costs 100
//! bytes (nginx: 128), reserved when the index is made and resident as it is used. The side index
//! of tags has its own limit. Key texts are not in memory: they are in the files' heads, and
//! [`Sketch`] lets a purge by prefix read few heads besides those that it purges.
//!
//! **Locks.** Keys are spread by hash over shards of a few thousand entries. A look-up locks one
//! shard for a few memory accesses; nothing allocates, walks or waits under such a lock. The lock
//! of the rules is taken before a shard's, that of the tags after it.
//!
//! **Order of eviction.** Least recently used first: exactly within a shard, and by the time of
//! last use (in milliseconds) across shards. Entries without a file (counted keys, remembered
//! errors) have a separate queue: they never push out a stored object.

mod bans;
mod entry;
mod evict;
mod hold;
mod load;
mod publication;
mod purge;
mod shard;
mod sketch;
mod tags;
#[cfg(test)]
mod tests;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use crate::key::Key;
use crate::time::UnixMs;

use bans::Bans;
use entry::{DELETING, ERROR, EXISTS, IndexEntry, NONE, SOFT_PURGED, TAGS_IN_FILE};
use publication::Publishing;
use shard::{KEY_COST_BYTES, Shard};
use tags::Tags;

pub use bans::{ACTIVE_BANS_MAX, Ban, How, What};
pub use evict::{ExpireStep, Victim};
pub use hold::{Commit, CommitError, Committed, Hold, NoHold, PurgeNames};
pub use load::{Cursor, Learn, Learned, LoadResult, Record};
pub use purge::{Purge, PurgeError, PurgeStep, Standing, UNLEARNED_READS_MAX, Verified};
pub use sketch::Sketch;
pub use tags::Tag;

/// The targeted number of keys per shard: large enough that the hashes fill shards evenly (to 1 %),
/// small enough that sorting one takes a millisecond.
const SHARD_KEYS: usize = 8192;
const SHARDS_MAX: usize = 4096;
/// The manager keeps this part of each shard free for bursts.
const HEADROOM: u32 = 16;
/// The smallest index, in bytes: nginx's smallest zone (eight pages).
pub const BYTES_MIN: usize = 32 << 10;
/// How many entries at the old end of a queue are tried before the shard counts as full.
const ROOM_TRIES: usize = 16;

/// The parameters of an index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Config {
    /// The size of the keys zone, in bytes.
    pub bytes: usize,
    /// The additional size of the side index of tags, in bytes; 0: purges by tag read files.
    pub tag_bytes: usize,
    /// Entries that are unused for this long are removed.
    pub inactive: Duration,
}

/// The index of one cache. Shared by all threads.
#[derive(Debug)]
pub struct Index {
    shards: Box<[CachePadded<Mutex<Shard>>]>,
    shard_capacity: u32,
    /// Blocks of all files.
    blocks: Arc<AtomicU64>,
    tags: Mutex<Tags>,
    bans: RwLock<Bans>,
    any_active_ban: AtomicBool,
    publishing: Publishing,
    /// Orders commits and purges: each takes the next number.
    stamp: AtomicU64,
    inactive_ms: AtomicU64,
    /// The loader has not seen all files yet.
    cold: AtomicBool,
    /// There are, or were, entries whose tags are only in their files.
    unlearned: AtomicBool,
    pressure: AtomicBool,
    manager: Mutex<Option<Waker>>,
}

/// Keeps neighbouring locks off each other's cache lines.
#[repr(align(64))]
#[derive(Debug)]
struct CachePadded<T>(T);

/// The circumstances of a look-up.
#[derive(Debug, Clone, Copy)]
pub struct LookupContext<'a> {
    /// The time.
    pub now: UnixMs,
    /// `proxy_cache_min_uses`: the number of requests for a key before its response is stored.
    pub min_uses: u16,
    /// The key's text, for purges by prefix that are under way.
    pub key_text: &'a [u8],
}

/// The index's state of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LookupResult {
    /// There is a file.
    Stored(Stored),
    /// An upstream error is remembered (`proxy_cache_valid` of its status) and still valid.
    Error {
        /// The status to respond with.
        status: u16,
        /// The end of its validity.
        valid_until: UnixMs,
    },
    /// No object known to the index (see [`Index::is_cold`]).
    Absent(AbsentKey),
}

/// A stored object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stored {
    /// Changes whenever another object is stored under the key: data read at another stamp belongs
    /// to another object. 0: found by the loader.
    pub stamp: u64,
    /// Bytes of the file.
    pub length: u64,
    /// Bytes of the file's head; 0 when only the file has that number.
    pub head_bytes: u32,
    /// Blocks of the file system that the file takes.
    pub blocks: u32,
    /// Fresh until this time; [`UnixMs::ZERO`] when only the file has it.
    pub valid_until: UnixMs,
    /// The number of requests for it, including this one; saturates.
    pub uses: u16,
    /// A fill for the key is under way.
    pub updating: bool,
    /// Purged softly: stale, no matter what the file's head states.
    pub soft_purged: bool,
    /// The tags are known by the file only: give the head to [`Index::learn`] before the object is
    /// used.
    pub names_in_file: bool,
}

/// A key without a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AbsentKey {
    /// The number of requests, including this one; saturates. Counted only if `min_uses` is above 1.
    pub uses: u16,
    /// Requested often enough to be stored.
    pub wanted: bool,
    /// A fill for the key is under way.
    pub updating: bool,
}

/// Numbers for logs, status pages and the manager.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// Entries.
    pub keys: u64,
    /// Entries that fit.
    pub keys_max: u64,
    /// Entries with a file.
    pub stored: u64,
    /// Blocks of all files.
    pub blocks: u64,
    /// Tags of entries.
    pub tags: u32,
    /// Tags of entries that fit.
    pub tags_max: u32,
}

impl Index {
    /// An empty index. `None`: fewer bytes than [`BYTES_MIN`].
    pub fn new(config: Config) -> Option<Arc<Self>> {
        if config.bytes < BYTES_MIN {
            return None;
        }
        let shards =
            (config.bytes / KEY_COST_BYTES / SHARD_KEYS).next_power_of_two().clamp(1, SHARDS_MAX);
        let fixed = size_of::<Self>() + shards * size_of::<CachePadded<Mutex<Shard>>>();
        let keys = config.bytes.saturating_sub(fixed) / KEY_COST_BYTES / shards;
        let shard_capacity = keys.min(NONE as usize / shards - 1) as u32;
        let blocks = Arc::new(AtomicU64::new(0));
        let shard = || CachePadded(Mutex::new(Shard::new(shard_capacity, Arc::clone(&blocks))));
        Some(Arc::new(Self {
            shards: std::iter::repeat_with(shard).take(shards).collect(),
            shard_capacity,
            blocks,
            tags: Mutex::new(Tags::new(config.tag_bytes)),
            bans: RwLock::default(),
            any_active_ban: AtomicBool::new(false),
            publishing: Publishing::default(),
            stamp: AtomicU64::new(1),
            inactive_ms: AtomicU64::new(millis(config.inactive)),
            cold: AtomicBool::new(true),
            unlearned: AtomicBool::new(false),
            pressure: AtomicBool::new(false),
            manager: Mutex::new(None),
        }))
    }

    /// The state of a key. Counts the use and makes the entry the most recently used.
    pub fn lookup(&self, key: &Key, ask: LookupContext<'_>) -> LookupResult {
        let found = self.lookup_entry(key, ask);
        match found {
            LookupResult::Stored(stored) if self.any_active_ban.load(Ordering::Acquire) => {
                match read(&self.bans).of_hit(stored.stamp, ask.key_text) {
                    None => found,
                    Some(How::Soft) => LookupResult::Stored(Stored { soft_purged: true, ..stored }),
                    Some(How::Hard) => LookupResult::Absent(AbsentKey {
                        uses: stored.uses,
                        wanted: stored.uses >= ask.min_uses,
                        updating: stored.updating,
                    }),
                }
            }
            _ => found,
        }
    }

    fn lookup_entry(&self, key: &Key, ask: LookupContext<'_>) -> LookupResult {
        let (_, mut shard) = self.shard(key);
        let Some(slot) = shard.find(key) else {
            if ask.min_uses > 1 {
                // No file is evicted for a key that is only counted.
                let mut slot = shard.insert(key, ask.now);
                if slot.is_none() && shard.make_room(ROOM_TRIES) {
                    slot = shard.insert(key, ask.now);
                }
                if let Some(slot) = slot {
                    let entry = shard.get_mut(slot);
                    entry.set(entry::COUNTED);
                    entry.uses = 1;
                }
                self.feel_pressure(&shard);
            }
            return LookupResult::Absent(AbsentKey {
                uses: 1,
                wanted: ask.min_uses <= 1,
                updating: false,
            });
        };
        shard.touch(slot, ask.now);
        let entry = shard.get_mut(slot);
        entry.uses = entry.uses.saturating_add(1);
        if entry.is(ERROR) {
            if ask.now < entry.valid_until {
                return LookupResult::Error { status: entry.error, valid_until: entry.valid_until };
            }
            entry.clear(ERROR);
            entry.valid_until = UnixMs::ZERO;
        }
        if entry.is(EXISTS) {
            return LookupResult::Stored(stored(entry));
        }
        if ask.min_uses > 1 {
            entry.set(entry::COUNTED);
        }
        let wanted = entry.uses >= ask.min_uses && !entry.is(DELETING);
        LookupResult::Absent(AbsentKey { uses: entry.uses, wanted, updating: entry.updating > 0 })
    }

    /// The object stored under a key, without counting a use; for tests and status pages.
    pub fn peek(&self, key: &Key) -> Option<Stored> {
        let (_, shard) = self.shard(key);
        let entry = shard.get(shard.find(key)?);
        entry.is(EXISTS).then(|| stored(entry))
    }

    /// The key's file of `stamp` does not exist, or is not an object: removes the entry. With another
    /// stamp, the object was replaced meanwhile, and the entry stays.
    pub fn forget(&self, key: &Key, stamp: u64) {
        let (_, mut shard) = self.shard(key);
        let Some(slot) = shard.find(key) else { return };
        let entry = shard.get(slot);
        if entry.is(EXISTS) && entry.stamp == stamp {
            self.detach_tags(&mut shard, slot);
            shard.forget_file(slot);
            self.remove_if_unused(&mut shard, slot);
        }
    }

    /// Numbers of the whole index; locks each shard for a moment.
    pub fn usage(&self) -> Usage {
        let (tags, tags_max) = lock(&self.tags).usage();
        let keys_max = u64::from(self.shard_capacity) * self.shards.len() as u64;
        let start = Usage { keys_max, tags, tags_max, blocks: self.blocks(), ..Usage::default() };
        self.shards.iter().fold(start, |sum, shard| {
            let shard = lock(&shard.0);
            Usage {
                keys: sum.keys + u64::from(shard.count()),
                stored: sum.stored + u64::from(shard.stored()),
                ..sum
            }
        })
    }

    /// Blocks of all files; locks nothing.
    pub fn blocks(&self) -> u64 {
        self.blocks.load(Ordering::Relaxed)
    }

    /// Whether files may exist that the index does not know yet: an absent key is then looked for
    /// on disk.
    pub fn is_cold(&self) -> bool {
        self.cold.load(Ordering::Acquire)
    }

    /// The loader has seen all files. Earlier purges must be walked again: see
    /// [`Index::unfinished_purges`].
    pub fn set_warm(&self) {
        self.cold.store(false, Ordering::Release);
    }

    /// The maximum time that entries stay unused.
    pub fn inactive(&self) -> Duration {
        Duration::from_millis(self.inactive_ms.load(Ordering::Relaxed))
    }

    /// Another configuration has another value.
    pub fn set_inactive(&self, inactive: Duration) {
        self.inactive_ms.store(millis(inactive), Ordering::Relaxed);
    }

    /// For the manager's task: ready once after the index ran out of its headroom, or
    /// [`Index::wake_manager`] was called. One task may wait at a time.
    pub fn poll_pressure(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut manager = lock(&self.manager);
        if self.pressure.swap(false, Ordering::AcqRel) {
            *manager = None;
            return Poll::Ready(());
        }
        match &mut *manager {
            Some(waker) => waker.clone_from(cx.waker()),
            none => *none = Some(cx.waker().clone()),
        }
        Poll::Pending
    }

    /// Makes [`Index::poll_pressure`] ready, e.g. since a commit went beyond `max_size`.
    pub fn wake_manager(&self) {
        if !self.pressure.swap(true, Ordering::AcqRel) {
            let waker = lock(&self.manager).take();
            waker.into_iter().for_each(Waker::wake);
        }
    }

    /// Wakes the manager when the shard has left its headroom.
    fn feel_pressure(&self, shard: &Shard) {
        if shard.count() > self.watermark() {
            self.wake_manager();
        }
    }

    /// Entries that a shard should have at most.
    fn watermark(&self) -> u32 {
        self.shard_capacity - self.shard_capacity / HEADROOM
    }

    /// The stamp of the newest commit or purge.
    pub fn newest_stamp(&self) -> u64 {
        self.stamp.load(Ordering::Acquire)
    }

    fn next_stamp(&self) -> u64 {
        self.stamp.fetch_add(1, Ordering::AcqRel) + 1
    }

    /// The key's shard, locked, and its number.
    fn shard(&self, key: &Key) -> (u32, MutexGuard<'_, Shard>) {
        let bits = usize::from(u16::from_le_bytes([key.0[0], key.0[1]]));
        let number = bits & (self.shards.len() - 1);
        (number as u32, lock(&self.shards[number].0))
    }

    /// An entry's number in the whole index.
    fn global(&self, shard: u32, slot: u32) -> u32 {
        shard * self.shard_capacity + slot
    }

    /// The shard, locked, and the slot of an entry's number.
    fn local(&self, global: u32) -> (u32, MutexGuard<'_, Shard>, u32) {
        let number = global / self.shard_capacity;
        (number, lock(&self.shards[number as usize].0), global % self.shard_capacity)
    }

    /// Gives an entry without tags its own, or notes that only its file knows them.
    fn attach_tags(
        &self,
        number: u32,
        shard: &mut Shard,
        slot: u32,
        tags: impl Iterator<Item = Tag> + Clone,
    ) {
        let attached = lock(&self.tags).attach(self.global(number, slot), tags);
        let entry = shard.get_mut(slot);
        entry.clear(TAGS_IN_FILE);
        match attached {
            Some(first) => entry.tags = first,
            None => {
                entry.set(TAGS_IN_FILE);
                self.unlearned.store(true, Ordering::Release);
            }
        }
    }

    fn detach_tags(&self, shard: &mut Shard, slot: u32) {
        let first = std::mem::replace(&mut shard.get_mut(slot).tags, NONE);
        if first != NONE {
            lock(&self.tags).detach(first);
        }
    }

    fn remove_if_unused(&self, shard: &mut Shard, slot: u32) {
        let entry = shard.get(slot);
        if entry.holds == 0 && !entry.is_kept() {
            shard.remove(slot);
        }
    }
}

fn stored(entry: &IndexEntry) -> Stored {
    Stored {
        stamp: entry.stamp,
        length: entry.length,
        head_bytes: entry.head_bytes,
        blocks: entry.blocks,
        valid_until: entry.valid_until,
        uses: entry.uses,
        updating: entry.updating > 0,
        soft_purged: entry.is(SOFT_PURGED),
        names_in_file: entry.is(TAGS_IN_FILE),
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// The state is consistent after a panic: no code panics between two changes that belong together.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn read<T>(lock: &RwLock<T>) -> std::sync::RwLockReadGuard<'_, T> {
    lock.read().unwrap_or_else(PoisonError::into_inner)
}

fn write<T>(lock: &RwLock<T>) -> std::sync::RwLockWriteGuard<'_, T> {
    lock.write().unwrap_or_else(PoisonError::into_inner)
}
