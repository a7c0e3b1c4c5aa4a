//! What the access log says of servers when a client leaves before the end.

use std::sync::mpsc::channel;

use nowait_testkit::http2::{ErrorCode, Http2};
use nowait_testkit::origin::Step;
use nowait_testkit::{Driver, Origin, Server};

use crate::stage::{FullQueue, site};

/// How a client leaves.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Leaving {
    /// It closes its HTTP/1.1 connection.
    Close,
    /// It resets its stream.
    Reset,
}

const HEAD: &str = "HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n";

/// A server whose `/` leads to an address, and its log lines.
fn start(address: &str, more: &str, driver: Driver) -> Server {
    let http = format!(
        "log_format up '$uri $upstream_addr $upstream_bytes_received $upstream_response_length '
                       '$upstream_connect_time $upstream_header_time $upstream_response_time';
         proxy_cache_path %%DIR%%/cache keys_zone=c:1m;
         server {{
             listen 127.0.0.1:%%PORT%%; http2 on; access_log logs/access.log up;
             location / {{ proxy_pass http://{address}; {more} }}
         }}"
    );
    site(&http).driver(driver).start()
}

/// Asks, waits for the head if there is one, and leaves.
fn leave(server: &Server, how: Leaving, first: Option<&str>, ready: impl Fn()) {
    match how {
        Leaving::Close => {
            let mut client = server.client();
            client.send_get("/");
            ready();
            if let Some(first) = first {
                let mut got = Vec::new();
                while !got.ends_with(first.as_bytes()) {
                    got.extend(client.read_some(usize::MAX));
                }
            }
        }
        Leaving::Reset => {
            let mut client = Http2::to_port(server.port());
            let stream = client.send_get("/");
            ready();
            if let Some(first) = first {
                client.until("content", |client| {
                    client.so_far(stream).body.ends_with(first.as_bytes())
                });
            }
            client.reset(stream, ErrorCode::CANCEL);
            client.round_trip();
        }
    }
}

/// Compares the log line, in which `T` stands for any time.
#[track_caller]
fn expect_line(server: &Server, address: &str, expected: &str) {
    let log = server.wait_file("logs/access.log", "\n");
    let line = log.lines().next().unwrap();
    let is_time = |word: &str| {
        let parts = word.split_once('.');
        parts.is_some_and(|(a, b)| [a, b].iter().all(|p| p.bytes().all(|b| b.is_ascii_digit())))
    };
    let words = line.split(' ').map(|word| if is_time(word) { "T" } else { word });
    let words: Vec<&str> = words.collect();
    assert_eq!(words.join(" "), format!("/ {address} {expected}"), "{line}");
}

/// An origin that sends this and then waits for the end of the test.
#[track_caller]
fn with_origin(reply: &str, more: &str, first: Option<&str>, expected: &str) {
    for driver in [Driver::Epoll, Driver::IoUring] {
        for how in [Leaving::Close, Leaving::Reset] {
            eprintln!("{driver:?} {how:?} {more}");
            let (end, ended) = channel();
            let origin =
                Origin::start([[Step::expect("\r\n\r\n"), Step::reply(reply), Step::Wait(ended)]]);
            let address = origin.addr().to_string();
            let server = start(&address, more, driver);
            leave(&server, how, first, || {
                nowait_testkit::wait::until("the request", nowait_testkit::wait::PATIENCE, || {
                    let received = origin.received();
                    received.first().is_some_and(|got| got.ends_with(b"\r\n\r\n")).then_some(())
                });
            });
            // A fill goes on without a client of HTTP/1.1, whose end only a write would show.
            let goes_on = more.contains("proxy_cache") && how == Leaving::Close;
            let end = Some(end).filter(|_| !goes_on);
            expect_line(&server, &address, expected);
            drop(end);
            server.stop();
            origin.finish();
        }
    }
}

#[test]
fn while_connecting() {
    for driver in [Driver::Epoll, Driver::IoUring] {
        for how in [Leaving::Close, Leaving::Reset] {
            let queue = FullQueue::new();
            let address = queue.address().to_string();
            let server = start(&address, "", driver);
            leave(&server, how, None, || ());
            expect_line(&server, &address, "0 0 - - T");
            server.stop();
        }
    }
}

#[test]
fn before_the_head() {
    with_origin("", "", None, "0 0 T - T");
}

#[test]
fn within_a_response() {
    let reply = format!("{HEAD}first");
    let expected = format!("{} 5 T T T", reply.len());
    for more in
        ["", "proxy_buffering off;", "proxy_cache c; proxy_cache_valid 1m;", "proxy_store on;"]
    {
        with_origin(&reply, more, Some("first"), &expected);
    }
}
