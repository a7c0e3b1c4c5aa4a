//! Notification that a server was removed from its group, because its name has other addresses now.
//!
//! For users that outlive a request, such as sessions of `stream`. They wait in one list per group,
//! for all workers; it is checked only when a name gets other addresses.

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
        // Register first, then check: a change in between finds the registration.
        let place = self.group.watchers.with(|all| match self.place {
            Some(place) => {
                all[place].clone_from(cx.waker());
                place
            }
            None => all.insert(cx.waker().clone()),
        });
        self.place = Some(place);
        if self.group.has(&self.peer) { Poll::Pending } else { Poll::Ready(()) }
    }
}

impl Drop for RemovedFuture {
    fn drop(&mut self) {
        if let Some(place) = self.place {
            let waker = self.group.watchers.with(|all| all.try_remove(place));
            drop(waker);
        }
    }
}
