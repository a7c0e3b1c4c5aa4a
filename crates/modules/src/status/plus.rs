//! `api`: the read-only paths of version 9 of NGINX Plus's API, for programs that read it.
//!
//! The tree is built for each request from the same report as the other pages. What does not exist here
//! (zones of shared memory, key-value zones) is an empty object; numbers that are not counted are left out.
//! Nothing is ever dropped: a worker without room accepts no connection.

use std::collections::BTreeMap;

use bytes::Bytes;
use nowait_conf::{Cx, Diagnostic, Node};
use nowait_front::NGINX_VERSION;
use nowait_front::limit::decisions::ZoneUse;
use nowait_http::module::{Handler, Step, set_content};
use nowait_http::outcome::Outcome;
use nowait_http::request::Request;
use nowait_http::response::{Body, Head, Response};
use nowait_message::Method;
use nowait_runtime::time::utc_time;
use nowait_upstream::{Availability, Group};
use serde_json::{Map, Value, json};

use super::limits;
use super::report::Report;
use super::zone::ZoneSnapshot;

/// The versions of the API whose paths work. What later versions add to the fields of version 9 is left out.
const VERSIONS: [u64; 9] = [1, 2, 3, 4, 5, 6, 7, 8, 9];

/// The documentation that errors refer to.
const HREF: &str = "https://nginx.org/en/docs/http/ngx_http_api_module.html";

/// `api [write=on|off];`
pub fn api(cx: &mut Cx<'_>, node: &Node) -> Result<(), Diagnostic> {
    if let Some(word) = node.args.first() {
        match &*word.text {
            b"write=off" => {}
            b"write=on" => {
                return Err(word
                    .error("the API cannot change anything yet")
                    .hint("leave \"write=on\" out: the API is read-only"));
            }
            _ => {
                return Err(word
                    .error(format!("invalid parameter \"{word}\""))
                    .expected("write=off"));
            }
        }
    }
    set_content(cx, node, |_, _, _| Api);
    Ok(())
}

struct Api;

impl Handler for Api {
    fn handle<'r>(&'r self, request: &'r mut Request) -> Step<'r> {
        let outcome = respond(request);
        Step::Done(request, outcome)
    }
}

fn respond(request: &Request) -> Outcome {
    if !matches!(request.method(), Method::Get | Method::Head) {
        return error(request, 405, "method disabled", "MethodDisabled");
    }
    let Some(path) = super::part(request) else {
        return error(request, 404, "path not found", "PathNotFound");
    };
    let fields = fields(request);
    match find(&super::report(request), &path) {
        Ok(value) => page(200, &with_fields(value, &path, fields.as_deref())),
        Err(Missing::Version) => error(request, 404, "unknown version", "UnknownVersion"),
        Err(Missing::Path) => error(request, 404, "path not found", "PathNotFound"),
    }
}

/// The argument `fields`.
fn fields(request: &Request) -> Option<Vec<String>> {
    let query = std::str::from_utf8(request.uri().query()).ok()?;
    let list = query.split('&').find_map(|argument| argument.strip_prefix("fields="))?;
    Some(list.split(',').filter(|name| !name.is_empty()).map(str::to_owned).collect())
}

/// Why there is nothing at a path.
#[derive(Debug, PartialEq, Eq)]
enum Missing {
    Version,
    Path,
}

fn page(status: u16, value: &Value) -> Outcome {
    let text = value.to_string();
    let mut head = Head::new(status);
    head.content_type = Some(Bytes::from_static(b"application/json"));
    head.content_length = Some(text.len() as u64);
    head.add("Cache-Control", Bytes::from_static(b"no-cache"));
    Response { head, body: Body::Bytes(text.into()) }.into()
}

fn error(request: &Request, status: u16, text: &str, code: &str) -> Outcome {
    let mut id = Vec::new();
    request.append_id(&mut id);
    let error = json!({
        "error": { "status": status, "text": text, "code": code },
        "request_id": String::from_utf8_lossy(&id),
        "href": HREF,
    });
    page(status, &error)
}

/// The value at a path below the location.
fn find(report: &Report, path: &str) -> Result<Value, Missing> {
    let mut steps = path.split('/').filter(|step| !step.is_empty());
    let Some(version) = steps.next() else { return Ok(json!(VERSIONS)) };
    if !version.parse().is_ok_and(|version| VERSIONS.contains(&version)) {
        return Err(Missing::Version);
    }
    let mut value = root(report);
    for step in steps {
        value = match value {
            Value::Object(mut members) => members.remove(step).ok_or(Missing::Path)?,
            Value::Array(mut elements) => {
                let id: u64 = step.parse().map_err(|_| Missing::Path)?;
                let at = elements.iter().position(|element| element["id"] == id);
                elements.swap_remove(at.ok_or(Missing::Path)?)
            }
            _ => return Err(Missing::Path),
        };
    }
    Ok(listed(value, path))
}

/// The names of the inner paths in place of the whole root, `http` and `stream`.
fn listed(value: Value, path: &str) -> Value {
    let steps: Vec<&str> = path.split('/').filter(|step| !step.is_empty()).collect();
    match (&steps[..], value) {
        ([_] | [_, "http" | "stream"], Value::Object(members)) => {
            members.into_iter().map(|(name, _)| name).collect()
        }
        (_, value) => value,
    }
}

/// Collections by name, to whose members `fields` applies.
const COLLECTIONS: [&str; 10] = [
    "server_zones",
    "location_zones",
    "caches",
    "limit_conns",
    "limit_reqs",
    "upstreams",
    "keyvals",
    "resolvers",
    "slabs",
    "zone_sync",
];

fn with_fields(value: Value, path: &str, fields: Option<&[String]>) -> Value {
    let Some(fields) = fields else { return value };
    let keep = |value: Value| match value {
        Value::Object(members) => {
            Value::Object(members.into_iter().filter(|(name, _)| fields.contains(name)).collect())
        }
        other => other,
    };
    let last = path.rsplit('/').find(|step| !step.is_empty()).unwrap_or_default();
    match value {
        Value::Object(members) if COLLECTIONS.contains(&last) => {
            // Without fields, only the names.
            if fields.is_empty() {
                return members.into_iter().map(|(name, _)| Value::String(name)).collect();
            }
            Value::Object(members.into_iter().map(|(name, value)| (name, keep(value))).collect())
        }
        Value::Array(elements) => elements.into_iter().map(keep).collect(),
        other => keep(other),
    }
}

fn root(report: &Report) -> Value {
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
            "caches": report.caches.iter().map(|cache| (cache.zone.clone(), json!({
                "size": cache.bytes,
                "max_size": cache.bytes_max,
                "cold": cache.loading,
            }))).collect::<Map<_, _>>(),
            "limit_conns": limits::json(&report.limits, ZoneUse::Connections),
            "limit_reqs": limits::json(&report.limits, ZoneUse::Requests),
            "upstreams": upstreams(&report.upstreams, true),
            "keyvals": {},
        },
        "stream": {
            "server_zones": {},
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

fn upstreams(groups: &[std::sync::Arc<Group>], are_http: bool) -> Value {
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
    let peers = stats.into_iter().enumerate().map(|(id, (peer, stats))| {
        let state = match peer.availability(now) {
            Availability::Up if peer.max_conns() > 0 && stats.active >= peer.max_conns() => "busy",
            state => state.name(),
        };
        let mut value = json!({
            "id": id,
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
