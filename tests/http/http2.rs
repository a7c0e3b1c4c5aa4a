//! HTTP/2 with prior knowledge on plain connections.

use nowait_testkit::http2::{ErrorCode, Http2, Limits, StreamId};
use nowait_testkit::origin::Step;
use nowait_testkit::server::Signal;
use nowait_testkit::{Binary, Driver, Origin, Server, ServerBuilder};

use crate::stage::{on_each_driver, pattern, server, wait_file};

fn http2(content: &str) -> ServerBuilder {
    server(&format!("http2 on;\n{content}"))
}

fn client(server: &Server) -> Http2 {
    Http2::to_port(server.port())
}

#[test]
fn files_and_responses_of_all_sizes() {
    let mut site =
        http2("location = /r { return 200 \"$http2 $server_protocol $http_host $scheme\"; }")
            .file("html/empty", "");
    let sizes = [1, 8191, 8192, 8193, 16_384, 65_535, 65_536, 300_000];
    for size in sizes {
        site = site.file(&format!("html/{size}"), pattern(size));
    }
    on_each_driver(&site, |server| {
        let mut client = client(server);
        assert_eq!(client.get("/r").text(), "h2c HTTP/2.0 localhost http");
        assert_eq!(client.get("/empty").header("content-length"), Some("0"));
        assert_eq!(client.get("/none").status, 404);
        for size in sizes {
            let response = client.get(&format!("/{size}"));
            assert_eq!((response.status, response.body), (200, pattern(size)));
        }
        let head = client.open("HEAD", "/300000", &[], true);
        let response = client.response(head);
        assert_eq!(response.header("content-length"), Some("300000"));
        assert!(response.body.is_empty());
        let part = client.open("GET", "/300000", &[("range", "bytes=10-19")], true);
        let response = client.response(part);
        assert_eq!((response.status, &response.body[..]), (206, &pattern(20)[10..]));
    });
}

#[test]
fn streams_run_at_once_and_take_turns() {
    let site = http2("").file("html/large", pattern(2_000_000)).file("html/small", "small");
    on_each_driver(&site, |server| {
        let limits =
            Limits { stream_window: 10_000_000, connection_window: 1 << 30, ..Limits::default() };
        let mut client = Http2::with(server.port(), limits);
        let large: Vec<StreamId> = (0..4).map(|_| client.send_get("/large")).collect();
        let small = client.send_get("/small");
        assert_eq!(client.response(small).text(), "small");
        // None of the large ones is complete before the small one.
        assert!(large.iter().all(|stream| !client.so_far(*stream).ended));
        for stream in large {
            assert_eq!(client.response(stream).body, pattern(2_000_000));
        }
    });
}

#[test]
fn urgent_streams_come_first() {
    let text = "x".repeat(3000);
    let site = http2(&format!("http2_chunk_size 1k; location / {{ return 200 {text}; }}"));
    on_each_driver(&site, |server| {
        // Windows are closed until both streams have begun.
        let limits = Limits { stream_window: 0, connection_window: 1 << 30, ..Limits::default() };
        let mut client = Http2::with(server.port(), limits);
        let later = client.open("GET", "/", &[("priority", "u=5, i")], true);
        let first = client.open("GET", "/", &[("priority", "i, u=1;x")], true);
        client.round_trip();
        client.grow_windows(10_000);
        assert_eq!(client.response(first).body.len(), 3000);
        assert_eq!(client.response(later).body.len(), 3000);
        assert_eq!(client.so_far(first).place, Some(0));
        assert_eq!(client.so_far(later).place, Some(1));
        // The client changes its mind (RFC 9218 section 7.1).
        let later = client.open("GET", "/", &[("priority", "u=1, i")], true);
        let first = client.open("GET", "/", &[("priority", "u=5, i")], true);
        let update = [&[0, 0, 7, 0x10, 0, 0, 0, 0, 0][..], &first.get().to_be_bytes(), b"u=0"];
        client.send_raw(&update.concat());
        client.round_trip();
        client.grow_windows(10_000);
        assert_eq!(client.response(later).body.len(), 3000);
        assert_eq!(client.so_far(first).place, Some(2));
    });
}

#[test]
fn what_is_not_incremental_comes_one_after_the_other() {
    let text = "x".repeat(3000);
    let site = http2(&format!("http2_chunk_size 1k; location / {{ return 200 {text}; }}"));
    on_each_driver(&site, |server| {
        let limits = Limits { stream_window: 0, connection_window: 1 << 30, ..Limits::default() };
        let mut client = Http2::with(server.port(), limits);
        let whole = [("priority", "u=2")];
        let streams = [(); 3].map(|()| client.open("GET", "/", &whole, true));
        client.round_trip();
        client.grow_windows(2500);
        // The first has got all of its window before the second has got anything.
        client.until("windows' worth", |client| {
            streams.iter().all(|stream| client.so_far(*stream).body.len() == 2500)
        });
        client.grow_windows(10_000);
        for (place, stream) in streams.into_iter().enumerate() {
            assert_eq!(client.response(stream).body.len(), 3000);
            assert_eq!(client.so_far(stream).place, Some(place));
        }
    });
}

#[test]
fn a_window_that_is_closed_stops_its_stream_only() {
    let site = http2("").file("html/large", pattern(200_000)).file("html/small", "small");
    on_each_driver(&site, |server| {
        let limits =
            Limits { stream_window: 1000, connection_window: 1 << 30, ..Limits::default() };
        let mut client = Http2::with(server.port(), limits);
        client.take_nothing();
        let large = client.send_get("/large");
        client.until("a window's worth", |client| client.so_far(large).body.len() == 1000);
        assert_eq!(client.get("/small").text(), "small");
        assert_eq!(client.so_far(large).body.len(), 1000);
        client.take();
        assert_eq!(client.response(large).body, pattern(200_000));
    });
}

#[test]
fn a_small_response_is_the_same_if_it_has_to_wait_for_its_window() {
    let site = http2("location / { add_header X y; return 200 small; }");
    on_each_driver(&site, |server| {
        let get = |stream_window| {
            let mut client =
                Http2::with(server.port(), Limits { stream_window, ..Limits::default() });
            let stream = client.send_get("/");
            let mut response = client.response(stream);
            response.headers.retain(|(name, _)| name != "date");
            (response.status, response.headers, response.body)
        };
        let at_once = get(5);
        assert_eq!((at_once.0, &at_once.2[..]), (200, &b"small"[..]));
        for window in [4, 1] {
            assert_eq!(get(window), at_once);
        }
    });
}

#[test]
fn bodies_of_requests_reach_servers_behind() {
    let origin = Server::of(Binary::under_test(env!("CARGO_BIN_EXE_nowait")))
        .http(
            "server { listen 127.0.0.1:%%PORT%%; client_max_body_size 0; root %%DIR%%/html;
             location / { proxy_pass http://127.0.0.1:%%PORT%%/back/; client_body_buffer_size 1m; }
             location /back/ { client_body_buffer_size 1m; client_body_in_single_buffer on;
                               return 200 \"$content_length $http_transfer_encoding\"; } }",
        )
        .start();
    let port = origin.port();
    let site = http2(&format!(
        "client_max_body_size 500k;
         location /buffered {{ proxy_pass http://127.0.0.1:{port}/back/; }}
         location /unbuffered {{ proxy_request_buffering off; proxy_http_version 1.1;
                                proxy_pass http://127.0.0.1:{port}/back/; }}"
    ));
    on_each_driver(&site, |server| {
        let mut client = client(server);
        let body = pattern(400_000);
        let length = [("content-length", "400000")];
        for (path, fields, expected) in [
            ("/buffered", &length[..], "400000 "),
            ("/buffered", &[], "400000 "),
            ("/unbuffered", &length[..], "400000 "),
            ("/unbuffered", &[], " chunked"),
        ] {
            let stream = client.open("POST", path, fields, false);
            client.data(stream, &body, false);
            client.data(stream, b"", true);
            assert_eq!(client.response(stream).text(), expected, "{path} {fields:?}");
        }
        // Trailers end a body, too.
        let stream = client.open("POST", "/buffered", &[], false);
        client.data(stream, b"abc", false);
        client.trailers(stream, &[("x", "y")]);
        assert_eq!(client.response(stream).text(), "3 ");
        // Too large, whether the client says so or not.
        let stream = client.open("POST", "/buffered", &[("content-length", "600000")], false);
        let exchange = client.end_of(stream);
        assert_eq!(exchange.status, 413);
        let stream = client.open("POST", "/buffered", &[], false);
        while client.so_far(stream).status == 0 && client.window(stream) > 0 {
            client.data(stream, &[b'x'; 10_000], false);
        }
        assert_eq!(client.end_of(stream).status, 413);
        assert_eq!(client.get("/none").status, 404);
    });
}

#[test]
fn a_client_that_waits_is_invited() {
    let site = http2("client_body_early_read 1; location / { return 200 $request_body; }");
    on_each_driver(&site, |server| {
        let mut client = client(server);
        let fields = [("expect", "100-continue"), ("content-length", "3")];
        let stream = client.open("POST", "/", &fields, false);
        client.until("an interim response", |client| !client.so_far(stream).interim.is_empty());
        assert_eq!(client.so_far(stream).interim[0].0, 100);
        client.data(stream, b"abc", true);
        assert_eq!(client.response(stream).text(), "abc");
    });
}

#[test]
fn malformed_requests_are_refused_and_the_connection_survives() {
    let site = http2("").file("html/a", "A");
    on_each_driver(&site, |server| {
        let mut client = client(server);
        for fields in
            [&[("host", "other")][..], &[("content-length", "x")], &[("content-length", "5")]]
        {
            let stream = client.open("GET", "/a", fields, true);
            let exchange = client.end_of(stream);
            assert_eq!(exchange.status, 400, "{fields:?}");
        }
        for path in ["a", "*", "/%00", "/../x"] {
            let stream = client.open("GET", path, &[], true);
            assert_eq!(client.end_of(stream).status, 400, "{path}");
        }
        for method in ["TRACE", "CONNECT"] {
            let stream = client.open(method, if method == "TRACE" { "/a" } else { "" }, &[], true);
            let exchange = client.end_of(stream);
            assert!(matches!(exchange.status, 400 | 405), "{method} {exchange:?}");
        }
        assert_eq!(client.get("/a").text(), "A");
    });
}

#[test]
fn connections_end_with_goaway() {
    let site = http2("keepalive_requests 2;").file("html/a", "A");
    on_each_driver(&site, |server| {
        let mut client = client(server);
        assert_eq!(client.get("/a").text(), "A");
        assert_eq!(client.get("/a").text(), "A");
        client.until_closed();
        assert_eq!(client.goaway, Some((3, ErrorCode::NO_ERROR)));
    });
    let site = http2("keepalive_timeout 1ms;").file("html/a", "A");
    on_each_driver(&site, |server| {
        let mut client = client(server);
        assert_eq!(client.get("/a").text(), "A");
        client.until_closed();
        assert_eq!(client.goaway, Some((1, ErrorCode::NO_ERROR)));
    });
}

#[test]
fn http_1_is_spoken_on_the_same_port_and_the_preface_may_come_in_pieces() {
    let site = http2("").file("html/a", "A");
    on_each_driver(&site, |server| {
        let mut plain = server.client();
        assert_eq!(plain.get("/a").text(), "A");
        let mut plain = server.client();
        plain.send("P");
        plain.send("ROPFIND /a HTTP/1.1\r\nHost: x\r\n\r\n");
        assert_eq!(plain.response().status, 405);
        let mut plain = server.client();
        plain.send("PRI * HTTP/1.1\r\nHost: x\r\n\r\n");
        assert_eq!(plain.response().status, 400);
        let mut slow = server.client();
        for byte in b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" {
            slow.send([*byte]);
        }
        slow.send(b"\0\0\0\x04\0\0\0\0\0");
        let greeting = slow.read_some(64);
        assert_eq!((greeting[2] % 6, greeting[3]), (0, 4), "SETTINGS");
    });
    // Without the directive it is a bad request.
    let site = server("").file("html/a", "A");
    on_each_driver(&site, |server| {
        let mut plain = server.client();
        plain.send("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
        assert_eq!(plain.response().status, 400);
    });
}

#[test]
fn a_reset_is_the_clients_hang_up_for_one_request() {
    let origin = Origin::start([[Step::expect("\r\n\r\n"), Step::Closed]]);
    let site = http2(&format!("location /slow {{ proxy_pass http://{}; }}", origin.addr()))
        .file("html/a", "A");
    let mut server = site.start();
    let mut client = client(&server);
    let slow = client.send_get("/slow");
    assert_eq!(client.get("/a").text(), "A");
    client.reset(slow, ErrorCode::CANCEL);
    // The origin's script ends when its connection is closed.
    origin.wait_played(1);
    assert_eq!(client.get("/a").text(), "A");
    wait_file(&server, "access.log", "\"GET /slow HTTP/2.0\" 499");
    server.check_logs();
}

#[test]
fn what_follows_a_response_is_discarded_and_still_checked() {
    let site = http2("location / { return 200 early; }");
    on_each_driver(&site, |server| {
        let mut client = client(server);
        let stream = client.open("POST", "/", &[("content-length", "3")], false);
        assert_eq!(client.response(stream).text(), "early");
        // DATA of five bytes that ends the stream.
        client.send_raw(&[0, 0, 5, 0, 1, 0, 0, 0, 1, 1, 2, 3, 4, 5]);
        client.until("a reset", |client| client.so_far(stream).reset.is_some());
        assert_eq!(client.so_far(stream).reset, Some(ErrorCode::PROTOCOL_ERROR));
        assert_eq!(client.get("/").text(), "early");
    });
}

#[test]
fn a_server_that_ends_serves_what_has_begun() {
    let site = http2("").file("html/large", pattern(100_000));
    for driver in [Driver::Epoll, Driver::IoUring] {
        let server = site.clone().driver(driver).start();
        let limits = Limits { stream_window: 1000, ..Limits::default() };
        let mut client = Http2::with(server.port(), limits);
        client.take_nothing();
        let large = client.send_get("/large");
        client.until("a window's worth", |client| client.so_far(large).body.len() == 1000);
        server.signal(Signal::QUIT);
        client.until("GOAWAY", |client| client.goaway == Some((1, ErrorCode::NO_ERROR)));
        client.take();
        assert_eq!(client.response(large).body, pattern(100_000));
        client.until_closed();
        server.quit();
    }
}

/// A proxy for WebSockets.
fn sockets(origin: &Origin, more: &str) -> ServerBuilder {
    http2(&format!(
        "location /chat {{ proxy_pass http://{}; proxy_http_version 1.1;
             proxy_set_header Upgrade $http_upgrade; proxy_set_header Connection upgrade; }}
         {more}",
        origin.addr()
    ))
}

const SWITCHED: &str = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\
    Connection: Upgrade\r\nSec-WebSocket-Accept: x\r\nSec-WebSocket-Protocol: chat\r\n\r\n";

#[test]
fn a_websocket_runs_over_a_stream() {
    for driver in [Driver::Epoll, Driver::IoUring] {
        let many = pattern(1_000_000);
        let origin = Origin::start([vec![
            Step::expect("\r\n\r\n"),
            Step::reply(format!("{SWITCHED}first ")),
            Step::expect("ping"),
            Step::reply("pong"),
            Step::expect(&many),
            Step::reply(&many),
            Step::HalfClose,
            Step::Closed,
        ]]);
        let server = sockets(&origin, "").driver(driver).start();
        let mut client = client(&server);
        let socket = client.connect("websocket", "/chat", &[("sec-websocket-version", "13")]);
        client.until("the tunnel", |client| client.so_far(socket).body == b"first ");
        let head = client.so_far(socket).headers.clone();
        assert!(head.iter().all(|(name, _)| {
            !["upgrade", "connection", "sec-websocket-accept", "content-length"]
                .contains(&&name[..])
        }));
        assert!(head.contains(&("sec-websocket-protocol".to_owned(), "chat".to_owned())));
        client.data(socket, b"ping", false);
        client.until("an answer", |client| client.so_far(socket).body == b"first pong");
        // Other streams go on.
        assert_eq!(client.get("/none").status, 404);
        client.data(socket, &many, false);
        let response = client.response(socket);
        assert_eq!(response.status, 200);
        assert_eq!(response.body, [&b"first pong"[..], &many].concat());
        let asked = String::from_utf8_lossy(&origin.received()[0]).into_owned();
        for line in ["GET /chat HTTP/1.1\r\n", "\r\nUpgrade: websocket\r\nConnection: upgrade\r\n"]
        {
            assert!(asked.contains(line), "{asked}");
        }
        let key = asked.lines().find_map(|line| line.strip_prefix("sec-websocket-key: "));
        assert_eq!(key.map(str::len), Some(24), "{asked}");
        drop(client);
        wait_file(&server, "access.log", "\"GET /chat HTTP/2.0\" 200 1000010");
        server.stop();
    }
}

#[test]
fn the_end_of_a_websocket_is_passed_on() {
    for driver in [Driver::Epoll, Driver::IoUring] {
        let script =
            |last| vec![Step::expect("\r\n\r\n"), Step::reply(SWITCHED), Step::expect("bye"), last];
        let (release, held) = std::sync::mpsc::channel();
        let origin = Origin::start([script(Step::Closed), script(Step::Wait(held))]);
        let server = sockets(&origin, "").driver(driver).start();
        let mut client = client(&server);
        // By the end of the stream, which the origin answers by its own.
        let socket = client.connect("websocket", "/chat", &[]);
        client.until("the tunnel", |client| client.so_far(socket).status == 200);
        client.data(socket, b"bye", true);
        assert_eq!(client.response(socket).status, 200);
        // By a reset, even if the origin keeps its side open.
        let socket = client.connect("websocket", "/chat?reset", &[]);
        client.until("the tunnel", |client| client.so_far(socket).status == 200);
        client.data(socket, b"bye", false);
        client.reset(socket, ErrorCode::CANCEL);
        wait_file(&server, "access.log", "GET /chat?reset");
        drop(release);
        origin.wait_played(2);
        assert_eq!(client.get("/none").status, 404);
        server.stop();
        origin.finish();
    }
}

#[test]
fn only_a_tunnel_answers_who_asks_for_one() {
    for driver in [Driver::Epoll, Driver::IoUring] {
        let ask = || Step::expect("\r\n\r\n");
        let origin = Origin::start([
            vec![ask(), Step::reply("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")],
            vec![ask(), Step::reply("HTTP/1.1 403 No\r\nContent-Length: 2\r\n\r\nno")],
        ]);
        let server = sockets(&origin, "").file("html/file", "content").driver(driver).start();
        let mut client = client(&server);
        let mut ask = |protocol, path| {
            let socket = client.connect(protocol, path, &[]);
            let response = client.response(socket);
            (response.status, response.text())
        };
        assert_eq!(ask("websocket", "/chat"), (501, String::new()));
        assert_eq!(ask("websocket", "/chat"), (403, "no".to_owned()));
        assert_eq!(ask("websocket", "/file"), (501, String::new()));
        assert_eq!(ask("websocket", "/none").0, 404);
        assert_eq!(ask("connect-udp", "/file").0, 501);
        server.stop();
    }
}
