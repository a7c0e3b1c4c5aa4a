//! The report as JSON. Times are in microseconds, as whole numbers; the names of its parts are
//! stable, and parts may be added.

use std::time::{Duration, SystemTime};

use nowait_front::NGINX_VERSION;
use nowait_front::limit::decisions::ZoneUse;
use nowait_front::sessions::SessionZone;
use nowait_http::special_pages::PRODUCT_VERSION;
use nowait_runtime::fs::resident::Snapshot;
use nowait_runtime::histogram::HistogramSnapshot;
use nowait_runtime::loops::LoopSnapshot;
use nowait_runtime::pool::{OpSnapshot, PoolSnapshot};
use nowait_upstream::Group;
use serde_json::{Map, Value, json};

use super::report::{Report, buckets};
use super::resolvers::ResolverReport;
use super::zone::ZoneSnapshot;
use super::{caches, events, file_systems, findings, limits};

/// The text of the whole report, or of the part at a path such as `thread_pools/default/busy`:
/// members by name, elements by number or by their `name`. `None`: there is no such part.
pub fn render(report: &Report, path: &str) -> Option<String> {
    let whole = whole(report);
    let steps = path.split('/').filter(|step| !step.is_empty());
    let part = steps.into_iter().try_fold(&whole, |value, step| match value {
        Value::Object(members) => members.get(step),
        Value::Array(elements) => match step.parse::<usize>() {
            Ok(at) => elements.get(at),
            Err(_) => elements.iter().find(|element| element["name"] == step),
        },
        _ => None,
    })?;
    Some(format!("{part:#}\n"))
}

/// The whole report in one line.
pub fn line(report: &Report) -> String {
    whole(report).to_string()
}

fn whole(report: &Report) -> Value {
    let totals = &report.totals;
    let now = SystemTime::UNIX_EPOCH + Duration::from_millis(report.time_ms);
    let certificates: Vec<Value> =
        report.certificates.iter().map(|one| events::certificate(one, now)).collect();
    let mut whole = json!({
        "version": PRODUCT_VERSION,
        "nginx_version": NGINX_VERSION,
        "generation": report.generation,
        "pid": std::process::id(),
        "time_ms": report.time_ms,
        "loaded_ms": report.loaded_ms,
        "findings": findings::json(report),
        "connections": {
            "accepted": totals.accepted,
            "active": totals.active,
            "reading": totals.reading,
            "writing": totals.writing,
            "waiting": totals.waiting(),
        },
        "ssl": {
            "handshakes": totals.handshakes,
            "handshakes_failed": totals.handshakes_failed,
            "handshakes_refused": totals.handshakes_refused,
            "ktls": {
                "connections": report.kernel.offloaded,
                "fallbacks": report.kernel.fallbacks,
                "keys_refused": report.kernel.keys_refused,
            },
        },
        "requests": { "total": totals.requests, "http3": totals.requests_http3 },
        "workers": report.workers.iter().map(worker).collect::<Vec<_>>(),
        "thread_pools": report.pools.iter().map(pool).collect::<Vec<_>>(),
        "file_systems": report.mounts.iter().map(file_systems::json).collect::<Vec<_>>(),
        "resident_files": resident_files(&report.resident),
        "upstreams": report.upstreams.iter().map(|group| upstream(group)).collect::<Vec<_>>(),
        "zones": {
            "servers": report.server_zones.iter().map(zone).collect::<Vec<_>>(),
            "locations": report.location_zones.iter().map(zone).collect::<Vec<_>>(),
        },
        "traces": {
            "spans_sent": report.exports.sent,
            "spans_lost": report.exports.lost,
            "failing": report.exports.is_failing,
        },
        "limits": {
            "limit_reqs": limits::json(&report.limits, ZoneUse::Requests),
            "limit_conns": limits::json(&report.limits, ZoneUse::Connections),
        },
        "caches": report.caches.iter()
            .map(|cache| caches::json(cache, &report.responses_of(cache)))
            .collect::<Vec<_>>(),
        "certificates": certificates,
        "events": report.events.iter().map(events::event).collect::<Vec<_>>(),
        "resolvers": report.resolvers.iter().map(ResolverReport::json).collect::<Vec<_>>(),
    });
    if let Some(quic) = &report.quic {
        let counters: Map<String, Value> =
            quic.iter().map(|(name, count)| ((*name).to_owned(), (*count).into())).collect();
        whole["quic"] = counters.into();
    }
    if let Some(sessions) = &report.sessions {
        whole["stream"] = json!({
            "sessions": { "total": sessions.total, "active": sessions.active },
            "udp": { "active": sessions.udp_active, "dropped": sessions.udp_dropped },
            "zones": sessions.zones.iter().map(session_zone).collect::<Vec<_>>(),
            "limit_conns": limits::json(&report.limits, ZoneUse::Sessions),
            "upstreams": sessions.upstreams.iter().map(|group| upstream(group)).collect::<Vec<_>>(),
        });
    }
    whole
}

fn zone(zone: &ZoneSnapshot) -> Value {
    let classes = zone.classes();
    let statuses: Map<String, Value> =
        zone.statuses.iter().map(|(status, count)| (status.to_string(), (*count).into())).collect();
    json!({
        "name": zone.name,
        "processing": zone.processing,
        "requests": zone.requests,
        "responses": {
            "1xx": classes[0],
            "2xx": classes[1],
            "3xx": classes[2],
            "4xx": classes[3],
            "5xx": classes[4],
            "codes": statuses,
        },
        "discarded": zone.discarded,
        "received": zone.received,
        "sent": zone.sent,
        "request_time_us": times(&zone.total),
        "request_time_histogram": histogram(&zone.total),
        "upstream_time_us": times(&zone.upstream),
    })
}

fn session_zone(zone: &SessionZone) -> Value {
    let statuses: Map<String, Value> = zone
        .statuses
        .iter()
        .filter(|(_, count)| *count > 0)
        .map(|(status, count)| (status.to_string(), (*count).into()))
        .collect();
    json!({
        "name": zone.name,
        "processing": zone.processing,
        "connections": zone.connections(),
        "sessions": {
            "2xx": zone.class(2),
            "4xx": zone.class(4),
            "5xx": zone.class(5),
            "codes": statuses,
        },
        "passed": zone.passed,
        "discarded": zone.discarded,
        "received": zone.received,
        "sent": zone.sent,
    })
}

/// The number of times, their sum, and percentiles: what so many of 1,000 do not exceed, up to a quarter.
pub fn times(times: &HistogramSnapshot) -> Value {
    let percentile = |thousandths| times.percentile(thousandths).map(us);
    json!({
        "count": times.count(),
        "sum": us(times.sum),
        "p50": percentile(500),
        "p90": percentile(900),
        "p99": percentile(990),
        "p999": percentile(999),
    })
}

/// The buckets with times: their upper bounds in microseconds, of which the last has none, and numbers of times. Two
/// reports tell the percentiles of the time between them.
fn histogram(times: &HistogramSnapshot) -> Value {
    Value::Array(times.filled().map(|(bound, count)| json!([bound.map(us), count])).collect())
}

fn worker(worker: &LoopSnapshot) -> Value {
    let blocked = &worker.blocked;
    // Empty buckets are left out; the bounds of the others complete the histogram.
    let histogram =
        buckets(blocked).filter(|(_, count)| *count > 0).map(|(bound, count)| match bound {
            Some(bound) => json!({ "below_us": bound, "turns": count }),
            None => json!({ "turns": count }),
        });
    json!({
        "worker": worker.index,
        "event_method": worker.driver.to_string(),
        "connections": worker.connections,
        "event_loop_blocked": {
            "turns": blocked.turns(),
            "total_us": us(blocked.total),
            "longest_us": us(blocked.longest),
            "longest_at": blocked.longest_label,
            "histogram": histogram.collect::<Vec<_>>(),
        },
    })
}

fn pool(pool: &PoolSnapshot) -> Value {
    let operations: Map<String, Value> =
        pool.ops.iter().map(|op| (op.op.name().to_owned(), operation(op))).collect();
    json!({
        "name": pool.name,
        "threads": pool.threads,
        "started": pool.threads_alive,
        "busy": pool.busy,
        "waiting": pool.queued,
        "max_queue": pool.max_queue,
        "clients": pool.clients,
        "recent_wait_us": times(&pool.recent_waits),
        "recent_service_us": times(&pool.recent_services),
        "operations": operations,
    })
}

fn operation(op: &OpSnapshot) -> Value {
    json!({
        "started": op.started,
        "completed": op.completed,
        "cancelled": op.cancelled,
        "overflowed": op.overflowed,
        "panicked": op.panicked,
        "waited_us": us(op.waited_total),
        "waited_longest_us": us(op.waited_max),
        "served_us": us(op.served_total),
        "served_longest_us": us(op.served_max),
    })
}

fn resident_files(files: &Snapshot) -> Value {
    let mut value =
        json!({ "entries": files.entries, "bytes": files.bytes, "watches": files.watches });
    for (name, count) in files.counters() {
        value[name] = count.into();
    }
    value
}

fn upstream(group: &Group) -> Value {
    let (waiting, overflowed) = group.queued();
    let now = nowait_runtime::now();
    let peers = group.stats().into_iter().map(|(peer, stats)| {
        json!({
            "name": stats.name,
            "server": String::from_utf8_lossy(peer.server_name()),
            "state": peer.availability(now).name(),
            "backup": peer.is_backup(),
            "weight": peer.weight(),
            "max_conns": peer.max_conns(),
            "active": stats.active,
            "idle": stats.idle,
            "requests": stats.requests,
            "responses": {
                "1xx": stats.responses[0],
                "2xx": stats.responses[1],
                "3xx": stats.responses[2],
                "4xx": stats.responses[3],
                "5xx": stats.responses[4],
            },
            "sent": stats.sent,
            "received": stats.received,
            "fails": stats.fails,
            "unavail": stats.unavailable,
            "health_checks": {
                "checks": stats.checks,
                "fails": stats.failed_checks,
                "unhealthy": stats.unhealthy,
                "last_passed": stats.last_check_passed,
            },
            "downtime_us": stats.downtime_ms * 1000,
            "header_time_us": stats.header_time_ms * 1000,
            "response_time_us": stats.response_time_ms * 1000,
        })
    });
    json!({
        "name": String::from_utf8_lossy(group.name()),
        "zone": group.conf().zone.as_deref().map(String::from_utf8_lossy),
        "queue": { "waiting": waiting, "overflowed": overflowed },
        "peers": peers.collect::<Vec<_>>(),
    })
}

pub fn us(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}
