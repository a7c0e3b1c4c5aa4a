//! Servers of HTTP/2 behind this one, and requests that would confuse them.

use nowait_testkit::http2::{Http2, Limits};
use nowait_testkit::{Client, Http2Origin, Server};

use super::{GOAWAY, MAX_FRAME_SIZE, SETTINGS, frame, headers, settings, window_update};
use crate::stage::{ask, on_each_driver, pattern, site};

/// Runs a test on each driver. `more` stands in the server, which passes requests to the origin.
fn with_origin(more: &str, test: impl Fn(&mut Server, &Http2Origin)) {
    let origin = Http2Origin::start();
    let site = site(&format!(
        "server {{ listen 127.0.0.1:%%PORT%%; http2 on; proxy_http_version 2;
             proxy_next_upstream off; {more}
             location / {{ proxy_pass http://127.0.0.1:{0}; }}
             location /grpc {{ grpc_pass grpc://127.0.0.1:{0}; }}
             location /here {{ return 200 here; }} }}",
        origin.port()
    ));
    on_each_driver(&site.allow_log("upstream"), |server| test(server, &origin));
}

fn asking(server: &Server, path: &str) -> Client {
    let mut client = server.client();
    client.send_get(path);
    client
}

/// CVE-2026-33814 (a frame size of nothing), windows of nothing (nginx until 1.31.3), windows and settings
/// that overflow.
#[test]
fn settings_and_windows_of_a_server() {
    let cases = [
        settings(&[(MAX_FRAME_SIZE, 0)]),
        settings(&[(MAX_FRAME_SIZE, 1 << 24)]),
        settings(&[(4, 1 << 31)]),
        frame(SETTINGS, 0, 0, &[0; 5]),
        window_update(0, 0),
        window_update(1, 0),
        window_update(0, 0x7fff_ffff),
        window_update(1, 0x7fff_ffff),
        [window_update(1, 0x7fff_0000), settings(&[(4, 0x7fff_ffff)])].concat(),
    ];
    with_origin("", |server, origin| {
        for path in ["/", "/grpc"] {
            for case in &cases {
                let mut client = asking(server, path);
                let mut peer = origin.accept();
                peer.request();
                peer.send_raw(case);
                let response = client.response();
                // gRPC tells of its errors in a field.
                let failed = response.status == 502 || response.header("grpc-status") == Some("14");
                assert!(failed, "{case:?}: {response}");
                assert_eq!(server.get("/here").text(), "here");
            }
        }
    });
}

/// nginx until 1.31.2: an upstream's header fields take memory before their limits are checked.
#[test]
fn fields_of_a_server_without_end() {
    let large = super::field(b"x-a", &[b'v'; 3000]);
    let indexed = [&[0x40][..], &large[1..]].concat();
    let cases = [
        // Many times what is in the table, in a byte each.
        headers(1, &[&[0x88][..], &indexed, &[0xbe; 10_000]].concat(), true),
        // A length without its text.
        headers(1, b"\x88\x00\x01a\x7f\xff\xff\xff\x7f", true),
        // A block that goes on.
        [frame(1, 0, 1, &[0x88]), frame(9, 0, 1, &large).repeat(300), frame(9, 4, 1, b"")].concat(),
    ];
    with_origin("", |server, origin| {
        let before = super::memory_kb(server);
        for case in &cases {
            let mut client = asking(server, "/");
            let mut peer = origin.accept();
            peer.request();
            peer.send_raw(case);
            assert_eq!(client.response().status, 502);
            assert_eq!(server.get("/here").text(), "here");
        }
        let more = super::memory_kb(server).saturating_sub(before);
        assert!(more < 8 * 1024, "{more} KB");
    });
}

/// CVE-2026-42926: a body of the configuration that is larger than a frame's length can say.
#[test]
fn a_large_body_of_the_configuration() {
    let more = "client_max_body_size 8m; client_body_buffer_size 8m;
        proxy_set_body $request_body$request_body$request_body;";
    let content = pattern(6_000_000);
    with_origin(more, |server, origin| {
        let mut client = server.client();
        client.send(format!(
            "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n",
            content.len()
        ));
        client.send(&content);
        let mut peer = origin.accept();
        let stream = peer.request();
        let asked = peer.complete(stream);
        assert_eq!(asked.field("content-length"), Some("18000000"));
        assert!(asked.body == content.repeat(3));
        peer.answer(stream, "got it");
        assert_eq!(client.response().text(), "got it");
    });
}

/// CVE-2026-42055: fields whose lengths take several bytes.
#[test]
fn long_fields_of_a_client() {
    let more = "ignore_invalid_headers off; underscores_in_headers on;
        large_client_header_buffers 4 1m; client_header_buffer_size 1m;";
    let limits = Limits {
        string_bytes_max: 1 << 21,
        list_bytes_max: 1 << 22,
        block_bytes_max: 1 << 22,
        continuations_max: 1000,
        ..Limits::default()
    };
    with_origin(more, |server, origin| {
        for path in ["/", "/grpc"] {
            for length in [126, 127, 128, 16_384, 300_000] {
                // Longer by Huffman's codes than without them.
                let value = "~".repeat(length);
                let name = format!("x_{}", "^".repeat(length.min(2000)));
                let mut client = server.client();
                client.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\n{name}: {value}\r\n\r\n"));
                let mut peer = origin.accept_with(limits);
                let stream = peer.request();
                assert!(peer.asked(stream).field(&name) == Some(&value), "{path} {length}");
                peer.answer(stream, "got it");
                assert_eq!(client.response().status, 200);
            }
        }
    });
}

/// CVE-2025-49630: a request without a host.
#[test]
fn a_request_without_a_host() {
    with_origin("proxy_set_header Host $http_host;", |server, origin| {
        let mut client = server.client();
        client.send("GET / HTTP/1.0\r\n\r\n");
        let mut peer = origin.accept();
        let stream = peer.request();
        assert_eq!(peer.asked(stream).field(":path"), Some("/"));
        let authority = format!("127.0.0.1:{}", origin.port());
        assert_eq!(peer.asked(stream).field(":authority"), Some(&*authority));
        peer.answer(stream, "got it");
        assert_eq!(client.response().text(), "got it");
    });
}

/// Frames for a stream that its client has left, on a connection that others use.
#[test]
fn frames_for_a_client_that_has_left() {
    with_origin("", |server, origin| {
        let mut first = Http2::to_port(server.port());
        let left = first.send_get("/left");
        let stays = first.send_get("/stays");
        let mut peer = origin.accept();
        let streams = [peer.request(), peer.request()];
        let path = |peer: &nowait_testkit::Http2Peer, n: usize| {
            peer.asked(streams[n]).field(":path").unwrap_or_default().to_owned()
        };
        let (gone, other) = match path(&peer, 0) == "/left" {
            true => (streams[0], streams[1]),
            false => (streams[1], streams[0]),
        };
        first.reset(left, nowait_testkit::http2::ErrorCode::CANCEL);
        peer.until("a reset", |peer| peer.asked(gone).reset.is_some());
        let late = gone.get();
        for frames in [
            headers(late, &[0x88], false),
            frame(0, 0, late, b"late"),
            window_update(late, 10),
            frame(3, 0, late, &[0, 0, 0, 8]),
        ] {
            peer.send_raw(&frames);
        }
        peer.answer(other, "stays");
        assert_eq!(first.response(stays).text(), "stays");
        assert_eq!(ask(server, "/here", &[]).text(), "here");
        peer.send_raw(&frame(GOAWAY, 0, 0, &[0; 8]));
    });
}
