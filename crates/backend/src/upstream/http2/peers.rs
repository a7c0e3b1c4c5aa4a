//! A worker's shared connections by peer: the choice of a connection for a request, the opening of new
//! ones, and waiting requests.
//!
//! Connections fill up one after the other. Requests wait, first come, first served, while a connection is
//! being opened or has not received the server's settings, and when no more may be opened.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use nowait_runtime::spawn;
use nowait_runtime::time::timeout;
use nowait_upstream::{IdleConnection, SelectedPeer, Tag};

use super::connection::{Connection, Usage};
use super::stream::HeldStream;
use super::task;

/// Connections of a worker to a peer.
pub(super) const CONNECTIONS_MAX: usize = 16;

/// Requests of a worker that wait for a stream to a peer.
pub(super) const WAITING_MAX: usize = 1024;

thread_local! {
    static PEERS: RefCell<BTreeMap<Key, Peer>> = const { RefCell::new(BTreeMap::new()) };
}

/// Requests with the same key may share connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::upstream) struct Key {
    /// The group's connections.
    pool: u64,
    peer: u64,
    kind: u64,
    /// The location, with `keepalive … local`; otherwise 0.
    owner: u64,
}

impl Key {
    /// The key of a request to a peer.
    pub(in crate::upstream) fn new(peer: &SelectedPeer, tag: Tag) -> Self {
        let (pool, number) = peer.pool();
        let local = peer.group().conf().keepalive.local;
        Self { pool, peer: number, kind: tag.kind, owner: if local { tag.owner } else { 0 } }
    }
}

/// The connections to a peer.
#[derive(Default)]
struct Peer {
    /// Connections that accept requests, oldest first.
    connections: Vec<Rc<Connection>>,
    /// Connections being opened.
    opening: usize,
    /// Waiting requests, by ticket.
    waiting: VecDeque<(u64, Waker)>,
    next_ticket: u64,
}

impl Peer {
    fn is_empty(&self) -> bool {
        self.connections.is_empty() && self.opening == 0 && self.waiting.is_empty()
    }

    /// Whether a connection will soon take more.
    fn is_growing(&self) -> bool {
        self.opening > 0 || self.connections.iter().any(|connection| !connection.is_settled())
    }

    fn wake_first(&self) {
        if let Some((_, waker)) = self.waiting.front() {
            waker.wake_by_ref();
        }
    }
}

/// The connection found for a request.
pub(in crate::upstream) enum StreamChoice {
    /// A stream.
    Stream(HeldStream),
    /// The request has to open a connection.
    Open(Opening),
}

/// The reason why there is no connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::upstream) enum QueueError {
    TimedOut,
    /// Too many wait already.
    Overflow,
}

/// Finds a stream to a peer, or room for a connection; waits at most for `limit`.
pub(in crate::upstream) async fn find(
    key: Key,
    limit: Duration,
) -> Result<StreamChoice, QueueError> {
    let mut waiting = Waiting { key, ticket: None };
    let found = timeout(limit, poll_fn(|cx| waiting.poll(cx))).await;
    found.unwrap_or(Err(QueueError::TimedOut))
}

/// A request's place in the queue, left when it is dropped.
struct Waiting {
    key: Key,
    ticket: Option<u64>,
}

impl Waiting {
    fn poll(&mut self, cx: &Context<'_>) -> Poll<Result<StreamChoice, QueueError>> {
        // A stream is reserved afterwards: that may take its connection out of the list.
        let found = PEERS.with_borrow_mut(|peers| {
            let peer = peers.entry(self.key).or_default();
            let first = peer.waiting.front().map(|(ticket, _)| *ticket);
            if first == self.ticket {
                if let Some(free) = peer.connections.iter().find(|free| free.has_room()).cloned() {
                    return Poll::Ready(Ok(Some(free)));
                }
                if !peer.is_growing() && peer.connections.len() < CONNECTIONS_MAX {
                    peer.opening += 1;
                    return Poll::Ready(Ok(None));
                }
            }
            match self.ticket {
                Some(ticket) => {
                    let mine = peer.waiting.iter_mut().find(|(number, _)| *number == ticket);
                    if let Some((_, waker)) = mine {
                        waker.clone_from(cx.waker());
                    }
                }
                None if peer.waiting.len() >= WAITING_MAX => {
                    return Poll::Ready(Err(QueueError::Overflow));
                }
                None => {
                    self.ticket = Some(peer.next_ticket);
                    peer.waiting.push_back((peer.next_ticket, cx.waker().clone()));
                    peer.next_ticket += 1;
                }
            }
            Poll::Pending
        });
        found.map_ok(|free| match free {
            Some(connection) => StreamChoice::Stream(HeldStream(connection.reserve())),
            None => StreamChoice::Open(Opening { key: Some(self.key) }),
        })
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let Some(ticket) = self.ticket else { return };
        change(self.key, |peer| {
            peer.waiting.retain(|(number, _)| *number != ticket);
            // There may be room for more than one.
            peer.wake_first();
        });
    }
}

/// A connection being opened. If dropped without a connection, another request tries.
pub(in crate::upstream) struct Opening {
    /// `None`: it is for one request alone.
    key: Option<Key>,
}

impl Opening {
    /// A connection used by one request only.
    pub(in crate::upstream) fn alone() -> Self {
        Self { key: None }
    }

    /// The connection is open: its first stream.
    pub(in crate::upstream) fn opened(
        self,
        connection: &IdleConnection,
        usage: Usage,
    ) -> HeldStream {
        let connection = Connection::new(connection, self.key, usage);
        if let Some(key) = self.key {
            change(key, |peer| peer.connections.push(connection.clone()));
        }
        let lane = HeldStream(connection.reserve());
        drop(spawn(task::serve(connection)));
        lane
    }
}

impl Drop for Opening {
    fn drop(&mut self) {
        if let Some(key) = self.key {
            change(key, |peer| {
                peer.opening -= 1;
                peer.wake_first();
            });
        }
    }
}

/// Changes the state of a peer.
fn change(key: Key, change: impl FnOnce(&mut Peer)) {
    // The thread may be at its end.
    let _ = PEERS.try_with(|peers| {
        let mut peers = peers.borrow_mut();
        let Some(peer) = peers.get_mut(&key) else { return };
        change(peer);
        if peer.is_empty() {
            peers.remove(&key);
        }
    });
}

/// A connection may have room.
pub(super) fn notify(connection: &Connection) {
    if let Some(key) = connection.key {
        change(key, |peer| peer.wake_first());
    }
}

/// A connection takes no more requests.
pub(super) fn remove(connection: &Connection) {
    let Some(key) = connection.key else { return };
    let mut removed = None;
    change(key, |peer| {
        let at = peer.connections.iter().position(|one| std::ptr::eq(&**one, connection));
        removed = at.map(|at| peer.connections.remove(at));
        peer.wake_first();
    });
    drop(removed);
}

/// A connection has become idle: `keepalive` bounds how many of a group may be, and the least recently
/// used one makes room.
pub(super) fn idle(connection: &Connection) {
    if connection.usage.is_owned {
        return;
    }
    let most = connection.usage.keepalive.connections;
    let Some(key) = connection.key.filter(|_| most > 0) else { return connection.retire() };
    // The thread may be at its end.
    let oldest = PEERS.try_with(|peers| {
        let peers = peers.borrow();
        let of_group = peers.iter().filter(|(one, _)| one.pool == key.pool);
        let all = of_group.flat_map(|(_, peer)| &peer.connections);
        let idle: Vec<_> = all.filter(|one| one.idle_since().is_some()).collect();
        let oldest = idle.iter().min_by_key(|one| one.idle_since())?;
        (idle.len() > most).then(|| Rc::clone(oldest))
    });
    if let Ok(Some(oldest)) = oldest {
        oldest.retire();
    }
}
