//! The span of a request: its attributes are those of nginx's module, by OpenTelemetry's semantic conventions 1.16 for
//! HTTP, and the times that the request has spent.

use std::borrow::Cow;

use nowait_backend::cache::cache_status;
use nowait_http::address;
use nowait_http::request::Request;
use nowait_http::timeline::{PhaseTimes, loop_delay};
use nowait_http::upstream_state::UpstreamState;
use nowait_http::variables::complex::Complex;
use nowait_message::Known;
use nowait_runtime::{clock, now};

use super::conf::SpanAttribute;
use super::context::SpanContext;
use super::proto;

/// `SPAN_KIND_SERVER`
const KIND_SERVER: u64 = 2;

/// `STATUS_CODE_ERROR`
const STATUS_ERROR: u64 = 2;

/// Longest text of an attribute or name, bytes; longer ones are cut.
const TEXT_BYTES_MAX: usize = 4096;

/// Longest span, bytes: further attributes are left out and counted.
const SPAN_BYTES_MAX: usize = 64 * 1024;

/// Appends `spans = 2` of `ScopeSpans`.
pub fn write(
    request: &Request,
    context: &SpanContext,
    name: Option<&Complex>,
    attributes: &[SpanAttribute],
    out: &mut Vec<u8>,
) {
    proto::nested(out, 2, |out| {
        proto::bytes(out, 1, context.trace_id());
        proto::bytes(out, 2, context.span_id());
        if !context.state().is_empty() {
            proto::bytes(out, 3, context.state());
        }
        if let Some(parent) = context.parent_id() {
            proto::bytes(out, 4, parent);
        }
        let named = name.map(|name| request.evaluate(name));
        let name = named.as_deref().unwrap_or(&request.location().name);
        proto::bytes(out, 5, text(name).as_bytes());
        proto::number(out, 6, KIND_SERVER);
        let end = u128::from(clock().unix_ms()) * 1_000_000;
        let start =
            end.saturating_sub(now().saturating_duration_since(request.started()).as_nanos());
        proto::fixed64(out, 7, u64::try_from(start).unwrap_or(u64::MAX));
        proto::fixed64(out, 8, u64::try_from(end).unwrap_or(u64::MAX));
        let mut list = List { start: out.len(), out, dropped: 0 };
        list.of_http(request);
        list.of_addresses(request);
        list.of_times(request);
        for attribute in attributes {
            let value = request.evaluate(&attribute.value);
            match attribute.is_array {
                true => list.add(|out| proto::array_attribute(out, &attribute.name, &text(&value))),
                false => list.text(&attribute.name, &value),
            }
        }
        let dropped = list.dropped;
        if dropped > 0 {
            proto::number(out, 10, dropped);
        }
        if request.log_status() >= 500 {
            proto::nested(out, 15, |out| proto::number(out, 3, STATUS_ERROR));
        }
    });
}

/// A text as UTF-8, of limited length.
fn text(bytes: &[u8]) -> Cow<'_, str> {
    match bytes.len() {
        0..=TEXT_BYTES_MAX => String::from_utf8_lossy(bytes),
        _ => {
            let mut cut = bytes[..TEXT_BYTES_MAX].to_vec();
            nowait_http::log::escape::cut(&mut cut, TEXT_BYTES_MAX - 1);
            String::from_utf8_lossy(&cut).into_owned().into()
        }
    }
}

/// `repeated KeyValue attributes = 9` of a span.
struct List<'a> {
    out: &'a mut Vec<u8>,
    start: usize,
    dropped: u64,
}

impl List<'_> {
    fn add(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        if self.out.len() - self.start >= SPAN_BYTES_MAX {
            self.dropped += 1;
            return;
        }
        proto::nested(self.out, 9, write);
    }

    fn text(&mut self, name: &str, value: &[u8]) {
        self.add(|out| proto::text_attribute(out, name, &text(value)));
    }

    fn number(&mut self, name: &str, value: u64) {
        self.add(|out| proto::number_attribute(out, name, value));
    }

    fn of_http(&mut self, request: &Request) {
        let head = request.head();
        self.text("http.method", head.method_bytes());
        self.text("http.target", head.uri());
        let route = &request.location().name;
        if !route.is_empty() {
            self.text("http.route", route);
        }
        self.text("http.scheme", request.client().scheme().as_bytes());
        if let Some(flavor) = head.protocol().strip_prefix(b"HTTP/") {
            self.text("http.flavor", flavor);
        }
        if let Some(agent) = head.header(Known::UserAgent) {
            self.text("http.user_agent", agent);
        }
        self.number("http.request_content_length", head.content_length().unwrap_or(0));
        self.number("http.response_content_length", request.sent().body_bytes());
        let status = request.log_status();
        if status > 0 {
            self.number("http.status_code", u64::from(status));
        }
    }

    fn of_addresses(&mut self, request: &Request) {
        let name = Some(request.server_name()).filter(|name| !name.is_empty());
        self.text("net.host.name", name.unwrap_or_else(|| request.host()));
        let default = if request.client().is_tls() { 443 } else { 80 };
        if let Some(port) =
            address::port(request.exchange().local()).filter(|port| *port != default)
        {
            self.number("net.host.port", u64::from(port));
        }
        let mut peer = Vec::new();
        address::append_ip(request.peer(), &mut peer);
        self.text("net.sock.peer.addr", &peer);
        if let Some(port) = address::port(request.peer()) {
            self.number("net.sock.peer.port", u64::from(port));
        }
    }

    /// Where the time went, in seconds; what took none is left out.
    fn of_times(&mut self, request: &Request) {
        for (name, time) in PhaseTimes::of(request).known() {
            if !time.is_zero() && name != "total" {
                let name = format!("nowait.time.{name}");
                self.add(|out| proto::double_attribute(out, &name, time.as_secs_f64()));
            }
        }
        let delay = loop_delay(request);
        if !delay.is_zero() {
            let seconds = delay.as_secs_f64();
            self.add(|out| proto::double_attribute(out, "nowait.time.loop_delay", seconds));
        }
        if let Some(pool) = request.spent().pool() {
            self.text("nowait.pool", pool.as_bytes());
        }
        if let Some(status) = cache_status(request) {
            self.text("nowait.cache", status.as_str().as_bytes());
        }
        let Some(state) = UpstreamState::get(request.state()) else { return };
        let peers: Vec<String> =
            state.tries().iter().filter_map(|one| Some(one.peer.as_deref()?.to_owned())).collect();
        if !peers.is_empty() {
            self.text("nowait.upstream", peers.join(", ").as_bytes());
        }
    }
}
