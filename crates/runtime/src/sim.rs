//! Deterministic simulation: whole connection tasks run by seed, in virtual time.
//!
//! A test runs its tasks with [`run`], connects them with [`pair`], and drives the client's side
//! with random choices from the same seed ([`random`]). A failure is reproduced by its seed.
//!
//! ```
//! use std::time::Duration;
//! use nowait_runtime::{net::SendOptions, sim};
//!
//! let received = sim::run(42, sim::Weather::rough(), || async {
//!     let (client, server) = sim::pair();
//!     let echo = nowait_runtime::spawn(async move {
//!         let data = server.recv(Duration::from_secs(3600)).await.unwrap();
//!         server.send(data, SendOptions::new(Duration::from_secs(60))).await.unwrap();
//!     });
//!     client.send(&b"!"[..], SendOptions::new(Duration::from_secs(60))).await.unwrap();
//!     let answer = client.recv(Duration::from_secs(60)).await.unwrap();
//!     echo.await.unwrap();
//!     answer.to_vec()
//! });
//! assert_eq!(received, b"!");
//! ```

use std::cell::RefCell;
use std::future::Future;
use std::rc::Rc;

use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

use crate::driver::{Driver, DriverKind};
use crate::local;
use crate::net::Stream;
use crate::worker::{self, WorkerConfig};
use crate::workers::Workers;

pub use crate::driver::sim::Weather;

/// Runs the future that `main` makes, and all tasks spawned from it, until all have ended.
///
/// # Panics
/// When all tasks wait for events that can no longer happen; when the root task panicked.
pub fn run<M, F, T>(seed: u64, weather: Weather, main: M) -> T
where
    M: FnOnce() -> F,
    F: Future<Output = T> + 'static,
    T: 'static,
{
    let output = Rc::new(RefCell::new(None));
    let result = output.clone();
    let workers = Workers::new(1).expect("descriptors for a test");
    let config = WorkerConfig::new(0, DriverKind::Epoll);
    let driver = Driver::simulated(seed, weather);
    let end = worker::run_on(driver, config, &workers, |_| {
        let main = main();
        async move {
            let value = main.await;
            *result.borrow_mut() = Some(value);
        }
    });
    if let Err(error) = end {
        panic!("{error} (seed {seed})");
    }
    let output = output.borrow_mut().take();
    output.unwrap_or_else(|| panic!("the root task panicked (seed {seed})"))
}

/// Creates two connected connections in the simulation that runs on this thread.
///
/// # Panics
/// Outside of [`run`].
pub fn pair() -> (Stream, Stream) {
    let local = local::current();
    let (left, right) = local.driver.borrow_mut().simulation().pair();
    let stream = |key| {
        // Real but unconnected, so that setting options works.
        let flags = SocketFlags::CLOEXEC;
        let fd = socket_with(AddressFamily::INET, SocketType::STREAM, flags, None)
            .expect("descriptors for a test");
        Stream::simulated(&local, key, fd)
    };
    (stream(left), stream(right))
}

/// A number below `bound`, decided by the seed.
///
/// # Panics
/// Outside of [`run`], and if `bound` is 0.
pub fn random(bound: u64) -> u64 {
    local::current().driver.borrow_mut().simulation().random(bound)
}
