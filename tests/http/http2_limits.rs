//! What an HTTP/2 client may hold, and for how long; and that a limit loses no request.

use std::io::{Read, Write};
use std::time::{Duration, Instant};

use nowait_testkit::http2::{ErrorCode, Http2, Limits};
use nowait_testkit::{Server, ServerBuilder};

use crate::transport::{Transport, on_each, site};

fn http2(content: &str) -> ServerBuilder {
    site(&format!("server {{\n%%LISTEN%%\nroot %%DIR%%/html;\n{content}\n}}"))
}

/// The time for which a connection is used, where it is limited.
const TIME: Duration = Duration::from_millis(100);

/// Runs a test on each driver, with and without TLS.
#[track_caller]
fn on_both(builder: &ServerBuilder, test: impl Fn(&mut Server, Transport)) {
    on_each(&Transport::HTTP2, builder, test);
}

/// A frame.
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("a short frame").to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// RFC 9113 section 8.1.1: "A request or response that includes message content can include a
/// content-length header field. A request or response is also malformed if the value of a
/// content-length header field does not equal the sum of the DATA frame payload lengths".
#[test]
fn content_that_differs_from_its_length_is_not_forwarded() {
    let to_itself = "location / { proxy_pass http://127.0.0.1:%%PORT%%/to/; }
        location /cached/ { proxy_pass http://127.0.0.1:%%PORT%%/to/; proxy_cache zone; }
        location /unbuffered/ {
            proxy_pass http://127.0.0.1:%%PORT%%/to/; proxy_request_buffering off;
        }
        location /to/ { return 200 \"$request_method $content_length\"; }";
    let site = site(&format!(
        "proxy_cache_path %%DIR%%/cache keys_zone=zone:1m;
        server {{ %%LISTEN%% {to_itself} }}"
    ));
    on_both(&site, |server, transport| {
        let mut client = transport.http2(server);
        for path in ["/", "/cached/", "/unbuffered/"] {
            for method in ["GET", "POST"] {
                let stream = client.open(method, path, &[("content-length", "0")], false);
                client.send_raw(&frame(0, 1, stream.get(), b"smuggled"));
                let exchange = client.end_of(stream);
                assert_eq!(exchange.status, 400, "{path} {exchange:?}");
                // Content of no bytes is as long as it says.
                let stream = client.open(method, path, &[("content-length", "0")], false);
                client.data(stream, b"", true);
                assert_eq!(client.response(stream).text(), format!("{method} 0"), "{path}");
            }
        }
        for (length, content) in [("5", &b"four"[..]), ("5", b"sixsix"), ("1", b"")] {
            let stream = client.open("POST", "/", &[("content-length", length)], false);
            client.send_raw(&frame(0, 1, stream.get(), content));
            let exchange = client.end_of(stream);
            assert_eq!(exchange.status, 400, "{length} {exchange:?}");
        }
    });
}

/// A client that waits for the server to say that it need not send the rest learns it at once.
#[test]
fn an_upload_that_nobody_reads_is_ended_with_its_response() {
    let site = http2("client_max_body_size 1k; location / { return 200 early; }");
    on_both(&site, |server, transport| {
        let mut client = transport.http2(server);
        for (length, status) in [("100000", 413), ("", 200)] {
            let fields = [("content-length", length)];
            let fields = if length.is_empty() { &[][..] } else { &fields };
            let stream = client.open("POST", "/", fields, false);
            assert_eq!(client.response(stream).status, status);
            client.until("a reset", |client| client.so_far(stream).reset.is_some());
            assert_eq!(client.so_far(stream).reset, Some(ErrorCode::NO_ERROR));
        }
        // What is on its way and short is simply dropped.
        let stream = client.open("POST", "/", &[("content-length", "3")], false);
        assert_eq!(client.response(stream).text(), "early");
        client.data(stream, b"abc", true);
        client.round_trip();
        assert_eq!(client.so_far(stream).reset, None);
    });
}

/// Frames that begin no request.
#[test]
fn a_connection_without_a_request_ends_in_time_whatever_it_sends() {
    let site = http2("client_header_timeout 200ms; keepalive_timeout 200ms;").file("html/a", "A");
    on_both(&site, |server, transport| {
        let ping = frame(6, 0, 0, b"testkit.");
        let settings = frame(4, 0, 0, &[]);
        let window = frame(8, 0, 0, &[0, 0, 0, 1]);
        let priority = frame(2, 0, 1, &[0; 5]);
        // Frames that end within the next one leave one incomplete all the time.
        let shifted = [&ping[9..], &ping[..9]].concat();
        for (name, before, repeated) in [
            ("PING", &[][..], &ping),
            ("SETTINGS", &[], &settings),
            ("WINDOW_UPDATE", &[], &window),
            ("PRIORITY", &[], &priority),
            ("a part of PING", &ping[..9], &shifted),
        ] {
            for requests in 0..2 {
                // The server may still be given more window.
                let limits = Limits { connection_window: 65_535, ..Limits::default() };
                let mut client = transport.http2_with(server, limits, None);
                for _ in 0..requests {
                    assert_eq!(client.get("/a").text(), "A");
                }
                // Nothing else is sent from here on.
                client.round_trip();
                client.send_raw(before);
                while client.goaway.is_none() && !client.closed {
                    client.send_raw(repeated);
                    // Slow enough that it is no flood.
                    client.receive_for_a_moment();
                }
                let Some((_, code)) = client.goaway else { panic!("{name}: no GOAWAY") };
                assert_eq!(code, ErrorCode::NO_ERROR, "{name} after {requests} requests");
            }
        }
    });
}

/// Fields of earlier requests cost a client one byte each, and the server all of their length.
#[test]
fn heads_of_one_connection_are_bounded() {
    let content = "location / { proxy_pass http://127.0.0.1:1; } location /a { return 200 A; }";
    let site = http2(content);
    on_both(&site, |server, transport| {
        let mut client = transport.http2(server);
        let value = "x".repeat(3500);
        let field = [("x-large", value.as_str()); 9];
        let mut streams = Vec::new();
        // Their content never comes, so they stay.
        for _ in 0..60 {
            streams.push(client.open("POST", "/", &field, false));
        }
        client.round_trip();
        let count = |client: &Http2, code| {
            streams.iter().filter(|stream| client.so_far(**stream).reset == code).count()
        };
        let refused = count(&client, Some(ErrorCode::REFUSED_STREAM));
        assert!((20..40).contains(&refused), "{refused} streams were refused");
        assert_eq!(count(&client, None), 60 - refused);
        // What was held is free again.
        for stream in streams {
            client.reset(stream, ErrorCode::CANCEL);
        }
        client.round_trip();
        for _ in 0..60 {
            let stream = client.open("GET", "/a", &field, true);
            assert_eq!(client.response(stream).text(), "A");
        }
    });
}

/// A client may have sent requests that it can't repeat before it sees GOAWAY.
#[test]
fn requests_on_their_way_are_served_when_a_connection_is_used_up() {
    for limit in ["keepalive_requests 2;", "keepalive_time 100ms;"] {
        let site = http2(limit).file("html/a", "A");
        on_both(&site, |server, transport| {
            // The first request may take too long to be the only one of its time.
            let (mut client, since) = loop {
                let mut client = transport.http2(server);
                assert_eq!(client.get("/a").text(), "A");
                let since = Instant::now();
                client.receive_for_a_moment();
                if client.goaway.is_none() {
                    break (client, since);
                }
            };
            while limit.starts_with("keepalive_time") && since.elapsed() < TIME {
                client.receive_for_a_moment();
            }
            let streams = [(); 5].map(|()| client.send_get("/a"));
            for stream in streams {
                assert_eq!(client.response(stream).text(), "A", "{limit}");
            }
            client.until_closed();
            assert_eq!(client.goaway, Some((11, ErrorCode::NO_ERROR)), "{limit}");
        });
    }
}

/// A stream that is open does not keep an incomplete field block: nothing else can come before the rest of it.
#[test]
fn an_incomplete_field_block_ends_a_connection_in_time() {
    let site = http2("client_header_timeout 300ms; location / { proxy_pass http://127.0.0.1:1; }");
    on_both(&site, |server, transport| {
        // Nothing comes on it, and nothing is incomplete.
        let mut quiet = transport.http2(server);
        quiet.open("POST", "/", &[("content-length", "9")], false);
        // A method, and no more.
        let begun = frame(1, 1, 3, &[0x82]);
        let cut = &frame(1, 1, 3, &[0x82, 0x84, 0x86])[..10];
        let trailers = frame(1, 1, 1, &[]);
        let continued = [frame(1, 1, 3, &[0x82]), frame(9, 0, 3, &[0x84])].concat();
        for block in [&begun[..], cut, &trailers, &continued] {
            let mut client = transport.http2(server);
            let stream = client.open("POST", "/", &[("content-length", "9")], false);
            client.round_trip();
            client.send_raw(block);
            client.until_closed();
            assert_eq!(client.goaway.map(|(_, code)| code), Some(ErrorCode::NO_ERROR));
            assert_eq!(client.so_far(stream).status, 0);
        }
        quiet.round_trip();
        assert_eq!(quiet.goaway, None);
    });
}

/// A client whose requests are cut anywhere, and whose connection always has an incomplete one, sends complete
/// ones all the time.
#[test]
fn cut_field_blocks_that_are_completed_may_go_on() {
    let site = http2(
        "client_header_timeout 300ms; location / { return 204; }
        location /open { proxy_pass http://127.0.0.1:1; }",
    );
    on_both(&site, |server, transport| {
        let mut stream = transport.connect(server, None);
        let mut send = |bytes: &[u8]| stream.write_all(bytes).unwrap();
        send(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
        send(&frame(4, 0, 0, &[]));
        // POST, http, the path and the authority; its content never comes.
        send(&frame(1, 4, 1, b"\x83\x86\x04\x05/open\x01\x09localhost"));
        let request = |stream| frame(1, 5, stream, b"\x82\x86\x84\x01\x09localhost");
        let until = Instant::now() + Duration::from_millis(1200);
        let mut number = 3;
        send(&request(number)[..12]);
        while Instant::now() < until {
            let next = request(number + 2);
            send(&[&request(number)[12..], &next[..12]].concat());
            number += 2;
            std::thread::sleep(Duration::from_millis(30));
        }
        send(&[&request(number)[12..], &frame(6, 0, 0, b"all sent")].concat());
        let mut received = Vec::new();
        while !received.ends_with(b"all sent") {
            let mut buffer = [0; 4096];
            match stream.read(&mut buffer) {
                Ok(count @ 1..) => received.extend_from_slice(&buffer[..count]),
                other => panic!("the connection has ended: {other:?}"),
            }
        }
    });
}

/// RFC 9113 section 8.2.1: names of trailers, like those of heads.
#[test]
fn trailers_with_names_that_are_none() {
    let site = http2(
        "location / { proxy_pass http://127.0.0.1:%%PORT%%/to; }
        location /to { return 200 passed; }",
    );
    on_both(&site, |server, transport| {
        for (name, valid) in
            [("a-b", true), ("a!b", true), ("A", false), ("a(b", false), ("a b", false)]
        {
            let mut client = transport.http2(server);
            let stream = client.open("POST", "/", &[], false);
            client.data(stream, b"content", false);
            let length = name.len() as u8;
            let block = [&[0, length], name.as_bytes(), &[1, b'v']].concat();
            client.send_raw(&frame(1, 5, stream.get(), &block));
            if valid {
                assert_eq!(client.response(stream).text(), "passed", "{name}");
                continue;
            }
            // "a server MAY send an HTTP response prior to closing or resetting the stream"
            assert_eq!(client.end_of(stream).status, 400, "{name}");
            client.until("a reset", |client| client.so_far(stream).reset.is_some());
            assert_eq!(client.so_far(stream).reset, Some(ErrorCode::PROTOCOL_ERROR), "{name}");
            assert_eq!(client.goaway, None);
        }
    });
}

#[test]
fn heads_may_be_as_large_as_their_buffers() {
    let site =
        http2("large_client_header_buffers 4 64k; location / { return 200 $http_x$http_y; }");
    on_both(&site, |server, transport| {
        let mut client = transport.http2(server);
        let (x, y) = ("x".repeat(60_000), "y".repeat(50_000));
        let stream = client.open("GET", "/", &[("x", &x), ("y", &y)], true);
        let response = client.response(stream);
        assert!(response.text() == x.clone() + &y, "{}", response.status);
    });
}
