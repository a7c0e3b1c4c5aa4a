//! Monitoring: the state of connections, loops, pools, file systems and upstreams, for `status_api`
//! (JSON) and `metrics` (OpenMetrics).
//!
//! With thread pools the load average is meaningless, because threads that wait for disks count towards
//! it. Meaningful are the time that loops ran without returning to the kernel, the time that tasks
//! waited for a thread, and the time that disks took; they are here. Everything is read from counters
//! that exist anyway; a page costs only its collection and formatting, on a thread for that ([`maker`]),
//! and reading resets nothing.

mod angie;
mod caches;
mod dashboard;
mod events;
mod file_systems;
mod findings;
mod json;
mod limits;
mod maker;
mod openmetrics;
mod plus;
mod report;
mod resolvers;
mod status_zone;
mod vts;
mod zone;
mod zone_metrics;

use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use nowait_conf::{Cx, Diagnostic, Node};
use nowait_http::module::{Handler, Module, Step, set_content};
use nowait_http::outcome::Outcome;
use nowait_http::request::Request;
use nowait_http::response::{Body, Head, Response};
use nowait_message::Method;
use nowait_runtime::clock;
use report::Report;

/// Number of the newest configuration.
static NEWEST: AtomicU64 = AtomicU64::new(0);

/// Media type of OpenMetrics text.
const OPENMETRICS: &[u8] = b"application/openmetrics-text; version=1.0.0; charset=utf-8";

/// This module.
pub static MODULE: Module = Module {
    rows: &[
        STATUS_ROWS,
        DASHBOARD_ROWS,
        status_zone::ZoneConf::ROWS,
        vts::VtsConf::ROWS,
        vts::VTS_ROWS,
        angie::prometheus::PROMETHEUS_ROWS,
    ],
    variables: angie::prometheus::BUILTINS,
    finish: Some(angie::prometheus::finish),
    build: Some(status_zone::build),
    start: Some(|_, current| {
        NEWEST.fetch_max(current.number, Ordering::Relaxed);
        report::LOADED_MS.store(clock().unix_ms(), Ordering::Relaxed);
        Vec::new()
    }),
    ..Module::EMPTY
};

nowait_conf::rows! {
    static STATUS_ROWS, module "status";

    /// Responds with the state of the server as JSON: what calls for attention (`findings`); connections and
    /// requests; per worker the `event_loop_blocked` histogram; per thread pool and operation the queue, busy
    /// threads and times; per file system what ran on the loop and what in a pool, and how long its disk takes;
    /// the state of upstream servers, caches, certificates and resolvers; and the last events. The rest of the URI after the location's name selects a part:
    /// `/status/thread_pools/default/busy`.
    "status_api" => status_api, in LOCATION, take none(), inheritance Own, args "";
    /// Responds with the data of `status_api` as OpenMetrics text for Prometheus.
    "metrics" => metrics, in LOCATION, take none(), inheritance Own, args "";
    /// Serves the API of NGINX Plus, version 9, for programs that use it, such as nginx-prometheus-exporter
    /// (`--nginx.plus`) and NGINX Plus's Go client: `nginx`, `processes`, `connections`, `ssl`, `slabs`, `http`,
    /// `stream`, `resolvers` and `workers`, with the argument `fields`. Zones of servers and locations are those of
    /// `status_zone`; groups of upstream servers need `zone`.
    ///
    /// With `write=on`, POST, PATCH and DELETE add, change and remove servers of groups
    /// (`http/upstreams/NAME/servers`, `stream/upstreams/NAME/servers`), DELETE resets statistics, and
    /// `POST nowait/1/caches/NAME/purge` purges a cache. `PATCH nowait/1/error_log` with `{"level": "debug"}` gives all
    /// error logs this level until the next reload, with `null` again their own. Changes are in use at once, in all workers, and logged at
    /// the level `notice`. Whoever reaches the location can redirect all traffic: protect it with `allow`, `deny`
    /// and `auth_basic`. Other methods than GET are refused with 405 without `write=on`.
    ///
    /// Nowait differs: changes that a browser requests for a page of another origin (`Sec-Fetch-Site`, `Origin`) are
    /// refused with 403.
    ///
    /// With a path in place of a parameter, serves the statistics of Angie's API: `api /status/;`. As in `alias`, the
    /// path replaces the part of the URI that the location matches; in a location given by a regular expression, it is
    /// the whole path. It can contain variables. `date=epoch` among the arguments of a request writes dates as numbers,
    /// and `pretty=off` everything in one line. Nothing can be changed there.
    "api" => plus::api, in LOCATION, take between(0, 1), inheritance Own, args "[write=on | write=off] | path";
}

nowait_conf::rows! {
    static DASHBOARD_ROWS, module "dashboard";

    /// Responds with a page for browsers that shows the state of the server and follows it: what calls for
    /// attention and what to do; requests by server and location with their times; every disk and thread pool with
    /// what waits, how long, and what was served from memory; event loops with their longest turns; caches,
    /// upstream servers, certificates, limits and the last events. The page is one file without external resources.
    /// It shows what happens in the whole server: protect it by `allow` and `deny`, `auth_basic`, or an address of
    /// its own.
    ///
    /// * `interval=time`: the time between two updates, from `200ms` to `60s`; one second by default. All readers
    ///   share one report per interval, and nothing is collected while nobody looks. At most 1000 readers are
    ///   served.
    ///
    /// The page gets its data from the same location, as server-sent events: `Accept: text/event-stream`, or
    /// `/events` after the location's name. Their data are those of `status_api`.
    "dashboard" => dashboard::dashboard, in LOCATION, take between(1, 2), inheritance Own, args "on [interval=time] | off";
}

fn status_api(cx: &mut Cx<'_>, node: &Node) -> Result<(), Diagnostic> {
    set_content(cx, node, |_, _, _| Format::Json);
    Ok(())
}

fn metrics(cx: &mut Cx<'_>, node: &Node) -> Result<(), Diagnostic> {
    set_content(cx, node, |_, _, _| Format::OpenMetrics);
    Ok(())
}

/// Responds with the report.
enum Format {
    Json,
    OpenMetrics,
}

impl Handler for Format {
    fn handle<'r>(&'r self, request: &'r mut Request) -> Step<'r> {
        if let Some(refusal) = refuse(request) {
            return Step::Done(request, refusal);
        }
        Step::start(async move {
            let outcome = match self {
                Self::Json => api(request).await,
                Self::OpenMetrics => {
                    made(request, OPENMETRICS, |report| openmetrics::render(&report)).await
                }
            };
            Step::Done(request, outcome)
        })
    }
}

/// Everything as JSON, or the part that the rest of the URI names.
async fn api(request: &Request) -> Outcome {
    let Some(part) = part(request) else { return Outcome::status(404) };
    match maker::make(request, move |report| json::render(&report, &part)).await {
        Some(Some(text)) => page(b"application/json", text.into()),
        Some(None) => Outcome::status(404),
        None => Outcome::status(503),
    }
}

/// A page that is made of the report.
async fn made(
    request: &Request,
    kind: &'static [u8],
    format: impl FnOnce(Report) -> String + Send + 'static,
) -> Outcome {
    match maker::make(request, format).await {
        Some(text) => page(kind, text.into()),
        None => Outcome::status(503),
    }
}

fn refuse(request: &Request) -> Option<Outcome> {
    let reads = matches!(request.method(), Method::Get | Method::Head);
    (!reads).then(|| Outcome::status(405))
}

/// The part of the URI after the location's name, without slashes at its ends. An exact or
/// regular-expression location reports everything.
fn part(request: &Request) -> Option<String> {
    let rest = request.uri().path.strip_prefix(&request.location().name[..]).unwrap_or_default();
    let text = std::str::from_utf8(rest).ok()?;
    Some(text.trim_matches('/').to_owned())
}

fn page(kind: &'static [u8], text: Bytes) -> Outcome {
    let mut head = Head::new(200);
    head.content_type = Some(Bytes::from_static(kind));
    head.content_length = Some(text.len() as u64);
    head.add("Cache-Control", Bytes::from_static(b"no-cache"));
    Response { head, body: Body::Bytes(text) }.into()
}
