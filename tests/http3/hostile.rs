//! Clients that mean harm: none of them may hold up others.

use nowait_testkit::Server;
use nowait_testkit::http3::{Http3, code, frame, frame_of};

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
fn lines_of_http_0_9_that_are_none_leave_nothing() {
    use nowait_testkit::http3::trusting;
    use nowait_testkit::quic::{Dir, Quic, QuicOptions};
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
