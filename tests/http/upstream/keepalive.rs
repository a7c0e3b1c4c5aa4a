//! Connections that are used again.

use nowait_testkit::origin::Step;
use nowait_testkit::{Driver, Origin, Server};

use super::group;
use crate::stage::ask;

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
