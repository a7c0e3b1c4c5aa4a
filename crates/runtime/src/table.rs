//! Lock-free tables of fixed size, for knowledge that all threads share.
//!
//! They are lossy (a newer entry may replace an older one), but never wrong: an entry holds 48 bits of a
//! keyed 64-bit hash, and its position in the table encodes most of the rest.

use std::cmp::Ordering;
use std::hash::{BuildHasher, Hash};
use std::sync::LazyLock;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU32, AtomicU64};

use foldhash::quality::RandomState;

/// Bits of a value.
pub(crate) const VALUE_BITS: u32 = 16;

/// Randomly keyed, so clients, which never see a hash, can't choose colliding names. The standard
/// library's SipHash, made for those who see more, takes several times as many instructions, for each
/// request that names a file.
static KEY: LazyLock<RandomState> = LazyLock::new(RandomState::default);

/// The key of `value` in a table.
pub(crate) fn hash(value: impl Hash) -> u64 {
    KEY.hash_one(value)
}

/// An associative table of nonzero 16-bit values; two places per key.
pub(crate) struct AtomicTable<const N: usize> {
    slots: [AtomicU64; N],
    draws: AtomicU64,
}

impl<const N: usize> AtomicTable<N> {
    pub(crate) const fn new() -> AtomicTable<N> {
        assert!(N.is_power_of_two() && N >= 2);
        AtomicTable { slots: [const { AtomicU64::new(0) }; N], draws: AtomicU64::new(0) }
    }

    /// The two places of `hash`, and the part of it that entries hold. The position comes from the
    /// low bits, which the entry does not hold.
    fn places(&self, hash: u64) -> ([&AtomicU64; 2], u64) {
        let at = hash as usize & (N - 1);
        ([&self.slots[at], &self.slots[at ^ 1]], hash >> VALUE_BITS << VALUE_BITS)
    }

    pub(crate) fn find(&self, hash: u64) -> Option<u16> {
        let (places, tag) = self.places(hash);
        places
            .into_iter()
            .map(|place| place.load(Relaxed))
            .find(|entry| entry >> VALUE_BITS << VALUE_BITS == tag && *entry as u16 != 0)
            .map(|entry| entry as u16)
    }

    /// Sets the value of `hash`; 0 forgets it. Races between threads lose one of the entries, which
    /// has the same effect as forgetting it.
    pub(crate) fn set(&self, hash: u64, value: u16) {
        // The victim depends on the new entry, so that two rivals rarely evict each other forever.
        self.set_instead(hash, value, |_| Some((hash >> 40) as usize & 1));
    }

    /// Like [`set`](Self::set) for values with priorities: of two others, the one with the lower priority
    /// is replaced. Among equals the choice is random, and may be the new one, so that of too many
    /// entries some stay until the next turn.
    pub(crate) fn set_for_the_least(&self, hash: u64, value: u16, worth: impl Fn(u16) -> u16) {
        self.set_instead(hash, value, |others| {
            let [first, second] = others.map(&worth);
            match first.cmp(&second) {
                Ordering::Less => Some(0),
                Ordering::Greater => Some(1),
                Ordering::Equal if worth(value) > first => Some(self.draw() & 1),
                Ordering::Equal => [None, None, Some(0), Some(1)][self.draw() & 3],
            }
        });
    }

    /// Sets the value of `hash`. If both places are occupied, `victim` chooses the one to replace.
    fn set_instead(&self, hash: u64, value: u16, victim: impl FnOnce([u16; 2]) -> Option<usize>) {
        let (places, tag) = self.places(hash);
        let holds = |place: &&&AtomicU64| place.load(Relaxed) >> VALUE_BITS << VALUE_BITS == tag;
        let is_free = |place: &&&AtomicU64| place.load(Relaxed) as u16 == 0;
        let place = match places.iter().find(holds).or_else(|| places.iter().find(is_free)) {
            Some(place) => place,
            None if value == 0 => return,
            None => match victim(places.map(|place| place.load(Relaxed) as u16)) {
                Some(victim) => places[victim],
                None => return,
            },
        };
        place.store(if value == 0 { 0 } else { tag | u64::from(value) }, Relaxed);
    }

    /// Bits by chance.
    fn draw(&self) -> usize {
        hash(self.draws.fetch_add(1, Relaxed)) as usize
    }

    pub(crate) fn clear(&self) {
        self.slots.iter().for_each(|slot| slot.store(0, Relaxed));
    }
}

/// A set of hashes; four places per hash. Half as large as an [`AtomicTable`] without values: an entry holds 32
/// bits of the hash, and its position is most of the rest.
pub(crate) struct AtomicSet<const N: usize> {
    slots: [AtomicU32; N],
}

/// Places per hash.
const WAYS: usize = 4;

impl<const N: usize> AtomicSet<N> {
    pub(crate) const fn new() -> AtomicSet<N> {
        assert!(N.is_power_of_two() && N >= WAYS);
        AtomicSet { slots: [const { AtomicU32::new(0) }; N] }
    }

    /// The places of `hash`, and the part of it that entries hold: never 0, which is a free place.
    fn places(&self, hash: u64) -> (&[AtomicU32], u32) {
        let at = hash as usize % N / WAYS * WAYS;
        (&self.slots[at..at + WAYS], ((hash >> 32) as u32).max(1))
    }

    pub(crate) fn contains(&self, hash: u64) -> bool {
        let (places, tag) = self.places(hash);
        places.iter().any(|place| place.load(Relaxed) == tag)
    }

    /// Adds `hash`, perhaps in place of another.
    pub(crate) fn insert(&self, hash: u64) {
        let (places, tag) = self.places(hash);
        let known = places.iter().map(|place| place.load(Relaxed));
        let free = known.clone().position(|known| known == tag);
        let free = free.or_else(|| known.clone().position(|known| known == 0));
        // Like that of a table, the victim depends on the new entry.
        places[free.unwrap_or(tag as usize >> 8 & (WAYS - 1))].store(tag, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_keeps_nearly_all_of_as_many_as_half_its_places() {
        let set = AtomicSet::<4096>::new();
        let hashes: Vec<u64> = (0..2048).map(hash).collect();
        assert!(!hashes.iter().any(|hash| set.contains(*hash)));
        for hash in &hashes {
            set.insert(*hash);
            assert!(set.contains(*hash), "the newest is always kept");
        }
        let kept = hashes.iter().filter(|hash| set.contains(**hash)).count();
        assert!(kept > 2048 * 9 / 10, "{kept}");
    }

    #[test]
    fn the_table_finds_what_it_was_told() {
        let table = AtomicTable::<8>::new();
        let hash = |n: u64| (n << 32) | (n % 8);
        table.set(hash(3), 7);
        assert_eq!(table.find(hash(3)), Some(7));
        assert_eq!(table.find(hash(11)), None, "same place, other key");
        table.set(hash(11), 8);
        assert_eq!((table.find(hash(3)), table.find(hash(11))), (Some(7), Some(8)));
        table.set(hash(3), 0);
        assert_eq!((table.find(hash(3)), table.find(hash(11))), (None, Some(8)));
        for n in 0..100 {
            table.set(hash(n), 9);
            assert_eq!(table.find(hash(n)), Some(9), "the newest is always kept");
        }
        let rivals = [hash(3), hash(11), hash(19)];
        table.clear();
        for (n, rival) in (5..).zip(rivals) {
            table.set_for_the_least(rival, n, |value| 9 - value);
        }
        assert_eq!(rivals.map(|rival| table.find(rival)), [Some(5), None, Some(7)]);
        table.clear();
        assert!((0..100).all(|n| table.find(hash(n)).is_none()));
    }
}
