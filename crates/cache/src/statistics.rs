//! A store's counters, for status pages and the log.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::health::Why;
use crate::memory::MemoryUsage;

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Counts since the store was made. Statistics: no order is implied between them.
        #[derive(Debug, Default)]
        pub(crate) struct StoreCounters { $(pub(crate) $name: AtomicU64,)* }

        /// One store's counts and state.
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        pub struct Statistics {
            /// Name of the keys zone.
            pub zone: String,
            /// Its directory.
            pub directory: String,
            /// The device of its file system, `MAJOR:MINOR`. `None`: not known yet.
            pub device: Option<String>,
            /// Objects in the cache.
            pub entries: u64,
            /// Bytes on the disk.
            pub bytes: u64,
            /// Limit of `bytes`.
            pub bytes_max: Option<u64>,
            /// The capacity of the zone, in keys.
            pub entries_max: u64,
            /// Objects being filled.
            pub filling: u64,
            /// Operations that wait for the disk.
            pub under_way: u64,
            /// The index is not yet checked against the disk.
            pub loading: bool,
            /// The reason why the store is out of use; `None`: it is in use.
            pub out_of_use: Option<Why>,
            /// The reason why it accepts no new objects; `None`: it does.
            pub stores_nothing: Option<Why>,
            /// The memory tier, if there is one.
            pub memory: Option<MemoryUsage>,
            $($(#[$doc])* pub $name: u64,)*
        }

        impl Statistics {
            /// Names and values of all counts, for metrics.
            pub fn counts(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($name), self.$name)),*].into_iter()
            }

            pub(crate) fn add(&mut self, counters: &StoreCounters) {
                $(self.$name = counters.$name.load(Relaxed);)*
            }
        }
    };
}

counters! {
    /// Found in memory: the memory tier or a worker's hot objects.
    hits_memory,
    /// Found in a file that was opened on the loop.
    hits_inline,
    /// Found in a file that was opened in the pool.
    hits_pool,
    /// Read while being filled.
    hits_filling,
    /// Not found.
    misses,
    /// Not looked up, since the store was out of use or its pool full.
    unavailable,
    /// Objects stored.
    stored,
    /// Fills that ended without an object, for any reason.
    fills_failed,
    /// Fills refused or aborted because of a disk error or a system limit.
    fills_refused,
    /// Readers of objects that could not be stored that got the rest from the origin.
    resumed,
    /// Objects larger than the cache.
    too_large,
    /// Revalidated in place.
    updated,
    /// Removed because they were unused for too long.
    expired,
    /// Removed to make room.
    evicted,
    /// Copied here from the slower store behind this one.
    promoted,
    /// Copied back to it when they were removed here.
    demoted,
    /// Removed by purges.
    purged,
    /// Foreign and damaged files that were deleted.
    damaged,
    /// Left-over temporary files that were deleted.
    leftovers,
    /// Other key texts with the same hash.
    collisions,
    /// Disk errors.
    errors,
    /// The number of times the store went out of use.
    outages,
}

/// Adds one.
pub(crate) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Relaxed);
}
