//! Events and certificates, as JSON and OpenMetrics.

use std::time::{SystemTime, UNIX_EPOCH};

use nowait_front::tls::certificates::CertificateUse;
use nowait_runtime::events::Event;
use serde_json::{Value, json};

use super::openmetrics::MetricsText;
use super::report::Report;

/// An event.
pub fn event(event: &Event) -> Value {
    json!({
        "number": event.number,
        "time_ms": event.time_ms,
        "first_ms": event.first_ms,
        "count": event.count,
        "severity": event.kind.severity().name(),
        "kind": event.kind.name(),
        "subject": event.subject,
        "text": event.text,
    })
}

/// A certificate in use.
pub fn certificate(certificate: &CertificateUse, now: SystemTime) -> Value {
    json!({
        "name": certificate.name(),
        "names": certificate.names,
        "source": certificate.source,
        "issuer": certificate.issuer,
        "serial": certificate.serial,
        "not_before_ms": ms(certificate.begin),
        "not_after_ms": ms(certificate.end),
        "seconds_left": certificate.seconds_left(now),
    })
}

fn ms(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// As OpenMetrics: how often each kind of event has happened, and when certificates end, in seconds since 1970.
pub fn openmetrics(report: &Report, text: &mut MetricsText) {
    text.family("nowait_events", "counter", "", "Events by kind, since the start.");
    for (kind, count) in &report.event_counts {
        let labels = [("kind", kind.name()), ("severity", kind.severity().name())];
        text.sample("nowait_events_total", &labels, *count);
    }
    const NAME: &str = "nowait_certificate_not_after_timestamp_seconds";
    text.family(NAME, "gauge", "seconds", "When a certificate in use expires.");
    for one in &report.certificates {
        let labels = [("name", one.name()), ("source", &one.source), ("serial", &one.serial)];
        text.sample(NAME, &labels, ms(one.end) / 1000);
    }
}
