//! The data of the monitoring pages: collected for [`super::maker`], written by the formats.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use nowait_backend::cache::responses::{self, CacheResponses};
use nowait_backend::collector::{self, ExportCounts};
use nowait_cache::Statistics;
use nowait_front::limit::decisions::{self, DecisionsSnapshot};
use nowait_front::sessions::SessionsReport;
use nowait_front::tls::certificates::{self, CertificateUse};
use nowait_front::tls::kernel::{self, KernelTotals};
use nowait_http::counts::{self, Totals};
use nowait_http::generation::Contents;
use nowait_runtime::events::{self, Event, EventKind};
use nowait_runtime::fs::resident;
use nowait_runtime::loops::{self, LoopSnapshot};
use nowait_runtime::mounts::{self, MountSnapshot};
use nowait_runtime::pool::PoolSnapshot;
use nowait_runtime::stats::BlockedSnapshot;
use nowait_upstream::Group;

use super::resolvers::ResolverReport;
use super::zone::{ZoneKind, ZoneSnapshot, snapshot};

/// When the newest configuration was put to use, in milliseconds since 1970.
pub(super) static LOADED_MS: AtomicU64 = AtomicU64::new(0);

/// All reported values, read at one time; concurrent changes may show in one part and not in another.
pub(super) struct Report {
    /// Number of the generation that serves the request.
    pub(super) generation: u64,
    /// Connections and requests.
    pub(super) totals: Totals,
    /// Connections that the kernel seals.
    pub(super) kernel: KernelTotals,
    pub(super) workers: Vec<LoopSnapshot>,
    /// The generation's pools, by name.
    pub(super) pools: Vec<PoolSnapshot>,
    /// File systems that were used.
    pub(super) mounts: Vec<MountSnapshot>,
    /// Files in memory.
    pub(super) resident: resident::Snapshot,
    /// Groups of upstream servers with an `upstream` block.
    pub(super) upstreams: Vec<Arc<Group>>,
    /// The state of `stream`, if configured.
    pub(super) sessions: Option<SessionsReport>,
    /// Counters of QUIC, if there are addresses with it.
    pub(super) quic: Option<Vec<(&'static str, u64)>>,
    /// Caches, by their numbers.
    pub(super) caches: Vec<Statistics>,
    /// Responses of caches in use, by name.
    pub(super) cache_responses: Vec<CacheResponses>,
    /// Resolvers in the configuration.
    pub(super) resolvers: Vec<ResolverReport>,
    /// Zones of servers, by name.
    pub(super) server_zones: Vec<ZoneSnapshot>,
    /// Zones of locations, by name.
    pub(super) location_zones: Vec<ZoneSnapshot>,
    /// Exports of traces.
    pub(super) exports: ExportCounts,
    /// Decisions of limits by zone.
    pub(super) limits: Vec<DecisionsSnapshot>,
    /// Certificates in use.
    pub(super) certificates: Vec<CertificateUse>,
    /// Events, oldest first.
    pub(super) events: Vec<Event>,
    /// How often each kind of event has happened.
    pub(super) event_counts: Vec<(EventKind, u64)>,
    /// The address that the request was sent to.
    pub(super) address: String,
    /// When the newest configuration was put to use, in milliseconds since 1970.
    pub(super) loaded_ms: u64,
    /// The time of the report, likewise.
    pub(super) time_ms: u64,
}

impl Report {
    /// The responses of a cache.
    pub(super) fn responses_of(&self, cache: &Statistics) -> CacheResponses {
        let mut all = self.cache_responses.iter();
        all.find(|one| one.zone == cache.zone).cloned().unwrap_or_default()
    }
}

/// The report of a generation, for a request to this address.
pub(super) fn collect(generation: &Contents, address: String) -> Report {
    let pools: BTreeMap<_, _> = generation.pools.iter().collect();
    Report {
        generation: generation.number,
        totals: counts::totals(),
        kernel: kernel::totals(),
        workers: loops::snapshot(),
        pools: pools.values().map(|pool| pool.snapshot()).collect(),
        mounts: mounts::snapshot(),
        resident: resident::snapshot(),
        sessions: generation.sessions.as_ref().map(|report| report()),
        quic: generation.quic.as_ref().map(|report| report()),
        upstreams: generation.conf.upstreams.of_blocks().cloned().collect(),
        caches: generation.caches.iter().map(|store| store.statistics()).collect(),
        cache_responses: responses::snapshot(),
        resolvers: generation.resolvers.iter().map(ResolverReport::new).collect(),
        server_zones: snapshot(ZoneKind::Server),
        location_zones: snapshot(ZoneKind::Location),
        exports: collector::counts(),
        limits: decisions::snapshot(),
        certificates: certificates::snapshot(),
        events: events::snapshot(),
        event_counts: events::counts(),
        address,
        loaded_ms: LOADED_MS.load(Ordering::Relaxed),
        time_ms: nowait_sys::clock::unix_ms(),
    }
}

/// The non-empty buckets of a histogram, with their upper bounds in microseconds; the last bucket
/// has none.
pub(super) fn buckets(blocked: &BlockedSnapshot) -> impl Iterator<Item = (Option<u64>, u64)> {
    let counts = blocked.buckets.iter().enumerate();
    counts.map(|(n, count)| (BlockedSnapshot::bound_us(n), *count))
}
