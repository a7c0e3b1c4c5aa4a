//! The lists of one worker: connections by peer, newest last.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
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
                    let closed = POOLS.with_borrow_mut(|pools| pools.remove_group(id));
                    drop(closed);
                })
            });
            // A worker that has ended has closed them.
            let _ = remote.spawn(close);
        }
    }
}

/// A connection that is idle.
pub(super) struct IdleEntry {
    pub(super) connection: Box<IdleConnection>,
    pub(super) tag: Tag,
    /// The time at which it is closed.
    pub(super) until: Instant,
    /// Its ID in this worker.
    pub(super) serial: u64,
}

/// All lists of a worker.
pub(super) struct Pools {
    /// Unique in the process.
    pub(super) id: u64,
    /// By peer. All connections to a peer are of one group.
    lists: FxHashMap<u64, List>,
    /// By the number of a group's connections.
    groups: FxHashMap<u64, Rc<GroupPool>>,
    /// The time at which the reaper wakes by itself; `None`: never.
    alarm: Option<Instant>,
}

/// The state shared by the lists of a group.
#[derive(Default)]
struct GroupPool {
    /// Their connections.
    count: Cell<usize>,
    /// Their peers.
    peers: RefCell<Vec<u64>>,
}

/// A peer's connections, in the order of their last use.
struct List {
    entries: VecDeque<IdleEntry>,
    pool: Rc<GroupPool>,
    /// The counter that other workers see.
    shown: Arc<AtomicU32>,
}

impl Drop for List {
    fn drop(&mut self) {
        self.shown.store(0, Relaxed);
    }
}

impl List {
    /// A connection was added.
    fn added(&self) {
        self.pool.count.update(|count| count + 1);
        self.show();
    }

    /// A connection was removed.
    fn removed(&self) {
        self.pool.count.update(|count| count - 1);
        self.show();
    }

    fn show(&self) {
        self.shown.store(u32::try_from(self.entries.len()).unwrap_or(u32::MAX), Relaxed);
    }

    /// Takes the newest connection that may serve the tag.
    fn take(&mut self, tag: Tag, local: bool) -> Option<IdleEntry> {
        // It is usually the last one.
        match self.entries.back()?.tag.serves(tag, local) {
            true => self.entries.pop_back(),
            false => {
                let at = self.entries.iter().rposition(|entry| entry.tag.serves(tag, local))?;
                self.entries.remove(at)
            }
        }
    }
}

impl Pools {
    pub(super) fn new() -> Pools {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Pools {
            id: NEXT.fetch_add(1, Relaxed),
            lists: FxHashMap::default(),
            groups: FxHashMap::default(),
            alarm: None,
        }
    }

    /// Takes the newest connection to a peer that may serve the tag.
    pub(super) fn take(&mut self, peer: u64, tag: Tag, local: bool) -> Option<IdleEntry> {
        let list = self.lists.get_mut(&peer)?;
        let entry = list.take(tag, local)?;
        list.removed();
        Some(entry)
    }

    /// Adds a connection; `shown` creates the counter of a new list. Returns how many the group has
    /// now.
    pub(super) fn put(
        &mut self,
        group: &Group,
        peer: u64,
        entry: IdleEntry,
        shown: impl FnOnce() -> Arc<AtomicU32>,
    ) -> usize {
        let list = self.lists.entry(peer).or_insert_with(|| {
            let pool = self.groups.entry(group.pool_id()).or_insert_with(|| {
                group.pool_token().enter(nowait_runtime::worker::remote());
                Rc::default()
            });
            pool.peers.borrow_mut().push(peer);
            List { entries: VecDeque::new(), pool: pool.clone(), shown: shown() }
        });
        list.entries.push_back(entry);
        list.added();
        list.pool.count.get()
    }

    /// Removes the connections beyond the limit of a group, least recently used first.
    pub(super) fn shrink(&mut self, pool: u64, most: usize) -> Vec<IdleEntry> {
        let mut out = Vec::new();
        let Some(pool) = self.groups.get(&pool) else { return out };
        while pool.count.get() > most {
            let peers = pool.peers.borrow();
            let firsts = peers.iter().filter_map(|peer| {
                // Serial numbers do not reflect the last use; times are equal within a turn.
                let first = self.lists.get(peer)?.entries.front()?;
                Some((first.until, first.serial, *peer))
            });
            let oldest = firsts.min().and_then(|(.., peer)| self.lists.get_mut(&peer));
            let Some(list) = oldest else { break };
            out.extend(list.entries.pop_front());
            list.removed();
        }
        out
    }

    /// Removes the connection with this number.
    pub(super) fn remove(&mut self, peer: u64, serial: u64) -> Option<IdleEntry> {
        let list = self.lists.get_mut(&peer)?;
        let at = list.entries.iter().position(|entry| entry.serial == serial)?;
        let entry = list.entries.remove(at)?;
        list.removed();
        Some(entry)
    }

    /// Removes the connections of a group, least recently used first.
    fn remove_group(&mut self, pool: u64) -> Vec<IdleEntry> {
        let pool = self.groups.remove(&pool).unwrap_or_default();
        let all = in_order(pool.peers.take().iter().filter_map(|peer| self.lists.remove(peer)));
        debug_assert_eq!(all.len(), pool.count.get(), "a group counts its connections");
        all
    }

    /// The connection of this number.
    pub(super) fn get(&self, peer: u64, serial: u64) -> Option<&IdleEntry> {
        self.lists.get(&peer)?.entries.iter().find(|entry| entry.serial == serial)
    }

    /// Removes connections that were idle for too long, least recently used first, and lists of
    /// peers no longer in use. Sets the time of the next check.
    pub(super) fn expire(&mut self, now: Instant) -> Vec<IdleEntry> {
        let mut out = Vec::new();
        self.lists.retain(|peer, list| {
            while list.entries.front().is_some_and(|entry| entry.until <= now) {
                out.extend(list.entries.pop_front());
                list.removed();
            }
            let is_used = !list.entries.is_empty();
            if !is_used {
                list.pool.peers.borrow_mut().retain(|one| one != peer);
            }
            is_used
        });
        // As in `in_order`.
        out.sort_by_key(|entry| (entry.until, entry.serial));
        self.alarm =
            self.lists.values().filter_map(|list| list.entries.front()).map(|e| e.until).min();
        out
    }

    /// The time at which the reaper wakes by itself.
    pub(super) fn alarm(&self) -> Option<Instant> {
        self.alarm
    }

    /// Whether the reaper has to be woken to check in time.
    pub(super) fn needs_alarm(&mut self, until: Instant) -> bool {
        let late = self.alarm.is_none_or(|alarm| alarm > until);
        if late {
            self.alarm = Some(until);
        }
        late
    }

    /// Removes all connections.
    pub(super) fn clear(&mut self) -> Vec<IdleEntry> {
        self.alarm = None;
        self.groups.clear();
        in_order(std::mem::take(&mut self.lists).into_values())
    }
}

/// All connections of these lists, least recently used first. (The order of the map depends on numbers
/// that differ between runs of a simulation.)
fn in_order(lists: impl Iterator<Item = List>) -> Vec<IdleEntry> {
    let mut all: Vec<IdleEntry> =
        lists.flat_map(|mut list| std::mem::take(&mut list.entries)).collect();
    all.sort_by_key(|entry| (entry.until, entry.serial));
    all
}
