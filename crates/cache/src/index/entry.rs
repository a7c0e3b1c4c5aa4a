//! One key's entry: 96 bytes, and the state in its flags. Used by the shards only.

use crate::key::Key;
use crate::time::UnixMs;

use super::sketch::Sketch;

/// No entry, no link.
pub(super) const NONE: u32 = u32::MAX;

/// The index's data of one key. Ordered so that a missing look-up reads one cache line.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(super) struct IndexEntry {
    pub key: Key,
    /// The next entry of the hash bucket, or of the free list.
    pub chain: u32,
    /// Neighbours in the queue of stored or of other entries: newer and older.
    pub newer: u32,
    pub older: u32,
    pub flags: u8,
    /// The number of fills under way; saturates.
    pub updating: u8,
    /// The number of requests for the key; saturates.
    pub uses: u16,
    pub used: UnixMs,
    /// Orders commits and purges; 0 when unknown.
    pub stamp: u64,
    /// Fresh until this time; [`UnixMs::ZERO`] when only the file has it.
    pub valid_until: UnixMs,
    /// The number of holds, which keep the entry from being removed.
    pub holds: u32,
    /// Blocks of the file system that the file takes.
    pub blocks: u32,
    /// Bytes of the file.
    pub length: u64,
    pub sketch: Sketch,
    /// Bytes of the file's head; 0 when only the file has that number.
    pub head_bytes: u32,
    /// The first of the entry's links in the tag index.
    pub tags: u32,
    /// The status of the remembered error; `valid_until` is the error's then.
    pub error: u16,
    /// A fill is giving its file the key's name.
    pub publishing: bool,
}

/// Kept below nginx's size of a key: 120 bytes, rounded to 128 by its slab allocator.
const _: () = assert!(size_of::<IndexEntry>() == 96);

/// There is a file.
pub(super) const EXISTS: u8 = 1;
/// An upstream error is remembered.
pub(super) const ERROR: u8 = 1 << 1;
/// The entry stays without a file, since its uses count (`proxy_cache_min_uses`).
pub(super) const COUNTED: u8 = 1 << 2;
/// The file is being removed.
pub(super) const DELETING: u8 = 1 << 3;
/// Stale since a soft purge.
pub(super) const SOFT_PURGED: u8 = 1 << 4;
/// The tag index doesn't know the tags of the entry (it was full, or the file's head wasn't read
/// yet): a purge by tag must read the file's head.
pub(super) const TAGS_IN_FILE: u8 = 1 << 5;
/// From a snapshot; not yet seen by the loader.
pub(super) const UNVERIFIED: u8 = 1 << 6;
/// A free slot, not an entry.
pub(super) const FREE: u8 = 1 << 7;

impl IndexEntry {
    pub fn new(key: Key) -> Self {
        Self {
            key,
            chain: NONE,
            newer: NONE,
            older: NONE,
            flags: 0,
            updating: 0,
            uses: 0,
            used: UnixMs::ZERO,
            stamp: 0,
            valid_until: UnixMs::ZERO,
            holds: 0,
            blocks: 0,
            length: 0,
            sketch: Sketch::UNKNOWN,
            head_bytes: 0,
            tags: NONE,
            error: 0,
            publishing: false,
        }
    }

    pub fn is(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    pub fn set(&mut self, flag: u8) {
        self.flags |= flag;
    }

    pub fn clear(&mut self, flag: u8) {
        self.flags &= !flag;
    }

    /// Whether the entry has a reason to stay when it has no holds.
    pub fn is_kept(&self) -> bool {
        self.flags & (EXISTS | ERROR | COUNTED) != 0
    }
}
