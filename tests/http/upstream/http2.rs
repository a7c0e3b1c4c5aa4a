//! `proxy_http_version 2`: requests share connections to their servers.

use nowait_testkit::http2::{ErrorCode, Http2, Limits};
use nowait_testkit::http2_origin::Http2Peer;
use nowait_testkit::{Client, Http2Origin, Server, ServerBuilder};

use crate::stage::{on_each_driver, pattern, site};

/// A site that passes requests to the origin. `more` stands in the server, `block` in the upstream.
fn passing(origin: &Http2Origin, block: &str, more: &str) -> ServerBuilder {
    site(&format!(
        "upstream u {{ server 127.0.0.1:{}; {block} }}
         server {{ listen 127.0.0.1:%%PORT%%; client_max_body_size 0; proxy_http_version 2;
             {more}
             location / {{ proxy_pass http://u; }}
             location /unbuffered {{
                 proxy_pass http://u; proxy_buffering off; proxy_request_buffering off;
             }} }}",
        origin.port()
    ))
}

/// Runs a test on each driver, with an origin of its own each time.
fn with_origin(block: &str, more: &str, test: impl Fn(&mut Server, &Http2Origin)) {
    let origin = Http2Origin::start();
    let block = if block.is_empty() { "keepalive 32;" } else { block };
    on_each_driver(&passing(&origin, block, more), |server| test(server, &origin));
}

/// A client that has sent a request.
fn asking(server: &Server, path: &str) -> Client {
    let mut client = Client::to_port(server.port());
    client.send_get(path);
    client
}

fn post(path: &str, content: &[u8]) -> Vec<u8> {
    let head = format!(
        "POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n",
        content.len()
    );
    [head.as_bytes(), content].concat()
}

#[test]
fn requests_share_a_connection() {
    with_origin("keepalive 4;", "", |server, origin| {
        let mut clients: Vec<_> = (0..20).map(|n| asking(server, &format!("/{n}"))).collect();
        let mut peer = origin.accept();
        let streams: Vec<_> = (0..20).map(|_| peer.request()).collect();
        let first = peer.asked(streams[0]);
        assert_eq!(first.field(":method"), Some("GET"));
        assert_eq!(first.field(":scheme"), Some("http"));
        assert_eq!(first.field(":authority"), Some("u"));
        assert_eq!(first.field("connection"), None);
        // In another order.
        for stream in streams.iter().rev() {
            let path = peer.asked(*stream).field(":path").unwrap().to_owned();
            peer.answer(*stream, &path);
        }
        for (n, client) in clients.iter_mut().enumerate() {
            assert_eq!(client.response().text(), format!("/{n}"));
        }
        // The connection is kept.
        let mut again = asking(server, "/again");
        let stream = peer.request();
        peer.answer(stream, "again");
        assert_eq!(again.response().text(), "again");
        assert!(origin.try_accept(Limits::default()).is_none());
    });
}

#[test]
fn a_server_that_allows_fewer_streams_gets_more_connections() {
    with_origin("", "", |server, origin| {
        let limits = Limits { concurrent_streams: 2, ..Limits::default() };
        let mut clients: Vec<_> = (0..3).map(|_| asking(server, "/")).collect();
        let mut first = origin.accept_with(limits);
        let streams = [first.request(), first.request()];
        let mut second = origin.accept_with(limits);
        let third = second.request();
        second.answer(third, "x");
        streams.iter().for_each(|stream| first.answer(*stream, "x"));
        for client in &mut clients {
            assert_eq!(client.response().text(), "x");
        }
        let mut client = asking(server, "/");
        let stream = first.request();
        first.answer(stream, "y");
        assert_eq!(client.response().text(), "y");
    });
}

#[test]
fn requests_wait_for_a_stream() {
    with_origin("", "", |server, origin| {
        let limits = Limits { concurrent_streams: 1, ..Limits::default() };
        let mut peers = Vec::new();
        // As many as a worker opens to a server.
        for _ in 0..16 {
            let client = asking(server, "/");
            let mut peer = origin.accept_with(limits);
            let stream = peer.request();
            peers.push((client, peer, stream));
        }
        let mut waiting = asking(server, "/waiting");
        // It has been seen when this has.
        let mut refused = Client::to_port(server.port());
        refused.send("GET / HTTP/1.1\r\n\r\n");
        refused.rest();
        assert!(origin.try_accept(limits).is_none());
        let (client, peer, stream) = &mut peers[7];
        peer.answer(*stream, "first");
        assert_eq!(client.response().text(), "first");
        let stream = peer.request();
        assert_eq!(peer.asked(stream).field(":path"), Some("/waiting"));
        peer.answer(stream, "second");
        assert_eq!(waiting.response().text(), "second");
    });
}

#[test]
fn bodies_of_all_sizes_pass_in_both_directions() {
    with_origin("", "", |server, origin| {
        let mut peer: Option<Http2Peer> = None;
        for size in [0, 1, 16_383, 16_384, 65_536, 1_000_000] {
            for path in ["/", "/unbuffered"] {
                let content = pattern(size);
                std::thread::scope(|scope| {
                    let client = scope.spawn(|| {
                        let mut client = Client::to_port(server.port());
                        client.send(post(path, &content));
                        client.response()
                    });
                    let peer = peer.get_or_insert_with(|| origin.accept());
                    let stream = peer.request();
                    assert_eq!(peer.complete(stream).body, content);
                    let length = size.to_string();
                    let asked = peer.asked(stream).field("content-length").unwrap_or("0");
                    assert_eq!(asked, length);
                    peer.respond(stream, 200, &[("x-own", "1")], size == 0);
                    if size > 0 {
                        peer.data(stream, &content, true);
                    }
                    let response = client.join().unwrap();
                    assert_eq!((response.status, response.header("x-own")), (200, Some("1")));
                    assert_eq!(response.body, content);
                });
            }
        }
    });
}

#[test]
fn a_request_that_was_not_processed_is_sent_again() {
    with_origin("", "", |server, origin| {
        // By RST_STREAM.
        let mut client = Client::to_port(server.port());
        client.send(post("/", b"content"));
        let mut peer = origin.accept();
        let stream = peer.request();
        peer.reset(stream, ErrorCode::REFUSED_STREAM);
        let stream = peer.request();
        assert_eq!(peer.complete(stream).body, b"content");
        peer.answer(stream, "done");
        assert_eq!(client.response().text(), "done");

        // By GOAWAY, which leaves the older request alone.
        let mut older = asking(server, "/older");
        let kept = peer.request();
        client.send(post("/", b"more"));
        let lost = peer.request();
        peer.go_away(kept.get(), ErrorCode::NO_ERROR);
        let mut second = origin.accept();
        let stream = second.request();
        assert_eq!(second.complete(stream).body, b"more");
        second.answer(stream, "second");
        assert_eq!(client.response().text(), "second");
        peer.answer(kept, "first");
        assert_eq!(older.response().text(), "first");
        // After its last request the connection is closed.
        peer.until_closed();
        assert!(lost > kept);
    });
}

#[test]
fn an_upload_that_was_not_processed_is_sent_again_while_it_arrives() {
    with_origin("", "", |server, origin| {
        let mut client = Client::to_port(server.port());
        client.send("POST /unbuffered HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\none");
        let mut peer = origin.accept();
        let stream = peer.request();
        peer.until("the beginning", |peer| peer.asked(stream).body == b"one");
        peer.reset(stream, ErrorCode::REFUSED_STREAM);
        let stream = peer.request();
        peer.until("the beginning", |peer| peer.asked(stream).body == b"one");
        client.send("two");
        peer.until("more", |peer| peer.asked(stream).body == b"onetwo");
        peer.go_away(stream.get() - 2, ErrorCode::NO_ERROR);
        let mut peer = origin.accept();
        let stream = peer.request();
        client.send("end");
        assert_eq!(peer.complete(stream).body, b"onetwoend");
        // All of it was sent.
        peer.reset(stream, ErrorCode::REFUSED_STREAM);
        let stream = peer.request();
        assert_eq!(peer.complete(stream).body, b"onetwoend");
        peer.answer(stream, "done");
        assert_eq!(client.response().text(), "done");
        // The connection is where it should be.
        client.send_get("/");
        let stream = peer.request();
        peer.answer(stream, "next");
        assert_eq!(client.response().text(), "next");
    });
}

#[test]
fn an_upload_of_which_more_was_sent_than_is_kept_is_given_up() {
    with_origin("", "", |server, origin| {
        let mut client = Client::to_port(server.port());
        let content = pattern(1_000_000);
        client.send(post("/unbuffered", &content));
        let mut peer = origin.accept();
        let stream = peer.request();
        assert!(peer.complete(stream).body == content);
        peer.reset(stream, ErrorCode::REFUSED_STREAM);
        assert_eq!(client.response().status, 502);
        peer.round_trip();
        assert_eq!(peer.count(), 1);
    });
}

#[test]
fn servers_that_refuse_a_request_once_are_asked_again() {
    let origins = [Http2Origin::start(), Http2Origin::start()];
    let [first, second] = [origins[0].port(), origins[1].port()];
    let site = site(&format!(
        "upstream u {{ server 127.0.0.1:{first}; server 127.0.0.1:{second}; keepalive 2; }}
         server {{ listen 127.0.0.1:%%PORT%%; proxy_http_version 2;
             location / {{ proxy_pass http://u; }} }}"
    ));
    on_each_driver(&site, |server| {
        let mut client = asking(server, "/");
        let mut peers = [0, 1].map(|n: usize| {
            let mut peer = origins[n].accept();
            let stream = peer.request();
            peer.reset(stream, ErrorCode::REFUSED_STREAM);
            peer
        });
        let again = loop {
            peers.iter_mut().for_each(Http2Peer::round_trip);
            if let Some(again) = peers.iter_mut().find(|peer| peer.count() == 2) {
                break again;
            }
        };
        let stream = again.request();
        again.answer(stream, "at last");
        assert_eq!(client.response().text(), "at last");
    });
}

#[test]
fn a_server_that_refuses_everything_is_given_up() {
    with_origin("", "", |server, origin| {
        let mut client = asking(server, "/");
        let mut peer = origin.accept();
        // The try that counts, and the others.
        for _ in 0..4 {
            let stream = peer.request();
            peer.reset(stream, ErrorCode::REFUSED_STREAM);
        }
        assert_eq!(client.response().status, 502);
        server.wait_log("upstream rejected request with error 7");
    });
}

#[test]
fn a_slow_client_holds_up_its_own_stream_only() {
    with_origin("", "", |server, origin| {
        let mut slow = asking(server, "/unbuffered");
        let mut peer = origin.accept();
        let large = peer.request();
        peer.respond(large, 200, &[], false);
        let content = pattern(64 * 1024);
        let mut sent = 0;
        // Until the client's socket is full, and the window closed. A round trip that opens no window
        // may just be early.
        let mut closed = 0;
        while closed < 50 {
            let room = peer.window(large).min(content.len());
            closed = if room == 0 { closed + 1 } else { 0 };
            if room > 0 {
                peer.data(large, &content[..room], false);
                sent += room;
            }
            assert!(sent < 100_000_000, "the window never closes");
            peer.round_trip();
        }
        // Another stream is not affected.
        let mut quick = asking(server, "/");
        let stream = peer.request();
        peer.answer(stream, &"x".repeat(60_000));
        assert_eq!(quick.response().body.len(), 60_000);
        // The rest comes when the client reads.
        let reader = std::thread::spawn(move || slow.response().body.len());
        peer.data(large, &content, true);
        assert_eq!(reader.join().unwrap(), sent + content.len());
    });
}

#[test]
fn a_slow_server_stops_the_client_s_upload() {
    with_origin("", "", |server, origin| {
        let client = Client::to_port(server.port());
        let content = pattern(30_000_000);
        std::thread::scope(|scope| {
            let sender = scope.spawn(|| {
                let mut client = client;
                client.send(post("/unbuffered", &content));
                client.response()
            });
            let mut peer = origin.accept();
            peer.take_nothing();
            let stream = peer.request();
            peer.until("a full window", |peer| peer.asked(stream).body.len() >= 65_535);
            peer.round_trip();
            assert!(peer.asked(stream).body.len() <= 65_536);
            peer.take();
            assert_eq!(peer.complete(stream).body, content);
            peer.answer(stream, "ok");
            assert_eq!(sender.join().unwrap().text(), "ok");
        });
    });
}

#[test]
fn a_client_that_leaves_resets_its_stream() {
    with_origin("", "", |server, origin| {
        let client = asking(server, "/");
        let mut peer = origin.accept();
        let stream = peer.request();
        drop(client);
        peer.until("a reset", |peer| peer.asked(stream).reset.is_some());
        assert_eq!(peer.asked(stream).reset, Some(ErrorCode::CANCEL));
        // The connection goes on.
        let mut client = asking(server, "/");
        let stream = peer.request();
        peer.answer(stream, "x");
        assert_eq!(client.response().text(), "x");
    });
}

#[test]
fn interim_responses_and_trailers_are_passed_on() {
    with_origin("", "early_hints 1; proxy_pass_trailers on;", |server, origin| {
        let mut client = Client::to_port(server.port());
        client.send("GET / HTTP/1.1\r\nHost: localhost\r\nTE: trailers\r\n\r\n");
        let mut peer = origin.accept();
        let stream = peer.request();
        peer.interim(stream, 103, &[("link", "</a>")]);
        assert_eq!(client.response().status, 103);
        peer.respond(stream, 200, &[], false);
        peer.data(stream, b"content", false);
        peer.trailers(stream, &[("x-sum", "1")]);
        let response = client.response();
        assert_eq!((response.text(), response.trailers.len()), ("content".to_owned(), 1));
        assert_eq!(response.trailers[0].1, "1");
    });
}

#[test]
fn idle_connections_are_bounded() {
    with_origin("keepalive 1; keepalive_requests 3;", "", |server, origin| {
        let limits = Limits { concurrent_streams: 1, ..Limits::default() };
        let mut clients = [asking(server, "/"), asking(server, "/")];
        let mut first = origin.accept_with(limits);
        let stream = first.request();
        let mut second = origin.accept_with(limits);
        let other = second.request();
        first.answer(stream, &"1".repeat(100));
        first.round_trip();
        second.answer(other, &"2".repeat(100));
        for client in &mut clients {
            assert_eq!(client.response().body.len(), 100);
        }
        // The one that became idle first makes room.
        first.until_closed();
        for _ in 0..2 {
            let mut client = asking(server, "/");
            let stream = second.request();
            second.answer(stream, "x");
            assert_eq!(client.response().text(), "x");
        }
        second.until_closed();
    });
}

#[test]
fn connections_are_kept_alive_by_pings_and_survive_settings() {
    with_origin("", "", |server, origin| {
        let mut client = asking(server, "/");
        let mut peer = origin.accept();
        let stream = peer.request();
        peer.answer(stream, "1");
        assert_eq!(client.response().text(), "1");
        // While it is idle: PING, SETTINGS, a late window of the stream.
        peer.round_trip();
        peer.send_raw(&[0, 0, 0, 4, 0, 0, 0, 0, 0]);
        peer.send_raw(&[0, 0, 4, 8, 0, 0, 0, 0, 1, 0, 0, 0, 9]);
        peer.round_trip();
        client.send_get("/");
        let stream = peer.request();
        peer.answer(stream, "2");
        assert_eq!(client.response().text(), "2");
    });
}

#[test]
fn violations_of_the_protocol_are_bad_gateways() {
    /// A HEADERS frame for the first stream.
    fn head(block: &[u8], flags: u8) -> Vec<u8> {
        [&[0, 0, block.len() as u8, 1, flags, 0, 0, 0, 1], block].concat()
    }
    let repeated = |frame: &[u8], count: usize| frame.repeat(count);
    let cases: [(Vec<u8>, &str); 10] = [
        (head(&[0xff; 20], 4), "upstream sent header block with too long integer"),
        (head(&[0xbe], 4), "upstream sent invalid header table index"),
        (head(b"\x88\x00\x02A:\x01x", 4), "upstream sent invalid header name"),
        (head(b"\x00\x01a\x01b", 4), "upstream sent no :status header"),
        (vec![0, 0, 1, 0, 0, 0, 0, 0, 1, b'x'], "upstream sent DATA frame before the response"),
        (vec![0, 0, 4, 3, 0, 0, 0, 0, 1, 0, 0, 0, 2], "upstream rejected request with error 2"),
        (vec![0, 0, 4, 5, 4, 0, 0, 0, 1, 0, 0, 0, 2], "upstream sent PUSH_PROMISE frame"),
        // Floods.
        (
            repeated(&[0, 0, 8, 6, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8], 2000),
            "upstream sent http2 flood",
        ),
        (repeated(&[0, 0, 0, 4, 0, 0, 0, 0, 0], 2000), "upstream sent http2 flood"),
        (
            [head(&[0x88], 0), repeated(&[0, 0, 0, 9, 0, 0, 0, 0, 1], 1000)].concat(),
            "upstream sent too large header block",
        ),
    ];
    with_origin("", "proxy_next_upstream off;", |server, origin| {
        for (frames, text) in &cases {
            let mut client = asking(server, "/");
            let mut peer = origin.accept();
            peer.request();
            peer.send_raw(frames);
            assert_eq!(client.response().status, 502, "{text}");
            server.wait_log(text);
            // The connection is closed, now or after the stream.
            peer.go_away(0, ErrorCode::NO_ERROR);
        }
    });
}

#[test]
fn a_body_that_breaks_off_is_not_complete() {
    with_origin("", "", |server, origin| {
        let mut client = asking(server, "/unbuffered");
        let mut peer = origin.accept();
        let stream = peer.request();
        peer.respond(stream, 200, &[("content-length", "10")], false);
        peer.data(stream, b"12345", false);
        let mut got = Vec::new();
        while !got.ends_with(b"12345") {
            got.extend(client.read_some(1000));
        }
        peer.round_trip();
        drop(peer);
        client.expect_closed();
        server.wait_log("upstream prematurely closed connection while reading upstream");
    });
}

#[test]
fn responses_are_cached() {
    let cache = "proxy_cache one; proxy_cache_valid 1h; proxy_cache_lock on;";
    let origin = Http2Origin::start();
    let zone =
        "} proxy_cache_path %%DIR%%/cache keys_zone=one:1m; upstream other { server [::1]:1;";
    let site = passing(&origin, zone, cache);
    on_each_driver(&site, |server| {
        let mut clients: Vec<_> = (0..3).map(|_| asking(server, "/a")).collect();
        let mut peer = origin.accept();
        let stream = peer.request();
        peer.answer(stream, "once");
        for client in &mut clients {
            assert_eq!(client.response().text(), "once");
        }
        assert_eq!(peer.count(), 1);
    });
}

/// A location that passes WebSockets on.
const SOCKETS: &str =
    "location /chat { proxy_pass http://u; proxy_set_header Upgrade $http_upgrade;
    proxy_set_header Connection $http_connection; }";

/// Limits of a server that takes WebSockets.
fn taking_sockets() -> Limits {
    Limits { extended_connect: true, ..Limits::default() }
}

const HANDSHAKE: &str = "GET /chat?a HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\n\
    Connection: Upgrade\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
    Sec-WebSocket-Version: 13\r\nSec-WebSocket-Protocol: chat\r\n\r\n";

#[test]
fn a_websocket_of_a_client_over_http_1_runs_over_a_stream() {
    with_origin("", SOCKETS, |server, origin| {
        let mut client = Client::to_port(server.port());
        client.send(HANDSHAKE);
        let mut peer = origin.accept_with(taking_sockets());
        let stream = peer.request();
        let asked = peer.asked(stream);
        for (name, value) in [
            (":method", Some("CONNECT")),
            (":protocol", Some("websocket")),
            (":scheme", Some("http")),
            (":authority", Some("u")),
            (":path", Some("/chat?a")),
            ("sec-websocket-version", Some("13")),
            ("sec-websocket-protocol", Some("chat")),
            ("sec-websocket-key", None),
            ("upgrade", None),
            ("connection", None),
        ] {
            assert_eq!(asked.field(name), value, "{name}");
        }
        peer.respond(stream, 200, &[("sec-websocket-protocol", "chat")], false);
        peer.data(stream, b"first", false);
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            head.push_str(&String::from_utf8_lossy(&client.read_some(1)));
        }
        assert!(head.starts_with("HTTP/1.1 101 Switching Protocols\r\n"), "{head}");
        for line in [
            "Upgrade: websocket",
            "Connection: upgrade",
            "Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=",
            "sec-websocket-protocol: chat",
        ] {
            assert!(head.contains(&format!("\r\n{line}\r\n")), "{head}");
        }
        assert_eq!(exactly(&mut client, 5), b"first");
        let many = pattern(1_000_000);
        std::thread::scope(|scope| {
            let sent = &many;
            let (client, peer) = (&mut client, &mut peer);
            let reader = scope.spawn(move || client_talks(client, sent));
            peer.until("all", |peer| peer.asked(stream).body == many);
            peer.data(stream, &many, true);
            assert!(reader.join().unwrap() == many);
        });
        // The client's end is passed on.
        drop(client);
        peer.until("the end", |peer| {
            let asked = peer.asked(stream);
            asked.reset.is_some() || asked.ended
        });
    });
}

/// Sends, and returns as much as it receives.
fn client_talks(client: &mut Client, content: &[u8]) -> Vec<u8> {
    client.send(content);
    exactly(client, content.len())
}

fn exactly(client: &mut Client, bytes: usize) -> Vec<u8> {
    let mut received = Vec::new();
    while received.len() < bytes {
        received.extend(client.read_some(bytes - received.len()));
    }
    received
}

#[test]
fn a_websocket_runs_over_streams_on_both_sides() {
    with_origin("", &format!("http2 on; {SOCKETS}"), |server, origin| {
        let mut client = Http2::to_port(server.port());
        let socket = client.connect("websocket", "/chat", &[("sec-websocket-version", "13")]);
        let mut peer = origin.accept_with(taking_sockets());
        let stream = peer.request();
        assert_eq!(peer.asked(stream).field(":protocol"), Some("websocket"));
        assert_eq!(peer.asked(stream).field("sec-websocket-key"), None);
        peer.respond(stream, 200, &[], false);
        client.data(socket, b"ping", false);
        peer.until("a message", |peer| peer.asked(stream).body == b"ping");
        peer.data(stream, b"pong", false);
        client.until("the answer", |client| client.so_far(socket).body == b"pong");
        client.data(socket, b"end", true);
        assert_eq!(peer.complete(stream).body, b"pingend");
        peer.data(stream, b"end", true);
        let response = client.response(socket);
        assert_eq!((response.status, response.text()), (200, "pongend".to_owned()));
        // A reset ends the client's side, too.
        let socket = client.connect("websocket", "/chat", &[]);
        let stream = peer.request();
        peer.respond(stream, 200, &[], false);
        client.until("the tunnel", |client| client.so_far(socket).status == 200);
        peer.reset(stream, ErrorCode::CANCEL);
        client.end_of(socket);
    });
}

#[test]
fn servers_that_offer_or_allow_no_websocket() {
    with_origin("", SOCKETS, |server, origin| {
        // Refused by the server.
        let mut client = Client::to_port(server.port());
        client.send(HANDSHAKE);
        let mut peer = origin.accept_with(taking_sockets());
        let stream = peer.request();
        peer.respond(stream, 403, &[("content-length", "2")], false);
        peer.data(stream, b"no", true);
        let response = client.response();
        assert_eq!((response.status, response.text()), (403, "no".to_owned()));
        drop(peer);
        // Not offered. Other requests go on.
        let mut client = Client::to_port(server.port());
        client.send(HANDSHAKE);
        let mut peer = origin.accept();
        peer.round_trip();
        assert_eq!(client.response().status, 502);
        server.wait_log("upstream offers no WebSocket over HTTP/2");
        let mut client = asking(server, "/chat");
        let stream = peer.request();
        peer.answer(stream, "other");
        assert_eq!(client.response().text(), "other");
    });
}
