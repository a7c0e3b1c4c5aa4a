//! The workers of a process for other threads: their loads, and their handles.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crate::inbox::{Inbox, Message, Spawner};

/// Information that the workers of a process share.
pub struct Workers {
    inboxes: Vec<Arc<Inbox>>,
    loads: Vec<WorkerLoad>,
}

/// Number of open connections of one worker. It changes with every connection: it has cache lines
/// to itself, so that this slows no other worker down.
#[derive(Default)]
#[repr(align(128))]
struct WorkerLoad(AtomicUsize);

/// A worker with at most this many connections hands none over, no matter what the others have.
const RELIEF_MIN: usize = 8;

impl Workers {
    /// Prepares `count` workers; none of them needs to run yet.
    ///
    /// # Errors
    /// When descriptors have run out.
    pub fn new(count: usize) -> io::Result<Arc<Workers>> {
        static NEXT_ID: AtomicU64 = AtomicU64::new(1);
        let inboxes = (0..count)
            .map(|_| Inbox::new(NEXT_ID.fetch_add(1, Ordering::Relaxed)).map(Arc::new))
            .collect::<io::Result<Vec<_>>>()?;
        let loads = (0..count).map(|_| WorkerLoad::default()).collect();
        Ok(Arc::new(Workers { inboxes, loads }))
    }

    /// Number of workers.
    pub fn count(&self) -> usize {
        self.inboxes.len()
    }

    /// The handle of worker `index`.
    pub fn remote(&self, index: usize) -> Remote {
        Remote::new(self.inboxes[index].clone())
    }

    /// The inbox of worker `index`.
    pub(crate) fn inbox(&self, index: usize) -> &Arc<Inbox> {
        &self.inboxes[index]
    }

    /// Open connections of each worker.
    pub fn loads(&self) -> impl Iterator<Item = usize> {
        self.loads.iter().map(|WorkerLoad(load)| load.load(Ordering::Relaxed))
    }

    /// A place for a connection at the worker with the fewest.
    pub fn reserve(self: &Arc<Self>) -> WorkerSlot {
        let least = self.loads().enumerate().min_by_key(|(_, load)| *load);
        let index = least.map_or(0, |(index, _)| index);
        self.load(index).fetch_add(1, Ordering::Relaxed);
        WorkerSlot { workers: self.clone(), index }
    }

    /// Open connections of a worker, including those on their way to it.
    pub(crate) fn load(&self, index: usize) -> &AtomicUsize {
        &self.loads[index].0
    }

    /// Decrements the number of a worker's open connections.
    pub(crate) fn unload(&self, index: usize) {
        let before = self.load(index).fetch_sub(1, Ordering::Relaxed);
        debug_assert!(before > 0, "more connections were closed than opened");
    }

    /// Hands a connection to a worker that serves the listener.
    pub(crate) fn hand_over(&self, to: usize, listener: u64, fd: OwnedFd) -> Result<(), OwnedFd> {
        // Counted before it arrives, so that the workers do not all choose the same one meanwhile.
        self.loads[to].0.fetch_add(1, Ordering::Relaxed);
        let result = self.inboxes[to].hand_over(listener, fd);
        if result.is_err() {
            self.unload(to);
        }
        result
    }

    /// The worker to which worker `index` should hand its next connection, if it clearly holds more
    /// than its share: at least 8 connections and an eighth more than the least loaded.
    pub(crate) fn relief(&self, index: usize, connections: usize) -> Option<usize> {
        // The loads of other workers are in cache lines that those write to: read only when it may
        // matter.
        if self.inboxes.len() == 1 || connections <= RELIEF_MIN {
            return None;
        }
        let (least_index, least) = self.loads().enumerate().min_by_key(|(_, load)| *load)?;
        let excess = connections > least + (least / 8).max(RELIEF_MIN);
        (excess && least_index != index).then_some(least_index)
    }
}

/// A reservation for a connection in transit to a worker. It counts as one of the worker's
/// connections, so that not all go to the same worker meanwhile. Dropped when the connection has
/// arrived or is lost.
pub struct WorkerSlot {
    workers: Arc<Workers>,
    index: usize,
}

impl WorkerSlot {
    /// The worker.
    pub fn remote(&self) -> Remote {
        self.workers.remote(self.index)
    }
}

impl Drop for WorkerSlot {
    fn drop(&mut self) {
        self.workers.unload(self.index);
    }
}

/// A handle to a worker, for any thread.
#[derive(Clone)]
pub struct Remote {
    inbox: Arc<Inbox>,
}

/// The worker has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkerEnded;

impl Remote {
    pub(crate) fn new(inbox: Arc<Inbox>) -> Remote {
        Remote { inbox }
    }

    /// Runs a task on the worker: `build` is called on its thread.
    ///
    /// # Errors
    /// When the worker has ended; `build` is dropped.
    pub fn spawn(&self, build: Spawner) -> Result<(), WorkerEnded> {
        self.inbox.push(Message::Spawn(build)).map_err(|_| WorkerEnded)
    }

    /// Whether the worker has ended and no longer takes messages.
    pub fn has_ended(&self) -> bool {
        self.inbox.is_closed()
    }

    /// Whether the worker is idle: it would take a message at once.
    pub fn is_waiting(&self) -> bool {
        self.inbox.is_asleep()
    }

    /// Makes the worker take another turn.
    pub fn wake(&self) {
        self.inbox.wake();
    }

    /// Tells the worker to end once its tasks have ended: [`stopping`](crate::worker::stopping) resolves there.
    pub fn stop(&self) {
        let _ = self.inbox.push(Message::Stop);
    }

    /// Makes the worker drop all its tasks and end.
    pub fn kill(&self) {
        let _ = self.inbox.push(Message::Kill);
    }
}
