//! The entries by the hash of their path, in shards, and which of them go when memory is short.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex};

use bytes::Bytes;

use super::super::Symlinks;
use super::Resident;
use crate::pool::lock;

const SHARDS: usize = 16;

/// Number of entries compared to find one that is rarely used.
const SAMPLE: usize = 6;

/// An entry makes way for what was requested at least so many times as often, and more often.
const ADVANTAGE: u16 = 2;

/// Maximum number of entries removed for a new one.
const EVICTIONS_MAX: usize = 256;

/// Hashes are keyed and uniform already.
#[derive(Default)]
struct IdentityHasher(u64);

impl Hasher for IdentityHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _bytes: &[u8]) {}

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
}

#[derive(Default)]
struct Shard {
    places: HashMap<u64, usize, BuildHasherDefault<IdentityHasher>>,
    entries: Vec<Arc<Resident>>,
    /// Where the last sample ended.
    hand: usize,
}

impl Shard {
    fn take(&mut self, place: usize) -> Arc<Resident> {
        let taken = self.entries.swap_remove(place);
        self.places.remove(&taken.hash);
        if let Some(moved) = self.entries.get(place) {
            self.places.insert(moved.hash, place);
        }
        taken
    }
}

/// All entries.
#[derive(Default)]
pub(super) struct ResidentTable {
    shards: [Mutex<Shard>; SHARDS],
    bytes: AtomicUsize,
    bytes_max: AtomicUsize,
    /// The shard of the next sample.
    next: AtomicUsize,
}

impl ResidentTable {
    pub(super) fn limit(&self, bytes_max: usize) {
        self.bytes_max.store(bytes_max, Relaxed);
    }

    /// Whether files may be resident.
    pub(super) fn is_open(&self) -> bool {
        self.bytes_max.load(Relaxed) > 0
    }

    pub(super) fn has_room(&self, bytes: usize) -> bool {
        self.bytes() + bytes <= self.bytes_max.load(Relaxed)
    }

    pub(super) fn is_beyond_limit(&self) -> bool {
        self.bytes() > self.bytes_max.load(Relaxed)
    }

    pub(super) fn len(&self) -> usize {
        self.shards.iter().map(|shard| lock(shard).entries.len()).sum()
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes.load(Relaxed)
    }

    fn shard(&self, hash: u64) -> &Mutex<Shard> {
        &self.shards[(hash >> 60) as usize % SHARDS]
    }

    pub(super) fn get(&self, hash: u64, path: &[u8], symlinks: Symlinks) -> Option<Arc<Resident>> {
        let shard = lock(self.shard(hash));
        let entry = &shard.entries[*shard.places.get(&hash)?];
        (*entry.path == *path && entry.symlinks == symlinks).then(|| entry.clone())
    }

    /// Adds an entry and returns the one that it replaces.
    pub(super) fn insert(&self, entry: Arc<Resident>) -> Option<Arc<Resident>> {
        let mut shard = lock(self.shard(entry.hash));
        let old = shard.places.get(&entry.hash).copied().map(|place| shard.take(place));
        self.bytes.fetch_add(entry.bytes(), Relaxed);
        let (hash, place) = (entry.hash, shard.entries.len());
        shard.places.insert(hash, place);
        shard.entries.push(entry);
        drop(shard);
        old.inspect(|old| self.released(old.bytes()))
    }

    /// An entry of this many bytes was removed.
    fn released(&self, bytes: usize) {
        let before = self.bytes.fetch_sub(bytes, Relaxed);
        debug_assert!(before >= bytes, "{bytes} bytes of {before}");
    }

    /// Adds another form of the content of an entry, if that is there. The lock of the shard keeps the
    /// number of bytes true: an entry that was removed gets no further forms.
    pub(super) fn add_variant(&self, entry: &Resident, how: u64, form: Bytes) {
        let shard = lock(self.shard(entry.hash));
        let is_there = |place: &usize| std::ptr::eq(&*shard.entries[*place], entry);
        let len = form.len();
        if shard.places.get(&entry.hash).is_some_and(is_there) && entry.variants.add(how, form) {
            self.bytes.fetch_add(len, Relaxed);
        }
    }

    /// Removes this entry, if it is there.
    pub(super) fn remove(&self, entry: &Resident) {
        let mut shard = lock(self.shard(entry.hash));
        let Some(&place) = shard.places.get(&entry.hash) else { return };
        if std::ptr::eq(&*shard.entries[place], entry) {
            let taken = shard.take(place);
            drop(shard);
            self.released(taken.bytes());
        }
    }

    /// Removes entries with fewer than half of `count` recent uses until there is room for `bytes`; false if
    /// that fails.
    pub(super) fn make_room(
        &self,
        bytes: usize,
        count: u16,
        now: u16,
        evicted: impl Fn(&Resident),
    ) -> bool {
        for _ in 0..EVICTIONS_MAX {
            if self.has_room(bytes) {
                return true;
            }
            let Some(victim) = self.take_colder(count, now) else { return false };
            evicted(&victim);
        }
        false
    }

    /// Removes one of the least used entries of a sample, if it was used less than half as often as `count`
    /// times lately.
    pub(super) fn take_colder(&self, count: u16, now: u16) -> Option<Arc<Resident>> {
        self.with_colder(count, now, |shard, place| {
            shard.hand = (shard.hand + SAMPLE) % shard.entries.len();
            shard.take(place)
        })
        .inspect(|taken| self.released(taken.bytes()))
    }

    /// Whether [`take_colder`](Self::take_colder) would find one now. Leaves the sample to it.
    pub(super) fn has_colder(&self, count: u16, now: u16) -> bool {
        let shard = self.next.load(Relaxed);
        let found = self.with_colder(count, now, |_, _| ()).is_some();
        if found {
            self.next.store(shard, Relaxed);
        }
        found
    }

    fn with_colder<R>(
        &self,
        count: u16,
        now: u16,
        then: impl FnOnce(&mut Shard, usize) -> R,
    ) -> Option<R> {
        for _ in 0..SHARDS {
            let next = self.next.fetch_add(1, Relaxed) % SHARDS;
            let mut shard = lock(&self.shards[next]);
            let len = shard.entries.len();
            if len == 0 {
                continue;
            }
            let begin = shard.hand % len;
            let sample = (0..SAMPLE.min(len)).map(|step| (begin + step) % len);
            let coldest = sample.min_by_key(|place| shard.entries[*place].frequency(now))?;
            if shard.entries[coldest].frequency(now).saturating_mul(ADVANTAGE) >= count {
                shard.hand = (begin + SAMPLE) % len;
                return None;
            }
            return Some(then(&mut shard, coldest));
        }
        None
    }
}
