//! Counters of connections and requests, for `stub_status` and related variables.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use nowait_front::tally::{Tally, add, take};

/// The counters of all workers that this process has had.
static WORKERS: Tally<Counters> = Tally::new();

/// The counters of one worker, in cache lines that no other worker writes to.
#[derive(Default)]
#[repr(align(128))]
struct Counters {
    accepted: AtomicU64,
    requests: AtomicU64,
    active: AtomicU64,
    reading: AtomicU64,
    writing: AtomicU64,
    handshakes: AtomicU64,
    handshakes_failed: AtomicU64,
    handshakes_refused: AtomicU64,
    requests_http3: AtomicU64,
}

/// A worker's handle to its counters.
pub struct Counts(Arc<Counters>);

impl Default for Counts {
    fn default() -> Self {
        Self::new()
    }
}

/// The counters of all workers together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Totals {
    /// Connections accepted.
    pub accepted: u64,
    /// Requests begun.
    pub requests: u64,
    /// Connections open.
    pub active: u64,
    /// Connections whose request is being read.
    pub reading: u64,
    /// Connections whose request is being processed.
    pub writing: u64,
    /// TLS handshakes that succeeded.
    pub handshakes: u64,
    /// TLS handshakes that failed.
    pub handshakes_failed: u64,
    /// Connections that were closed because too many handshakes were in progress.
    pub handshakes_refused: u64,
    /// Requests over HTTP/3; `requests` includes them.
    pub requests_http3: u64,
}

impl Totals {
    /// Connections that are waiting for a request.
    pub fn waiting(&self) -> u64 {
        self.active.saturating_sub(self.reading).saturating_sub(self.writing)
    }
}

/// Adds up the counters of all workers.
pub fn totals() -> Totals {
    let sum = |counter| WORKERS.sum(counter);
    Totals {
        accepted: sum(|worker| &worker.accepted),
        requests: sum(|worker| &worker.requests),
        active: sum(|worker| &worker.active),
        reading: sum(|worker| &worker.reading),
        writing: sum(|worker| &worker.writing),
        handshakes: sum(|worker| &worker.handshakes),
        handshakes_failed: sum(|worker| &worker.handshakes_failed),
        handshakes_refused: sum(|worker| &worker.handshakes_refused),
        requests_http3: sum(|worker| &worker.requests_http3),
    }
}

impl Counts {
    /// The counters of a new worker; they remain in the sums after its end.
    pub(crate) fn new() -> Self {
        Self(WORKERS.join())
    }

    /// A connection was accepted.
    pub fn opened(&self) {
        add(&self.0.accepted);
        add(&self.0.active);
    }

    /// A connection has moved here from another worker, which has counted it as accepted.
    pub fn moved(&self) {
        add(&self.0.active);
    }

    /// A connection ends.
    pub fn closed(&self) {
        take(&self.0.active);
    }

    /// A TLS handshake has succeeded.
    pub fn handshaken(&self) {
        add(&self.0.handshakes);
    }

    /// A TLS handshake has failed.
    pub fn handshake_failed(&self) {
        add(&self.0.handshakes_failed);
    }

    /// A connection is closed because too many handshakes are in progress.
    pub fn handshake_refused(&self) {
        add(&self.0.handshakes_refused);
    }

    /// The request that is counted next came over HTTP/3.
    pub fn over_http3(&self) {
        add(&self.0.requests_http3);
    }

    /// Counts a request from the beginning of its head until the result is dropped.
    pub fn request(&self) -> RequestCount<'_> {
        add(&self.0.requests);
        add(&self.0.reading);
        RequestCount { counters: &self.0, of: &self.0.reading }
    }
}

/// The count of a request.
pub struct RequestCount<'a> {
    counters: &'a Counters,
    of: &'a AtomicU64,
}

impl RequestCount<'_> {
    /// The request was read and is now being processed.
    pub fn answering(&mut self) {
        take(self.of);
        self.of = &self.counters.writing;
        add(self.of);
    }
}

impl Drop for RequestCount<'_> {
    fn drop(&mut self) {
        take(self.of);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::*;

    #[test]
    fn a_request_is_counted_in_its_current_state() {
        let counts = Counts::new();
        let now = || {
            let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
            [&counts.0.active, &counts.0.requests, &counts.0.reading, &counts.0.writing].map(load)
        };
        counts.opened();
        assert_eq!(now(), [1, 0, 0, 0]);
        let mut request = counts.request();
        assert_eq!(now(), [1, 1, 1, 0]);
        request.answering();
        assert_eq!(now(), [1, 1, 0, 1]);
        drop(request);
        assert_eq!(now(), [1, 1, 0, 0]);
        counts.closed();
        assert_eq!(now(), [0, 1, 0, 0]);
        assert!(totals().accepted >= 1);
        let totals = Totals { active: 5, reading: 1, writing: 2, ..Totals::default() };
        assert_eq!(totals.waiting(), 2);
    }
}
