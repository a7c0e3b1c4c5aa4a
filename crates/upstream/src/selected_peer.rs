//! A peer chosen for a request: it counts as one of its connections until it is released.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use nowait_runtime::net::Address;

use crate::balance;
use crate::group::Group;
use crate::idle::{self, IdleConnection, Tag};
use crate::peer::{Peer, ms};
use crate::peer_events;
use crate::removal::RemovedFuture;
use crate::stats::StatusClass;

/// The duration of a response, from the choice of the peer on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Times {
    /// To the end of the header.
    pub header: Duration,
    /// To the end of the response.
    pub response: Duration,
}

/// A peer that a request is sent to. Releasing it without a verdict (drop) counts neither as
/// success nor as failure: the client has disconnected, or the peer was not used after all.
pub struct SelectedPeer {
    group: Arc<Group>,
    peer: Arc<Peer>,
    /// The time at which it was chosen.
    since: u64,
    /// It is the only peer of the group, which is never unavailable.
    single: bool,
    /// It counts among the requests without a response (`least_time … inflight`).
    inflight: bool,
    /// The time to the header was already averaged.
    header_counted: bool,
}

impl SelectedPeer {
    pub(crate) fn new(
        group: Arc<Group>,
        peer: Arc<Peer>,
        now: u64,
        single: bool,
        inflight: bool,
    ) -> SelectedPeer {
        if inflight {
            peer.inflight_begun(now);
        }
        SelectedPeer { group, peer, since: now, single, inflight, header_counted: false }
    }

    /// The peer.
    pub fn peer(&self) -> &Arc<Peer> {
        &self.peer
    }

    /// The group that it is of.
    pub fn group(&self) -> &Arc<Group> {
        &self.group
    }

    /// Identifies the connections that requests to the peer may share: numbers of the group's
    /// connections and of the peer, the same in all generations of the group.
    pub fn pool(&self) -> (u64, u64) {
        (self.group.pool_id(), self.peer.state.id)
    }

    /// The address to connect to.
    pub fn address(&self) -> &Address {
        self.peer.address()
    }

    /// The address as text: `127.0.0.1:8080`, `unix:/run/x.sock`.
    pub fn name(&self) -> &str {
        self.peer.name()
    }

    /// The server as the configuration names it.
    pub fn server_name(&self) -> &[u8] {
        self.peer.server_name()
    }

    /// The connection is established, this long after the choice: earlier failures are over. For
    /// protocols whose responses may take long.
    pub fn connected(&mut self, now: Instant, time: Duration) {
        use crate::conf::{Balancer, Time};
        if !self.single {
            self.worked(now);
        }
        let time = time.as_millis() as u64;
        balance::average(&self.peer.state.connect_time, time);
        let balancer = &self.group.conf().balancer;
        if matches!(balancer, Balancer::LeastTime { time: Time::Connect, .. }) {
            self.end_inflight(now, time);
        }
    }

    /// The response header, or the first byte, has arrived, this long after the choice. For
    /// `least_time header` and `first_byte`; may be omitted for other methods.
    pub fn header_received(&mut self, now: Instant, time: Duration) {
        use crate::conf::{Balancer, Time};
        let balancer = &self.group.conf().balancer;
        let Balancer::LeastTime { time: Time::Header | Time::FirstByte, inflight: true } = balancer
        else {
            return;
        };
        let time = time.as_millis() as u64;
        balance::average(&self.peer.state.header_time, time);
        self.header_counted = true;
        self.end_inflight(now, time);
    }

    fn end_inflight(&mut self, now: Instant, time: u64) {
        if std::mem::take(&mut self.inflight) {
            self.peer.inflight_ended(ms(now), time);
        }
    }

    /// The request succeeded. The `times` of a complete response go into the averages of
    /// `least_time`.
    pub fn succeeded(mut self, now: Instant, times: Option<Times>) {
        if let Some(times) = times {
            let response = times.response.as_millis() as u64;
            self.end_inflight(now, response);
            balance::average(&self.peer.state.response_time, response);
            if !self.header_counted {
                balance::average(&self.peer.state.header_time, times.header.as_millis() as u64);
            }
        }
        if self.single {
            self.peer.state.fails.store(0, Relaxed);
        } else {
            self.worked(now);
        }
    }

    fn worked(&self, now: Instant) {
        if self.peer.worked(ms(now)) {
            peer_events::is_up(self.group.name(), &self.peer);
        }
    }

    /// The request failed as defined by `proxy_next_upstream`. True if that made the peer
    /// unavailable: "upstream server temporarily disabled".
    pub fn failed(self, now: Instant) -> bool {
        self.peer.state.counters.failed();
        let is_disabled = !self.single && self.peer.failed(ms(now));
        if is_disabled {
            peer_events::is_down(self.group.name(), &self.peer, "has failed max_fails times");
        }
        is_disabled
    }

    /// Another peer is to replace its response (403, 404), but that is no failure.
    pub fn passed_on(self, now: Instant) {
        if !self.single {
            self.worked(now);
        }
    }

    /// Resolves when the peer has left the group.
    pub fn removed(&self) -> RemovedFuture {
        RemovedFuture::new(&self.group, &self.peer)
    }

    /// Counts a response by its status.
    pub fn count_response(&self, status: u16) {
        self.peer.state.counters.response(StatusClass::of(status));
    }

    /// Counts bytes sent to the peer and received from it.
    pub fn count_bytes(&self, sent: u64, received: u64) {
        self.peer.state.counters.bytes(sent, received);
    }

    /// An idle connection to the peer: the one most recently used by this worker.
    pub fn idle_take(&self, tag: Tag) -> Option<Box<IdleConnection>> {
        idle::take(&self.group, &self.peer, tag)
    }

    /// Like [`idle_take`](Self::idle_take); if this worker has none, one of another worker, which
    /// takes some tens of microseconds.
    pub async fn idle_take_any(&self, tag: Tag) -> Option<Box<IdleConnection>> {
        match self.idle_take(tag) {
            Some(connection) => Some(connection),
            None => idle::take_remote(&self.group, &self.peer, tag).await,
        }
    }

    /// Keeps a connection for later requests if `keepalive` allows it; otherwise closes it. It must have no
    /// data in flight: the response was read to its end and allows reuse.
    pub fn idle_put(&self, connection: Box<IdleConnection>, tag: Tag) {
        idle::put(&self.group, &self.peer, connection, tag);
    }
}

impl Drop for SelectedPeer {
    fn drop(&mut self) {
        if self.inflight {
            self.peer.inflight_ended(self.since, 0);
        }
        let full = self.peer.is_full();
        let before = self.peer.state.conns.fetch_sub(1, Relaxed);
        debug_assert!(before > 0, "a peer is released as often as it is chosen");
        if full && self.group.conf().queue.is_some() {
            let first = self.group.lock().waiting.first();
            if let Some(waker) = first {
                waker.wake();
            }
        }
    }
}

impl fmt::Debug for SelectedPeer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Picked").field("peer", &self.peer.name()).finish_non_exhaustive()
    }
}
