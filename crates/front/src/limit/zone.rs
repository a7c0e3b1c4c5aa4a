//! A zone: the state per key, shared by all workers and kept across reloads. nginx: a shared memory
//! zone with a tree and a queue in it.
//!
//! Used by the limits of requests and of connections. Keys are spread
//! over shards. Each shard has its own lock, which is held for one look-up and never while waiting;
//! no thread holds two. All shards draw on one budget, so a zone holds exactly as many keys as its
//! size allows.
//!
//! Each key is charged its size in nginx on 64-bit systems, so that sizes mean the same: its length
//! and a fixed part, rounded up to a power of two. The table here is of similar size.
//!
//! When the budget is spent, the least recently used key of the shard is evicted, then those of
//! other shards; pinned keys stay.
// nginx differs: it has one queue per zone. Small zones have one shard and are the same.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Minimum size of a shard, in bytes.
const SHARD_BYTES_MIN: u64 = 64 * 1024;

/// Maximum number of shards of a zone.
const SHARDS_MAX: u64 = 32;

/// Number of expired keys that are removed whenever a key is added: a zone shrinks while it is
/// used.
const EXPIRED_MAX: u32 = 2;

/// No entry: the end of a list.
const NONE: u32 = u32::MAX;

/// The state per key, of type `S`.
#[derive(Debug)]
pub struct Zone<S> {
    shards: Box<[Mutex<Shard<S>>]>,
    hasher: RandomState,
    /// Charged to every key besides its length.
    fixed: u64,
    bytes_max: u64,
    bytes: AtomicU64,
}

/// No room for another key: all known keys are in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Full;

/// The position of an entry, valid while it is pinned.
#[derive(Debug)]
pub struct EntryPin {
    shard: u32,
    slot: u32,
}

/// An entry as its users see it.
#[derive(Debug)]
pub struct ZoneEntry<S> {
    /// The state.
    pub state: S,
    /// The entry stays until this is zero.
    pub pins: u32,
    key: Arc<[u8]>,
    newer: u32,
    older: u32,
}

#[derive(Debug)]
struct Shard<S> {
    by_key: HashMap<Arc<[u8]>, u32>,
    entries: slab::Slab<ZoneEntry<S>>,
    newest: u32,
    oldest: u32,
}

impl<S: Default> Zone<S> {
    /// An empty zone of a size. `fixed` bytes are charged to every key besides its length.
    pub fn new(bytes: u64, fixed: u64) -> Self {
        let shards = (bytes / SHARD_BYTES_MIN).clamp(1, SHARDS_MAX);
        Self {
            shards: (0..shards).map(|_| Mutex::new(Shard::new())).collect(),
            hasher: RandomState::new(),
            fixed,
            bytes_max: bytes,
            bytes: AtomicU64::new(0),
        }
    }

    /// Bytes that it may charge.
    pub fn size(&self) -> u64 {
        self.bytes_max
    }

    /// Looks up a key, adds it with the default state if it is new, and calls `visit` with its entry.
    /// `expired` tells whether an entry may be removed.
    ///
    /// # Errors
    /// [`Full`].
    pub fn visit<R>(
        &self,
        key: &[u8],
        expired: impl Fn(&S) -> bool,
        visit: impl FnOnce(&mut ZoneEntry<S>) -> R,
    ) -> Result<(EntryPin, R), Full> {
        let at = self.shard_of(key);
        let mut shard = self.lock(at);
        let known = shard.by_key.get(key).copied();
        let slot = match known {
            Some(slot) => {
                shard.touch(slot);
                slot
            }
            None => {
                let charge = self.charge(key.len());
                self.credit(shard.forget_expired(EXPIRED_MAX, self.fixed, &expired));
                if !self.reserve(charge) {
                    self.credit(shard.forget_oldest(self.fixed, &expired));
                    if !self.reserve(charge) {
                        drop(shard);
                        self.make_room(at, charge, &expired)?;
                        shard = self.lock(at);
                    }
                }
                match shard.by_key.get(key).copied() {
                    // Another worker added it meanwhile.
                    Some(slot) => {
                        self.credit(charge);
                        slot
                    }
                    None => shard.add(key),
                }
            }
        };
        let shown = u32::try_from(at).unwrap_or(NONE);
        Ok((EntryPin { shard: shown, slot }, visit(&mut shard.entries[slot as usize])))
    }

    /// Calls `visit` with a pinned entry.
    pub fn at<R>(&self, place: &EntryPin, visit: impl FnOnce(&mut ZoneEntry<S>) -> R) -> R {
        visit(&mut self.lock(place.shard as usize).entries[place.slot as usize])
    }

    /// Removes a pin from an entry, and the entry with its last pin.
    pub fn unpin_and_forget(&self, place: EntryPin) {
        let mut shard = self.lock(place.shard as usize);
        let entry = &mut shard.entries[place.slot as usize];
        entry.pins = entry.pins.saturating_sub(1);
        if entry.pins == 0 {
            let freed = shard.forget(place.slot, self.fixed);
            self.credit(freed);
        }
    }

    /// Keys that are known now.
    pub fn len(&self) -> usize {
        self.shards.iter().map(|shard| lock(shard).entries.len()).sum()
    }

    /// Whether no key is known.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn shard_of(&self, key: &[u8]) -> usize {
        match self.shards.len() as u64 {
            1 => 0,
            // Less than the number of shards, which is small.
            shards => (self.hasher.hash_one(key) % shards) as usize,
        }
    }

    fn lock(&self, shard: usize) -> MutexGuard<'_, Shard<S>> {
        lock(&self.shards[shard])
    }

    fn charge(&self, length: usize) -> u64 {
        charge(length, self.fixed)
    }

    /// Takes bytes from the budget; false when there are not so many.
    fn reserve(&self, bytes: u64) -> bool {
        let more = |used: u64| used.checked_add(bytes).filter(|used| *used <= self.bytes_max);
        self.bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
    }

    fn credit(&self, bytes: u64) {
        if bytes > 0 {
            self.bytes.fetch_sub(bytes, Ordering::Relaxed);
        }
    }

    /// Takes bytes from the budget at the cost of other shards.
    fn make_room(
        &self,
        own: usize,
        charge: u64,
        expired: &impl Fn(&S) -> bool,
    ) -> Result<(), Full> {
        let others = (1..self.shards.len()).map(|n| (own + n) % self.shards.len());
        for at in others {
            self.credit(self.lock(at).forget_oldest(self.fixed, expired));
            if self.reserve(charge) {
                return Ok(());
            }
        }
        Err(Full)
    }
}

/// The charge for a key.
fn charge(length: usize, fixed: u64) -> u64 {
    (fixed + length as u64).next_power_of_two()
}

/// A panic while a shard is locked would be a bug; its counts are usable nevertheless.
fn lock<S>(shard: &Mutex<Shard<S>>) -> MutexGuard<'_, Shard<S>> {
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<S: Default> Shard<S> {
    fn new() -> Self {
        Self { by_key: HashMap::new(), entries: slab::Slab::new(), newest: NONE, oldest: NONE }
    }

    fn add(&mut self, key: &[u8]) -> u32 {
        let key: Arc<[u8]> = key.into();
        let entry =
            ZoneEntry { state: S::default(), pins: 0, key: key.clone(), newer: NONE, older: NONE };
        // The budget of a zone keeps the number of its entries far below.
        let slot = u32::try_from(self.entries.insert(entry)).unwrap_or(NONE);
        self.by_key.insert(key, slot);
        self.link(slot);
        slot
    }

    /// Makes an entry the newest.
    fn touch(&mut self, slot: u32) {
        if self.newest != slot {
            self.unlink(slot);
            self.link(slot);
        }
    }

    fn link(&mut self, slot: u32) {
        let before = std::mem::replace(&mut self.newest, slot);
        let entry = &mut self.entries[slot as usize];
        entry.newer = NONE;
        entry.older = before;
        match self.entries.get_mut(before as usize) {
            Some(entry) => entry.newer = slot,
            None => self.oldest = slot,
        }
    }

    fn unlink(&mut self, slot: u32) {
        let ZoneEntry { newer, older, .. } = self.entries[slot as usize];
        match self.entries.get_mut(newer as usize) {
            Some(entry) => entry.older = older,
            None => self.newest = older,
        }
        match self.entries.get_mut(older as usize) {
            Some(entry) => entry.newer = newer,
            None => self.oldest = newer,
        }
    }

    /// Removes an entry; returns its charge.
    fn forget(&mut self, slot: u32, fixed: u64) -> u64 {
        self.unlink(slot);
        let entry = self.entries.remove(slot as usize);
        self.by_key.remove(&entry.key);
        charge(entry.key.len(), fixed)
    }

    /// Removes expired entries from the oldest on, at most `most`.
    fn forget_expired(&mut self, most: u32, fixed: u64, expired: &impl Fn(&S) -> bool) -> u64 {
        let mut freed = 0;
        for _ in 0..most {
            match self.entries.get(self.oldest as usize) {
                // Look-ups make entries the newest, so the ones behind a pinned one are pinned too.
                Some(entry) if entry.pins == 0 && expired(&entry.state) => {
                    freed += self.forget(self.oldest, fixed);
                }
                _ => break,
            }
        }
        freed
    }

    /// Removes the oldest entry, and expired ones after it.
    fn forget_oldest(&mut self, fixed: u64, expired: &impl Fn(&S) -> bool) -> u64 {
        match self.entries.get(self.oldest as usize) {
            Some(entry) if entry.pins == 0 => {
                self.forget(self.oldest, fixed) + self.forget_expired(EXPIRED_MAX, fixed, expired)
            }
            _ => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A zone of one shard in which a key of 28 bytes or less takes 64.
    fn small(keys: u64) -> Zone<u32> {
        Zone::new(64 * keys, 36)
    }

    fn set(zone: &Zone<u32>, key: &str, state: u32) -> Result<EntryPin, Full> {
        let visited = zone.visit(key.as_bytes(), |_| false, |entry| entry.state = state);
        visited.map(|(place, ())| place)
    }

    fn known(zone: &Zone<u32>) -> Vec<String> {
        let shard = zone.lock(0);
        let mut keys = Vec::new();
        let mut at = shard.newest;
        while let Some(entry) = shard.entries.get(at as usize) {
            keys.push(String::from_utf8_lossy(&entry.key).into_owned());
            at = entry.older;
        }
        keys
    }

    #[test]
    fn the_oldest_key_makes_room() {
        let zone = small(3);
        for key in ["a", "b", "c", "a", "d"] {
            set(&zone, key, 1).unwrap();
        }
        assert_eq!(known(&zone), ["d", "a", "c"]);
        assert_eq!(zone.len(), 3);
    }

    #[test]
    fn pinned_keys_stay() {
        let zone = small(2);
        let places: Vec<EntryPin> = ["a", "b"].map(|key| set(&zone, key, 1).unwrap()).into();
        for place in &places {
            zone.at(place, |entry| entry.pins += 1);
        }
        assert_eq!(set(&zone, "c", 1).err(), Some(Full));
        for place in places {
            zone.unpin_and_forget(place);
        }
        assert!(zone.is_empty());
        assert_eq!(zone.bytes.load(Ordering::Relaxed), 0);
        assert!(set(&zone, "c", 1).is_ok());
    }

    #[test]
    fn expired_keys_are_forgotten_two_at_a_time() {
        let zone = small(10);
        for key in ["a", "b", "c", "d"] {
            set(&zone, key, 7).unwrap();
        }
        zone.visit(b"e", |state| *state == 7, |_| ()).unwrap();
        assert_eq!(known(&zone), ["e", "d", "c"]);
    }

    #[test]
    fn long_keys_take_more() {
        let zone = small(4);
        set(&zone, "a", 1).unwrap();
        set(&zone, &"x".repeat(29), 1).unwrap();
        assert_eq!(zone.bytes.load(Ordering::Relaxed), 64 + 128);
        assert_eq!(set(&zone, &"y".repeat(300), 1).err(), Some(Full));
    }

    #[test]
    fn a_zone_of_many_shards_holds_what_its_size_says() {
        let zone: Zone<u32> = Zone::new(1024 * 1024, 36);
        assert!(zone.shards.len() > 1);
        for n in 0..40_000 {
            set(&zone, &n.to_string(), n).unwrap();
        }
        assert_eq!(zone.len(), 16 * 1024);
        let newest = zone.visit(b"39999", |_| false, |entry| entry.state).unwrap();
        assert_eq!(newest.1, 39_999);
    }

    #[test]
    fn workers_share_a_zone() {
        let zone: Zone<u32> = Zone::new(256 * 1024, 36);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for n in 0..20_000_u32 {
                        let key = (n % 5_000).to_be_bytes();
                        let added = zone.visit(&key, |_| false, |entry| entry.state += 1);
                        added.expect("nothing is pinned");
                    }
                });
            }
        });
        assert_eq!(zone.bytes.load(Ordering::Relaxed), 64 * zone.len() as u64);
        assert!(zone.len() <= 4096);
    }
}
