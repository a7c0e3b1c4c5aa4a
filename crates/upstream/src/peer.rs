//! A peer: one address of a server, and its state shared by all workers.
//!
//! The configured part ([`Peer`]) belongs to one generation; the observed part ([`PeerState`]) is
//! handed on to the next one. The state consists of atomics: peers are chosen under the group's
//! lock, so that balancers see a consistent whole, but a peer is released without it, and two
//! generations may use the same state at the same time.

use std::io::Write;
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::Ordering::{AcqRel, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU8, AtomicU32, AtomicU64};
use std::time::{Duration, Instant};

use nowait_runtime::net::Address;

use crate::conf::{ServerConf, ServerMode};
use crate::idle::PeerIdle;
use crate::stats::{PeerCounters, PeerStats};

/// The clock of peers starts so late that "never" (0) is older than any `fail_timeout`.
const CLOCK_OFFSET_MS: u64 = 1 << 42;

/// Milliseconds on the clock of peers.
pub(crate) fn ms(now: Instant) -> u64 {
    static START: OnceLock<Instant> = OnceLock::new();
    let start = *START.get_or_init(|| now);
    match now.checked_duration_since(start) {
        Some(since) => CLOCK_OFFSET_MS + since.as_millis() as u64,
        None => CLOCK_OFFSET_MS - (start - now).as_millis() as u64,
    }
}

/// One address of a server of the group.
#[derive(Debug)]
pub struct Peer {
    /// The number of its server in the group.
    pub(crate) server: usize,
    /// What operators call it: unique within the group.
    pub(crate) id: u32,
    pub(crate) address: Address,
    /// `127.0.0.1:8080`, `unix:/run/x.sock`
    pub(crate) name: Box<str>,
    /// The server as the configuration names it: `backend.example:8080`; what `hash consistent`
    /// places.
    pub(crate) server_name: Box<[u8]>,
    /// Its ID for `sticky`: the `route`, or a hash of its address.
    pub(crate) sid: Box<[u8]>,
    pub(crate) weight: u32,
    /// 0: no limit.
    pub(crate) max_conns: u32,
    /// 0: failures are not counted.
    pub(crate) max_fails: u32,
    pub(crate) fail_timeout_ms: u64,
    pub(crate) slow_start_ms: u64,
    pub(crate) down: ServerMode,
    pub(crate) backup: bool,
    pub(crate) state: Arc<PeerState>,
}

/// The observed state of a peer. All times are on the clock of [`ms`].
#[derive(Debug)]
pub(crate) struct PeerState {
    /// Unique in the process.
    pub(crate) id: u64,
    /// The weight that `effective` and `current` belong to.
    pub(crate) weight: AtomicU32,
    pub(crate) conns: AtomicU32,
    pub(crate) fails: AtomicU32,
    /// The last failure.
    pub(crate) accessed: AtomicU64,
    /// The last failure, or the last retry after one.
    pub(crate) checked: AtomicU64,
    pub(crate) effective: AtomicI64,
    pub(crate) current: AtomicI64,
    /// Start of the recovery (`slow_start`); 0: not recovering.
    pub(crate) recovering_since: AtomicU64,
    /// [`HEALTHY`], [`UNHEALTHY`] or [`UNCHECKED`].
    pub(crate) health: AtomicU8,
    /// Set when failures have made it unavailable; for statistics.
    pub(crate) unavailable: AtomicBool,
    /// Whether health, failures, recovery or the effective weight may differ from those of a peer without
    /// trouble. Set after each such change; only [`Peer::settle`] clears it. Balancing reads this instead of them.
    unsettled: AtomicBool,
    /// For `least_time`: averages in ms.
    pub(crate) connect_time: AtomicU64,
    /// Until the header, or the first byte.
    pub(crate) header_time: AtomicU64,
    pub(crate) response_time: AtomicU64,
    pub(crate) inflight_time: AtomicU64,
    /// For `least_time … inflight`: time spent so far by requests in flight, as of `changed`.
    pub(crate) inflight_last: AtomicU64,
    pub(crate) inflight_changed: AtomicU64,
    pub(crate) inflight: AtomicU32,
    pub(crate) counters: PeerCounters,
    pub(crate) idle: PeerIdle,
}

const HEALTHY: u8 = 0;
const UNHEALTHY: u8 = 1;
/// `mandatory`: not used before its first check has passed.
const UNCHECKED: u8 = 2;

/// Whether and why a peer is not used, in the terms of status pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Availability {
    /// In use.
    Up,
    /// `drain`: only requests bound to it by `sticky` get there.
    Draining,
    /// `down`
    Down,
    /// `max_fails` were reached less than `fail_timeout` ago.
    Unavailable,
    /// The first health check has not finished.
    Checking,
    /// Health checks have failed.
    Unhealthy,
}

impl Availability {
    /// As shown on status pages (NGINX Plus: `state` of a peer).
    pub fn name(self) -> &'static str {
        match self {
            Availability::Up => "up",
            Availability::Draining => "draining",
            Availability::Down => "down",
            Availability::Unavailable => "unavail",
            Availability::Checking => "checking",
            Availability::Unhealthy => "unhealthy",
        }
    }
}

impl PeerState {
    pub(crate) fn new(weight: u32) -> Arc<PeerState> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Arc::new(PeerState {
            id: NEXT.fetch_add(1, Relaxed),
            weight: AtomicU32::new(weight),
            conns: AtomicU32::new(0),
            fails: AtomicU32::new(0),
            accessed: AtomicU64::new(0),
            checked: AtomicU64::new(0),
            effective: AtomicI64::new(i64::from(weight)),
            current: AtomicI64::new(0),
            recovering_since: AtomicU64::new(0),
            health: AtomicU8::new(HEALTHY),
            unavailable: AtomicBool::new(false),
            unsettled: AtomicBool::new(true),
            connect_time: AtomicU64::new(0),
            header_time: AtomicU64::new(0),
            response_time: AtomicU64::new(0),
            inflight_time: AtomicU64::new(0),
            inflight_last: AtomicU64::new(0),
            inflight_changed: AtomicU64::new(0),
            inflight: AtomicU32::new(0),
            counters: PeerCounters::default(),
            idle: PeerIdle::default(),
        })
    }

    /// To be called after every change that takes a peer out of balancing, or lowers its share.
    fn unsettle(&self) {
        self.unsettled.store(true, Release);
    }
}

impl Peer {
    /// A peer of the server with this number; its state is new.
    pub(crate) fn new(
        (server, id): (usize, u32),
        conf: &ServerConf,
        address: Address,
        server_name: Box<[u8]>,
        weight: u32,
        backup: bool,
    ) -> Peer {
        let name = address.to_string().into_boxed_str();
        let sid = match &conf.route {
            Some(route) => route.as_ref().into(),
            None => crate::sticky::sid_of(&name),
        };
        Peer {
            server,
            id,
            address,
            name,
            server_name,
            sid,
            weight,
            max_conns: conf.max_conns,
            max_fails: conf.max_fails,
            fail_timeout_ms: conf.fail_timeout.0.saturating_mul(1000),
            slow_start_ms: conf.slow_start.0.saturating_mul(1000),
            down: conf.down,
            backup,
            state: PeerState::new(weight),
        }
    }

    /// Takes over the state from another generation.
    pub(crate) fn adopt(&mut self, state: &Arc<PeerState>) {
        if state.weight.swap(self.weight, Relaxed) != self.weight {
            state.effective.store(i64::from(self.weight), Relaxed);
            state.current.store(0, Relaxed);
            state.unsettle();
        }
        self.state = state.clone();
    }

    /// The address to connect to.
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// The address as text: `127.0.0.1:8080`, `unix:/run/x.sock`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Appends the IP address without the port, or the Unix socket as `unix:/run/x.sock`.
    pub fn append_host(&self, out: &mut Vec<u8>) {
        match self.address.inet() {
            Some(address) => {
                let _ = write!(out, "{}", address.ip());
            }
            None => out.extend_from_slice(self.name.as_bytes()),
        }
    }

    /// The server as the configuration names it.
    pub fn server_name(&self) -> &[u8] {
        &self.server_name
    }

    /// The number of its server: the position in the configuration, or a later one.
    pub fn server(&self) -> usize {
        self.server
    }

    /// `max_fails`
    pub fn max_fails(&self) -> u32 {
        self.max_fails
    }

    /// `fail_timeout`
    pub fn fail_timeout(&self) -> Duration {
        Duration::from_millis(self.fail_timeout_ms)
    }

    /// Its ID for APIs: unique within the group, never used again.
    pub fn id(&self) -> u32 {
        self.id
    }

    /// Its ID for `sticky`.
    pub fn sid(&self) -> &[u8] {
        &self.sid
    }

    /// The weight.
    pub fn weight(&self) -> u32 {
        self.weight
    }

    /// Maximum number of connections; 0: no limit.
    pub fn max_conns(&self) -> u32 {
        self.max_conns
    }

    /// Whether it is used only if the others are unavailable.
    pub fn is_backup(&self) -> bool {
        self.backup
    }

    /// Sets the result of a health check. An unhealthy peer gets no requests; one that becomes healthy
    /// starts over: its failures are cleared and `slow_start` begins. True if that changes whether requests go there
    /// and was no first check that has passed.
    pub fn set_healthy(&self, healthy: bool, now: Instant) -> bool {
        let new = if healthy { HEALTHY } else { UNHEALTHY };
        let old = self.state.health.swap(new, Relaxed);
        self.state.unsettle();
        if healthy && old != HEALTHY {
            self.state.fails.store(0, Relaxed);
            self.recovered(ms(now));
        }
        if !healthy && old == HEALTHY {
            self.state.counters.became_unavailable(ms(now));
        }
        if !healthy && old != UNHEALTHY {
            self.state.counters.became_unhealthy();
        }
        if healthy { old == UNHEALTHY } else { old != UNHEALTHY }
    }

    /// Counts a health check.
    pub fn count_check(&self, passed: bool) {
        self.state.counters.checked(passed);
    }

    /// Starts health checks: with `mandatory` it gets no requests until one has passed. With
    /// `persistent`, a peer that had passed checks before may continue.
    pub(crate) fn begin_checks(&self, mandatory: bool, persistent: bool) {
        if mandatory && !(persistent && self.state.counters.was_checked()) {
            self.set_unchecked();
        }
    }

    /// `health_check mandatory`: gets no requests before its first check has passed. No effect on
    /// a peer that was checked before.
    pub fn set_unchecked(&self) {
        // A peer taken over from the previous generation may have failed its checks there.
        if self.state.health.load(Relaxed) == HEALTHY {
            self.state.health.store(UNCHECKED, Relaxed);
            self.state.unsettle();
        }
    }

    /// Ends the effect of health checks: a reload has removed them.
    pub fn clear_health(&self) {
        self.state.health.store(HEALTHY, Relaxed);
    }

    /// Its server was removed: requests that began before don't try it, either.
    pub(crate) fn retire(&self) {
        self.state.health.store(UNHEALTHY, Relaxed);
        self.state.unsettle();
    }

    /// Whether health checks allow its use.
    pub(crate) fn is_healthy(&self) -> bool {
        self.state.health.load(Relaxed) == HEALTHY
    }

    /// Whether its failures keep it from being used now.
    pub(crate) fn has_failed(&self, now: u64) -> bool {
        self.max_fails > 0
            && self.state.fails.load(Relaxed) >= self.max_fails
            && now.saturating_sub(self.state.checked.load(Relaxed)) <= self.fail_timeout_ms
    }

    /// Whether it has reached its maximum number of connections.
    pub(crate) fn is_full(&self) -> bool {
        self.max_conns > 0 && self.state.conns.load(Relaxed) >= self.max_conns
    }

    /// Whether a request may go there; `bound`: by `sticky`.
    #[inline]
    pub(crate) fn is_available(&self, now: u64, bound: bool) -> bool {
        let up = match self.down {
            ServerMode::Up => true,
            ServerMode::Draining => bound,
            ServerMode::Down => false,
        };
        up && self.is_healthy() && !self.has_failed(now) && !self.is_full()
    }

    /// Whether it is available and needs no closer look: the common case, in few instructions.
    #[inline]
    pub(crate) fn is_settled(&self) -> bool {
        self.max_conns == 0 && self.down == ServerMode::Up && !self.state.unsettled.load(Relaxed)
    }

    /// Lets balancing skip the closer look from now on, if there is nothing to see.
    pub(crate) fn settle(&self) {
        let state = &self.state;
        if !state.unsettled.load(Relaxed) {
            return;
        }
        // Cleared first: a change that this look misses sets it again.
        state.unsettled.swap(false, AcqRel);
        let is_at_rest = self.is_healthy()
            && state.fails.load(Relaxed) == 0
            && state.recovering_since.load(Relaxed) == 0
            && state.effective.load(Relaxed) == i64::from(state.weight.load(Relaxed));
        if !is_at_rest {
            state.unsettle();
        }
    }

    /// Whether it may get a request if there is no other peer: failures don't count.
    pub(crate) fn is_usable_alone(&self, bound: bool) -> bool {
        let up = match self.down {
            ServerMode::Up => true,
            ServerMode::Draining => bound,
            ServerMode::Down => false,
        };
        up && self.is_healthy() && !self.is_full()
    }

    /// The time at which a failed peer may be used again.
    pub(crate) fn recovers_at(&self) -> u64 {
        self.state.checked.load(Relaxed).saturating_add(self.fail_timeout_ms + 1)
    }

    /// Counts a new connection.
    pub(crate) fn acquire(&self, now: u64) {
        self.state.conns.fetch_add(1, Relaxed);
        self.state.counters.selected(now);
    }

    /// Notes the time of the try, once per `fail_timeout`.
    pub(crate) fn note_check(&self, now: u64) {
        if now.saturating_sub(self.state.checked.load(Relaxed)) > self.fail_timeout_ms {
            self.state.checked.store(now, Relaxed);
        }
    }

    /// Counts a failure; true if that made it unavailable.
    pub(crate) fn failed(&self, now: u64) -> bool {
        let state = &self.state;
        let fails = state.fails.fetch_add(1, Relaxed).saturating_add(1);
        state.accessed.store(now, Relaxed);
        state.checked.store(now, Relaxed);
        state.recovering_since.store(0, Relaxed);
        state.unsettle();
        if self.max_fails == 0 {
            return false;
        }
        let loss = i64::from(self.weight / self.max_fails);
        let effective = state.effective.load(Relaxed).saturating_sub(loss).max(0);
        state.effective.store(effective, Relaxed);
        state.unsettle();
        let disabled = fails >= self.max_fails;
        if disabled && !state.unavailable.swap(true, Relaxed) {
            state.counters.became_unavailable(now);
        }
        disabled
    }

    /// A request succeeded: clears failures if it was the retry after them. True if that made it available.
    pub(crate) fn worked(&self, now: u64) -> bool {
        let state = &self.state;
        let is_back = state.accessed.load(Relaxed) < state.checked.load(Relaxed)
            && state.fails.swap(0, Relaxed) > 0
            && state.unavailable.swap(false, Relaxed);
        if is_back {
            self.recovered(now);
        }
        is_back
    }

    fn recovered(&self, now: u64) {
        self.state.unavailable.store(false, Relaxed);
        if self.slow_start_ms > 0 {
            self.state.recovering_since.store(now, Relaxed);
            self.state.unsettle();
        }
        self.state.counters.became_available(now);
    }

    /// A weight as balancers count it: times [`WEIGHT_SCALE`], less while it starts slowly.
    #[inline]
    pub(crate) fn scaled(&self, weight: i64, now: u64) -> i64 {
        let full = weight * WEIGHT_SCALE;
        let since = self.state.recovering_since.load(Relaxed);
        if since == 0 { full } else { self.scaled_since(full, since, now) }
    }

    #[cold]
    fn scaled_since(&self, full: i64, since: u64, now: u64) -> i64 {
        let elapsed = now.saturating_sub(since);
        if elapsed >= self.slow_start_ms {
            self.state.recovering_since.store(0, Relaxed);
            return full;
        }
        // Below 2^16 * 2^10 * 2^53 only for times that configurations have; saturates beyond.
        (i128::from(full) * i128::from(elapsed) / i128::from(self.slow_start_ms)) as i64
    }

    /// The state, for status pages.
    pub fn availability(&self, now: Instant) -> Availability {
        match (self.down, self.state.health.load(Relaxed)) {
            (ServerMode::Down, _) => Availability::Down,
            (_, UNHEALTHY) => Availability::Unhealthy,
            (_, UNCHECKED) => Availability::Checking,
            _ if self.has_failed(ms(now)) => Availability::Unavailable,
            (ServerMode::Draining, _) => Availability::Draining,
            (ServerMode::Up, _) => Availability::Up,
        }
    }
}

/// Weights are counted in thousandths while balancing, so that a slow start has steps.
pub(crate) const WEIGHT_SCALE: i64 = 1000;

impl Peer {
    /// The same peer with what another generation has learnt.
    pub(crate) fn with_state(&self, state: &Arc<PeerState>) -> Peer {
        let mut peer = Peer {
            server: self.server,
            id: self.id,
            address: self.address.clone(),
            name: self.name.clone(),
            server_name: self.server_name.clone(),
            sid: self.sid.clone(),
            weight: self.weight,
            max_conns: self.max_conns,
            max_fails: self.max_fails,
            fail_timeout_ms: self.fail_timeout_ms,
            slow_start_ms: self.slow_start_ms,
            down: self.down,
            backup: self.backup,
            state: self.state.clone(),
        };
        peer.adopt(state);
        peer
    }

    /// The counters.
    pub fn stats(&self) -> PeerStats {
        let state = &self.state;
        PeerStats {
            name: self.name.to_string(),
            active: state.conns.load(Relaxed),
            idle: state.idle.count(),
            header_time_ms: state.header_time.load(Relaxed),
            response_time_ms: state.response_time.load(Relaxed),
            ..state.counters.snapshot()
        }
    }
}
