//! Counters of peers, for status pages and logs.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// The first digit of a status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StatusClass(u8);

impl StatusClass {
    /// Of a status; those outside of 100 to 599 count as 5xx.
    pub fn of(status: u16) -> StatusClass {
        let class = (status / 100) as u8;
        StatusClass(if (1..=5).contains(&class) { class } else { 5 })
    }
}

/// The counters of a peer since it was created.
#[derive(Debug, Default)]
pub(crate) struct PeerCounters {
    requests: AtomicU64,
    responses: [AtomicU64; 5],
    sent: AtomicU64,
    received: AtomicU64,
    fails: AtomicU64,
    unavailable: AtomicU64,
    selected_at: AtomicU64,
    down_since: AtomicU64,
    downtime_ms: AtomicU64,
    checks: AtomicU64,
    failed_checks: AtomicU64,
    unhealthy: AtomicU64,
    /// 1: passed, 2: failed.
    last_check: AtomicU64,
}

/// A snapshot of the counters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PeerStats {
    /// `127.0.0.1:8080`
    pub name: String,
    /// Requests in progress.
    pub active: u32,
    /// Requests so far.
    pub requests: u64,
    /// Responses by the first digit of their status: 1xx to 5xx.
    pub responses: [u64; 5],
    /// Bytes sent to the peer.
    pub sent: u64,
    /// Bytes received from the peer.
    pub received: u64,
    /// Unsuccessful attempts so far.
    pub fails: u64,
    /// The number of times it became unavailable.
    pub unavailable: u64,
    /// The total time it was unavailable, in ms.
    pub downtime_ms: u64,
    /// Health checks so far.
    pub checks: u64,
    /// Health checks that failed.
    pub failed_checks: u64,
    /// The number of times health checks have found it unhealthy.
    pub unhealthy: u64,
    /// Whether the last health check has passed, if there was one.
    pub last_check_passed: Option<bool>,
    /// Idle connections to it, of all workers.
    pub idle: u32,
    /// Average time to the header, in ms (`least_time`).
    pub header_time_ms: u64,
    /// Average time to the end of the response, in ms.
    pub response_time_ms: u64,
}

impl PeerCounters {
    pub(crate) fn selected(&self, now: u64) {
        self.requests.fetch_add(1, Relaxed);
        self.selected_at.store(now, Relaxed);
    }

    pub(crate) fn failed(&self) {
        self.fails.fetch_add(1, Relaxed);
    }

    pub(crate) fn response(&self, class: StatusClass) {
        self.responses[usize::from(class.0) - 1].fetch_add(1, Relaxed);
    }

    pub(crate) fn bytes(&self, sent: u64, received: u64) {
        self.sent.fetch_add(sent, Relaxed);
        self.received.fetch_add(received, Relaxed);
    }

    pub(crate) fn checked(&self, passed: bool) {
        self.checks.fetch_add(1, Relaxed);
        self.failed_checks.fetch_add(u64::from(!passed), Relaxed);
        self.last_check.store(if passed { 1 } else { 2 }, Relaxed);
    }

    pub(crate) fn became_unhealthy(&self) {
        self.unhealthy.fetch_add(1, Relaxed);
    }

    /// Whether there was a health check.
    pub(crate) fn was_checked(&self) -> bool {
        self.last_check.load(Relaxed) > 0
    }

    pub(crate) fn became_unavailable(&self, now: u64) {
        self.unavailable.fetch_add(1, Relaxed);
        self.down_since.store(now, Relaxed);
    }

    pub(crate) fn became_available(&self, now: u64) {
        let since = self.down_since.swap(0, Relaxed);
        if since > 0 {
            self.downtime_ms.fetch_add(now.saturating_sub(since), Relaxed);
        }
    }

    /// Begins anew.
    pub(crate) fn reset(&self) {
        let responses = self.responses.iter();
        let others = [
            &self.requests,
            &self.sent,
            &self.received,
            &self.fails,
            &self.unavailable,
            &self.downtime_ms,
            &self.checks,
            &self.failed_checks,
            &self.unhealthy,
        ];
        responses.chain(others).for_each(|counter| counter.store(0, Relaxed));
    }

    /// The counters kept here; the peer provides the rest of the snapshot.
    pub(crate) fn snapshot(&self) -> PeerStats {
        PeerStats {
            requests: self.requests.load(Relaxed),
            responses: [0, 1, 2, 3, 4].map(|n: usize| self.responses[n].load(Relaxed)),
            sent: self.sent.load(Relaxed),
            received: self.received.load(Relaxed),
            fails: self.fails.load(Relaxed),
            unavailable: self.unavailable.load(Relaxed),
            downtime_ms: self.downtime_ms.load(Relaxed),
            checks: self.checks.load(Relaxed),
            failed_checks: self.failed_checks.load(Relaxed),
            unhealthy: self.unhealthy.load(Relaxed),
            last_check_passed: match self.last_check.load(Relaxed) {
                0 => None,
                last => Some(last == 1),
            },
            ..PeerStats::default()
        }
    }
}
