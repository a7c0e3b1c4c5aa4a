//! Who goes on with the connections of workers that a reload has replaced: the crew in service.
//!
//! Set by the engine, used by workers that end. Connections that are on their way when the crew is
//! replaced again go on to the next one.

use std::sync::{Arc, Mutex, PoisonError};

use nowait_runtime::worker::Workers;

use crate::program::Program;
use crate::service::{Service, Successor};
use crate::worker;

/// A connection on its way.
pub type Moved = <Program as Service>::Moved;

/// So often a connection is sent on when the worker that was to get it has ended.
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

    /// Who takes the connections of a worker of this crew. `None`: the crew was not replaced.
    pub fn of(&self, crew: &Arc<Workers>) -> Option<Successor<Moved>> {
        let serving = self.get().filter(|serving| !Arc::ptr_eq(serving, crew));
        let heirs = self.clone();
        serving.map(|_| -> Successor<Moved> { Box::new(move |moved| heirs.send(moved, 0)) })
    }

    /// Sends a connection to the worker with the fewest; gives it back if there is none.
    fn send(&self, moved: Moved, hops: u8) -> Result<(), Moved> {
        let Some(workers) = self.get().filter(|_| hops < HOPS_MAX) else { return Err(moved) };
        let berth = workers.berth();
        let remote = berth.remote();
        let mut parcel = HandoverGuard { moved: Some(moved), heirs: self.clone(), hops };
        // A worker that has ended drops the parcel, which goes on then.
        let _ = remote.spawn(Box::new(move || {
            worker::arrive(&mut parcel.moved);
            drop(berth);
            Box::pin(std::future::ready(()))
        }));
        Ok(())
    }
}

/// Holds a connection until a worker has it.
struct HandoverGuard {
    moved: Option<Moved>,
    heirs: Successors,
    hops: u8,
}

impl Drop for HandoverGuard {
    fn drop(&mut self) {
        if let Some(moved) = self.moved.take() {
            // When the server ends it is closed, as idle connections are then.
            let _ = self.heirs.send(moved, self.hops + 1);
        }
    }
}
