//! Clients that mean harm: none of them may hold up others.

use nowait_testkit::http3::{Http3, code, frame, frame_of};
use nowait_testkit::quic::Dir;
use nowait_testkit::{Server, qpack};

use crate::stage::{http3, on_each_driver, server};

/// The start of a request without content whose client sends more.
fn head(http3: &mut Http3, path: &str) -> nowait_testkit::quic::StreamId {
    let id = http3.open_stream();
    let fields = [
        (":method", "GET"),
        (":scheme", "https"),
        (":authority", "localhost"),
        (":path", path),
        ("content-length", "0"),
    ];
    http3.fields(id, &fields);
    id
}

/// A section that waits for an entry of the table, which never comes.
const WAITING: &[u8] = &[2, 0, 0xc0];

fn still_serves(server: &Server) {
    assert_eq!(http3(server).get("/").text(), "text");
    assert_eq!(http3(server).get("/none").status, 404);
}

#[test]
fn trailers_that_wait_for_ever() {
    let content = "location = / { return 200 text; } location /dav/ { dav_methods PUT; }
         client_body_timeout 1s; location /up { proxy_pass http://127.0.0.1:1; }";
    let builder = server(content).allow_log("connect() failed");
    on_each_driver(&builder, |server| {
        for path in ["/", "/none", "/up", "/dav/a"] {
            // Together with the head, and after the response.
            let mut one = http3(server);
            let id = head(&mut one, path);
            one.quic.write(id, &[&frame_of(frame::HEADERS, WAITING)[..], b"x"].concat());
            one.end_of(id);
            still_serves(server);
            let mut one = http3(server);
            let id = head(&mut one, path);
            one.frame(id, frame::HEADERS, WAITING);
            one.end_of(id);
            one.quic.write(id, b"x");
            one.quic.finish(id);
            assert_eq!(one.get("/").text(), "text", "{path}");
            still_serves(server);
        }
    });
}

#[test]
fn a_client_that_only_begins_requests_is_sent_away() {
    let content = "location = / { return 200 text; } client_header_timeout 1s;";
    on_each_driver(&server(content), |server| {
        let mut one = http3(server);
        let id = one.open_stream();
        one.quic.write(id, &frame_of(frame::HEADERS, &[0; 20])[..5]);
        assert_eq!(one.close_code(), code::NO_ERROR);
        still_serves(server);
    });
}

#[test]
fn a_response_that_is_refused_before_its_request_is_complete() {
    on_each_driver(&server("location = / { return 200 text; }"), |server| {
        let mut one = http3(server);
        let heads = [&frame_of(frame::HEADERS, &[0; 20])[..5], &frame_of(frame::HEADERS, WAITING)];
        for head in heads {
            let id = one.open_stream();
            one.quic.write(id, head);
            one.quic.stop(id, code::REQUEST_CANCELLED);
            one.until("the stream's end", |one| {
                one.quic.input(id).stopped == Some(code::REQUEST_CANCELLED)
            });
        }
        assert_eq!(one.get("/").text(), "text");
        still_serves(server);
    });
}

#[test]
fn lines_of_http_0_9_that_are_none_leave_nothing() {
    use nowait_testkit::http3::trusting;
    use nowait_testkit::quic::{Quic, QuicOptions};
    on_each_driver(&server("http3_hq on; location = / { return 200 text; }"), |server| {
        let mut quic =
            Quic::connect(server.port(), &QuicOptions::new(trusting("hq-interop"))).unwrap();
        for line in ["POST /\n", "\n", "GET", "x\n"] {
            let id = quic.open(Dir::Bi);
            quic.write(id, line.as_bytes());
            quic.finish(id);
        }
        let id = quic.open(Dir::Bi);
        quic.write(id, b"GET /\n");
        quic.finish(id);
        quic.until("the response", |quic| quic.bytes(id) == b"text");
    });
}

/// The number of an event, as the page for Prometheus says it.
#[track_caller]
fn events(server: &Server, name: &str) -> u64 {
    let text = http3(server).get("/metrics").text();
    let line = format!("nowait_quic_events_total{{event=\"{name}\"}} ");
    let value = text.lines().find_map(|found| found.strip_prefix(&line));
    value.unwrap_or_else(|| panic!("{text}")).parse().unwrap()
}

/// A flood closes its connection, is counted, and harms no other one.
#[track_caller]
fn flood(event: &str, act: impl Fn(&mut Http3)) {
    let content = "location = / { return 200 text; } location = /metrics { metrics; }
         location /up { proxy_pass http://127.0.0.1:1; }";
    on_each_driver(&server(content).allow_log("connect() failed"), |server| {
        let mut one = http3(server);
        assert_eq!(one.get("/").text(), "text");
        assert_eq!(events(server, event), 0);
        act(&mut one);
        assert_eq!(one.close_code(), code::EXCESSIVE_LOAD);
        assert_eq!(events(server, event), 1);
        still_serves(server);
    });
}

#[test]
fn frames_without_effect_are_bounded() {
    flood("floods_of_frames", |one| {
        let control = one.control;
        one.quic.write(control, &frame_of(0x21, b"").repeat(2000));
    });
}

#[test]
fn insertions_into_the_table_are_bounded() {
    flood("floods_of_insertions", |one| {
        let encoder = one.encoder;
        // The capacity, an entry, and copies of it: an octet each.
        one.quic.write(encoder, &[0x3f, 0xe1, 0x1f, 0xc0, 1, b'x']);
        one.quic.write(encoder, &[0; 4000]);
    });
}

#[test]
fn incomplete_heads_are_bounded() {
    flood("floods_of_sections", |one| {
        for _ in 0..6 {
            let id = one.open_stream();
            let head = frame_of(frame::HEADERS, &[0; 60_000]);
            one.quic.write(id, &head[..59_000]);
        }
    });
}

#[test]
fn resets_are_bounded() {
    flood("floods_of_resets", |one| {
        let fields = [
            (":method", "GET"),
            (":scheme", "https"),
            (":authority", "localhost"),
            (":path", "/up"),
        ];
        let head = frame_of(frame::HEADERS, &qpack::encode(&fields));
        one.until("the end", |one| {
            while let Some(id) = one.quic.try_open(Dir::Bi) {
                one.quic.try_write(id, &head);
                one.quic.stop(id, code::REQUEST_CANCELLED);
                one.quic.reset(id, code::REQUEST_CANCELLED);
            }
            one.quic.lost().is_some()
        });
    });
}

#[test]
fn addresses_are_proven_by_retry() {
    let content =
        "quic_retry on; location = / { return 200 text; } location = /metrics { metrics; }";
    on_each_driver(&server(content), |server| {
        // Datagrams in the name of others leave nothing behind but an answer each.
        let before = events(server, "retries_sent");
        still_serves(server);
        assert!(events(server, "retries_sent") > before);
        assert_eq!(events(server, "handshakes_full"), 0);
    });
}
