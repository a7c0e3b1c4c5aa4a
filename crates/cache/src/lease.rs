//! Leases: exclusive rights among tasks of any workers.

use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

/// The exclusive right to perform a task for one store, such as its background work.
#[derive(Clone, Default)]
pub(crate) struct Lease(Arc<Mutex<Holders>>);

#[derive(Default)]
struct Holders {
    taken: bool,
    /// The store was dropped.
    closed: bool,
    /// Workers that wait for it.
    waiting: Vec<Waker>,
}

/// The right, held.
pub(crate) struct LeaseGuard(Lease);

impl Lease {
    fn lock(&self) -> MutexGuard<'_, Holders> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Resolves when no other task has it. `None`: the store was dropped.
    pub(crate) async fn take(&self) -> Option<LeaseGuard> {
        poll_fn(|cx| {
            let mut holders = self.lock();
            if holders.closed {
                return Poll::Ready(None);
            }
            if !holders.taken {
                holders.taken = true;
                return Poll::Ready(Some(LeaseGuard(self.clone())));
            }
            // Bounded by the number of waiting tasks; all are woken together.
            if !holders.waiting.iter().any(|waker| waker.will_wake(cx.waker())) {
                holders.waiting.push(cx.waker().clone());
            }
            Poll::Pending
        })
        .await
    }

    fn wake(&self, change: impl FnOnce(&mut Holders)) {
        let mut holders = self.lock();
        change(&mut holders);
        let waiting = std::mem::take(&mut holders.waiting);
        drop(holders);
        waiting.into_iter().for_each(Waker::wake);
    }

    /// The store was dropped: no task waits any longer.
    pub(crate) fn close(&self) {
        self.wake(|holders| holders.closed = true);
    }
}

impl Drop for LeaseGuard {
    fn drop(&mut self) {
        self.0.wake(|holders| holders.taken = false);
    }
}
