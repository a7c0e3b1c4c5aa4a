//! The monotonic clock of a turn: it is read when the turn begins, and stands still until the next.
//!
//! Set by the worker. Read on its thread by any layer; independent of workers.

use std::cell::Cell;
use std::time::Instant;

thread_local! {
    /// When this turn of the thread's loop began; `None`: the thread runs no loop.
    static BEGUN: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// The monotonic time of this turn. Outside of a worker, that of the system.
pub fn now() -> Instant {
    begun().unwrap_or_else(Instant::now)
}

/// The time at which this turn began; `None` outside of a worker.
pub(crate) fn begun() -> Option<Instant> {
    BEGUN.get()
}

/// A turn of this thread's loop begins at `now`; `None`: the loop has ended.
pub(crate) fn set(now: Option<Instant>) {
    BEGUN.set(now);
}
