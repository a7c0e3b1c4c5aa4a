//! The tree of Angie's statistics, from the same report as the other pages.
//!
//! What is not counted here is left out: TLS by zone, DNS queries by the type that was sent, responses of upstream
//! servers by their exact status (classes stand in their place), zones of limits that are full. There are no zones of
//! shared memory. Facts: Angie's documentation of `api`.

use std::sync::Arc;

use nowait_cache::Statistics;
use nowait_front::limit::Decision;
use nowait_front::limit::decisions::{DecisionsSnapshot, ZoneUse};
use nowait_front::sessions::SessionZone;
use nowait_runtime::time::utc_time;
use nowait_upstream::{Availability, Group};
use serde_json::{Map, Value, json};

use super::super::caches;
use super::super::report::Report;
use super::super::resolvers::ResolverReport;
use super::super::zone::ZoneSnapshot;

/// How dates are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dates {
    /// `2026-11-28T12:00:00.000Z`
    Iso8601,
    /// Seconds since 1970.
    Epoch,
}

/// The whole tree.
pub(super) fn root(report: &Report, dates: Dates) -> Value {
    json!({ "status": status(report, dates) })
}

/// The statistics.
pub(super) fn status(report: &Report, dates: Dates) -> Value {
    let totals = &report.totals;
    let date = |ms: u64| match dates {
        Dates::Iso8601 => Value::from(utc_time(ms)),
        Dates::Epoch => Value::from(ms / 1000),
    };
    let sessions = report.sessions.as_ref();
    json!({
        "angie": {
            "version": nowait_front::NGINX_VERSION,
            "build": nowait_http::special_pages::PRODUCT_VERSION,
            "address": report.address,
            "generation": report.generation,
            "load_time": date(report.loaded_ms),
        },
        "connections": {
            "accepted": totals.accepted,
            "dropped": 0,
            "active": totals.active.saturating_sub(totals.waiting()),
            "idle": totals.waiting(),
        },
        "slabs": {},
        "resolvers": by_name(&report.resolvers, |one| (one.name.clone(), resolver(one))),
        "http": {
            "server_zones": by_name(&report.server_zones, |zone| (zone.name.clone(), requests(zone, true))),
            "location_zones": by_name(&report.location_zones, |zone| (zone.name.clone(), requests(zone, false))),
            "caches": by_name(&report.caches, |one| (one.zone.clone(), cache(report, one))),
            "limit_conns": limits(report, ZoneUse::Connections),
            "limit_reqs": limits(report, ZoneUse::Requests),
            "upstreams": upstreams(&report.upstreams, true),
        },
        "stream": {
            "server_zones": by_name(sessions.map_or(&[], |all| &all.zones), |zone| (zone.name.clone(), session_zone(zone))),
            "limit_conns": limits(report, ZoneUse::Sessions),
            "upstreams": upstreams(sessions.map_or(&[], |all| &all.upstreams), false),
        },
    })
}

fn by_name<T>(all: &[T], one: impl Fn(&T) -> (String, Value)) -> Map<String, Value> {
    all.iter().map(one).collect()
}

fn resolver(resolver: &ResolverReport) -> Value {
    let counts = &resolver.counts;
    json!({
        "queries": { "name": counts.name, "srv": counts.srv, "addr": 0 },
        "responses": {
            "success": counts.noerror,
            "timedout": counts.timedout,
            "format_error": counts.formerr,
            "server_failure": counts.servfail,
            "not_found": counts.nxdomain,
            "unimplemented": counts.notimp,
            "refused": counts.refused,
            "other": counts.unknown,
        },
    })
}

fn requests(zone: &ZoneSnapshot, is_server: bool) -> Value {
    let codes: Map<String, Value> =
        zone.statuses.iter().map(|(code, count)| (code.to_string(), (*count).into())).collect();
    let mut value = json!({
        "requests": { "total": zone.requests, "discarded": zone.discarded },
        "responses": codes,
        "data": { "received": zone.received, "sent": zone.sent },
    });
    if is_server {
        value["requests"]["processing"] = zone.processing.into();
    }
    value
}

fn cache(report: &Report, cache: &Statistics) -> Value {
    let mut value = caches::responses(&report.responses_of(cache));
    value.insert("size".into(), cache.bytes.into());
    if let Some(max) = cache.bytes_max {
        value.insert("max_size".into(), max.into());
    }
    value.insert("cold".into(), cache.loading.into());
    Value::Object(value)
}

fn limits(report: &Report, of: ZoneUse) -> Value {
    let one = |zone: &DecisionsSnapshot| {
        let mut value = json!({
            "passed": zone.count(Decision::Passed),
            "rejected": zone.count(Decision::Rejected),
        });
        if of == ZoneUse::Requests {
            value["delayed"] = zone.count(Decision::Delayed).into();
        }
        (zone.name.clone(), value)
    };
    Value::Object(report.limits.iter().filter(|zone| zone.of == of).map(one).collect())
}

fn session_zone(zone: &SessionZone) -> Value {
    const NAMES: [(&str, u16); 6] = [
        ("success", 200),
        ("invalid", 400),
        ("forbidden", 403),
        ("internal_error", 500),
        ("bad_gateway", 502),
        ("service_unavailable", 503),
    ];
    let count = |wanted: u16| {
        let of_status = zone.statuses.iter().filter(|(status, _)| *status == wanted);
        of_status.map(|(_, count)| count).sum::<u64>()
    };
    let sessions: Map<String, Value> =
        NAMES.into_iter().map(|(name, status)| (name.to_owned(), count(status).into())).collect();
    json!({
        "connections": {
            "total": zone.connections(),
            "processing": zone.processing,
            "discarded": zone.discarded,
            "passed": zone.passed,
        },
        "sessions": sessions,
        "data": { "received": zone.received, "sent": zone.sent },
    })
}

fn upstreams(groups: &[Arc<Group>], is_http: bool) -> Value {
    // As there, groups without a zone are not shown.
    let groups = groups.iter().filter(|group| group.conf().zone.is_some());
    let name = |group: &Group| String::from_utf8_lossy(group.name()).into_owned();
    Value::Object(groups.map(|group| (name(group), upstream(group, is_http))).collect())
}

fn upstream(group: &Group, is_http: bool) -> Value {
    let now = nowait_runtime::now();
    let stats = group.stats();
    let idle: u32 = stats.iter().map(|(_, stats)| stats.idle).sum();
    let peers = stats.into_iter().map(|(peer, stats)| {
        let mut value = json!({
            "server": String::from_utf8_lossy(peer.server_name()),
            "backup": peer.is_backup(),
            "weight": peer.weight(),
            "state": match peer.availability(now) {
                Availability::Unavailable => "unavailable",
                state => state.name(),
            },
            "selected": { "current": stats.active, "total": stats.requests },
            "data": { "sent": stats.sent, "received": stats.received },
            "health": {
                "fails": stats.fails,
                "unavailable": stats.unavailable,
                "downtime": stats.downtime_ms,
            },
        });
        if peer.max_conns() > 0 {
            value["max_conns"] = peer.max_conns().into();
        }
        if is_http {
            let classes = ["1xx", "2xx", "3xx", "4xx", "5xx"].into_iter().zip(stats.responses);
            // As there, only what has occurred.
            value["responses"] = classes
                .filter(|(_, count)| *count > 0)
                .map(|(class, count)| (class.to_owned(), Value::from(count)))
                .collect::<Map<_, _>>()
                .into();
        }
        (stats.name, value)
    });
    let mut value = json!({ "peers": peers.collect::<Map<_, _>>() });
    if is_http {
        value["keepalive"] = idle.into();
    }
    value
}
