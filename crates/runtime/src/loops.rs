//! The event loops of this process, for status pages: how many connections each has, and how long
//! its turns take.
//!
//! A worker registers itself when it starts and leaves when it ends; status pages read the list. No
//! loop takes the lock while it serves.

use std::sync::{Arc, PoisonError, RwLock};

use crate::driver::DriverKind;
use crate::stats::{Blocked, BlockedSnapshot};
use crate::workers::Workers;

static LOOPS: RwLock<Vec<Arc<LoopEntry>>> = RwLock::new(Vec::new());

struct LoopEntry {
    index: usize,
    driver: DriverKind,
    workers: Arc<Workers>,
    blocked: Arc<Blocked>,
}

/// One event loop at the time of the call.
#[derive(Clone, Debug)]
pub struct LoopSnapshot {
    /// Number of the worker within its worker set.
    pub index: usize,
    /// The driver; [`DriverKind::Epoll`] for a simulated one.
    pub driver: DriverKind,
    /// Open connections.
    pub connections: usize,
    /// The `event_loop_blocked` histogram.
    pub blocked: BlockedSnapshot,
}

/// All running loops, by number; after a change of the number of workers this includes the old ones
/// until their last connection has ended.
pub fn snapshot() -> Vec<LoopSnapshot> {
    let loops = LOOPS.read().unwrap_or_else(PoisonError::into_inner);
    let mut all: Vec<LoopSnapshot> = loops
        .iter()
        .map(|entry| LoopSnapshot {
            index: entry.index,
            driver: entry.driver,
            connections: entry.workers.loads().nth(entry.index).unwrap_or_default(),
            blocked: entry.blocked.snapshot(),
        })
        .collect();
    all.sort_by_key(|entry| entry.index);
    all
}

/// A loop's registration in the list.
pub(crate) struct LoopRegistration(Arc<LoopEntry>);

/// Registers a loop that starts.
pub(crate) fn enter(
    index: usize,
    driver: DriverKind,
    workers: &Arc<Workers>,
    blocked: &Arc<Blocked>,
) -> LoopRegistration {
    let entry =
        Arc::new(LoopEntry { index, driver, workers: workers.clone(), blocked: blocked.clone() });
    LOOPS.write().unwrap_or_else(PoisonError::into_inner).push(entry.clone());
    LoopRegistration(entry)
}

impl Drop for LoopRegistration {
    fn drop(&mut self) {
        let mut loops = LOOPS.write().unwrap_or_else(PoisonError::into_inner);
        loops.retain(|entry| !Arc::ptr_eq(entry, &self.0));
    }
}
