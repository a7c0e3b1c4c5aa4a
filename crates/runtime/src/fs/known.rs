//! What was learned about names and files: where the inline forms may be tried.
//!
//! Two process-wide tables without locks, of fixed size. They forget (a newer entry may take an
//! older one's place), which costs a trip to the pool; they never invent: an entry holds 48 bits of
//! a keyed 64-bit hash, its place in the table most of the rest.
//!
//! * [`Places`]: directories (by the text of their path) and symbolic links → the file system they
//!   are on. A name is looked up inline only in a directory that is known to be on a file system
//!   where this can't wait. A pool thread learns it by looking at the directory itself.
//! * [`touched`]: files whose extent map was loaded. An inode that leaves memory takes its names
//!   along, so that the next opening goes to the pool and touches it again.
//!
//! Called by: [`super::open`], [`super::read`]. Never: allocates, waits.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

use super::Metadata;
use crate::mounts::{self, Mount};

/// Entries of [`Places`]: half a megabyte, of which only the used pages take memory.
const PLACES: usize = 1 << 16;

/// Entries of [`touched`]: two megabytes at most.
const TOUCHED: usize = 1 << 18;

const VALUE_BITS: u32 = 16;

/// An associative table of 16-bit values that aren't 0; two places per key.
struct Table<const N: usize> {
    slots: [AtomicU64; N],
}

impl<const N: usize> Table<N> {
    const fn new() -> Table<N> {
        assert!(N.is_power_of_two() && N >= 2);
        Table { slots: [const { AtomicU64::new(0) }; N] }
    }

    /// The two places of `hash`, and the part of it that entries hold. The place comes from the low
    /// bits, which the entry does not hold.
    fn places(&self, hash: u64) -> ([&AtomicU64; 2], u64) {
        let at = hash as usize & (N - 1);
        ([&self.slots[at], &self.slots[at ^ 1]], hash >> VALUE_BITS << VALUE_BITS)
    }

    fn find(&self, hash: u64) -> Option<u16> {
        let (places, tag) = self.places(hash);
        places
            .into_iter()
            .map(|place| place.load(Relaxed))
            .find(|entry| entry >> VALUE_BITS << VALUE_BITS == tag && *entry as u16 != 0)
            .map(|entry| entry as u16)
    }

    /// Sets the value of `hash`; 0 forgets it. Races between threads lose one of the entries, which
    /// is as good as having been forgotten.
    fn set(&self, hash: u64, value: u16) {
        let (places, tag) = self.places(hash);
        let holds = |place: &&&AtomicU64| place.load(Relaxed) >> VALUE_BITS << VALUE_BITS == tag;
        let is_free = |place: &&&AtomicU64| place.load(Relaxed) as u16 == 0;
        let place = match places.iter().find(holds).or_else(|| places.iter().find(is_free)) {
            Some(place) => place,
            None if value == 0 => return,
            // The victim depends on the new entry: two rivals don't evict each other for ever.
            None => places[(hash >> 40) as usize & 1],
        };
        place.store(if value == 0 { 0 } else { tag | u64::from(value) }, Relaxed);
    }

    fn clear(&self) {
        self.slots.iter().for_each(|slot| slot.store(0, Relaxed));
    }
}

static PLACES_TABLE: Table<PLACES> = Table::new();
static TOUCHED_TABLE: Table<TOUCHED> = Table::new();

/// Number of entries ever made for names that differ from their directory.
static NAMES: AtomicUsize = AtomicUsize::new(0);

/// Keyed at random: no client can choose names that collide.
static KEY: LazyLock<RandomState> = LazyLock::new(RandomState::new);

/// A path's directory: what is before the last name; without a slash the current directory.
pub(super) fn parent(path: &[u8]) -> &[u8] {
    let end = path.iter().rposition(|byte| *byte != b'/').map_or(0, |at| at + 1);
    match path[..end].iter().rposition(|byte| *byte == b'/') {
        Some(0) => b"/",
        Some(slash) => &path[..slash],
        None if end == 0 && !path.is_empty() => b"/",
        None => b".",
    }
}

fn hash(domain: u8, path: &[u8]) -> u64 {
    KEY.hash_one((domain, path))
}

fn dir_hash(dir: &[u8]) -> u64 {
    hash(0, dir)
}

fn name_hash(path: &[u8]) -> u64 {
    hash(1, path)
}

/// The file system on which the directory of `path` is, if known.
pub(super) fn place_of_dir(dir: &[u8]) -> Option<&'static Mount> {
    PLACES_TABLE.find(dir_hash(dir)).and_then(mounts::by_index)
}

pub(super) fn learn_dir(dir: &[u8], mount: &Mount) {
    PLACES_TABLE.set(dir_hash(dir), mount.index());
}

pub(super) fn forget_dir(dir: &[u8]) {
    PLACES_TABLE.set(dir_hash(dir), 0);
}

/// The file system of what `path` itself leads to, where it is known to differ from the directory's
/// way: a symbolic link, a mount point.
pub(super) fn place_of_name(path: &[u8]) -> Option<&'static Mount> {
    if NAMES.load(Relaxed) == 0 {
        return None;
    }
    PLACES_TABLE.find(name_hash(path)).and_then(mounts::by_index)
}

pub(super) fn learn_name(path: &[u8], mount: &Mount) {
    PLACES_TABLE.set(name_hash(path), mount.index());
    NAMES.fetch_add(1, Relaxed);
}

/// Forgets all places: something was mounted or unmounted.
pub(crate) fn forget_places() {
    PLACES_TABLE.clear();
}

fn file_hash(metadata: &Metadata) -> u64 {
    KEY.hash_one((metadata.dev, metadata.ino, metadata.ctime, metadata.ctime_nsec))
}

/// Whether the extent map of the file in this state was loaded.
pub(super) fn is_touched(metadata: &Metadata) -> bool {
    TOUCHED_TABLE.find(file_hash(metadata)).is_some()
}

pub(super) fn learn_touched(metadata: &Metadata) {
    TOUCHED_TABLE.set(file_hash(metadata), 1);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parents() {
        let cases: [(&[u8], &[u8]); 8] = [
            (b"/srv/www/a", b"/srv/www"),
            (b"/srv/www/a/", b"/srv/www"),
            (b"/a", b"/"),
            (b"/", b"/"),
            (b"//", b"/"),
            (b"a", b"."),
            (b"a/b", b"a"),
            (b"", b"."),
        ];
        for (path, dir) in cases {
            assert_eq!(parent(path), dir, "{}", String::from_utf8_lossy(path));
        }
    }

    #[test]
    fn the_table_finds_what_it_was_told() {
        let table = Table::<8>::new();
        let hash = |n: u64| (n << 32) | (n % 8);
        table.set(hash(3), 7);
        assert_eq!(table.find(hash(3)), Some(7));
        assert_eq!(table.find(hash(11)), None, "same place, other key");
        table.set(hash(11), 8);
        assert_eq!((table.find(hash(3)), table.find(hash(11))), (Some(7), Some(8)));
        table.set(hash(3), 0);
        assert_eq!((table.find(hash(3)), table.find(hash(11))), (None, Some(8)));
        for n in 0..100 {
            table.set(hash(n), 9);
            assert_eq!(table.find(hash(n)), Some(9), "the newest is always kept");
        }
        table.clear();
        assert!((0..100).all(|n| table.find(hash(n)).is_none()));
    }
}
