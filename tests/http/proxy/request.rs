//! What servers are asked: request line, headers, content.

use nowait_testkit::origin::Step;
use nowait_testkit::{Origin, wait};

use super::{Case, OK, asked, through, wire};
use crate::stage::server;

#[test]
fn the_uri_is_passed_or_replaced() {
    asked(
        r#"
        location / { proxy_pass http://%%ORIGIN%%; }
        location /dir/ { proxy_pass http://%%ORIGIN%%/other/; }
        location /root/ { proxy_pass http://%%ORIGIN%%/; }
        location /name { proxy_pass http://%%ORIGIN%%/x; }
        location = /same { proxy_pass http://%%ORIGIN%%/y?z; }
        location ~ ^/re/(.*) { proxy_pass http://%%ORIGIN%%; }
        location /if { if ($arg_a) { proxy_pass http://%%ORIGIN%%; } }
        location /rewritten/ { rewrite ^/rewritten/(.*) /to/$1 break; proxy_pass http://%%ORIGIN%%/ignored/; }
        location /last/ { rewrite ^/last/(.*) /dir/$1 last; }
        location /args { set $args new; proxy_pass http://%%ORIGIN%%; }
        "#,
        &[
            ("/a%20b/../c?d=%20", "/a%20b/../c?d=%20"),
            ("/", "/"),
            ("/dir/a%20b/../c?d", "/other/c?d"),
            ("/dir/%3f%25x", "/other/%3F%25x"),
            ("/root/a", "/a"),
            ("/name", "/x"),
            ("/names/a", "/xs/a"),
            ("/same", "/y?z"),
            ("/re/a%2Fb?c", "/re/a%2Fb?c"),
            ("/if/%61?a=1", "/if/%61?a=1"),
            ("/rewritten/a%20b?c", "/to/a%20b?c"),
            ("/last/a", "/other/a"),
            ("/args/%61?old", "/args/a?new"),
        ],
    );
}

#[test]
fn a_url_may_have_variables() {
    asked(
        r#"
        location /whole { proxy_pass $scheme://%%ORIGIN%%$request_uri; }
        location /bare { set $to %%ORIGIN%%; proxy_pass http://$to; }
        location /args { set $to %%ORIGIN%%; proxy_pass http://$to?x=$arg_x; }
        location ~ ^/cap/(.*)$ { proxy_pass http://%%ORIGIN%%/$1; }
        "#,
        &[
            ("/whole/%61?b", "/whole/%61?b"),
            ("/bare/%61?b", "/bare/%61?b"),
            ("/args?x=1", "/?x=1"),
            ("/cap/a", "/a"),
        ],
    );
}

/// Captures and `$uri` are decoded. What would break the request line is escaped again, all else is as it
/// is: so is nginx, but for the first.
#[test]
fn what_variables_bring_breaks_no_line() {
    if crate::stage::asks_nginx() {
        return;
    }
    asked(
        r#"
        location ~ ^/cap/(?<rest>(?s:.*))$ { proxy_pass http://%%ORIGIN%%/x/$rest?k=$1; }
        location ~ ^/uri/ { proxy_pass http://%%ORIGIN%%$uri; }
        location ~ ^/set/(.*)$ { set $to $1; proxy_pass http://%%ORIGIN%%/$to; }
        location /rewrite/ { rewrite ^/rewrite/(.*)$ /$1 break; proxy_pass http://%%ORIGIN%%; }
        "#,
        &[
            ("/cap/a%20b", "/x/a%20b?k=a%20b"),
            ("/cap/a%0d%0aX:%20y", "/x/a%0D%0AX:%20y?k=a%0D%0AX:%20y"),
            ("/cap/a%3fb%23c%25d%7f", "/x/a?b#c%d%7F?k=a?b#c%d%7F"),
            ("/uri/%0a%20%3f%25", "/uri/%0A%20?%"),
            ("/set/a%20%3f%25", "/a%20%3F%25"),
            ("/rewrite/a%20%3f%25", "/a%20%3F%25"),
        ],
    );
}

#[test]
fn headers_are_passed_but_for_those_of_the_connection() {
    through(
        "location / { proxy_pass http://%%ORIGIN%%; }",
        &[Case {
            exchange: "GET / HTTP/1.1\nHost: site.example:81\nX-A: 1\nConnection: keep-alive, x-hop\n\
                       X-Hop: 1\nKeep-Alive: 5\nTE: trailers\nUpgrade: h2c\nProxy-Connection: close\n\
                       X-A: 2\nAccept: */*",
            passed: "GET / HTTP/1.1\nHost: ORIGIN\nX-A: 1\nX-A: 2\nAccept: */*\n\n",
            reply: OK,
            expected: "200\nServer: nowait*\nDate: *\n\nok",
        }],
    );
}

#[test]
fn headers_may_be_set_and_removed() {
    through(
        r#"
        proxy_set_header X-Outer 1;
        location / {
            proxy_pass http://%%ORIGIN%%;
            proxy_set_header Host $http_host;
            proxy_set_header X-Real-IP $remote_addr;
            proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
            proxy_set_header Accept "";
            proxy_set_header X-Constant "a  b";
            proxy_set_header X-Empty $http_nothing;
            proxy_set_header Connection close;
        }
        location /inherits { proxy_pass http://%%ORIGIN%%; }
        location /10 { proxy_pass http://%%ORIGIN%%; proxy_http_version 1.0; proxy_set_header Host ""; }
        location /none { proxy_pass http://%%ORIGIN%%; proxy_pass_request_headers off; }
        "#,
        &[
            Case {
                exchange: "GET / HTTP/1.1\nHost: A.example:81\nAccept: */*\nX-Real-IP: 1\n\
                           X-Forwarded-For: 1.2.3.4",
                passed: "GET / HTTP/1.1\nHost: A.example:81\nX-Real-IP: 127.0.0.1\n\
                         X-Forwarded-For: 1.2.3.4, 127.0.0.1\nX-Constant: a  b\nConnection: close\n\n",
                reply: OK,
                expected: "200",
            },
            Case {
                exchange: "GET /inherits HTTP/1.1\nHost: a",
                passed: "GET /inherits HTTP/1.1\nHost: ORIGIN\nX-Outer: 1\n\n",
                reply: OK,
                expected: "200",
            },
            Case {
                exchange: "GET /10 HTTP/1.1\nHost: a",
                passed: "GET /10 HTTP/1.0\n\n",
                reply: "HTTP/1.0 200 OK\nContent-Length: 2\n\nok",
                expected: "HTTP/1.1 200\n\nok",
            },
            Case {
                exchange: "POST /none HTTP/1.1\nHost: a\nX-A: 1\nContent-Length: 2\n\nhi",
                passed: "POST /none HTTP/1.1\nHost: ORIGIN\nX-Outer: 1\nContent-Length: 2\n\nhi",
                reply: OK,
                expected: "200",
            },
        ],
    );
}

#[test]
fn content_is_framed_anew() {
    through(
        r#"
        location / { proxy_pass http://%%ORIGIN%%; }
        location /stream { proxy_pass http://%%ORIGIN%%; proxy_request_buffering off; }
        location /set { proxy_pass http://%%ORIGIN%%; proxy_set_body "uri=$uri"; }
        location /off { proxy_pass http://%%ORIGIN%%; proxy_pass_request_body off; }
        location /method { proxy_pass http://%%ORIGIN%%; proxy_method $arg_m; }
        "#,
        &[
            Case {
                exchange: "POST / HTTP/1.1\nHost: a\nContent-Length: 5\n\nhello",
                passed: "POST / HTTP/1.1\nHost: ORIGIN\nContent-Length: 5\n\nhello",
                reply: OK,
                expected: "200",
            },
            Case {
                exchange: "POST /stream HTTP/1.1\nHost: a\nContent-Length: 5\n\nhello",
                passed: "POST /stream HTTP/1.1\nHost: ORIGIN\nContent-Length: 5\n\nhello",
                reply: OK,
                expected: "200",
            },
            Case {
                exchange: "POST / HTTP/1.1\nHost: a\nContent-Length: 0\n\n",
                passed: "POST / HTTP/1.1\nHost: ORIGIN\nContent-Length: 0\n\n",
                reply: OK,
                expected: "200",
            },
            Case {
                exchange: "POST /set HTTP/1.1\nHost: a\nContent-Length: 5\n\nhello",
                passed: "POST /set HTTP/1.1\nHost: ORIGIN\nContent-Length: 8\n\nuri=/set",
                reply: OK,
                expected: "200",
            },
            Case {
                exchange: "POST /off HTTP/1.1\nHost: a\nContent-Length: 5\n\nhello",
                passed: "POST /off HTTP/1.1\nHost: ORIGIN\n\n",
                reply: OK,
                expected: "200",
            },
            Case {
                exchange: "GET /method?m=MOVE HTTP/1.1\nHost: a",
                passed: "MOVE /method?m=MOVE HTTP/1.1\nHost: ORIGIN\n\n",
                reply: OK,
                expected: "200",
            },
        ],
    );
}

#[test]
fn chunks_are_counted_or_made_anew() {
    for (directive, passed) in [
        ("", "POST / HTTP/1.1\r\nHost: ORIGIN\r\nContent-Length: 5\r\n\r\nhello"),
        (
            "proxy_request_buffering off;",
            "POST / HTTP/1.1\r\nHost: ORIGIN\r\nTransfer-Encoding: chunked\r\n\r\n\
             5\r\nhello\r\n0\r\n\r\n",
        ),
    ] {
        let end = &passed[passed.len() - 5..];
        let origin = Origin::start([[Step::expect(end), Step::reply(wire(OK))]]);
        let address = origin.addr();
        let server =
            server(&format!("location / {{ proxy_pass http://{address}; {directive} }}")).start();
        let mut client = server.client();
        client.send("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5;x=y\r\n");
        if !directive.is_empty() {
            // What has come whole by the time it is passed on needs no chunks.
            let head = || origin.received().first()?.ends_with(b"\r\n\r\n").then_some(());
            wait::until("the head", wait::PATIENCE, head);
        }
        client.send("hello\r\n0\r\nX-Trailer: 1\r\n\r\n");
        assert_eq!(client.response().body, b"ok");
        let got = String::from_utf8(origin.received()[0].clone()).unwrap();
        assert_eq!(got.replace(&address.to_string(), "ORIGIN"), passed);
        server.stop();
        origin.finish();
    }
}

#[test]
fn a_method_without_content_has_none() {
    through(
        r#"
        location / { proxy_pass http://%%ORIGIN%%; }
        location /head { proxy_pass http://%%ORIGIN%%; proxy_method HEAD; }
        "#,
        &[
            Case {
                exchange: "HEAD / HTTP/1.1\nHost: a",
                passed: "HEAD / HTTP/1.1\nHost: ORIGIN\n\n",
                reply: "HTTP/1.1 200 OK\nContent-Length: 5\n\n",
                expected: "200\nContent-Length: 5",
            },
            Case {
                exchange: "GET /nothing HTTP/1.1\nHost: a",
                passed: "*",
                reply: "HTTP/1.1 204 No Content\n\n",
                expected: "204\n!Content-Length",
            },
        ],
    );
}

#[test]
fn limit_except_may_pass_requests() {
    through(
        r#"
        location /limited {
            limit_except GET { proxy_pass http://%%ORIGIN%%; }
            return 405;
        }
        location /redirected/ { proxy_pass http://%%ORIGIN%%/; }
        "#,
        &[
            Case {
                exchange: "DELETE /redirected/a HTTP/1.1\nHost: a",
                passed: "DELETE /a HTTP/1.1\nHost: ORIGIN\n\n",
                reply: OK,
                expected: "200",
            },
            Case {
                exchange: "DELETE /limited HTTP/1.1\nHost: a",
                passed: "DELETE /limited HTTP/1.1\nHost: ORIGIN\n\n",
                reply: OK,
                expected: "200",
            },
        ],
    );
}

#[test]
fn a_directory_has_a_slash() {
    crate::stage::gets(
        &crate::stage::server("location /dir/ { proxy_pass http://127.0.0.1:1; }"),
        &[("/dir?a", "301\nLocation: http://localhost:*/dir/?a")],
    );
}
