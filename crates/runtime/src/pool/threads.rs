//! Starts the threads of all pools, from one thread that no loop's guard reaches.
//!
//! A thread inherits the seccomp filter of its parent. A pool's threads are started on demand,
//! mostly by a task on a loop thread; if they were children of that thread, the guard would forbid
//! them exactly the calls they exist for. So a small dedicated thread starts them; it is created by
//! the first [`Pool::new`](super::Pool::new) or by [`crate::guard::install`], whichever comes
//! first.

use std::sync::OnceLock;
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::Duration;

/// Size of a pool thread's stack in bytes. File operations need little; libraries called through
/// `blocking` may need more.
const STACK_BYTES: usize = 1024 * 1024;

type Body = Box<dyn FnOnce() + Send>;

struct Start {
    name: String,
    body: Body,
    /// Called when the system refuses another thread.
    failed: Body,
}

static SPAWNER: OnceLock<Option<Sender<Start>>> = OnceLock::new();

/// Makes sure that the starting thread exists; must be called before a guard is installed.
pub(crate) fn prepare() {
    let _ = spawner();
    crate::mounts::watch();
}

fn spawner() -> Option<&'static Sender<Start>> {
    SPAWNER
        .get_or_init(|| {
            let (sender, receiver) = channel::<Start>();
            thread::Builder::new()
                .name(String::from("pool threads"))
                .stack_size(STACK_BYTES)
                .spawn(move || {
                    // The loop that starts this thread may have a short time slice.
                    let _ = nowait_sys::slice::set(Duration::ZERO);
                    for start in receiver {
                        let Start { name, body, failed } = start;
                        if thread::Builder::new()
                            .name(name)
                            .stack_size(STACK_BYTES)
                            .spawn(body)
                            .is_err()
                        {
                            failed();
                        }
                    }
                })
                .ok()
                .map(|_| sender)
        })
        .as_ref()
}

/// Starts a thread called `name` (system tools show 15 bytes of it).
pub(super) fn start(name: String, body: Body, failed: Body) {
    let Some(sender) = spawner() else {
        failed();
        return;
    };
    if let Err(refused) = sender.send(Start { name, body, failed }) {
        (refused.0.failed)();
    }
}
