//! The tables of a report: overview, zones, disks, pools, caches, upstreams, loops, certificates, events.
//!
//! Pure functions of two reports of `status_api`, of which the earlier one tells rates. What a report lacks is shown
//! as a dash: the server may be of another version.

use serde_json::Value;

use super::numbers::{bytes, count, date, share, time};
use super::sheet::{Sheet, SheetCell, SheetRow, Tone};

/// Disks and pools are slow from these times on, in microseconds, as in the server's findings.
const SLOW_US: f64 = 200_000.0;
const LONG_WAIT_US: f64 = 50_000.0;

/// Seconds before its end from which on a certificate is marked.
const EXPIRES_S: f64 = 864_000.0;

/// A report, and the time that has passed since the one before.
pub struct Sample<'r> {
    pub now: Value,
    before: Option<&'r Value>,
    /// Seconds; `None`: there is no other report of the same process.
    passed: Option<f64>,
}

impl<'r> Sample<'r> {
    /// Compares a report with the one before.
    pub fn new(now: Value, before: Option<&'r Value>) -> Sample<'r> {
        let before = before.filter(|before| before["pid"] == now["pid"]);
        let ms = |report: &Value| report["time_ms"].as_f64();
        let passed = before.and_then(|before| Some((ms(&now)? - ms(before)?) / 1000.0));
        Sample { now, before, passed: passed.filter(|passed| *passed > 0.0) }
    }

    /// The element of a list in the report before that agrees in these members.
    fn then(&self, list: &[&str], element: &Value, by: &[&str]) -> &'r Value {
        const NOTHING: &Value = &Value::Null;
        let Some(before) = self.before else { return NOTHING };
        let all = list.iter().fold(before, |value, name| &value[*name]);
        let is_same = |other: &&Value| by.iter().all(|name| other[*name] == element[*name]);
        all.as_array().into_iter().flatten().find(is_same).unwrap_or(NOTHING)
    }

    /// The increase per second of a number.
    fn rate(&self, now: Option<f64>, then: Option<f64>) -> Option<f64> {
        let (now, then) = (now?, then?);
        Some((now - then) / self.passed?).filter(|rate| *rate >= 0.0)
    }
}

/// All tables, in the order of their tabs.
pub fn all(sample: &Sample<'_>) -> Vec<Sheet> {
    vec![
        overview(sample),
        disks(sample),
        pools(sample),
        zones(sample),
        caches(sample),
        upstreams(sample),
        loops(sample),
        certificates(sample),
        events(sample),
    ]
}

/// Numbers of the whole server, for the line at the top: names, values, and what their sparklines show.
pub fn totals(sample: &Sample<'_>) -> Vec<(&'static str, SheetCell, Option<f64>)> {
    let now = &sample.now;
    let then = sample.before.unwrap_or(&Value::Null);
    let requests = sample.rate(at(now, &["requests", "total"]), at(then, &["requests", "total"]));
    let sum = |list: &str, name: &str| {
        list_of(now, &[list]).map(|one| one[name].as_f64().unwrap_or_default()).sum::<f64>()
    };
    let (clients, busy) = (sum("thread_pools", "clients"), sum("file_systems", "in_progress"));
    let active = at(now, &["connections", "active"]);
    let cell = |value: Option<f64>| SheetCell::number(value, count);
    vec![
        ("Requests/s", cell(requests), requests),
        ("Connections", cell(active), active),
        ("Being answered", cell(at(now, &["connections", "writing"])), None),
        ("Clients at pools", cell(Some(clients)), Some(clients)),
        ("Operations on disks", cell(Some(busy)), Some(busy)),
    ]
}

fn at(value: &Value, path: &[&str]) -> Option<f64> {
    path.iter().fold(value, |value, name| &value[*name]).as_f64()
}

fn list_of<'v>(value: &'v Value, path: &[&str]) -> impl Iterator<Item = &'v Value> + use<'v> {
    let list = path.iter().fold(value, |value, name| &value[*name]);
    list.as_array().into_iter().flatten()
}

fn text(value: &Value) -> SheetCell {
    SheetCell::text(value.as_str().unwrap_or("-"))
}

fn number(value: Option<f64>) -> SheetCell {
    SheetCell::number(value, count)
}

/// A time in microseconds, marked from these on.
fn timed(us: Option<f64>, warning: f64, bad: f64) -> SheetCell {
    let tone = match us {
        Some(us) if us >= bad => Tone::Bad,
        Some(us) if us >= warning => Tone::Warning,
        _ => Tone::Plain,
    };
    SheetCell::number(us, time).toned(tone)
}

fn marked(value: Option<f64>, tone: Tone) -> SheetCell {
    let tone = if value.is_some_and(|value| value > 0.0) { tone } else { Tone::Plain };
    number(value).toned(tone)
}

/// The sum of the members whose names have this end.
fn sum_of(operations: &Value, end: &str) -> Option<f64> {
    let all = operations.as_object()?;
    Some(all.iter().filter(|(name, _)| name.ends_with(end)).filter_map(|(_, n)| n.as_f64()).sum())
}

/// The sum of a member of all operations of a pool.
fn sum_in(operations: &Value, member: &str) -> Option<f64> {
    Some(operations.as_object()?.values().filter_map(|one| one[member].as_f64()).sum())
}

fn overview(sample: &Sample<'_>) -> Sheet {
    let mut rows: Vec<SheetRow> = list_of(&sample.now, &["findings"])
        .map(|one| {
            let tone = match one["severity"].as_str() {
                Some("error") => Tone::Bad,
                Some("warning") => Tone::Warning,
                _ => Tone::Plain,
            };
            let key = format!("{}{}", one["of"], one["subject"]);
            let text_and_hint = format!(
                "{}. What to do: {}",
                one["text"].as_str().unwrap_or("-"),
                one["hint"].as_str().unwrap_or("-")
            );
            let cells = vec![text(&one["severity"]).toned(tone), SheetCell::text(text_and_hint)];
            SheetRow { key, cells, trend: None }
        })
        .collect();
    if rows.is_empty() {
        let cells = vec![
            SheetCell::text("good").toned(Tone::Good),
            SheetCell::text("nothing calls for attention"),
        ];
        rows.push(SheetRow { key: String::new(), cells, trend: None });
    }
    rows.extend(totals(sample).into_iter().map(|(name, cell, _)| {
        let cells = vec![SheetCell::text(name), SheetCell { number: None, ..cell }];
        SheetRow { key: name.to_owned(), cells, trend: None }
    }));
    Sheet {
        title: "Overview",
        columns: vec![("What", false), ("Finding", false)],
        rows,
        trend: "",
        empty: "",
    }
}

fn disks(sample: &Sample<'_>) -> Sheet {
    let rows = list_of(&sample.now, &["file_systems"]).map(|one| {
        let then = sample.then(&["file_systems"], one, &["name"]);
        let rate = |end: &str| {
            number(sample.rate(sum_of(&one["operations"], end), sum_of(&then["operations"], end)))
        };
        let stalled = at(one, &["stalled_us"]).unwrap_or_default();
        let read = at(one, &["recent_read_us", "p99"]);
        let write = at(one, &["recent_write_us", "p99"]);
        let state = if stalled >= 1e6 {
            SheetCell::text(format!("hangs for {}", time(stalled))).toned(Tone::Bad)
        } else if [read, write].into_iter().flatten().fold(0.0, f64::max) >= SLOW_US {
            SheetCell::text("slow").toned(Tone::Warning)
        } else {
            SheetCell::text("good").toned(Tone::Good)
        };
        let place = one["directory"].as_str().or(one["name"].as_str()).unwrap_or("-");
        let slow = |us| timed(us, LONG_WAIT_US, SLOW_US);
        SheetRow {
            key: one["name"].to_string(),
            cells: vec![
                SheetCell::text(place),
                state,
                marked(at(one, &["waiting"]), Tone::Warning),
                number(at(one, &["in_progress"])),
                slow(at(one, &["recent_wait_us", "p99"])),
                slow(at(one, &["recent_read_us", "p50"])),
                slow(read),
                slow(at(one, &["recent_read_us", "p999"])),
                slow(write),
                rate("_inline"),
                rate("_fallback"),
                rate("_pool"),
                marked(at(one, &["errors"]), Tone::Bad),
                SheetCell::text(format!(
                    "{} {}",
                    one["name"].as_str().unwrap_or("-"),
                    one["source"].as_str().or(one["type"].as_str()).unwrap_or("-")
                )),
            ],
            trend: read.or(Some(0.0)),
        }
    });
    Sheet {
        title: "Disks",
        columns: vec![
            ("Place", false),
            ("State", false),
            ("Waiting", true),
            ("Busy", true),
            ("Wait p99", true),
            ("Read p50", true),
            ("p99", true),
            ("p999", true),
            ("Write p99", true),
            ("Inline/s", true),
            ("Fall-backs/s", true),
            ("Pool/s", true),
            ("Errors", true),
            ("Device", false),
        ],
        rows: rows.collect(),
        trend: "99th percentile of reading",
        empty: "no file was used yet",
    }
}

fn pools(sample: &Sample<'_>) -> Sheet {
    let rows = list_of(&sample.now, &["thread_pools"]).map(|one| {
        let then = sample.then(&["thread_pools"], one, &["name"]);
        let (busy, threads) = (at(one, &["busy"]), at(one, &["threads"]));
        let (waiting, max) = (at(one, &["waiting"]), at(one, &["max_queue"]));
        let is_full =
            waiting.zip(max).is_some_and(|(waiting, max)| max > 0.0 && waiting >= max * 0.8);
        let all_busy = busy.zip(threads).is_some_and(|(busy, threads)| busy >= threads);
        let busy_tone = if all_busy { Tone::Warning } else { Tone::Plain };
        let done = |one: &Value| sum_in(&one["operations"], "completed");
        let wait = |name: &str| timed(at(one, &["recent_wait_us", name]), LONG_WAIT_US, SLOW_US);
        let service = |name: &str| SheetCell::number(at(one, &["recent_service_us", name]), time);
        SheetRow {
            key: one["name"].to_string(),
            cells: vec![
                text(&one["name"]),
                number(busy).toned(busy_tone),
                number(threads),
                marked(waiting, if is_full { Tone::Bad } else { Tone::Warning }),
                number(max),
                marked(at(one, &["clients"]), Tone::Warning),
                wait("p50"),
                wait("p99"),
                wait("p999"),
                service("p50"),
                service("p99"),
                service("p999"),
                number(sample.rate(done(one), done(then))),
                marked(sum_in(&one["operations"], "overflowed"), Tone::Bad),
            ],
            trend: waiting,
        }
    });
    Sheet {
        title: "Pools",
        columns: vec![
            ("Pool", false),
            ("Busy", true),
            ("Threads", true),
            ("Waiting", true),
            ("At most", true),
            ("Clients", true),
            ("Wait p50", true),
            ("p99", true),
            ("p999", true),
            ("Service p50", true),
            ("p99", true),
            ("p999", true),
            ("Done/s", true),
            ("Refused", true),
        ],
        rows: rows.collect(),
        trend: "waiting tasks",
        empty: "there are no thread pools",
    }
}

fn zones(sample: &Sample<'_>) -> Sheet {
    // Sessions of `stream` are to their zones what requests are to others; they have no times.
    const LISTS: [(&[&str], &str, &str, &str); 3] = [
        (&["zones", "servers"], "server", "requests", "responses"),
        (&["zones", "locations"], "location", "requests", "responses"),
        (&["stream", "zones"], "stream", "connections", "sessions"),
    ];
    let mut rows = Vec::new();
    for (list, kind, all, by_status) in LISTS {
        for one in list_of(&sample.now, list) {
            let then = sample.then(list, one, &["name"]);
            let rate = |path: &[&str]| sample.rate(at(one, path), at(then, path));
            let ended = |one: &Value| Some(at(one, &[all])? - at(one, &["processing"])?);
            let requests = sample.rate(ended(one), ended(then));
            let time = |name: &str| SheetCell::number(at(one, &["request_time_us", name]), time);
            rows.push(SheetRow {
                key: format!("{kind} {}", one["name"]),
                cells: vec![
                    text(&one["name"]),
                    SheetCell::text(kind),
                    number(requests),
                    number(at(one, &["processing"])),
                    number(rate(&[by_status, "2xx"])),
                    number(rate(&[by_status, "3xx"])),
                    number(rate(&[by_status, "4xx"])),
                    marked(rate(&[by_status, "5xx"]), Tone::Bad),
                    SheetCell::number(rate(&["sent"]), bytes),
                    SheetCell::number(rate(&["received"]), bytes),
                    time("p50"),
                    time("p90"),
                    time("p99"),
                    time("p999"),
                ],
                trend: requests,
            });
        }
    }
    Sheet {
        title: "Zones",
        columns: vec![
            ("Zone", false),
            ("Of", false),
            ("Requests/s", true),
            ("Active", true),
            ("2xx/s", true),
            ("3xx/s", true),
            ("4xx/s", true),
            ("5xx/s", true),
            ("Sent/s", true),
            ("Received/s", true),
            ("p50", true),
            ("p90", true),
            ("p99", true),
            ("p999", true),
        ],
        rows,
        trend: "requests per second",
        empty: "no zones: count the requests of a server or location by \"status_zone NAME;\"",
    }
}

fn caches(sample: &Sample<'_>) -> Sheet {
    const HITS: [&str; 4] = ["hits_memory", "hits_inline", "hits_pool", "hits_filling"];
    let rows = list_of(&sample.now, &["caches"]).map(|one| {
        let then = sample.then(&["caches"], one, &["name"]);
        let rate = |name: &str| {
            sample.rate(at(one, &["operations", name]), at(then, &["operations", name]))
        };
        let hits: Option<f64> = HITS.iter().map(|name| rate(name)).sum();
        let ratio = hits.zip(rate("misses")).map(|(hits, misses)| hits / (hits + misses));
        let state = match (one["in_use"].as_bool(), one["stores"].as_bool()) {
            (Some(false), _) => {
                let why = one["out_of_use_because"].as_str().unwrap_or("-");
                SheetCell::text(format!("out of use: {why}")).toned(Tone::Bad)
            }
            (_, Some(false)) => {
                let why = one["stores_nothing_because"].as_str().unwrap_or("-");
                SheetCell::text(format!("stores nothing: {why}")).toned(Tone::Bad)
            }
            _ if one["cold"] == true => SheetCell::text("reads its disk").toned(Tone::Warning),
            _ => SheetCell::text("good").toned(Tone::Good),
        };
        SheetRow {
            key: one["name"].to_string(),
            cells: vec![
                text(&one["name"]),
                state,
                SheetCell::number(at(one, &["size"]), bytes),
                SheetCell::number(at(one, &["max_size"]), bytes),
                number(at(one, &["objects"])),
                SheetCell::number(ratio, share),
                number(rate("hits_memory")),
                number(rate("hits_inline")),
                number(rate("hits_pool")),
                number(rate("misses")),
                number(rate("stored")),
                number(rate("evicted")),
                number(at(one, &["under_way"])),
                marked(at(one, &["operations", "errors"]), Tone::Bad),
            ],
            trend: ratio,
        }
    });
    Sheet {
        title: "Caches",
        columns: vec![
            ("Cache", false),
            ("State", false),
            ("Size", true),
            ("At most", true),
            ("Objects", true),
            ("Hit ratio", true),
            ("Memory/s", true),
            ("Inline/s", true),
            ("Pool/s", true),
            ("Misses/s", true),
            ("Stored/s", true),
            ("Evicted/s", true),
            ("On disk", true),
            ("Errors", true),
        ],
        rows: rows.collect(),
        trend: "hit ratio",
        empty: "there are no caches",
    }
}

fn upstreams(sample: &Sample<'_>) -> Sheet {
    let mut rows = Vec::new();
    for path in [&["upstreams"][..], &["stream", "upstreams"]] {
        for group in list_of(&sample.now, path) {
            let group_then = sample.then(path, group, &["name"]);
            for one in list_of(group, &["peers"]) {
                let is_same = |other: &&Value| {
                    other["name"] == one["name"] && other["server"] == one["server"]
                };
                let then = list_of(group_then, &["peers"]).find(is_same).unwrap_or(&Value::Null);
                rows.push(peer(sample, group, one, then));
            }
        }
    }
    Sheet {
        title: "Upstreams",
        columns: vec![
            ("Server", false),
            ("Upstream", false),
            ("State", false),
            ("Weight", true),
            ("Active", true),
            ("Idle", true),
            ("Requests/s", true),
            ("4xx/s", true),
            ("5xx/s", true),
            ("Header", true),
            ("Response", true),
            ("Fails", true),
            ("Failed checks", true),
        ],
        rows,
        trend: "requests per second",
        empty: "there are no upstream blocks",
    }
}

fn peer(sample: &Sample<'_>, group: &Value, one: &Value, then: &Value) -> SheetRow {
    let rate = |path: &[&str]| sample.rate(at(one, path), at(then, path));
    let tone = match one["state"].as_str() {
        Some("up") => Tone::Good,
        Some("down" | "draining") => Tone::Warning,
        _ => Tone::Bad,
    };
    let requests = rate(&["requests"]);
    SheetRow {
        key: format!("{} {} {}", group["name"], one["name"], one["server"]),
        cells: vec![
            text(&one["name"]),
            text(&group["name"]),
            text(&one["state"]).toned(tone),
            number(at(one, &["weight"])),
            number(at(one, &["active"])),
            number(at(one, &["idle"])),
            number(requests),
            number(rate(&["responses", "4xx"])),
            marked(rate(&["responses", "5xx"]), Tone::Bad),
            SheetCell::number(at(one, &["header_time_us"]), time),
            SheetCell::number(at(one, &["response_time_us"]), time),
            number(at(one, &["fails"])),
            number(at(one, &["health_checks", "fails"])),
        ],
        trend: requests,
    }
}

fn loops(sample: &Sample<'_>) -> Sheet {
    let rows = list_of(&sample.now, &["workers"]).map(|one| {
        let then = sample.then(&["workers"], one, &["worker"]);
        let rate = |name: &str| {
            let path = ["event_loop_blocked", name];
            sample.rate(at(one, &path), at(then, &path))
        };
        let working = rate("total_us").map(|us| (us / 1e6).min(1.0));
        let cause =
            one["event_loop_blocked"]["longest_at"].as_str().filter(|text| !text.is_empty());
        SheetRow {
            key: one["worker"].to_string(),
            cells: vec![
                SheetCell {
                    number: one["worker"].as_f64().map(|n| -n),
                    ..SheetCell::text(one["worker"].to_string())
                },
                text(&one["event_method"]),
                number(at(one, &["connections"])),
                SheetCell::number(working, share),
                number(rate("turns")),
                timed(at(one, &["event_loop_blocked", "longest_us"]), LONG_WAIT_US, 1e6),
                SheetCell::text(cause.unwrap_or("-")),
            ],
            trend: working,
        }
    });
    Sheet {
        title: "Loops",
        columns: vec![
            ("Worker", true),
            ("Events by", false),
            ("Connections", true),
            ("Working", true),
            ("Turns/s", true),
            ("Longest turn", true),
            ("At work then", false),
        ],
        rows: rows.collect(),
        trend: "share of the time that the loop works",
        empty: "no event loop runs",
    }
}

fn certificates(sample: &Sample<'_>) -> Sheet {
    let rows = list_of(&sample.now, &["certificates"]).map(|one| {
        let left = at(one, &["seconds_left"]);
        let tone = match left {
            Some(left) if left <= 0.0 => Tone::Bad,
            Some(left) if left < EXPIRES_S => Tone::Warning,
            _ => Tone::Good,
        };
        let days = SheetCell::number(left, |left| format!("{:.1} days", left / 86_400.0));
        // Soon comes first.
        let days = SheetCell { number: left.map(|left| -left), ..days };
        SheetRow {
            key: format!("{} {}", one["source"], one["serial"]),
            cells: vec![
                text(&one["name"]),
                days.toned(tone),
                SheetCell::text(one["not_after_ms"].as_u64().map_or_else(|| "-".to_owned(), date)),
                text(&one["source"]),
                text(&one["issuer"]),
            ],
            trend: None,
        }
    });
    Sheet {
        title: "Certificates",
        columns: vec![
            ("Name", false),
            ("Expires in", true),
            ("At (UTC)", false),
            ("File", false),
            ("Issuer", false),
        ],
        rows: rows.collect(),
        trend: "",
        empty: "no certificate is in use",
    }
}

fn events(sample: &Sample<'_>) -> Sheet {
    let mut rows: Vec<SheetRow> = list_of(&sample.now, &["events"])
        .map(|one| {
            let tone = match one["severity"].as_str() {
                Some("error") => Tone::Bad,
                Some("warning") => Tone::Warning,
                _ => Tone::Plain,
            };
            let when = one["time_ms"].as_u64();
            let when_text = when.map_or_else(|| "-".to_owned(), date);
            SheetRow {
                key: one["number"].to_string(),
                cells: vec![
                    SheetCell {
                        text: when_text,
                        number: one["number"].as_f64(),
                        tone: Tone::Plain,
                    },
                    text(&one["severity"]).toned(tone),
                    number(at(one, &["count"])),
                    text(&one["text"]),
                ],
                trend: None,
            }
        })
        .collect();
    rows.reverse();
    Sheet {
        title: "Events",
        columns: vec![("Time (UTC)", false), ("Severity", false), ("Times", true), ("What", false)],
        rows,
        trend: "",
        empty: "nothing has happened yet",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn report(time_ms: u64, requests: u64) -> Value {
        json!({
            "pid": 1, "time_ms": time_ms,
            "requests": { "total": requests },
            "connections": { "active": 3, "writing": 1 },
            "findings": [{ "severity": "error", "of": "file_system", "subject": "8:1", "text": "disk /srv hangs", "hint": "check it" }],
            "file_systems": [{
                "name": "8:1", "type": "xfs", "directory": "/srv", "source": "/dev/sda1",
                "waiting": 9, "in_progress": 2, "stalled_us": 1_500_000, "errors": 0,
                "operations": { "read_inline": requests, "send_inline": requests, "read_pool": 1 },
                "recent_wait_us": { "p99": 60_000 },
                "recent_read_us": { "p50": 80, "p99": null, "p999": null },
                "recent_write_us": { "p99": null },
            }],
            "thread_pools": [{
                "name": "slow", "busy": 2, "threads": 2, "waiting": 9, "max_queue": 10, "clients": 11,
                "recent_wait_us": { "p50": 1 }, "recent_service_us": {},
                "operations": { "read": { "completed": requests, "overflowed": 4 }, "open": { "completed": 1 } },
            }],
        })
    }

    fn cells<'s>(sheets: &'s [Sheet], title: &str) -> Vec<&'s str> {
        let sheet = sheets.iter().find(|sheet| sheet.title == title).unwrap();
        sheet.rows[0].cells.iter().map(|cell| &*cell.text).collect()
    }

    #[test]
    fn rates_are_those_between_two_reports() {
        let before = report(1000, 100);
        let sample = Sample::new(report(3000, 400), Some(&before));
        let sheets = all(&sample);
        assert_eq!(cells(&sheets, "Overview"), ["error", "disk /srv hangs. What to do: check it"]);
        let disk = cells(&sheets, "Disks");
        assert_eq!(disk[..5], ["/srv", "hangs for 1.5 s", "9", "2", "60 ms"]);
        assert_eq!(disk[9..12], ["300", "0", "0"]);
        assert_eq!(disk[13], "8:1 /dev/sda1");
        let pool = cells(&sheets, "Pools");
        assert_eq!(pool[..6], ["slow", "2", "2", "9", "10", "11"]);
        assert_eq!(pool[12..], ["150", "4"]);
        assert_eq!(totals(&sample)[0].1.text, "150");
    }

    #[test]
    fn one_report_and_those_of_others_have_no_rates() {
        let sample = Sample::new(report(3000, 400), None);
        assert_eq!(totals(&sample)[0].1.text, "-");
        let mut other = report(1000, 100);
        other["pid"] = 2.into();
        let sample = Sample::new(report(3000, 400), Some(&other));
        assert_eq!(totals(&sample)[0].1.text, "-");
        // A counter that has begun again, and a clock that was set back.
        let before = report(1000, 500);
        let sample = Sample::new(report(3000, 400), Some(&before));
        assert_eq!(totals(&sample)[0].1.text, "-");
        let before = report(4000, 100);
        let sample = Sample::new(report(3000, 400), Some(&before));
        assert_eq!(totals(&sample)[0].1.text, "-");
    }

    #[test]
    fn reports_of_any_shape_have_tables() {
        for odd in [
            json!(null),
            json!({}),
            json!([]),
            json!({ "file_systems": [1, null, {}], "caches": {}, "workers": [[]], "zones": { "servers": [{}] }, "upstreams": [{ "peers": [3] }], "stream": { "zones": [{}, 1] }, "events": [0], "certificates": [true], "findings": [""] }),
        ] {
            let sample = Sample::new(odd.clone(), Some(&odd));
            let sheets = all(&sample);
            assert_eq!(sheets.len(), 9);
            for sheet in sheets {
                assert!(sheet.rows.iter().all(|row| row.cells.len() == sheet.columns.len()));
                assert!(!sheet.text().is_empty());
            }
        }
    }

    #[test]
    fn no_text_of_a_server_steers_the_terminal() {
        // JSON need not escape the last one.
        let evil = "\u{1b}[2J\r\u{9b}2J";
        let one = json!({
            "name": evil, "worker": evil, "state": evil, "server": evil, "source": evil, "directory": evil,
            "event_method": evil, "issuer": evil, "severity": evil, "text": evil, "hint": evil, "in_use": false,
            "out_of_use_because": evil, "event_loop_blocked": { "longest_at": evil },
        });
        let peers = json!([{ "name": evil, "peers": [one.clone()] }]);
        let zones = json!({ "servers": [one.clone()], "locations": [one.clone()] });
        let stream = json!({ "zones": [one.clone()] });
        let mut report = json!({ "upstreams": peers, "zones": zones, "stream": stream });
        for list in [
            "findings",
            "file_systems",
            "thread_pools",
            "caches",
            "workers",
            "certificates",
            "events",
        ] {
            report[list] = json!([one.clone()]);
        }
        let sheets = all(&Sample::new(report, None));
        assert!(sheets.iter().all(|sheet| !sheet.rows.is_empty()));
        let text: String = sheets.iter().map(Sheet::text).collect();
        assert!(!text.replace('\n', "").contains(char::is_control), "{text:?}");
    }
}
