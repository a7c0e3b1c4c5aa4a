//! Whether the purges of an earlier process are known again.
//!
//! After a start objects are found in their files before the disk was walked. One that was purged must
//! not be: until the saved purges were read, such look-ups wait. Told by [`crate::saved`]; a store that
//! nobody tends has none. Never: any I/O.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::waiters::Waiters;

#[derive(Default)]
pub(crate) struct Recall {
    begun: AtomicBool,
    reading: AtomicBool,
    waiters: Waiters,
}

impl Recall {
    /// They are going to be read; the first time.
    pub(crate) fn begin(&self) {
        if !self.begun.swap(true, Ordering::AcqRel) {
            self.reading.store(true, Ordering::Release);
        }
    }

    /// They were read, or can't be.
    pub(crate) fn done(&self) {
        self.reading.store(false, Ordering::Release);
        self.waiters.wake_all();
    }

    pub(crate) fn is_known(&self) -> bool {
        !self.reading.load(Ordering::Acquire)
    }

    /// Resolves when they are known.
    pub(crate) async fn known(&self) {
        self.waiters.until(|| self.is_known()).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_are_read_once() {
        let recall = Recall::default();
        assert!(recall.is_known());
        recall.begin();
        assert!(!recall.is_known());
        recall.done();
        recall.begin();
        assert!(recall.is_known());
    }
}
