//! The caches of a configuration as stores in use.
//!
//! Called by the program when a configuration takes effect. A cache with unchanged name, size and
//! directory keeps its index; any other starts empty.

use std::fmt;
use std::rc::Rc;
use std::sync::{Arc, Weak};

use nowait_cache::health::HANG_AFTER;
use nowait_cache::store::StoreLog;
use nowait_cache::{Levels, Steps, Store, StoreOptions};
use nowait_http::conf::HttpConf;
use nowait_http::generation::{Current, Generation};
use nowait_http::log::Level;
use nowait_http::services::Services;
use nowait_runtime::JoinHandle;

use crate::cache::path::{CachePath, Pace, paths};

/// The stores of the caches, by their numbers in [`paths`].
pub fn open(conf: &HttpConf, previous: &[Arc<Store>]) -> Vec<Arc<Store>> {
    let paths = paths(conf);
    if !paths.is_empty() {
        nowait_cache::hot::settle();
    }
    let stores: Vec<_> = paths.iter().map(|path| one(options(path), previous)).collect();
    for (path, store) in paths.iter().zip(&stores) {
        let behind = |tier: &String| paths.iter().position(|other| other.zone == *tier);
        store.set_slower(path.tier.as_ref().and_then(behind).map(|at| &stores[at]));
    }
    stores
}

/// Offers this worker for the background work of a generation's caches; called on each worker when
/// the generation takes effect.
pub(super) fn tend(_: &Rc<Services>, current: &Rc<Current>) -> Vec<JoinHandle<()>> {
    for store in &current.caches {
        store.set_log(Arc::new(MainLog(current.generation())));
        store.tend();
    }
    Vec::new()
}

/// The main error log of the newest generation that has the cache.
struct MainLog(Weak<Generation>);

impl MainLog {
    fn log(&self, level: Level, message: fmt::Arguments<'_>) {
        if let Some(generation) = self.0.upgrade() {
            generation.logs.error(level, message);
        }
    }
}

impl StoreLog for MainLog {
    fn error(&self, message: fmt::Arguments<'_>) {
        self.log(Level::Error, message);
    }

    fn notice(&self, message: fmt::Arguments<'_>) {
        self.log(Level::Notice, message);
    }
}

fn one(options: StoreOptions, previous: &[Arc<Store>]) -> Arc<Store> {
    match previous.iter().find(|store| store.fits(&options)) {
        Some(store) => {
            store.reconfigure(options);
            store.clone()
        }
        None => Store::new(options),
    }
}

/// The parameters of a store.
fn options(path: &CachePath) -> StoreOptions {
    StoreOptions {
        path: path.path.clone(),
        levels: Levels::new(path.levels.split(|n| *n == 0).next().unwrap_or_default())
            .unwrap_or(Levels::NONE),
        // nginx differs: objects are always written next to their final place, never copied from
        // another file system.
        temp_path: None,
        zone: path.zone.clone(),
        zone_bytes: path.zone_bytes,
        inactive: path.inactive,
        max_bytes: path.max_size,
        min_free: path.min_free,
        manager: steps(path.manager),
        loader: steps(path.loader),
        purger: path.purger.map(steps),
        memory_bytes: path.memory,
        hang_after: HANG_AFTER,
        tier: path.tier.clone(),
    }
}

fn steps(pace: Pace) -> Steps {
    Steps {
        files: usize::try_from(pace.files).unwrap_or(usize::MAX),
        sleep: pace.sleep,
        threshold: pace.threshold,
    }
}
