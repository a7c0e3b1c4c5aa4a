//! The preaccess phase: request rates and concurrency. nginx: `ngx_http_limit_req_module`,
//! `ngx_http_limit_conn_module`.
//!
//! Decisions are immediate; delayed requests wait. All workers share the zones with the counts.

pub mod conf;

mod explain;
mod fetches;
pub mod requests;

use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use nowait_conf::{Cx, Scope};

pub use nowait_front::limit::connections::CountGuard;
use nowait_front::limit::connections::{self, ConnectionLimit, ConnectionVerdict, CountError};
use nowait_front::limit::{Decision, ONE, key};
use nowait_runtime::task::{Either, select};
use nowait_runtime::time::process_start;
use nowait_runtime::{now, sleep};

use self::conf::{
    LIMIT_CONN_ROWS, LIMIT_REQ_ROWS, LimitConnConf, LimitReqConf, LimitZones, Limits, RequestLimit,
    UnresolvedLimitZones,
};
use nowait_backend::upstream::gate::GATE;
use nowait_http::conf::HttpConf;
use nowait_http::log::Level;
use nowait_http::module::{Handler, HandlerExplanation, LocationBuilder, Module, Phase, Step};
use nowait_http::outcome::Outcome;
use nowait_http::request::Request;
use nowait_http::response::LocalFuture;
use nowait_http::slots::Key;
use nowait_http::special_pages::internal::CLIENT_CLOSED;
use nowait_http::trace::{Trace, TraceSubject};
use nowait_http::variables::Builtin;
use nowait_http::variables::core::builtins;

use explain::LimitKind;
use fetches::Fetches;
use requests::{BucketRequest, Verdict};

/// Longest key that is limited. nginx: the length of a key has two bytes.
const REQUEST_KEY_BYTES_MAX: usize = 65_535;

/// This module.
pub static MODULE: Module = Module {
    rows: &[LIMIT_REQ_ROWS, LimitReqConf::ROWS, LIMIT_CONN_ROWS, LimitConnConf::ROWS],
    build: Some(build),
    variables: BUILTINS,
    finish: Some(finish),
    adopt: Some(adopt),
    ..Module::EMPTY
};

fn build(cx: &mut Cx<'_>, chain: &[&Scope], parts: &mut LocationBuilder) {
    let Some(limits) = Limits::resolve(cx, chain) else { return };
    let limits = Arc::new(limits);
    if !limits.requests.is_empty() {
        parts.handler(Phase::Preaccess, Requests(limits.clone()));
    }
    if !limits.connections.is_empty() {
        parts.handler(Phase::Preaccess, Connections(limits.clone()));
    }
    if !limits.fetches.is_empty() || !limits.fetches_at_once.is_empty() {
        parts.settings.set(&GATE, Box::new(Fetches(limits)));
    }
}

/// The zones of the configuration.
static ZONES: Key<LimitZones> = Key::new();

/// Limits may name zones that are defined later: at the end, all must be defined.
fn finish(cx: &mut Cx<'_>, conf: &mut HttpConf) {
    let zones = cx.take_global::<UnresolvedLimitZones>().resolve(cx);
    conf.settings.set(&ZONES, zones);
}

fn adopt(conf: &mut HttpConf, previous: &HttpConf) {
    if let (Some(zones), Some(previous)) =
        (conf.settings.get_mut(&ZONES), previous.settings.get(&ZONES))
    {
        zones.adopt(previous);
    }
}

/// The variables of this module.
const BUILTINS: &[Builtin] = builtins! {
    /// Result of `limit_conn`: `PASSED`, `REJECTED` or `REJECTED_DRY_RUN`. Limits with `fetches`
    /// are evaluated last.
    "limit_conn_status" => |r, out| {
        let last = fetched(r, |own| own.fetches_at_once);
        said(last.or_else(|| counted(r, |all| &all.connections)), out)
    };
    /// Result of `limit_req`: `PASSED`, `DELAYED`, `REJECTED`, `DELAYED_DRY_RUN` or
    /// `REJECTED_DRY_RUN`. Limits with `fetches` are evaluated last.
    "limit_req_status" => |r, out| {
        let last = fetched(r, |own| own.fetches);
        said(last.or_else(|| counted(r, |all| &all.requests)), out)
    };
};

fn counted(
    request: &Request,
    of: fn(&CountDecisions) -> &Cell<Option<Decision>>,
) -> Option<Decision> {
    of(request.shared().state.get(&COUNTED)?).get()
}

fn fetched(request: &Request, of: fn(&FetchDecisions) -> Option<Decision>) -> Option<Decision> {
    of(request.state().get(&OWN)?)
}

fn said(decision: Option<Decision>, out: &mut Vec<u8>) -> bool {
    let Some(decision) = decision else { return false };
    out.extend_from_slice(decision.name().as_bytes());
    true
}

/// Results of the limits that count requests. Each kind is evaluated once: internal redirects and
/// subrequests don't count again.
#[derive(Default)]
struct CountDecisions {
    requests: Cell<Option<Decision>>,
    connections: Cell<Option<Decision>>,
}

/// The last results of the limits that count fetches, and the zones that count the request.
#[derive(Default)]
struct FetchDecisions {
    fetches: Option<Decision>,
    fetches_at_once: Option<Decision>,
    held: Vec<CountGuard>,
}

static COUNTED: Key<CountDecisions> = Key::new();

static OWN: Key<FetchDecisions> = Key::new();

/// The effect on a request.
pub enum LimitEffect {
    /// It continues.
    Go,
    /// It continues later.
    Wait(Duration),
    /// Refused, with this status.
    Refuse(u16),
}

/// `limit_req`
struct Requests(Arc<Limits>);

impl Handler for Requests {
    fn handle<'r>(&'r self, request: &'r mut Request) -> Step<'r> {
        if counted(request, |all| &all.requests).is_some() {
            return Step::Next(request);
        }
        let (decision, turn) = ask(request, &self.0, &self.0.requests);
        request.shared().state.of(&COUNTED).requests.set(decision);
        match turn {
            LimitEffect::Go => Step::Next(request),
            LimitEffect::Refuse(status) => Step::Done(request, Outcome::status(status)),
            LimitEffect::Wait(time) => Step::wait(async move {
                let exchange = request.exchange().clone();
                match select(sleep(time), exchange.hangup()).await {
                    Either::Left(()) => Step::Next(request),
                    // Don't start work for a client that has disconnected meanwhile. nginx:
                    // `ngx_http_test_reading`.
                    Either::Right(_) => {
                        let text = format_args!("client prematurely closed connection");
                        request.log(Level::Info, text);
                        Step::Done(request, Outcome::status(CLIENT_CLOSED))
                    }
                }
            }),
        }
    }

    /// The zones are empty: the request passes, and is delayed by none.
    fn explain<'a>(
        &'a self,
        request: &'a mut Request,
        trace: &'a mut Trace,
    ) -> LocalFuture<'a, HandlerExplanation> {
        if counted(request, |all| &all.requests).is_none() {
            explain::rates(request, &self.0, &self.0.requests, LimitKind::Requests, trace);
        } else {
            trace.by = "limit_req";
            trace.add(
                TraceSubject::Limit,
                None,
                "limit_req: counts each request once, and did already",
            );
        }
        HandlerExplanation::run()
    }
}

/// Evaluates some of a location's limits; `None` if none applies to the request.
fn ask(
    request: &Request,
    limits: &Limits,
    asked: &[RequestLimit],
) -> (Option<Decision>, LimitEffect) {
    let current = request.current().clone();
    let zones = current.conf.settings.get(&ZONES).map_or(&[][..], |zones| &zones.requests);
    let limited = asked.iter().filter_map(|limit| Some((limit, zones.get(limit.zone)?)));
    let keyed: Vec<_> = limited
        .filter_map(|(limit, zone)| Some((limit, zone, key(request, zone, REQUEST_KEY_BYTES_MAX)?)))
        .collect();
    if keyed.is_empty() {
        return (None, LimitEffect::Go);
    }
    let asked = keyed.iter().map(|(limit, zone, key)| BucketRequest {
        buckets: &zone.table,
        rate: zone.rate,
        burst: limit.burst,
        delay: limit.delay,
        key,
    });
    let verdict = requests::ask(&asked.collect::<Vec<_>>(), clock());
    let name = |limit: usize| String::from_utf8_lossy(&keyed[limit].1.name);
    let dry_run = limits.request_conf.limit_req_dry_run;
    let dry = if dry_run { ", dry run" } else { "" };
    let level = limits.request_conf.limit_req_log_level;
    let is_refused = matches!(verdict, Verdict::Reject { .. } | Verdict::Full { .. });
    let decisive = match verdict {
        Verdict::Pass => None,
        Verdict::Delay { limit, .. } | Verdict::Reject { limit, .. } | Verdict::Full { limit } => {
            Some(limit)
        }
    };
    let (decision, turn) = match verdict {
        Verdict::Pass => (Decision::Passed, LimitEffect::Go),
        Verdict::Delay { ms, excess, limit } => {
            request.log(
                level.milder(),
                format_args!(
                    "delaying request{dry}, excess: {}.{:03}, by zone \"{}\"",
                    excess / ONE,
                    excess % ONE,
                    name(limit)
                ),
            );
            (Decision::Delayed, LimitEffect::Wait(Duration::from_millis(ms)))
        }
        Verdict::Reject { excess, limit } => {
            request.log(
                level.level(),
                format_args!(
                    "limiting requests{dry}, excess: {}.{:03} by zone \"{}\"",
                    excess / ONE,
                    excess % ONE,
                    name(limit)
                ),
            );
            (Decision::Rejected, refuse(limits.request_conf.limit_req_status.get()))
        }
        Verdict::Full { limit } => {
            current.logs.error(
                Level::Alert,
                format_args!("could not allocate node in limit_req zone \"{}\"", name(limit)),
            );
            (Decision::Rejected, refuse(limits.request_conf.limit_req_status.get()))
        }
    };
    let (decision, turn) = if dry_run { dried(decision) } else { (decision, turn) };
    for (at, (_, zone, _)) in keyed.iter().enumerate() {
        match decisive {
            Some(limit) if limit == at => zone.decisions.count(decision),
            // Others have let the request pass, unless one before them has refused it.
            Some(limit) if at > limit && is_refused => {}
            _ => zone.decisions.count(Decision::Passed),
        }
    }
    (Some(decision), turn)
}

/// `limit_conn`
struct Connections(Arc<Limits>);

impl Handler for Connections {
    fn handle<'r>(&'r self, request: &'r mut Request) -> Step<'r> {
        if counted(request, |all| &all.connections).is_some() {
            return Step::Next(request);
        }
        let (held, decision, turn) = hold(request, &self.0, &self.0.connections);
        request.shared().state.of(&COUNTED).connections.set(decision);
        if !held.is_empty() {
            request.state_mut().of_mut(&OWN).held = held;
        }
        match turn {
            LimitEffect::Go | LimitEffect::Wait(_) => Step::Next(request),
            LimitEffect::Refuse(status) => Step::Done(request, Outcome::status(status)),
        }
    }

    fn explain<'a>(
        &'a self,
        request: &'a mut Request,
        trace: &'a mut Trace,
    ) -> LocalFuture<'a, HandlerExplanation> {
        if counted(request, |all| &all.connections).is_none() {
            explain::concurrent(request, &self.0, &self.0.connections, LimitKind::Requests, trace);
        } else {
            trace.by = "limit_conn";
            trace.add(
                TraceSubject::Limit,
                None,
                "limit_conn: counts each request once, and did already",
            );
        }
        HandlerExplanation::run()
    }
}

/// Counts a request in the zones of some of a location's limits, unless one is exceeded. The
/// decision is `None` if no limit applies to the request.
fn hold(
    request: &Request,
    limits: &Limits,
    asked: &[ConnectionLimit],
) -> (Vec<CountGuard>, Option<Decision>, LimitEffect) {
    let zones = request.current().conf.settings.get(&ZONES);
    let zones = zones.map_or(&[][..], |zones| &zones.connections);
    let conf = &limits.connection_conf;
    let dry_run = conf.limit_conn_dry_run;
    let (zone, why) = match connections::ask(request, asked, zones, dry_run) {
        ConnectionVerdict::Unlimited => return (Vec::new(), None, LimitEffect::Go),
        ConnectionVerdict::Counted(held) => return (held, Some(Decision::Passed), LimitEffect::Go),
        ConnectionVerdict::Refused { zone, why } => (zone, why),
    };
    if why == CountError::TooMany {
        let text = connections::message(zone, dry_run);
        request.log(conf.limit_conn_log_level.level(), format_args!("{text}"));
    }
    let turn = refuse(conf.limit_conn_status.get());
    let (decision, turn) =
        if dry_run { dried(Decision::Rejected) } else { (Decision::Rejected, turn) };
    (Vec::new(), Some(decision), turn)
}

/// The effect of a decision in dry-run mode.
fn dried(decision: Decision) -> (Decision, LimitEffect) {
    (decision.dried(), LimitEffect::Go)
}

fn refuse(status: u64) -> LimitEffect {
    // The configuration accepts only statuses from 400 to 599.
    LimitEffect::Refuse(u16::try_from(status).unwrap_or(503))
}

/// Milliseconds on a clock that all workers share and that a reload does not reset.
fn clock() -> i64 {
    let since = now().saturating_duration_since(process_start());
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}
