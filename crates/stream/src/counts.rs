//! Counters of sessions, for status pages.
//!
//! Each worker counts in memory that only it writes to; who wants to know adds the workers up.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

/// The counters of all workers that there were in this process.
static WORKERS: RwLock<Vec<Arc<Counters>>> = RwLock::new(Vec::new());

/// The counters of one worker. Alone in its cache lines, which no other worker writes to.
#[derive(Default)]
#[repr(align(128))]
struct Counters {
    sessions: AtomicU64,
    active: AtomicU64,
    udp_active: AtomicU64,
    udp_dropped: AtomicU64,
}

/// A worker's hold on its counters.
#[derive(Clone)]
pub struct Counts(Arc<Counters>);

/// The counters of all workers together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Totals {
    /// Sessions so far.
    pub sessions: u64,
    /// Sessions that go on, those of UDP included.
    pub active: u64,
    /// Sessions of UDP that go on.
    pub udp_active: u64,
    /// Datagrams of clients that were dropped: a session's queue was full, or there was no room for
    /// another session.
    pub udp_dropped: u64,
}

/// Adds the workers up.
pub fn totals() -> Totals {
    let workers = WORKERS.read().unwrap_or_else(PoisonError::into_inner);
    let sum = |counter: fn(&Counters) -> &AtomicU64| {
        let values = workers.iter().map(|worker| counter(worker).load(Ordering::Relaxed));
        values.fold(0, u64::saturating_add)
    };
    Totals {
        sessions: sum(|worker| &worker.sessions),
        active: sum(|worker| &worker.active),
        udp_active: sum(|worker| &worker.udp_active),
        udp_dropped: sum(|worker| &worker.udp_dropped),
    }
}

/// Adds to a counter that no other thread writes to.
fn add(counter: &AtomicU64) {
    counter.store(counter.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
}

/// Takes from a counter that no other thread writes to.
fn take(counter: &AtomicU64) {
    counter.store(counter.load(Ordering::Relaxed).saturating_sub(1), Ordering::Relaxed);
}

impl Counts {
    /// The counters of a new worker; they stay in the sums when it ends.
    pub(crate) fn new() -> Self {
        let counters = Arc::new(Counters::default());
        WORKERS.write().unwrap_or_else(PoisonError::into_inner).push(counters.clone());
        Self(counters)
    }

    /// A session begins; counted as long as the result lives.
    pub(crate) fn session(&self, udp: bool) -> Counted {
        add(&self.0.sessions);
        add(&self.0.active);
        if udp {
            add(&self.0.udp_active);
        }
        Counted { counts: self.clone(), udp }
    }

    /// A datagram was dropped.
    pub(crate) fn dropped(&self) {
        add(&self.0.udp_dropped);
    }

    /// Sessions of UDP that go on in this worker.
    pub(crate) fn udp_active(&self) -> u64 {
        self.0.udp_active.load(Ordering::Relaxed)
    }
}

/// A session that is counted.
pub struct Counted {
    counts: Counts,
    udp: bool,
}

impl Drop for Counted {
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
