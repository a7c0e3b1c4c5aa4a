//! Counters of a pool: cheap atomics, read by status pages and logs while threads run.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use super::Op;
use crate::histogram::{HistogramSnapshot, RecentTimes};

/// Live counters of one kind of operation in one pool.
#[derive(Default)]
pub(super) struct OpCounters {
    started: AtomicU64,
    completed: AtomicU64,
    cancelled: AtomicU64,
    overflowed: AtomicU64,
    panicked: AtomicU64,
    waited_ns: AtomicU64,
    waited_max_ns: AtomicU64,
    served_ns: AtomicU64,
    served_max_ns: AtomicU64,
}

impl OpCounters {
    pub(super) fn started(&self, waited: Duration) {
        self.started.fetch_add(1, Relaxed);
        add_time(&self.waited_ns, &self.waited_max_ns, waited);
    }

    pub(super) fn completed(&self, served: Duration, panicked: bool) {
        self.completed.fetch_add(1, Relaxed);
        if panicked {
            self.panicked.fetch_add(1, Relaxed);
        }
        add_time(&self.served_ns, &self.served_max_ns, served);
    }

    pub(super) fn cancelled(&self) {
        self.cancelled.fetch_add(1, Relaxed);
    }

    pub(super) fn overflowed(&self) {
        self.overflowed.fetch_add(1, Relaxed);
    }

    pub(super) fn snapshot(&self, op: Op) -> OpSnapshot {
        let time = |ns: &AtomicU64| Duration::from_nanos(ns.load(Relaxed));
        OpSnapshot {
            op,
            started: self.started.load(Relaxed),
            completed: self.completed.load(Relaxed),
            cancelled: self.cancelled.load(Relaxed),
            overflowed: self.overflowed.load(Relaxed),
            panicked: self.panicked.load(Relaxed),
            waited_total: time(&self.waited_ns),
            waited_max: time(&self.waited_max_ns),
            served_total: time(&self.served_ns),
            served_max: time(&self.served_max_ns),
        }
    }
}

/// Times of a pool's tasks in the last minute.
#[derive(Default)]
pub(super) struct PoolRecentTimes {
    waits: RecentTimes,
    services: RecentTimes,
}

impl PoolRecentTimes {
    pub(super) fn waited(&self, time: Duration) {
        self.waits.record(time, nowait_sys::clock::monotonic_coarse_ms());
    }

    pub(super) fn served(&self, time: Duration) {
        self.services.record(time, nowait_sys::clock::monotonic_coarse_ms());
    }

    /// The waits and the services.
    pub(super) fn snapshot(&self) -> (HistogramSnapshot, HistogramSnapshot) {
        let now = nowait_sys::clock::monotonic_coarse_ms();
        (self.waits.snapshot(now), self.services.snapshot(now))
    }
}

fn add_time(total: &AtomicU64, max: &AtomicU64, time: Duration) {
    let ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    total.fetch_add(ns, Relaxed);
    max.fetch_max(ns, Relaxed);
}

/// Counters of one kind of operation since the pool was created.
#[derive(Clone, Debug)]
pub struct OpSnapshot {
    pub op: Op,
    /// Started by a thread.
    pub started: u64,
    /// Finished by a thread, panics included.
    pub completed: u64,
    /// Removed from the queue because the caller went away.
    pub cancelled: u64,
    /// Refused: the queue was full.
    pub overflowed: u64,
    /// Ended in a panic.
    pub panicked: u64,
    /// Time from submission to start.
    pub waited_total: Duration,
    pub waited_max: Duration,
    /// From the start to the end.
    pub served_total: Duration,
    pub served_max: Duration,
}

/// State of one pool.
#[derive(Clone, Debug)]
pub struct PoolSnapshot {
    pub name: String,
    /// Configured number of threads.
    pub threads: usize,
    /// Configured bound of the queue.
    pub max_queue: usize,
    /// Threads started so far.
    pub threads_alive: usize,
    /// Threads running a task now.
    pub busy: usize,
    /// Tasks waiting now.
    pub queued: usize,
    /// Clients and connections that have tasks waiting or running now.
    pub clients: usize,
    /// How long tasks waited for a thread in the last minute.
    pub recent_waits: HistogramSnapshot,
    /// How long threads ran tasks in the last minute.
    pub recent_services: HistogramSnapshot,
    /// One entry per operation that was ever requested.
    pub ops: Vec<OpSnapshot>,
}
