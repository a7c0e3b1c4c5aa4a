//! Counters of zones: requests of a server or a location, by `status_zone`. NGINX Plus: the server and location
//! zones of its API.
//!
//! Lists, names and reports are those of [`nowait_front::zones`].

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use nowait_backend::cache::cache_status;
use nowait_caching::status::Status;
use nowait_conf::{Context, Cx};
use nowait_front::tally::{add, add_many, take};
use nowait_front::zone_counters;
use nowait_front::zones::{self, NamedZones, OwnCounters};
use nowait_http::request::Request;
use nowait_http::upstream_state::UpstreamState;
use nowait_runtime::histogram::{Histogram, HistogramSnapshot};
use nowait_runtime::now;

/// Statuses that are counted one by one: 100 to 599.
const STATUSES: usize = 500;

/// What a zone counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ZoneKind {
    /// Requests of servers.
    Server,
    /// Requests that ended in locations.
    Location,
}

impl ZoneKind {
    /// As a label.
    pub fn name(self) -> &'static str {
        match self {
            ZoneKind::Server => "server",
            ZoneKind::Location => "location",
        }
    }
}

/// The counters of one worker.
#[derive(Debug)]
#[repr(align(128))]
pub struct RequestCounters {
    processing: AtomicU64,
    ended: AtomicU64,
    discarded: AtomicU64,
    received: AtomicU64,
    sent: AtomicU64,
    /// By status.
    statuses: Box<[AtomicU64; STATUSES]>,
    /// By cache status.
    caches: [AtomicU64; Status::ALL.len()],
    total: Histogram,
    upstream: Histogram,
}

impl Default for RequestCounters {
    fn default() -> Self {
        Self {
            processing: AtomicU64::new(0),
            ended: AtomicU64::new(0),
            discarded: AtomicU64::new(0),
            received: AtomicU64::new(0),
            sent: AtomicU64::new(0),
            statuses: Box::new([const { AtomicU64::new(0) }; STATUSES]),
            caches: [const { AtomicU64::new(0) }; Status::ALL.len()],
            total: Histogram::default(),
            upstream: Histogram::default(),
        }
    }
}

/// A zone of requests.
pub type Zone = zones::StatusZone<RequestCounters>;

zone_counters!(RequestCounters, ZoneKind);

impl NamedZones for RequestCounters {
    fn kind(cx: &Cx<'_>) -> ZoneKind {
        match cx.context() {
            Context::SERVER => ZoneKind::Server,
            _ => ZoneKind::Location,
        }
    }
}

/// Counts a request as being processed, until the result is dropped.
pub fn enter(zone: &Zone) -> Processing {
    let own = zone.own();
    add(&own.processing);
    Processing(own)
}

/// Counts a request that has ended.
pub fn count(zone: &Zone, request: &Request) {
    let counters = zone.own();
    let sent = request.sent();
    add(&counters.ended);
    add_many(&counters.received, request.received());
    add_many(&counters.sent, sent.bytes());
    let status = usize::from(request.out().status);
    match status.checked_sub(100).and_then(|at| counters.statuses.get(at)) {
        Some(counter) if sent.head_bytes() > 0 => add(counter),
        _ => add(&counters.discarded),
    }
    counters.total.record(now().saturating_duration_since(request.started()));
    if let Some(status) = cache_status(request) {
        add(&counters.caches[status as usize]);
    }
    if let Some(state) = UpstreamState::get(request.state()) {
        let tries = state.tries();
        if !tries.is_empty() {
            counters.upstream.record(tries.iter().filter_map(|one| one.response).sum::<Duration>());
        }
    }
}

/// A request that is being processed.
pub struct Processing(Rc<OwnCounters<RequestCounters>>);

impl Drop for Processing {
    fn drop(&mut self) {
        take(&self.0.processing);
    }
}

/// The state of a zone.
#[derive(Clone, Debug, Default)]
pub struct ZoneSnapshot {
    /// The name.
    pub name: String,
    /// Requests being processed.
    pub processing: u64,
    /// Requests, including those being processed. May fall by one when a request ends without a log line.
    pub requests: u64,
    /// Requests that have ended. Never falls.
    pub ended: u64,
    /// Requests that ended without a response.
    pub discarded: u64,
    /// Bytes received from clients.
    pub received: u64,
    /// Bytes sent to clients.
    pub sent: u64,
    /// Responses by status, those that occurred.
    pub statuses: BTreeMap<u16, u64>,
    /// By cache status, in the order of [`Status::ALL`].
    pub caches: [u64; Status::ALL.len()],
    /// Times of requests, from the first byte to the end of the response.
    pub total: HistogramSnapshot,
    /// Times of upstream servers.
    pub upstream: HistogramSnapshot,
}

impl ZoneSnapshot {
    /// Adds another zone.
    pub fn add(&mut self, other: &ZoneSnapshot) {
        self.processing += other.processing;
        self.requests += other.requests;
        self.ended += other.ended;
        self.discarded += other.discarded;
        self.received += other.received;
        self.sent += other.sent;
        for (status, count) in &other.statuses {
            *self.statuses.entry(*status).or_default() += count;
        }
        for (sum, count) in self.caches.iter_mut().zip(other.caches) {
            *sum += count;
        }
        self.total.merge(&other.total);
        self.upstream.merge(&other.upstream);
    }

    /// Responses by the first digit of their status, from `1xx`.
    pub fn classes(&self) -> [u64; 5] {
        let mut classes = [0; 5];
        for (status, count) in &self.statuses {
            if let Some(class) = classes.get_mut(usize::from(status / 100).wrapping_sub(1)) {
                *class += count;
            }
        }
        classes
    }
}

/// The state of all zones of a kind that are in use, by name.
pub fn snapshot(kind: ZoneKind) -> Vec<ZoneSnapshot> {
    zones::snapshot(kind, read)
}

fn read(name: &str, workers: &[Arc<RequestCounters>]) -> ZoneSnapshot {
    let mut sum = ZoneSnapshot { name: name.to_owned(), ..ZoneSnapshot::default() };
    let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    for counters in workers {
        sum.processing += load(&counters.processing);
        sum.ended += load(&counters.ended);
        sum.discarded += load(&counters.discarded);
        sum.received += load(&counters.received);
        sum.sent += load(&counters.sent);
        for (at, counter) in counters.statuses.iter().enumerate() {
            let count = load(counter);
            if count > 0 {
                *sum.statuses.entry(100 + at as u16).or_default() += count;
            }
        }
        for (sum, counter) in sum.caches.iter_mut().zip(&counters.caches) {
            *sum += load(counter);
        }
        sum.total.add(&counters.total);
        sum.upstream.add(&counters.upstream);
    }
    sum.requests = sum.ended + sum.processing;
    sum
}
