//! Connections that are used again.

use std::sync::mpsc::channel;

use nowait_testkit::origin::Step;
use nowait_testkit::server::{Signal, freeze, signal, wait_ended};
use nowait_testkit::{Driver, Http2Origin, Origin, Server};

use super::group;
use crate::stage::{ask, asks_nginx, on_each_driver, site};

/// A server that was started for an origin with these connections: how many requests each of them
/// answers.
#[track_caller]
fn with_origin(block: &str, more: &str, connections: &[usize], test: impl Fn(&Server, &Origin)) {
    for driver in [Driver::Epoll, Driver::IoUring] {
        let script = |requests: &usize| {
            let one = || {
                [
                    Step::expect("\r\n\r\n"),
                    Step::reply("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"),
                ]
            };
            (0..*requests).flat_map(|_| one()).collect::<Vec<_>>()
        };
        let origin = Origin::start(connections.iter().map(script).collect::<Vec<_>>());
        let block = block.replace("ORIGIN", &origin.addr().to_string());
        // Debian's nginx asks for no connection that stays.
        let more = format!("proxy_http_version 1.1; proxy_set_header Connection ''; {more}");
        let server = group(&block, &more).driver(driver).start();
        test(&server, &origin);
        let nginx = server.binary().is_nginx();
        server.stop();
        origin.finish();
        if nginx {
            break;
        }
    }
}

#[track_caller]
fn ok(server: &Server, count: usize) {
    for _ in 0..count {
        let response = ask(server, "/", &[]);
        assert_eq!((response.status, response.text().as_str()), (200, "ok"));
    }
}

#[test]
fn one_connection_serves_many_requests() {
    with_origin("server ORIGIN; keepalive 4;", "", &[5], |server, origin| {
        ok(server, 5);
        assert_eq!(origin.received().len(), 1);
    });
}

#[test]
fn connections_are_kept_without_being_asked_to() {
    with_origin("server ORIGIN;", "", &[3], |server, origin| {
        if server.binary().is_nginx() {
            // Only since 1.29.7.
            return;
        }
        ok(server, 3);
        assert_eq!(origin.received().len(), 1);
    });
}

#[test]
fn none_is_kept() {
    with_origin("server ORIGIN; keepalive 0;", "", &[1, 1], |server, origin| {
        if server.binary().is_nginx() {
            return;
        }
        ok(server, 2);
        assert_eq!(origin.received().len(), 2);
    });
}

#[test]
fn requests_of_a_connection_are_counted() {
    let block = "server ORIGIN; keepalive 4; keepalive_requests 2;";
    with_origin(block, "", &[2, 2, 1], |server, origin| {
        ok(server, 5);
        assert_eq!(origin.received().len(), 3);
    });
}

/// The origin closes each connection after its first request: the next one needs another, and no
/// client is told.
#[test]
fn what_the_server_closes_is_not_used_again() {
    with_origin("server ORIGIN; keepalive 4;", "", &[1, 1, 1], |server, origin| {
        ok(server, 3);
        assert_eq!(origin.received().len(), 3);
    });
}

#[test]
fn a_reload_keeps_connections() {
    with_origin("server ORIGIN; keepalive 4;", "", &[2], |server, origin| {
        if server.binary().is_nginx() {
            return;
        }
        ok(server, 1);
        server.reload();
        ok(server, 1);
        assert_eq!(origin.received().len(), 1);
    });
}

#[test]
fn idle_connections_do_not_keep_the_server_from_ending() {
    with_origin("server ORIGIN; keepalive 4;", "", &[1], |server, _| ok(server, 1));
}

/// A request that must not be repeated.
const POST: &str = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi";

/// The server finds a request and, behind it, the end of the connection on which the request would go out.
#[test]
fn a_post_does_not_go_out_on_a_connection_that_has_ended() {
    const ROUNDS: usize = 5;
    for driver in [Driver::Epoll, Driver::IoUring] {
        for buffering in ["on", "off"] {
            let (mut scripts, mut ends) = (Vec::new(), Vec::new());
            // A connection whose response has overtaken the request is not kept.
            for _ in 0..3 * ROUNDS {
                let (end, ended) = channel();
                scripts.push(vec![
                    Step::expect("hi"),
                    Step::reply("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"),
                    Step::Wait(ended),
                ]);
                ends.push(end);
            }
            let origin = Origin::start(scripts);
            let more = format!(
                "proxy_http_version 1.1; proxy_set_header Connection ''; \
                 proxy_request_buffering {buffering};"
            );
            let block = format!("server {}; keepalive 4;", origin.addr());
            let server = group(&block, &more).driver(driver).start();
            let mut client = server.client();
            client.send(POST);
            assert_eq!(client.response().status, 200);
            let worker = server.children()[0];
            for _ in 0..ROUNDS {
                freeze(worker);
                client.send(POST);
                let connections = origin.received().len();
                for end in &ends[..connections] {
                    // It may have ended already.
                    let _ = end.send(());
                }
                origin.wait_played(connections);
                wait_ended(origin.addr().port());
                signal(worker, Signal::CONT);
                let response = client.response();
                assert_eq!((response.status, response.text()), (200, "ok".to_owned()));
            }
            drop(ends);
            server.stop();
            origin.finish();
        }
    }
}

#[test]
fn nor_on_a_connection_of_http2() {
    if asks_nginx() {
        return;
    }
    let origin = Http2Origin::start();
    let site = site(&format!(
        "upstream u {{ server 127.0.0.1:{}; keepalive 4; }}
         server {{ listen 127.0.0.1:%%PORT%%; proxy_http_version 2;
             location / {{ proxy_pass http://u; }} }}",
        origin.port()
    ));
    on_each_driver(&site, |server| {
        let mut client = server.client();
        client.send(POST);
        let mut peer = origin.accept();
        let worker = server.children()[0];
        let stream = peer.request();
        peer.complete(stream);
        peer.answer(stream, "ok");
        assert_eq!(client.response().text(), "ok");
        for with_bytes in [false, true, false] {
            // What was sent before has been processed.
            peer.round_trip();
            freeze(worker);
            client.send(POST);
            if with_bytes {
                // PING
                peer.send_raw(b"\0\0\x08\x06\0\0\0\0\0nowait..");
            }
            drop(peer);
            wait_ended(origin.port());
            signal(worker, Signal::CONT);
            peer = origin.accept();
            let stream = peer.request();
            assert_eq!(peer.complete(stream).body, b"hi");
            peer.answer(stream, "ok");
            assert_eq!(client.response().text(), "ok");
        }
    });
}
