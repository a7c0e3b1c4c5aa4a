//! The dynamic table (RFC 7541 section 2.3.2, RFC 9204 section 3.2), used by decoders and encoders.
//!
//! Each entry has a note of its user: what the decoder found out about the field, or the encoder's
//! number of the name.
//!
//! Names and values stand one after another in one piece of memory, oldest first. Evicted bytes remain
//! at its start until they would make it grow beyond twice the size of the table; then the others move
//! down. So an entry is always in one piece, and inserting costs no allocation once the memory is there.

use std::collections::VecDeque;

/// The overhead of an entry beyond its name and value (RFC 7541 section 4.1).
const OVERHEAD: usize = 32;

/// The largest table. Positions and lengths fit in few bytes because of it.
pub const SIZE_MAX: u32 = 65_535;

/// The position of an entry.
#[derive(Debug, Clone, Copy)]
struct TableEntry<N> {
    /// The position of its name among all bytes ever inserted.
    at: u32,
    name: u16,
    value: u16,
    note: N,
}

impl<N> TableEntry<N> {
    fn size(&self) -> usize {
        usize::from(self.name) + usize::from(self.value) + OVERHEAD
    }
}

/// The table.
#[derive(Debug)]
pub struct DynamicTable<N> {
    bytes: Vec<u8>,
    /// The position of the first of `bytes`.
    base: u32,
    /// Oldest first.
    entries: VecDeque<TableEntry<N>>,
    size: u32,
    size_max: u32,
}

impl<N: Copy> DynamicTable<N> {
    /// An empty table without memory.
    pub fn new(size_max: u32) -> Self {
        let size_max = size_max.min(SIZE_MAX);
        DynamicTable { bytes: Vec::new(), base: 0, entries: VecDeque::new(), size: 0, size_max }
    }

    /// The number of entries.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether it has no entries.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// How many of the oldest entries make room for one more with so many bytes of name and value; `None`:
    /// it is larger than the table.
    pub fn evicted_by(&self, bytes: usize) -> Option<usize> {
        let room = (self.size_max as usize).checked_sub(bytes + OVERHEAD)?;
        let (mut size, mut evicted) = (self.size as usize, 0);
        for entry in &self.entries {
            if size <= room {
                break;
            }
            size -= entry.size();
            evicted += 1;
        }
        Some(evicted)
    }

    /// Its largest size in bytes, overhead included.
    pub fn size_max(&self) -> u32 {
        self.size_max
    }

    /// The entry at `index`, 0 being the newest.
    #[inline]
    pub fn get(&self, index: usize) -> Option<(&[u8], &[u8], N)> {
        let at = self.entries.len().checked_sub(index + 1)?;
        let entry = self.entries.get(at)?;
        let start = entry.at.wrapping_sub(self.base) as usize;
        let value = start + usize::from(entry.name);
        let end = value + usize::from(entry.value);
        Some((&self.bytes[start..value], &self.bytes[value..end], entry.note))
    }

    /// Inserts an entry and evicts what does not fit beside it. Returns the number of evicted entries,
    /// and whether the entry is in the table: one larger than the table empties it (RFC 7541 section
    /// 4.4).
    pub fn insert(&mut self, name: &[u8], value: &[u8], note: N) -> (usize, bool) {
        let size = name.len() + value.len() + OVERHEAD;
        let max = self.size_max as usize;
        if size > max {
            return (self.evict_to(0), false);
        }
        let evicted = self.evict_to(max - size);
        let added = name.len() + value.len();
        if self.bytes.len() + added > 2 * max {
            self.compact();
        }
        let at = self.base.wrapping_add(self.bytes.len() as u32);
        self.bytes.extend_from_slice(name);
        self.bytes.extend_from_slice(value);
        let (name, value) = (name.len() as u16, value.len() as u16);
        self.entries.push_back(TableEntry { at, name, value, note });
        self.size += size as u32;
        (evicted, true)
    }

    /// Sets the largest size; returns the number of evicted entries.
    pub fn resize(&mut self, size_max: u32) -> usize {
        self.size_max = size_max.min(SIZE_MAX);
        self.evict_to(self.size_max as usize)
    }

    /// Gives back memory that the entries don't need.
    pub fn shrink(&mut self) {
        self.compact();
        self.bytes.shrink_to_fit();
        self.entries.shrink_to_fit();
    }

    /// Bytes of heap memory.
    pub fn heap(&self) -> usize {
        self.bytes.capacity() + self.entries.capacity() * size_of::<TableEntry<N>>()
    }

    fn evict_to(&mut self, size: usize) -> usize {
        let mut evicted = 0;
        while self.size as usize > size
            && let Some(entry) = self.entries.pop_front()
        {
            self.size -= entry.size() as u32;
            evicted += 1;
        }
        if self.entries.is_empty() {
            self.bytes.clear();
        }
        evicted
    }

    fn compact(&mut self) {
        let Some(first) = self.entries.front() else { return self.bytes.clear() };
        let unused = first.at.wrapping_sub(self.base) as usize;
        self.bytes.copy_within(unused.., 0);
        self.bytes.truncate(self.bytes.len() - unused);
        self.base = first.at;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Token;

    #[test]
    fn the_newest_comes_first_and_the_oldest_goes() {
        let mut table = DynamicTable::new(100);
        assert_eq!(table.insert(b"a", b"1", Token::OTHER), (0, true));
        assert_eq!(table.insert(b"b", b"2", Token::HOST), (0, true));
        assert_eq!(table.get(0), Some((&b"b"[..], &b"2"[..], Token::HOST)));
        assert_eq!(table.get(1), Some((&b"a"[..], &b"1"[..], Token::OTHER)));
        assert_eq!(table.get(2), None);
        assert_eq!(
            (table.evicted_by(2), table.evicted_by(40), table.evicted_by(69)),
            (Some(1), Some(2), None)
        );
        assert_eq!(table.insert(b"c", b"3", Token::OTHER), (1, true));
        assert_eq!(table.get(1).unwrap().0, b"b");
        assert_eq!(table.resize(40), 1);
        assert_eq!(table.len(), 1);
        assert_eq!(table.insert(b"too", b"large", Token::OTHER), (1, true));
        assert_eq!(table.insert(b"too large", b"", Token::OTHER), (1, false));
        assert_eq!((table.len(), table.size), (0, 0));
    }

    #[test]
    fn two_entries_fit_exactly() {
        for (size, len) in [(67, 1), (68, 2), (69, 2)] {
            let mut table = DynamicTable::new(size);
            table.insert(b"a", b"1", Token::OTHER);
            table.insert(b"b", b"2", Token::OTHER);
            assert_eq!(table.len(), len, "{size}");
        }
    }

    #[test]
    fn memory_stays_within_twice_the_size() {
        let mut table = DynamicTable::new(4096);
        for number in 0..10_000u32 {
            let value = number.to_string().repeat(number as usize % 40);
            table.insert(b"name", value.as_bytes(), Token::OTHER);
            assert_eq!(table.get(0).unwrap().1, value.as_bytes());
            let oldest = table.len() - 1;
            assert_eq!(table.get(oldest).unwrap().0, b"name");
        }
        assert!(
            table.heap() <= 2 * 4096 + 128 * size_of::<TableEntry<Token>>(),
            "{}",
            table.heap()
        );
        table.shrink();
        assert!(table.heap() <= 4096 + 128 * size_of::<TableEntry<Token>>(), "{}", table.heap());
        table.resize(0);
        table.shrink();
        assert_eq!(table.heap(), 0);
    }
}
