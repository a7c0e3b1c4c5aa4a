//! `proxy_via`: RFC 9110 section 7.6.

use nowait_testkit::http2::Http2;

use super::{Case, OK, through};
use crate::stage::{ask, on_each_driver, refused, server, site};

#[test]
fn messages_name_the_hops_that_forward_them() {
    let get = "GET / HTTP/1.1\nHost: a\nVia: 1.0 fred, 2 x";
    let asked = "GET / HTTP/1.1\nHost: ORIGIN\nVia: 1.0 fred, 2 x\n";
    let reply = "HTTP/1.0 200 OK\nVia: 1.1 behind\nContent-Length: 2\n\nok";
    for (directives, ours, expected) in [
        ("", "", "200\nVia: 1.1 behind\n\nok"),
        ("proxy_via off;", "", "200\nVia: 1.1 behind\n\nok"),
        ("proxy_via on;", "Via: 1.1 nowait\n", "200\nVia: 1.1 behind\nVia: 1.0 nowait\n\nok"),
        ("proxy_via edge:8080;", "Via: 1.1 edge:8080\n", "200\nVia: 1.0 edge:8080\n\nok"),
        ("proxy_via $host;", "Via: 1.1 a\n", "200\nVia: 1.0 a\n\nok"),
        ("proxy_via $arg_none;", "", "200\n\nok"),
        ("proxy_via on; proxy_hide_header Via;", "Via: 1.1 nowait\n", "200\n!Via\n\nok"),
    ] {
        through(
            &format!("location / {{ proxy_pass http://%%ORIGIN%%; {directives} }}"),
            &[Case { exchange: get, passed: &format!("{asked}{ours}\n"), reply, expected }],
        );
    }
    for (directives, asked) in [
        ("proxy_set_header Via mine;", "GET / HTTP/1.1\nHost: ORIGIN\nVia: mine\n\n"),
        ("proxy_pass_request_headers off;", "GET / HTTP/1.1\nHost: ORIGIN\nVia: 1.1 nowait\n\n"),
    ] {
        through(
            &format!("location / {{ proxy_pass http://%%ORIGIN%%; proxy_via on; {directives} }}"),
            &[Case { exchange: get, passed: asked, reply: OK, expected: "200\n\nok" }],
        );
    }
    let old = Case {
        exchange: "GET / HTTP/1.0",
        passed: "GET / HTTP/1.1\nHost: ORIGIN\nVia: 1.0 nowait\n\n",
        reply: OK,
        expected: "200\nVia: 1.1 nowait\n\nok",
    };
    through("location / { proxy_pass http://%%ORIGIN%%; proxy_via on; }", &[old]);
}

#[test]
fn forwards_are_counted() {
    let case = |exchange, passed| Case { exchange, passed, reply: OK, expected: "200\n\nok" };
    through(
        "location / { proxy_pass http://%%ORIGIN%%; proxy_via x; }",
        &[
            case(
                "OPTIONS /a HTTP/1.1\nHost: a\nmax-forwards: 10",
                "OPTIONS /a HTTP/1.1\nHost: ORIGIN\nmax-forwards: 9\nVia: 1.1 x\n\n",
            ),
            case(
                "OPTIONS /a HTTP/1.1\nHost: a\nMax-Forwards: ten",
                "OPTIONS /a HTTP/1.1\nHost: ORIGIN\nMax-Forwards: ten\nVia: 1.1 x\n\n",
            ),
            // "A recipient MAY ignore a Max-Forwards header field received with any other request
            // methods."
            case(
                "GET /a HTTP/1.1\nHost: a\nMax-Forwards: 0",
                "GET /a HTTP/1.1\nHost: ORIGIN\nMax-Forwards: 0\nVia: 1.1 x\n\n",
            ),
        ],
    );
    through(
        "location / { proxy_pass http://%%ORIGIN%%; }",
        &[case(
            "OPTIONS /a HTTP/1.1\nHost: a\nMax-Forwards: 0",
            "OPTIONS /a HTTP/1.1\nHost: ORIGIN\nMax-Forwards: 0\n\n",
        )],
    );
    // Nothing listens there.
    let site = server("http2 on; location / { proxy_pass http://127.0.0.1:1; proxy_via on; }");
    on_each_driver(&site, |server| {
        let mut client = server.client();
        client.send("OPTIONS / HTTP/1.1\r\nHost: a\r\nMax-Forwards: 0\r\n\r\n");
        assert_eq!(client.response().status, 204);
        client.send("TRACE / HTTP/1.1\r\nHost: a\r\nMax-Forwards: 0\r\n\r\n");
        assert_eq!(client.response().status, 405);
        let mut client = Http2::to_port(server.port());
        let stream = client.open("OPTIONS", "/", &[("max-forwards", "0")], true);
        assert_eq!(client.response(stream).status, 204);
    });
}

#[test]
fn hops_are_named_by_default_if_a_cache_follows_rfcs() {
    let site = site(
        "proxy_cache_path %%DIR%%/cache keys_zone=zone:1m;
         proxy_cache zone; proxy_cache_valid 1h;
         server {
             listen 127.0.0.1:%%PORT%%; http2 on;
             location /strict/ { proxy_pass http://127.0.0.1:%%PORT_1%%/; proxy_cache_rfc9111 on; }
             location /off/ {
                 proxy_pass http://127.0.0.1:%%PORT_1%%/; proxy_cache_rfc9111 on; proxy_via off;
             }
             location /lax/ { proxy_pass http://127.0.0.1:%%PORT_1%%/; }
             location /http2/ {
                 proxy_pass http://127.0.0.1:%%PORT_1%%/; proxy_http_version 2; proxy_cache off;
                 proxy_via $arg_name;
             }
         }
         server { listen 127.0.0.1:%%PORT_1%%; http2 on; location / { return 200 $http_via; } }",
    );
    on_each_driver(&site, |server| {
        // The second time from the cache.
        for _ in 0..2 {
            for (path, asked, via) in [
                ("/strict/a", "1.1 nowait", Some("1.1 nowait")),
                ("/off/b", "", None),
                ("/lax/c", "", None),
            ] {
                let response = ask(server, path, &[]);
                let text = response.text();
                assert_eq!((&*text, response.header("via")), (asked, via), "{path}");
            }
            for name in ["one", "two"] {
                let mut client = Http2::to_port(server.port());
                let response = client.get(&format!("/http2/?name={name}"));
                let via = format!("2.0 {name}");
                let text = response.text();
                assert_eq!((&*text, response.header("via")), (&*via, Some(&*via)));
            }
        }
    });
}

#[test]
fn names_are_checked() {
    for name in ["\"\"", "a,b", "\"a b\"", "a(b)"] {
        let site = server(&format!("location / {{ proxy_pass http://a; proxy_via {name}; }}"));
        refused(&site, "in \"proxy_via\"");
    }
}
