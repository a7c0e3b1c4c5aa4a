//! The settings of one cache: `proxy_cache_path`, typed.
//!
//! Made by the configuration; used by [`crate::Store`] and by its background work. Never reads files.

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
    /// The directory for objects before they are renamed (`proxy_temp_path`). `None` is
    /// `use_temp_path=off`: the directory of their final name.
    pub temp_path: Option<Vec<u8>>,
    /// Name of `keys_zone`.
    pub zone: String,
    /// Size of `keys_zone` in bytes: bounds the memory of the index.
    pub zone_bytes: u64,
    /// `inactive`: objects unused for this long are removed, fresh or not.
    pub inactive: Duration,
    /// `max_size`: bytes on the disk; `None`: no limit.
    pub max_bytes: Option<u64>,
    /// `min_free`: bytes that stay free on the file system.
    pub min_free: Option<u64>,
    /// `manager_files`, `manager_sleep`, `manager_threshold`: the steps of removing.
    pub manager: Steps,
    /// `loader_files`, `loader_sleep`, `loader_threshold`: the steps of checking the disk at
    /// startup.
    pub loader: Steps,
    /// `purger`, `purger_files`, `purger_sleep`, `purger_threshold`: `None` is `purger=off`.
    pub purger: Option<Steps>,
    /// `memory=SIZE`: bytes for the hottest objects, kept in memory; `None`: no memory tier.
    pub memory_bytes: Option<u64>,
    /// An operation that takes longer, while no other one completes, means that the disk hangs: see
    /// [`crate::health`].
    pub hang_after: Duration,
    /// `tier=NAME`: the zone of the slower store behind this one.
    pub tier: Option<String>,
}

/// The steps of background work, limited so that the disk stays available to requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Steps {
    /// Files per step.
    pub files: usize,
    /// Pause between two steps.
    pub sleep: Duration,
    /// The maximum duration of a step, however few files it has handled.
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
