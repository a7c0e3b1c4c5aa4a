//! Lines of `limit_req` and `limit_conn` for `nowait explain`: each limit with its zone, and the request's
//! key in it.
//!
//! Counts are left out: only the running server knows them.

use nowait_front::limit::connections::{self, ConnectionLimit};
use nowait_front::limit::{LimitZone, Milli, ONE, key};
use nowait_http::request::Request;
use nowait_http::trace::{Trace, TraceSubject, quoted};
use nowait_http::variables::complex::HttpVariables;

use super::conf::{Limits, RequestLimit};
use super::{REQUEST_KEY_BYTES_MAX, ZONES};

/// The kind of requests that a limit counts.
#[derive(Clone, Copy)]
pub(super) enum LimitKind {
    /// Requests of clients.
    Requests,
    /// Requests to upstream servers.
    Fetches,
}

impl LimitKind {
    fn name(self) -> &'static str {
        match self {
            Self::Requests => "requests",
            Self::Fetches => "requests to upstream servers",
        }
    }
}

/// Describes limits of the request rate.
pub(super) fn rates(
    request: &Request,
    limits: &Limits,
    asked: &[RequestLimit],
    what: LimitKind,
    trace: &mut Trace,
) {
    let conf = &limits.request_conf;
    let current = request.current().clone();
    let zones = current.conf.settings.get(&ZONES).map_or(&[][..], |zones| &zones.requests);
    for limit in asked {
        let Some(zone) = zones.get(limit.zone) else { continue };
        let (burst, what) = (limit.burst / ONE, what.name());
        let accepted = match (burst, limit.delay / ONE) {
            (0, _) => format!("{what} above the rate"),
            (_, 0) => format!("up to {burst} {what} above the rate are delayed; more"),
            (_, delay) if delay >= burst => {
                format!("up to {burst} {what} above the rate are not delayed; more")
            }
            (_, delay) => {
                format!("up to {burst} {what} above the rate are delayed from {delay} on; more")
            }
        };
        let refused = refusal(conf.limit_req_status.get(), conf.limit_req_dry_run);
        trace.add(
            TraceSubject::Limit,
            Some(limit.span),
            format!("limit_req: {accepted} {refused}"),
        );
        zoned(request, zone, REQUEST_KEY_BYTES_MAX, &format!("{} ", rate(zone.rate)), trace);
    }
}

/// Describes limits of concurrent requests.
pub(super) fn concurrent(
    request: &Request,
    limits: &Limits,
    asked: &[ConnectionLimit],
    what: LimitKind,
    trace: &mut Trace,
) {
    let conf = &limits.connection_conf;
    let current = request.current().clone();
    let zones = current.conf.settings.get(&ZONES).map_or(&[][..], |zones| &zones.connections);
    for limit in asked {
        let Some(zone) = zones.get(limit.zone) else { continue };
        let (most, what) = (limit.most, what.name());
        let refused = refusal(conf.limit_conn_status.get(), conf.limit_conn_dry_run);
        let text = format!("limit_conn: {what} beyond {most} at a time {refused}");
        trace.add(TraceSubject::Limit, Some(limit.span), text);
        zoned(request, zone, connections::KEY_BYTES_MAX, "", trace);
    }
}

fn refusal(status: u64, dry_run: bool) -> String {
    match dry_run {
        true => "are only logged (dry run)".to_owned(),
        false => format!("get {status}"),
    }
}

/// The zone, with the key of the request.
fn zoned<T>(
    request: &Request,
    zone: &LimitZone<HttpVariables, T>,
    key_bytes_max: usize,
    rate: &str,
    trace: &mut Trace,
) {
    let (name, text) = (quoted(&zone.name), quoted(&zone.key_text));
    let here = match key(request, zone, key_bytes_max) {
        Some(key) => format!("here {}", quoted(&key)),
        None => "which is empty or too long: the request is not limited".to_owned(),
    };
    let line = format!("zone {name}: {rate}for each value of {text}, {here}");
    trace.add(TraceSubject::Limit, Some(zone.span), line);
}

/// A rate as the configuration writes it.
fn rate(rate: Milli) -> String {
    match rate % ONE {
        0 => format!("{}r/s", rate / ONE),
        // Thousandths per second were rounded down.
        _ => format!("{}r/m", (rate * 60).div_ceil(ONE)),
    }
}

#[cfg(test)]
mod tests {
    use super::rate;

    #[test]
    fn rates_are_shown_as_they_are_written() {
        // 10r/s, 1r/m, 90r/m, 7r/m
        let shown = [10_000, 16, 1500, 116].map(rate);
        assert_eq!(shown, ["10r/s", "1r/m", "90r/m", "7r/m"]);
    }
}
