//! The report as OpenMetrics text, version 1.0.0, for Prometheus and compatible tools. Times are in
//! seconds. nginx: the output of exporters for `stub_status`, and more.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use nowait_http::special_pages::PRODUCT_VERSION;
use nowait_runtime::histogram::HistogramSnapshot;
use nowait_runtime::pool::{OpSnapshot, PoolSnapshot};
use nowait_upstream::{Availability, Group, Peer, PeerStats};

use super::report::{Report, buckets};

/// Media type of Prometheus's older text format.
pub const PROMETHEUS: &[u8] = b"text/plain; version=0.0.4; charset=utf-8";

/// Reads a number from a pool's state.
type Number = fn(&PoolSnapshot) -> usize;

/// The text, including its end marker.
pub fn render(report: &Report) -> String {
    let mut text = MetricsText::default();
    of_process(report, &mut text);
    of_loops(report, &mut text);
    of_pools(report, &mut text);
    super::file_systems::openmetrics(report, &mut text);
    of_resident_files(report, &mut text);
    of_upstreams("nowait_upstream", "Requests", &report.upstreams, &mut text);
    of_quic(report, &mut text);
    of_sessions(report, &mut text);
    super::zone_metrics::openmetrics(report, &mut text);
    super::limits::openmetrics(report, &mut text);
    super::caches::openmetrics(report, &mut text);
    super::events::openmetrics(report, &mut text);
    of_resolvers(report, &mut text);
    of_exports(report, &mut text);
    text.0.push_str("# EOF\n");
    text.0
}

fn of_process(report: &Report, text: &mut MetricsText) {
    let totals = &report.totals;
    text.family("nowait", "info", "", "Version of the server.");
    text.sample("nowait_info", &[("version", PRODUCT_VERSION)], 1);
    text.family("nowait_generation", "gauge", "", "Number of the configuration in use.");
    text.sample("nowait_generation", &[], report.generation);
    text.family("nowait_connections_accepted", "counter", "", "Accepted client connections.");
    text.sample("nowait_connections_accepted_total", &[], totals.accepted);
    text.family("nowait_requests", "counter", "", "Requests begun.");
    text.sample("nowait_requests_total", &[], totals.requests);
    let help = "TLS handshakes with clients by result; refused: too many were in progress.";
    text.family("nowait_tls_handshakes", "counter", "", help);
    let handshakes = [
        ("completed", totals.handshakes),
        ("failed", totals.handshakes_failed),
        ("refused", totals.handshakes_refused),
    ];
    for (result, count) in handshakes {
        text.sample("nowait_tls_handshakes_total", &[("result", result)], count);
    }
    let help = "Connections that the kernel seals (kTLS) by result; fallback: it could not; keys_refused: \
                closed because the client asked for new keys.";
    text.family("nowait_ktls_connections", "counter", "", help);
    let kernel = report.kernel;
    let connections = [
        ("used", kernel.offloaded),
        ("fallback", kernel.fallbacks),
        ("keys_refused", kernel.keys_refused),
    ];
    for (result, count) in connections {
        text.sample("nowait_ktls_connections_total", &[("result", result)], count);
    }
    text.family("nowait_connections", "gauge", "", "Open connections by state.");
    let states =
        [("reading", totals.reading), ("writing", totals.writing), ("waiting", totals.waiting())];
    for (state, count) in states {
        text.sample("nowait_connections", &[("state", state)], count);
    }
}

fn of_exports(report: &Report, text: &mut MetricsText) {
    let exports = report.exports;
    let help = "Spans of traces by result; lost: no collector took them, or too many were waiting.";
    text.family("nowait_trace_spans", "counter", "", help);
    for (result, count) in [("sent", exports.sent), ("lost", exports.lost)] {
        text.sample("nowait_trace_spans_total", &[("result", result)], count);
    }
    let help = "1 if the last export of spans has failed.";
    text.family("nowait_trace_export_failing", "gauge", "", help);
    text.sample("nowait_trace_export_failing", &[], u64::from(exports.is_failing));
}

fn of_loops(report: &Report, text: &mut MetricsText) {
    const BLOCKED: &str = "nowait_event_loop_blocked_seconds";
    text.family("nowait_worker_connections", "gauge", "", "Open connections of a worker.");
    for worker in &report.workers {
        let index = worker.index.to_string();
        text.sample("nowait_worker_connections", &[("worker", &index)], worker.connections as u64);
    }
    let help = "How long turns of the event loop ran without returning to the kernel.";
    text.family(BLOCKED, "histogram", "seconds", help);
    for worker in &report.workers {
        let index = worker.index.to_string();
        let mut sum = 0;
        for (bound, count) in buckets(&worker.blocked) {
            sum += count;
            let bound =
                bound.map_or_else(|| "+Inf".to_owned(), |us| seconds(Duration::from_micros(us)));
            let labels = [("worker", &*index), ("le", &*bound)];
            text.sample(&format!("{BLOCKED}_bucket"), &labels, sum);
        }
        let labels = [("worker", &*index)];
        text.sample(&format!("{BLOCKED}_count"), &labels, sum);
        text.time(&format!("{BLOCKED}_sum"), &labels, worker.blocked.total);
    }
    const LONGEST: &str = "nowait_event_loop_blocked_longest_seconds";
    text.family(LONGEST, "gauge", "seconds", "The longest turn, and the code that ran at its end.");
    for worker in &report.workers {
        let index = worker.index.to_string();
        let labels = [("worker", &*index), ("at", worker.blocked.longest_label)];
        text.time(LONGEST, &labels, worker.blocked.longest);
    }
}

fn of_pools(report: &Report, text: &mut MetricsText) {
    let numbers: [(&str, &str, Number); 5] = [
        ("nowait_thread_pool_threads", "Configured threads.", |pool| pool.threads),
        ("nowait_thread_pool_threads_started", "Running threads.", |pool| pool.threads_alive),
        ("nowait_thread_pool_threads_busy", "Threads running a task.", |pool| pool.busy),
        ("nowait_thread_pool_queue_length", "Tasks waiting for a thread.", |pool| pool.queued),
        ("nowait_thread_pool_queue_length_max", "Limit of waiting tasks.", |pool| pool.max_queue),
    ];
    for (name, help, get) in numbers {
        text.family(name, "gauge", "", help);
        for pool in &report.pools {
            text.sample(name, &[("pool", &pool.name)], get(pool) as u64);
        }
    }
    const TASKS: &str = "nowait_thread_pool_tasks";
    text.family(TASKS, "counter", "", "Tasks by outcome.");
    each_operation(report, |pool, op| {
        let results = [
            ("completed", op.completed - op.panicked.min(op.completed)),
            ("panicked", op.panicked),
            ("cancelled", op.cancelled),
            ("overflowed", op.overflowed),
        ];
        for (result, count) in results {
            let labels = [("pool", pool), ("operation", op.op.name()), ("result", result)];
            text.sample(&format!("{TASKS}_total"), &labels, count);
        }
    });
    text.times(
        report,
        "nowait_thread_pool_wait_seconds",
        "How long tasks waited for a thread.",
        |op| (op.started, op.waited_total),
    );
    text.times(
        report,
        "nowait_thread_pool_service_seconds",
        "How long threads ran tasks: mostly the time of the disk.",
        |op| (op.completed, op.served_total),
    );
}

fn of_resident_files(report: &Report, text: &mut MetricsText) {
    let files = &report.resident;
    let gauges = [
        ("nowait_resident_files", "", "Entries for small files in memory.", files.entries),
        ("nowait_resident_files_bytes", "bytes", "Memory of resident files.", files.bytes),
        ("nowait_resident_files_watches", "", "Watched files and directories.", files.watches),
    ];
    for (name, unit, help, value) in gauges {
        text.family(name, "gauge", unit, help);
        text.sample(name, &[], value as u64);
    }
    const NAME: &str = "nowait_resident_files_events";
    text.family(NAME, "counter", "", "What happened to resident files.");
    for (event, count) in files.counters() {
        text.sample(&format!("{NAME}_total"), &[("event", event)], count);
    }
}

/// Reads a number from a peer's counters.
type Count = fn(&PeerStats) -> u64;

/// Writes a sample of a peer with these labels.
type Put<'a> = dyn Fn(&mut MetricsText, [(&str, &str); 2], &Peer, &PeerStats) + 'a;

fn of_quic(report: &Report, text: &mut MetricsText) {
    let help = "What happened to datagrams and handshakes of QUIC.";
    text.family("nowait_quic_events", "counter", "", help);
    for (name, count) in report.quic.iter().flatten() {
        text.sample("nowait_quic_events_total", &[("event", name)], *count);
    }
}

fn of_sessions(report: &Report, text: &mut MetricsText) {
    let Some(sessions) = &report.sessions else { return };
    const SESSIONS: &str = "nowait_stream_sessions";
    text.family(SESSIONS, "counter", "", "Stream sessions started.");
    text.sample("nowait_stream_sessions_total", &[], sessions.total);
    const ACTIVE: &str = "nowait_stream_sessions_active";
    text.family(ACTIVE, "gauge", "", "Active stream sessions by protocol.");
    let tcp = sessions.active.saturating_sub(sessions.udp_active);
    text.sample(ACTIVE, &[("protocol", "tcp")], tcp);
    text.sample(ACTIVE, &[("protocol", "udp")], sessions.udp_active);
    let help = "Client datagrams dropped for lack of room.";
    text.family("nowait_stream_datagrams_dropped", "counter", "", help);
    text.sample("nowait_stream_datagrams_dropped_total", &[], sessions.udp_dropped);
    super::zone_metrics::of_sessions(&sessions.zones, text);
    of_upstreams("nowait_stream_upstream", "Sessions", &sessions.upstreams, text);
}

/// The peers of groups, in metrics that begin with `prefix`; `what` names their use.
fn of_upstreams(prefix: &str, what: &str, groups: &[Arc<Group>], text: &mut MetricsText) {
    let groups: Vec<_> = groups.iter().map(|group| (group, group.stats())).collect();
    if groups.is_empty() {
        return;
    }
    let now = nowait_runtime::now();
    let each = |text: &mut MetricsText, put: &Put<'_>| {
        for (group, peers) in &groups {
            let name = String::from_utf8_lossy(group.name());
            for (peer, stats) in peers {
                put(text, [("upstream", &name), ("peer", &stats.name)], peer, stats);
            }
        }
    };
    let gauges: [(&str, String, Count); 2] = [
        ("active", format!("Active {}.", what.to_lowercase()), |stats| u64::from(stats.active)),
        ("idle", "Connections kept for reuse.".into(), |stats| u64::from(stats.idle)),
    ];
    for (name, help, get) in &gauges {
        let name = format!("{prefix}_{name}");
        text.family(&name, "gauge", "", help);
        each(text, &|text, labels, _, stats| text.sample(&name, &labels, get(stats)));
    }
    let up = format!("{prefix}_up");
    text.family(
        &up,
        "gauge",
        "",
        &format!("Whether the peer is available for {}.", what.to_lowercase()),
    );
    each(text, &|text, labels, peer, _| {
        let is_up = peer.availability(now) == Availability::Up;
        text.sample(&up, &labels, u64::from(is_up));
    });
    let counters: [(&str, &str, Count); 7] = [
        (&what.to_lowercase(), &format!("{what} sent."), |stats| stats.requests),
        ("fails", "Attempts that failed.", |stats| stats.fails),
        ("unavailable", "How often the peer became unavailable.", |stats| stats.unavailable),
        ("checks", "Health checks.", |stats| stats.checks),
        ("failed_checks", "Failed health checks.", |stats| stats.failed_checks),
        ("sent_bytes", "Bytes sent.", |stats| stats.sent),
        ("received_bytes", "Bytes received.", |stats| stats.received),
    ];
    for (name, help, get) in counters {
        let name = format!("{prefix}_{name}");
        text.family(&name, "counter", "", help);
        let total = format!("{name}_total");
        each(text, &|text, labels, _, stats| text.sample(&total, &labels, get(stats)));
    }
    let responses = format!("{prefix}_responses");
    text.family(&responses, "counter", "", "Responses by the first digit of their status.");
    let total = format!("{responses}_total");
    each(text, &|text, [upstream, peer], _, stats| {
        for (class, count) in ["1xx", "2xx", "3xx", "4xx", "5xx"].into_iter().zip(stats.responses) {
            text.sample(&total, &[upstream, peer, ("status", class)], count);
        }
    });
}

fn of_resolvers(report: &Report, text: &mut MetricsText) {
    const ASKED: &str = "nowait_resolver_requests";
    const ANSWERED: &str = "nowait_resolver_responses";
    if report.resolvers.is_empty() {
        return;
    }
    text.family(ASKED, "counter", "", "Queries to name servers by type.");
    for resolver in &report.resolvers {
        for (kind, count) in [("name", resolver.counts.name), ("srv", resolver.counts.srv)] {
            let labels = [("resolver", &*resolver.name), ("type", kind)];
            text.sample(&format!("{ASKED}_total"), &labels, count);
        }
    }
    text.family(ANSWERED, "counter", "", "Responses of name servers by result.");
    for resolver in &report.resolvers {
        for (result, count) in resolver.responses() {
            let labels = [("resolver", &*resolver.name), ("result", result)];
            text.sample(&format!("{ANSWERED}_total"), &labels, count);
        }
    }
}

fn each_operation(report: &Report, mut each: impl FnMut(&str, &OpSnapshot)) {
    for pool in &report.pools {
        pool.ops.iter().for_each(|op| each(&pool.name, op));
    }
}

/// A time in seconds without rounding.
pub fn seconds(time: Duration) -> String {
    let text = format!("{}.{:09}", time.as_secs(), time.subsec_nanos());
    match text.trim_end_matches('0') {
        whole if whole.ends_with('.') => format!("{whole}0"),
        text => text.to_owned(),
    }
}

/// Text in progress. Samples follow the head of their family.
#[derive(Default)]
pub struct MetricsText(String);

impl MetricsText {
    /// The text so far.
    pub fn into_text(self) -> String {
        self.0
    }

    /// The head of a metric family.
    pub fn family(&mut self, name: &str, kind: &str, unit: &str, help: &str) {
        let _ = writeln!(self.0, "# TYPE {name} {kind}");
        if !unit.is_empty() {
            let _ = writeln!(self.0, "# UNIT {name} {unit}");
        }
        let _ = writeln!(self.0, "# HELP {name} {help}");
    }

    pub fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: u64) {
        self.labels(name, labels);
        let _ = writeln!(self.0, " {value}");
    }

    pub fn time(&mut self, name: &str, labels: &[(&str, &str)], value: Duration) {
        self.labels(name, labels);
        let _ = writeln!(self.0, " {}", seconds(value));
    }

    /// A histogram of times.
    pub fn histogram(&mut self, name: &str, labels: &[(&str, &str)], times: &HistogramSnapshot) {
        let bucket = format!("{name}_bucket");
        for (bound, count) in times.cumulative() {
            let bound = bound.map_or_else(|| "+Inf".to_owned(), seconds);
            let mut all = labels.to_vec();
            all.push(("le", &bound));
            self.sample(&bucket, &all, count);
        }
        self.sample(&format!("{name}_count"), labels, times.count());
        self.time(&format!("{name}_sum"), labels, times.sum);
    }

    fn labels(&mut self, name: &str, labels: &[(&str, &str)]) {
        self.0.push_str(name);
        for (n, (label, value)) in labels.iter().enumerate() {
            let _ = write!(self.0, "{}{label}=\"", if n == 0 { '{' } else { ',' });
            for character in value.chars() {
                match character {
                    '\\' => self.0.push_str("\\\\"),
                    '"' => self.0.push_str("\\\""),
                    '\n' => self.0.push_str("\\n"),
                    other => self.0.push(other),
                }
            }
            self.0.push('"');
        }
        if !labels.is_empty() {
            self.0.push('}');
        }
    }

    /// A summary per pool and operation.
    fn times(
        &mut self,
        report: &Report,
        name: &str,
        help: &str,
        get: impl Fn(&OpSnapshot) -> (u64, Duration),
    ) {
        self.family(name, "summary", "seconds", help);
        each_operation(report, |pool, op| {
            let labels = [("pool", pool), ("operation", op.op.name())];
            let (count, sum) = get(op);
            self.sample(&format!("{name}_count"), &labels, count);
            self.time(&format!("{name}_sum"), &labels, sum);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_exact_and_labels_escaped() {
        assert_eq!(seconds(Duration::from_micros(1)), "0.000001");
        assert_eq!(seconds(Duration::from_secs(3)), "3.0");
        assert_eq!(seconds(Duration::new(1, 500_000_000)), "1.5");
        let mut text = MetricsText::default();
        text.sample("a", &[("b", "c\"\\\n")], 1);
        assert_eq!(text.0, "a{b=\"c\\\"\\\\\\n\"} 1\n");
    }
}
