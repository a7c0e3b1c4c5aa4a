//! The choice of a worker's driver, and its settings.

use std::fmt;

/// The event mechanisms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DriverKind {
    /// Edge-triggered epoll.
    Epoll,
    /// io_uring with SINGLE_ISSUER and DEFER_TASKRUN.
    IoUring,
}

impl fmt::Display for DriverKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            DriverKind::Epoll => "epoll",
            DriverKind::IoUring => "io_uring",
        })
    }
}

/// Settings of a driver, from [`WorkerConfig`](crate::worker::WorkerConfig).
#[derive(Clone, Copy, Debug)]
pub(crate) struct DriverOptions {
    pub(crate) kind: DriverKind,
    pub(crate) multi_accept: bool,
    pub(crate) events_max: usize,
    pub(crate) guard: bool,
}
