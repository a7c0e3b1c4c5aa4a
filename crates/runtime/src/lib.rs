//! Thread-per-core runtime: drivers, tasks, timers, sockets, files, thread pools.
//!
//! A worker thread calls [`worker::run`] with one root future. Everything else is reached from
//! inside tasks through free functions ([`spawn`], [`sleep`], [`now`], [`clock`]) and through the
//! handles of [`net`]. Tasks are `!Send`: they never leave the thread on which they were spawned;
//! only wakers and [`worker::Remote`] cross threads.
//!
//! What never happens here: a system call on a loop thread that may wait for a disk.

pub mod buf;
pub mod driver;
pub mod fs;
pub mod guard;
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
