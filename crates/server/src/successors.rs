//! The current worker set, which takes over connections of replaced workers after a reload.
//!
//! Set by the engine, used by ending workers. Connections in transit when the worker set is replaced again
//! are forwarded to the next one.

use std::sync::{Arc, Mutex, PoisonError};

use nowait_runtime::worker::Workers;

use crate::service::{Moved, Successor};
use crate::worker;

/// How many times a connection is forwarded because its new worker has ended.
const HOPS_MAX: u8 = 8;

/// The workers that serve; none when the server ends.
#[derive(Clone, Default)]
pub struct Successors(Arc<Mutex<Option<Arc<Workers>>>>);

impl Successors {
    /// These workers serve from now on.
    pub fn set(&self, workers: Option<Arc<Workers>>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = workers;
    }

    fn get(&self) -> Option<Arc<Workers>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The taker of the connections of a worker of this worker set. `None`: the worker set was not replaced.
    pub fn of(&self, worker_set: &Arc<Workers>) -> Option<Successor> {
        let serving = self.get().filter(|serving| !Arc::ptr_eq(serving, worker_set));
        let successors = self.clone();
        serving.map(|_| -> Successor { Box::new(move |moved| successors.send(moved, 0)) })
    }

    /// Sends a connection to the worker with the fewest; returns it if there is no worker.
    fn send(&self, moved: Moved, hops: u8) -> Result<(), Moved> {
        let Some(workers) = self.get().filter(|_| hops < HOPS_MAX) else { return Err(moved) };
        let slot = workers.reserve();
        let remote = slot.remote();
        let mut guard = HandoverGuard { moved: Some(moved), successors: self.clone(), hops };
        // A worker that has ended drops the guard, which forwards the connection.
        let _ = remote.spawn(Box::new(move || {
            worker::arrive(&mut guard.moved);
            drop(slot);
            Box::pin(std::future::ready(()))
        }));
        Ok(())
    }
}

/// Holds a connection until a worker has it.
struct HandoverGuard {
    moved: Option<Moved>,
    successors: Successors,
    hops: u8,
}

impl Drop for HandoverGuard {
    fn drop(&mut self) {
        if let Some(moved) = self.moved.take() {
            // When the server ends, the connection is closed, like all idle ones.
            let _ = self.successors.send(moved, self.hops + 1);
        }
    }
}
