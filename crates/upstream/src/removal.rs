//! Notification that a server was removed from its group, or that its servers have changed.
//!
//! For users that outlive a request, such as sessions of `stream` and health checks. They wait in one list per group,
//! for all workers; it is checked only when servers change.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

use slab::Slab;

use crate::group::Group;
use crate::peer::Peer;

/// The watchers of a group.
#[derive(Default)]
pub(crate) struct Watchers(Mutex<Slab<Waker>>);

impl Watchers {
    /// The peers have changed: wakes all watchers.
    pub(crate) fn wake(&self) {
        let wakers: Vec<Waker> = self.with(|all| all.iter().map(|(_, one)| one.clone()).collect());
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Register first, then check: a change in between finds the registration.
    fn register(&self, place: Option<usize>, cx: &Context<'_>) -> usize {
        self.with(|all| match place {
            Some(place) => {
                all[place].clone_from(cx.waker());
                place
            }
            None => all.insert(cx.waker().clone()),
        })
    }

    fn unregister(&self, place: Option<usize>) {
        if let Some(place) = place {
            drop(self.with(|all| all.try_remove(place)));
        }
    }

    fn with<R>(&self, run: impl FnOnce(&mut Slab<Waker>) -> R) -> R {
        // The list is valid after every statement.
        run(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The future of [`SelectedPeer::removed`](crate::SelectedPeer::removed).
pub struct RemovedFuture {
    group: Arc<Group>,
    peer: Arc<Peer>,
    place: Option<usize>,
}

impl RemovedFuture {
    pub(crate) fn new(group: &Arc<Group>, peer: &Arc<Peer>) -> RemovedFuture {
        RemovedFuture { group: group.clone(), peer: peer.clone(), place: None }
    }
}

impl Future for RemovedFuture {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        self.place = Some(self.group.watchers().register(self.place, cx));
        if self.group.has(&self.peer) { Poll::Pending } else { Poll::Ready(()) }
    }
}

/// The future of [`Group::changed`].
pub struct ChangedFuture {
    group: Arc<Group>,
    version: u64,
    place: Option<usize>,
}

impl Group {
    /// The number of changes of its servers and their addresses so far.
    pub fn version(&self) -> u64 {
        self.lock().servers.version
    }

    /// Resolves when there have been more changes than `version`.
    pub fn changed(self: &Arc<Self>, version: u64) -> ChangedFuture {
        ChangedFuture { group: self.clone(), version, place: None }
    }
}

impl Future for ChangedFuture {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        self.place = Some(self.group.watchers().register(self.place, cx));
        if self.group.version() == self.version { Poll::Pending } else { Poll::Ready(()) }
    }
}

impl Drop for ChangedFuture {
    fn drop(&mut self) {
        self.group.watchers().unregister(self.place);
    }
}

impl Drop for RemovedFuture {
    fn drop(&mut self) {
        self.group.watchers().unregister(self.place);
    }
}
