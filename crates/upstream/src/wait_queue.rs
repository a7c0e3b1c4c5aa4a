//! The list of a group's queued requests; [`queue`](crate::queue) has the wait itself.

use std::collections::VecDeque;
use std::task::Waker;

/// The queued requests, in order, of all workers.
#[derive(Default)]
pub(crate) struct WaitQueue {
    waiters: VecDeque<(u64, Waker)>,
    next: u64,
    overflows: u64,
}

impl WaitQueue {
    pub(crate) fn is_empty(&self) -> bool {
        self.waiters.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.waiters.len()
    }

    /// Counts a request for which there was no room.
    pub(crate) fn overflowed(&mut self) {
        self.overflows += 1;
    }

    /// Requests for which there was no room.
    pub(crate) fn overflows(&self) -> u64 {
        self.overflows
    }

    /// Counts these anew.
    pub(crate) fn reset(&mut self) {
        self.overflows = 0;
    }

    /// The first in line.
    pub(crate) fn first(&self) -> Option<Waker> {
        self.waiters.front().map(|(_, waker)| waker.clone())
    }

    /// Everyone's waker; the requests stay in the queue.
    pub(crate) fn take_all(&mut self) -> Vec<Waker> {
        self.waiters.iter().map(|(_, waker)| waker.clone()).collect()
    }

    pub(crate) fn enter(&mut self, waker: &Waker) -> u64 {
        self.next += 1;
        debug_assert!(self.waiters.back().is_none_or(|(last, _)| *last < self.next), "in order");
        self.waiters.push_back((self.next, waker.clone()));
        self.next
    }

    /// Replaces the waker: another task polls the request now.
    pub(crate) fn renew(&mut self, ticket: u64, waker: &Waker) {
        let own = self.waiters.iter_mut().find(|(other, _)| *other == ticket);
        own.into_iter().for_each(|(_, known)| known.clone_from(waker));
    }

    pub(crate) fn leave(&mut self, ticket: u64) {
        self.waiters.retain(|(other, _)| *other != ticket);
    }

    pub(crate) fn is_first(&self, ticket: u64) -> bool {
        self.waiters.front().is_some_and(|(first, _)| *first == ticket)
    }
}
