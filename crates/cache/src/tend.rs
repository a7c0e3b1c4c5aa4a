//! The background work of a store: which worker does it, and at which pace.
//!
//! Every worker offers itself with [`Store::tend`]; one of them does the work for the process, as
//! tasks among its others: the [manager](crate::manager), the [loader](crate::loader) and the
//! saving of the index. When that worker ends, another takes over. The tasks hold the store only
//! while they work, so that a store removed by a reload can be dropped.

use std::cell::RefCell;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

use nowait_runtime::task::{Either, select};
use nowait_runtime::worker::{is_stopping, stopping};
use nowait_runtime::{sleep, spawn};
use rustc_hash::FxHashSet;

use crate::options::Steps;
use crate::store::Store;
use crate::{loader, manager, saved};

thread_local! {
    /// Stores that this worker tends or waits to tend.
    static OFFERED: RefCell<FxHashSet<u64>> = RefCell::default();
}

impl Store {
    /// Offers this worker for the store's background work; returns at once. Called on every worker
    /// for every store of a new generation; repeated calls have no effect.
    pub fn tend(self: &Arc<Self>) {
        let id = self.id();
        if !OFFERED.with_borrow_mut(|offered| offered.insert(id)) {
            return;
        }
        self.recall.begin();
        let (store, lease) = (Arc::downgrade(self), self.lease.clone());
        drop(spawn(async move {
            if let Either::Right(Some(held)) = select(stopping(), lease.take()).await {
                work(&store).await;
                drop(held);
            }
            OFFERED.with_borrow_mut(|offered| offered.remove(&id));
        }));
    }
}

/// All of it, until the worker ends or the store is gone.
async fn work(store: &Weak<Store>) {
    let loading = spawn(loader::run(store.clone()));
    let managing = spawn(manager::run(store.clone()));
    let saving = spawn(saved::run(store.clone()));
    // A task that panicked was reported by the worker; the others continue.
    let _ = managing.await;
    let _ = loading.await;
    let _ = saving.await;
}

/// Pauses; false: the worker ends, stop.
pub(crate) async fn pause(duration: Duration) -> bool {
    matches!(select(stopping(), sleep(duration)).await, Either::Right(()))
}

/// Splits work into steps.
#[derive(Debug)]
pub(crate) struct Pace {
    steps: Steps,
    done: usize,
    begun: Instant,
}

impl Pace {
    pub(crate) fn new(steps: Steps) -> Pace {
        Pace { steps, done: 0, begun: nowait_runtime::now() }
    }

    /// Counts handled files; pauses if they complete a step. False: the worker ends, stop.
    pub(crate) async fn did(&mut self, files: usize) -> bool {
        self.done += files;
        let elapsed = nowait_runtime::now().saturating_duration_since(self.begun);
        if self.done < self.steps.files && elapsed < self.steps.threshold {
            return !is_stopping();
        }
        let goes_on = pause(self.steps.sleep).await;
        self.done = 0;
        self.begun = nowait_runtime::now();
        goes_on
    }
}

/// The right to do something for one store that only one task may do at a time, such as its
/// background work.
#[derive(Clone, Default)]
pub(crate) struct Lease(Arc<Mutex<Holders>>);

#[derive(Default)]
struct Holders {
    taken: bool,
    /// The store has gone.
    closed: bool,
    /// Workers that wait for it.
    waiting: Vec<Waker>,
}

/// The right, held.
pub(crate) struct Held(Lease);

impl Lease {
    fn lock(&self) -> MutexGuard<'_, Holders> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Resolves when no other task has it. `None`: the store is gone.
    pub(crate) async fn take(&self) -> Option<Held> {
        poll_fn(|cx| {
            let mut holders = self.lock();
            if holders.closed {
                return Poll::Ready(None);
            }
            if !holders.taken {
                holders.taken = true;
                return Poll::Ready(Some(Held(self.clone())));
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

    /// The store is gone: no task waits any longer.
    pub(crate) fn close(&self) {
        self.wake(|holders| holders.closed = true);
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.0.wake(|holders| holders.taken = false);
    }
}
