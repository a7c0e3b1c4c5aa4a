//! The tree of numbers that `api` serves, from the same report as the other pages.
//!
//! What does not exist here (zones of shared memory) is an empty object; numbers that are not counted are left
//! out. Nothing is ever dropped: a worker without room accepts no connection.

use std::collections::BTreeMap;
use std::sync::Arc;

use nowait_backend::cache::responses::CacheResponses;
use nowait_cache::Statistics;
use nowait_front::NGINX_VERSION;
use nowait_front::limit::decisions::ZoneUse;
use nowait_front::sessions::SessionZone;
use nowait_runtime::time::utc_time;
use nowait_upstream::{Availability, Group};
use serde_json::{Map, Value, json};

use super::super::caches;
use super::super::limits;
use super::super::report::Report;
use super::super::zone::ZoneSnapshot;

/// The whole tree.
pub(super) fn root(report: &Report) -> Value {
    let totals = &report.totals;
    let current = totals.reading + totals.writing;
    json!({
        "nginx": {
            "version": NGINX_VERSION,
            "build": nowait_http::special_pages::PRODUCT_VERSION,
            "address": report.address,
            "generation": report.generation,
            "load_timestamp": utc_time(report.loaded_ms),
            "timestamp": utc_time(report.time_ms),
            "pid": std::process::id(),
            "ppid": std::os::unix::process::parent_id(),
        },
        "processes": { "respawned": 0 },
        "connections": {
            "accepted": totals.accepted,
            "dropped": 0,
            "active": totals.active.saturating_sub(totals.waiting()),
            "idle": totals.waiting(),
        },
        "slabs": {},
        "ssl": {
            "handshakes": totals.handshakes,
            "handshakes_failed": totals.handshakes_failed,
        },
        "http": {
            "requests": { "total": totals.requests, "current": current },
            "server_zones": zones(&report.server_zones, true),
            "location_zones": zones(&report.location_zones, false),
            "caches": report.caches.iter()
                .map(|cache| (cache.zone.clone(), one_cache(cache, &report.responses_of(cache))))
                .collect::<Map<_, _>>(),
            "limit_conns": limits::json(&report.limits, ZoneUse::Connections),
            "limit_reqs": limits::json(&report.limits, ZoneUse::Requests),
            "upstreams": upstreams(&report.upstreams, true),
            "keyvals": {},
        },
        "stream": {
            "server_zones": report.sessions.iter().flat_map(|sessions| &sessions.zones)
                .map(|zone| (zone.name.clone(), session_zone(zone)))
                .collect::<Map<_, _>>(),
            "limit_conns": limits::json(&report.limits, ZoneUse::Sessions),
            "upstreams": report.sessions.as_ref().map_or_else(|| json!({}), |sessions| upstreams(&sessions.upstreams, false)),
            "keyvals": {},
        },
        "resolvers": report.resolvers.iter().map(|resolver| (resolver.name.clone(), json!({
            "requests": { "name": resolver.counts.name, "srv": resolver.counts.srv, "addr": 0 },
            "responses": resolver.responses().into_iter()
                .map(|(what, count)| (what.to_owned(), count.into()))
                .collect::<Map<_, _>>(),
        }))).collect::<Map<_, _>>(),
        "workers": report.workers.iter().map(|worker| json!({
            "id": worker.index,
            "pid": std::process::id(),
            "connections": { "active": worker.connections },
        })).collect::<Vec<_>>(),
    })
}

fn one_cache(cache: &Statistics, responses: &CacheResponses) -> Value {
    let mut value = caches::responses(responses);
    value.insert("size".into(), cache.bytes.into());
    // As there: without a limit, there is no such member.
    if let Some(max) = cache.bytes_max {
        value.insert("max_size".into(), max.into());
    }
    value.insert("cold".into(), cache.loading.into());
    Value::Object(value)
}

fn zones(zones: &[ZoneSnapshot], are_servers: bool) -> Value {
    let one = |zone: &ZoneSnapshot| {
        let mut value = json!({
            "requests": zone.requests,
            "responses": responses(zone.classes(), Some(&zone.statuses)),
            "discarded": zone.discarded,
            "received": zone.received,
            "sent": zone.sent,
        });
        if are_servers {
            value["processing"] = zone.processing.into();
        }
        (zone.name.clone(), value)
    };
    Value::Object(zones.iter().map(one).collect())
}

fn session_zone(zone: &SessionZone) -> Value {
    let classes = [2, 4, 5].map(|class| zone.class(class));
    json!({
        "processing": zone.processing,
        "connections": zone.connections(),
        "sessions": {
            "2xx": classes[0],
            "4xx": classes[1],
            "5xx": classes[2],
            "total": classes.iter().sum::<u64>(),
        },
        // Connections handed over have a session elsewhere.
        "discarded": zone.discarded + zone.passed,
        "received": zone.received,
        "sent": zone.sent,
    })
}

fn responses(classes: [u64; 5], codes: Option<&BTreeMap<u16, u64>>) -> Value {
    let mut value = json!({
        "1xx": classes[0],
        "2xx": classes[1],
        "3xx": classes[2],
        "4xx": classes[3],
        "5xx": classes[4],
        "codes": {},
        "total": classes.iter().sum::<u64>(),
    });
    for (code, count) in codes.into_iter().flatten() {
        value["codes"][code.to_string()] = (*count).into();
    }
    value
}

fn upstreams(groups: &[Arc<Group>], are_http: bool) -> Value {
    Value::Object(
        groups
            .iter()
            // As there, groups without a zone are not shown.
            .filter(|group| group.conf().zone.is_some())
            .map(|group| {
                (String::from_utf8_lossy(group.name()).into_owned(), upstream(group, are_http))
            })
            .collect(),
    )
}

fn upstream(group: &Group, is_http: bool) -> Value {
    let now = nowait_runtime::now();
    let stats = group.stats();
    let idle: u32 = stats.iter().map(|(_, stats)| stats.idle).sum();
    let peers = stats.into_iter().map(|(peer, stats)| {
        let state = match peer.availability(now) {
            Availability::Up if peer.max_conns() > 0 && stats.active >= peer.max_conns() => "busy",
            state => state.name(),
        };
        let mut value = json!({
            "id": peer.id(),
            "server": stats.name,
            "name": String::from_utf8_lossy(peer.server_name()),
            "backup": peer.is_backup(),
            "weight": peer.weight(),
            "state": state,
            "active": stats.active,
            "sent": stats.sent,
            "received": stats.received,
            "fails": stats.fails,
            "unavail": stats.unavailable,
            "health_checks": {
                "checks": stats.checks,
                "fails": stats.failed_checks,
                "unhealthy": stats.unhealthy,
            },
            "downtime": stats.downtime_ms,
        });
        if let Some(passed) = stats.last_check_passed {
            value["health_checks"]["last_passed"] = passed.into();
        }
        if peer.max_conns() > 0 {
            value["max_conns"] = peer.max_conns().into();
        }
        if is_http {
            value["requests"] = stats.requests.into();
            value["responses"] = responses(stats.responses, None);
            value["header_time"] = stats.header_time_ms.into();
            value["response_time"] = stats.response_time_ms.into();
        } else {
            value["connections"] = stats.requests.into();
        }
        value
    });
    let mut value = json!({ "peers": peers.collect::<Vec<_>>(), "zombies": 0 });
    if is_http {
        value["keepalive"] = idle.into();
    }
    if let Some(zone) = &group.conf().zone {
        value["zone"] = String::from_utf8_lossy(zone).into();
    }
    if let Some(queue) = &group.conf().queue {
        let (waiting, overflows) = group.queued();
        value["queue"] =
            json!({ "size": waiting, "max_size": queue.length, "overflows": overflows });
    }
    value
}
