//! Other forms of a resident file's content, such as compressed ones: made once, and kept as long as the
//! file is resident.

use std::sync::OnceLock;
use std::sync::atomic::Ordering::Relaxed;

use bytes::Bytes;

use super::{ALL, Resident, path_history};
use crate::mounts::clock_ms;

/// Maximum number of forms of a file: one for each of gzip, Brotli and Zstandard.
const VARIANTS_MAX: usize = 3;

/// The forms of a file, by the number of the method that made them.
#[derive(Debug, Default)]
pub(super) struct Variants([OnceLock<(u64, Bytes)>; VARIANTS_MAX]);

impl Variants {
    fn find(&self, how: u64) -> Option<&Bytes> {
        self.0.iter().map_while(OnceLock::get).find(|(made, _)| *made == how).map(|(_, form)| form)
    }

    /// Bytes of memory.
    pub(super) fn bytes(&self) -> usize {
        self.0.iter().map_while(OnceLock::get).map(|(_, form)| form.len()).sum()
    }

    /// Adds a form; false: it is there already, or there are enough. One thread at a time.
    pub(super) fn add(&self, how: u64, form: Bytes) -> bool {
        let free = self.0.iter().find(|place| place.get().is_none());
        self.find(how).is_none() && free.is_some_and(|free| free.set((how, form)).is_ok())
    }
}

impl Resident {
    /// The content in the form that was kept by [`keep_variant`](Resident::keep_variant) with the same
    /// number, if any.
    pub fn variant(&self, how: u64) -> Option<Bytes> {
        let found = self.variants.find(how)?.clone();
        if let Some(all) = ALL.get() {
            all.counters.variants.fetch_add(1, Relaxed);
        }
        Some(found)
    }

    /// Keeps a form of the content if there is room; `how` is the number of the method.
    pub fn keep_variant(&self, how: u64, form: &[u8]) {
        let Some(all) = ALL.get() else { return };
        let now = path_history::tick(clock_ms());
        let evicted = |evicted: &Resident| {
            all.counters.evicted.fetch_add(1, Relaxed);
            all.changes.forget_later(evicted);
        };
        if all.table.make_room(form.len(), self.frequency(now), now, evicted) {
            // A copy is as long as it is counted.
            all.table.add_variant(self, how, Bytes::copy_from_slice(form));
        }
    }
}
