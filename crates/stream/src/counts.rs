//! Session counters, for status pages.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use nowait_front::tally::{Tally, add, take};

/// The counters of all workers that this process has had.
static WORKERS: Tally<WorkerCounters> = Tally::new();

/// The counters of one worker, on cache lines that no other worker writes to.
#[derive(Default)]
#[repr(align(128))]
struct WorkerCounters {
    sessions: AtomicU64,
    active: AtomicU64,
    udp_active: AtomicU64,
    udp_dropped: AtomicU64,
}

/// A worker's handle to its counters.
#[derive(Clone)]
pub struct Counts(Arc<WorkerCounters>);

/// The sums over all workers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SessionTotals {
    /// Sessions so far.
    pub sessions: u64,
    /// Sessions in progress, those of UDP included.
    pub active: u64,
    /// UDP sessions in progress.
    pub udp_active: u64,
    /// Client datagrams that were dropped: the session's queue was full, or there was no room for
    /// another session.
    pub udp_dropped: u64,
}

/// Sums up the workers.
pub fn totals() -> SessionTotals {
    let sum = |counter| WORKERS.sum(counter);
    SessionTotals {
        sessions: sum(|worker| &worker.sessions),
        active: sum(|worker| &worker.active),
        udp_active: sum(|worker| &worker.udp_active),
        udp_dropped: sum(|worker| &worker.udp_dropped),
    }
}

impl Counts {
    /// Registers a worker's counters; they stay in the sums after it ends.
    pub(crate) fn new() -> Self {
        Self(WORKERS.join())
    }

    /// Counts a session; it is in progress as long as the result lives.
    pub(crate) fn session(&self, udp: bool) -> CountedSession {
        add(&self.0.sessions);
        add(&self.0.active);
        if udp {
            add(&self.0.udp_active);
        }
        CountedSession { counts: self.clone(), udp }
    }

    /// Counts a dropped datagram.
    pub(crate) fn dropped(&self) {
        add(&self.0.udp_dropped);
    }

    /// UDP sessions in progress in this worker.
    pub(crate) fn udp_active(&self) -> u64 {
        self.0.udp_active.load(Ordering::Relaxed)
    }
}

/// A session in progress.
pub struct CountedSession {
    counts: Counts,
    udp: bool,
}

impl Drop for CountedSession {
    fn drop(&mut self) {
        take(&self.counts.0.active);
        if self.udp {
            take(&self.counts.0.udp_active);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_are_counted_while_they_live() {
        let counts = Counts::new();
        let now = || {
            let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
            [&counts.0.sessions, &counts.0.active, &counts.0.udp_active].map(load)
        };
        let tcp = counts.session(false);
        let udp = counts.session(true);
        assert_eq!((now(), counts.udp_active()), ([2, 2, 1], 1));
        drop(udp);
        assert_eq!(now(), [2, 1, 0]);
        drop(tcp);
        counts.dropped();
        assert_eq!(now(), [2, 0, 0]);
        let totals = totals();
        assert!(totals.sessions >= 2 && totals.udp_dropped >= 1);
    }
}
