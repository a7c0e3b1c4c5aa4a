//! `grpc_pass`: calls over HTTP/2, streamed in both directions.

use nowait_testkit::http2::{ErrorCode, Http2, Limits, StreamId};
use nowait_testkit::{Client, Driver, Http2Origin, Server, ServerBuilder};

use crate::stage::{asks_nginx, refused, site};

/// A site that passes calls to the origin. `more` stands in the server.
fn passing(origin: &Http2Origin, more: &str) -> ServerBuilder {
    site(&format!(
        "upstream u {{ server 127.0.0.1:{}; keepalive 4; }}
         server {{ listen 127.0.0.1:%%PORT%%; http2 on; client_max_body_size 0;
             {more}
             location / {{ grpc_pass u; }} }}",
        origin.port()
    ))
}

/// Runs a test on each driver, with an origin of its own each time.
fn with_origin(more: &str, test: impl Fn(&mut Server, &Http2Origin)) {
    for driver in [Driver::Epoll, Driver::IoUring] {
        let origin = Http2Origin::start();
        let mut server = passing(&origin, more).driver(driver).start();
        test(&mut server, &origin);
        let nginx = server.binary().is_nginx();
        server.stop();
        if nginx {
            break;
        }
    }
}

/// Opens a call.
fn call(client: &mut Http2, path: &str, more: &[(&str, &str)], end: bool) -> StreamId {
    let fields = [("content-type", "application/grpc"), ("te", "trailers")];
    client.open("POST", path, &[&fields[..], more].concat(), end)
}

#[test]
fn a_unary_call() {
    with_origin("", |server, origin| {
        let mut client = Http2::to_port(server.port());
        let stream = call(&mut client, "/s.S/M?q", &[("grpc-timeout", "1S"), ("x-a", "1")], false);
        client.data(stream, b"question", true);
        let mut peer = origin.accept();
        let asked = peer.request();
        let request = peer.complete(asked).clone();
        assert_eq!(request.body, b"question");
        for (name, value) in [
            (":method", "POST"),
            (":scheme", "http"),
            (":path", "/s.S/M?q"),
            (":authority", "u"),
            ("content-type", "application/grpc"),
            ("te", "trailers"),
            ("grpc-timeout", "1S"),
            ("x-a", "1"),
        ] {
            assert_eq!(request.field(name), Some(value), "{name}");
        }
        assert_eq!(request.field("content-length"), None);
        peer.respond(asked, 200, &[("content-type", "application/grpc"), ("server", "s")], false);
        peer.data(asked, b"answer", false);
        peer.trailers(asked, &[("grpc-status", "0"), ("grpc-message", "")]);
        let response = client.response(stream);
        assert_eq!((response.status, response.text()), (200, "answer".to_owned()));
        assert_eq!(response.header("content-type"), Some("application/grpc"));
        assert_ne!(response.header("server"), Some("s"));
        assert_eq!(response.trailers[0], ("grpc-status".to_owned(), "0".to_owned()));
    });
}

#[test]
fn both_directions_are_streamed() {
    with_origin("", |server, origin| {
        let mut client = Http2::to_port(server.port());
        let stream = call(&mut client, "/", &[], false);
        let mut peer = origin.accept();
        let asked = peer.request();
        // The response begins before the request has content.
        peer.respond(asked, 200, &[], false);
        client.until("a head", |client| client.so_far(stream).status == 200);
        for n in 1..=3 {
            client.data(stream, b"ping", false);
            peer.until("a ping", |peer| peer.asked(asked).body.len() == 4 * n);
            peer.data(asked, b"pong!", false);
            client.until("a pong", |client| client.so_far(stream).body.len() == 5 * n);
        }
        client.data(stream, b"", true);
        peer.complete(asked);
        peer.trailers(asked, &[("grpc-status", "0")]);
        assert_eq!(client.response(stream).trailers.len(), 1);

        // The server ends the call before the client has ended its request.
        let stream = call(&mut client, "/", &[], false);
        client.data(stream, b"more", false);
        let asked = peer.request();
        peer.respond(asked, 200, &[("grpc-status", "12")], true);
        assert_eq!(client.response(stream).header("grpc-status"), Some("12"));
        peer.until("a reset", |peer| peer.asked(asked).reset.is_some());
    });
}

#[test]
fn a_response_may_consist_of_trailers_only() {
    with_origin("", |server, origin| {
        let mut client = Http2::to_port(server.port());
        let stream = call(&mut client, "/", &[], true);
        let mut peer = origin.accept();
        let asked = peer.request();
        assert!(peer.asked(asked).ended);
        peer.respond(asked, 200, &[("grpc-status", "5"), ("grpc-message", "none")], true);
        let response = client.response(stream);
        assert_eq!(response.header("grpc-status"), Some("5"));
        assert_eq!((response.body.len(), response.trailers.len()), (0, 0));
    });
}

#[test]
fn calls_share_a_connection_and_are_cancelled_one_by_one() {
    with_origin("", |server, origin| {
        let mut client = Http2::to_port(server.port());
        let calls: Vec<_> = (0..3).map(|_| call(&mut client, "/", &[], false)).collect();
        let mut peer = origin.accept();
        let asked: Vec<_> = (0..3).map(|_| peer.request()).collect();
        client.reset(calls[1], ErrorCode::CANCEL);
        peer.until("a reset", |peer| asked.iter().any(|one| peer.asked(*one).reset.is_some()));
        for one in asked {
            if peer.asked(one).reset.is_none() {
                peer.respond(one, 200, &[("grpc-status", "0")], true);
            }
        }
        assert_eq!(client.response(calls[0]).header("grpc-status"), Some("0"));
        assert_eq!(client.response(calls[2]).header("grpc-status"), Some("0"));
    });
}

#[test]
fn errors_become_statuses_of_calls() {
    let more = "error_page 502 504 = /unavailable;
        location = /unavailable {
            internal; default_type application/grpc;
            add_header grpc-status 14; add_header grpc-message unavailable; return 200;
        }
        location /dead { grpc_pass grpc://127.0.0.1:%%PORT_1%%; }
        location /slow { grpc_pass u; grpc_read_timeout 300ms; }";
    with_origin(more, |server, origin| {
        let mut client = Http2::to_port(server.port());
        let stream = call(&mut client, "/dead", &[], true);
        let response = client.response(stream);
        assert_eq!(response.header("grpc-status"), Some("14"));
        assert_eq!(response.header("content-type"), Some("application/grpc"));
        let stream = call(&mut client, "/slow", &[], true);
        let mut peer = origin.accept();
        let asked = peer.request();
        assert_eq!(client.response(stream).header("grpc-status"), Some("14"));
        peer.until("a reset", |peer| peer.asked(asked).reset == Some(ErrorCode::CANCEL));
    });
}

#[test]
fn a_unary_call_that_was_not_processed_is_sent_again() {
    with_origin("", |server, origin| {
        let mut client = Http2::to_port(server.port());
        // Head and content arrive at once.
        let mut peer = None;
        for refused in [true, false] {
            let stream = call(&mut client, "/", &[], true);
            let peer = peer.get_or_insert_with(|| origin.accept());
            let mut asked = peer.request();
            if refused {
                peer.reset(asked, ErrorCode::REFUSED_STREAM);
                asked = peer.request();
            }
            peer.respond(asked, 200, &[("grpc-status", "0")], true);
            assert_eq!(client.response(stream).header("grpc-status"), Some("0"));
        }
    });
}

#[test]
fn fields_and_destinations_can_be_set() {
    let more = "location /set {
            grpc_pass grpc://u; grpc_set_header Host custom; grpc_set_header X-A $arg_a;
            grpc_set_header TE ''; grpc_set_header x-client '';
            grpc_hide_header x-secret; grpc_pass_header Server;
        }
        location /variable/ { set $to u; rewrite ^/variable(/.*) $1 break; grpc_pass $to; }
        location /address { grpc_pass $arg_to; }";
    with_origin(more, |server, origin| {
        let mut client = Http2::to_port(server.port());
        let stream = call(&mut client, "/set?a=1", &[("x-client", "1")], true);
        let mut peer = origin.accept();
        let asked = peer.request();
        let request = peer.asked(asked);
        assert_eq!(request.field(":authority"), Some("custom"));
        assert_eq!(request.field("x-a"), Some("1"));
        assert_eq!((request.field("te"), request.field("x-client")), (None, None));
        peer.respond(asked, 200, &[("x-secret", "1"), ("server", "own")], true);
        let response = client.response(stream);
        assert_eq!((response.header("x-secret"), response.header("server")), (None, Some("own")));

        let stream = call(&mut client, "/variable/a%20b?c", &[], true);
        let asked = peer.request();
        assert_eq!(peer.asked(asked).field(":path"), Some("/a%20b?c"));
        assert_eq!(peer.asked(asked).field(":authority"), Some("u"));
        peer.respond(asked, 200, &[], true);
        client.response(stream);

        let address = format!("/address?to=127.0.0.1:{}", origin.port());
        let stream = call(&mut client, &address, &[], true);
        let mut peer = origin.accept();
        let asked = peer.request();
        peer.respond(asked, 200, &[], true);
        assert_eq!(client.response(stream).status, 200);
        let stream = call(&mut client, "/address?to=grpc://u/uri", &[], true);
        assert_eq!(client.response(stream).status, 500);
        server.wait_log("unexpected URI in upstream \"u/uri\"");
    });
}

#[test]
fn slow_clients_and_servers_hold_up_a_call_in_both_directions() {
    with_origin("", |server, origin| {
        let mut client =
            Http2::with(server.port(), Limits { stream_window: 1000, ..Limits::default() });
        client.take_nothing();
        let stream = call(&mut client, "/", &[], false);
        let mut peer = origin.accept();
        let asked = peer.request();
        peer.respond(asked, 200, &[], false);
        let mut sent = 0;
        // A round trip that opens no window may just be early.
        let mut closed = 0;
        while closed < 50 {
            let room = peer.window(asked).min(1000);
            closed = if room == 0 { closed + 1 } else { 0 };
            if room > 0 {
                peer.data(asked, &vec![b'x'; room], false);
                sent += room;
            }
            assert!(sent < 10_000_000, "the window never closes");
            peer.round_trip();
        }
        assert!(client.so_far(stream).body.len() <= 1000);
        client.take();
        let reader = std::thread::spawn(move || client.response(stream).body.len());
        peer.data(asked, b"end", true);
        assert_eq!(reader.join().unwrap(), sent + 3);
    });
}

#[test]
fn servers_are_asked_for_their_health() {
    if asks_nginx() {
        return;
    }
    let check = "location /checked {
        grpc_pass u; health_check interval=20ms type=grpc grpc_service=s.S grpc_status=5;
    }";
    with_origin(check, |server, origin| {
        // Each probe has its own connection.
        let answer = |serving: u8, status: &str| {
            let mut peer = origin.accept();
            let asked = peer.request();
            let request = peer.complete(asked);
            assert_eq!(request.field(":method"), Some("POST"));
            assert_eq!(request.field(":path"), Some("/grpc.health.v1.Health/Check"));
            assert_eq!(request.field("content-type"), Some("application/grpc"));
            assert_eq!(request.field("te"), Some("trailers"));
            assert_eq!(request.body, b"\0\0\0\0\x05\x0a\x03s.S");
            match status {
                "0" => {
                    peer.respond(asked, 200, &[("content-type", "application/grpc")], false);
                    peer.data(asked, &[0, 0, 0, 0, 2, 8, serving], false);
                    peer.trailers(asked, &[("grpc-status", "0")]);
                }
                status => peer.respond(asked, 200, &[("grpc-status", status)], true),
            }
            peer.until_closed();
        };
        answer(1, "0");
        answer(2, "0");
        server.wait_log("peer is unhealthy while checking gRPC status, health check \"\" of peer");
        answer(0, "14");
        answer(0, "5");
        server.wait_log("peer is healthy, health check \"\" of peer");
    });
}

#[test]
fn mistakes_in_the_configuration_are_reported() {
    let server = |location: &str| {
        site(&format!("server {{ listen 127.0.0.1:%%PORT%%; location / {{ {location} }} }}"))
    };
    for (location, error) in [
        ("grpc_pass grpc://127.0.0.1:1/uri;", "unexpected URI in upstream \"127.0.0.1:1/uri\""),
        ("grpc_pass 127.0.0.1:0;", "invalid port in upstream \"127.0.0.1:0\""),
        ("grpc_pass 127.0.0.1:1; grpc_pass 127.0.0.1:2;", "is duplicate"),
        (
            "grpc_pass 127.0.0.1:1; health_check uri=/a type=grpc;",
            "\"uri=/a\" is incompatible with \"type=grpc\"",
        ),
        (
            "grpc_pass 127.0.0.1:1; health_check grpc_status=12 type=grpc;",
            "\"grpc_status=12\" must follow \"type=grpc\"",
        ),
        (
            "proxy_pass http://127.0.0.1:1; health_check type=grpc;",
            "\"health_check type=grpc\" needs a \"grpc_pass\"",
        ),
    ] {
        refused(&server(location), error);
    }
}

#[test]
fn clients_of_http_1_get_trailers_too() {
    with_origin("", |server, origin| {
        let mut client = Client::to_port(server.port());
        client.send("POST / HTTP/1.1\r\nHost: x\r\nTE: trailers\r\nContent-Length: 2\r\n\r\nhi");
        let mut peer = origin.accept();
        let asked = peer.request();
        assert_eq!(peer.complete(asked).body, b"hi");
        assert_eq!(peer.asked(asked).field("content-length"), Some("2"));
        peer.respond(asked, 200, &[], false);
        peer.data(asked, b"answer", false);
        peer.trailers(asked, &[("grpc-status", "0")]);
        let response = client.response();
        assert_eq!((response.text(), response.trailers.len()), ("answer".to_owned(), 1));
    });
}

#[test]
fn a_silent_server_is_not_waited_for_while_the_client_may_still_send() {
    let more = "grpc_read_timeout 200ms;";
    with_origin(more, |server, origin| {
        server.allow_log("upstream timed out (110: Connection timed out)");
        let mut client = Http2::to_port(server.port());
        // Before the head: neither side sends anything.
        let stream = call(&mut client, "/before", &[], false);
        client.data(stream, b"question", false);
        let mut peer = origin.accept();
        let asked = peer.request();
        if !asks_nginx() {
            assert_eq!(client.response(stream).status, 504);
            peer.until("a reset", |peer| peer.asked(asked).reset.is_some());
        }
        // After the head.
        let stream = call(&mut client, "/head", &[], false);
        let asked = peer.request();
        peer.respond(asked, 200, &[], false);
        peer.until("a reset", |peer| peer.asked(asked).reset.is_some());
        assert!(client.end_of(stream).reset.is_some());
        // Within the content.
        let stream = call(&mut client, "/content", &[], false);
        let asked = peer.request();
        peer.respond(asked, 200, &[], false);
        peer.data(asked, b"answer", false);
        peer.until("a reset", |peer| peer.asked(asked).reset.is_some());
        let end = client.end_of(stream);
        assert!(end.reset.is_some());
        assert_eq!(end.body, b"answer");
        server.wait_log("upstream timed out (110: Connection timed out)");
    });
}
