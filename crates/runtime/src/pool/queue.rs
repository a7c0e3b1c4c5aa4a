//! The order in which a pool serves its tasks: a pure data structure, no threads and no clocks.
//!
//! Used by: [`super::Pool`], under its lock. Never: runs anything, allocates without a bound (the
//! caller refuses before it pushes too much).
//!
//! Two classes wait in lanes of their own. Within a lane keys take turns, one task each; within a
//! key the order is first in, first out. Short path operations go first, but every
//! [`PATH_STREAK_MAX`] of them let one bulk task pass, so neither starves. Bulk work leaves a
//! reserve of threads to path operations, and no key but 0 may hold every thread that bulk work
//! may hold: one file on a broken disk, or one greedy client, leaves threads to others.

use std::collections::{BTreeMap, HashMap, VecDeque};

use super::Class;

/// So many path tasks in a row are started while bulk tasks wait.
const PATH_STREAK_MAX: u32 = 4;

/// One part in so many of a pool's threads (at least one) is kept free of bulk tasks, and one part
/// of the rest free of each single key.
const RESERVE_PART: usize = 8;

/// How many tasks may run at once.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Bulk tasks.
    pub bulk: usize,
    /// Tasks of one key; key 0 is exempt.
    pub per_key: usize,
}

impl Limits {
    /// The limits of a pool with `threads` threads.
    pub(super) fn shared(threads: usize) -> Limits {
        let keep_one = |n: usize| n.saturating_sub((n / RESERVE_PART).max(1)).max(1);
        let bulk = keep_one(threads);
        Limits { bulk, per_key: keep_one(bulk) }
    }

    /// No limits: for a pool whose tasks never wait.
    pub(super) fn none() -> Limits {
        Limits { bulk: usize::MAX, per_key: usize::MAX }
    }
}

/// Names a waiting task, to take it back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ticket {
    class: Class,
    key: u64,
    number: u64,
}

/// Names a running task's share of the limits; to be given back by [`Fair::done`].
#[derive(Clone, Copy, Debug)]
#[must_use]
pub(super) struct Share {
    class: Class,
    key: u64,
}

/// Waiting tasks `E` and the counts of those running.
pub(super) struct Fair<E> {
    limits: Limits,
    keys: HashMap<u64, Key<E>>,
    /// Per class: turn number → key. A key is listed when it has a waiting task that may start.
    rings: [BTreeMap<u64, u64>; 2],
    next_turn: u64,
    next_number: u64,
    waiting: usize,
    running_bulk: usize,
    path_streak: u32,
}

struct Key<E> {
    running: usize,
    lanes: [Lane<E>; 2],
}

struct Lane<E> {
    tasks: VecDeque<(u64, E)>,
    /// This key's place in the ring of the class.
    turn: Option<u64>,
}

impl<E> Key<E> {
    fn new() -> Key<E> {
        let lane = || Lane { tasks: VecDeque::new(), turn: None };
        Key { running: 0, lanes: [lane(), lane()] }
    }

    fn is_unused(&self) -> bool {
        self.running == 0 && self.lanes.iter().all(|lane| lane.tasks.is_empty())
    }
}

impl<E> Fair<E> {
    pub(super) fn new(limits: Limits) -> Fair<E> {
        Fair {
            limits,
            keys: HashMap::new(),
            rings: [BTreeMap::new(), BTreeMap::new()],
            next_turn: 0,
            next_number: 0,
            waiting: 0,
            running_bulk: 0,
            path_streak: 0,
        }
    }

    /// Number of waiting tasks.
    pub(super) fn waiting(&self) -> usize {
        self.waiting
    }

    /// Adds a task at the end of its key's line.
    pub(super) fn push(&mut self, class: Class, key: u64, task: E) -> Ticket {
        let number = self.next_number;
        self.next_number += 1;
        self.waiting += 1;
        let state = self.keys.entry(key).or_insert_with(Key::new);
        state.lanes[class as usize].tasks.push_back((number, task));
        self.list(class, key);
        Ticket { class, key, number }
    }

    /// Takes a waiting task back; `None` when it has started.
    pub(super) fn remove(&mut self, ticket: Ticket) -> Option<E> {
        let state = self.keys.get_mut(&ticket.key)?;
        let lane = &mut state.lanes[ticket.class as usize];
        let at = lane.tasks.binary_search_by_key(&ticket.number, |(number, _)| *number).ok()?;
        let (_, task) = lane.tasks.remove(at)?;
        if lane.tasks.is_empty()
            && let Some(turn) = lane.turn.take()
        {
            self.rings[ticket.class as usize].remove(&turn);
        }
        if state.is_unused() {
            self.keys.remove(&ticket.key);
        }
        self.waiting -= 1;
        Some(task)
    }

    /// Whether some waiting task may start now.
    pub(super) fn is_ready(&self) -> bool {
        self.is_class_ready(Class::Path) || self.is_class_ready(Class::Bulk)
    }

    /// The task to start next, if one may start within the limits.
    pub(super) fn pop(&mut self) -> Option<(Share, E)> {
        let bulk_ready = self.is_class_ready(Class::Bulk);
        let path_ready = self.is_class_ready(Class::Path);
        let class = match (path_ready, bulk_ready) {
            (false, false) => return None,
            (true, true) if self.path_streak >= PATH_STREAK_MAX => Class::Bulk,
            (true, _) => Class::Path,
            (false, true) => Class::Bulk,
        };
        self.path_streak =
            if class == Class::Path && bulk_ready { self.path_streak + 1 } else { 0 };
        let (_, key) = self.rings[class as usize].pop_first()?;
        let state = self.keys.get_mut(&key).expect("a listed key has a waiting task");
        let lane = &mut state.lanes[class as usize];
        lane.turn = None;
        let (_, task) = lane.tasks.pop_front().expect("a listed key has a waiting task");
        state.running += 1;
        self.waiting -= 1;
        if class == Class::Bulk {
            self.running_bulk += 1;
        }
        if self.may_start(key) {
            self.list(class, key);
        } else {
            self.unlist(key);
        }
        Some((Share { class, key }, task))
    }

    /// Gives back what [`pop`](Fair::pop) took.
    pub(super) fn done(&mut self, share: Share) {
        if share.class == Class::Bulk {
            self.running_bulk -= 1;
        }
        let state = self.keys.get_mut(&share.key).expect("a running task keeps its key");
        state.running -= 1;
        if state.is_unused() {
            self.keys.remove(&share.key);
        } else {
            self.list(Class::Path, share.key);
            self.list(Class::Bulk, share.key);
        }
    }

    /// Takes all waiting tasks out.
    pub(super) fn drain(&mut self) -> Vec<E> {
        let mut tasks = Vec::with_capacity(self.waiting);
        self.rings.iter_mut().for_each(BTreeMap::clear);
        for state in self.keys.values_mut() {
            for lane in &mut state.lanes {
                lane.turn = None;
                tasks.extend(lane.tasks.drain(..).map(|(_, task)| task));
            }
        }
        self.keys.retain(|_, state| !state.is_unused());
        self.waiting = 0;
        tasks
    }

    fn is_class_ready(&self, class: Class) -> bool {
        !self.rings[class as usize].is_empty()
            && (class == Class::Path || self.running_bulk < self.limits.bulk)
    }

    fn may_start(&self, key: u64) -> bool {
        key == 0 || self.keys.get(&key).is_some_and(|state| state.running < self.limits.per_key)
    }

    /// Puts `key` at the end of the ring if it has a task to start there and isn't listed yet.
    fn list(&mut self, class: Class, key: u64) {
        if !self.may_start(key) {
            return;
        }
        let Some(state) = self.keys.get_mut(&key) else { return };
        let lane = &mut state.lanes[class as usize];
        if lane.turn.is_some() || lane.tasks.is_empty() {
            return;
        }
        lane.turn = Some(self.next_turn);
        self.rings[class as usize].insert(self.next_turn, key);
        self.next_turn += 1;
    }

    /// Takes `key` out of both rings: it runs all that it may.
    fn unlist(&mut self, key: u64) {
        let Some(state) = self.keys.get_mut(&key) else { return };
        for (lane, ring) in state.lanes.iter_mut().zip(&mut self.rings) {
            if let Some(turn) = lane.turn.take() {
                ring.remove(&turn);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drain_order(fair: &mut Fair<u32>) -> Vec<u32> {
        let mut order = Vec::new();
        while let Some((share, task)) = fair.pop() {
            fair.done(share);
            order.push(task);
        }
        order
    }

    #[test]
    fn keys_take_turns() {
        let mut fair = Fair::new(Limits::shared(4));
        for task in 0..4 {
            fair.push(Class::Bulk, 1, task);
        }
        fair.push(Class::Bulk, 2, 10);
        fair.push(Class::Bulk, 3, 20);
        assert_eq!(drain_order(&mut fair), [0, 10, 20, 1, 2, 3]);
        assert!(fair.keys.is_empty(), "no key is kept without tasks");
    }

    #[test]
    fn path_goes_first_without_starving_bulk() {
        let mut fair = Fair::new(Limits::shared(4));
        for task in 0..6 {
            fair.push(Class::Path, u64::from(task) + 1, task);
        }
        fair.push(Class::Bulk, 1, 100);
        assert_eq!(drain_order(&mut fair), [0, 1, 2, 3, 100, 4, 5]);
    }

    #[test]
    fn limits_leave_threads_to_others() {
        assert_eq!(Limits::shared(1).bulk, 1);
        assert_eq!(Limits::shared(32).bulk, 28);
        assert_eq!(Limits::shared(32).per_key, 25);
        let mut fair = Fair::new(Limits::shared(4));
        for task in 0..10 {
            fair.push(Class::Bulk, 1, task);
        }
        let first = fair.pop().unwrap();
        let _second = fair.pop().unwrap();
        assert!(fair.pop().is_none(), "one key runs two of the three bulk tasks");
        fair.push(Class::Bulk, 2, 20);
        assert_eq!(fair.pop().unwrap().1, 20);
        fair.push(Class::Bulk, 3, 30);
        assert!(fair.pop().is_none(), "the last thread is not for bulk tasks");
        fair.push(Class::Path, 4, 40);
        assert_eq!(fair.pop().unwrap().1, 40);
        fair.done(first.0);
        assert_eq!(fair.pop().unwrap().1, 30, "the place goes to the key that waited longer");
    }

    #[test]
    fn removal_forgets_empty_keys() {
        let mut fair = Fair::new(Limits::shared(2));
        let tickets: Vec<_> =
            (0..5_u32).map(|n| fair.push(Class::Bulk, u64::from(n) % 2 + 1, n)).collect();
        assert_eq!(fair.remove(tickets[2]), Some(2));
        assert_eq!(fair.remove(tickets[2]), None);
        assert_eq!(fair.waiting(), 4);
        assert_eq!(drain_order(&mut fair), [0, 1, 4, 3]);
        assert_eq!(fair.remove(tickets[4]), None);
        let ticket = fair.push(Class::Path, 9, 9);
        fair.remove(ticket);
        assert!(fair.keys.is_empty() && !fair.is_ready());
    }
}
