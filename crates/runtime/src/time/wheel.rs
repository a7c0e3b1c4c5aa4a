//! Hierarchical timer wheel with millisecond ticks: arming, disarming and removing cost O(1).
//!
//! Entries are armed *lazily*: a connection that extends its deadline with every request only
//! stores the new deadline; its entry stays where it is linked, and when the wheel reaches that
//! place too early it relinks the entry. So a keep-alive request costs no wheel operation at all,
//! and each entry is touched about once per timeout period.
//!
//! Called by: `time` (sleep, deadlines) and the worker's turn. Never reads a clock itself.

use std::cell::Cell;
use std::num::NonZeroU32;
use std::task::Waker;

use slab::Slab;

/// Bits of the tick that one level covers: 64 slots.
const LEVEL_BITS: u32 = 6;
const SLOTS: usize = 1 << LEVEL_BITS;
/// 6 levels cover 2^36 ms, about 795 days; a later deadline is reached by relinking.
const LEVELS: usize = 6;
/// Farthest distance (ticks) at which an entry can be linked.
const SPAN_MAX: u64 = (1 << (LEVEL_BITS * LEVELS as u32)) - 1;

/// "No entry" in the linked lists.
const NIL: u32 = u32::MAX;
/// The deadline of a disarmed entry.
const NEVER: u64 = u64::MAX;

/// Identifies an entry of the wheel; valid until removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TimerId(NonZeroU32);

impl TimerId {
    fn new(index: usize) -> TimerId {
        TimerId(NonZeroU32::MIN.saturating_add(index as u32))
    }

    fn index(self) -> usize {
        self.0.get() as usize - 1
    }
}

#[derive(Debug)]
struct TimerEntry {
    /// The time to wake its owner; [`NEVER`] while disarmed.
    deadline: u64,
    waker: Option<Waker>,
    next: u32,
    prev: u32,
    /// Level and slot, while it is linked.
    place: u16,
    linked: bool,
}

// Part of the memory cost of an idle connection.
const _: () = assert!(size_of::<Option<TimerEntry>>() <= 40);

/// The wheel; one per worker.
pub(crate) struct Wheel {
    entries: Slab<TimerEntry>,
    heads: [[u32; SLOTS]; LEVELS],
    /// One bit per non-empty slot.
    occupied: [u64; LEVELS],
    /// The tick at which the first occupied slot begins, [`NEVER`] if there is none; `None`: not known.
    next: Cell<Option<u64>>,
    /// All entries up to and including this tick have fired.
    now: u64,
}

impl Wheel {
    /// An empty wheel at tick 0.
    pub(crate) fn new() -> Wheel {
        Wheel {
            entries: Slab::new(),
            heads: [[NIL; SLOTS]; LEVELS],
            occupied: [0; LEVELS],
            next: Cell::new(Some(NEVER)),
            now: 0,
        }
    }

    /// Creates a disarmed entry.
    pub(crate) fn insert(&mut self) -> TimerId {
        let entry = TimerEntry {
            deadline: NEVER,
            waker: None,
            next: NIL,
            prev: NIL,
            place: 0,
            linked: false,
        };
        TimerId::new(self.entries.insert(entry))
    }

    /// Sets the deadline (tick) and the waker. A deadline already past fires with the next
    /// [`advance`](Wheel::advance).
    pub(crate) fn arm(&mut self, id: TimerId, deadline: u64, waker: &Waker) {
        let index = id.index();
        let entry = &mut self.entries[index];
        match &mut entry.waker {
            Some(known) if known.will_wake(waker) => {}
            other => *other = Some(waker.clone()),
        }
        entry.deadline = deadline.min(NEVER - 1);
        if entry.linked {
            let (place, deadline) = (entry.place, entry.deadline);
            if self.begin_of(place) <= deadline {
                return;
            }
            self.unlink(index as u32);
        }
        self.link(index as u32);
    }

    /// Disarms the entry, which stays linked until the wheel passes it.
    pub(crate) fn disarm(&mut self, id: TimerId) {
        self.entries[id.index()].deadline = NEVER;
    }

    /// Removes the entry; returns its waker so that the caller drops it outside any borrow.
    pub(crate) fn remove(&mut self, id: TimerId) -> Option<Waker> {
        if self.entries[id.index()].linked {
            self.unlink(id.index() as u32);
        }
        self.entries.remove(id.index()).waker
    }

    /// The tick at which [`advance`](Wheel::advance) must be called next, if any entry is linked.
    /// May be earlier than the earliest deadline, never later.
    #[inline]
    pub(crate) fn next_tick(&self) -> Option<u64> {
        // Where a slot begins does not depend on the current tick.
        let next = self.next.get().unwrap_or_else(|| self.find_next());
        (next != NEVER).then_some(next)
    }

    #[inline(never)]
    fn find_next(&self) -> u64 {
        let slots = (0..LEVELS).filter_map(|level| self.next_slot(level));
        let next = slots.map(|(_, tick)| tick).min().unwrap_or(NEVER);
        self.next.set(Some(next));
        next
    }

    /// Fires all entries due at `now` (tick): pushes the wakers to `woken` and disarms their entries. Time
    /// never runs backwards: an earlier `now` is ignored.
    #[inline]
    pub(crate) fn advance(&mut self, now: u64, woken: &mut Vec<Waker>) {
        while let Some(tick) = self.next_tick().filter(|tick| *tick <= now) {
            self.fire_at(tick, woken);
        }
        self.now = self.now.max(now);
    }

    /// Advances to this tick, at which a slot begins.
    #[inline(never)]
    fn fire_at(&mut self, tick: u64, woken: &mut Vec<Waker>) {
        self.now = self.now.max(tick);
        for level in (0..LEVELS).rev() {
            if let Some((slot, at)) = self.next_slot(level)
                && at <= self.now
            {
                self.fire(level, slot, woken);
            }
        }
    }

    /// Empties one slot: each entry fires, is relinked nearer to its deadline, or is parked.
    fn fire(&mut self, level: usize, slot: usize, woken: &mut Vec<Waker>) {
        let mut index = std::mem::replace(&mut self.heads[level][slot], NIL);
        self.occupied[level] &= !(1 << slot);
        self.next.set(None);
        while index != NIL {
            let entry = &mut self.entries[index as usize];
            let next = entry.next;
            entry.linked = false;
            if entry.deadline <= self.now {
                entry.deadline = NEVER;
                woken.extend(entry.waker.take());
            } else if entry.deadline != NEVER {
                self.link(index);
            }
            index = next;
        }
    }

    /// The first occupied slot of a level, counted from now, and the tick at which it begins.
    fn next_slot(&self, level: usize) -> Option<(usize, u64)> {
        let occupied = self.occupied[level];
        if occupied == 0 {
            return None;
        }
        let shift = LEVEL_BITS * level as u32;
        let position = self.now >> shift;
        let current = (position & (SLOTS as u64 - 1)) as u32;
        let distance = occupied.rotate_right(current).trailing_zeros();
        let slot = ((current + distance) % SLOTS as u32) as usize;
        Some((slot, (position + u64::from(distance)) << shift))
    }

    /// The tick at which an occupied slot begins: its entries are then processed.
    fn begin_of(&self, place: u16) -> u64 {
        let (level, slot) = (u32::from(place) / SLOTS as u32, u64::from(place) % SLOTS as u64);
        let shift = LEVEL_BITS * level;
        let position = self.now >> shift;
        (position + (slot.wrapping_sub(position) & (SLOTS as u64 - 1))) << shift
    }

    fn link(&mut self, index: u32) {
        let now = self.now;
        let entry = &mut self.entries[index as usize];
        debug_assert!(!entry.linked && entry.deadline != NEVER, "an armed entry is in one list");
        // A deadline in the past belongs in the next tick's slot: this tick's has been emptied.
        let at = entry.deadline.clamp(now + 1, now + SPAN_MAX / 2);
        let level = ((63 - (at ^ now).leading_zeros()) / LEVEL_BITS).min(LEVELS as u32 - 1);
        let slot = ((at >> (LEVEL_BITS * level)) & (SLOTS as u64 - 1)) as usize;
        let level = level as usize;
        (entry.linked, entry.place) = (true, (level * SLOTS + slot) as u16);
        entry.prev = NIL;
        entry.next = self.heads[level][slot];
        let next = entry.next;
        self.heads[level][slot] = index;
        self.occupied[level] |= 1 << slot;
        if next != NIL {
            self.entries[next as usize].prev = index;
        } else {
            self.next.set(None);
        }
    }

    fn unlink(&mut self, index: u32) {
        let entry = &mut self.entries[index as usize];
        let (prev, next) = (entry.prev, entry.next);
        let (level, slot) = (entry.place as usize / SLOTS, entry.place as usize % SLOTS);
        entry.linked = false;
        if next != NIL {
            self.entries[next as usize].prev = prev;
        }
        if prev != NIL {
            self.entries[prev as usize].next = next;
        } else {
            self.heads[level][slot] = next;
            if next == NIL {
                self.occupied[level] &= !(1 << slot);
                self.next.set(None);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
    use std::task::Wake;

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, SeqCst);
        }
    }

    fn advance(wheel: &mut Wheel, now: u64) {
        let mut woken = Vec::new();
        wheel.advance(now, &mut woken);
        woken.into_iter().for_each(Waker::wake);
    }

    fn armed(wheel: &mut Wheel, deadline: u64) -> (TimerId, Arc<Count>) {
        let count = Arc::new(Count::default());
        let id = wheel.insert();
        wheel.arm(id, deadline, &Waker::from(count.clone()));
        (id, count)
    }

    /// The next tick, which is that of a search, regardless of what is known already.
    fn next_tick(wheel: &Wheel) -> Option<u64> {
        let known = wheel.next_tick();
        assert_eq!(known.unwrap_or(NEVER), wheel.find_next());
        known
    }

    #[test]
    fn fires_at_the_deadline_not_before() {
        let edges = [1, 2, 63, 64, 65, 127, 4095, 4096, 4097, 262_144, 1 << 36, (1 << 40) + 7];
        for start in [0, 1, 62, 63, 64, 4_000, 262_143] {
            for distance in edges {
                let mut wheel = Wheel::new();
                advance(&mut wheel, start);
                let (_, count) = armed(&mut wheel, start + distance);
                advance(&mut wheel, start + distance - 1);
                assert_eq!(count.0.load(SeqCst), 0, "{start}+{distance} fired early");
                advance(&mut wheel, start + distance);
                assert_eq!(count.0.load(SeqCst), 1, "{start}+{distance} did not fire");
                assert_eq!(wheel.next_tick(), None);
            }
        }
    }

    #[test]
    fn next_tick_never_passes_a_deadline() {
        let mut wheel = Wheel::new();
        let mut seed = 0x9e37_79b9_7f4a_7c15u64;
        let mut random = move |below: u64| {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            seed % below
        };
        let mut timers = Vec::new();
        for _ in 0..2000 {
            let deadline = 1 + random(300_000);
            let (id, count) = armed(&mut wheel, deadline);
            assert!(next_tick(&wheel).unwrap() <= deadline);
            timers.push((id, count, deadline));
        }
        // A third are extended, a third are shortened or removed.
        for (id, count, deadline) in &mut timers {
            match random(6) {
                0 | 1 => *deadline += random(100_000),
                2 => *deadline = 1 + *deadline / 2,
                3 => {
                    wheel.disarm(*id);
                    *deadline = NEVER;
                    continue;
                }
                _ => continue,
            }
            wheel.arm(*id, *deadline, &Waker::from(count.clone()));
            assert!(next_tick(&wheel).unwrap() <= *deadline);
        }
        while let Some(tick) = next_tick(&wheel) {
            for (_, count, deadline) in &timers {
                assert!(count.0.load(SeqCst) == 1 || *deadline >= tick, "{deadline} < {tick}");
            }
            advance(&mut wheel, tick);
            for (_, count, deadline) in &timers {
                assert_eq!(count.0.load(SeqCst), usize::from(*deadline <= tick));
            }
        }
        assert!(timers.iter().all(|(_, c, d)| c.0.load(SeqCst) == usize::from(*d != NEVER)));
        for (id, ..) in timers {
            wheel.remove(id);
            next_tick(&wheel);
        }
    }

    #[test]
    fn postponing_does_not_touch_the_wheel() {
        let mut wheel = Wheel::new();
        let (id, count) = armed(&mut wheel, 1000);
        let place = wheel.entries[id.index()].place;
        for now in 1..900 {
            advance(&mut wheel, now);
            let waker = Waker::from(count.clone());
            wheel.arm(id, now + 1000, &waker);
            if now < 63 {
                assert_eq!(wheel.entries[id.index()].place, place);
            }
        }
        advance(&mut wheel, 1898);
        assert_eq!(count.0.load(SeqCst), 0);
        advance(&mut wheel, 1899);
        assert_eq!(count.0.load(SeqCst), 1);
        assert!(wheel.remove(id).is_none());
        assert!(wheel.entries.is_empty());
    }
}
