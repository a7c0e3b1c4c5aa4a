//! What clients get of servers' responses.

use std::io::{Read, Write};
use std::net::TcpStream;

use nowait_testkit::Origin;
use nowait_testkit::origin::Step;

use super::{Case, answered, through, wire};
use crate::stage::{asks_nginx, server};

#[test]
fn headers_are_passed_but_for_those_of_the_connection() {
    answered(
        "location / { proxy_pass http://%%ORIGIN%%; }",
        &[(
            "HTTP/1.1 201 Made\nServer: origin\nDate: Thu, 01 Jan 1970 00:00:01 GMT\nX-Pad: 1\n\
             X-Accel-Expires: 5\nConnection: keep-alive, X-Hop\nX-Hop: 1\nKeep-Alive: 5\n\
             Content-Type: text/plain; charset=koi8-r\nETag: W/\"a\"\n\
             Last-Modified: Sunday, 06-Nov-94 08:49:37 GMT\nContent-Length: 2\nX-A: 1\nX-A: 2\n\nok",
            "HTTP/1.1 201 Made\nServer: nowait*\n!X-Pad\n!X-Accel-Expires\n!X-Hop\n!Keep-Alive\n\
             Connection: keep-alive\nContent-Type: text/plain; charset=koi8-r\nETag: W/\"a\"\n\
             Last-Modified: Sunday, 06-Nov-94 08:49:37 GMT\nX-A: 1\n\nok",
        )],
    );
}

#[test]
fn headers_may_be_hidden_and_shown() {
    answered(
        r#"
        proxy_hide_header X-Secret;
        proxy_pass_header Server;
        location / { proxy_pass http://%%ORIGIN%%; proxy_pass_header Date; proxy_pass_header Server; }
        "#,
        &[
            (
                "HTTP/1.1 200 OK\nServer: origin\nDate: then\nX-secret: 1\nContent-Length: 0\n\n",
                "200\nServer: origin\nDate: then\n!X-Secret",
            ),
            ("HTTP/1.1 200 OK\nContent-Length: 0\n\n", "200\n!Server\n!Date"),
        ],
    );
}

#[test]
fn bodies_of_every_framing() {
    answered(
        "location / { proxy_pass http://%%ORIGIN%%; }",
        &[
            (
                "HTTP/1.1 200 OK\nTransfer-Encoding: chunked\n\n3\r\nabc\r\n2;x=y\r\nde\r\n0\r\n\r\n",
                "200\nTransfer-Encoding: chunked\n\nabcde",
            ),
            ("HTTP/1.1 200 OK\nContent-Length: 3\n\nabcde", "200\nContent-Length: 3\n\nabc"),
            ("HTTP/1.1 304 Not Modified\nETag: \"a\"\n\n", "304\nETag: \"a\""),
        ],
    );
}

#[test]
fn bad_responses_are_502() {
    answered(
        "location / { proxy_pass http://%%ORIGIN%%; }",
        &[
            ("SSH-2.0-x\n\n", "502 Bad Gateway"),
            ("HTTP/1.1 200 OK\nContent-Length: 1\nContent-Length: 2\n\nab", "502 Bad Gateway"),
            (
                "HTTP/1.1 200 OK\nContent-Length: 1\nTransfer-Encoding: chunked\n\n",
                "502 Bad Gateway",
            ),
            ("HTTP/1.1 200 OK\nTransfer-Encoding: gzip\n\n", "502 Bad Gateway"),
            ("HTTP/1.1 200 OK\nX\x01: a\n\n", "502 Bad Gateway"),
        ],
    );
}

#[test]
fn redirects_are_rewritten() {
    let reply = |to: &str| format!("HTTP/1.1 302 Found\nLocation: {to}\nContent-Length: 0\n\n");
    through(
        r#"
        location /default/ { proxy_pass http://%%ORIGIN%%/app/; }
        location /bare { proxy_pass http://%%ORIGIN%%; }
        location /off { proxy_pass http://%%ORIGIN%%; proxy_redirect off; }
        location /rules {
            proxy_pass http://%%ORIGIN%%;
            proxy_redirect http://a.example/ /a/;
            proxy_redirect ~^http://([^/]+)/re/(.*)$ https://$host/$1/$2;
            proxy_redirect ~*^HTTP://case/ /case/;
            proxy_redirect $scheme://var.example $scheme://$server_port;
        }
        "#,
        &[
            Case {
                exchange: "GET /default/x HTTP/1.1\nHost: localhost",
                passed: "*",
                reply: &reply("/app/y"),
                expected: "302\nLocation: /app/y",
            },
            Case {
                exchange: "GET /rules HTTP/1.1\nHost: localhost",
                passed: "*",
                reply: &reply("http://a.example/b"),
                expected: "302\nLocation: http://localhost:*/a/b",
            },
            Case {
                exchange: "GET /rules HTTP/1.1\nHost: localhost",
                passed: "*",
                reply: &reply("http://b.example/re/x?y"),
                expected: "302\nLocation: https://localhost/b.example/x?y",
            },
            Case {
                exchange: "GET /rules HTTP/1.1\nHost: localhost",
                passed: "*",
                reply: &reply("http://CASE/z"),
                expected: "302\nLocation: http://localhost:*/case/",
            },
            Case {
                exchange: "GET /rules HTTP/1.1\nHost: localhost",
                passed: "*",
                reply: &reply("http://var.example/p"),
                expected: "302\nLocation: http://*/p",
            },
            Case {
                exchange: "GET /off HTTP/1.1\nHost: localhost",
                passed: "*",
                reply: &reply("http://a.example/b"),
                expected: "302\nLocation: http://a.example/b",
            },
            Case {
                exchange: "GET /rules HTTP/1.1\nHost: localhost",
                passed: "*",
                reply: "HTTP/1.1 200 OK\nRefresh: 5; URL=http://a.example/b\nContent-Length: 0\n\n",
                expected: "200\nRefresh: 5; URL=/a/b",
            },
        ],
    );
}

#[test]
fn accel_headers_are_obeyed() {
    answered(
        r#"
        location / { proxy_pass http://%%ORIGIN%%; }
        location /hidden/ { internal; return 200 "hidden $uri $args $request_method"; }
        location @named { return 200 "named $uri"; }
        location /ignored { proxy_pass http://%%ORIGIN%%; }
        "#,
        &[
            (
                "HTTP/1.1 200 OK\nX-Accel-Redirect: /hidden/a%20b?c=d\nContent-Type: a/b\n\
                 Set-Cookie: x=y\nCache-Control: private\nX-Other: 1\nContent-Length: 3\n\nabc",
                "200\nContent-Type: a/b\nSet-Cookie: x=y\nCache-Control: private\n!X-Other\n\
                 !X-Accel-Redirect\n\nhidden /hidden/a b c=d GET",
            ),
            ("HTTP/1.1 200 OK\nX-Accel-Redirect: @named\nContent-Length: 0\n\n", "200\n\nnamed /"),
            ("HTTP/1.1 200 OK\nX-Accel-Redirect: /../etc\nContent-Length: 0\n\n", "404"),
            (
                "HTTP/1.1 200 OK\nX-Accel-Charset: utf-8\nContent-Type: text/plain\n\
                 Content-Length: 0\n\n",
                "200\nContent-Type: text/plain; charset=utf-8",
            ),
        ],
    );
    answered(
        "location / { proxy_pass http://%%ORIGIN%%; proxy_ignore_headers X-Accel-Redirect; }",
        &[("HTTP/1.1 200 OK\nX-Accel-Redirect: /x\nContent-Length: 2\n\nok", "200\n\nok")],
    );
}

#[test]
fn errors_may_be_intercepted() {
    answered(
        r#"
        error_page 404 /not-found;
        error_page 401 =200 /login;
        location = /not-found { return 200 "our page"; }
        location = /login { return 200 "who are you"; }
        location / { proxy_pass http://%%ORIGIN%%; proxy_intercept_errors on; }
        "#,
        &[
            ("HTTP/1.1 404 Not Found\nContent-Length: 5\n\ntheir", "404\n\nour page"),
            ("HTTP/1.1 403 Forbidden\nContent-Length: 5\n\ntheir", "403\n\ntheir"),
            (
                "HTTP/1.1 401 No\nWWW-Authenticate: Basic\nContent-Length: 0\n\n",
                "200\nWWW-Authenticate: Basic\n\nwho are you",
            ),
        ],
    );
}

#[test]
fn conditions_are_the_servers_matter() {
    through(
        "location / { proxy_pass http://%%ORIGIN%%; }",
        &[Case {
            exchange: "GET / HTTP/1.1\nHost: a\nIf-None-Match: \"x\"\nRange: bytes=0-0",
            passed: "GET / HTTP/1.1\nHost: ORIGIN\nIf-None-Match: \"x\"\nRange: bytes=0-0\n\n",
            reply: "HTTP/1.1 200 OK\nETag: \"x\"\nContent-Length: 2\n\nok",
            expected: "200\nETag: \"x\"\n!Accept-Ranges\n\nok",
        }],
    );
}

#[test]
fn ranges_may_be_forced() {
    let reply = "HTTP/1.1 200 OK\nETag: \"x\"\nContent-Length: 10\n\n0123456789";
    let case = |range: &'static str, expected: &'static str| (range, expected);
    for (range, expected) in [
        case("bytes=2-4", "206\nContent-Range: bytes 2-4/10\nContent-Length: 3\n\n234"),
        case("bytes=-2", "206\nContent-Range: bytes 8-9/10\n\n89"),
        case("bytes=0-1,3-4", "200\n\n0123456789"),
        case("bytes=10-", "416"),
    ] {
        let exchange = format!("GET / HTTP/1.1\nHost: a\nRange: {range}");
        through(
            "location / { proxy_pass http://%%ORIGIN%%; proxy_force_ranges on; }",
            &[Case { exchange: &exchange, passed: "*", reply, expected }],
        );
    }
}

#[test]
fn trailers_are_passed_if_wanted() {
    let reply = wire(
        "HTTP/1.1 200 OK\nTransfer-Encoding: chunked\n\n\
         2\r\nok\r\n0\r\nX-Sum: 1\r\nX-Pad: 2\r\n\r\n",
    );
    for (directives, ends) in [
        ("", "2\r\nok\r\n0\r\n\r\n"),
        ("proxy_pass_trailers on;", "2\r\nok\r\n0\r\nX-Sum: 1\r\n\r\n"),
        ("add_trailer X-Own $upstream_trailer_x_sum;", "2\r\nok\r\n0\r\nX-Own: 1\r\n\r\n"),
    ] {
        let origin = Origin::start([[Step::expect("\r\n\r\n"), Step::reply(&reply)]]);
        let address = origin.addr();
        let server =
            server(&format!("location / {{ proxy_pass http://{address}; {directives} }}")).start();
        let mut stream = TcpStream::connect(server.addr()).unwrap();
        stream.write_all(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").unwrap();
        let mut got = String::new();
        stream.read_to_string(&mut got).unwrap();
        assert!(got.ends_with(ends), "{directives}: {got}");
        server.stop();
        origin.finish();
    }
}

#[test]
fn early_hints_are_passed_if_wanted() {
    let hints = "HTTP/1.1 103 Early Hints\nLink: </a.css>; rel=preload\nServer: x\n\n";
    let reply = format!("{hints}HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
    answered(
        "early_hints $arg_no 1; location / { proxy_pass http://%%ORIGIN%%; }",
        &[(&reply, "103 Early Hints\nLink: </a.css>; rel=preload\n!Server\n---\n200\n\nok")],
    );
    answered("location / { proxy_pass http://%%ORIGIN%%; }", &[(&reply, "200\n\nok")]);
    let processing = "HTTP/1.1 102 Processing\n\n";
    let reply = format!("{processing}HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
    if !asks_nginx() {
        answered(
            "early_hints 1; location / { proxy_pass http://%%ORIGIN%%; }",
            &[(&reply, "102 Processing\n---\n200\n\nok")],
        );
    }
}

#[test]
fn add_header_sees_the_servers_response() {
    answered(
        r#"
        location / {
            proxy_pass http://%%ORIGIN%%;
            add_header X-Up "$upstream_status $upstream_http_x_own $sent_http_content_type";
        }
        "#,
        &[(
            "HTTP/1.1 200 OK\nX-Own: 1\nContent-Type: a/b\nContent-Length: 0\n\n",
            "200\nX-Up: 200 1 a/b",
        )],
    );
}

#[test]
fn the_same_response_is_seen_with_gzip_off() {
    through(
        "location / { proxy_pass http://%%ORIGIN%%; gzip on; gzip_min_length 1; gzip_types *; }",
        &[Case {
            exchange: "GET / HTTP/1.1\nHost: a\nAccept-Encoding: gzip",
            passed: "*",
            reply: "HTTP/1.1 200 OK\nContent-Encoding: br\nContent-Type: a/b\nContent-Length: 2\n\nok",
            expected: "200\nContent-Encoding: br\n\nok",
        }],
    );
}
