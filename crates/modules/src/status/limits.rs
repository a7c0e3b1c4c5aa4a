//! Decisions of limits by zone, for all forms of the report. The names are those of NGINX Plus.

use nowait_front::limit::Decision;
use nowait_front::limit::decisions::{DecisionsSnapshot, ZoneUse};
use serde_json::{Map, Value};

use super::openmetrics::MetricsText;
use super::report::Report;

/// The decisions that a directive makes, with their names.
fn decisions(of: ZoneUse) -> &'static [(&'static str, Decision)] {
    const ALL: [(&str, Decision); 5] = [
        ("passed", Decision::Passed),
        ("rejected", Decision::Rejected),
        ("rejected_dry_run", Decision::RejectedDryRun),
        ("delayed", Decision::Delayed),
        ("delayed_dry_run", Decision::DelayedDryRun),
    ];
    match of {
        ZoneUse::Requests => &ALL,
        // Nothing is delayed.
        ZoneUse::Connections | ZoneUse::Sessions => &ALL[..3],
    }
}

/// The zones of a directive as JSON, by name.
pub fn json(zones: &[DecisionsSnapshot], of: ZoneUse) -> Value {
    let mut all = Map::new();
    for zone in zones.iter().filter(|zone| zone.of == of) {
        let one = decisions(of).iter();
        let counts: Map<String, Value> = one
            .map(|(name, decision)| ((*name).to_owned(), zone.count(*decision).into()))
            .collect();
        all.insert(zone.name.clone(), Value::Object(counts));
    }
    Value::Object(all)
}

/// As OpenMetrics.
pub fn openmetrics(report: &Report, text: &mut MetricsText) {
    let families = [
        (ZoneUse::Requests, "nowait_limit_req", "Decisions of limit_req."),
        (ZoneUse::Connections, "nowait_limit_conn", "Decisions of limit_conn."),
        (ZoneUse::Sessions, "nowait_stream_limit_conn", "Decisions of limit_conn in stream."),
    ];
    for (of, name, help) in families {
        let mut zones = report.limits.iter().filter(|zone| zone.of == of).peekable();
        if zones.peek().is_none() {
            continue;
        }
        text.family(name, "counter", "", help);
        for zone in zones {
            for (result, decision) in decisions(of) {
                let labels = [("zone", &*zone.name), ("result", result)];
                text.sample(&format!("{name}_total"), &labels, zone.count(*decision));
            }
        }
    }
}
