//! Knowledge about names and files: where the inline forms may be tried.
//!
//! Process-wide lock-free tables of fixed size. They forget (a newer entry may replace an older
//! one), which costs a trip to the pool; they never invent: an entry holds 48 bits of a keyed
//! 64-bit hash, and its position in the table encodes most of the rest.
//!
//! * directories (by the text of their path) and symbolic links → the file system they are on
//!   ([`place_of_dir`]). A name is looked up inline only in a directory that is known to be on a
//!   file system where this cannot wait. A pool thread learns it by looking at the directory
//!   itself.
//! * files whose extent map was loaded ([`is_touched`]). An inode that leaves memory takes its names
//!   along, so that the next open goes to the pool and touches it again.
//! * recently used pieces of files ([`last_use`]), which are most likely still in memory.
//!
//! Called by: [`super::open`], [`super::read`], [`super::residency`]. Never: allocates, waits.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU16, AtomicU64, AtomicUsize, Ordering::Relaxed};

use super::Metadata;
use crate::mounts::{self, Mount};

/// Entries for directories and names: half a megabyte, of which only the used pages occupy memory.
const PLACES: usize = 1 << 16;

/// Entries for touched files: two megabytes at most.
const TOUCHED: usize = 1 << 18;

/// Entries for pieces in use: four megabytes at most, for 32 GB of hot data.
const PIECES: usize = 1 << 19;

/// Size of a piece in bytes.
pub(super) const PIECE_BYTES: u64 = 64 * 1024;

/// Ticks of [`mounts::clock_ms`] are shorter than the times compared, and long enough that a hot
/// piece is rarely written to the table.
const TICK_MS: u64 = 125;

/// Number of ticks per second.
pub(super) const TICKS_PER_SECOND: u16 = (1000 / TICK_MS) as u16;

const VALUE_BITS: u32 = 16;

/// An associative table of nonzero 16-bit values; two places per key.
struct Table<const N: usize> {
    slots: [AtomicU64; N],
}

impl<const N: usize> Table<N> {
    const fn new() -> Table<N> {
        assert!(N.is_power_of_two() && N >= 2);
        Table { slots: [const { AtomicU64::new(0) }; N] }
    }

    /// The two places of `hash`, and the part of it that entries hold. The position comes from the
    /// low bits, which the entry does not hold.
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
    /// has the same effect as forgetting it.
    fn set(&self, hash: u64, value: u16) {
        let (places, tag) = self.places(hash);
        let holds = |place: &&&AtomicU64| place.load(Relaxed) >> VALUE_BITS << VALUE_BITS == tag;
        let is_free = |place: &&&AtomicU64| place.load(Relaxed) as u16 == 0;
        let place = match places.iter().find(holds).or_else(|| places.iter().find(is_free)) {
            Some(place) => place,
            None if value == 0 => return,
            // The victim depends on the new entry, so that two rivals don't evict each other
            // forever.
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
static PIECES_TABLE: Table<PIECES> = Table::new();

/// Number of entries ever made for names that differ from their directory.
static NAMES: AtomicUsize = AtomicUsize::new(0);

/// The number of the current period between mount changes: 0 to [`AGES`].
static AGE: AtomicU16 = AtomicU16::new(0);
const AGES: u16 = 1 << (VALUE_BITS - mounts::MOUNT_BITS);

/// Randomly keyed: no client can choose colliding names.
static KEY: LazyLock<RandomState> = LazyLock::new(RandomState::new);

/// A path's directory: everything before the last name; without a slash the current directory.
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

/// A [`Table`] value: a file system's slot number, and the [`AGE`] in which it was seen.
fn place_value(mount: &Mount) -> u16 {
    AGE.load(Relaxed) << mounts::MOUNT_BITS | mount.index()
}

/// The file system of the value, and whether there was no mount change since.
fn place_of(value: u16) -> Option<(&'static Mount, bool)> {
    let mount = mounts::by_index(value & ((1 << mounts::MOUNT_BITS) - 1))?;
    Some((mount, value >> mounts::MOUNT_BITS == AGE.load(Relaxed)))
}

/// The file system of `dir`, if known, and whether that is beyond doubt.
pub(super) fn place_of_dir(dir: &[u8]) -> Option<(&'static Mount, bool)> {
    place_of(PLACES_TABLE.find(dir_hash(dir))?)
}

pub(super) fn learn_dir(dir: &[u8], mount: &Mount) {
    PLACES_TABLE.set(dir_hash(dir), place_value(mount));
}

pub(super) fn forget_dir(dir: &[u8]) {
    PLACES_TABLE.set(dir_hash(dir), 0);
}

/// The file system that `path` itself leads to, where it is known to differ from that of its
/// directory: a symbolic link, a mount point. Excludes entries in doubt.
pub(super) fn place_of_name(path: &[u8]) -> Option<&'static Mount> {
    if NAMES.load(Relaxed) == 0 {
        return None;
    }
    let (mount, is_sure) = place_of(PLACES_TABLE.find(name_hash(path))?)?;
    is_sure.then_some(mount)
}

pub(super) fn learn_name(path: &[u8], mount: &Mount) {
    PLACES_TABLE.set(name_hash(path), place_value(mount));
    NAMES.fetch_add(1, Relaxed);
}

/// After a mount or unmount: all places are in doubt until they are confirmed.
pub(crate) fn doubt_places() {
    // Only one thread does this. An age is reused only after all its entries were forgotten.
    let age = (AGE.load(Relaxed) + 1) % AGES;
    if age == 0 {
        PLACES_TABLE.clear();
    }
    AGE.store(age, Relaxed);
}

/// Identifies a path in the accounts of pools: never 0.
pub(super) fn path_id(path: &[u8]) -> u64 {
    hash(2, path).max(1)
}

/// Identifies a file in one state of its contents, in the tables and in the accounts of pools.
pub(super) fn file_id(metadata: &Metadata) -> u64 {
    KEY.hash_one((metadata.dev, metadata.ino, metadata.ctime, metadata.ctime_nsec))
}

/// Whether the extent map of the file was loaded.
pub(super) fn is_touched(file: u64) -> bool {
    TOUCHED_TABLE.find(file).is_some()
}

pub(super) fn learn_touched(file: u64) {
    TOUCHED_TABLE.set(file, 1);
}

/// The finisher of SplitMix64: spreads the pieces of a file, whose id is random already.
fn piece_hash(file: u64, piece: u64) -> u64 {
    let mut z = file.wrapping_add(piece.wrapping_mul(0x9E37_79B9_7F4A_7C15));
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// A point in time, in units of [`TICK_MS`]: never 0; wraps around after an hour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Tick(u16);

/// Number of different ticks: one bit of a table's value is used for [`Use::whole`].
const TICKS: u16 = u16::MAX >> 1;

impl Tick {
    /// The current tick.
    pub(super) fn now() -> Tick {
        Tick((mounts::clock_ms() / TICK_MS % u64::from(TICKS)) as u16 + 1)
    }

    /// Number of ticks from this one to `now`.
    pub(super) fn idle(self, now: Tick) -> u16 {
        // Both are in 1..=TICKS, on a circle of that size.
        if now.0 >= self.0 { now.0 - self.0 } else { TICKS - (self.0 - now.0) }
    }
}

/// When and how a piece was last used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Use {
    at: Tick,
    /// The whole piece was used: otherwise only its end is certain.
    pub(super) whole: bool,
}

impl Use {
    pub(super) fn idle(self, now: Tick) -> u16 {
        self.at.idle(now)
    }

    fn to_value(self) -> u16 {
        self.at.0 << 1 | u16::from(self.whole)
    }

    fn of_value(value: u16) -> Use {
        Use { at: Tick(value >> 1), whole: value & 1 == 1 }
    }
}

/// The last use of the piece of `file` around `offset`; `None`: not known.
pub(super) fn last_use(file: u64, offset: u64) -> Option<Use> {
    PIECES_TABLE.find(piece_hash(file, offset / PIECE_BYTES)).map(Use::of_value)
}

/// Records that the bytes from `offset` up to `end` were used now, and those from `begin` on a
/// moment ago; `size` is the file's. A piece counts as used when its end was: readers in smaller
/// steps eventually get there.
pub(super) fn learn_used(file: u64, begin: u64, offset: u64, end: u64, size: u64, now: Tick) {
    let last = if end >= size { end.div_ceil(PIECE_BYTES) } else { end / PIECE_BYTES };
    for piece in offset / PIECE_BYTES..last {
        let hash = piece_hash(file, piece);
        let known = PIECES_TABLE.find(hash).map(Use::of_value).filter(|known| known.at == now);
        let whole = begin <= piece * PIECE_BYTES;
        if known.is_none_or(|known| whole && !known.whole) {
            PIECES_TABLE.set(hash, Use { at: now, whole }.to_value());
        }
    }
}

/// Records that the piece around `offset` turned out not to be in memory.
pub(super) fn forget_used(file: u64, offset: u64) {
    PIECES_TABLE.set(piece_hash(file, offset / PIECE_BYTES), 0);
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
    fn pieces_count_when_their_end_is_reached() {
        let (file, size, now) = (42, 3 * PIECE_BYTES + 10, Tick::now());
        let known = |offset| last_use(file, offset).map(|known| known.whole);
        learn_used(file, 0, 0, PIECE_BYTES - 1, size, now);
        assert_eq!(known(0), None);
        learn_used(file, 5, 5, PIECE_BYTES + 5, size, now);
        assert_eq!((known(0), known(PIECE_BYTES)), (Some(false), None));
        learn_used(file, 0, 5, PIECE_BYTES + 5, size, now);
        assert_eq!(known(0), Some(true));
        learn_used(file, 5, 5, PIECE_BYTES + 5, size, now);
        assert_eq!(known(0), Some(true), "a part is used soon after");
        learn_used(file, 3 * PIECE_BYTES, 3 * PIECE_BYTES, size, size, now);
        assert_eq!((known(3 * PIECE_BYTES), known(2 * PIECE_BYTES)), (Some(true), None));
        forget_used(file, 1);
        assert_eq!(known(0), None);
    }

    #[test]
    fn ticks_come_round() {
        learn_used(43, 0, 0, 10, 10, Tick(TICKS - 5));
        let known = last_use(43, 0).unwrap();
        assert_eq!(known.idle(Tick(TICKS - 5)), 0);
        assert_eq!(known.idle(Tick(TICKS)), 5);
        assert_eq!(known.idle(Tick(1)), 6);
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
