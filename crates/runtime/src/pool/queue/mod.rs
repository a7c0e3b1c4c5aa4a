//! The order in which a pool serves its tasks: a pure data structure, no threads and no clocks.
//!
//! Used by: [`super::Pool`], under its lock. Never: runs anything, allocates without a bound (the
//! caller refuses before it pushes too much).
//!
//! Two classes wait in separate lanes. Short path operations go first, but every
//! [`PATH_STREAK_MAX`] of them let one bulk task pass, so neither starves.
//!
//! Within a class, clients that rarely need the pool, and tasks on files that rarely need it, go
//! before those that keep it busy: the rank of a client's turn is the sum of both
//! [levels](Accounts::level). So a hot file that misses a page once does not wait behind hundreds
//! of cold ones. Clients of the same rank take turns, one task each; the tasks of one client start
//! in order of arrival. Busy clients do not starve: at most [`OVERTAKERS_MAX`] turns in a row pass
//! the longest-waiting one. A client behind `n` others gets its turn within `(OVERTAKERS_MAX + 1) *
//! (n + 1)` starts of its class, no matter what newcomers arrive.
//!
//! Bulk work leaves a reserve of threads to path operations, and no client but 0 may hold every
//! thread that bulk work may hold: one greedy client leaves threads to others.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::Duration;

use super::accounts::{Accounts, Payer};
use super::{Class, Owner};

/// Maximum number of path tasks started in a row while bulk tasks wait.
const PATH_STREAK_MAX: u32 = 4;

/// Maximum number of turns in a row that may pass the longest-waiting one.
const OVERTAKERS_MAX: u32 = 3;

/// One in this many of a pool's threads (at least one) is kept free of bulk tasks, and the same
/// fraction of the rest is kept free of each single client.
const RESERVE_PART: usize = 8;

/// How many tasks may run at once.
#[derive(Clone, Copy, Debug)]
pub(super) struct QueueLimits {
    /// Bulk tasks.
    pub bulk: usize,
    /// Tasks of one client; client 0 is exempt.
    pub per_client: usize,
}

impl QueueLimits {
    /// The limits of a pool with `threads` threads.
    pub(super) fn shared(threads: usize) -> QueueLimits {
        let keep_one = |n: usize| n.saturating_sub((n / RESERVE_PART).max(1)).max(1);
        let bulk = keep_one(threads);
        QueueLimits { bulk, per_client: keep_one(bulk) }
    }

    /// No limits: for a pool whose tasks never wait.
    pub(super) fn none() -> QueueLimits {
        QueueLimits { bulk: usize::MAX, per_client: usize::MAX }
    }
}

/// Identifies a waiting task, to remove it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ticket {
    class: Class,
    client: u64,
    number: u64,
}

/// A running task's share of the limits; returned by [`Fair::done`].
#[derive(Clone, Copy, Debug)]
#[must_use]
pub(super) struct Share {
    class: Class,
    owner: Owner,
}

/// Waiting tasks `E` and the counts of those running.
pub(super) struct Fair<E> {
    limits: QueueLimits,
    clients: HashMap<u64, QueueClient<E>>,
    /// Per class, the clients with a waiting task that may start.
    rings: [ClientRing; 2],
    accounts: Accounts,
    /// Running tasks of each file that has any.
    running_files: HashMap<u64, u32>,
    next_turn: u64,
    next_number: u64,
    waiting: usize,
    running_bulk: usize,
    path_streak: u32,
}

struct QueueClient<E> {
    running: usize,
    lanes: [Lane<E>; 2],
}

struct Lane<E> {
    tasks: VecDeque<Task<E>>,
    /// This client's place in the ring of the class.
    turn: Option<Turn>,
}

struct Task<E> {
    number: u64,
    file: u64,
    work: E,
}

/// A client's place among the waiting: the lowest rank goes first, then the lowest number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Turn {
    rank: u8,
    number: u64,
}

/// The clients waiting for their turn in one class.
#[derive(Default)]
struct ClientRing {
    by_rank: BTreeMap<Turn, u64>,
    /// The same in order of arrival: the number of the turn → its rank.
    by_age: BTreeMap<u64, u8>,
    /// Consecutive turns that were not the oldest.
    overtakers: u32,
}

impl ClientRing {
    fn is_empty(&self) -> bool {
        self.by_rank.is_empty()
    }

    fn insert(&mut self, turn: Turn, client: u64) {
        self.by_rank.insert(turn, client);
        self.by_age.insert(turn.number, turn.rank);
    }

    fn remove(&mut self, turn: Turn) -> Option<u64> {
        self.by_age.remove(&turn.number);
        self.by_rank.remove(&turn)
    }

    fn clear(&mut self) {
        self.by_rank.clear();
        self.by_age.clear();
    }

    /// Removes and returns the client whose turn it is.
    fn pop(&mut self) -> Option<u64> {
        let oldest = self.by_age.first_key_value().map(|(&number, &rank)| Turn { rank, number })?;
        let mut turn = *self.by_rank.first_key_value()?.0;
        if self.overtakers >= OVERTAKERS_MAX {
            turn = oldest;
        }
        self.overtakers = if turn == oldest { 0 } else { self.overtakers + 1 };
        self.remove(turn)
    }
}

impl<E> QueueClient<E> {
    fn new() -> QueueClient<E> {
        let lane = || Lane { tasks: VecDeque::new(), turn: None };
        QueueClient { running: 0, lanes: [lane(), lane()] }
    }

    fn is_unused(&self) -> bool {
        self.running == 0 && self.lanes.iter().all(|lane| lane.tasks.is_empty())
    }
}

impl<E> Fair<E> {
    pub(super) fn new(limits: QueueLimits) -> Fair<E> {
        Fair {
            limits,
            clients: HashMap::new(),
            rings: [ClientRing::default(), ClientRing::default()],
            accounts: Accounts::default(),
            running_files: HashMap::new(),
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

    /// Number of clients with tasks that wait or run.
    pub(super) fn clients(&self) -> usize {
        self.clients.len() - usize::from(self.clients.contains_key(&0))
    }

    /// Appends a task to its client's line. `now` is the time since any fixed moment, here and
    /// below.
    pub(super) fn push(&mut self, class: Class, owner: Owner, work: E, now: Duration) -> Ticket {
        let Owner { client, file } = owner;
        let number = self.next_number;
        self.next_number += 1;
        self.waiting += 1;
        let state = self.clients.entry(client).or_insert_with(QueueClient::new);
        state.lanes[class as usize].tasks.push_back(Task { number, file, work });
        self.list(class, client, now);
        Ticket { class, client, number }
    }

    /// Removes a waiting task; `None` when it has started.
    pub(super) fn remove(&mut self, ticket: Ticket) -> Option<E> {
        let state = self.clients.get_mut(&ticket.client)?;
        let lane = &mut state.lanes[ticket.class as usize];
        let at = lane.tasks.binary_search_by_key(&ticket.number, |task| task.number).ok()?;
        let task = lane.tasks.remove(at)?;
        if lane.tasks.is_empty()
            && let Some(turn) = lane.turn.take()
        {
            self.rings[ticket.class as usize].remove(turn);
        }
        if state.is_unused() {
            self.clients.remove(&ticket.client);
        }
        self.waiting -= 1;
        Some(task.work)
    }

    /// Whether some waiting task may start now.
    pub(super) fn is_ready(&self) -> bool {
        self.is_class_ready(Class::Path) || self.is_class_ready(Class::Bulk)
    }

    /// The task to start next, if one may start within the limits.
    pub(super) fn pop(&mut self, now: Duration) -> Option<(Share, E)> {
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
        let client = self.rings[class as usize].pop()?;
        let state = self.clients.get_mut(&client).expect("a listed client has a waiting task");
        let lane = &mut state.lanes[class as usize];
        lane.turn = None;
        let task = lane.tasks.pop_front().expect("a listed client has a waiting task");
        state.running += 1;
        self.waiting -= 1;
        if class == Class::Bulk {
            self.running_bulk += 1;
        }
        if task.file != 0 {
            *self.running_files.entry(task.file).or_insert(0) += 1;
        }
        if self.may_start(client) {
            self.list(class, client, now);
        } else {
            self.unlist(client);
        }
        Some((Share { class, owner: Owner { client, file: task.file } }, task.work))
    }

    /// Returns the share obtained by [`pop`](Fair::pop), and charges the task's client and file for
    /// its time.
    pub(super) fn done(&mut self, share: Share, served: Duration, now: Duration) {
        let Owner { client, file } = share.owner;
        if share.class == Class::Bulk {
            self.running_bulk -= 1;
        }
        self.accounts.charge(Payer::Client(client), served, now);
        if file != 0 {
            let running = self.leave_file(file);
            // Many readers of a hot file wait for the same page: the file is charged for that once.
            self.accounts.charge(Payer::File(file), served / running, now);
        }
        let state = self.clients.get_mut(&client).expect("a running task keeps its client");
        state.running -= 1;
        if state.is_unused() {
            self.clients.remove(&client);
        } else {
            self.list(Class::Path, client, now);
            self.list(Class::Bulk, client, now);
        }
    }

    /// A task on `file` has ended. Returns how many were running, including this one.
    fn leave_file(&mut self, file: u64) -> u32 {
        let Some(running) = self.running_files.get_mut(&file) else { return 1 };
        let before = *running;
        *running -= 1;
        if *running == 0 {
            self.running_files.remove(&file);
        }
        before
    }

    /// Removes and returns all waiting tasks.
    pub(super) fn drain(&mut self) -> Vec<E> {
        let mut tasks = Vec::with_capacity(self.waiting);
        self.rings.iter_mut().for_each(ClientRing::clear);
        for state in self.clients.values_mut() {
            for lane in &mut state.lanes {
                lane.turn = None;
                tasks.extend(lane.tasks.drain(..).map(|task| task.work));
            }
        }
        self.clients.retain(|_, state| !state.is_unused());
        self.waiting = 0;
        tasks
    }

    fn is_class_ready(&self, class: Class) -> bool {
        !self.rings[class as usize].is_empty()
            && (class == Class::Path || self.running_bulk < self.limits.bulk)
    }

    /// Whether another task of a client would be the next of its tasks, and within its limit.
    pub(super) fn has_turn(&self, client: u64) -> bool {
        let has_turn = |state: &QueueClient<E>| {
            state.running < self.limits.per_client
                && state.lanes.iter().all(|lane| lane.tasks.is_empty())
        };
        self.clients.get(&client).is_none_or(has_turn)
    }

    fn may_start(&self, client: u64) -> bool {
        let is_below_limit = |state: &QueueClient<E>| state.running < self.limits.per_client;
        client == 0 || self.clients.get(&client).is_some_and(is_below_limit)
    }

    /// Adds `client` to the ring if it has a task to start there and is not listed yet.
    fn list(&mut self, class: Class, client: u64, now: Duration) {
        if !self.may_start(client) {
            return;
        }
        let Some(state) = self.clients.get_mut(&client) else { return };
        let lane = &mut state.lanes[class as usize];
        let (None, Some(task)) = (lane.turn, lane.tasks.front()) else { return };
        let of_client = self.accounts.level(Payer::Client(client), now);
        // Where no file is known, the client stands in for it.
        let of_file = match task.file {
            0 => of_client,
            file => self.accounts.level(Payer::File(file), now),
        };
        let turn = Turn { rank: of_client + of_file, number: self.next_turn };
        lane.turn = Some(turn);
        self.rings[class as usize].insert(turn, client);
        self.next_turn += 1;
    }

    /// Removes `client` from both rings: it runs as many tasks as it may.
    fn unlist(&mut self, client: u64) {
        let Some(state) = self.clients.get_mut(&client) else { return };
        for (lane, ring) in state.lanes.iter_mut().zip(&mut self.rings) {
            if let Some(turn) = lane.turn.take() {
                ring.remove(turn);
            }
        }
    }
}

#[cfg(test)]
mod tests;
