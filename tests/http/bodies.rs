//! Request bodies: framing, `Expect`, limits, and bodies that nothing reads.

use crate::stage::{exchanges, on_each_driver, pattern, server};
use crate::transport::{self, Transport, on_each};
use nowait_testkit::http2::Http2;

const ECHO: &str = "location / { return 200 $uri; }";

#[test]
fn an_unread_body_does_not_disturb_the_next_request() {
    let site = server(ECHO);
    on_each_driver(&site, |server| {
        let mut client = server.client();
        for length in [0, 1, 100, 4096, 70_000, 900_000] {
            let head = format!("POST /one HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\n");
            client.send([head.into_bytes(), pattern(length)].concat());
            client.send_get("/two");
            assert_eq!(client.response().text(), "/one", "{length}");
            assert_eq!(client.response().text(), "/two", "{length}");
        }
    });
}

/// A large receive ends with the content.
#[test]
fn the_request_behind_a_long_body_is_another_one() {
    const MB: usize = 1024 * 1024;
    let site = server(
        "client_max_body_size 0;
         dav_methods PUT;
         location /new/ { return 200 $uri; }
         location /buffered/ { proxy_pass http://127.0.0.1:%%PORT_1%%/; }
         location /passed/ {
             proxy_pass http://127.0.0.1:%%PORT_1%%/;
             proxy_request_buffering off;
             proxy_http_version 1.1;
         }
     }
     server {
         listen 127.0.0.1:%%PORT_1%%;
         client_max_body_size 0;
         root %%DIR%%/html;
         dav_methods PUT;",
    )
    .file("html/f", "");
    on_each_driver(&site, |server| {
        world_writable(&server.dir().join("html"));
        for place in ["/buffered/f", "/passed/f", "/f"] {
            let mut client = server.client();
            for length in [3 * MB, 3 * MB + 20 * 1024 + 1, 5 * MB - 1, 2 * MB + 64 * 1024 - 1] {
                let put =
                    format!("PUT {place} HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\n");
                let get = "GET /new/ HTTP/1.1\r\nHost: x\r\n\r\n";
                let chunks = [
                    &b"PUT /f HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"[..],
                    format!("{length:x}\r\n").as_bytes(),
                    &pattern(length),
                    b"\r\n0\r\n\r\n",
                ]
                .concat();
                client.send(
                    [put.as_bytes(), &pattern(length), get.as_bytes(), &chunks, get.as_bytes()]
                        .concat(),
                );
                for new in [false, true, false, true] {
                    let response = client.response();
                    let text = if new { "/new/" } else { "" };
                    assert_eq!(
                        (response.text().as_str(), response.status / 100),
                        (text, 2),
                        "{place} {length}"
                    );
                    if !new {
                        assert!(
                            std::fs::read(server.dir().join("html/f")).unwrap() == pattern(length),
                            "{place} {length}"
                        );
                    }
                }
            }
        }
    });
}

fn world_writable(directory: &std::path::Path) {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::set_permissions(directory, std::fs::Permissions::from_mode(0o777)).unwrap();
}

#[test]
fn chunked_bodies_with_extensions_and_trailers_end_where_they_end() {
    let site = server(ECHO);
    on_each_driver(&site, |server| {
        let mut client = server.client();
        for body in [
            "0\r\n\r\n",
            "3\r\nabc\r\n0\r\n\r\n",
            "3;ext=1\r\nabc\r\nA\r\n0123456789\r\n0\r\n\r\n",
            "3\r\nabc\r\n0\r\nX-Trailer: GET / HTTP/1.1\r\nY: z\r\n\r\n",
        ] {
            client.send(format!(
                "POST /one HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n{body}"
            ));
            client.send_get("/two");
            assert_eq!(client.response().text(), "/one", "{body:?}");
            assert_eq!(client.response().text(), "/two", "{body:?}");
        }
    });
}

#[test]
fn a_malformed_chunk_ends_the_connection() {
    let site = server(ECHO);
    on_each_driver(&site, |server| {
        for body in ["x\r\n", "-1\r\n", "3\r\nabcd\r\n", "fffffffffffffffff\r\n"] {
            let mut client = server.client();
            client.send(format!(
                "POST /one HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n{body}\
                 0\r\n\r\nGET /two HTTP/1.1\r\nHost: x\r\n\r\n"
            ));
            assert_eq!(client.response().status, 400, "{body:?}");
            assert!(client.try_response(false).is_err(), "{body:?}");
        }
    });
}

#[test]
fn the_declared_length_is_known() {
    let site = server("location / { return 200 [$content_length]; }");
    exchanges(
        &site,
        &[
            ("GET / HTTP/1.1\nHost: x", "200\n\n[]"),
            ("GET / HTTP/1.1\nHost: x\nContent-Length: 0", "200\n\n[0]"),
            ("POST / HTTP/1.1\nHost: x\nContent-Length: 3\n\nabc", "200\n\n[3]"),
        ],
    );
}

#[test]
fn a_body_can_be_read_before_a_location_is_looked_for() {
    const DECIDES: &str = "location / { if ($request_body = secret) { return 403; }
                                        return 200 [$request_body]; }
                           location /more { client_max_body_size 100; return 200; }
                           error_page 413 /large; location = /large { return 200 large; }";
    let post = |target: &str, body: &str| {
        format!("POST {target} HTTP/1.1\nHost: x\nContent-Length: {}\n\n{body}", body.len())
    };
    let (secret, other) = (post("/?early=1", "secret"), post("/?early=1", "open"));
    let long = post("/more?early=1", "more than the server allows");
    let site =
        server(&format!("client_body_early_read 0 $arg_early; client_max_body_size 10; {DECIDES}"));
    exchanges(
        &site,
        &[
            (&secret, "403"),
            (&other, "200\n\n[open]"),
            ("GET /?early=1 HTTP/1.1\nHost: x", "200\n\n[]"),
            // The settings are those of the server; the page is found all the same.
            (&long, "413\n\nlarge"),
            // Nothing else reads it before the location is known.
            (&post("/", "secret"), "200\n\n[]"),
            (&post("/more", "more than the server allows"), "200"),
        ],
    );
    on_each_driver(&site, |server| {
        let mut client = server.client();
        for (body, status) in [("secret", 403), ("public", 200), ("more than allowed", 413)] {
            let length = body.len();
            client.send(format!(
                "POST /?early=1 HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n\
                 {length:x}\r\n{body}\r\n0\r\n\r\n"
            ));
            assert_eq!(client.response().status, status, "{body}");
        }
    });
}

#[test]
fn a_body_that_is_read_early_may_be_slow_and_in_a_file() {
    let site = server(
        "client_body_early_read 1; client_body_buffer_size 10; client_body_in_file_only on;
         location / { return 200 $request_body_file; }",
    );
    on_each_driver(&site, |server| {
        let mut client = server.client();
        client.send(
            "POST / HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 20\r\n\r\n",
        );
        assert_eq!(client.response().status, 100);
        client.send("0123456789");
        client.send("abcdefghij");
        let path = client.response().text().to_owned();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "0123456789abcdefghij", "{path}");
        client.send_get("/");
        assert_eq!(client.response().status, 200);
    });
}

#[test]
fn an_empty_body_is_a_file_if_all_are() {
    let site = server(
        "http2 on; client_body_in_file_only on; access_log off;
         location / { proxy_pass http://127.0.0.1:%%PORT%%/seen; add_header X-File $request_body_file; }
         location /seen { client_body_in_file_only off; return 200 \"$http_content_length\"; }",
    );
    on_each_driver(&site, |server| {
        let mut client = server.client();
        for (framing, body) in
            [("Content-Length: 0", ""), ("Transfer-Encoding: chunked", "0\r\n\r\n")]
        {
            client.send(format!("POST / HTTP/1.1\r\nHost: x\r\n{framing}\r\n\r\n{body}"));
            let response = client.response();
            assert_eq!((response.status, response.text()), (200, "0".to_owned()), "{framing}");
            let path = response.header("x-file").expect("there is a file").to_owned();
            assert_eq!(std::fs::read(&path).unwrap(), b"", "{path}");
        }
        assert_eq!(client.get("/").header("x-file"), None);
        let mut client = Http2::to_port(server.port());
        let stream = client.open("POST", "/", &[], false);
        client.data(stream, b"", true);
        let path = client.response(stream).header("x-file").expect("there is a file").to_owned();
        assert_eq!(std::fs::read(&path).unwrap(), b"", "{path}");
    });
}

#[test]
fn ambiguous_framing_is_refused() {
    let site = server(ECHO);
    exchanges(
        &site,
        &[
            (
                "POST / HTTP/1.1\nHost: x\nContent-Length: 3\nTransfer-Encoding: chunked\n\n0",
                "400\nConnection: close\n---\nclosed",
            ),
            ("POST / HTTP/1.1\nHost: x\nContent-Length: 3\nContent-Length: 3\n\nabc", "400"),
            ("POST / HTTP/1.1\nHost: x\nContent-Length: -3\n\nabc", "400"),
            ("POST / HTTP/1.1\nHost: x\nContent-Length: 3, 3\n\nabc", "400"),
            ("POST / HTTP/1.1\nHost: x\nContent-Length: 99999999999999999999\n\nabc", "400"),
            ("POST / HTTP/1.1\nHost: x\nTransfer-Encoding: gzip\n\nabc", "501"),
            (
                "POST / HTTP/1.1\nHost: x\nTransfer-Encoding: chunked\n\
                 Transfer-Encoding: chunked\n\n0",
                "400",
            ),
            ("POST / HTTP/1.0\nHost: x\nTransfer-Encoding: chunked\n\n0", "400"),
        ],
    );
}

#[test]
fn continue_is_said_when_the_body_is_wanted() {
    let site = server("client_max_body_size 10; location / { return 200 OK; }");
    on_each_driver(&site, |server| {
        let mut client = server.client();
        client.send(
            "POST / HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n",
        );
        assert_eq!(client.response().status, 100);
        client.send("abc");
        assert_eq!(client.response().text(), "OK");
        // Nothing is a body, too.
        for length in ["Content-Length: 0\r\n", ""] {
            let head = "POST / HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\n";
            client.send(format!("{head}{length}\r\n"));
            assert_eq!(client.response().status, 100, "{length}");
            assert_eq!(client.response().text(), "OK", "{length}");
        }
        // What is refused is not asked for.
        client.send(
            "POST / HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 30\r\n\r\n",
        );
        assert_eq!(client.response().status, 413);
    });
}

#[test]
fn continue_is_not_said_to_http_1_0() {
    let site = server(ECHO);
    exchanges(
        &site,
        &[("POST /a HTTP/1.0\nExpect: 100-continue\nContent-Length: 3\n\nabc", "200\n\n/a")],
    );
}

#[test]
fn a_declared_length_is_limited() {
    let site = server(
        "client_max_body_size 10;
         location / { return 200 OK; }
         location /big/ { client_max_body_size 20; }
         location /any/ { client_max_body_size 0; }",
    )
    .file("html/big/a", "A")
    .file("html/any/a", "A");
    exchanges(
        &site,
        &[
            // `return` of a location comes after the check, as in nginx.
            ("POST / HTTP/1.1\nHost: x\nContent-Length: 10\n\n0123456789", "200\n\nOK"),
            ("POST / HTTP/1.1\nHost: x\nContent-Length: 11\n\n01234567890", "413\n\n*413*"),
            ("POST /big/a HTTP/1.1\nHost: x\nContent-Length: 11\n\n01234567890", "405"),
            ("GET /big/a HTTP/1.1\nHost: x\nContent-Length: 11\n\n01234567890", "200\n\nA"),
            ("GET /any/a HTTP/1.1\nHost: x\nContent-Length: 40\n\n0123456789", "200\n\nA"),
        ],
    );
}

#[test]
fn a_page_may_answer_for_a_body_that_is_too_large() {
    let site = server(
        "client_max_body_size 5; error_page 413 /large;
         location = /large { return 200 \"large $status\"; } location / { return 200 OK; }",
    );
    exchanges(
        &site,
        &[
            (
                "POST / HTTP/1.1\nHost: x\nContent-Length: 6\n\n012345",
                "413\nConnection: close\n\nlarge 413\n---\nclosed",
            ),
            (
                "POST / HTTP/1.1\nHost: x\nExpect: 100-continue\nContent-Length: 6\n\n",
                "413\nConnection: close\n\nlarge 413\n---\nclosed",
            ),
        ],
    );
}

#[test]
fn the_static_handler_drops_what_comes_chunked() {
    let site = server("client_max_body_size 10;").file("html/a", "A");
    on_each_driver(&site, |server| {
        let mut client = server.client();
        client.send("GET /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n");
        client.send("14\r\n01234567890123456789\r\n0\r\n\r\n");
        assert_eq!(client.response().text(), "A");
        assert_eq!(client.get("/a").text(), "A");
    });
}

/// RFC 9110 section 5.1: names are tokens, also in trailers.
#[test]
fn trailers_with_names_that_are_none() {
    for buffering in ["on", "off"] {
        let site = transport::site(&format!(
            "server {{
                 %%LISTEN%%
                 proxy_request_buffering {buffering};
                 proxy_http_version 1.1;
                 location / {{ proxy_pass http://127.0.0.1:%%PORT%%/to; }}
                 location /to {{ return 200 passed; }}
             }}"
        ));
        on_each(&Transport::HTTP1, &site, |server, transport| {
            for (name, status) in [
                ("a-b", 200),
                ("a_b", 200),
                ("a!b", 200),
                ("a(b", 400),
                ("a/b", 400),
                ("\"a\"", 400),
                ("a b", 400),
                ("a ", 400),
                ("\u{e9}", 400),
            ] {
                let mut client = transport.client(server);
                client.send(format!(
                    "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n\
                     3\r\nabc\r\n0\r\nx: y\r\n{name}: z\r\n\r\n"
                ));
                assert_eq!(client.response().status, status, "{name}");
                if status == 400 {
                    client.expect_closed();
                }
            }
        });
    }
}
