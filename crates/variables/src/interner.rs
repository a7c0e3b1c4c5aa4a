//! Texts of the configuration as shared bytes without a reference count.
//!
//! Called while configurations are built. Cloning counted bytes writes to the counter, and workers
//! that send the same text at the same time would contend for its cache line.

use std::sync::{LazyLock, Mutex, PoisonError};

use bytes::Bytes;
use rustc_hash::FxHashSet;

/// Maximum length of a kept text: copying longer ones costs more than counting.
const TEXT_BYTES_MAX: usize = 4096;

/// Maximum total size of all kept texts, in bytes. Further ones are counted.
const KEPT_BYTES_MAX: usize = 1 << 20;

/// Texts share pieces of memory of this size. Single allocations would fragment the memory that is freed
/// with a configuration, and prevent its return to the system.
const PIECE_BYTES: usize = 64 << 10;

static KEPT: LazyLock<Mutex<Interner>> = LazyLock::new(Mutex::default);

/// The texts kept for the life of the process: most texts of one configuration recur in the next.
#[derive(Default)]
struct Interner {
    texts: FxHashSet<&'static [u8]>,
    /// Of all texts.
    bytes: usize,
    /// Memory for the next ones.
    room: &'static mut [u8],
}

impl Interner {
    fn intern(&mut self, text: &[u8]) -> Bytes {
        if let Some(kept) = self.texts.get(text) {
            return Bytes::from_static(kept);
        }
        if text.len() > TEXT_BYTES_MAX || self.bytes + text.len() > KEPT_BYTES_MAX {
            return Bytes::copy_from_slice(text);
        }
        let kept = self.keep(text);
        self.texts.insert(kept);
        self.bytes += kept.len();
        Bytes::from_static(kept)
    }

    fn keep(&mut self, text: &[u8]) -> &'static [u8] {
        if text.len() > self.room.len() {
            self.room = Vec::leak(vec![0; PIECE_BYTES]);
        }
        let (place, room) = std::mem::take(&mut self.room).split_at_mut(text.len());
        self.room = room;
        place.copy_from_slice(text);
        place
    }
}

/// The text as shared bytes; without a reference count unless it is long, or the limit is reached.
pub fn interned(text: &[u8]) -> Bytes {
    KEPT.lock().unwrap_or_else(PoisonError::into_inner).intern(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_text_is_kept_once_and_not_without_end() {
        let mut kept = Interner::default();
        let text = [b'x'; TEXT_BYTES_MAX];
        let one = kept.intern(&text);
        assert_eq!(one.as_ptr(), kept.intern(&text).as_ptr());
        assert_eq!(one, &text[..]);
        let long = [b'y'; TEXT_BYTES_MAX + 1];
        assert_eq!(kept.intern(&long), &long[..]);
        for n in 0..2 * KEPT_BYTES_MAX / TEXT_BYTES_MAX {
            let mut text = text;
            text[..8].copy_from_slice(&n.to_le_bytes());
            assert_eq!(kept.intern(&text), &text[..]);
        }
        assert_eq!(kept.bytes, KEPT_BYTES_MAX);
        assert_eq!(kept.texts.iter().map(|text| text.len()).sum::<usize>(), kept.bytes);
    }
}
