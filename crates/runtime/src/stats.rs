//! The time that a loop runs without returning to the kernel: the `event_loop_blocked` histogram.
//!
//! The worker marks the beginning and end of each turn; work that runs in it may set a label, so
//! that the longest turn can be attributed. Read by status pages from other threads. Never: takes
//! locks on the loop's usual path.

use std::cell::{Cell, RefCell};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::time::turn;

use crate::events::{self, EventKind};

/// Turns from this length on are events, in nanoseconds: 50 ms.
pub const LONG_TURN_NS: u64 = 50_000_000;

/// Number of buckets: bucket `n` counts turns of less than 2ⁿ µs that fit in no earlier one; the
/// last one counts all longer turns.
pub const BUCKETS: usize = 24;

/// Turns from this time on are kept for [`delay_since`].
const LONG_TURN: Duration = Duration::from_millis(1);

/// Long turns that a loop remembers.
const LONG_TURNS_MAX: usize = 64;

/// The last long turns of a loop: when each ended, and how long it was.
struct LongTurns {
    turns: [Option<(Instant, Duration)>; LONG_TURNS_MAX],
    next: usize,
}

thread_local! {
    static LABEL: Cell<&'static str> = const { Cell::new("") };
    static LONG_TURNS: RefCell<LongTurns> =
        const { RefCell::new(LongTurns { turns: [None; LONG_TURNS_MAX], next: 0 }) };
}

/// Time that turns of this thread's loop of at least a millisecond have taken since `start`, the present one
/// included: nothing else was served meanwhile. Only the last 64 such turns are known.
pub fn delay_since(start: Instant) -> Duration {
    let ended: Duration = LONG_TURNS.with_borrow(|long| {
        let after = long.turns.iter().flatten().filter(|(end, _)| *end > start);
        // A turn that began before is counted from `start`.
        after.map(|(end, time)| (*time).min(end.saturating_duration_since(start))).sum()
    });
    let present = turn::begun().map_or(Duration::ZERO, |begun| begun.max(start).elapsed());
    if present >= LONG_TURN { ended + present } else { ended }
}

/// Names the work that the current task is about to do, such as a handler's name. The label stays
/// until the next call or the end of the turn.
pub fn set_label(label: &'static str) {
    LABEL.set(label);
}

/// The current label; empty: none.
pub fn label() -> &'static str {
    LABEL.get()
}

/// The histogram of one worker, shared between its loop, the only writer, and its readers. It has
/// cache lines to itself.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct Blocked {
    buckets: [AtomicU64; BUCKETS],
    total_ns: AtomicU64,
    longest_ns: AtomicU64,
    longest_label: Mutex<&'static str>,
}

/// A copy of a [`Blocked`] histogram.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockedSnapshot {
    /// See [`BUCKETS`].
    pub buckets: [u64; BUCKETS],
    /// Sum of all turns.
    pub total: Duration,
    /// The longest turn, and the label at its end.
    pub longest: Duration,
    pub longest_label: &'static str,
}

impl Blocked {
    fn record(&self, ns: u64) {
        // Only this worker writes: neither atomic addition nor comparison is needed.
        let add = |to: &AtomicU64, more| to.store(to.load(Relaxed).wrapping_add(more), Relaxed);
        add(&self.buckets[bucket(ns)], 1);
        add(&self.total_ns, ns);
        if ns >= LONG_TURN.as_nanos() as u64 {
            remember(Duration::from_nanos(ns));
        }
        if ns > self.longest_ns.load(Relaxed) {
            self.longest_ns.store(ns, Release);
            *self.longest_label.lock().unwrap_or_else(PoisonError::into_inner) = label();
        }
        if ns >= LONG_TURN_NS {
            note_long_turn(ns);
        }
    }

    pub fn snapshot(&self) -> BlockedSnapshot {
        // Read before the total, and written after it: the longest turn never exceeds the sum of all.
        let longest = Duration::from_nanos(self.longest_ns.load(Acquire));
        BlockedSnapshot {
            buckets: std::array::from_fn(|n| self.buckets[n].load(Relaxed)),
            total: Duration::from_nanos(self.total_ns.load(Relaxed)),
            longest,
            longest_label: *self.longest_label.lock().unwrap_or_else(PoisonError::into_inner),
        }
    }
}

/// An event for a long turn of this thread.
#[cold]
fn note_long_turn(ns: u64) {
    let thread = std::thread::current();
    let name = thread.name().unwrap_or("event loop");
    let cause = match label() {
        "" => "unknown work",
        label => label,
    };
    let text = format_args!(
        "a turn of the event loop of {name} took {:.1} ms, last at work: {cause}",
        ns as f64 / 1e6
    );
    events::announce(EventKind::EventLoopBlocked, name, text);
}

impl BlockedSnapshot {
    /// Number of turns.
    pub fn turns(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// Upper bound of bucket `n` in microseconds; `None` for the last one.
    pub fn bound_us(n: usize) -> Option<u64> {
        (n < BUCKETS - 1).then(|| 1 << n)
    }
}

#[cold]
fn remember(time: Duration) {
    LONG_TURNS.with_borrow_mut(|long| {
        let at = long.next % LONG_TURNS_MAX;
        long.turns[at] = Some((Instant::now(), time));
        long.next = at + 1;
    });
}

fn bucket(ns: u64) -> usize {
    let us = ns / 1000;
    ((u64::BITS - us.leading_zeros()) as usize).min(BUCKETS - 1)
}

/// Measures the turns of one loop. Times are nanoseconds of any clock.
#[derive(Debug)]
pub struct TurnTimer {
    blocked: Arc<Blocked>,
    since_ns: Option<u64>,
}

impl TurnTimer {
    pub fn new(blocked: Arc<Blocked>) -> TurnTimer {
        TurnTimer { blocked, since_ns: None }
    }

    /// The kernel returned at this time.
    pub fn turn_begin(&mut self, now_ns: u64) {
        self.since_ns = Some(now_ns);
    }

    /// The loop is about to enter the kernel, at this time. Does nothing without a preceding
    /// `turn_begin`.
    pub fn turn_end(&mut self, now_ns: u64) {
        if let Some(since_ns) = self.since_ns.take() {
            self.blocked.record(now_ns.saturating_sub(since_ns));
            set_label("");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_fall_into_buckets() {
        assert_eq!(bucket(999), 0);
        assert_eq!(bucket(1000), 1);
        assert_eq!(bucket(3_999), 2);
        assert_eq!(bucket(4_000), 3);
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
        assert_eq!(BlockedSnapshot::bound_us(3), Some(8));
    }

    #[test]
    fn long_turns_are_remembered() {
        let start = Instant::now();
        let mut timer = TurnTimer::new(Arc::default());
        for ns in [999_999, 2_000_000, 3_000_000] {
            timer.turn_begin(0);
            timer.turn_end(ns);
        }
        // No more of a turn counts than the part since the start.
        assert!(delay_since(start) <= 2 * start.elapsed());
        let before = start.checked_sub(Duration::from_secs(1)).unwrap();
        assert_eq!(delay_since(before), Duration::from_millis(5));
        assert_eq!(delay_since(Instant::now()), Duration::ZERO);
        for _ in 0..2 * LONG_TURNS_MAX {
            remember(Duration::from_millis(1));
        }
        assert_eq!(delay_since(before), Duration::from_millis(LONG_TURNS_MAX as u64));
    }

    #[test]
    fn the_longest_turn_is_named() {
        let blocked = Arc::new(Blocked::default());
        let mut timer = TurnTimer::new(blocked.clone());
        let start = 123;
        for (label, ms) in [("static", 2), ("autoindex", 30), ("static", 3)] {
            timer.turn_begin(start);
            set_label(label);
            timer.turn_end(start + ms * 1_000_000);
            assert_eq!(super::label(), "");
        }
        timer.turn_end(start + 9_000_000_000);
        let snapshot = blocked.snapshot();
        assert_eq!(snapshot.turns(), 3);
        assert_eq!(snapshot.longest, Duration::from_millis(30));
        assert_eq!(snapshot.longest_label, "autoindex");
        assert_eq!(snapshot.total, Duration::from_millis(35));
    }
}
