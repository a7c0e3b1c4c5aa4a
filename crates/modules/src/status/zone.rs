//! Counters of zones: requests of a server or a location, by `status_zone`. NGINX Plus: the server and location
//! zones of its API.
//!
//! A zone lives as long as the process, so its counters survive reloads. Each worker writes only its own memory;
//! a report adds up all workers.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Mutex, PoisonError, RwLock};
use std::time::Duration;

use nowait_backend::cache::cache_status;
use nowait_front::tally::{add, take};
use nowait_http::request::Request;
use nowait_http::upstream_state::UpstreamState;
use nowait_runtime::histogram::{Histogram, HistogramSnapshot};
use nowait_runtime::now;

/// Zones of a process at most. Each takes 6 KB per worker that has counted in it.
pub const ZONES_MAX: usize = 4096;

/// Statuses that are counted one by one: 100 to 599.
const STATUSES: usize = 500;

/// The values of `$upstream_cache_status`, in the order of their counters.
pub const CACHE_STATUSES: [&str; 7] =
    ["MISS", "BYPASS", "EXPIRED", "STALE", "UPDATING", "REVALIDATED", "HIT"];

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
struct Counters {
    processing: AtomicU64,
    ended: AtomicU64,
    discarded: AtomicU64,
    received: AtomicU64,
    sent: AtomicU64,
    /// By status.
    statuses: Box<[AtomicU64; STATUSES]>,
    /// By cache status.
    caches: [AtomicU64; CACHE_STATUSES.len()],
    total: Histogram,
    upstream: Histogram,
}

impl Default for Counters {
    fn default() -> Self {
        Self {
            processing: AtomicU64::new(0),
            ended: AtomicU64::new(0),
            discarded: AtomicU64::new(0),
            received: AtomicU64::new(0),
            sent: AtomicU64::new(0),
            statuses: Box::new([const { AtomicU64::new(0) }; STATUSES]),
            caches: [const { AtomicU64::new(0) }; CACHE_STATUSES.len()],
            total: Histogram::default(),
            upstream: Histogram::default(),
        }
    }
}

/// A zone.
#[derive(Debug)]
pub struct Zone {
    /// The name that the configuration gives it.
    pub name: Arc<str>,
    /// Its place in each worker's list.
    number: usize,
    workers: RwLock<Vec<Arc<Counters>>>,
}

/// Zones by kind and name.
type Zones = BTreeMap<(ZoneKind, Arc<str>), Arc<Zone>>;

/// The zones of this process.
static ZONES: LazyLock<Mutex<Zones>> = LazyLock::new(Mutex::default);

thread_local! {
    /// The counters of this worker, by the zones' numbers.
    static OWN: RefCell<Vec<Option<Rc<OwnCounters>>>> = const { RefCell::new(Vec::new()) };
}

/// A worker's handle to its counters.
struct OwnCounters(Arc<Counters>);

impl Zone {
    /// The zone with this name, made if it is new. `None`: there are too many.
    pub fn of(kind: ZoneKind, name: &str) -> Option<Arc<Zone>> {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let mut zones = ZONES.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (kind, Arc::<str>::from(name));
        if let Some(zone) = zones.get(&key) {
            return Some(zone.clone());
        }
        if zones.len() >= ZONES_MAX {
            return None;
        }
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let zone = Zone { name: key.1.clone(), number, workers: RwLock::default() };
        let zone = Arc::new(zone);
        zones.insert(key, zone.clone());
        Some(zone)
    }

    /// The counters of this worker.
    fn own(&self) -> Rc<OwnCounters> {
        OWN.with_borrow_mut(|own| {
            if own.len() <= self.number {
                own.resize(self.number + 1, None);
            }
            own[self.number].get_or_insert_with(|| self.join()).clone()
        })
    }

    #[cold]
    fn join(&self) -> Rc<OwnCounters> {
        let counters = Arc::<Counters>::default();
        self.workers.write().unwrap_or_else(PoisonError::into_inner).push(counters.clone());
        Rc::new(OwnCounters(counters))
    }

    /// Counts a request as being processed, until the result is dropped.
    pub fn enter(&self) -> Processing {
        let own = self.own();
        add(&own.0.processing);
        Processing(own)
    }

    /// Counts a request that has ended.
    pub fn count(&self, request: &Request) {
        let own = self.own();
        let counters = &own.0;
        let more = |counter: &AtomicU64, by: u64| {
            counter.store(counter.load(Ordering::Relaxed).wrapping_add(by), Ordering::Relaxed);
        };
        let sent = request.sent();
        add(&counters.ended);
        more(&counters.received, request.received());
        more(&counters.sent, sent.bytes());
        let status = usize::from(request.out().status);
        match status.checked_sub(100).and_then(|at| counters.statuses.get(at)) {
            Some(counter) if sent.head_bytes() > 0 => add(counter),
            _ => add(&counters.discarded),
        }
        counters.total.record(now().saturating_duration_since(request.started()));
        if let Some(status) = cache_status(request)
            && let Some(at) = CACHE_STATUSES.iter().position(|one| *one == status.as_str())
        {
            add(&counters.caches[at]);
        }
        if let Some(state) = UpstreamState::get(request.state()) {
            let tries = state.tries();
            if !tries.is_empty() {
                counters
                    .upstream
                    .record(tries.iter().filter_map(|one| one.response).sum::<Duration>());
            }
        }
    }
}

/// A request that is being processed.
pub struct Processing(Rc<OwnCounters>);

impl Drop for Processing {
    fn drop(&mut self) {
        take(&self.0.0.processing);
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
    /// By cache status, in the order of [`CACHE_STATUSES`].
    pub caches: [u64; CACHE_STATUSES.len()],
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

/// The state of all zones of a kind, by name.
pub fn snapshot(kind: ZoneKind) -> Vec<ZoneSnapshot> {
    let zones: Vec<Arc<Zone>> = {
        let zones = ZONES.lock().unwrap_or_else(PoisonError::into_inner);
        zones.iter().filter(|((of, _), _)| *of == kind).map(|(_, zone)| zone.clone()).collect()
    };
    zones.iter().map(|zone| read(zone)).collect()
}

fn read(zone: &Zone) -> ZoneSnapshot {
    let workers = zone.workers.read().unwrap_or_else(PoisonError::into_inner);
    let mut sum = ZoneSnapshot { name: zone.name.to_string(), ..ZoneSnapshot::default() };
    let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    for counters in workers.iter() {
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
