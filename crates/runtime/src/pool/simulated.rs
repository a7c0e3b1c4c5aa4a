//! Pools of a simulation: their threads are tasks, and the time that a disk takes is virtual.
//!
//! Everything else is the real pool: its queue, its order of service, its bounds. The simulation
//! ([`crate::sim`]) passes in what it puts in the place of threads, disk and clock; [`crate::fs`]
//! asks it what is in memory, and what fails.

use std::cell::Cell;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::ordinals::Ordinals;
use super::queue::Share;
use super::{Inner, Op, Owner, Pool, PoolConfig, Queued, lock};

/// The simulation's replacement of threads, disk and clock.
pub(crate) trait World: Send + Sync {
    /// The virtual time.
    fn now(&self) -> Instant;
    /// Runs a thread of the pool as a task; after the end of the simulation, finishes its work.
    fn start(&self, thread: Thread);
    /// Whether the requested data is in memory.
    fn is_hit(&self) -> bool;
    /// How many of the first `len` bytes are in memory, if not all are.
    fn part_in_memory(&self, len: usize) -> usize;
    /// The error with which the next operation fails, if it does.
    fn fault(&self, op: Op) -> Option<io::Error>;
}

/// Makes a world for each pool.
pub(crate) type Worlds = fn() -> Option<Box<dyn World>>;

thread_local! {
    /// For pools that the code under test makes by itself.
    static WORLDS: Cell<Option<Worlds>> = const { Cell::new(None) };
}

/// Sets whether new pools of this thread belong to a simulation.
pub(crate) fn set_worlds(worlds: Option<Worlds>) {
    WORLDS.set(worlds);
}

pub(super) fn world_of_thread() -> Option<Box<dyn World>> {
    WORLDS.get()?()
}

pub(super) struct SimulatedPool {
    world: Box<dyn World>,
    clients: Ordinals,
    files: Ordinals,
}

impl SimulatedPool {
    pub(super) fn now(&self) -> Instant {
        self.world.now()
    }

    pub(super) fn start(&self, thread: Thread) {
        self.world.start(thread);
    }

    /// The owner by order of appearance.
    pub(super) fn owner(&self, owner: Owner) -> Owner {
        // Where the client is not known, a file stands in for it.
        let client = match owner.client == owner.file {
            true => self.files.of(owner.file),
            false => self.clients.of(owner.client),
        };
        Owner { client, file: self.files.of(owner.file) }
    }
}

impl Pool {
    /// A pool of a simulation.
    pub(crate) fn simulated(config: PoolConfig, world: Box<dyn World>) -> Pool {
        let (clients, files) = (Ordinals::default(), Ordinals::default());
        Pool::with(config, 0, Some(Box::new(SimulatedPool { world, clients, files })))
    }

    /// The world of the simulation that it belongs to, if it does.
    pub(crate) fn world(&self) -> Option<&dyn World> {
        self.0.0.simulated.as_deref().map(|simulated| &*simulated.world)
    }
}

/// A thread of a simulated pool: it takes a task, lets virtual time pass, and finishes the task.
pub(crate) struct Thread(Arc<Inner>);

/// A task that a thread has taken.
pub(crate) struct TakenTask {
    share: Share,
    task: Queued,
    waited: Duration,
}

impl Thread {
    pub(super) fn of(inner: &Arc<Inner>) -> Thread {
        Thread(inner.clone())
    }

    /// Takes the next task; `None`: nothing waits, and the thread ends.
    pub(crate) fn take(&self, now: Instant) -> Option<TakenTask> {
        let inner = &self.0;
        let mut state = lock(&inner.state);
        let Some((share, task)) = state.queue.pop(now.duration_since(inner.created)) else {
            state.alive -= 1;
            return None;
        };
        state.busy += 1;
        let more = inner.call_thread(&mut state);
        drop(state);
        if more {
            inner.start_thread();
        }
        let waited = now.duration_since(task.since);
        inner.counters(task.op).started(waited);
        Some(TakenTask { share, task, waited })
    }

    /// Does the work of a task that took the time `served`.
    pub(crate) fn finish(&self, taken: TakenTask, served: Duration, now: Instant) {
        let (inner, TakenTask { share, task, waited }) = (&self.0, taken);
        let executed = task.job.execute(waited);
        inner.counters(task.op).completed(served, executed.panicked);
        let mut state = lock(&inner.state);
        state.busy -= 1;
        state.queue.done(share, served, now.duration_since(inner.created));
        drop(state);
        task.job.publish();
    }
}
