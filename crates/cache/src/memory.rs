//! The memory tier: small hot objects, shared by all workers (`proxy_cache_path … memory=SIZE`).
//!
//! Called by look-ups after the index, which tells by its [`Version`] whether an entry here is
//! still current: purged, replaced and revalidated objects need no message to this tier. It does no
//! I/O and starts no threads.
//!
//! The underlying cache is quick_cache (CLOCK-Pro, a relative of S3-FIFO), sharded with a short
//! lock each. New objects compete among themselves for a few percent of the memory; only an object
//! that is requested again can displace a hot one. So a crawler that reads everything once pushes
//! nothing out.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use quick_cache::sync::{Cache, DefaultLifecycle};
use quick_cache::{OptionsBuilder, Weighter};
use rustc_hash::FxBuildHasher;

use crate::index::Stored;
use crate::key::Key;
use crate::time::UnixMs;

/// The largest object kept in memory, with its head, regardless of the size of the tier.
pub const OBJECT_BYTES_MAX: usize = 1 << 20;
/// The smallest useful tier, in bytes.
pub const BYTES_MIN: usize = 64 << 10;

const SHARDS_MAX: usize = 32;
/// The minimum size of a shard, in bytes, unless there is only one.
const SHARD_BYTES_MIN: usize = 4 << 20;
/// The largest object, as a fraction of a shard.
const OBJECT_SHARE: usize = 8;
/// The assumed average size of an object; it determines only the number of remembered keys.
const OBJECT_BYTES_GUESS: usize = 8 << 10;

/// The version of an object, as the index knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Version {
    /// Of the object.
    pub stamp: u64,
    /// Of its state.
    pub valid_until: UnixMs,
}

impl Version {
    /// Of a stored object.
    pub fn of(stored: &Stored) -> Self {
        Self { stamp: stored.stamp, valid_until: stored.valid_until }
    }
}

/// The cost of an object.
pub trait Weigh {
    /// Bytes on the heap that are freed with it. A part of a larger buffer must be counted as the
    /// whole buffer, or better be copied first.
    fn heap_bytes(&self) -> usize;
}

/// The memory tier. `V` is cheap to clone.
#[derive(Debug)]
pub struct Memory<V> {
    cache: Cache<Key, Versioned<V>, ByBytes, FxBuildHasher>,
    object_bytes_max: usize,
    hits: AtomicU64,
    stale: AtomicU64,
}

#[derive(Debug, Clone)]
struct Versioned<V> {
    version: Version,
    value: V,
}

#[derive(Debug, Clone)]
struct ByBytes;

impl<V: Weigh> Weighter<Key, Versioned<V>> for ByBytes {
    fn weight(&self, _: &Key, kept: &Versioned<V>) -> u64 {
        cost(&kept.value) as u64
    }
}

/// The table's cost per entry, by the formula in quick_cache's documentation: key, value and 21
/// bytes, for up to three slots per entry (half as many again for remembered keys, and the next
/// power of two).
const fn entry_bytes<V>() -> usize {
    (size_of::<Key>() + size_of::<Versioned<V>>() + 21) * 3
}

fn cost<V: Weigh>(value: &V) -> usize {
    entry_bytes::<V>().saturating_add(value.heap_bytes())
}

/// Numbers of a memory tier.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MemoryUsage {
    /// Objects.
    pub objects: u64,
    /// Bytes that they take, overheads included.
    pub bytes: u64,
    /// Bytes that they may take.
    pub bytes_max: u64,
    /// Look-ups that found their object.
    pub hits: u64,
    /// Look-ups that found an object of another version.
    pub stale: u64,
}

impl<V: Weigh + Clone> Memory<V> {
    /// A tier of `bytes`, overheads included; `None`: fewer than [`BYTES_MIN`].
    pub fn new(bytes: usize) -> Option<Self> {
        if bytes < BYTES_MIN {
            return None;
        }
        let shards = 1 << (bytes / SHARD_BYTES_MIN).clamp(1, SHARDS_MAX).ilog2();
        let items = (bytes / OBJECT_BYTES_GUESS).max(shards * 64);
        let options = OptionsBuilder::new()
            .shards(shards)
            .estimated_items_capacity(items)
            // Rounded down: each shard gets its part rounded up.
            .weight_capacity((bytes - bytes % shards) as u64)
            .build()
            .expect("both capacities are set");
        let lifecycle = DefaultLifecycle::default();
        Some(Self {
            cache: Cache::with_options(options, ByBytes, FxBuildHasher, lifecycle),
            object_bytes_max: (bytes / shards / OBJECT_SHARE).min(OBJECT_BYTES_MAX),
            hits: AtomicU64::new(0),
            stale: AtomicU64::new(0),
        })
    }

    /// The largest object that is taken, in heap bytes.
    pub fn object_bytes_max(&self) -> usize {
        self.object_bytes_max
    }

    /// The object, if it has this version. An entry of another version is removed.
    pub fn find(&self, key: &Key, version: Version) -> Option<V> {
        let kept = self.cache.get(key)?;
        if kept.version == version {
            self.hits.fetch_add(1, Relaxed);
            return Some(kept.value);
        }
        self.stale.fetch_add(1, Relaxed);
        self.cache.remove_if(key, |now| now.version == kept.version);
        None
    }

    /// Keeps an object, if it is small enough and worth keeping. False: it is too large.
    pub fn keep(&self, key: Key, version: Version, value: V) -> bool {
        if value.heap_bytes() > self.object_bytes_max {
            return false;
        }
        self.cache.insert(key, Versioned { version, value });
        true
    }

    /// Frees the memory of an object that was purged or evicted from its disk. Never needed for
    /// correctness.
    pub fn remove(&self, key: &Key) {
        self.cache.remove(key);
    }

    /// Frees all memory.
    pub fn clear(&self) {
        self.cache.clear();
    }

    /// Numbers; locks each shard for a moment.
    pub fn usage(&self) -> MemoryUsage {
        MemoryUsage {
            objects: self.cache.len() as u64,
            bytes: self.cache.weight(),
            bytes_max: self.cache.capacity(),
            hits: self.hits.load(Relaxed),
            stale: self.stale.load(Relaxed),
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    impl Weigh for Bytes {
        fn heap_bytes(&self) -> usize {
            self.len()
        }
    }

    const VERSION: Version = Version { stamp: 1, valid_until: UnixMs(7) };

    fn key(number: u64) -> Key {
        Key::new(&number.to_le_bytes())
    }

    fn object(bytes: usize) -> Bytes {
        vec![0; bytes].into()
    }

    #[test]
    fn only_the_version_that_the_index_names_is_found() {
        let memory = Memory::new(1 << 20).unwrap();
        assert!(memory.keep(key(1), VERSION, object(100)));
        assert_eq!(memory.find(&key(1), VERSION), Some(object(100)));
        let next = Version { stamp: 2, ..VERSION };
        assert_eq!(memory.find(&key(1), next), None);
        assert_eq!(memory.find(&key(1), VERSION), None, "it is gone");
        let usage = memory.usage();
        assert_eq!((usage.objects, usage.hits, usage.stale), (0, 1, 1));
    }

    #[test]
    fn bytes_are_bounded_with_their_overheads() {
        for (bytes, size) in [(BYTES_MIN, 0), (1 << 20, 1), (16 << 20, 1000), (8 << 20, 60_000)] {
            let memory = Memory::new(bytes).unwrap();
            for number in 0..(3 * bytes / (size + 100)).min(200_000) as u64 {
                memory.keep(key(number), VERSION, object(size));
            }
            let usage = memory.usage();
            assert!(usage.bytes_max <= bytes as u64 && usage.bytes <= usage.bytes_max);
            assert!(usage.bytes > bytes as u64 * 8 / 10, "{usage:?}");
            let table = memory.cache.memory_used().total() as u64;
            let own = usage.objects * (size as u64);
            assert!(table + own <= bytes as u64 * 11 / 10, "{table} and {own} of {bytes}");
        }
        assert!(Memory::<Bytes>::new(BYTES_MIN - 1).is_none());
    }

    #[test]
    fn large_objects_are_refused() {
        let memory = Memory::new(1 << 20).unwrap();
        assert_eq!(memory.object_bytes_max(), (1 << 20) / 8);
        assert!(!memory.keep(key(1), VERSION, object((1 << 17) + 1)));
        assert!(memory.keep(key(1), VERSION, object(1 << 17)));
        let large = Memory::<Bytes>::new(1 << 32).unwrap();
        assert_eq!(large.object_bytes_max(), OBJECT_BYTES_MAX);
    }

    #[test]
    fn a_scan_does_not_flush_what_is_hot() {
        let memory = Memory::new(8 << 20).unwrap();
        let hot = 500;
        let ask = |number: u64| match memory.find(&key(number), VERSION) {
            Some(_) => true,
            None => {
                memory.keep(key(number), VERSION, object(8000));
                false
            }
        };
        for _ in 0..5 {
            (0..hot).for_each(|number| {
                ask(number);
            });
        }
        // Objects of a hundred times the memory, each requested once; the hot ones are requested now and
        // then.
        let mut found = 0;
        for number in 0..100_000 {
            ask(1_000_000 + number);
            if number % 20 == 0 {
                found += u64::from(ask((number / 20) % hot));
            }
        }
        assert!(found > 4900, "{found} of 5000 found");
        let left = (0..hot).filter(|&number| ask(number)).count();
        assert!(left > 490, "{left} of {hot} left");
    }
}
