//! The lists of one worker: connections by group and peer, newest last.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use nowait_runtime::Remote;
use rustc_hash::FxHashMap;

use super::connection::{IdleConnection, Tag};
use crate::group::Group;

thread_local! {
    /// The idle connections of this worker.
    pub(super) static POOLS: RefCell<Pools> = RefCell::new(Pools::new());
}

/// A group's idle connections in all workers. Generations of a group share it; when the last
/// reference is dropped, they are closed.
#[derive(Default)]
pub(crate) struct PoolToken {
    id: u64,
    /// Workers with such connections; ones that have ended meanwhile are removed when the next one
    /// registers.
    workers: Mutex<Vec<Remote>>,
}

impl PoolToken {
    pub(crate) fn new() -> PoolToken {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        PoolToken { id: NEXT.fetch_add(1, Relaxed), workers: Mutex::default() }
    }

    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    fn enter(&self, remote: Remote) {
        let mut workers = self.workers.lock().unwrap_or_else(PoisonError::into_inner);
        workers.retain(|worker| !worker.has_ended());
        workers.push(remote);
    }
}

impl Drop for PoolToken {
    fn drop(&mut self) {
        let id = self.id;
        let workers = std::mem::take(&mut self.workers);
        for remote in workers.into_inner().unwrap_or_else(PoisonError::into_inner) {
            let close = Box::new(move || -> nowait_runtime::worker::LocalFuture {
                Box::pin(async move {
                    let pool = POOLS.with_borrow_mut(|pools| pools.pools.remove(&id));
                    drop(pool.map(|pool| in_order([pool])));
                })
            });
            // A worker that has ended has closed them.
            let _ = remote.spawn(close);
        }
    }
}

/// A connection that is idle.
pub(super) struct Entry {
    pub(super) connection: IdleConnection,
    pub(super) tag: Tag,
    /// When it is closed.
    pub(super) until: Instant,
    /// Its ID in this worker.
    pub(super) serial: u64,
}

/// All lists of a worker.
pub(super) struct Pools {
    /// Unique in the process.
    pub(super) id: u64,
    pools: FxHashMap<u64, Pool>,
    /// When the keeper wakes by itself; `None`: never.
    alarm: Option<Instant>,
}

/// A group's lists.
#[derive(Default)]
struct Pool {
    lists: FxHashMap<u64, List>,
    count: usize,
}

/// A peer's connections, in the order of their last use.
pub(super) struct List {
    entries: VecDeque<Entry>,
    /// The counter that other workers see.
    shown: Arc<AtomicU32>,
}

impl Drop for List {
    fn drop(&mut self) {
        self.shown.store(0, Relaxed);
    }
}

impl List {
    fn show(&self) {
        self.shown.store(u32::try_from(self.entries.len()).unwrap_or(u32::MAX), Relaxed);
    }
}

impl Pools {
    pub(super) fn new() -> Pools {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Pools { id: NEXT.fetch_add(1, Relaxed), pools: FxHashMap::default(), alarm: None }
    }

    /// Takes the newest connection to a peer that may serve the tag.
    pub(super) fn take(&mut self, pool: u64, peer: u64, tag: Tag, local: bool) -> Option<Entry> {
        let pool = self.pools.get_mut(&pool)?;
        let list = pool.lists.get_mut(&peer)?;
        let at = list.entries.iter().rposition(|entry| entry.tag.serves(tag, local))?;
        let entry = list.entries.remove(at)?;
        list.show();
        pool.count -= 1;
        Some(entry)
    }

    /// Adds a connection; `shown` creates the counter of a new list. Returns how many the group has
    /// now.
    pub(super) fn put(
        &mut self,
        group: &Group,
        peer: u64,
        entry: Entry,
        shown: impl FnOnce() -> Arc<AtomicU32>,
    ) -> usize {
        let pool = self.pools.entry(group.pool_id()).or_insert_with(|| {
            group.pool_token().enter(nowait_runtime::worker::remote());
            Pool::default()
        });
        let list = pool
            .lists
            .entry(peer)
            .or_insert_with(|| List { entries: VecDeque::new(), shown: shown() });
        list.entries.push_back(entry);
        list.show();
        pool.count += 1;
        pool.count
    }

    /// Removes the connections beyond the limit of a group, least recently used first.
    pub(super) fn shrink(&mut self, pool: u64, most: usize) -> Vec<Entry> {
        let mut out = Vec::new();
        let Some(pool) = self.pools.get_mut(&pool) else { return out };
        while pool.count > most {
            let oldest = pool.lists.values_mut().min_by_key(|list| {
                // Serial numbers do not reflect the last use; times are equal within a turn.
                let age = list.entries.front().map(|entry| (entry.until, entry.serial));
                (age.is_none(), age)
            });
            let Some(entry) = oldest.and_then(|list| {
                let entry = list.entries.pop_front();
                list.show();
                entry
            }) else {
                break;
            };
            pool.count -= 1;
            out.push(entry);
        }
        out
    }

    /// Removes the connection with this number.
    pub(super) fn remove(&mut self, pool: u64, peer: u64, serial: u64) -> Option<Entry> {
        let pool = self.pools.get_mut(&pool)?;
        let list = pool.lists.get_mut(&peer)?;
        let at = list.entries.iter().position(|entry| entry.serial == serial)?;
        let entry = list.entries.remove(at)?;
        list.show();
        pool.count -= 1;
        Some(entry)
    }

    /// The connection of this number.
    pub(super) fn get(&self, pool: u64, peer: u64, serial: u64) -> Option<&Entry> {
        let list = self.pools.get(&pool)?.lists.get(&peer)?;
        list.entries.iter().find(|entry| entry.serial == serial)
    }

    /// Removes connections that were idle for too long, least recently used first, and lists of
    /// peers no longer in use. Sets the time of the next check.
    pub(super) fn expire(&mut self, now: Instant) -> Vec<Entry> {
        let mut out = Vec::new();
        for pool in self.pools.values_mut() {
            pool.lists.retain(|_, list| {
                while list.entries.front().is_some_and(|entry| entry.until <= now) {
                    out.extend(list.entries.pop_front());
                    pool.count -= 1;
                }
                list.show();
                !list.entries.is_empty()
            });
        }
        // As in `in_order`.
        out.sort_by_key(|entry| (entry.until, entry.serial));
        let lists = self.pools.values().flat_map(|pool| pool.lists.values());
        self.alarm = lists.filter_map(|list| list.entries.front()).map(|e| e.until).min();
        out
    }

    /// When the keeper wakes by itself.
    pub(super) fn alarm(&self) -> Option<Instant> {
        self.alarm
    }

    /// Whether the keeper has to be woken to check in time.
    pub(super) fn needs_alarm(&mut self, until: Instant) -> bool {
        let late = self.alarm.is_none_or(|alarm| alarm > until);
        if late {
            self.alarm = Some(until);
        }
        late
    }

    /// Removes everything.
    pub(super) fn clear(&mut self) -> Vec<Entry> {
        self.alarm = None;
        in_order(std::mem::take(&mut self.pools).into_values())
    }
}

/// All connections of these groups, least recently used first. (The order of the maps depends on
/// numbers that differ between runs of a simulation.)
fn in_order(pools: impl IntoIterator<Item = Pool>) -> Vec<Entry> {
    let lists = pools.into_iter().flat_map(|pool| pool.lists.into_values());
    let mut all: Vec<Entry> =
        lists.flat_map(|mut list| std::mem::take(&mut list.entries)).collect();
    all.sort_by_key(|entry| (entry.until, entry.serial));
    all
}
