//! The reports of a worker to its program.

use std::io;

/// A worker's reports to its embedder, for the log and for counters. All methods default to doing
/// nothing; they run on the worker's thread and must not block.
pub trait Hooks {
    /// A task panicked and was dropped.
    fn task_panicked(&self, _message: &str) {}
    /// The limit of `worker_connections` is reached: accepting stops until a connection is closed.
    fn connections_exhausted(&self, _max: usize) {}
    /// `accept` failed; for EMFILE and ENFILE accepting pauses for the accept delay.
    fn accept_failed(&self, _error: &io::Error) {}
    /// A peak of connections is over: the allocator holds memory that the system could use.
    /// Returning it takes too long for this thread.
    fn memory_freed(&self) {}
    /// Reports on resident files were lost, or too many came at once: all of these files were
    /// dropped.
    fn files_dropped(&self) {}
    /// Files could not become resident, because no more of them may be watched.
    fn watches_exhausted(&self) {}
}

/// Hooks that do nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoHooks;

impl Hooks for NoHooks {}
