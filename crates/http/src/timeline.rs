//! The times of a request, for those who explain them: logs, traces, lists of recent requests.
//!
//! Two moments, that of the complete head and that of the response, are noted only in locations for which
//! [`LocationBuilder::note_times`] was called; the rest is counted for every request anyway.

use std::cell::Cell;
use std::time::{Duration, Instant};

use nowait_runtime::{now, stats};

use crate::module::{FilterStage, Handler, LocationBuilder, Phase, Step};
use crate::request::Request;
use crate::response::Response;
use crate::slots::Key;
use crate::upstream_state::UpstreamState;
use crate::variables::core::seconds;

/// The moments that are noted.
#[derive(Debug, Default)]
struct Moments {
    head: Cell<Option<Instant>>,
    response: Cell<Option<Instant>>,
}

static MOMENTS: Key<Moments> = Key::reusing(|moments| {
    *moments = Moments::default();
    true
});

impl LocationBuilder {
    /// Notes the moments of requests that [`PhaseTimes`] shows.
    pub fn note_times(&mut self) {
        if !std::mem::replace(&mut self.notes_times, true) {
            self.handler(Phase::PostRead, NoteHead);
            self.filter(FilterStage::Encoding, |request: &mut Request, _: &mut Response| {
                request.state_mut().of_mut(&MOMENTS).response.set(Some(now()));
                Ok(())
            });
        }
    }
}

/// Notes that the head of a request is complete.
struct NoteHead;

impl Handler for NoteHead {
    fn handle<'r>(&'r self, request: &'r mut Request) -> Step<'r> {
        let moments = request.state_mut().of_mut(&MOMENTS);
        if moments.head.get().is_none() {
            moments.head.set(Some(now()));
        }
        Step::Next(request)
    }
}

/// The times of a request until now. Those of tries are sums over all of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PhaseTimes {
    /// From the first byte to the end of the head; `None`: not noted.
    pub received: Option<Duration>,
    /// In the `queue` of a group of servers.
    pub queue: Duration,
    /// Connecting to servers.
    pub connect: Duration,
    /// Until servers had sent their heads.
    pub header: Duration,
    /// Until servers had sent their responses.
    pub upstream: Duration,
    /// Waiting for threads of pools.
    pub pool_wait: Duration,
    /// File operations on threads: mostly waiting for disks.
    pub disk: Duration,
    /// From the first byte to the response's head; `None`: not noted, or there is no response.
    pub response: Option<Duration>,
    /// From the first byte until now.
    pub total: Duration,
}

impl PhaseTimes {
    /// Those of a request.
    pub fn of(request: &Request) -> Self {
        let started = request.started();
        let since = |at: Instant| at.saturating_duration_since(started);
        let spent = request.spent().spent();
        let mut times = Self {
            pool_wait: spent.waited(),
            disk: spent.served(),
            total: since(now()),
            ..Self::default()
        };
        if let Some(moments) = request.state().get(&MOMENTS) {
            times.received = moments.head.get().map(since);
            times.response = moments.response.get().map(since);
        }
        if let Some(state) = UpstreamState::get(request.state()) {
            for one in state.tries().iter() {
                times.queue += one.queue.unwrap_or_default();
                times.connect += one.connect.unwrap_or_default();
                times.header += one.header.unwrap_or_default();
                times.upstream += one.response.unwrap_or_default();
            }
        }
        times
    }

    /// For a response: the time that a client took it, from its head on.
    pub fn sending(&self) -> Option<Duration> {
        self.response.map(|response| self.total.saturating_sub(response))
    }

    /// Waiting for disks: for a thread, and then for the disk.
    pub fn disk_wait(&self) -> Duration {
        self.pool_wait + self.disk
    }

    /// The names and the values that are known.
    pub fn known(&self) -> impl Iterator<Item = (&'static str, Duration)> {
        [
            ("received", self.received),
            ("queue", Some(self.queue)),
            ("connect", Some(self.connect)),
            ("upstream", Some(self.upstream)),
            ("pool_wait", Some(self.pool_wait)),
            ("disk", Some(self.disk)),
            ("response", self.response),
            ("sending", self.sending()),
            ("total", Some(self.total)),
        ]
        .into_iter()
        .filter_map(|(name, time)| Some((name, time?)))
    }

    /// Appends them for a log: `received=0.000 queue=0.000 …`, in seconds.
    pub fn append(&self, out: &mut Vec<u8>) {
        for (at, (name, time)) in self.known().enumerate() {
            if at > 0 {
                out.push(b' ');
            }
            out.extend_from_slice(name.as_bytes());
            out.push(b'=');
            seconds(time, out);
        }
    }
}

/// Time that the event loop of this worker was busy for at least a millisecond at a stretch while a request was in
/// progress.
pub fn loop_delay(request: &Request) -> Duration {
    stats::delay_since(request.started())
}
