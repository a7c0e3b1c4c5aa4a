//! Idle connections: each worker keeps its own, the newest is used first, and a worker without any
//! may borrow one from another worker.
//!
//! A connection belongs to its worker's driver, so the lists are per thread; other workers see only
//! a counter per worker and peer. One task per worker, the reaper, closes connections that the peer
//! has closed, that received unexpected data, or that were idle for `keepalive_timeout`: it sleeps
//! until the first of these times, and the driver wakes it for the affected connection. Taking and
//! returning connections costs no system call.
//!
//! Bounds: `keepalive` connections per worker and group, as in nginx; the least recently used one
//! makes room.

mod connection;
mod owners;
mod pools;
mod reaper;
mod transfer;
mod wakeup;

use std::rc::Rc;

use nowait_runtime::worker;

use crate::group::Group;
use crate::peer::Peer;
use pools::{IdleEntry, POOLS};

pub use connection::{IdleConnection, Tag};
pub(crate) use owners::PeerIdle;
pub(crate) use pools::PoolToken;

/// The most recently used connection of this worker.
pub(crate) fn take(group: &Group, peer: &Peer, tag: Tag) -> Option<Box<IdleConnection>> {
    let conf = &group.conf().keepalive;
    if conf.connections == 0 {
        return None;
    }
    let local = conf.local;
    let entry = POOLS.with_borrow_mut(|pools| pools.take(peer.state.id, tag, local))?;
    let mut connection = entry.connection;
    connection.stream.unwatch();
    connection.requests += 1;
    Some(connection)
}

/// One of another worker's connections.
pub(crate) async fn take_remote(
    group: &Group,
    peer: &Peer,
    tag: Tag,
) -> Option<Box<IdleConnection>> {
    if group.conf().keepalive.connections == 0 {
        return None;
    }
    let me = POOLS.with_borrow(|pools| pools.id);
    let from = peer.state.idle.richest(me)?;
    let local = group.conf().keepalive.local;
    let mut connection = transfer::ask(&from, peer.state.id, tag, local).await?;
    connection.requests += 1;
    Some(connection)
}

/// Keeps a connection, or closes it if it can't be reused.
pub(crate) fn put(group: &Group, peer: &Peer, mut connection: Box<IdleConnection>, tag: Tag) {
    let conf = &group.conf().keepalive;
    let now = nowait_runtime::now();
    if conf.connections == 0
        || connection.requests >= conf.requests
        || connection.opened.checked_add(conf.time).is_some_and(|end| end < now)
        || worker::is_stopping()
        || Rc::strong_count(&connection.stream) > 1
    {
        return;
    }
    let peer_id = peer.state.id;
    let serial = reaper::watch(&mut connection, peer_id);
    // There is unexpected data after the response.
    if reaper::has_something(&connection) {
        return;
    }
    let until = now + conf.timeout;
    let entry = IdleEntry { serial, connection, tag, until };
    let (dropped, wake) = POOLS.with_borrow_mut(|pools| {
        let id = pools.id;
        let shown = || peer.state.idle.enter(id, worker::remote());
        let dropped = match pools.put(group, peer_id, entry, shown) > conf.connections {
            true => pools.shrink(group.pool_id(), conf.connections),
            false => Vec::new(),
        };
        (dropped, pools.needs_alarm(until))
    });
    drop(dropped);
    reaper::start_or_wake(wake);
}
