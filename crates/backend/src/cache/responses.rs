//! Responses of caches by cache status, with their bytes, for status pages. NGINX Plus: the caches of its API.
//!
//! A cache counts under the name of its zone ([`nowait_front::zones`]), so the counters survive reloads. Every request
//! and subrequest that used the cache counts once, at its end; [`state`](super::state) keeps its account.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use nowait_cache::Store;
use nowait_caching::status::Status;
use nowait_front::tally::{add, add_many};
use nowait_front::zone_counters;
use nowait_front::zones::{self, OwnCounters, StatusZone};
use nowait_http::conf::HttpConf;
use nowait_http::request::Request;
use nowait_http::slots::Key;
use nowait_http::upstream_state::UpstreamState;

/// The counters of one worker.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct ResponseCounters {
    /// In the order of [`Status::ALL`].
    by_status: [StatusCounters; Status::ALL.len()],
}

#[derive(Debug, Default)]
struct StatusCounters {
    responses: AtomicU64,
    bytes: AtomicU64,
    written_responses: AtomicU64,
    written_bytes: AtomicU64,
}

zone_counters!(ResponseCounters, ());

impl ResponseCounters {
    fn of(&self, status: Status) -> &StatusCounters {
        &self.by_status[status as usize]
    }

    /// Counts bytes of bodies with this status: from the cache, or from the origin.
    pub(super) fn count_bytes(&self, status: Status, bytes: u64) {
        add_many(&self.of(status).bytes, bytes);
    }

    /// Counts a response from the origin that was stored.
    pub(super) fn count_written(&self, status: Status, bytes: u64) {
        let counters = self.of(status);
        add(&counters.written_responses);
        add_many(&counters.written_bytes, bytes);
    }
}

/// The zones of the caches of a configuration, by their numbers; `None` in place of those beyond the limit.
static ZONES: Key<Vec<Option<Arc<StatusZone<ResponseCounters>>>>> = Key::new();

/// Makes zones of these names.
pub(super) fn finish<'n>(names: impl Iterator<Item = &'n str>, conf: &mut HttpConf) {
    conf.settings.set(&ZONES, names.map(|name| StatusZone::of((), name)).collect());
}

/// The counters of this worker for the cache of a request.
pub(super) fn own(request: &Request, store: &Arc<Store>) -> Option<Own> {
    let current = request.current();
    let at = current.caches.iter().position(|one| Arc::ptr_eq(one, store))?;
    Some(current.conf.settings.get(&ZONES)?.get(at)?.as_ref()?.own())
}

/// The counters that a cache's responses are counted in.
pub(super) type Own = Rc<OwnCounters<ResponseCounters>>;

/// What the response to a request adds to the counters of its cache.
#[derive(Debug)]
pub(super) struct ResponseAccount {
    pub(super) own: Own,
    /// Bytes of the stored object that was served.
    pub(super) read: u64,
    /// The origin's response, if nothing else counts its bytes: the tries from this one on.
    pub(super) origin: Option<(Rc<UpstreamState>, usize)>,
}

impl ResponseAccount {
    pub(super) fn new(own: Own) -> ResponseAccount {
        ResponseAccount { own, read: 0, origin: None }
    }

    /// The response has ended with this status.
    pub(super) fn settle(self, status: Status) {
        let origin = self.origin.map_or(0, |(state, first)| {
            state.tries().iter().skip(first).map(|one| one.response_length).sum()
        });
        add(&self.own.of(status).responses);
        self.own.count_bytes(status, self.read + origin);
    }
}

/// The responses of a cache.
#[derive(Clone, Debug, Default)]
pub struct CacheResponses {
    /// The name of its zone.
    pub zone: String,
    by_status: [StatusResponses; Status::ALL.len()],
}

/// The responses with a cache status.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StatusResponses {
    /// Requests that ended with it.
    pub responses: u64,
    /// Bytes of their bodies: of whole stored objects, or as received from the origin.
    pub bytes: u64,
    /// Responses from the origin that were stored.
    pub written_responses: u64,
    /// Bytes of their bodies.
    pub written_bytes: u64,
}

impl CacheResponses {
    /// Those with this status.
    pub fn of(&self, status: Status) -> StatusResponses {
        self.by_status[status as usize]
    }
}

/// The responses of all caches in use, by name.
pub fn snapshot() -> Vec<CacheResponses> {
    zones::snapshot((), read)
}

fn read(zone: &str, workers: &[Arc<ResponseCounters>]) -> CacheResponses {
    let sum = |status, counter: fn(&StatusCounters) -> &AtomicU64| {
        let each = workers.iter().map(|one| counter(one.of(status)).load(Ordering::Relaxed));
        each.sum::<u64>()
    };
    CacheResponses {
        zone: zone.to_owned(),
        by_status: Status::ALL.map(|status| StatusResponses {
            responses: sum(status, |one| &one.responses),
            bytes: sum(status, |one| &one.bytes),
            written_responses: sum(status, |one| &one.written_responses),
            written_bytes: sum(status, |one| &one.written_bytes),
        }),
    }
}
