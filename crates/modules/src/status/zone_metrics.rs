//! Zones as OpenMetrics.

use nowait_front::sessions::SessionZone;
use nowait_runtime::histogram::HistogramSnapshot;

use super::openmetrics::MetricsText;
use super::report::Report;
use super::zone::{ZoneKind, ZoneSnapshot};

/// Reads a number of a zone.
type Number = fn(&ZoneSnapshot) -> u64;

/// Reads the times of a zone.
type Times = fn(&ZoneSnapshot) -> &HistogramSnapshot;

/// Reads a number of a zone of `stream`.
type Count = fn(&SessionZone) -> u64;

/// The families of zones of `stream`; nothing if there are none.
pub fn of_sessions(zones: &[SessionZone], text: &mut MetricsText) {
    if zones.is_empty() {
        return;
    }
    let sample = |text: &mut MetricsText, name: &str, zone: &SessionZone, count: u64| {
        text.sample(name, &[("zone", &zone.name)], count);
    };
    text.family("nowait_stream_zone_processing", "gauge", "", "Sessions in progress.");
    for zone in zones {
        sample(text, "nowait_stream_zone_processing", zone, zone.processing);
    }
    let counters: [(&str, &str, &str, Count); 5] = [
        ("nowait_stream_zone_connections", "", "Sessions that have ended.", |zone| zone.ended),
        ("nowait_stream_zone_passed", "", "Sessions whose connection was handed over.", |zone| {
            zone.passed
        }),
        ("nowait_stream_zone_discarded", "", "Sessions that ended without a status.", |zone| {
            zone.discarded
        }),
        ("nowait_stream_zone_received_bytes", "bytes", "Bytes received from clients.", |zone| {
            zone.received
        }),
        ("nowait_stream_zone_sent_bytes", "bytes", "Bytes sent to clients.", |zone| zone.sent),
    ];
    for (name, unit, help, get) in counters {
        text.family(name, "counter", unit, help);
        for zone in zones {
            sample(text, &format!("{name}_total"), zone, get(zone));
        }
    }
    text.family("nowait_stream_zone_sessions", "counter", "", "Ended sessions by status.");
    for zone in zones {
        for (status, count) in zone.statuses.iter().filter(|(_, count)| *count > 0) {
            let labels = [("zone", &*zone.name), ("status", &status.to_string())];
            text.sample("nowait_stream_zone_sessions_total", &labels, *count);
        }
    }
}

/// The families of all zones; nothing if there are none.
pub fn openmetrics(report: &Report, text: &mut MetricsText) {
    let servers = report.server_zones.iter().map(|zone| (ZoneKind::Server, zone));
    let locations = report.location_zones.iter().map(|zone| (ZoneKind::Location, zone));
    let zones: Vec<(ZoneKind, &ZoneSnapshot)> = servers.chain(locations).collect();
    if zones.is_empty() {
        return;
    }
    text.family("nowait_zone_processing", "gauge", "", "Requests being processed by a server.");
    for (kind, zone) in zones.iter().filter(|(kind, _)| *kind == ZoneKind::Server) {
        text.sample("nowait_zone_processing", &labels(*kind, zone), zone.processing);
    }
    let counters: [(&str, &str, &str, Number); 4] = [
        // Not those being processed: a counter that falls is taken for one that began again.
        ("nowait_zone_requests", "", "Requests that have ended.", |zone| zone.ended),
        ("nowait_zone_discarded", "", "Requests that ended without a response.", |zone| {
            zone.discarded
        }),
        ("nowait_zone_received_bytes", "bytes", "Bytes received from clients.", |zone| {
            zone.received
        }),
        ("nowait_zone_sent_bytes", "bytes", "Bytes sent to clients.", |zone| zone.sent),
    ];
    for (name, unit, help, get) in counters {
        text.family(name, "counter", unit, help);
        for (kind, zone) in &zones {
            text.sample(&format!("{name}_total"), &labels(*kind, zone), get(zone));
        }
    }
    text.family("nowait_zone_responses", "counter", "", "Responses by status.");
    for (kind, zone) in &zones {
        let [of, name] = labels(*kind, zone);
        for (status, count) in &zone.statuses {
            let status = status.to_string();
            text.sample("nowait_zone_responses_total", &[of, name, ("status", &status)], *count);
        }
    }
    let histograms: [(&str, &str, Times); 2] = [
        (
            "nowait_zone_request_seconds",
            "Times of requests, from the first byte to the end of the response.",
            |zone| &zone.total,
        ),
        (
            "nowait_zone_upstream_seconds",
            "Times that upstream servers took for requests.",
            |zone| &zone.upstream,
        ),
    ];
    for (name, help, get) in histograms {
        text.family(name, "histogram", "seconds", help);
        for (kind, zone) in &zones {
            text.histogram(name, &labels(*kind, zone), get(zone));
        }
    }
}

fn labels(kind: ZoneKind, zone: &ZoneSnapshot) -> [(&str, &str); 2] {
    [("kind", kind.name()), ("zone", &zone.name)]
}
