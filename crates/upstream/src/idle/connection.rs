//! An idle connection, and which requests may use it.

use std::fmt;
use std::rc::Rc;
use std::task::Waker;
use std::time::Instant;

use nowait_runtime::net::Stream;

/// The requests that may use a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tag {
    /// Connection parameters: protocol, TLS, local address. Must always be equal.
    pub kind: u64,
    /// The owner: must be equal with `keepalive … local`. Unique to a location of a generation.
    pub owner: u64,
}

impl Tag {
    /// Whether a connection with this tag may serve a request with the other one.
    pub(super) fn serves(self, other: Tag, local: bool) -> bool {
        self.kind == other.kind && (!local || self.owner == other.owner)
    }
}

/// A connection to a peer that may serve several requests. Boxed, because it is moved often.
pub struct IdleConnection {
    /// The connection. Only the holder of the only reference can return it.
    pub stream: Rc<Stream>,
    /// The time at which it was opened.
    pub opened: Instant,
    /// Number of requests that it has served, including the current one.
    pub requests: u64,
    /// Created when the connection is first kept.
    pub(super) watched: Option<ActivityWatch>,
}

/// The waker of the reaper for activity.
pub(super) struct ActivityWatch {
    /// The peer that the connection is kept for.
    pub(super) peer: u64,
    /// The number of the connection.
    pub(super) serial: u64,
    pub(super) waker: Waker,
}

impl IdleConnection {
    /// A connection for its first request.
    pub fn new(stream: impl Into<Rc<Stream>>, now: Instant) -> Box<IdleConnection> {
        Box::new(IdleConnection { stream: stream.into(), opened: now, requests: 1, watched: None })
    }
}

impl fmt::Debug for IdleConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IdleConnection").field("requests", &self.requests).finish_non_exhaustive()
    }
}
