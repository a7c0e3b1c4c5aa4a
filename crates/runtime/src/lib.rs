//! Thread-per-core runtime: drivers, tasks, timers, sockets, files, thread pools.
//!
//! A worker thread calls [`worker::run`] with one root future. Everything else is reached from
//! inside tasks through free functions ([`spawn`], [`sleep`], [`now`], [`clock`]) and through the
//! handles of [`net`]. Tasks are `!Send`: they never leave the thread on which they were spawned;
//! only wakers and [`worker::Remote`] cross threads.
//!
//! What never happens here: a system call on a loop thread that may wait for a disk.
//!
//! Its files form layers, from bottom to top; a file uses only those of its own layer and of the layers below:
//!
//! | Layer | Files |
//! |---|---|
//! | facts and small structures | `histogram`, `events`, `stats`, `hooks`, `table`, `panic`, `peak`, `receive_epoch`, `time/` (clocks, timer wheel), `net/address`, `net/packet` |
//! | memory for receiving and sending | `buf/` but for `chain` |
//! | what other threads see of a worker | `inbox`, `handovers`, `workers` |
//! | file systems; thread pools; the guard | `mounts/`, `pool/`, `guard` |
//! | files | `fs/` |
//! | chains: memory and ranges of files, to be sent | `buf/chain` |
//! | drivers, and the choice between them | `driver/` |
//! | the state of a worker; the list of all loops | `local`, `loops` |
//! | values that end on a thread of their own | `reaper` |
//! | tasks; sleeping, time limits | `task`, `time` |
//! | sockets; the event loop | `net/`, `worker` |
//! | a whole worker, simulated | `sim` |
//!
//! What a file needs of a higher layer is passed in: a driver gets its options and the descriptor that wakes it, a
//! task of a pool the waker of its caller, a worker the `Hooks` of the program.

pub mod buf;
pub mod driver;
pub mod events;
pub mod fs;
pub mod guard;
pub mod histogram;
pub mod loops;
pub mod mounts;
pub mod net;
pub mod pool;
pub mod reaper;
pub mod sim;
pub mod stats;
pub mod task;
pub mod time;
pub mod worker;

mod handovers;
mod hooks;
mod inbox;
mod local;
mod panic;
mod peak;
mod receive_epoch;
mod table;
mod workers;

pub use task::{JoinHandle, spawn, yield_now};
pub use time::{clock, now, sleep};
pub use workers::Remote;
