//! Spans as grpc-go and the official messages of OpenTelemetry read them: over gRPC, gRPC with TLS, and HTTP.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use nowait_testkit::{Binary, Server, TempDir};

use crate::stage::{Authority, Background, DRIVERS, program};

/// The value of an attribute, as JSON has it.
fn attribute<'a>(span: &'a serde_json::Value, key: &str) -> Option<&'a serde_json::Value> {
    let all = span["attributes"].as_array()?;
    let found = all.iter().find(|one| one["key"] == key)?;
    found["value"].as_object()?.values().next()
}

#[test]
fn a_receiver_with_the_official_messages_understands_spans() {
    let Some(mut receiver) = program("otlp-receiver") else { return };
    let authority = Authority::new("Test CA");
    let own = authority.issue("localhost");
    let dir = TempDir::new("peers-otel");
    dir.write("own.pem", &own.chain);
    dir.write("own.key", &own.key);
    receiver.args([dir.path().join("own.pem"), dir.path().join("own.key")]);
    let mut receiver = Background::start(receiver.stdout(Stdio::piped()));
    let mut lines = BufReader::new(receiver.output()).lines().map(|line| line.expect("text"));
    let ports = lines.next().expect("the ports");
    let [plain, secure, web] = ports.split(' ').collect::<Vec<_>>()[..] else { panic!("{ports}") };
    let endpoints = [
        format!("127.0.0.1:{plain}"),
        format!("https://localhost:{secure}"),
        format!("http://127.0.0.1:{web}/v1/traces"),
    ];
    for driver in DRIVERS {
        for endpoint in &endpoints {
            eprintln!("driver: {driver:?}, endpoint: {endpoint}");
            let http = format!(
                "otel_exporter {{ endpoint {endpoint}; trusted_certificate ca.pem; batch_size 2; header x-key k; }}
                 otel_service_name www;
                 server {{
                     listen 127.0.0.1:%%PORT%%;
                     otel_trace on;
                     otel_trace_context extract;
                     otel_span_attr http.request.header.x_list $http_x_list;
                     location /a {{ return 200 ok; }}
                     location /f {{ root html; }}
                 }}"
            );
            let server = Server::of(Binary::nowait(env!("CARGO_BIN_EXE_nowait")))
                .http(&http)
                .file("ca.pem", &authority.pem)
                .file("html/f", "file")
                .driver(driver)
                .start();
            for target in ["/a?%C3%A4=\u{fffd}", "/f", "/a/3", "/a/4"] {
                let mut client = server.client();
                client.send(format!(
                    "GET {target} HTTP/1.1\r\nHost: localhost\r\nX-List: 1\r\nConnection: close\r\n\
                     traceparent: 00-0af7651916cd43dd8448eb211c80319c-b9c7c989f97918e1-01\r\n\r\n"
                ));
                assert_eq!(client.response().status, 200);
            }
            let spans: Vec<serde_json::Value> = lines
                .by_ref()
                .take(4)
                .map(|line| serde_json::from_str(&line).expect("JSON"))
                .collect();
            assert_eq!(attribute(&spans[0], "http.target").unwrap(), "/a?%C3%A4=%EF%BF%BD");
            assert_eq!(attribute(&spans[1], "http.response_content_length").unwrap(), "4");
            assert!(attribute(&spans[1], "nowait.time.disk").is_some(), "{}", spans[1]);
            assert_eq!(spans[2]["name"], "/a");
            assert_eq!(spans[2]["kind"], "SPAN_KIND_SERVER");
            // Bytes are written in base64.
            assert_eq!(spans[3]["traceId"], "CvdlGRbNQ92ESOshHIAxnA==");
            assert_eq!(spans[3]["parentSpanId"], "ucfJifl5GOE=");
            server.stop();
        }
    }
}
