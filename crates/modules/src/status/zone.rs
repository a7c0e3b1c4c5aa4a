//! Counters of zones: requests of a server or a location, by `status_zone`. NGINX Plus: the server and location
//! zones of its API.
//!
//! The list of zones belongs to the process, so their counters survive reloads. Zones that no configuration in use has
//! are not reported, and make room for others when the list is full. Each worker writes only its own memory; a report
//! adds up all workers.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
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
    /// Unlike that of any other zone.
    id: u64,
    /// Its place in each worker's list, which it may inherit from a zone that is gone.
    place: usize,
    /// Shared, so that a report can read them without having the zone, which would count as its use.
    workers: WorkerCounters,
}

/// The counters of all workers that have counted in a zone.
type WorkerCounters = Arc<RwLock<Vec<Arc<Counters>>>>;

/// The zones of this process.
#[derive(Debug, Default)]
struct ZoneList {
    /// By kind and name.
    zones: BTreeMap<(ZoneKind, Arc<str>), Arc<Zone>>,
    /// Places of zones that are gone.
    free: Vec<usize>,
    last_id: u64,
}

static ZONES: LazyLock<Mutex<ZoneList>> = LazyLock::new(Mutex::default);

thread_local! {
    /// The counters of this worker, by the zones' places.
    static OWN: RefCell<Vec<Option<OwnPlace>>> = const { RefCell::new(Vec::new()) };
}

/// The identifier of the last zone in a place, and its counters.
type OwnPlace = (u64, Rc<OwnCounters>);

/// A worker's handle to its counters.
struct OwnCounters(Arc<Counters>);

impl Zone {
    /// The zone with this name, made if it is new. `None`: there are too many.
    pub fn of(kind: ZoneKind, name: &str) -> Option<Arc<Zone>> {
        let mut list = ZONES.lock().unwrap_or_else(PoisonError::into_inner);
        list.find(kind, name)
    }

    /// The counters of this worker.
    fn own(&self) -> Rc<OwnCounters> {
        OWN.with_borrow_mut(|own| {
            if own.len() <= self.place {
                own.resize(self.place + 1, None);
            }
            match &own[self.place] {
                Some((id, counters)) if *id == self.id => counters.clone(),
                _ => own[self.place].insert((self.id, self.join())).1.clone(),
            }
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

impl ZoneList {
    fn find(&mut self, kind: ZoneKind, name: &str) -> Option<Arc<Zone>> {
        let key = (kind, Arc::<str>::from(name));
        if let Some(zone) = self.zones.get(&key) {
            return Some(zone.clone());
        }
        if self.zones.len() >= ZONES_MAX {
            let Self { zones, free, .. } = self;
            zones.retain(|_, zone| {
                let keeps = is_used(zone);
                free.extend((!keeps).then_some(zone.place));
                keeps
            });
        }
        if self.zones.len() >= ZONES_MAX {
            return None;
        }
        // Without free places, all below this one are taken.
        let place = self.free.pop().unwrap_or(self.zones.len());
        self.last_id += 1;
        let zone = Zone { name: key.1.clone(), id: self.last_id, place, workers: Arc::default() };
        let zone = Arc::new(zone);
        self.zones.insert(key, zone.clone());
        Some(zone)
    }
}

/// Whether a configuration has a zone of the list.
fn is_used(zone: &Arc<Zone>) -> bool {
    Arc::strong_count(zone) > 1
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

/// The state of all zones of a kind that are in use, by name.
pub fn snapshot(kind: ZoneKind) -> Vec<ZoneSnapshot> {
    let zones: Vec<(Arc<str>, WorkerCounters)> = {
        let list = ZONES.lock().unwrap_or_else(PoisonError::into_inner);
        let zones = list.zones.iter().filter(|((of, _), zone)| *of == kind && is_used(zone));
        zones.map(|(_, zone)| (zone.name.clone(), zone.workers.clone())).collect()
    };
    zones.iter().map(|(name, workers)| read(name, workers)).collect()
}

fn read(name: &str, workers: &WorkerCounters) -> ZoneSnapshot {
    let workers = workers.read().unwrap_or_else(PoisonError::into_inner);
    let mut sum = ZoneSnapshot { name: name.to_owned(), ..ZoneSnapshot::default() };
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zones_of_past_configurations_make_room() {
        let kept = Zone::of(ZoneKind::Location, "kept").unwrap();
        drop(kept.enter());
        for number in 0..2 * ZONES_MAX {
            let zone = Zone::of(ZoneKind::Location, &format!("past {number}")).unwrap();
            assert!(zone.place < ZONES_MAX);
            // It never sees the counters of the one whose place it has.
            let processing = zone.enter();
            let of = |name: &str| snapshot_of(name).map(|zone| zone.processing);
            assert_eq!(of(&zone.name), Some(1));
            drop(processing);
        }
        assert!(snapshot_of("kept").is_some());
        assert!(snapshot_of("past 0").is_none());
        let again = Zone::of(ZoneKind::Location, "kept").unwrap();
        assert!(Arc::ptr_eq(&again, &kept));
    }

    fn snapshot_of(name: &str) -> Option<ZoneSnapshot> {
        let workers = {
            let list = ZONES.lock().unwrap();
            let zone = list.zones.get(&(ZoneKind::Location, name.into()))?;
            is_used(zone).then(|| zone.workers.clone())?
        };
        Some(read(name, &workers))
    }
}
