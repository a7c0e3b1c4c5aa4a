//! Recent requests for paths without an entry, and paths that are not worth one.
//!
//! A path whose entry was short-lived is only counted again, because a late report, or the next step of
//! the same deployment, may end a useful entry. After a second short life the path is refused for the
//! rest of a tick; one that goes on changing gets one entry per tick.

use std::sync::LazyLock;

use crate::mounts::clock_ms;
use crate::table as forgetful;

/// Paths that are counted; half a megabyte.
const PATHS: usize = 1 << 16;

/// The maximum of counts, which are halved with every tick.
pub(super) const COUNT_MAX: u16 = 62;

/// A special count: the path is not worth an entry in this tick.
const REFUSED: u16 = 63;

/// Bits of a count.
const COUNT_BITS: u32 = 6;

/// The last entry of the path was short-lived.
const SHORT_LIFE: u16 = 1 << COUNT_BITS;

/// The number of requests for which a path gets an entry.
const WANTED: u16 = 2;

/// The number of recent requests from which on a path gets an entry no matter how many others do.
pub(super) const WARM: u16 = 8;

/// The number from which on it may displace another entry no matter how many others do.
pub(super) const HOT: u16 = 16;

/// Length of a tick in milliseconds.
const TICK_MS: u64 = 8192;

/// Ticks, from 0; they have the bits that are left.
const TICKS: u64 = 1 << (forgetful::VALUE_BITS - COUNT_BITS - 1);

static SEEN: LazyLock<Box<forgetful::AtomicTable<PATHS>>> =
    LazyLock::new(|| Box::new(forgetful::AtomicTable::new()));

pub(super) fn tick(now_ms: u64) -> u16 {
    (now_ms / TICK_MS % TICKS) as u16
}

/// Ticks from `then` to `now`.
fn ticks_since(then: u16, now: u16) -> u32 {
    ((u64::from(now) + TICKS - u64::from(then)) % TICKS) as u32
}

/// The value at `now` of a count of the tick `then`.
pub(super) fn aged(count: u16, then: u16, now: u16) -> u16 {
    count.checked_shr(ticks_since(then, now).min(16)).unwrap_or(0)
}

/// The history of a path.
struct PathHistory {
    count: u16,
    /// The last entry was short-lived, in this tick or the one before; or has been asked for ever since.
    short_life: bool,
    then: u16,
}

impl PathHistory {
    fn find(hash: u64, now: u16) -> Option<PathHistory> {
        let value = SEEN.find(hash)?;
        let then = value >> (COUNT_BITS + 1);
        let short_life = value & SHORT_LIFE != 0 && ticks_since(then, now) <= 1;
        Some(PathHistory { count: value & (SHORT_LIFE - 1), short_life, then })
    }
}

/// Replaces the path with fewer recent requests. Otherwise, paths requested in turn would displace each
/// other forever, beside one that is no longer requested.
fn set(hash: u64, now: u16, short_life: bool, count: u16) {
    let mark = if short_life { SHORT_LIFE } else { 0 };
    let value = now << (COUNT_BITS + 1) | mark | count;
    SEEN.set_for_the_least(hash, value, |other| {
        aged(other & (SHORT_LIFE - 1), other >> (COUNT_BITS + 1), now)
    });
}

/// Counts a request, and returns the count; 0 for a path that is not worth an entry.
pub(super) fn count(hash: u64, now: u16) -> u16 {
    let known = PathHistory::find(hash, now);
    let count = match &known {
        Some(PathHistory { count: REFUSED, then, .. }) if *then == now => return 0,
        None | Some(PathHistory { count: REFUSED, .. }) => 1,
        Some(PathHistory { count, then, .. }) => (aged(*count, *then, now) + 1).min(COUNT_MAX),
    };
    set(hash, now, known.is_some_and(|known| known.short_life), count);
    count
}

/// The number of recent requests.
pub(super) fn recent(hash: u64, now: u16) -> u16 {
    match PathHistory::find(hash, now) {
        None | Some(PathHistory { count: REFUSED, .. }) => 0,
        Some(PathHistory { count, then, .. }) => aged(count, then, now),
    }
}

/// Whether a path with this many requests should get an entry now. If that fails for lack of room, it is
/// tried again after twice as many requests.
pub(super) fn is_wanted(count: u16) -> bool {
    count >= WANTED && count.is_power_of_two()
}

/// The path should get an entry, but can't now: restores the state before the last request.
pub(super) fn postpone(hash: u64, now: u16, count: u16) {
    set(hash, now, had_short_life(hash, now), count - 1);
}

/// Whether the last entry of the path was short-lived, so that the next one would be the second.
pub(super) fn had_short_life(hash: u64, now: u16) -> bool {
    PathHistory::find(hash, now).is_some_and(|known| known.short_life)
}

/// The path gets an entry, and is not counted any more.
pub(super) fn forget(hash: u64) {
    SEEN.set(hash, 0);
}

/// The path gets no entry in this tick.
pub(super) fn refuse(hash: u64) {
    set(hash, tick(clock_ms()), false, REFUSED);
}

/// The entry of the path was short-lived, or the path changed while it was made.
pub(super) fn short_life(hash: u64, is_second: bool) {
    set(hash, tick(clock_ms()), true, if is_second { REFUSED } else { 0 });
}

/// Counts as a request for the path.
#[cfg(test)]
pub(super) fn forgive(hash: u64) {
    set(hash, tick(clock_ms()), false, 1);
}

/// Whether the path was refused, in this tick or before.
#[cfg(test)]
pub(super) fn is_refused(hash: u64) -> bool {
    PathHistory::find(hash, 0).is_some_and(|known| known.count == REFUSED)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_fade() {
        let hash = forgetful::hash("a path of this test");
        assert_eq!((count(hash, 5), count(hash, 5), count(hash, 5)), (1, 2, 3));
        assert_eq!(count(hash, 6), 2, "three are worth one a tick later");
        assert_eq!(count(hash, 30), 1);
        set(hash, 30, false, REFUSED);
        assert_eq!((count(hash, 30), count(hash, 31)), (0, 1));
        let last = (TICKS - 1) as u16;
        assert_eq!((count(hash, last), count(hash, last), count(hash, 0)), (1, 2, 2));
    }

    /// Paths with the same two places.
    fn rivals<const N: usize>() -> [u64; N] {
        std::array::from_fn(|n| (n as u64 + 1) << 48 | (n as u64 & 1) << 40 | 0x5a5a)
    }

    #[test]
    fn what_nobody_asks_for_any_more_makes_way() {
        let [forgotten, first, second] = rivals();
        (0..3).for_each(|_| _ = count(forgotten, 1));
        let asked = |now| (count(first, now), count(second, now));
        let most = (0..100).map(|_| asked(1)).max();
        assert_eq!(most, Some((1, 1)), "two share one place");
        assert_eq!((asked(3), asked(3)), ((1, 1), (2, 2)), "two ticks later");
    }

    #[test]
    fn paths_in_turn_are_counted_though_they_have_too_few_places() {
        let mut rivals = rivals::<7>().map(|hash| hash + 2).to_vec();
        for _ in 0..10_000 {
            rivals.retain(|hash| {
                let is_wanted = is_wanted(count(*hash, 1));
                if is_wanted {
                    forget(*hash);
                }
                !is_wanted
            });
        }
        assert!(rivals.is_empty(), "{rivals:x?}");
    }

    #[test]
    fn the_first_short_life_starts_the_count_anew() {
        let hash = forgetful::hash("a path that changed once");
        set(hash, 7, true, 0);
        assert!(had_short_life(hash, 7));
        assert_eq!((count(hash, 7), count(hash, 7)), (1, 2));
        assert!(had_short_life(hash, 8), "counted, and still known");
        assert!(!had_short_life(hash, 9), "a while ago");
        assert_eq!(count(hash, 9), 1);
        assert!(!had_short_life(hash, 9));
        forget(hash);
        assert_eq!(count(hash, 9), 1);
    }

    #[test]
    fn what_goes_on_changing_gets_one_entry_per_tick() {
        let hash = forgetful::hash("a path that changes all the time");
        set(hash, 7, true, REFUSED);
        assert_eq!((count(hash, 7), count(hash, 7)), (0, 0));
        assert_eq!((count(hash, 8), count(hash, 8)), (1, 2));
        assert!(had_short_life(hash, 8), "the next short life is not the first");
    }
}
