//! One connection does not keep a worker for itself, however much it has sent.

use nowait_testkit::http2::Http2;
use nowait_testkit::server::{Signal, freeze, signal};
use nowait_testkit::{Driver, Server};

use crate::stage::{asks_nginx, site};

/// Requests of the busy connection.
const MANY: usize = 600;

/// Starts a server whose log has the targets of its requests, in the order of their ends.
fn start(driver: Driver) -> Server {
    let http = "log_format target '$request_uri';
        server {
            listen 127.0.0.1:%%PORT%%; http2 on; access_log logs/access.log target;
            http2_max_concurrent_streams 1000;
            location / { return 204; }
        }";
    site(http).driver(driver).workers(1).start()
}

/// Sends the requests of a busy connection and one of another, finds them all at once, and returns the
/// number of those that were served before the other one.
fn before_the_other(server: &Server, send: impl FnOnce(), receive: impl FnOnce()) -> usize {
    let mut other = server.client();
    assert_eq!(other.get("/first").status, 204);
    let worker = server.children()[0];
    freeze(worker);
    send();
    other.send_get("/other");
    signal(worker, Signal::CONT);
    assert_eq!(other.response().status, 204);
    receive();
    server.wait_file("logs/access.log", &format!("/{}\n", MANY - 1));
    let log = server.read("logs/access.log");
    let lines: Vec<&str> = log.lines().collect();
    assert_eq!(lines.len(), MANY + 2, "all were served");
    lines.iter().position(|line| *line == "/other").unwrap()
}

#[test]
fn pipelined_requests_leave_others_their_turn() {
    if asks_nginx() {
        return;
    }
    for driver in [Driver::Epoll, Driver::IoUring] {
        let server = start(driver);
        let client = std::cell::RefCell::new(server.client());
        let requests: String =
            (0..MANY).map(|n| format!("GET /{n} HTTP/1.1\r\nHost: a\r\n\r\n")).collect();
        let served = before_the_other(
            &server,
            || client.borrow_mut().send(&requests),
            || (0..MANY).for_each(|_| assert_eq!(client.borrow_mut().response().status, 204)),
        );
        assert!(served < MANY / 2, "{served} of {MANY} requests were served first");
        server.stop();
    }
}

#[test]
fn streams_leave_other_connections_their_turn() {
    if asks_nginx() {
        return;
    }
    for driver in [Driver::Epoll, Driver::IoUring] {
        let server = start(driver);
        let mut client = Http2::to_port(server.port());
        client.round_trip();
        let client = std::cell::RefCell::new(client);
        let streams = std::cell::RefCell::new(Vec::new());
        let served = before_the_other(
            &server,
            || {
                let sent = (0..MANY).map(|n| client.borrow_mut().send_get(&format!("/{n}")));
                streams.borrow_mut().extend(sent);
            },
            || {
                for stream in streams.borrow().iter() {
                    assert_eq!(client.borrow_mut().response(*stream).status, 204);
                }
            },
        );
        assert!(served < MANY / 2, "{served} of {MANY} requests were served first");
        server.stop();
    }
}
