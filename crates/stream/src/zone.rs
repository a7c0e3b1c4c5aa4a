//! `status_zone`: counts the sessions of a server under a name, for status pages that `http` serves. NGINX Plus: the
//! server zones of `stream` in its API.
//!
//! A session is counted by its own counters of the worker ([`nowait_front::zones`]), while it is served and at its end.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use nowait_conf::{Cx, Scope};
use nowait_front::sessions::SessionZone;
use nowait_front::tally::{add, add_many, take};
use nowait_front::zone_counters;
use nowait_front::zones::{self, NamedZones, OwnCounters, StatusZone, StatusZoneSetting};

use crate::status::Status;

nowait_conf::directives! {
    /// Counters of sessions.
    #[derive(Debug)]
    module "stream_core";
    pub struct ZoneConf with ZoneConfLayer;

    /// Counts sessions under a name, for `status_api`, `metrics` and `api` in `http`: those in progress, those that
    /// have ended by status, and bytes. Servers with the same name are counted together. A session whose server is
    /// chosen by the name in its TLS handshake counts for that server from then on. The counters survive reloads.
    status_zone: nowait_conf::LocalSetting<StatusZoneSetting<SessionCounters>>, in STREAM_SERVER, args "zone";
}

/// The counters of one worker.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct SessionCounters {
    processing: AtomicU64,
    ended: AtomicU64,
    discarded: AtomicU64,
    passed: AtomicU64,
    received: AtomicU64,
    sent: AtomicU64,
    /// By status, in the order of [`Status::ALL`].
    statuses: [AtomicU64; Status::ALL.len()],
}

zone_counters!(SessionCounters, ());

impl NamedZones for SessionCounters {
    fn kind(_: &Cx<'_>) {}
}

/// The zone of a server.
pub(crate) type SessionsZone = StatusZone<SessionCounters>;

/// The zone of the server that a chain of blocks describes.
pub(crate) fn of(cx: &mut Cx<'_>, chain: &[&Scope]) -> Option<Arc<SessionsZone>> {
    ZoneConf::resolve(cx, chain).status_zone.0.as_ref().map(|setting| setting.0.clone())
}

/// The place of a session in the zone of its server.
#[derive(Default)]
pub(crate) struct ZonePlace(Cell<Option<Rc<OwnCounters<SessionCounters>>>>);

impl ZonePlace {
    /// The session is now one of the server with this zone.
    pub(crate) fn enter(&self, zone: Option<&SessionsZone>) {
        let own = zone.map(StatusZone::own);
        own.iter().for_each(|own| add(&own.processing));
        let before = self.0.replace(own);
        before.iter().for_each(|before| take(&before.processing));
    }

    /// The session has ended.
    pub(crate) fn leave(&self, end: &SessionEnd) {
        let Some(own) = self.0.take() else { return };
        take(&own.processing);
        add(&own.ended);
        add_many(&own.received, end.received);
        add_many(&own.sent, end.sent);
        match end.outcome {
            SessionOutcome::Ended(status) => {
                let at = Status::ALL.iter().position(|one| *one == status);
                at.iter().for_each(|at| add(&own.statuses[*at]));
            }
            SessionOutcome::Passed => add(&own.passed),
            SessionOutcome::Cut => add(&own.discarded),
        }
    }
}

/// How a session ended.
pub(crate) struct SessionEnd {
    pub(crate) received: u64,
    pub(crate) sent: u64,
    pub(crate) outcome: SessionOutcome,
}

/// What became of a session.
pub(crate) enum SessionOutcome {
    Ended(Status),
    /// Its connection was handed over to another listening socket.
    Passed,
    /// It has no status: its worker ended first.
    Cut,
}

/// The state of all zones that are in use, by name.
pub fn snapshot() -> Vec<SessionZone> {
    zones::snapshot((), read)
}

fn read(name: &str, workers: &[Arc<SessionCounters>]) -> SessionZone {
    let sum = |counter: fn(&SessionCounters) -> &AtomicU64| {
        workers.iter().map(|one| counter(one).load(Ordering::Relaxed)).sum::<u64>()
    };
    let by_status =
        |at: usize| workers.iter().map(|one| one.statuses[at].load(Ordering::Relaxed)).sum::<u64>();
    let statuses = Status::ALL.iter().enumerate().map(|(at, one)| (one.code(), by_status(at)));
    SessionZone {
        name: name.to_owned(),
        processing: sum(|one| &one.processing),
        ended: sum(|one| &one.ended),
        discarded: sum(|one| &one.discarded),
        passed: sum(|one| &one.passed),
        received: sum(|one| &one.received),
        sent: sum(|one| &one.sent),
        statuses: statuses.collect(),
    }
}
