//! The number of times that this thread's loop may have received data. Older knowledge may be outdated for
//! a request received since.
//!
//! Counted by the worker once per turn, and when other threads have left something for it, such as a
//! connection with what was received on it; and at each receive that a driver makes during a turn: all of
//! epoll's, large ones of io_uring, whose others are over when the turn begins.

use std::cell::Cell;

thread_local! {
    static COUNT: Cell<u64> = const { Cell::new(1) };
}

/// The number so far: never 0.
pub(crate) fn count() -> u64 {
    COUNT.get()
}

/// Data may have been received, or this thread changes files itself.
pub(crate) fn add() {
    COUNT.set(COUNT.get() + 1);
}
