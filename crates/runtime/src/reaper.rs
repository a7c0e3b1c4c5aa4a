//! A thread that frees large values, such as a configuration with thousands of servers.
//!
//! Freeing a million small pieces takes seconds, and an event loop that drops the last reference to them
//! would stand still as long. So such a value is wrapped in [`Reaped`]: whichever thread drops it, a loop, a pool's
//! thread or the control thread, only hands it over. It never waits for the freeing.

use std::ops::Deref;
use std::sync::OnceLock;
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::Duration;

use nowait_sys::{memory, slice};

use crate::local;

/// The name of the thread.
pub const THREAD: &str = "reaper";

/// For how long the thread runs before others have their turn, if they want it: longer than loops and
/// pools, so that all of them come first.
const SLICE: Duration = Duration::from_millis(100);

type Garbage = Box<dyn Send>;

/// The way to the thread; `None` if it could not be started.
static REAPER: OnceLock<Option<Sender<Garbage>>> = OnceLock::new();

fn start() -> Option<Sender<Garbage>> {
    let (sender, receiver) = channel::<Garbage>();
    let thread = thread::Builder::new().name(THREAD.to_owned()).spawn(move || {
        let _ = slice::set(SLICE);
        // One by one: a value that panics while it is dropped does not affect others.
        while let Ok(garbage) = receiver.recv() {
            let dropped = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(garbage)));
            // The panic hook has reported it.
            let _ = dropped;
            memory::give_back();
        }
    });
    thread.is_ok().then_some(sender)
}

/// A value that is freed by the reaper, wherever its last owner drops it.
///
/// In a simulated worker, whose runs have to be repeatable, it is dropped in place.
#[derive(Debug)]
pub struct Reaped<T: Send + 'static>(
    /// `None` while it is dropped.
    Option<T>,
);

impl<T: Send + 'static> Reaped<T> {
    /// Wraps a value. Not to be called on an event loop: the first call starts the thread.
    pub fn new(value: T) -> Self {
        REAPER.get_or_init(start);
        Self(Some(value))
    }
}

impl<T: Send + 'static> Deref for Reaped<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.0.as_ref().expect("only `drop` takes the value")
    }
}

impl<T: Send + 'static> Drop for Reaped<T> {
    fn drop(&mut self) {
        let Some(value) = self.0.take() else { return };
        let simulated = local::with(|local| local.driver.borrow().virtual_time().is_some());
        if simulated == Some(true) {
            return;
        }
        if let Some(reaper) = REAPER.get().and_then(Option::as_ref) {
            // The thread never ends, so sending never fails.
            let _ = reaper.send(Box::new(value));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::driver::DriverKind;
    use crate::worker::{WorkerConfig, Workers, run};

    /// Tells the name of the thread that drops it.
    struct Probe(Sender<Option<String>>);

    impl Drop for Probe {
        fn drop(&mut self) {
            let _ = self.0.send(thread::current().name().map(str::to_owned));
        }
    }

    #[test]
    fn the_last_reference_may_be_dropped_on_a_loop() {
        let (tell, told) = channel();
        let value = Arc::new(Reaped::new(Probe(tell.clone())));
        let config = WorkerConfig::new(0, DriverKind::Epoll);
        let workers = Workers::new(1).unwrap();
        run(config, &workers, |remote| async move {
            let other = value.clone();
            drop(value);
            drop(crate::spawn(async move { drop(other) }));
            crate::yield_now().await;
            drop(Probe(tell));
            remote.stop();
        })
        .unwrap();
        let names: Vec<_> = told.iter().map(Option::unwrap_or_default).collect();
        assert!(names.iter().any(|name| name == THREAD), "{names:?}");
        assert!(names.iter().any(|name| name != THREAD), "{names:?}");
        assert_eq!(names.len(), 2);
    }

    #[test]
    fn a_value_that_panics_takes_no_other_with_it() {
        struct PanicOnDrop;
        impl Drop for PanicOnDrop {
            fn drop(&mut self) {
                panic!("while it is dropped: this is part of the test");
            }
        }
        let (tell, told) = channel();
        drop(Reaped::new(PanicOnDrop));
        drop(Reaped::new(Probe(tell)));
        assert_eq!(told.recv().unwrap().as_deref(), Some(THREAD));
    }
}
