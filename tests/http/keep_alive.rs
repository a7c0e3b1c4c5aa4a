//! Connections that serve several requests, and when they end.

use nowait_testkit::client::Arrival;
use std::time::Duration;

use crate::stage::{exchanges, on_each_driver, pattern, server};

#[test]
fn a_connection_serves_one_request_after_the_other() {
    let site = server("").file("html/a", "AA").file("html/b", "BB");
    on_each_driver(&site, |server| {
        let mut client = server.client();
        for _ in 0..3 {
            for (path, body) in [("/a", "AA"), ("/b", "BB"), ("/none", "")] {
                let response = client.get(path);
                assert_eq!(response.status, if body.is_empty() { 404 } else { 200 });
                assert_eq!(response.header("connection"), Some("keep-alive"));
                assert!(body.is_empty() || response.text() == body);
            }
        }
    });
}

/// Identical fields of the next request are not parsed again.
#[test]
fn each_request_has_its_own_fields() {
    let site = server(
        r#"
        add_header X-Seen "$request_uri $host $http_x_a $http_cookie.";
        location / { empty_gif; }
        location /changed {
            more_set_input_headers "X-A: other";
            more_clear_input_headers Cookie;
            empty_gif;
        }
        location /post/ { return 200; }
        "#,
    );
    on_each_driver(&site, |server| {
        let mut client = server.client();
        let fields = [
            (
                "Host: A.example\r\nX-A: 1\r\nCookie: a=b\r\nCookie: c=d\r\n",
                "a.example 1 a=b; c=d.",
            ),
            ("Host: b\r\nX-A: 2\r\nCookie: a=b\r\nCookie: c=d\r\n", "b 2 a=b; c=d."),
            ("Host: b\r\nX-A: 2\r\n", "b 2 ."),
        ];
        for (fields, seen) in fields {
            for path in ["/", "/a/longer/path?with=arguments", "/changed", "/", "/changed"] {
                client.send(format!("GET {path} HTTP/1.1\r\n{fields}\r\n"));
                let host = seen.split(' ').next().unwrap_or_default();
                let expected = match path {
                    "/changed" => format!("{path} {host} other ."),
                    _ => format!("{path} {seen}"),
                };
                assert_eq!(client.response().header("x-seen"), Some(&*expected));
            }
        }
        // Content whose length is the same field, several requests at once.
        let post = "HTTP/1.1\r\nHost: b\r\nContent-Length: 2\r\n\r\nhi";
        client.send(format!("POST /post/ {post}POST /post/22 {post}POST /post/3 {post}"));
        for path in ["/post/", "/post/22", "/post/3"] {
            assert_eq!(client.response().header("x-seen"), Some(&*format!("{path} b  .")));
        }
    });
}

#[test]
fn http_1_0_closes_unless_asked_to_stay() {
    let site = server("").file("html/a", "AA");
    exchanges(
        &site,
        &[
            ("GET /a HTTP/1.0", "HTTP/1.1 200\nConnection: close\n\nAA\n---\nclosed"),
            (
                "GET /a HTTP/1.0\nConnection: keep-alive\n---\nGET /a HTTP/1.0",
                "200\nConnection: keep-alive\n---\n200\nConnection: close\n---\nclosed",
            ),
            (
                "GET /a HTTP/1.1\nHost: x\nConnection: close",
                "200\nConnection: close\n\nAA\n---\nclosed",
            ),
        ],
    );
}

#[test]
fn http_0_9_gets_the_bare_content() {
    let site = server("location = /r { return 200 text; }").file("html/a", "AA");
    on_each_driver(&site, |server| {
        for (request, answer) in [("GET /a\r\n", "AA"), ("GET /r\n", "text")] {
            let mut client = server.client();
            client.send(request);
            assert_eq!(client.rest(), answer.as_bytes());
        }
    });
}

#[test]
fn head_is_get_without_content() {
    let site = server("location = /r { return 200 text; }").file("html/a", "AAAA");
    exchanges(
        &site,
        &[
            (
                "HEAD /a HTTP/1.1\nHost: x\n---\nHEAD /r HTTP/1.1\nHost: x\n---\n\
                 HEAD /none HTTP/1.1\nHost: x\n---\nGET /a HTTP/1.1\nHost: x",
                "200\nContent-Length: 4\nETag: *\n---\n200\nContent-Length: 4\n---\n404\n\
                 Content-Length: *\n---\n200\n\nAAAA",
            ),
            ("HEAD /a HTTP/1.0", "200\nContent-Length: 4\n---\nclosed"),
        ],
    );
}

#[test]
fn pipelined_answers_come_in_order_whatever_their_size() {
    let big = pattern(3 << 20);
    let middle = pattern(100_000);
    let site = server("sendfile on; location = /r { return 200 tiny; }")
        .file("html/small", "S")
        .file("html/middle", &middle)
        .file("html/big", &big);
    on_each_driver(&site, |server| {
        let mut client = server.client();
        let paths = ["/small", "/big", "/r", "/middle", "/none", "/small", "/r", "/big", "/small"];
        for path in paths {
            client.send_get(path);
        }
        for path in paths {
            let response = client.response();
            let body: &[u8] = match path {
                "/small" => b"S",
                "/big" => &big,
                "/middle" => &middle,
                "/r" => b"tiny",
                _ => {
                    assert_eq!(response.status, 404);
                    continue;
                }
            };
            assert!(response.body == body, "{path}");
        }
    });
}

#[test]
fn many_pipelined_requests_are_all_answered() {
    const REQUESTS: usize = 500;
    let site = server("location / { return 200 $arg_n; }");
    on_each_driver(&site, |server| {
        let mut client = server.client();
        let all: String =
            (0..REQUESTS).map(|n| format!("GET /?n={n} HTTP/1.1\r\nHost: x\r\n\r\n")).collect();
        client.send(all);
        for n in 0..REQUESTS {
            assert_eq!(client.response().text(), n.to_string());
        }
    });
}

#[test]
fn the_number_of_requests_is_limited() {
    let site = server("keepalive_requests 2; location / { return 200 OK; }");
    exchanges(
        &site,
        &[(
            "GET / HTTP/1.1\nHost: x\n---\nGET / HTTP/1.1\nHost: x\n---\nGET / HTTP/1.1\nHost: x",
            "200\nConnection: keep-alive\n---\n200\nConnection: close\n---\nclosed",
        )],
    );
}

#[test]
fn the_age_of_a_connection_is_limited() {
    let site = server("keepalive_time 1ms; location / { return 200 OK; }");
    on_each_driver(&site, |server| {
        let mut client = server.client();
        let mut answers = 0;
        // The clock decides at which request; it decides soon.
        loop {
            let response = client.get("/");
            answers += 1;
            match response.header("connection") {
                Some("close") => break,
                _ => assert!(answers < 1000, "the connection never gets old"),
            }
        }
        client.expect_closed();
    });
}

#[test]
fn keep_alive_can_be_off_and_can_be_announced() {
    let off = server("keepalive_timeout 0; location / { return 200 OK; }");
    exchanges(&off, &[("GET / HTTP/1.1\nHost: x", "200\nConnection: close\n---\nclosed")]);
    let told = server("keepalive_timeout 50s 40s; location / { return 200 OK; }");
    exchanges(
        &told,
        &[("GET / HTTP/1.1\nHost: x", "200\nConnection: keep-alive\nKeep-Alive: timeout=40")],
    );
}

#[test]
fn keep_alive_is_refused_to_old_browsers() {
    let site = server("keepalive_disable msie6 safari; location / { return 200 OK; }");
    exchanges(
        &site,
        &[
            (
                "GET / HTTP/1.1\nHost: x\nUser-Agent: Mozilla/4.0 (compatible; MSIE 6.0; Windows)",
                "200\nConnection: keep-alive",
            ),
            (
                "POST / HTTP/1.1\nHost: x\nContent-Length: 0\n\
                 User-Agent: Mozilla/4.0 (compatible; MSIE 6.0; Windows)",
                "200\nConnection: close",
            ),
            (
                "GET / HTTP/1.1\nHost: x\nUser-Agent: Mozilla/5.0 (Mac OS X) Safari/533",
                "200\nConnection: close",
            ),
        ],
    );
}

#[test]
fn empty_lines_before_a_request_are_ignored() {
    let site = server("location / { return 200 OK; }");
    on_each_driver(&site, |server| {
        let mut client = server.client();
        client.send("\r\n\r\nGET / HTTP/1.1\r\nHost: x\r\n\r\n");
        assert_eq!(client.response().text(), "OK");
        client.send("\r\nGET / HTTP/1.1\r\nHost: x\r\n\r\n");
        assert_eq!(client.response().text(), "OK");
    });
}

#[test]
fn a_head_may_come_byte_by_byte() {
    let site = server("location / { return 200 $uri; }");
    on_each_driver(&site, |server| {
        let mut client = server.client();
        for _ in 0..2 {
            client.send_slowly(
                "GET /slow HTTP/1.1\r\nHost: x\r\n\r\n",
                1,
                Duration::from_micros(10),
            );
            assert_eq!(client.response().text(), "/slow");
        }
    });
}

#[test]
fn a_half_closed_client_gets_its_answer() {
    let site = server("").file("html/a", "AA");
    on_each_driver(&site, |server| {
        let mut client = server.client();
        client.send_get("/a");
        client.half_close();
        assert_eq!(client.response().text(), "AA");
        client.expect_closed();
    });
}

#[test]
fn what_follows_a_closing_answer_is_read_and_dropped() {
    // Without reading it the kernel would reset the connection and the client lose the answer.
    let body = pattern(2 << 20);
    let site = server("lingering_timeout 1s; client_max_body_size 10m;").file("html/a", &body);
    on_each_driver(&site, |server| {
        let mut client = server.client();
        client.send(
            "POST /a HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 3000000\r\n\r\n",
        );
        client.send(pattern(3_000_000));
        let response = client.response();
        assert_eq!(response.status, 405);
        assert!(matches!(
            client.arrives_within(Duration::from_secs(20)),
            Arrival::End | Arrival::Reset
        ));
    });
}

#[test]
fn whoever_is_refused_while_sending_sees_why() {
    let site = server(
        "client_max_body_size 1k; lingering_timeout 1s;
         location /auth { auth_basic realm; auth_basic_user_file html/none; }",
    );
    on_each_driver(&site, |server| {
        for (head, status) in [
            ("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3000000\r\n\r\n", 413),
            ("POST / HTTP/1.1\r\nHost: x/y\r\nContent-Length: 3000000\r\n\r\n", 400),
            ("POST / HTTP/1.1\r\nContent-Length: 3000000\r\n\r\n", 400),
            ("post / HTTP/1.1\r\nHost: x\r\nContent-Length: 3000000\r\n\r\n", 400),
            ("POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: x\r\n\r\n", 501),
            ("POST /auth HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n", 401),
            ("POST /no HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", 404),
        ] {
            eprintln!("{head}");
            let mut client = server.client();
            client.send(head);
            client.send(pattern(3_000_000));
            assert_eq!(client.response().status, status);
        }
    });
}

#[test]
fn answers_before_one_that_is_refused_are_not_lost() {
    let site = server("location = /r { return 200 first; } location = /drop { return 444; }");
    on_each_driver(&site, |server| {
        for last in ["GET /drop HTTP/1.1\r\nHost: x\r\n\r\n", "garbage\r\n\r\n"] {
            let mut client = server.client();
            client.send(format!("GET /r HTTP/1.1\r\nHost: x\r\n\r\n{last}"));
            let answer = String::from_utf8_lossy(&client.rest()).into_owned();
            assert!(answer.contains("\r\n\r\nfirst"), "{last:?}: {answer}");
        }
    });
}
