//! `otel_*`: spans as a collector receives them, contexts of traces, and collectors that fail.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc;
use std::time::Duration;

use nowait_testkit::ports::free_port;
use nowait_testkit::wait::PATIENCE;
use nowait_testkit::{Driver, Http2Origin, Http2Peer, Server, ServerBuilder};
use prost::Message;

use crate::stage::{ask, on_each_driver, refused, site};

const DRIVERS: [Driver; 2] = [Driver::Epoll, Driver::IoUring];

/// The official messages, as far as they are looked at: `opentelemetry/proto/collector/trace/v1/trace_service.proto`
/// and what it imports.
mod proto {
    #[derive(Clone, PartialEq, prost::Message)]
    pub struct ExportTraceServiceRequest {
        #[prost(message, repeated, tag = "1")]
        pub resource_spans: Vec<ResourceSpans>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub struct ResourceSpans {
        #[prost(message, optional, tag = "1")]
        pub resource: Option<Resource>,
        #[prost(message, repeated, tag = "2")]
        pub scope_spans: Vec<ScopeSpans>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub struct Resource {
        #[prost(message, repeated, tag = "1")]
        pub attributes: Vec<KeyValue>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub struct ScopeSpans {
        #[prost(message, optional, tag = "1")]
        pub scope: Option<InstrumentationScope>,
        #[prost(message, repeated, tag = "2")]
        pub spans: Vec<Span>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub struct InstrumentationScope {
        #[prost(string, tag = "1")]
        pub name: String,
        #[prost(string, tag = "2")]
        pub version: String,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub struct Span {
        #[prost(bytes = "vec", tag = "1")]
        pub trace_id: Vec<u8>,
        #[prost(bytes = "vec", tag = "2")]
        pub span_id: Vec<u8>,
        #[prost(string, tag = "3")]
        pub trace_state: String,
        #[prost(bytes = "vec", tag = "4")]
        pub parent_span_id: Vec<u8>,
        #[prost(string, tag = "5")]
        pub name: String,
        #[prost(int32, tag = "6")]
        pub kind: i32,
        #[prost(fixed64, tag = "7")]
        pub start_time_unix_nano: u64,
        #[prost(fixed64, tag = "8")]
        pub end_time_unix_nano: u64,
        #[prost(message, repeated, tag = "9")]
        pub attributes: Vec<KeyValue>,
        #[prost(uint32, tag = "10")]
        pub dropped_attributes_count: u32,
        #[prost(message, optional, tag = "15")]
        pub status: Option<Status>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub struct Status {
        #[prost(string, tag = "2")]
        pub message: String,
        #[prost(int32, tag = "3")]
        pub code: i32,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub struct KeyValue {
        #[prost(string, tag = "1")]
        pub key: String,
        #[prost(message, optional, tag = "2")]
        pub value: Option<AnyValue>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub struct AnyValue {
        #[prost(oneof = "Value", tags = "1, 3, 4, 5")]
        pub value: Option<Value>,
    }

    #[derive(Clone, PartialEq, prost::Oneof)]
    pub enum Value {
        #[prost(string, tag = "1")]
        Text(String),
        #[prost(int64, tag = "3")]
        Number(i64),
        #[prost(double, tag = "4")]
        Double(f64),
        #[prost(message, tag = "5")]
        Array(ArrayValue),
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub struct ArrayValue {
        #[prost(message, repeated, tag = "1")]
        pub values: Vec<AnyValue>,
    }
}

use proto::{ExportTraceServiceRequest, KeyValue, Span, Value};

/// The value of an attribute.
fn find<'a>(attributes: &'a [KeyValue], key: &str) -> Option<&'a Value> {
    attributes.iter().find(|one| one.key == key)?.value.as_ref()?.value.as_ref()
}

#[track_caller]
fn text<'a>(span: &'a Span, key: &str) -> &'a str {
    match find(&span.attributes, key) {
        Some(Value::Text(text)) => text,
        other => panic!("{key}: {other:?} in {span:?}"),
    }
}

#[track_caller]
fn number(span: &Span, key: &str) -> i64 {
    match find(&span.attributes, key) {
        Some(Value::Number(number)) => *number,
        other => panic!("{key}: {other:?} in {span:?}"),
    }
}

/// A collector that speaks gRPC.
struct Collector {
    origin: Http2Origin,
    peer: Option<Http2Peer>,
}

impl Collector {
    fn start() -> Collector {
        Collector { origin: Http2Origin::start(), peer: None }
    }

    /// The next export, which is accepted, and its fields.
    fn export(&mut self) -> (ExportTraceServiceRequest, Vec<(String, String)>) {
        let peer = self.peer.get_or_insert_with(|| self.origin.accept());
        let stream = peer.request();
        let asked = peer.complete(stream).clone();
        assert_eq!(
            asked.field(":path"),
            Some("/opentelemetry.proto.collector.trace.v1.TraceService/Export")
        );
        assert_eq!(
            [asked.field("content-type"), asked.field("te")],
            [Some("application/grpc"), Some("trailers")]
        );
        let (prefix, message) = asked.body.split_at(5);
        assert_eq!(prefix[0], 0, "not compressed");
        assert_eq!(u32::from_be_bytes(prefix[1..].try_into().unwrap()) as usize, message.len());
        peer.respond(
            stream,
            200,
            &[("content-type", "application/grpc"), ("grpc-status", "0")],
            true,
        );
        (ExportTraceServiceRequest::decode(message).expect("an export"), asked.fields)
    }

    /// The only span of the next export.
    fn span(&mut self) -> Span {
        spans(&self.export().0).pop().expect("a span")
    }
}

fn spans(export: &ExportTraceServiceRequest) -> Vec<Span> {
    let scopes = export.resource_spans.iter().flat_map(|resource| &resource.scope_spans);
    scopes.flat_map(|scope| scope.spans.clone()).collect()
}

/// A server with one worker that sends each span at once.
fn traced(port: u16, exporter: &str, http: &str) -> ServerBuilder {
    site(&format!(
        "otel_exporter {{ endpoint 127.0.0.1:{port}; batch_size 1; {exporter} }}
         {http}"
    ))
    .workers(1)
}

#[test]
fn spans_have_nginx_s_attributes() {
    let collector = std::cell::RefCell::new(Collector::start());
    let site = traced(
        collector.borrow().origin.port(),
        "header X-Key secret;",
        r#"otel_service_name web;
        otel_resource_attr deployment.environment test;
        otel_trace on;
        server {
            listen 127.0.0.1:%%PORT%%;
            server_name main.test;
            location /ok { return 200 OK; }
            location /err { return 500 ERR; }
            location /custom {
                otel_span_name "custom $uri";
                otel_span_attr http.request.completion $request_completion;
                otel_span_attr http.response.header.content.type $sent_http_content_type;
                return 200 OK;
            }
            location /up { proxy_pass http://127.0.0.1:%%PORT%%/quiet; }
            location /moved { rewrite ^ /quiet; }
            location /quiet { otel_trace off; return 204; }
        }"#,
    );
    on_each_driver(&site, |server| {
        let mut collector = collector.borrow_mut();
        collector.peer = None;
        assert_eq!(ask(server, "/ok?x=%22", &["User-Agent: me"]).status, 200);
        let (export, fields) = collector.export();
        assert!(fields.contains(&("x-key".to_owned(), "secret".to_owned())), "{fields:?}");
        let [resource] = &export.resource_spans[..] else { panic!("{export:?}") };
        let attributes = &resource.resource.as_ref().unwrap().attributes;
        let is = |text: &str| Some(Value::Text(text.to_owned()));
        assert_eq!(find(attributes, "service.name"), is("web").as_ref());
        assert_eq!(find(attributes, "deployment.environment"), is("test").as_ref());
        assert_eq!(resource.scope_spans[0].scope.as_ref().unwrap().name, "nowait");
        let [span] = &spans(&export)[..] else { panic!("{export:?}") };
        assert_eq!((&*span.name, span.kind, &span.status), ("/ok", 2, &None));
        assert_eq!(
            (span.trace_id.len(), span.span_id.len(), span.parent_span_id.len()),
            (16, 8, 0)
        );
        assert!(span.start_time_unix_nano > 1_700_000_000_000_000_000);
        assert!(span.start_time_unix_nano <= span.end_time_unix_nano);
        for (key, value) in [
            ("http.method", "GET"),
            ("http.target", "/ok?x=%22"),
            ("http.route", "/ok"),
            ("http.scheme", "http"),
            ("http.flavor", "1.1"),
            ("http.user_agent", "me"),
            ("net.host.name", "main.test"),
            ("net.sock.peer.addr", "127.0.0.1"),
        ] {
            assert_eq!(text(span, key), value, "{key}");
        }
        assert_eq!(number(span, "http.request_content_length"), 0);
        assert_eq!(number(span, "http.response_content_length"), 2);
        assert_eq!(number(span, "http.status_code"), 200);
        assert_eq!(number(span, "net.host.port"), i64::from(server.port()));
        assert!(number(span, "net.sock.peer.port") >= 1024);

        assert_eq!(ask(server, "/err", &[]).status, 500);
        let span = collector.span();
        assert_eq!((&*span.name, span.status.map(|status| status.code)), ("/err", Some(2)));

        assert_eq!(ask(server, "/custom", &[]).status, 200);
        let span = collector.span();
        assert_eq!((&*span.name, text(&span, "http.request.completion")), ("custom /custom", "OK"));
        let array = find(&span.attributes, "http.response.header.content.type");
        let Some(Value::Array(array)) = array else { panic!("{span:?}") };
        assert_eq!(array.values[0].value, is("text/plain"));

        // The request to itself is not traced.
        assert_eq!(ask(server, "/up", &[]).status, 204);
        let span = collector.span();
        assert_eq!(
            (&*span.name, text(&span, "nowait.upstream")),
            ("/up", &*format!("127.0.0.1:{}", server.port()))
        );
        // The location that is left decides, the one that responds names the span.
        assert_eq!(ask(server, "/moved", &[]).status, 204);
        assert_eq!(collector.span().name, "/quiet");
        let long = "x".repeat(6000);
        assert_eq!(ask(server, &format!("/ok?{long}"), &[]).status, 200);
        assert_eq!(text(&collector.span(), "http.target").len(), 4095);
    });
}

const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b9c7c989f97918e1-01";

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn contexts_travel() {
    let collector = std::cell::RefCell::new(Collector::start());
    let site = traced(
        collector.borrow().origin.port(),
        "",
        r#"otel_trace on;
        server {
            listen 127.0.0.1:%%PORT%%;
            proxy_set_header Accept-Encoding "";
            location /ignore { proxy_pass http://127.0.0.1:%%PORT_1%%; }
            location /extract { otel_trace_context extract; proxy_pass http://127.0.0.1:%%PORT_1%%; }
            location /inject { otel_trace_context inject; proxy_pass http://127.0.0.1:%%PORT_1%%; }
            location /propagate { otel_trace_context propagate; proxy_pass http://127.0.0.1:%%PORT_1%%; }
            location /vars {
                otel_trace_context extract;
                return 200 "$otel_trace_id $otel_span_id [$otel_parent_id] $otel_parent_sampled";
            }
        }
        server {
            listen 127.0.0.1:%%PORT_1%%;
            otel_trace off;
            return 200 "$http_traceparent|$http_tracestate";
        }"#,
    );
    let given = [&*format!("Traceparent: {PARENT}"), "Tracestate: a=1", "TraceState: b=2"];
    on_each_driver(&site, |server| {
        let mut collector = collector.borrow_mut();
        collector.peer = None;
        for path in ["/ignore", "/extract", "/inject", "/propagate"] {
            for fields in [&given[..], &[]] {
                eprintln!("{path} {fields:?}");
                let (extracts, injects) = (
                    path == "/extract" || path == "/propagate",
                    path == "/inject" || path == "/propagate",
                );
                let said = ask(server, path, fields).text().to_owned();
                let span = collector.span();
                let is_child = extracts && !fields.is_empty();
                assert_eq!(
                    hex(&span.parent_span_id),
                    if is_child { "b9c7c989f97918e1" } else { "" }
                );
                assert_eq!(hex(&span.trace_id) == "0af7651916cd43dd8448eb211c80319c", is_child);
                assert_eq!(span.trace_state, if is_child { "a=1,b=2" } else { "" });
                let expected = match injects {
                    true => format!(
                        "00-{}-{}-01|{}",
                        hex(&span.trace_id),
                        hex(&span.span_id),
                        span.trace_state
                    ),
                    false if fields.is_empty() => "|".to_owned(),
                    false => format!("{PARENT}|a=1, b=2"),
                };
                assert_eq!(said, expected);
            }
        }
        let said = ask(server, "/vars", &given).text().to_owned();
        let span = collector.span();
        let (trace, own) = (hex(&span.trace_id), hex(&span.span_id));
        assert_eq!(said, format!("{trace} {own} [b9c7c989f97918e1] 1"));
        // Two parents, and nonsense, are none.
        for bad in [&given[..1].repeat(2), &vec!["Traceparent: 00-x"]] {
            let said = ask(server, "/vars", bad).text().to_owned();
            assert!(said.ends_with(" [] 0") && !said.starts_with("0af7"), "{said}");
            collector.span();
        }
    });
}

#[test]
fn variables_choose_what_is_traced() {
    let collector = std::cell::RefCell::new(Collector::start());
    let site = traced(
        collector.borrow().origin.port(),
        "",
        r#"split_clients $otel_trace_id $sampled { 100% on; }
        split_clients $otel_trace_id $unsampled { 100% off; }
        server {
            listen 127.0.0.1:%%PORT%%;
            location /parent { otel_trace $otel_parent_sampled; otel_trace_context propagate; return 200 $http_traceparent; }
            location /all { otel_trace $sampled; return 204; }
            location /none { otel_trace $unsampled; return 204; }
            location /off { return 204; }
        }"#,
    );
    on_each_driver(&site, |server| {
        let mut collector = collector.borrow_mut();
        collector.peer = None;
        let unsampled = PARENT.replace("-01", "-00");
        let said =
            ask(server, "/parent", &[&format!("traceparent: {unsampled}")]).text().to_owned();
        assert!(said.starts_with("00-0af7") && said.ends_with("-00"), "{said}");
        for path in ["/none", "/off", "/parent", "/all"] {
            ask(server, path, &[]);
        }
        // None of the others has a span.
        assert_eq!(collector.span().name, "/all");
        ask(server, "/parent", &[&format!("traceparent: {PARENT}")]);
        assert_eq!(hex(&collector.span().parent_span_id), "b9c7c989f97918e1");
    });
}

/// A collector that speaks HTTP/1.1: sends the exports of each connection until the test has ended.
fn http_collector(listener: TcpListener) -> mpsc::Receiver<(String, ExportTraceServiceRequest)> {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(stream) = stream else { return };
            if serve_exports(stream, &sender).is_none() {
                return;
            }
        }
    });
    receiver
}

fn serve_exports(
    mut stream: TcpStream,
    sender: &mpsc::Sender<(String, ExportTraceServiceRequest)>,
) -> Option<()> {
    let mut input = Vec::new();
    loop {
        let mut buffer = [0; 4096];
        let received = stream.read(&mut buffer).unwrap_or(0);
        if received == 0 {
            return Some(());
        }
        input.extend_from_slice(&buffer[..received]);
        let Some(end) = input.windows(4).position(|four| four == b"\r\n\r\n") else { continue };
        let head = String::from_utf8(input[..end].to_vec()).unwrap();
        let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: ")).unwrap();
        let length: usize = length.parse().unwrap();
        let Some(body) = input.get(end + 4..end + 4 + length) else { continue };
        let export = ExportTraceServiceRequest::decode(body).expect("an export");
        input.drain(..end + 4 + length);
        sender.send((head, export)).ok()?;
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Type: application/x-protobuf\r\nContent-Length: 0\r\n\r\n").ok();
    }
}

#[test]
fn exports_may_be_posts() {
    let site = site(
        "otel_exporter {
             endpoint http://127.0.0.1:%%COLLECTOR%%/v1/traces;
             batch_size 2; interval 1h; header api-key k;
         }
         otel_trace on;
         server { listen 127.0.0.1:%%PORT%%; location /a { return 204; } }",
    )
    .workers(1);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let exports = http_collector(listener);
    for driver in DRIVERS {
        let server = site.clone().variable("COLLECTOR", port).driver(driver).start();
        // The third span waits for a fourth, although a full batch leaves.
        let mut client = server.client();
        client.send("GET /a HTTP/1.1\r\nHost: localhost\r\n\r\n".repeat(3));
        for _ in 0..3 {
            assert_eq!(client.response().status, 204);
        }
        for last in [false, true] {
            if last {
                assert_eq!(ask(&server, "/a", &[]).status, 204);
            }
            let (head, export) = exports.recv_timeout(PATIENCE).expect("an export");
            assert!(head.starts_with("POST /v1/traces HTTP/1.1\r\n"), "{head}");
            assert!(head.contains("\r\nContent-Type: application/x-protobuf"), "{head}");
            assert!(head.contains("\r\napi-key: k"), "{head}");
            assert_eq!(spans(&export).len(), 2);
        }
        // The last one leaves with the server.
        assert_eq!(ask(&server, "/a", &[]).status, 204);
        server.quit();
        let (_, export) = exports.recv_timeout(PATIENCE).expect("the last export");
        assert_eq!(spans(&export).len(), 1);
    }
}

#[test]
fn exports_may_be_encrypted() {
    let own = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let collector = std::cell::RefCell::new(Collector::start());
    let site = site(&format!(
        "otel_exporter {{
             endpoint https://localhost:%%PORT_1%%; batch_size 1;
             trusted_certificate own.pem;
         }}
         server {{ listen 127.0.0.1:%%PORT%%; otel_trace on; location / {{ return 204; }} }}
         server {{
             listen 127.0.0.1:%%PORT_1%% ssl;
             http2 on;
             ssl_certificate own.pem;
             ssl_certificate_key own.key;
             location / {{ grpc_pass grpc://127.0.0.1:{}; }}
         }}",
        collector.borrow().origin.port()
    ))
    .workers(1)
    .file("own.pem", own.cert.pem())
    .file("own.key", own.signing_key.serialize_pem());
    on_each_driver(&site, |server| {
        let mut collector = collector.borrow_mut();
        for _ in 0..3 {
            // The server in between keeps no connection.
            collector.peer = None;
            assert_eq!(ask(server, "/a", &[]).status, 204);
            assert_eq!(text(&collector.span(), "http.target"), "/a");
        }
    });
}

fn traces(server: &Server) -> serde_json::Value {
    serde_json::from_str(&server.get("/status/traces").text()).expect("JSON")
}

#[test]
fn a_dead_collector_loses_spans_and_nothing_else() {
    for driver in DRIVERS {
        let port = free_port();
        let server = site(&format!(
            "otel_exporter {{ endpoint http://127.0.0.1:{port}/v1/traces; batch_size 1; interval 10ms; }}
             otel_trace on;
             server {{
                 listen 127.0.0.1:%%PORT%%;
                 location /a {{ return 204; }}
                 location /status/ {{ otel_trace off; status_api; }}
                 location /metrics {{ otel_trace off; metrics; }}
             }}"
        ))
        .workers(1)
        .driver(driver)
        .start();
        for _ in 0..100 {
            assert_eq!(ask(&server, "/a", &[]).status, 204);
        }
        server.wait_log("spans are lost until it works again");
        let lost = traces(&server);
        assert_eq!((&lost["failing"], &lost["spans_sent"]), (&true.into(), &0.into()));
        assert!(server.get("/metrics").text().contains("\nnowait_trace_export_failing 1\n"));
        // It comes back.
        let exports = http_collector(TcpListener::bind(("127.0.0.1", port)).unwrap());
        let end = std::time::Instant::now() + PATIENCE;
        while exports.recv_timeout(Duration::from_millis(20)).is_err() {
            assert!(std::time::Instant::now() < end, "no export");
            assert_eq!(ask(&server, "/a", &[]).status, 204);
        }
        server.wait_log("works again, ");
        let found = traces(&server);
        assert!(found["failing"] == false && found["spans_sent"].as_u64() > Some(0), "{found}");
        let lines = |text: &str| server.log().lines().filter(|line| line.contains(text)).count();
        assert_eq!(lines("exporting spans to"), 2, "{}", server.log());
        server.stop();
    }
}

#[test]
fn a_collector_that_never_answers_costs_no_more_than_the_batches() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let site = traced(
        silent.local_addr().unwrap().port(),
        "batch_count 2;",
        "otel_trace on;
         server {
             listen 127.0.0.1:%%PORT%%;
             location /a { return 204; }
             location /status/ { otel_trace off; status_api; }
         }",
    );
    on_each_driver(&site, |server| {
        for _ in 0..50 {
            assert_eq!(ask(server, "/a", &[]).status, 204);
        }
        // One is being sent, one waits.
        assert_eq!(traces(server)["spans_lost"], 48);
        let log = server.log();
        assert!(!log.contains("exporting spans"), "{log}");
        server.allow_log("exporting spans");
    });
}

#[test]
fn refused_collectors() {
    let with = |exporter: &str| {
        site(&format!("otel_exporter {{ {exporter} }} server {{ listen 127.0.0.1:%%PORT%%; }}"))
    };
    for (exporter, reason) in [
        ("interval 5s;", "\"otel_exporter\" requires \"endpoint\""),
        ("endpoint localhost;", "invalid endpoint \"localhost\""),
        ("endpoint a:1; endpoint b:1;", "\"endpoint\" directive is duplicate"),
        ("endpoint a:1; batch_size 0;", "invalid number \"0\""),
        ("endpoint a:1; interval 0;", "invalid time \"0\""),
        ("endpoint a:1; header host x;", "invalid header name \"host\""),
        ("endpoint a:1; protocol grpc;", "unknown directive \"protocol\" in \"otel_exporter\""),
        ("endpoint https://a:1; trusted_certificate missing.pem;", "missing.pem"),
    ] {
        refused(&with(exporter), reason);
    }
}
