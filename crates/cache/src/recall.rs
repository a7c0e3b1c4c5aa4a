//! Tracks the reading of the saved index and purges of an earlier process.
//!
//! After a start, objects are found by their files before the disk has been walked. A purged object
//! must not be: until the saved purges have been read, such look-ups wait. New purges wait too: a
//! purge applies to objects stored before it, and only the saved index tells which those are. If a
//! purge can't wait, since the disk does not respond, it is *deferred*: run once more when the
//! index is known.
//!
//! Driven by [`crate::saved`]; a store without background work has nothing to recall. Does no I/O.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::index::{How, PurgeError, What};
use crate::waiters::Waiters;

/// The maximum number of deferred purges. More are refused.
const DEFERRED_MAX: usize = 1024;

#[derive(Default)]
pub(crate) struct Recall {
    begun: AtomicBool,
    reading: AtomicBool,
    deferred: Mutex<Vec<(What, How)>>,
    waiters: Waiters,
}

impl Recall {
    /// Plain data, valid after every statement: a panic elsewhere cannot break it.
    fn lock(&self) -> MutexGuard<'_, Vec<(What, How)>> {
        self.deferred.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Marks the beginning of reading; only the first call has an effect.
    pub(crate) fn begin(&self) {
        if !self.begun.swap(true, Ordering::AcqRel) {
            self.reading.store(true, Ordering::Release);
        }
    }

    /// Reading has ended, or is impossible: runs the deferred purges, then wakes all waiters.
    pub(crate) fn done(&self, mut purge: impl FnMut(What, How)) {
        let mut deferred = self.lock();
        deferred.drain(..).for_each(|(what, how)| purge(what, how));
        self.reading.store(false, Ordering::Release);
        drop(deferred);
        self.waiters.wake_all();
    }

    pub(crate) fn is_known(&self) -> bool {
        !self.reading.load(Ordering::Acquire)
    }

    /// Resolves when reading has ended.
    pub(crate) async fn known(&self) {
        self.waiters.until(|| self.is_known()).await;
    }

    /// Defers a purge until reading ends; no effect if it has ended.
    ///
    /// # Errors
    /// [`PurgeError::TooMany`]: [`DEFERRED_MAX`] are deferred.
    pub(crate) fn defer(&self, what: &What, how: How) -> Result<(), PurgeError> {
        let mut deferred = self.lock();
        let purge = (what.clone(), how);
        if self.is_known() || deferred.contains(&purge) {
            return Ok(());
        }
        if deferred.len() == DEFERRED_MAX {
            return Err(PurgeError::TooMany);
        }
        deferred.push(purge);
        Ok(())
    }

    /// Whether purges are deferred: entries of the index may have been purged.
    pub(crate) fn defers(&self) -> bool {
        !self.is_known() && !self.lock().is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reading_happens_once() {
        let recall = Recall::default();
        assert!(recall.is_known());
        recall.begin();
        assert!(!recall.is_known());
        recall.done(|_, _| panic!("nothing is deferred"));
        recall.begin();
        assert!(recall.is_known());
    }

    #[test]
    fn purges_are_deferred_until_reading_has_ended() {
        let recall = Recall::default();
        recall.begin();
        for n in 0..DEFERRED_MAX {
            let what = What::Prefix(n.to_string().as_bytes().into());
            assert_eq!(recall.defer(&what, How::Hard), Ok(()));
            assert_eq!(recall.defer(&what, How::Hard), Ok(()), "noted once");
        }
        assert!(recall.defers());
        assert_eq!(recall.defer(&What::All, How::Soft), Err(PurgeError::TooMany));
        let mut made = 0;
        recall.done(|_, _| made += 1);
        assert_eq!(made, DEFERRED_MAX);
        assert_eq!(recall.defer(&What::All, How::Soft), Ok(()));
        assert!(!recall.defers());
    }
}
