//! Whether the purges of an earlier process are known again.
//!
//! After a start objects are found in their files before the disk was walked. One that was purged must
//! not be: until the saved purges were read, such look-ups wait. Told by [`crate::saved`]; a store that
//! nobody tends has none. Never: any I/O.

use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

#[derive(Default)]
pub(crate) struct Recall {
    begun: AtomicBool,
    reading: AtomicBool,
    waiting: Mutex<Vec<Waker>>,
}

impl Recall {
    /// Plain data, valid after every statement: a panic elsewhere cannot break it.
    fn lock(&self) -> MutexGuard<'_, Vec<Waker>> {
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
        waiting.into_iter().for_each(Waker::wake);
    }

    pub(crate) fn is_known(&self) -> bool {
        !self.reading.load(Ordering::Acquire)
    }

    /// Resolves when they are known.
    pub(crate) async fn known(&self) {
        poll_fn(|cx| {
            let mut waiting = self.lock();
            if self.is_known() {
                return Poll::Ready(());
            }
            // Bounded by the requests that wait; all are woken together.
            if !waiting.iter().any(|waker| waker.will_wake(cx.waker())) {
                waiting.push(cx.waker().clone());
            }
            Poll::Pending
        })
        .await;
    }
}
