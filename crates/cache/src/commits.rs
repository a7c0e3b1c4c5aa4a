//! Orders the renames of objects with the same key by their completion.
//!
//! Without `proxy_cache_lock` several requests may fetch one key at the same time. Pool threads
//! finish in any order; the object completed last has to stay, as in nginx.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

use crate::key::Key;

#[derive(Default)]
pub(crate) struct Commits(Mutex<CommitQueue>);

#[derive(Default)]
struct CommitQueue {
    next: u64,
    /// Complete objects without a name, and the tasks waiting to name theirs.
    pending: BTreeMap<(Key, u64), Option<Waker>>,
}

/// The position of an object among those of its key, released on drop.
pub(crate) struct CommitTicket<'a> {
    commits: &'a Commits,
    name: (Key, u64),
}

impl Commits {
    /// Plain data, valid after every statement: a panic elsewhere cannot break it.
    fn lock(&self) -> MutexGuard<'_, CommitQueue> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Registers a complete object; returns its number.
    pub(crate) fn enter(&self, key: Key) -> u64 {
        let mut state = self.lock();
        state.next += 1;
        let number = state.next;
        state.pending.insert((key, number), None);
        number
    }

    /// The place of the object with this number.
    pub(crate) fn place(&self, key: Key, number: u64) -> CommitTicket<'_> {
        CommitTicket { commits: self, name: (key, number) }
    }
}

impl CommitTicket<'_> {
    /// Resolves when every object of the key that was completed earlier has its name.
    pub(crate) async fn turn(&self) {
        poll_fn(|cx| {
            let mut state = self.commits.lock();
            let (key, _) = self.name;
            let first = state.pending.range((key, 0)..).next().map(|(name, _)| *name);
            if first.is_none_or(|first| first.0 != key || first == self.name) {
                return Poll::Ready(());
            }
            match state.pending.get_mut(&self.name) {
                Some(waker) => *waker = Some(cx.waker().clone()),
                None => return Poll::Ready(()),
            }
            Poll::Pending
        })
        .await;
    }
}

impl Drop for CommitTicket<'_> {
    fn drop(&mut self) {
        let mut state = self.commits.lock();
        state.pending.remove(&self.name);
        let (key, _) = self.name;
        let next = state.pending.range_mut((key, 0)..).next();
        let waker = next.filter(|((next, _), _)| *next == key).and_then(|(_, waker)| waker.take());
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}
