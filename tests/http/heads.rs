//! Request heads: what is refused, with which status, and its limits.

use nowait_testkit::check_on;
use nowait_testkit::http2::Http2;

use crate::stage::{ask, exchanges, on_each_driver, server, site};

const ECHO: &str = "location / { return 200 $uri; }";

#[test]
fn malformed_heads_are_refused() {
    let site = server(ECHO);
    on_each_driver(&site, |server| {
        for (head, status) in [
            ("GET / HTTP/1.1\r\n\r\n", 400), // no Host
            ("GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n", 400),
            ("GET / HTTP/1.1\r\nHost: a b\r\n\r\n", 400),
            ("GET / HTTP/1.1\r\nHost: a/b\r\n\r\n", 400),
            ("GET / HTTP/1.1\r\nHost:\r\n\r\n", 400),
            ("GET / HTTP/1.1\r\nHost: a%41\r\n\r\n", 200),
            ("GET  / HTTP/1.1\r\nHost: a\r\n\r\n", 200),
            ("GET / HTTP/1.1 \r\nHost: a\r\n\r\n", 200),
            ("GET / HTTP/2.0\r\nHost: a\r\n\r\n", 505),
            ("GET / HTTP/1.9\r\nHost: a\r\n\r\n", 200),
            ("GET / HTTP/x\r\nHost: a\r\n\r\n", 400),
            ("GET / FTP/1.1\r\nHost: a\r\n\r\n", 400),
            ("get / HTTP/1.1\r\nHost: a\r\n\r\n", 400),
            ("G(T / HTTP/1.1\r\nHost: a\r\n\r\n", 400),
            ("GET noslash HTTP/1.1\r\nHost: a\r\n\r\n", 400),
            ("\u{1}GET / HTTP/1.1\r\nHost: a\r\n\r\n", 400),
            ("GET /\u{1} HTTP/1.1\r\nHost: a\r\n\r\n", 400),
            ("GET / HTTP/1.1\r\nHost: a\r\nX\r: y\r\n\r\n", 400),
            ("GET / HTTP/1.1\r\nHost: a\r\nX: y\rz\r\n\r\n", 400),
            ("GET / HTTP/1.1\r\nHost: a\r\nX: y\0\r\n\r\n", 400),
            ("GET / HTTP/1.1\r\nHost: a\r\nX: y\tz\r\n\r\n", 200),
            ("GET / HTTP/1.1\r\nHost: a\r\n X: folded\r\n\r\n", 400),
            ("GET / HTTP/1.1\r\nHost: a\r\nX : y\r\n\r\n", 400),
            ("TRACE / HTTP/1.1\r\nHost: a\r\n\r\n", 405),
            ("CONNECT a:80 HTTP/1.1\r\nHost: a:80\r\n\r\n", 405),
        ] {
            let mut client = server.client();
            client.send(head);
            let response = client.response();
            assert_eq!(response.status, status, "{head:?}");
            let close = response.header("connection") == Some("close");
            assert_eq!(close, status != 200, "{head:?}");
        }
    });
}

#[test]
fn some_malformed_heads_are_refused_that_nginx_accepts() {
    if crate::stage::asks_nginx() {
        return;
    }
    on_each_driver(&server(ECHO), |server| {
        for head in [
            "GET / HTTP/1.10\r\nHost: a\r\n\r\n",
            "GET / HTTP/1.01\r\nHost: a\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: %zz\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a\r\nX: y\u{1}\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a\r\nX: y\u{1b}[0mz\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a\r\nX: y\u{7f}z\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a\r\nX\r\n\r\n",
        ] {
            let mut client = server.client();
            client.send(head);
            assert_eq!(client.response().status, 400, "{head:?}");
        }
    });
}

#[test]
fn a_target_has_no_fragment() {
    let site = server("http2 on; location / { return 200 $uri|$args; }");
    exchanges(
        &site,
        &[
            ("GET /a#b HTTP/1.1\nHost: x", "400"),
            ("GET /a?b#c HTTP/1.1\nHost: x", "400"),
            ("GET /a#b?c HTTP/1.1\nHost: x", "400"),
            ("GET #b HTTP/1.1\nHost: x", "400"),
            ("GET http://x#b HTTP/1.1\nHost: x", "400"),
            ("GET http://x/#b HTTP/1.1\nHost: x", "400"),
            ("GET /a%23b HTTP/1.1\nHost: x", "200\n\n/a#b|"),
        ],
    );
    on_each_driver(&site, |server| {
        let mut client = Http2::to_port(server.port());
        for (path, status) in [("/a#b", 400), ("/a?b#c", 400), ("/a%23b", 200)] {
            let stream = client.open("GET", path, &[], true);
            assert_eq!(client.end_of(stream).status, status, "{path}");
        }
    });
}

/// RFC 3986 section 2: a URI is ASCII. Servers behind this one, and caches, see what it should have been.
#[test]
fn other_octets_of_a_target_are_escaped() {
    let site = site(
        "proxy_cache_path %%DIR%%/cache keys_zone=zone:1m;
        server {
            listen 127.0.0.1:%%PORT%%;
            http2 on;
            add_header X-Cache $upstream_cache_status;
            location / { proxy_pass http://127.0.0.1:%%PORT_1%%; }
            location /cached { proxy_pass http://127.0.0.1:%%PORT_1%%; proxy_cache zone;
                proxy_cache_valid 1m; }
            location /to/ { proxy_pass http://127.0.0.1:%%PORT_1%%/new/; }
        }
        server { listen 127.0.0.1:%%PORT_1%%; location / { return 200 $request_uri; } }",
    );
    let cases = [
        ("/\u{e9}?\u{e9}=\u{fc}%20", "/%C3%A9?%C3%A9=%C3%BC%20", ""),
        ("/to/\u{e9}?\u{e9}", "/new/%C3%A9?%C3%A9", ""),
        ("/cached%C3%A9?%C3%A9", "/cached%C3%A9?%C3%A9", "MISS"),
        ("/cached\u{e9}?\u{e9}", "/cached%C3%A9?%C3%A9", "HIT"),
    ];
    on_each_driver(&site, |server| {
        for (target, forwarded, cache) in cases {
            let response = ask(server, target, &[]);
            assert_eq!(response.text(), forwarded);
            assert_eq!(response.header("x-cache").unwrap_or_default(), cache);
            let mut client = Http2::to_port(server.port());
            assert_eq!(client.get(target).text(), forwarded);
        }
        let mut client = server.client();
        client.send(b"GET /\xff?\x80\xfe HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!(client.response().text(), "/%FF?%80%FE");
    });
}

/// RFC 9112 section 3.2, RFC 9110 sections 5.1 and 7.2.
#[test]
fn what_is_no_token_no_host_or_no_scheme_of_http_is_refused() {
    for ignore in ["", "ignore_invalid_headers off;"] {
        let site = server(&format!("http2 on; {ignore} location / {{ return 200 OK; }}"));
        on_each_driver(&site, |server| {
            for (head, status) in [
                ("GET ftp://a/ HTTP/1.1\r\nHost: a", 400),
                ("GET x://a/ HTTP/1.1\r\nHost: a", 400),
                ("GET https://a/ HTTP/1.1\r\nHost: a", 200),
                ("GET / HTTP/1.1\r\nHost: a,b", 400),
                ("GET / HTTP/1.1\r\nHost: a, b", 400),
                ("GET http://a,b/ HTTP/1.1\r\nHost: a", 400),
                ("GET / HTTP/1.1\r\nHost: a@b", 400),
                ("GET / HTTP/1.1\r\nHost: a/b", 400),
                ("GET / HTTP/1.1\r\nHost: a\"", 400),
                ("GET / HTTP/1.1\r\nHost: a;b", 200),
                ("G(T / HTTP/1.1\r\nHost: a", 400),
                ("GET / HTTP/1.1\r\nHost: a\r\nX@Y: z", 400),
                ("GET / HTTP/1.1\r\nHost: a\r\n(X): z", 400),
                ("GET / HTTP/1.1\r\nHost: a\r\n\"X: z", 400),
                ("GET / HTTP/1.1\r\nHost: a\r\nX\u{e9}: z", 400),
                // These are tokens.
                ("GET / HTTP/1.1\r\nHost: a\r\nX.Y_!#$%&'*+^`|~: z", 200),
            ] {
                let mut client = server.client();
                client.send(format!("{head}\r\n\r\n"));
                assert_eq!(client.response().status, status, "{head}");
            }
            let mut client = Http2::to_port(server.port());
            let stream = client.open("GET", "/", &[("x.y_!#$%&'*+^`|~", "z")], true);
            assert_eq!(client.response(stream).text(), "OK");
        });
    }
}

#[test]
fn the_target_may_be_absolute() {
    let site = server("location / { return 200 $host|$uri|$args; }");
    exchanges(
        &site,
        &[
            ("GET http://other.test/a?b HTTP/1.1\nHost: x", "200\n\nother.test|/a|b"),
            ("GET http://other.test HTTP/1.1\nHost: x", "200\n\nother.test|/|"),
            ("GET HTTPS://Other.test:81/a HTTP/1.1\nHost: x", "200\n\nother.test|/a|"),
            ("GET http://other.test?q HTTP/1.1\nHost: x", "200\n\nother.test|/|q"),
            ("GET http:///a HTTP/1.1\nHost: x", "400"),
        ],
    );
}

#[test]
fn a_head_has_limits() {
    let site = server(
        "client_header_buffer_size 256; large_client_header_buffers 2 1k; max_headers 5;
         location / { return 200 OK; }",
    );
    let long = |n| "a".repeat(n);
    on_each_driver(&site, |server| {
        for (head, status) in [
            (format!("GET /{} HTTP/1.1\r\nHost: x\r\n\r\n", long(900)), 200),
            (format!("GET /{} HTTP/1.1\r\nHost: x\r\n\r\n", long(1100)), 414),
            (format!("GET / HTTP/1.1\r\nHost: x\r\nX: {}\r\n\r\n", long(900)), 200),
            (format!("GET / HTTP/1.1\r\nHost: x\r\nX: {}\r\n\r\n", long(1100)), 400),
            (
                format!(
                    "GET / HTTP/1.1\r\nHost: x\r\nX: {0}\r\nY: {0}\r\nZ: {0}\r\n\r\n",
                    long(800)
                ),
                400,
            ),
        ] {
            let mut client = server.client();
            client.send(&head);
            let response = client.response();
            assert_eq!(response.status, status, "{} bytes", head.len());
            if status == 400 {
                assert!(response.text().contains("Request Header Or Cookie Too Large"));
            }
        }
    });
}

#[test]
fn a_head_that_never_ends_is_refused_before_it_does() {
    let site = server("");
    on_each_driver(&site, |server| {
        for (start, status) in [("GET /", 414), ("GET / HTTP/1.1\r\nX: ", 400)] {
            let mut client = server.client();
            client.send(start);
            client.send(vec![b'a'; 9000]);
            assert_eq!(client.response().status, status);
        }
    });
}

#[test]
fn the_number_of_headers_is_limited() {
    let site = server("max_headers 3; location / { return 200 OK; }");
    if crate::stage::asks_nginx() {
        return; // the directive is newer than the nginx that is usually installed
    }
    exchanges(
        &site,
        &[
            ("GET / HTTP/1.1\nHost: x\nA: 1\nB: 2", "200"),
            ("GET / HTTP/1.1\nHost: x\nA: 1\nB: 2\nC: 3", "400"),
        ],
    );
}

#[test]
fn an_error_page_can_answer_for_a_head_that_is_too_large() {
    let site = server(
        "error_page 494 /large; error_page 414 =200 /line;
         location = /large { return 200 large:$status; }
         location = /line { return 200 line; }",
    );
    on_each_driver(&site, |server| {
        let mut client = server.client();
        client.send(format!("GET / HTTP/1.1\r\nHost: x\r\nX: {}\r\n\r\n", "a".repeat(9000)));
        let response = client.response();
        assert_eq!((response.status, response.text().as_str()), (400, "large:400"));
        let mut client = server.client();
        client.send(format!("GET /{} HTTP/1.1\r\nHost: x\r\n\r\n", "a".repeat(9000)));
        let response = client.response();
        assert_eq!((response.status, response.text().as_str()), (200, "line"));
    });
}

#[test]
fn odd_header_names() {
    let site = server("location / { return 200 [$http_a_b][$http_c]; }");
    exchanges(
        &site,
        &[
            ("GET / HTTP/1.1\nHost: x\nA-B: 1\nC: 2", "200\n\n[1][2]"),
            ("GET / HTTP/1.1\nHost: x\nA_B: 1\nC: 2", "200\n\n[][2]"),
            ("GET / HTTP/1.1\nHost: x\nA.B: 1\nC: 2", "200\n\n[][2]"),
        ],
    );
    let site = server("underscores_in_headers on; location / { return 200 [$http_a_b]; }");
    exchanges(&site, &[("GET / HTTP/1.1\nHost: x\nA_B: 1", "200\n\n[1]")]);
    let site = server("ignore_invalid_headers off; location / { return 200 OK; }");
    exchanges(
        &site,
        &[("GET / HTTP/1.1\nHost: x\nA_B: 1", "200"), ("GET / HTTP/1.1\nHost: x\nA B: 1", "400")],
    );
}

#[test]
fn a_malformed_request_line_has_neither_method_nor_uri() {
    let site = server(
        "error_page 400 /bad; ssi_types *;
         location = /bad { ssi on; return 200 \"[$request_method][$request_uri][$uri]\"; }",
    );
    on_each_driver(&site, |server| {
        for line in ["garbage", "POST / FOO", "GET x HTTP/1.1", "TRACE", "POST /%zz HTTP/1.0"] {
            let mut client = server.client();
            client.send(format!("{line}\r\nHost: x\r\n\r\n"));
            let response = client.response();
            assert_eq!((response.status, &*response.text()), (400, "[GET][][/bad]"), "{line}");
            // Who sent it may not understand chunks.
            assert_eq!(response.header("transfer-encoding"), None, "{line}");
        }
        let mut client = server.client();
        client.send("HEAD / FOO\r\n\r\n");
        assert_eq!(client.response_to_head().status, 400);
        client.expect_closed();
    });
}

#[test]
fn a_refused_head_is_answered_by_the_default_server() {
    let site = server(
        "server_name a; server_tokens off; error_page 400 /bad;
                       location = /bad { internal; return 200 bad; }",
    );
    on_each_driver(&site, |server| {
        check_on(server, "GET / HTTP/1.1", "400\nServer: *\n\nbad\n---\nclosed");
    });
}
