//! The settings of one cache: what `proxy_cache_path` says, typed.
//!
//! Made by the configuration; used by [`crate::Store`] and by its background work. Reads nothing.

use std::time::Duration;

use crate::health::HANG_AFTER;
use crate::key::Levels;

/// One `proxy_cache_path` (and its relatives of other protocols).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreOptions {
    /// Directory of the objects, without a slash at the end.
    pub path: Vec<u8>,
    /// `levels`: how names are spread over directories.
    pub levels: Levels,
    /// Where objects are written before they are renamed: the directory of `proxy_temp_path`.
    /// `None` is `use_temp_path=off`: beside their final place.
    pub temp_path: Option<Vec<u8>>,
    /// Name of `keys_zone`.
    pub zone: String,
    /// Size of `keys_zone` in bytes: bounds the memory of the index.
    pub zone_bytes: u64,
    /// `inactive`: objects not used for so long are removed, fresh or not.
    pub inactive: Duration,
    /// `max_size`: bytes on the disk; `None`: no bound.
    pub max_bytes: Option<u64>,
    /// `min_free`: bytes that stay free on the file system.
    pub min_free: Option<u64>,
    /// `manager_files`, `manager_sleep`, `manager_threshold`: the steps of removing.
    pub manager: Steps,
    /// `loader_files`, `loader_sleep`, `loader_threshold`: the steps of checking the disk at start.
    pub loader: Steps,
    /// `purger`, `purger_files`, `purger_sleep`, `purger_threshold`: `None` is `purger=off`.
    pub purger: Option<Steps>,
    /// `memory=SIZE`: bytes of the hottest objects that are kept in memory; `None`: no memory tier.
    pub memory_bytes: Option<u64>,
    /// An operation that takes longer, with nothing else coming back meanwhile, means that the disk
    /// hangs: see [`crate::health`].
    pub hang_after: Duration,
    /// `tier=NAME`: the zone of the slower store behind this one.
    pub tier: Option<String>,
}

/// How background work is cut into steps, so that it leaves the disk to others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Steps {
    /// Files per step.
    pub files: usize,
    /// Pause between two steps.
    pub sleep: Duration,
    /// A step ends after so long, however many files it has done.
    pub threshold: Duration,
}

impl Steps {
    /// nginx's defaults of `loader_*` and `manager_*`: 100 files, 50 ms, 200 ms.
    pub const NGINX: Steps = Steps {
        files: 100,
        sleep: Duration::from_millis(50),
        threshold: Duration::from_millis(200),
    };

    /// NGINX Plus's defaults of `purger_*`: 10 files, 50 ms, 50 ms.
    pub const PURGER: Steps =
        Steps { files: 10, sleep: Duration::from_millis(50), threshold: Duration::from_millis(50) };
}

impl StoreOptions {
    /// The defaults of `proxy_cache_path PATH keys_zone=ZONE:BYTES`.
    pub fn new(path: &[u8], zone: &str, zone_bytes: u64) -> StoreOptions {
        StoreOptions {
            path: path.to_vec(),
            levels: Levels::NONE,
            temp_path: None,
            zone: zone.to_owned(),
            zone_bytes,
            inactive: Duration::from_secs(600),
            max_bytes: None,
            min_free: None,
            manager: Steps::NGINX,
            loader: Steps::NGINX,
            purger: None,
            memory_bytes: None,
            hang_after: HANG_AFTER,
            tier: None,
        }
    }
}
