//! One shard of the index: a slab of entries, a hash table of slots and two queues, behind one
//! lock. Called by the index with the lock held; never waits, and takes no other lock.
//!
//! All memory is reserved when the shard is made (and becomes resident as it is used). No operation
//! allocates, so the lock is held for a few memory accesses only.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::key::Key;
use crate::time::UnixMs;

use super::entry::{DELETING, EXISTS, FREE, IndexEntry, NONE};

/// The cost of a key: its entry, and its share of the hash table.
pub(super) const KEY_COST_BYTES: usize = size_of::<IndexEntry>() + size_of::<u32>();

/// The two queues, ordered by the time of last use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LruQueue {
    /// Entries with a file.
    Stored,
    /// Counted and failed keys, and keys being filled for the first time.
    Other,
}

#[derive(Debug, Clone, Copy)]
struct QueueEnds {
    newest: u32,
    oldest: u32,
}

#[derive(Debug)]
pub(super) struct Shard {
    entries: Vec<IndexEntry>,
    buckets: Vec<u32>,
    capacity: u32,
    free: u32,
    count: u32,
    stored: u32,
    /// Blocks of the files of all shards.
    blocks: Arc<AtomicU64>,
    queues: [QueueEnds; 2],
}

impl Shard {
    pub fn new(capacity: u32, blocks: Arc<AtomicU64>) -> Self {
        Self {
            entries: Vec::with_capacity(capacity as usize),
            // One more than a slot, so that zeroed memory, which isn't resident, is empty.
            buckets: vec![0; capacity as usize],
            capacity,
            free: NONE,
            count: 0,
            stored: 0,
            blocks,
            queues: [QueueEnds { newest: NONE, oldest: NONE }; 2],
        }
    }

    /// Entries in use.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Entries with a file.
    pub fn stored(&self) -> u32 {
        self.stored
    }

    /// Slots that were ever used: the limit of a scan.
    pub fn slots(&self) -> u32 {
        self.entries.len() as u32
    }

    pub fn get(&self, slot: u32) -> &IndexEntry {
        &self.entries[slot as usize]
    }

    /// Flags, blocks and queue links change through the shard only.
    pub fn get_mut(&mut self, slot: u32) -> &mut IndexEntry {
        &mut self.entries[slot as usize]
    }

    /// The entry in use at a slot, if there is one.
    pub fn live(&self, slot: u32) -> Option<&IndexEntry> {
        self.entries.get(slot as usize).filter(|entry| !entry.is(FREE))
    }

    pub fn find(&self, key: &Key) -> Option<u32> {
        let mut slot = self.buckets[self.bucket(key)].wrapping_sub(1);
        while slot != NONE {
            let entry = self.get(slot);
            if entry.key == *key {
                return Some(slot);
            }
            slot = entry.chain;
        }
        None
    }

    /// A new entry at the front of the queue of others; `None` when the shard is full.
    pub fn insert(&mut self, key: &Key, now: UnixMs) -> Option<u32> {
        let slot = match self.free {
            NONE if self.slots() == self.capacity => return None,
            NONE => {
                self.entries.push(IndexEntry::new(*key));
                self.slots() - 1
            }
            slot => {
                self.free = self.get(slot).chain;
                self.entries[slot as usize] = IndexEntry::new(*key);
                slot
            }
        };
        let bucket = self.bucket(key);
        let head = self.buckets[bucket].wrapping_sub(1);
        self.buckets[bucket] = slot + 1;
        let entry = self.get_mut(slot);
        entry.chain = head;
        entry.used = now;
        self.count += 1;
        self.push_newest(slot);
        Some(slot)
    }

    /// Frees the slot. The caller has removed the entry's tags from their index.
    pub fn remove(&mut self, slot: u32) {
        debug_assert!(self.get(slot).tags == NONE && !self.get(slot).is(FREE));
        self.forget_file(slot);
        self.unlink(slot);
        let (key, chain) = (self.get(slot).key, self.get(slot).chain);
        let bucket = self.bucket(&key);
        if self.buckets[bucket] == slot + 1 {
            self.buckets[bucket] = chain.wrapping_add(1);
        } else {
            let mut before = self.buckets[bucket].wrapping_sub(1);
            while self.get(before).chain != slot {
                before = self.get(before).chain;
            }
            self.get_mut(before).chain = chain;
        }
        let free = self.free;
        let entry = self.get_mut(slot);
        entry.flags = FREE;
        entry.chain = free;
        self.free = slot;
        self.count -= 1;
    }

    /// Moves the entry to the front of its queue.
    pub fn touch(&mut self, slot: u32, now: UnixMs) {
        self.get_mut(slot).used = now;
        if self.queues[self.queue_of(slot) as usize].newest != slot {
            self.unlink(slot);
            self.push_newest(slot);
        }
    }

    /// The entry has a file now, or another one.
    pub fn store_file(&mut self, slot: u32, blocks: u32, now: UnixMs) {
        self.unlink(slot);
        self.forget_file_of_unlinked(slot);
        let entry = self.get_mut(slot);
        entry.flags = EXISTS;
        entry.blocks = blocks;
        entry.used = now;
        self.blocks.fetch_add(u64::from(blocks), Relaxed);
        self.stored += 1;
        self.push_newest(slot);
    }

    /// The entry has no file any more; it goes to the queue of others, keeping its age.
    pub fn forget_file(&mut self, slot: u32) {
        if self.get(slot).is(EXISTS) {
            self.unlink(slot);
            self.forget_file_of_unlinked(slot);
            self.insert_by_age(slot);
        }
    }

    fn forget_file_of_unlinked(&mut self, slot: u32) {
        let entry = self.get_mut(slot);
        if entry.is(EXISTS) {
            entry.clear(EXISTS);
            let blocks = std::mem::take(&mut entry.blocks);
            let before = self.blocks.fetch_sub(u64::from(blocks), Relaxed);
            debug_assert!(before >= u64::from(blocks), "{blocks} blocks of {before}");
            self.stored -= 1;
        }
    }

    /// Corrects the size of a file.
    pub fn resize_file(&mut self, slot: u32, blocks: u32) {
        let entry = self.get_mut(slot);
        debug_assert!(entry.is(EXISTS));
        let before = std::mem::replace(&mut entry.blocks, blocks);
        self.blocks.fetch_add(u64::from(blocks), Relaxed);
        self.blocks.fetch_sub(u64::from(before), Relaxed);
    }

    /// The least recently used entry.
    pub fn oldest(&self, queue: LruQueue) -> Option<u32> {
        let slot = self.queues[queue as usize].oldest;
        (slot != NONE).then_some(slot)
    }

    /// The next younger entry of the same queue.
    pub fn newer(&self, slot: u32) -> Option<u32> {
        let slot = self.get(slot).newer;
        (slot != NONE).then_some(slot)
    }

    /// Frees the slot of the oldest entry without a file and without holds.
    pub fn make_room(&mut self, tries: usize) -> bool {
        let mut slot = self.oldest(LruQueue::Other);
        for _ in 0..tries {
            let Some(candidate) = slot else { return false };
            let entry = self.get(candidate);
            if entry.holds == 0 && !entry.is(DELETING) {
                self.remove(candidate);
                return true;
            }
            slot = self.newer(candidate);
        }
        false
    }

    /// Sorts both queues by use again, after entries were loaded in any order.
    pub fn sort_queues(&mut self) {
        let mut slots: Vec<u32> =
            (0..self.slots()).filter(|&slot| self.live(slot).is_some()).collect();
        slots.sort_unstable_by_key(|&slot| self.get(slot).used);
        self.queues = [QueueEnds { newest: NONE, oldest: NONE }; 2];
        slots.into_iter().for_each(|slot| self.push_newest(slot));
    }

    /// Multiply-shift of key bits that don't choose the shard.
    fn bucket(&self, key: &Key) -> usize {
        let bits = u32::from_le_bytes([key.0[4], key.0[5], key.0[6], key.0[7]]);
        ((u64::from(bits) * self.buckets.len() as u64) >> 32) as usize
    }

    fn queue_of(&self, slot: u32) -> LruQueue {
        if self.get(slot).is(EXISTS) { LruQueue::Stored } else { LruQueue::Other }
    }

    fn push_newest(&mut self, slot: u32) {
        let newest = self.queues[self.queue_of(slot) as usize].newest;
        self.link_between(slot, newest, NONE);
    }

    /// Entries that move to the other queue are mostly old: the search starts there.
    fn insert_by_age(&mut self, slot: u32) {
        const STEPS_MAX: usize = 64;
        let used = self.get(slot).used;
        let queue = self.queue_of(slot);
        let (mut older, mut newer) = (NONE, self.queues[queue as usize].oldest);
        for _ in 0..STEPS_MAX {
            if newer == NONE || self.get(newer).used > used {
                break;
            }
            older = newer;
            newer = self.get(newer).newer;
        }
        self.link_between(slot, older, newer);
    }

    fn link_between(&mut self, slot: u32, older: u32, newer: u32) {
        let queue = self.queue_of(slot) as usize;
        let entry = self.get_mut(slot);
        entry.older = older;
        entry.newer = newer;
        match older {
            NONE => self.queues[queue].oldest = slot,
            older => self.get_mut(older).newer = slot,
        }
        match newer {
            NONE => self.queues[queue].newest = slot,
            newer => self.get_mut(newer).older = slot,
        }
    }

    fn unlink(&mut self, slot: u32) {
        let queue = self.queue_of(slot) as usize;
        let IndexEntry { older, newer, .. } = *self.get(slot);
        match older {
            NONE => self.queues[queue].oldest = newer,
            older => self.get_mut(older).newer = newer,
        }
        match newer {
            NONE => self.queues[queue].newest = older,
            newer => self.get_mut(newer).older = older,
        }
    }
}
