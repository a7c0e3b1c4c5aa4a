//! When another server is asked.

use nowait_testkit::origin::Step;
use nowait_testkit::{Driver, Origin, Server};

use super::{answer, ok};
use crate::stage::site;

/// Two origins in a group: the first has these scripts, the second answers `second`.
#[track_caller]
fn with_two(
    first: impl Fn() -> Vec<Vec<Step>>,
    conf: &str,
    test: impl Fn(&mut Server, &Origin, &Origin),
) {
    for driver in [Driver::Epoll, Driver::IoUring] {
        eprintln!("driver: {driver:?}");
        let one = Origin::start(first());
        let two = Origin::start((0..4).map(|_| answer(ok("second"))));
        let http = format!(
            "upstream u {{ server {} max_fails=0; server {} backup; }}
             log_format try '$upstream_addr $upstream_status $status';
             server {{ listen 127.0.0.1:%%PORT%%; access_log %%DIR%%/try.log try;
             location / {{ proxy_pass http://u; {conf} }} }}",
            one.addr(),
            two.addr()
        );
        let mut server = site(&http).driver(driver).start();
        server.allow_log("upstream");
        server.allow_log("connect() failed");
        server.allow_log("recv() failed");
        test(&mut server, &one, &two);
        server.stop();
        drop((one, two));
    }
}

#[test]
fn an_error_leads_to_the_next_one() {
    with_two(Vec::new, "", |server, one, two| {
        assert_eq!(server.get("/").text(), "second");
        let line = format!("{}, {} 502, 200 200\n", one.addr(), two.addr());
        assert_eq!(crate::stage::wait_file(server, "try.log", "\n"), line);
    });
}

#[test]
fn a_timeout_leads_to_the_next_one() {
    let silent = || vec![vec![Step::expect("\r\n\r\n"), Step::Closed]];
    with_two(silent, "proxy_read_timeout 100ms;", |server, _, _| {
        assert_eq!(server.get("/").text(), "second");
        let log = crate::stage::wait_file(server, "try.log", "\n");
        assert!(log.ends_with(" 504, 200 200\n"), "{log}");
    });
}

#[test]
fn statuses_and_headers_lead_to_the_next_one_if_asked() {
    let cases = [
        ("503 Unavailable", "http_503"),
        ("500 Error", "http_500"),
        ("404 Not Found", "http_404"),
        ("403 Forbidden", "http_403"),
        ("429 Many", "http_429"),
    ];
    for (status, condition) in cases {
        let response = format!("HTTP/1.1 {status}\r\nContent-Length: 5\r\n\r\nfirst");
        let script = || vec![answer(&response)];
        with_two(script, "", |server, _, _| assert_eq!(server.get("/").text(), "first"));
        with_two(script, &format!("proxy_next_upstream {condition};"), |server, _, _| {
            assert_eq!(server.get("/").text(), "second", "{status}");
        });
    }
    let script = || vec![answer("HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n")];
    with_two(script, "", |server, _, _| assert_eq!(server.get("/").status, 502));
    with_two(script, "proxy_next_upstream invalid_header;", |server, _, _| {
        assert_eq!(server.get("/").text(), "second");
    });
}

#[test]
fn what_may_change_something_stays_where_it_was_sent() {
    let close = || vec![vec![Step::expect("\r\n\r\n")]];
    let post = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\nx";
    with_two(close, "", |server, _, _| {
        let mut client = server.client();
        client.send(post);
        assert_eq!(client.response().status, 502);
    });
    with_two(close, "proxy_next_upstream error non_idempotent;", |server, _, _| {
        let mut client = server.client();
        client.send(post);
        assert_eq!(client.response().text(), "second");
    });
}

#[test]
fn tries_are_limited() {
    with_two(Vec::new, "proxy_next_upstream off;", |server, _, _| {
        assert_eq!(server.get("/").status, 502);
    });
    with_two(Vec::new, "proxy_next_upstream_tries 1;", |server, _, _| {
        assert_eq!(server.get("/").status, 502);
    });
    with_two(Vec::new, "proxy_next_upstream_tries 2;", |server, _, _| {
        assert_eq!(server.get("/").text(), "second");
    });
}

#[test]
fn a_content_that_was_streamed_is_not_sent_twice() {
    let close = || vec![vec![Step::expect("some")]];
    let conf = "proxy_request_buffering off; proxy_next_upstream error non_idempotent;";
    with_two(close, conf, |server, _, _| {
        let mut client = server.client();
        client.send("PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 70\r\n\r\nsome");
        assert_eq!(client.response().status, 502);
    });
}
