//! Knowledge about ranges of files: which were read recently, so that their pages stay in memory after a
//! read from the disk.
//!
//! A range that nobody has read for long is read past the page cache. If it is read again before the disk
//! has delivered about as much as half of the memory, it is kept: a page that stayed from the first read
//! would most likely still be there. Time is therefore counted in bytes from disks. With a slow scan over
//! more data than that, nothing is kept however often it comes round.
//!
//! A reader that follows another one closely finds that its ranges were read before, which makes them hot.
//! Ranges soon behind hot ones are kept, too: a reader with others close behind it reads for all of them.
//!
//! The table has a fixed size and is lossy: a lost entry costs one more read from the disk.
//!
//! Called by: [`super::keep`]. Never: allocates, waits.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU64, AtomicUsize};

use super::known;

/// Size of a range in bytes.
pub(super) const RANGE_BYTES: u64 = 1024 * 1024;

/// Parts of a range that are told apart.
const PARTS: u64 = RANGE_BYTES / known::PIECE_BYTES;

/// Entries: two megabytes at most, for 256 GB of data in large files.
const ENTRIES: usize = 1 << 18;

/// Places per range.
const WAYS: usize = 4;

/// A unit of the clock in bytes: small files pass in fractions of it.
const UNIT_BYTES: u64 = 64 * 1024;

/// How far behind a hot range others are kept, in ranges: powers of two up to this one are looked at.
const FOLLOWERS_MAX: u32 = 6;

/// Share of the window in which a range must have been hot for those behind it to be kept, and after which
/// the entry of one that is used all the time is renewed.
const LATELY_SHARE: u64 = 8;

/// The window without knowledge of the machine's memory: 512 MB.
const WINDOW_DEFAULT: usize = 512 << 20;

/// Number of bytes from disks in which a second read counts as soon.
static WINDOW: AtomicUsize = AtomicUsize::new(WINDOW_DEFAULT);

/// Bytes read from disks so far.
static CLOCK: AtomicU64 = AtomicU64::new(0);

static TABLE: Table = Table([const { AtomicU64::new(0) }; ENTRIES]);

/// Sets how much memory this process may use.
pub fn set_memory(bytes: u64) {
    let half = usize::try_from(bytes / 2).unwrap_or(usize::MAX);
    WINDOW.store(half.max(RANGE_BYTES as usize), Relaxed);
}

/// Time passes by this many bytes.
pub(super) fn pass(bytes: u64) {
    CLOCK.fetch_add(bytes, Relaxed);
}

/// The history of a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum History {
    /// It was not read recently.
    New,
    /// It was read from memory.
    Warm,
    /// It is being read, or was read, past the page cache.
    Uncached,
    /// It was read at least twice.
    Hot,
}

/// How data is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    Memory,
    Disk,
    /// The disk, for a reader that keeps nothing.
    Passing,
}

/// One entry: the last read of a range.
///
/// ```text
/// tag: 29 bits | clock: 27 bits | hot | uncached | others | parts reached: 5 bits
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    clock: u64,
    hot: bool,
    uncached: bool,
    /// Where the kernel does not tell its pages apart: they were there before.
    others: bool,
    /// Up to which part it was read: a read that begins in an earlier one is a second read.
    reached: u64,
}

const CLOCK_BITS: u32 = 27;
const CLOCK_MASK: u64 = (1 << CLOCK_BITS) - 1;
const TAG_SHIFT: u32 = CLOCK_BITS + 8;

impl Entry {
    fn new(clock: u64) -> Entry {
        Entry { clock, hot: false, uncached: false, others: false, reached: 0 }
    }

    fn to_bits(self) -> u64 {
        let flags = [self.hot, self.uncached, self.others];
        let flags = flags.into_iter().fold(0, |bits, flag| bits << 1 | u64::from(flag)) << 5;
        (self.clock & CLOCK_MASK) << 8 | flags | self.reached
    }

    fn of_bits(bits: u64) -> Entry {
        Entry {
            clock: bits >> 8 & CLOCK_MASK,
            hot: bits >> 7 & 1 == 1,
            uncached: bits >> 6 & 1 == 1,
            others: bits >> 5 & 1 == 1,
            reached: bits & 0x1F,
        }
    }

    /// Units since its last read.
    fn age(self, now: u64) -> u64 {
        now.wrapping_sub(self.clock) & CLOCK_MASK
    }
}

struct Table([AtomicU64; ENTRIES]);

impl Table {
    fn places(&self, hash: u64) -> (&[AtomicU64], u64) {
        let at = hash as usize % ENTRIES / WAYS * WAYS;
        // Never 0: that is a free place.
        (&self.0[at..at + WAYS], (hash >> TAG_SHIFT).max(1))
    }

    fn find(&self, hash: u64) -> Option<Entry> {
        let (places, tag) = self.places(hash);
        let bits = places.iter().map(|place| place.load(Relaxed));
        bits.into_iter().find(|bits| bits >> TAG_SHIFT == tag).map(Entry::of_bits)
    }

    /// Sets the entry of a range, perhaps in place of the oldest of others.
    fn set(&self, hash: u64, entry: Entry, now: u64) {
        let (places, tag) = self.places(hash);
        let cost = |place: &&AtomicU64| match place.load(Relaxed) {
            bits if bits >> TAG_SHIFT == tag => u64::MAX,
            0 => u64::MAX - 1,
            bits => Entry::of_bits(bits).age(now),
        };
        if let Some(place) = places.iter().max_by_key(cost) {
            place.store(tag << TAG_SHIFT | entry.to_bits(), Relaxed);
        }
    }
}

fn now() -> u64 {
    (CLOCK.load(Relaxed) / UNIT_BYTES) & CLOCK_MASK
}

fn window() -> u64 {
    // An age can't be told beyond the mask.
    (WINDOW.load(Relaxed) as u64 / UNIT_BYTES).clamp(1, CLOCK_MASK / 2)
}

/// Both in one: the id of a file is random already.
fn hash(file: u64, range: u64) -> u64 {
    known::piece_hash(file, range)
}

fn find(file: u64, range: u64, now: u64, window: u64) -> Option<Entry> {
    TABLE.find(hash(file, range)).filter(|entry| entry.age(now) <= window)
}

/// What is known of the range around `offset`.
pub(super) fn history(file: u64, offset: u64) -> History {
    match find(file, offset / RANGE_BYTES, now(), window()) {
        None => History::New,
        Some(entry) if entry.uncached => History::Uncached,
        Some(entry) if entry.hot => History::Hot,
        Some(_) => History::Warm,
    }
}

/// Whether pages around `offset` that are in memory are most likely there for a reader that does not keep them:
/// it has read them, or it has read the range before, and the kernel reads ahead.
pub(super) fn is_passing(file: u64, offset: u64) -> bool {
    match (history(file, offset), offset.checked_sub(RANGE_BYTES)) {
        (History::Uncached, _) => true,
        (History::New, Some(before)) => history(file, before) == History::Uncached,
        _ => false,
    }
}

/// Records that the bytes from `offset` up to `end` are read now. Returns whether the data is worth keeping,
/// by the first range. A part counts when it is read from its beginning: readers in small steps do so once.
pub(super) fn note(file: u64, offset: u64, end: u64, source: Source) -> bool {
    let (now, window) = (now(), window());
    let ranges = offset / RANGE_BYTES..=end.saturating_sub(1).max(offset) / RANGE_BYTES;
    let mut keeps = None;
    for range in ranges {
        let base = range * RANGE_BYTES;
        let part = |at: u64| at.saturating_sub(base).div_ceil(known::PIECE_BYTES).min(PARTS);
        let kept = note_range(file, range, part(offset)..part(end), source, now, window);
        keeps.get_or_insert(kept);
    }
    keeps.unwrap_or(true)
}

fn note_range(
    file: u64,
    range: u64,
    parts: std::ops::Range<u64>,
    source: Source,
    now: u64,
    window: u64,
) -> bool {
    let known = find(file, range, now, window);
    let mut entry = known.unwrap_or(Entry::new(now));
    entry.hot |= !parts.is_empty() && parts.start < entry.reached;
    entry.reached = entry.reached.max(parts.end);
    let keeps = entry.hot || is_behind_hot(file, range, now, window);
    let keeps = keeps && source != Source::Passing;
    if source != Source::Memory && !entry.others {
        entry.uncached = !keeps;
    }
    // What is used all the time is rarely written.
    let lately = entry.age(now) <= window / LATELY_SHARE;
    if known != Some(entry) || !lately {
        entry.clock = now;
        TABLE.set(hash(file, range), entry, now);
    }
    keeps
}

/// Records whether the range around `offset`, which was to be read past the page cache, was there before, for
/// others. The beginning of a file that is being opened has no entry yet.
pub(super) fn note_owner(file: u64, offset: u64, others: bool) {
    let (now, range) = (now(), offset / RANGE_BYTES);
    let known = find(file, range, now, window());
    let entry = Entry { uncached: !others, others, ..known.unwrap_or(Entry::new(now)) };
    if known != Some(entry) {
        TABLE.set(hash(file, range), entry, now);
    }
}

/// Whether a range shortly before this one was read by several lately.
fn is_behind_hot(file: u64, range: u64, now: u64, window: u64) -> bool {
    let distances = (0..=FOLLOWERS_MAX).map(|power| 1 << power);
    let mut before = distances.map_while(|distance| range.checked_sub(distance));
    before.any(|range| find(file, range, now, window / LATELY_SHARE).is_some_and(|entry| entry.hot))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table;

    const PART: u64 = known::PIECE_BYTES;

    fn file(name: &str) -> u64 {
        table::hash(name)
    }

    fn disk(file: u64, offset: u64, end: u64) -> bool {
        note(file, offset, end, Source::Disk)
    }

    #[test]
    fn the_second_reader_keeps() {
        for step in [1000, 4096, 16 * 1024, PART, 100_000, 512 * 1024, RANGE_BYTES, 3 << 20] {
            let (file, size) = (file(&format!("second {step}")), 3 * RANGE_BYTES + 77);
            let read = || {
                let offsets = (0..size).step_by(step as usize);
                offsets.map(|at| disk(file, at, (at + step).min(size))).collect::<Vec<_>>()
            };
            assert!(read().iter().all(|kept| !kept), "{step}: first");
            assert_eq!(history(file, 5), History::Uncached);
            assert!(read().iter().all(|kept| *kept), "{step}: second");
            assert_eq!(history(file, size), History::Hot);
        }
    }

    #[test]
    fn ranges_are_separate() {
        let file = file("separate");
        assert!(!disk(file, 0, PART) && disk(file, 0, PART));
        let far = 1000 * RANGE_BYTES;
        assert!(!disk(file, far, far + PART), "not hot");
        assert!(!disk(file, far + PART, far + 2 * PART), "the same reader goes on");
        assert!(disk(file, far + PART, far + 2 * PART), "another one");
        assert_eq!(history(file, 500 * RANGE_BYTES), History::New);
    }

    #[test]
    fn a_reader_with_followers_keeps() {
        let file = file("followers");
        let range = |n: u64| disk(file, n * RANGE_BYTES, (n + 1) * RANGE_BYTES);
        assert!((0..20).all(|n| !range(n)), "alone");
        assert!((0..12).all(range), "the second one");
        assert!((20..28).all(range), "the first one, with the second behind it");
        assert_eq!(history(file, 24 * RANGE_BYTES), History::Warm, "not hot by that alone");
        assert!(!range(200), "far away");
    }

    #[test]
    fn warm_reads_count() {
        let file = file("warm");
        assert!(!note(file, 0, RANGE_BYTES, Source::Memory));
        assert_eq!(history(file, 0), History::Warm);
        assert!(disk(file, 0, RANGE_BYTES), "it was used before it was dropped");
    }

    #[test]
    fn empty_and_extreme_ranges() {
        let file = file("extreme");
        disk(file, 0, 0);
        disk(file, u64::MAX - 10, u64::MAX);
        assert!(!disk(file, RANGE_BYTES, RANGE_BYTES));
        assert!(!disk(file, RANGE_BYTES, RANGE_BYTES), "no byte was read twice");
    }

    #[test]
    fn entries_age() {
        let (file, window) = (file("age"), 100);
        let note = |now| note_range(file, 7, 0..16, Source::Disk, now, window);
        assert!(!note(1000));
        assert!(!note(1101), "after the window");
        assert!(note(1201));
        assert!(note(1250) && note(1340), "each read renews it");
        assert!(!note(1441));
        assert!(!note((1 << CLOCK_BITS) - 1));
        assert!(note(50), "the clock has come round");
    }

    #[test]
    fn entries_are_packed() {
        let none = Entry::new(5);
        let entries = [
            none,
            Entry { clock: CLOCK_MASK, reached: PARTS, ..none },
            Entry { hot: true, ..none },
            Entry { uncached: true, reached: 3, ..none },
            Entry { others: true, ..none },
        ];
        for entry in entries {
            assert_eq!(Entry::of_bits(entry.to_bits() | 99 << TAG_SHIFT), entry);
        }
    }
}
