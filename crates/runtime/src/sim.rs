//! Deterministic simulation: whole connection tasks run by seed, in virtual time.
//!
//! A test runs its tasks with [`run`], connects them with [`pair`], and drives the client's side
//! with random choices from the same seed ([`random`]). A failure is reproduced by its seed.
//!
//! ```
//! use std::time::Duration;
//! use nowait_runtime::{net::SendOptions, sim};
//!
//! let received = sim::run(42, sim::NetworkFaults::rough(), || async {
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

use std::cell::{Cell, RefCell};
use std::fmt;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::rc::Rc;
use std::time::{Duration, Instant};

use rustix::io::Errno;

use crate::driver::{Driver, DriverKind, Role, Sim, placeholder};
use crate::local;
use crate::net::Stream;
use crate::pool::{Op, Pool, PoolConfig, Thread, World, set_worlds};
use crate::time::timeout;
use crate::worker::{self, WorkerConfig};
use crate::workers::Workers;

pub use crate::driver::sim::NetworkFaults;

/// Properties of a simulated disk. Its files are real; the time that they take is virtual.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Disk {
    /// Maximum time of an operation in a pool.
    pub time_max: Duration,
    /// One in this many opens and reads finds nothing in memory and goes to the pool; 0: none, 1:
    /// all.
    pub cold_one_in: u64,
    /// One in this many operations in the pool fails with EIO or ENOSPC; 0: none.
    pub fail_one_in: u64,
    /// One in this many operations in the pool takes the time `hang`; 0: none.
    pub hang_one_in: u64,
    /// How long an operation hangs.
    pub hang: Duration,
}

impl Disk {
    /// All data is in memory, and writing takes no time.
    pub const fn fast() -> Disk {
        let hang = Duration::ZERO;
        Disk { time_max: Duration::ZERO, cold_one_in: 0, fail_one_in: 0, hang_one_in: 0, hang }
    }

    /// A hard disk under load: every other access goes to the pool and takes up to 200 ms.
    pub const fn slow() -> Disk {
        Disk { time_max: Duration::from_millis(200), cold_one_in: 2, ..Disk::fast() }
    }

    /// A disk that fails now and then, and hangs for seconds.
    pub const fn failing() -> Disk {
        let hang = Duration::from_secs(20);
        Disk { fail_one_in: 20, hang_one_in: 50, hang, ..Disk::slow() }
    }
}

impl Disk {
    /// How long an operation in the pool takes.
    fn draw_time(&self) -> Duration {
        if happens(self.hang_one_in) {
            return self.hang;
        }
        let micros = self.time_max.as_micros() as u64;
        // Most operations are quick.
        let micros = if happens(4) { micros } else { micros / 8 };
        Duration::from_micros(random(micros + 1))
    }
}

impl World for Disk {
    fn now(&self) -> Instant {
        crate::now()
    }

    fn start(&self, thread: Thread) {
        let disk = *self;
        if local::with(|_| ()).is_none() {
            // The simulation is over, and its state is cleaned up.
            while let Some(taken) = thread.take(Instant::now()) {
                thread.finish(taken, Duration::ZERO, Instant::now());
            }
            return;
        }
        drop(crate::spawn(async move {
            while let Some(taken) = thread.take(crate::now()) {
                let served = disk.draw_time();
                if served.is_zero() {
                    crate::yield_now().await;
                } else {
                    crate::sleep(served).await;
                }
                thread.finish(taken, served, crate::now());
            }
        }));
    }

    fn is_hit(&self) -> bool {
        !happens(self.cold_one_in)
    }

    fn part_in_memory(&self, len: usize) -> usize {
        random(len as u64 + 1) as usize
    }

    fn fault(&self, op: Op) -> Option<io::Error> {
        if !happens(self.fail_one_in) {
            return None;
        }
        let writes = matches!(op, Op::Create | Op::Write | Op::Rename | Op::Mkdir);
        let errno = if writes && random(2) == 0 { Errno::NOSPC } else { Errno::IO };
        note(format_args!("disk: {} fails with {errno:?}", op.name()));
        with(|sim| sim.trace().faults += 1);
        Some(errno.into())
    }
}

/// Whether an event with probability 1/`one_in` happens; never after the simulation.
fn happens(one_in: u64) -> bool {
    one_in > 0 && local::with(|_| ()).is_some() && random(one_in) == 0
}

/// Runs the future that `main` makes, and all tasks spawned from it, until all have ended.
///
/// # Panics
/// When all tasks wait for events that can no longer happen; when they wake each other without end;
/// when the root task panicked.
pub fn run<M, F, T>(seed: u64, faults: NetworkFaults, main: M) -> T
where
    M: FnOnce() -> F,
    F: Future<Output = T> + 'static,
    T: 'static,
{
    let config = WorkerConfig::new(0, DriverKind::Epoll);
    run_worker(seed, faults, config, main)
}

/// [`run`] with other settings of the worker; `config.driver` has no effect.
///
/// # Panics
/// Like [`run`].
pub fn run_worker<M, F, T>(seed: u64, faults: NetworkFaults, config: WorkerConfig, main: M) -> T
where
    M: FnOnce() -> F,
    F: Future<Output = T> + 'static,
    T: 'static,
{
    let output = Rc::new(RefCell::new(None));
    let result = output.clone();
    let workers = Workers::new(1).expect("descriptors for a test");
    let driver = Driver::simulated(seed, faults);
    let end = worker::run_on(driver, config, &workers, |_| {
        let main = main();
        async move {
            let value = main.await;
            *result.borrow_mut() = Some(value);
        }
    });
    set_worlds(None);
    if let Err(error) = end {
        panic!("{error} (seed {seed})");
    }
    let output = output.borrow_mut().take();
    output.unwrap_or_else(|| panic!("the root task panicked (seed {seed})"))
}

/// Calls `f` with the simulation that runs on this thread.
fn with<T>(f: impl FnOnce(&mut Sim) -> T) -> T {
    f(local::current().driver.borrow_mut().simulation())
}

/// Thread pools that this thread makes from now on belong to the simulation, and work on this disk,
/// until it ends. Without this they have real threads.
///
/// # Panics
/// Outside of [`run`].
pub fn set_disk(disk: Disk) {
    with(|_| ());
    DISK.set(Some(disk));
    set_worlds(Some(|| DISK.get().map(|disk| Box::new(disk) as Box<dyn World>)));
}

thread_local! {
    static DISK: Cell<Option<Disk>> = const { Cell::new(None) };
}

/// A thread pool of the simulation that runs on this thread: its threads are tasks.
///
/// # Panics
/// Outside of [`run`].
pub fn pool(config: PoolConfig, disk: Disk) -> Pool {
    Pool::simulated(config, Box::new(disk))
}

/// Opens a listening socket; [`Listener::from_fd`](crate::net::Listener::from_fd) takes it over.
///
/// # Errors
/// `AddrInUse`; when descriptors have run out.
///
/// # Panics
/// Outside of [`run`].
pub fn listen(address: SocketAddr) -> io::Result<OwnedFd> {
    with(|sim| sim.listen(address, false))
}

/// The same for connections whose bytes are encrypted, and differ between two runs of a seed: the trace has
/// their numbers only.
///
/// # Errors
/// Like [`listen`].
///
/// # Panics
/// Outside of [`run`].
pub fn listen_encrypted(address: SocketAddr) -> io::Result<OwnedFd> {
    with(|sim| sim.listen(address, true))
}

/// Connects a client with the address `from` to a listening socket. The code under test connects by
/// [`Stream::connect`].
///
/// # Errors
/// `ConnectionRefused` when nothing listens there; `TimedOut`.
///
/// # Panics
/// Outside of [`run`].
pub async fn connect(from: SocketAddr, to: SocketAddr, limit: Duration) -> io::Result<Stream> {
    let local = local::current();
    let fd = placeholder()?;
    with(|sim| sim.begin_connect(fd.as_fd().as_raw_fd(), Some(from), to));
    let stream = Stream::attach(&local, fd, Role::Connecting, false)?;
    timeout(limit, stream.writable()).await??;
    Ok(stream)
}

/// Creates two connected connections in the simulation that runs on this thread.
///
/// # Panics
/// Outside of [`run`].
pub fn pair() -> (Stream, Stream) {
    let local = local::current();
    let (left, right) = local.driver.borrow_mut().simulation().pair();
    let stream =
        |key| Stream::simulated(&local, key, placeholder().expect("descriptors for a test"));
    (stream(left), stream(right))
}

/// A number below `bound`, decided by the seed.
///
/// # Panics
/// Outside of [`run`], and if `bound` is 0.
pub fn random(bound: u64) -> u64 {
    with(|sim| sim.random(bound))
}

/// Number of sockets that exist in the simulation, those of its clients included.
///
/// # Panics
/// Outside of [`run`].
pub fn sockets() -> usize {
    with(|sim| sim.sockets())
}

/// Number of tasks that exist in the simulation.
///
/// # Panics
/// Outside of [`run`].
pub fn tasks() -> usize {
    local::current().tasks.borrow().len()
}

/// Records a line of the trace.
///
/// # Panics
/// Outside of [`run`].
pub fn note(line: fmt::Arguments<'_>) {
    with(|sim| {
        let now = sim.now();
        sim.trace().line(now, line);
    });
}

/// Prints the trace to standard error from now on.
///
/// # Panics
/// Outside of [`run`].
pub fn print_trace() {
    with(|sim| sim.trace().print());
}

/// A number that depends on everything recorded so far: two runs of one seed must have the same.
///
/// # Panics
/// Outside of [`run`].
pub fn digest() -> u64 {
    with(|sim| sim.trace().digest())
}

/// The lines of the trace so far, each with the digest after it: to find where two runs part.
///
/// # Panics
/// Outside of [`run`].
pub fn trace() -> Vec<(String, u64)> {
    with(|sim| sim.trace().lines().to_vec())
}

/// Number of operations that a simulated disk let fail.
///
/// # Panics
/// Outside of [`run`].
pub fn disk_faults() -> u64 {
    with(|sim| sim.trace().faults)
}
