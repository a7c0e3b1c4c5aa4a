//! The bounded buffer between request code and the log writer, one per log.
//!
//! Lines are appended by any thread and taken all at once by the writing thread. Lines that do not
//! fit are counted. The lock is held for one copy of a line or one exchange of buffers, never
//! across a system call.

use super::target::Switch;

/// A buffer above this capacity, in bytes, is freed once its batch is written, so that a burst does
/// not hold its memory forever.
const KEPT_CAPACITY: usize = 256 * 1024;

#[derive(Debug, Default)]
pub(super) struct Ring {
    bytes: Vec<u8>,
    /// Capacity in bytes; further lines are lost.
    limit: usize,
    /// Lines that did not fit since the last batch.
    lost: u64,
    /// Changes of the file, each with the number of bytes that belong before it.
    switches: Vec<(usize, Switch)>,
}

/// The length before and after, or nothing if the line was lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Pushed {
    pub before: usize,
    pub after: usize,
}

/// The contents that the writing thread takes.
#[derive(Debug, Default)]
pub(super) struct Batch {
    pub bytes: Vec<u8>,
    pub lost: u64,
    pub switches: Vec<(usize, Switch)>,
}

impl Ring {
    pub fn new(limit: usize) -> Ring {
        Ring { limit, ..Ring::default() }
    }

    pub fn set_limit(&mut self, limit: usize) {
        self.limit = limit;
    }

    /// Appends one line given in parts, whole or not at all.
    pub fn push(&mut self, parts: &[&[u8]]) -> Option<Pushed> {
        let before = self.bytes.len();
        let size: usize = parts.iter().map(|part| part.len()).sum();
        if size > self.limit.saturating_sub(before) {
            self.lost += 1;
            return None;
        }
        for part in parts {
            self.bytes.extend_from_slice(part);
        }
        Some(Pushed { before, after: before + size })
    }

    /// Lines pushed from now on belong to the new file.
    pub fn switch(&mut self, switch: Switch) {
        self.switches.push((self.bytes.len(), switch));
    }

    /// Like [`Ring::switch`], before all lines.
    pub fn switch_first(&mut self, switch: Switch) {
        self.switches.insert(0, (0, switch));
    }

    /// Takes the contents; `spare` becomes the new buffer.
    pub fn take(&mut self, mut spare: Vec<u8>) -> Batch {
        spare.clear();
        if spare.capacity() > KEPT_CAPACITY {
            spare = Vec::new();
        }
        Batch {
            bytes: std::mem::replace(&mut self.bytes, spare),
            lost: std::mem::take(&mut self.lost),
            switches: std::mem::take(&mut self.switches),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_lines_or_nothing() {
        let mut ring = Ring::new(10);
        assert_eq!(ring.push(&[b"abc", b"d"]), Some(Pushed { before: 0, after: 4 }));
        assert_eq!(ring.push(&[b"1234567"]), None);
        assert_eq!(ring.push(&[b"123456"]), Some(Pushed { before: 4, after: 10 }));
        assert_eq!(ring.push(&[b"x"]), None);
        let batch = ring.take(Vec::new());
        assert_eq!((&batch.bytes[..], batch.lost), (&b"abcd123456"[..], 2));
        let batch = ring.take(batch.bytes);
        assert_eq!((batch.bytes.len(), batch.lost), (0, 0));
    }

    #[test]
    fn large_spares_are_given_back() {
        let mut ring = Ring::new(10);
        ring.take(Vec::with_capacity(KEPT_CAPACITY + 1));
        assert_eq!(ring.take(Vec::new()).bytes.capacity(), 0);
    }
}
