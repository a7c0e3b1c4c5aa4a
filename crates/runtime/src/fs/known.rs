//! Knowledge about files: where contents may be read inline.
//!
//! Kept in lossy tables ([`AtomicSet`], [`AtomicTable`]); a lost entry costs a trip to the pool:
//!
//! * files whose extent map was loaded ([`is_touched`]). An inode that leaves memory takes its names
//!   along, so that the next open goes to the pool and touches it again.
//! * recently used pieces of files ([`last_use`]), which are most likely still in memory.
//!
//! Called by: [`super::open`], [`super::read`], [`super::residency`]. Never: allocates, waits.

use super::Metadata;
use crate::mounts;
use crate::table::{self, AtomicSet, AtomicTable};

/// Entries for touched files: four megabytes at most.
const TOUCHED: usize = 1 << 20;

/// Entries for pieces in use: eight megabytes at most, for 64 GB of hot data, or a million small files.
const PIECES: usize = 1 << 20;

/// Size of a piece in bytes.
pub(super) const PIECE_BYTES: u64 = 64 * 1024;

/// Ticks of [`mounts::clock_ms`] are shorter than the times compared, and long enough that a hot
/// piece is rarely written to the table.
const TICK_MS: u64 = 125;

/// Number of ticks per second.
pub(super) const TICKS_PER_SECOND: u16 = (1000 / TICK_MS) as u16;

static TOUCHED_SET: AtomicSet<TOUCHED> = AtomicSet::new();
static PIECES_TABLE: AtomicTable<PIECES> = AtomicTable::new();

/// Identifies a path in the accounts of pools: never 0.
pub(super) fn path_id(path: &[u8]) -> u64 {
    table::hash((2u8, path)).max(1)
}

/// Identifies a file in one state of its contents, in the tables and in the accounts of pools.
pub(super) fn file_id(metadata: &Metadata) -> u64 {
    table::hash((metadata.dev, metadata.ino, metadata.ctime, metadata.ctime_nsec))
}

/// Whether the extent map of the file was loaded.
pub(super) fn is_touched(file: u64) -> bool {
    TOUCHED_SET.contains(file)
}

pub(super) fn learn_touched(file: u64) {
    TOUCHED_SET.insert(file);
}

/// The finisher of SplitMix64: spreads the pieces of a file, whose id is random already.
pub(super) fn piece_hash(file: u64, piece: u64) -> u64 {
    let mut z = file.wrapping_add(piece.wrapping_mul(0x9E37_79B9_7F4A_7C15));
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// A point in time, in units of [`TICK_MS`]: never 0; wraps around after an hour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Tick(u16);

/// Number of different ticks: one bit of a table's value is used for [`LastUse::whole`].
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

/// The last use of a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LastUse {
    at: Tick,
    /// The whole piece was used: otherwise only its end is certain.
    pub(super) whole: bool,
}

impl LastUse {
    pub(super) fn idle(self, now: Tick) -> u16 {
        self.at.idle(now)
    }

    fn to_value(self) -> u16 {
        self.at.0 << 1 | u16::from(self.whole)
    }

    fn of_value(value: u16) -> LastUse {
        debug_assert!((1..=TICKS).contains(&(value >> 1)), "no tick is {}", value >> 1);
        LastUse { at: Tick(value >> 1), whole: value & 1 == 1 }
    }
}

/// The last use of the piece of `file` around `offset`; `None`: not known.
pub(super) fn last_use(file: u64, offset: u64) -> Option<LastUse> {
    PIECES_TABLE.find(piece_hash(file, offset / PIECE_BYTES)).map(LastUse::of_value)
}

/// Records that the bytes from `offset` up to `end` were used now, and those from `begin` on a
/// moment ago; `size` is the file's. A piece counts as used when its end was: readers in smaller
/// steps eventually get there.
pub(super) fn learn_used(file: u64, begin: u64, offset: u64, end: u64, size: u64, now: Tick) {
    let last = if end >= size { end.div_ceil(PIECE_BYTES) } else { end / PIECE_BYTES };
    for piece in offset / PIECE_BYTES..last {
        let hash = piece_hash(file, piece);
        let known = PIECES_TABLE.find(hash).map(LastUse::of_value).filter(|known| known.at == now);
        let whole = begin <= piece * PIECE_BYTES;
        if known.is_none_or(|known| whole && !known.whole) {
            PIECES_TABLE.set(hash, LastUse { at: now, whole }.to_value());
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
}
