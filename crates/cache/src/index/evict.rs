//! Selects the objects to remove: those unused for too long, or the oldest when space or keys run
//! out.
//!
//! Called by the manager in bounded steps. The files of victims are removed by the caller.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;
use std::time::Duration;

use crate::key::Key;
use crate::time::UnixMs;

use super::entry::{DELETING, EXISTS};
use super::shard::{LruQueue, Shard};
use super::{Index, ROOM_TRIES, lock};

/// An object to be removed: it can't be found any more and is not counted in the sizes. Remove its
/// file and then drop this; until then the key can't be stored again.
#[derive(Debug)]
#[must_use = "the file must be removed"]
pub struct Victim {
    index: Arc<Index>,
    slot: u32,
    key: Key,
    blocks: u32,
    length: u64,
}

/// The result of a step of [`Index::expire`].
#[derive(Debug)]
pub struct ExpireStep {
    /// Objects whose files must be removed.
    pub victims: Vec<Victim>,
    /// The maximum time until the next entry expires; zero if the step ended at its limit.
    pub next: Duration,
}

/// When idle, the manager checks again after this interval, as nginx's does.
const IDLE: Duration = Duration::from_secs(10);

impl Index {
    /// Takes out entries that were unused for [`Index::inactive`], at most about `limit`. Entries
    /// with holds are not inactive, and count as used now.
    pub fn expire(self: &Arc<Self>, now: UnixMs, limit: usize) -> ExpireStep {
        let inactive = self.inactive();
        let mut expired = ExpireStep { victims: Vec::new(), next: IDLE };
        let mut left = limit;
        for number in 0..self.shards.len() as u32 {
            let mut shard = lock(&self.shards[number as usize].0);
            for queue in [LruQueue::Stored, LruQueue::Other] {
                while let Some(slot) = shard.oldest(queue) {
                    let entry = shard.get(slot);
                    let (used, busy) = (entry.used, entry.holds > 0);
                    let unused = now.since(used);
                    if unused < inactive {
                        expired.next = expired.next.min(inactive - unused);
                        break;
                    }
                    if left == 0 {
                        return ExpireStep { next: Duration::ZERO, ..expired };
                    }
                    left -= 1;
                    if busy {
                        shard.touch(slot, now);
                    } else if queue == LruQueue::Stored {
                        expired.victims.push(self.condemn(number, &mut shard, slot));
                    } else {
                        shard.remove(slot);
                    }
                }
            }
        }
        expired
    }

    /// Up to `limit` least recently used objects, over all shards: for `max_size` and `min_free`.
    /// Fewer when all others are in use.
    pub fn evict(self: &Arc<Self>, limit: usize) -> Vec<Victim> {
        let mut oldest: BinaryHeap<Reverse<(UnixMs, u32)>> = BinaryHeap::new();
        for (number, shard) in self.shards.iter().enumerate() {
            oldest.extend(oldest_use(&lock(&shard.0)).map(|used| Reverse((used, number as u32))));
        }
        let mut victims = Vec::new();
        while victims.len() < limit {
            let Some(Reverse((_, number))) = oldest.pop() else { break };
            let mut shard = lock(&self.shards[number as usize].0);
            if let Some(victim) = self.oldest_of(number, &mut shard) {
                victims.push(victim);
                oldest.extend(oldest_use(&shard).map(|used| Reverse((used, number))));
            }
        }
        victims
    }

    /// Makes room for keys: takes entries out of shards that left their headroom, at most about
    /// `limit`; entries without a file first. Called when [`Index::poll_pressure`] is ready, until
    /// no entry is returned.
    pub fn relieve(self: &Arc<Self>, limit: usize) -> Vec<Victim> {
        let mut victims = Vec::new();
        for number in 0..self.shards.len() as u32 {
            let mut shard = lock(&self.shards[number as usize].0);
            let mut surplus = shard.count().saturating_sub(self.watermark()) as usize;
            while surplus > 0 && shard.make_room(ROOM_TRIES) {
                surplus -= 1;
            }
            let wanted = surplus.min(limit - victims.len());
            let oldest = std::iter::from_fn(|| self.oldest_of(number, &mut shard));
            victims.extend(oldest.take(wanted));
        }
        victims
    }

    /// The oldest object of a shard without holds, if it is among the oldest few.
    pub(super) fn oldest_of(self: &Arc<Self>, number: u32, shard: &mut Shard) -> Option<Victim> {
        let mut slot = shard.oldest(LruQueue::Stored)?;
        for _ in 0..ROOM_TRIES {
            if shard.get(slot).holds == 0 {
                return Some(self.condemn(number, shard, slot));
            }
            slot = shard.newer(slot)?;
        }
        None
    }

    /// Makes a victim of an object, whether it has holds or not.
    pub(super) fn condemn(self: &Arc<Self>, number: u32, shard: &mut Shard, slot: u32) -> Victim {
        debug_assert!(shard.get(slot).is(EXISTS));
        self.detach_tags(shard, slot);
        let (key, blocks, length) = {
            let entry = shard.get(slot);
            (entry.key, entry.blocks, entry.length)
        };
        shard.forget_file(slot);
        let entry = shard.get_mut(slot);
        entry.flags = DELETING;
        entry.holds += 1;
        Victim { index: Arc::clone(self), slot: self.global(number, slot), key, blocks, length }
    }
}

fn oldest_use(shard: &Shard) -> Option<UnixMs> {
    shard.oldest(LruQueue::Stored).map(|slot| shard.get(slot).used)
}

impl Victim {
    /// Names the file.
    pub fn key(&self) -> &Key {
        &self.key
    }

    /// Blocks of the file system that the removal frees.
    pub fn blocks(&self) -> u32 {
        self.blocks
    }

    /// Bytes of the file.
    pub fn length(&self) -> u64 {
        self.length
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        let (_, mut shard, slot) = self.index.local(self.slot);
        let entry = shard.get_mut(slot);
        entry.clear(DELETING);
        entry.holds -= 1;
        self.index.remove_if_unused(&mut shard, slot);
    }
}
