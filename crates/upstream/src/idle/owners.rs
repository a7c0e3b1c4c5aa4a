//! The numbers of idle connections to a peer by worker, visible to all workers.

use std::fmt;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nowait_runtime::Remote;

/// The shared information about a peer's idle connections.
#[derive(Debug, Default)]
pub(crate) struct PeerIdle {
    owners: Mutex<Vec<Owner>>,
}

/// A worker that keeps connections to the peer.
struct Owner {
    /// The ID of its lists.
    id: u64,
    remote: Remote,
    count: Arc<AtomicU32>,
}

impl PeerIdle {
    /// Idle connections of all workers.
    pub(crate) fn count(&self) -> u32 {
        self.lock().iter().map(|owner| owner.count.load(Relaxed)).sum()
    }

    /// Registers a worker's list; returns its counter.
    pub(super) fn enter(&self, id: u64, remote: Remote) -> Arc<AtomicU32> {
        let mut owners = self.lock();
        // Workers that have ended no longer count.
        owners.retain(|owner| owner.id != id && Arc::strong_count(&owner.count) > 1);
        let count = Arc::<AtomicU32>::default();
        owners.push(Owner { id, remote, count: count.clone() });
        count
    }

    /// The other worker with the most connections, among those that are otherwise idle: if all are
    /// busy, each opens its own connections and soon has enough of them, rather than wait for
    /// another's loop and take away what that one needs next.
    pub(super) fn richest(&self, except: u64) -> Option<Remote> {
        let owners = self.lock();
        let others = owners.iter().filter(|owner| owner.id != except && owner.remote.is_waiting());
        let counted = others.map(|owner| (owner.count.load(Relaxed), owner));
        let (_, owner) = counted.filter(|(count, _)| *count > 0).max_by_key(|(count, _)| *count)?;
        Some(owner.remote.clone())
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Owner>> {
        self.owners.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Owner").field("count", &self.count).finish_non_exhaustive()
    }
}
