//! `request_ring`, `requests_api`: the last requests of each worker with all their times, in memory, for `nowait log`.
//!
//! An observer writes a record of every request that has ended into the ring of its worker. Nothing else happens until
//! somebody reads: then the rings are copied, filtered and rendered on a thread of the pool `compute`.

pub mod filter;
pub mod record;
mod ring;

use std::rc::Rc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use nowait_conf::{Arity, Context, Cx, Diagnostic, Node, Scope, Setting, arity, number};
use nowait_http::conf::HttpConf;
use nowait_http::generation::Current;
use nowait_http::module::{Handler, LocationBuilder, Module, Observer, Step, set_content};
use nowait_http::outcome::Outcome;
use nowait_http::request::Request;
use nowait_http::response::{Body, Head, Response};
use nowait_http::services::Services;
use nowait_http::slots::Key;
use nowait_http::variables::core::argument_value;
use nowait_message::Method;
use nowait_message::escape::{self, Unescape};
use nowait_runtime::JoinHandle;
use nowait_runtime::pool::{Class, Op};
use serde_json::{Value, json};

use filter::{Filter, FilterError};
use record::RequestRecord;
use ring::Place;

/// Records of a ring, at most: 43 MB per worker.
const RECORDS_MAX: usize = 65_536;

/// Requests in a response, unless the argument `limit` says otherwise, and at most.
const LIMIT_DEFAULT: usize = 1000;
const LIMIT_MAX: usize = 10_000;

/// Longest time for applying a filter, whose regular expressions may be expensive: a thread of the compute pool is busy
/// meanwhile.
const SELECT_TIME_MAX: Duration = Duration::from_secs(5);

/// This module.
pub static MODULE: Module = Module {
    rows: &[RingConf::ROWS, REQUESTS_ROWS],
    build: Some(build),
    finish: Some(finish),
    start: Some(start),
    ..Module::EMPTY
};

/// The records of a ring, in a configuration.
static RECORDS: Key<usize> = Key::new();

nowait_conf::directives! {
    /// What is remembered of requests.
    #[derive(Debug)]
    module "requests";
    pub struct RingConf with RingConfLayer;

    /// Remembers the last requests of each worker with all their times, for `requests_api` and `nowait log`: so many, 656
    /// bytes each. URIs are kept up to 256 bytes. `off` remembers none, and costs nothing; it is the only value below
    /// `http`, where it leaves requests out. A reload that changes the number begins with empty rings.
    request_ring: RingSize = "off", in HTTP | SERVER | LOCATION, args "number | off";
}

nowait_conf::rows! {
    static REQUESTS_ROWS, module "requests";

    /// Responds with the requests that `request_ring` remembers, as JSON, the last one last. The argument `filter`
    /// selects them, such as `status >= 500 or disk_wait > 100ms`: `nowait log` says what it may contain; one that takes
    /// longer than 5 seconds is refused. `limit` is how many of the last ones are shown (1000; at most 10000), `after`
    /// shows only those behind the place that an earlier response names as `next`. What is shown tells much about
    /// clients: allow it to administrators only.
    "requests_api" => requests_api, in LOCATION, take none(), inheritance Own, args "";
}

/// `request_ring`: how many records; 0: off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingSize(usize);

impl Setting for RingSize {
    const ARITY: Arity = arity::exactly(1);

    fn parse(node: &Node, cx: &mut Cx<'_>) -> Result<Self, Diagnostic> {
        let word = node.args.first().ok_or_else(|| node.arity_error())?;
        if *word == "off" {
            return Ok(Self(0));
        }
        if cx.context() != Context::HTTP {
            let error = word.error("a worker has one ring for all servers");
            return Err(
                error.hint("set its size in the http block; here, only \"off\" is possible")
            );
        }
        let count = number(&word.text).and_then(|count| usize::try_from(count).ok());
        let count = count.filter(|count| (1..=RECORDS_MAX).contains(count));
        count.map(Self).ok_or_else(|| {
            word.error(format!("invalid number of requests \"{word}\""))
                .expected(format!("1 to {RECORDS_MAX}, or off"))
        })
    }
}

/// The size of rings, while the configuration is read.
#[derive(Default)]
struct RingDraft(usize);

fn build(cx: &mut Cx<'_>, chain: &[&Scope], parts: &mut LocationBuilder) {
    let records = RingConf::resolve(cx, chain).request_ring.0;
    if records > 0 {
        // Only the http block can have set it.
        cx.global::<RingDraft>().0 = records;
        parts.note_times();
        parts.observer(Remember);
    }
}

fn finish(cx: &mut Cx<'_>, conf: &mut HttpConf) {
    conf.settings.set(&RECORDS, cx.take_global::<RingDraft>().0);
}

/// Makes the ring of this worker. Requests of an older configuration, whose rings had another size, go into it, too.
fn start(_services: &Rc<Services>, current: &Rc<Current>) -> Vec<JoinHandle<()>> {
    ring::resize(current.conf.settings.get(&RECORDS).copied().unwrap_or(0));
    Vec::new()
}

/// Writes the record of a request that has ended.
struct Remember;

impl Observer for Remember {
    fn ended(&self, request: &Request) {
        record::write(request);
    }
}

fn requests_api(cx: &mut Cx<'_>, node: &Node) -> Result<(), Diagnostic> {
    set_content(cx, node, |_, _, _| Api);
    Ok(())
}

/// Responds with remembered requests.
struct Api;

/// The arguments of a request, as they were sent.
struct Arguments {
    filter: Option<String>,
    after: Option<String>,
    limit: Option<String>,
}

/// The arguments of a request.
struct Question {
    filter: Option<Filter>,
    after: Option<Place>,
    limit: usize,
}

impl Handler for Api {
    fn handle<'r>(&'r self, request: &'r mut Request) -> Step<'r> {
        if !matches!(request.method(), Method::Get | Method::Head) {
            return Step::Done(request, Outcome::status(405));
        }
        let arguments = Arguments::of(request);
        Step::wait(async move {
            let pool = request.current().compute_pool().clone();
            let client = request.client().number;
            let work = move || {
                let (status, content) = match answer(&arguments, SELECT_TIME_MAX) {
                    Ok(found) => (200, found),
                    Err(fault) => (400, fault),
                };
                (status, serde_json::to_vec(&content).unwrap_or_default())
            };
            let outcome = match pool.run(Class::Bulk, client, Op::Blocking, work).await {
                Ok((status, text)) => respond(status, text.into()),
                Err(_) => Outcome::status(503),
            };
            Step::Done(request, outcome)
        })
    }
}

impl Arguments {
    fn of(request: &Request) -> Self {
        let argument = |name: &str| {
            let value = argument_value(request, name.as_bytes())?;
            let (text, _) = escape::unescape(value, Unescape::All);
            Some(String::from_utf8_lossy(&text).into_owned())
        };
        Self { filter: argument("filter"), after: argument("after"), limit: argument("limit") }
    }
}

/// An argument that can't be used.
fn fault<T>(argument: &str, at: usize, message: impl Into<String>) -> Result<T, Value> {
    let message = message.into();
    Err(json!({ "error": { "argument": argument, "at": at, "message": message } }))
}

impl Question {
    fn parse(arguments: &Arguments) -> Result<Self, Value> {
        let filter = match arguments.filter.as_deref().filter(|text| !text.trim().is_empty()) {
            None => None,
            Some(text) => match Filter::parse(text) {
                Ok(filter) => Some(filter),
                Err(FilterError { at, message }) => return fault("filter", at, message),
            },
        };
        let after = match &arguments.after {
            None => None,
            Some(text) => match Place::parse(text) {
                Some(place) => Some(place),
                None => return fault("after", 0, "it is no place of a response"),
            },
        };
        let limit = match &arguments.limit {
            None => LIMIT_DEFAULT,
            Some(text) => match text.parse() {
                Ok(limit) if (1..=LIMIT_MAX).contains(&limit) => limit,
                _ => return fault("limit", 0, format!("expected a number from 1 to {LIMIT_MAX}")),
            },
        };
        Ok(Self { filter, after, limit })
    }
}

/// The newest of the records that are added. Rings are in order, but not among each other.
struct Newest {
    limit: usize,
    records: Vec<RequestRecord>,
    left_out: usize,
}

impl Newest {
    fn add(&mut self, record: RequestRecord) {
        self.records.push(record);
        // All records of all rings would take gigabytes.
        if self.records.len() >= 2 * self.limit {
            self.shorten();
        }
    }

    fn shorten(&mut self) {
        self.records.sort_by_key(|record| record.ended_ms);
        let excess = self.records.len().saturating_sub(self.limit);
        self.records.drain(..excess);
        self.left_out += excess;
    }
}

/// The response's content.
fn answer(arguments: &Arguments, time_max: Duration) -> Result<Value, Value> {
    let question = Question::parse(arguments)?;
    let mut newest = Newest { limit: question.limit, records: Vec::new(), left_out: 0 };
    let (began, mut is_late) = (Instant::now(), false);
    let (next, missed) = ring::read(question.after.as_ref(), &mut |words| {
        let Some(filter) = &question.filter else {
            return newest.add(RequestRecord::read(words));
        };
        is_late = is_late || began.elapsed() >= time_max;
        if is_late {
            return;
        }
        let record = RequestRecord::read(words);
        if filter.matches(&record) {
            newest.add(record);
        }
    });
    if is_late {
        let seconds = time_max.as_secs();
        let text = format!("it takes longer than {seconds} s: use simpler regular expressions");
        return fault("filter", 0, text);
    }
    newest.shorten();
    Ok(json!({
        "next": next.to_string(),
        "missed": missed,
        "left_out": newest.left_out,
        "requests": newest.records.iter().map(render).collect::<Vec<_>>(),
    }))
}

/// A record as JSON: by the names of filters, times in microseconds.
fn render(record: &RequestRecord) -> Value {
    let times = &record.times;
    json!({
        "ended_ms": record.ended_ms,
        "status": record.status,
        "method": record.method,
        "uri": record.uri,
        "host": record.host,
        "server": record.server,
        "location": record.location,
        "protocol": record.protocol,
        "client": record.client_text(),
        "connection": record.connection,
        "connection_requests": record.requests,
        "worker": record.worker,
        "bytes": record.bytes,
        "request_bytes": record.request_bytes,
        "upstream": record.upstream,
        "cache": record.cache,
        "pool": record.pool,
        "times_us": {
            "request_time": times.total,
            "receive_time": times.receive,
            "queue_time": times.queue,
            "connect_time": times.connect,
            "header_time": times.header,
            "upstream_time": times.upstream,
            "pool_wait": times.pool_wait,
            "disk_time": times.disk,
            "disk_wait": times.pool_wait + times.disk,
            "response_time": times.response,
            "sending_time": times.sending,
        },
    })
}

fn respond(status: u16, text: Bytes) -> Outcome {
    let mut head = Head::new(status);
    head.content_type = Some(Bytes::from_static(b"application/json"));
    head.content_length = Some(text.len() as u64);
    head.add("Cache-Control", Bytes::from_static(b"no-store"));
    Response { head, body: Body::Bytes(text) }.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_newest_are_kept() {
        let mut newest = Newest { limit: 10, records: Vec::new(), left_out: 0 };
        // Two rings, one behind the other.
        for ended_ms in (0..1000).chain(0..500) {
            newest.add(RequestRecord { ended_ms, ..RequestRecord::default() });
            assert!(newest.records.len() < 20);
        }
        newest.shorten();
        let kept: Vec<u64> = newest.records.iter().map(|record| record.ended_ms).collect();
        assert_eq!((kept, newest.left_out), ((990..1000).collect(), 1490));
    }

    #[test]
    fn filters_that_take_too_long_are_refused() {
        ring::resize(4);
        ring::push(&[1; 15], b"");
        let filter = Some("uri ~ x or status".to_owned());
        let arguments = Arguments { filter, after: None, limit: None };
        let found = answer(&arguments, Duration::from_secs(600)).unwrap();
        assert_ne!(found["requests"], json!([]));
        let fault = answer(&arguments, Duration::ZERO).unwrap_err();
        assert_eq!(fault["error"]["argument"], "filter", "{fault}");
        let all = Arguments { filter: None, ..arguments };
        assert!(answer(&all, Duration::ZERO).is_ok(), "nothing is compared");
    }
}
