//! The directives and pages of the VTS module (`nginx-module-vts`), for programs that read them: Telegraf, netdata,
//! Prometheus with its dashboards.
//!
//! The numbers are those of the other pages: each server is a zone by its name, unless `status_zone` names it. What is
//! not counted here (shared memory, bytes of caches) is left out. Facts: the module's documentation.

use std::sync::Arc;
use std::time::Duration;

use nowait_cache::Statistics;
use nowait_caching::status::Status;
use nowait_conf::{Arity, Cx, Diagnostic, Node, Scope, Setting, Span, arity};
use nowait_front::NGINX_VERSION;
use nowait_front::zones::ZONES_MAX;
use nowait_http::conf::uri_scope::FirstServerName;
use nowait_http::module::{Handler, Step, set_content};
use nowait_http::outcome::Outcome;
use nowait_http::request::Request;
use nowait_upstream::{Availability, Peer, PeerStats};
use serde_json::{Map, Value, json};

use super::caches::STATUSES;
use super::dashboard::Dashboard;
use super::openmetrics::{MetricsText, PROMETHEUS};
use super::report::Report;
use super::zone::{Zone, ZoneKind, ZoneSnapshot};

nowait_conf::directives! {
    /// Counters of all servers.
    #[derive(Debug)]
    module "vts";
    pub struct VtsConf with VtsConfLayer;

    /// Counts the requests of each server as if it had `status_zone` with its first name. The parameter names shared
    /// memory, of which none is needed.
    vhost_traffic_status_zone: Option<SharedZone>, in HTTP, args "[shared:name:size]";
    /// Controls whether `vhost_traffic_status_zone` counts the requests of a server, or those that end in a location.
    vhost_traffic_status: bool = "on", in HTTP | SERVER | LOCATION, args "on | off";
    /// The format of `vhost_traffic_status_display` for a URI that names none (`…/format/json`, `…/format/html`,
    /// `…/format/prometheus`). `html` is the page of `dashboard`.
    vhost_traffic_status_display_format: DisplayFormat = "json", in HTTP | SERVER | LOCATION, args "json | html | prometheus";
    /// The name of the sum of all servers.
    vhost_traffic_status_display_sum_key: String = "*", in HTTP | SERVER | LOCATION, args "name";
}

nowait_conf::rows! {
    pub static VTS_ROWS, module "vts";

    /// Responds with the numbers of servers, upstream servers and caches as the VTS module does. It shows what happens
    /// in the whole server: protect it by `allow` and `deny`.
    "vhost_traffic_status_display" => display, in LOCATION, take between(0, 1), inheritance Own, args "[json | html | prometheus]";
}

nowait_conf::setting_enum! {
    /// `vhost_traffic_status_display_format`
    pub enum DisplayFormat {
        /// JSON.
        Json = "json",
        /// The page of `dashboard`.
        Html = "html",
        /// Prometheus's text.
        Prometheus = "prometheus",
    }
}

/// `vhost_traffic_status_zone`
#[derive(Clone, Copy, Debug)]
pub struct SharedZone(Span);

impl Setting for SharedZone {
    const ARITY: Arity = arity::between(0, 1);

    fn parse(node: &Node, _: &mut Cx<'_>) -> Result<Self, Diagnostic> {
        match node.args.first() {
            Some(word) if !word.text.starts_with(b"shared:") => {
                let error = word.error(format!("invalid shared size \"{word}\""));
                Err(error.expected("shared:name:size"))
            }
            _ => Ok(SharedZone(node.span)),
        }
    }
}

/// The zone of a server that VTS counts, by the name that the module gives it; `None`: it does not.
pub fn zone(cx: &mut Cx<'_>, chain: &[&Scope]) -> Option<Arc<Zone>> {
    let conf = VtsConf::resolve(cx, chain);
    let SharedZone(span) = conf.vhost_traffic_status_zone.filter(|_| conf.vhost_traffic_status)?;
    let name = &cx.global::<FirstServerName>().0;
    let name = if name.is_empty() { "_".into() } else { String::from_utf8_lossy(name) };
    let zone = Zone::of(ZoneKind::Server, &name);
    let SaidUncounted(said) = cx.global::<SaidUncounted>();
    if zone.is_none() && !std::mem::replace(said, true) {
        let text = format!("more than {ZONES_MAX} zones: further servers are not counted");
        let hint = "give several servers the same \"status_zone\", or set \"vhost_traffic_status off\" in some";
        cx.report(Diagnostic::warn(text).at(span).hint(hint));
    }
    zone
}

/// Whether the warning was given; once per configuration is enough.
#[derive(Default)]
struct SaidUncounted(bool);

fn display(cx: &mut Cx<'_>, node: &Node) -> Result<(), Diagnostic> {
    let format = match node.args.first() {
        Some(_) => Some(DisplayFormat::parse(node, cx)?),
        None => None,
    };
    set_content(cx, node, move |cx, chain, _| {
        let conf = VtsConf::resolve(cx, chain);
        Display {
            format: format.unwrap_or(conf.vhost_traffic_status_display_format),
            sum: conf.vhost_traffic_status_display_sum_key.clone(),
            page: Dashboard::default(),
        }
    });
    Ok(())
}

/// Responds in one of the formats.
struct Display {
    format: DisplayFormat,
    /// The name of the sum.
    sum: String,
    page: Dashboard,
}

impl Handler for Display {
    fn handle<'r>(&'r self, request: &'r mut Request) -> Step<'r> {
        Step::start(async move {
            let outcome = self.respond(request).await;
            Step::Done(request, outcome)
        })
    }
}

impl Display {
    async fn respond(&self, request: &Request) -> Outcome {
        if let Some(refusal) = super::refuse(request) {
            return refusal;
        }
        let format = match super::part(request).as_deref() {
            Some("") => self.format,
            Some("format/json") => DisplayFormat::Json,
            Some("format/html") => DisplayFormat::Html,
            Some("format/prometheus") => DisplayFormat::Prometheus,
            _ => return Outcome::status(404),
        };
        let sum = self.sum.clone();
        match format {
            DisplayFormat::Html => self.page.show(request),
            DisplayFormat::Json => {
                let format = move |report: Report| tree(&report, &sum).to_string();
                super::made(request, b"application/json", format).await
            }
            DisplayFormat::Prometheus => {
                let format = move |report: Report| prometheus(&report, &sum);
                super::made(request, PROMETHEUS, format).await
            }
        }
    }
}

/// The zones of servers, and their sum last.
fn server_zones(report: &Report, sum: &str) -> Vec<ZoneSnapshot> {
    let mut all = ZoneSnapshot { name: sum.to_owned(), ..ZoneSnapshot::default() };
    report.server_zones.iter().for_each(|zone| all.add(zone));
    let mut zones = report.server_zones.clone();
    zones.push(all);
    zones
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

fn average(zone: &ZoneSnapshot) -> Duration {
    zone.total
        .sum
        .checked_div(u32::try_from(zone.total.count()).unwrap_or(u32::MAX))
        .unwrap_or_default()
}

fn tree(report: &Report, sum: &str) -> Value {
    let totals = &report.totals;
    json!({
        "hostName": nowait_sys::process::hostname(),
        "moduleVersion": nowait_http::special_pages::PRODUCT_VERSION,
        "nginxVersion": NGINX_VERSION,
        "loadMsec": report.loaded_ms,
        "nowMsec": report.time_ms,
        "connections": {
            "active": totals.active,
            "reading": totals.reading,
            "writing": totals.writing,
            "waiting": totals.waiting(),
            "accepted": totals.accepted,
            "handled": totals.accepted,
            "requests": totals.requests,
        },
        "serverZones": server_zones(report, sum)
            .iter()
            .map(|zone| (zone.name.clone(), server(zone)))
            .collect::<Map<_, _>>(),
        "upstreamZones": report.upstreams.iter().map(|group| {
            let now = nowait_runtime::now();
            let peers = group.stats().into_iter();
            let peers = peers.map(|(peer, stats)| peer_json(&peer, &stats, peer.availability(now)));
            let name = String::from_utf8_lossy(group.name()).into_owned();
            (name, Value::Array(peers.collect()))
        }).collect::<Map<_, _>>(),
        "cacheZones": report.caches.iter().map(|cache| (cache.zone.clone(), json!({
            "maxSize": cache.bytes_max,
            "usedSize": cache.bytes,
            "responses": cache_responses(report, cache).collect::<Map<_, _>>(),
        }))).collect::<Map<_, _>>(),
    })
}

fn server(zone: &ZoneSnapshot) -> Value {
    let mut responses = classes(zone.classes());
    for (status, count) in Status::ALL.into_iter().zip(zone.caches) {
        responses[status.as_str().to_ascii_lowercase()] = count.into();
    }
    json!({
        "requestCounter": zone.ended,
        "inBytes": zone.received,
        "outBytes": zone.sent,
        "responses": responses,
        "requestMsecCounter": millis(zone.total.sum),
        "requestMsec": millis(average(zone)),
    })
}

fn peer_json(peer: &Peer, stats: &PeerStats, availability: Availability) -> Value {
    json!({
        "server": stats.name,
        "requestCounter": stats.requests,
        "inBytes": stats.received,
        "outBytes": stats.sent,
        "responses": classes(stats.responses),
        "requestMsec": stats.response_time_ms,
        "responseMsec": stats.response_time_ms,
        "weight": peer.weight(),
        "maxFails": peer.max_fails(),
        "failTimeout": peer.fail_timeout().as_secs(),
        "backup": peer.is_backup(),
        "down": availability != Availability::Up,
    })
}

const CLASSES: [&str; 5] = ["1xx", "2xx", "3xx", "4xx", "5xx"];

fn classes(classes: [u64; 5]) -> Value {
    let pairs = CLASSES.iter().zip(classes);
    Value::Object(pairs.map(|(name, count)| ((*name).to_owned(), count.into())).collect())
}

fn prometheus(report: &Report, sum: &str) -> String {
    let mut text = MetricsText::default();
    let totals = &report.totals;
    let (host, version) =
        (nowait_sys::process::hostname(), nowait_http::special_pages::PRODUCT_VERSION);
    text.family("nginx_vts_info", "gauge", "", "Nginx info");
    let labels = [("hostname", &*host), ("module_version", version), ("version", NGINX_VERSION)];
    text.sample("nginx_vts_info", &labels, 1);
    text.family("nginx_vts_start_time_seconds", "gauge", "", "Nginx start time");
    text.time("nginx_vts_start_time_seconds", &[], Duration::from_millis(report.loaded_ms));
    text.family("nginx_vts_main_connections", "gauge", "", "Nginx connections");
    for (status, count) in [
        ("accepted", totals.accepted),
        ("active", totals.active),
        ("handled", totals.accepted),
        ("reading", totals.reading),
        ("requests", totals.requests),
        ("waiting", totals.waiting()),
        ("writing", totals.writing),
    ] {
        text.sample("nginx_vts_main_connections", &[("status", status)], count);
    }
    servers_text(&server_zones(report, sum), &mut text);
    upstreams_text(report, &mut text);
    text.family("nginx_vts_cache_usage_bytes", "gauge", "", "The cache zones info");
    for cache in &report.caches {
        let labels = |status| [("cache_zone", &*cache.zone), ("status", status)];
        if let Some(max) = cache.bytes_max {
            text.sample("nginx_vts_cache_usage_bytes", &labels("max"), max);
        }
        text.sample("nginx_vts_cache_usage_bytes", &labels("used"), cache.bytes);
    }
    text.family("nginx_vts_cache_requests_total", "counter", "", "The cache requests counter");
    for cache in &report.caches {
        for (status, count) in cache_responses(report, cache) {
            let labels = [("cache_zone", &*cache.zone), ("status", &*status)];
            text.sample("nginx_vts_cache_requests_total", &labels, count);
        }
    }
    text.into_text()
}

/// The responses of a cache by status.
fn cache_responses<C: From<u64>>(
    report: &Report,
    cache: &Statistics,
) -> impl Iterator<Item = (String, C)> + use<C> {
    let all = report.responses_of(cache);
    STATUSES
        .into_iter()
        .map(move |(name, status, _)| (name.to_owned(), all.of(status).responses.into()))
}

fn servers_text(zones: &[ZoneSnapshot], text: &mut MetricsText) {
    text.family("nginx_vts_server_bytes_total", "counter", "", "The request/response bytes");
    for zone in zones {
        for (direction, bytes) in [("in", zone.received), ("out", zone.sent)] {
            let labels = [("host", &*zone.name), ("direction", direction)];
            text.sample("nginx_vts_server_bytes_total", &labels, bytes);
        }
    }
    text.family("nginx_vts_server_requests_total", "counter", "", "The requests counter");
    for zone in zones {
        for (code, count) in CLASSES.iter().zip(zone.classes()).chain([(&"total", zone.ended)]) {
            let labels = [("host", &*zone.name), ("code", code)];
            text.sample("nginx_vts_server_requests_total", &labels, count);
        }
    }
    let help = "The request processing time in seconds";
    text.family("nginx_vts_server_request_seconds_total", "counter", "", help);
    for zone in zones {
        let labels = [("host", &*zone.name)];
        text.time("nginx_vts_server_request_seconds_total", &labels, zone.total.sum);
    }
    let help = "The average of request processing times in seconds";
    text.family("nginx_vts_server_request_seconds", "gauge", "", help);
    for zone in zones {
        text.time("nginx_vts_server_request_seconds", &[("host", &*zone.name)], average(zone));
    }
    text.family("nginx_vts_server_cache_total", "counter", "", "The requests cache counter");
    for zone in zones {
        for (status, count) in Status::ALL.into_iter().zip(zone.caches) {
            let status = status.as_str().to_ascii_lowercase();
            let labels = [("host", &*zone.name), ("status", &*status)];
            text.sample("nginx_vts_server_cache_total", &labels, count);
        }
    }
}

fn upstreams_text(report: &Report, text: &mut MetricsText) {
    let mut peers = Vec::new();
    for group in &report.upstreams {
        let name = String::from_utf8_lossy(group.name()).into_owned();
        peers.extend(group.stats().into_iter().map(|(_, stats)| (name.clone(), stats)));
    }
    let help = "The request/response bytes of upstream servers";
    text.family("nginx_vts_upstream_bytes_total", "counter", "", help);
    for (group, stats) in &peers {
        for (direction, bytes) in [("in", stats.received), ("out", stats.sent)] {
            let labels =
                [("upstream", &**group), ("backend", &*stats.name), ("direction", direction)];
            text.sample("nginx_vts_upstream_bytes_total", &labels, bytes);
        }
    }
    text.family(
        "nginx_vts_upstream_requests_total",
        "counter",
        "",
        "The requests of upstream servers",
    );
    for (group, stats) in &peers {
        let codes = CLASSES.iter().zip(stats.responses).chain([(&"total", stats.requests)]);
        for (code, count) in codes {
            let labels = [("upstream", &**group), ("backend", &*stats.name), ("code", code)];
            text.sample("nginx_vts_upstream_requests_total", &labels, count);
        }
    }
    let help = "The average response time of upstream servers in seconds";
    text.family("nginx_vts_upstream_response_seconds", "gauge", "", help);
    for (group, stats) in &peers {
        let labels = [("upstream", &**group), ("backend", &*stats.name)];
        let time = Duration::from_millis(stats.response_time_ms);
        text.time("nginx_vts_upstream_response_seconds", &labels, time);
    }
}
