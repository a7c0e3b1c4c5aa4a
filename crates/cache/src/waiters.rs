//! Tasks that wait for a condition, on any worker. Each has one slot, released on drop.
//!
//! Used for events that many tasks may wait for. Does no I/O.

use std::future::poll_fn;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use slab::Slab;

/// The waiting tasks. Code that changes the condition calls [`wake_all`](Waiters::wake_all)
/// afterwards.
#[derive(Debug, Default)]
pub(crate) struct Waiters(Mutex<Slab<Waker>>);

impl Waiters {
    /// Plain data, valid after every statement: a panic elsewhere cannot break it.
    fn lock(&self) -> MutexGuard<'_, Slab<Waker>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes all of them check again.
    pub(crate) fn wake_all(&self) {
        let waiting = std::mem::take(&mut *self.lock());
        waiting.into_iter().for_each(|(_, waker)| waker.wake());
    }

    /// Resolves when `so` returns true. `so` is called under a lock and must be quick.
    pub(crate) async fn until(&self, mut so: impl FnMut() -> bool) {
        let mut place = WaiterSlot { waiters: self, at: None };
        poll_fn(|cx| place.poll(cx, &mut so)).await;
    }
}

/// A slot among the waiting tasks, given up when dropped.
struct WaiterSlot<'a> {
    waiters: &'a Waiters,
    at: Option<usize>,
}

impl WaiterSlot<'_> {
    fn poll(&mut self, cx: &Context<'_>, so: &mut dyn FnMut() -> bool) -> Poll<()> {
        // A change that is not seen here is followed by a `wake_all` after this lock.
        let mut waiting = self.waiters.lock();
        if so() {
            return Poll::Ready(());
        }
        match self.at.and_then(|at| waiting.get_mut(at)) {
            Some(waker) => waker.clone_from(cx.waker()),
            None => self.at = Some(waiting.insert(cx.waker().clone())),
        }
        Poll::Pending
    }
}

impl Drop for WaiterSlot<'_> {
    fn drop(&mut self) {
        let waker = self.at.and_then(|at| self.waiters.lock().try_remove(at));
        drop(waker);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_has_one_place_and_who_leaves_is_forgotten() {
        let waiters = Waiters::default();
        let cx = Context::from_waker(Waker::noop());
        let mut places: Vec<_> =
            (0..3).map(|_| WaiterSlot { waiters: &waiters, at: None }).collect();
        for _ in 0..2 {
            assert!(places.iter_mut().all(|place| place.poll(&cx, &mut || false).is_pending()));
        }
        assert_eq!(waiters.lock().len(), 3, "one each, however often they ask");
        places.truncate(1);
        assert_eq!(waiters.lock().len(), 1);
        waiters.wake_all();
        assert!(waiters.lock().is_empty());
        assert!(places[0].poll(&cx, &mut || true).is_ready());
    }
}
