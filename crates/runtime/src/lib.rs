//! Thread-per-core runtime: drivers, tasks, timers, sockets, files, thread pools.

pub mod fs;
pub mod guard;
pub mod mounts;
pub mod pool;
pub mod stats;
