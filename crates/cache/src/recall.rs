//! Whether the purges of an earlier process are known again.
//!
//! After a start objects are found in their files before the disk was walked. One that was purged must
//! not be: until the saved purges were read, such look-ups wait. Told by [`crate::saved`]; a store that
//! nobody tends has none. Never: any I/O.

use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use slab::Slab;

#[derive(Default)]
pub(crate) struct Recall {
    begun: AtomicBool,
    reading: AtomicBool,
    /// Whom to wake: one entry per request that waits.
    waiting: Mutex<Slab<Waker>>,
}

impl Recall {
    /// Plain data, valid after every statement: a panic elsewhere cannot break it.
    fn lock(&self) -> MutexGuard<'_, Slab<Waker>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// They are going to be read; the first time.
    pub(crate) fn begin(&self) {
        if !self.begun.swap(true, Ordering::AcqRel) {
            self.reading.store(true, Ordering::Release);
        }
    }

    /// They were read, or can't be.
    pub(crate) fn done(&self) {
        let waiting = {
            let mut waiting = self.lock();
            self.reading.store(false, Ordering::Release);
            std::mem::take(&mut *waiting)
        };
        waiting.into_iter().for_each(|(_, waker)| waker.wake());
    }

    pub(crate) fn is_known(&self) -> bool {
        !self.reading.load(Ordering::Acquire)
    }

    /// Resolves when they are known.
    pub(crate) async fn known(&self) {
        let mut place = Place { recall: self, at: None };
        poll_fn(|cx| place.poll(cx)).await;
    }
}

/// A place among those that wait, given up when dropped.
struct Place<'a> {
    recall: &'a Recall,
    at: Option<usize>,
}

impl Place<'_> {
    fn poll(&mut self, cx: &Context<'_>) -> Poll<()> {
        let mut waiting = self.recall.lock();
        if self.recall.is_known() {
            return Poll::Ready(());
        }
        match self.at.and_then(|at| waiting.get_mut(at)) {
            Some(waker) => waker.clone_from(cx.waker()),
            None => self.at = Some(waiting.insert(cx.waker().clone())),
        }
        Poll::Pending
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        // When they are known all places are gone already.
        let waker = self.at.and_then(|at| self.recall.lock().try_remove(at));
        drop(waker);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_leaves_is_forgotten() {
        let recall = Recall::default();
        recall.begin();
        let cx = Context::from_waker(Waker::noop());
        let mut places: Vec<_> = (0..3).map(|_| Place { recall: &recall, at: None }).collect();
        for _ in 0..2 {
            assert!(places.iter_mut().all(|place| place.poll(&cx).is_pending()));
        }
        assert_eq!(recall.lock().len(), 3, "one each, however often they ask");
        places.truncate(1);
        assert_eq!(recall.lock().len(), 1);
        recall.done();
        assert!(places[0].poll(&cx).is_ready());
        recall.begin();
        assert!(recall.is_known(), "they are read once");
    }
}
