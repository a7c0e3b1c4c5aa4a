//! Idle connections, per worker.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use nowait_runtime::net::Stream;

use crate::group::Group;
use crate::peer::Peer;

/// Which requests may use a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tag {
    /// What was agreed on it: protocol, TLS, the address bound to. Must always be equal.
    pub kind: u64,
    /// Whose it is: must be equal where `keepalive` is `local`. Unique to a location of a
    /// generation.
    pub owner: u64,
}

/// A connection to a peer that may serve several requests.
pub struct IdleConnection {
    /// The connection.
    pub stream: Stream,
    /// When it was opened.
    pub opened: Instant,
    /// Requests that it has served, the one under way included.
    pub requests: u64,
}

impl IdleConnection {
    /// A connection for its first request.
    pub fn new(stream: Stream, now: Instant) -> IdleConnection {
        IdleConnection { stream, opened: now, requests: 1 }
    }
}

impl fmt::Debug for IdleConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IdleConnection").field("requests", &self.requests).finish_non_exhaustive()
    }
}

/// What all workers know of a peer's idle connections.
#[derive(Debug, Default)]
pub(crate) struct PeerIdle {
    count: AtomicU32,
}

impl PeerIdle {
    pub(crate) fn count(&self) -> u32 {
        self.count.load(Relaxed)
    }
}

pub(crate) fn take(group: &Group, peer: &Arc<Peer>, tag: Tag) -> Option<IdleConnection> {
    let _ = (group, peer, tag);
    None
}

pub(crate) async fn take_remote(
    group: &Group,
    peer: &Arc<Peer>,
    tag: Tag,
) -> Option<IdleConnection> {
    let _ = (group, peer, tag);
    None
}

pub(crate) fn put(group: &Group, peer: &Arc<Peer>, connection: IdleConnection, tag: Tag) {
    let _ = (group, peer, tag);
    drop(connection);
}
