//! Idle connections: each worker keeps its own, the newest is used first, and a worker without any
//! may borrow one from another worker.
//!
//! A connection belongs to its worker's driver, so the lists are per thread; other workers see only
//! a counter per worker and peer. One task per worker, the keeper, closes connections that the peer
//! has closed, that received unexpected data, or that were idle for `keepalive_timeout`: it sleeps
//! until the first of these times, and the driver wakes it for the affected connection. Taking and
//! returning connections costs no system call.
//!
//! Bounds: `keepalive` connections per worker and group, as in nginx; the least recently used one
//! makes room.

mod keeper;
mod moving;
mod pools;

use std::cell::RefCell;
use std::fmt;
use std::rc::Rc;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use nowait_runtime::Remote;
use nowait_runtime::net::Stream;
use nowait_runtime::worker;

use crate::group::Group;
use crate::peer::Peer;
use keeper::Watch;
use pools::{Entry, Pools};

pub(crate) use pools::PoolToken;

/// Which requests may use a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tag {
    /// Connection parameters: protocol, TLS, local address. Must always be equal.
    pub kind: u64,
    /// The owner: must be equal with `keepalive … local`. Unique to a location of a generation.
    pub owner: u64,
}

impl Tag {
    /// Whether a connection with this tag may serve a request with the other one.
    fn serves(self, other: Tag, local: bool) -> bool {
        self.kind == other.kind && (!local || self.owner == other.owner)
    }
}

/// A connection to a peer that may serve several requests.
pub struct IdleConnection {
    /// The connection. Only the holder of the only reference can return it.
    pub stream: Rc<Stream>,
    /// When it was opened.
    pub opened: Instant,
    /// Number of requests that it has served, including the current one.
    pub requests: u64,
    /// Wakes the keeper on activity; created when the connection is first kept.
    watch: Option<Arc<Watch>>,
}

impl IdleConnection {
    /// A connection for its first request.
    pub fn new(stream: impl Into<Rc<Stream>>, now: Instant) -> IdleConnection {
        IdleConnection { stream: stream.into(), opened: now, requests: 1, watch: None }
    }
}

impl fmt::Debug for IdleConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IdleConnection").field("requests", &self.requests).finish_non_exhaustive()
    }
}

/// The shared information about a peer's idle connections.
#[derive(Debug, Default)]
pub(crate) struct PeerIdle {
    owners: Mutex<Vec<Owner>>,
}

/// A worker that keeps connections to the peer.
struct Owner {
    /// The ID of its lists.
    id: u64,
    remote: Remote,
    count: Arc<AtomicU32>,
}

impl PeerIdle {
    /// Idle connections of all workers.
    pub(crate) fn count(&self) -> u32 {
        self.lock().iter().map(|owner| owner.count.load(Relaxed)).sum()
    }

    /// Registers a worker's list; returns its counter.
    fn enter(&self, id: u64, remote: Remote) -> Arc<AtomicU32> {
        let mut owners = self.lock();
        // Workers that have ended no longer count.
        owners.retain(|owner| owner.id != id && Arc::strong_count(&owner.count) > 1);
        let count = Arc::<AtomicU32>::default();
        owners.push(Owner { id, remote, count: count.clone() });
        count
    }

    /// The other worker with the most connections, among those that are otherwise idle: if all are
    /// busy, each opens its own connections and soon has enough of them, rather than wait for
    /// another's loop and take away what that one needs next.
    fn richest(&self, except: u64) -> Option<Remote> {
        let owners = self.lock();
        let others = owners.iter().filter(|owner| owner.id != except && owner.remote.is_waiting());
        let counted = others.map(|owner| (owner.count.load(Relaxed), owner));
        let (_, owner) = counted.filter(|(count, _)| *count > 0).max_by_key(|(count, _)| *count)?;
        Some(owner.remote.clone())
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Owner>> {
        self.owners.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Owner").field("count", &self.count).finish_non_exhaustive()
    }
}

thread_local! {
    /// The idle connections of this worker.
    static POOLS: RefCell<Pools> = RefCell::new(Pools::new());
}

/// The most recently used connection of this worker.
pub(crate) fn take(group: &Group, peer: &Peer, tag: Tag) -> Option<IdleConnection> {
    let conf = &group.conf().keepalive;
    if conf.connections == 0 {
        return None;
    }
    let local = conf.local;
    let entry =
        POOLS.with_borrow_mut(|pools| pools.take(group.pool_id(), peer.state.id, tag, local))?;
    let mut connection = entry.connection;
    connection.stream.unwatch();
    connection.requests += 1;
    Some(connection)
}

/// One of another worker's connections.
pub(crate) async fn take_remote(group: &Group, peer: &Peer, tag: Tag) -> Option<IdleConnection> {
    if group.conf().keepalive.connections == 0 {
        return None;
    }
    let me = POOLS.with_borrow(|pools| pools.id);
    let from = peer.state.idle.richest(me)?;
    let local = group.conf().keepalive.local;
    let mut connection = moving::ask(&from, group.pool_id(), peer.state.id, tag, local).await?;
    connection.requests += 1;
    Some(connection)
}

/// Keeps a connection, or closes it if it can't be reused.
pub(crate) fn put(group: &Group, peer: &Peer, mut connection: IdleConnection, tag: Tag) {
    let conf = &group.conf().keepalive;
    let now = nowait_runtime::now();
    if conf.connections == 0
        || connection.requests >= conf.requests
        || now.saturating_duration_since(connection.opened) > conf.time
        || worker::is_stopping()
        || Rc::strong_count(&connection.stream) > 1
    {
        return;
    }
    let (pool, peer_id) = (group.pool_id(), peer.state.id);
    let watch = keeper::watch(&mut connection, pool, peer_id);
    let serial = watch.serial();
    // There is unexpected data after the response.
    if keeper::has_something(&connection.stream, watch) {
        return;
    }
    let until = now + conf.timeout;
    let entry = Entry { serial, connection, tag, until };
    let (dropped, wake) = POOLS.with_borrow_mut(|pools| {
        let id = pools.id;
        let shown = || peer.state.idle.enter(id, worker::remote());
        let dropped = match pools.put(group, peer_id, entry, shown) > conf.connections {
            true => pools.shrink(pool, conf.connections),
            false => Vec::new(),
        };
        (dropped, pools.needs_alarm(until))
    });
    drop(dropped);
    keeper::start_or_wake(wake);
}
