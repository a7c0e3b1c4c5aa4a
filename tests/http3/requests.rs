//! Requests: methods, bodies, trailers, many streams, and what is malformed.

use nowait_testkit::http3::code;

use crate::stage::{http3, on_each_driver, pattern, server, writable};

#[test]
fn the_request_is_what_the_client_sent() {
    let content = "location / { return 200 \"$request|$http_x|$host|$scheme|$https|$http3|$server_protocol|\
                   $request_method|$args|$cookie_b|$server_port\"; }";
    on_each_driver(&server(content), |server| {
        let mut http3 = http3(server);
        let fields = [("x", "1"), ("cookie", "a=1"), ("cookie", "b=2")];
        let response = http3.request("GET", "/p?q", &fields, b"");
        let port = server.port();
        assert_eq!(
            response.text(),
            format!("GET /p?q HTTP/3.0|1|localhost|https|on|h3|HTTP/3.0|GET|q|2|{port}")
        );
    });
}

#[test]
fn uploads_of_every_length() {
    let content =
        "location / { root %%DIR%%/dav; dav_methods PUT DELETE; client_max_body_size 0; }";
    let builder = server(content).file("dav/x", "");
    on_each_driver(&builder, |server| {
        writable(server, "dav");
        let mut http3 = http3(server);
        for len in [0, 1, 1000, 16_384, 65_535, 65_536, 65_537, 200_000, 3 << 20] {
            let body = pattern(len);
            let length = len.to_string();
            for fields in [&[("content-length", &length[..])][..], &[][..]] {
                let path = format!("/{len}-{}", fields.len());
                let response = http3.request("PUT", &path, fields, &body);
                assert!([201, 204].contains(&response.status), "{path}: {response}");
                assert!(http3.get(&path).body == body, "{path}");
            }
        }
        assert_eq!(http3.request("DELETE", "/1-0", &[], b"").status, 204);
        assert_eq!(http3.get("/1-0").status, 404);
    });
}

#[test]
fn many_streams_at_once() {
    let mut builder = server("");
    for n in 0..100 {
        builder = builder.file(&format!("html/{n}"), pattern(n * 997));
    }
    on_each_driver(&builder, |server| {
        let mut http3 = http3(server);
        for _ in 0..5 {
            let ids: Vec<_> =
                (0..100).map(|n| http3.open("GET", &format!("/{n}"), &[], true)).collect();
            for (n, id) in ids.into_iter().enumerate() {
                assert!(http3.response(id).body == pattern(n * 997), "{n}");
            }
        }
    });
}

#[test]
fn bodies_that_differ_from_their_length_are_errors() {
    let content = "location / { root %%DIR%%/dav; dav_methods PUT; }";
    let builder = server(content).file("dav/x", "");
    on_each_driver(&builder, |server| {
        writable(server, "dav");
        for body in [&b"12"[..], b"1234"] {
            let mut http3 = http3(server);
            let id = http3.open("PUT", "/short", &[("content-length", "3")], false);
            http3.data(id, body, true);
            let end = http3.end_of(id);
            assert!(
                end.reset == Some(code::MESSAGE_ERROR) || end.status == 400,
                "{end:?}, {:?}",
                http3.quic.lost()
            );
            assert_eq!(http3.get("/x").status, 200, "the connection continues");
        }
        assert!(!server.dir().join("dav/short").exists());
    });
}

#[test]
fn malformed_heads_are_errors_of_their_stream() {
    let heads: &[&[(&str, &str)]] = &[
        &[(":method", "GET"), (":scheme", "https"), (":path", "/")],
        &[(":method", "GET"), (":scheme", "https"), (":authority", "localhost")],
        &[(":method", "GET"), (":authority", "localhost"), (":path", "/")],
        &[(":scheme", "https"), (":authority", "localhost"), (":path", "/")],
        &[
            (":method", "GET"),
            (":method", "GET"),
            (":scheme", "https"),
            (":authority", "localhost"),
            (":path", "/"),
        ],
        &[
            (":method", "GET"),
            (":scheme", "https"),
            (":authority", "localhost"),
            (":path", "/"),
            (":status", "200"),
        ],
        &[
            (":method", "GET"),
            (":scheme", "https"),
            (":authority", "localhost"),
            ("x", "1"),
            (":path", "/"),
        ],
        &[
            (":method", "GET"),
            (":scheme", "https"),
            (":authority", "localhost"),
            (":path", "/"),
            ("Upper", "1"),
        ],
        &[
            (":method", "GET"),
            (":scheme", "https"),
            (":authority", "localhost"),
            (":path", "/"),
            ("connection", "close"),
        ],
        &[
            (":method", "GET"),
            (":scheme", "https"),
            (":authority", "localhost"),
            (":path", "/"),
            ("te", "gzip"),
        ],
        &[
            (":method", "GET"),
            (":scheme", "https"),
            (":authority", "localhost"),
            (":path", "/"),
            ("transfer-encoding", "chunked"),
        ],
        &[
            (":method", "GET"),
            (":scheme", "https"),
            (":authority", "localhost"),
            (":path", "/"),
            ("x", "a\r\nb"),
        ],
        &[
            (":method", "GET"),
            (":scheme", "https"),
            (":authority", "localhost"),
            (":path", "/"),
            ("", "x"),
        ],
        &[(":method", "G T"), (":scheme", "https"), (":authority", "localhost"), (":path", "/")],
    ];
    let builder = server("").file("html/page", "page");
    on_each_driver(&builder, |server| {
        let mut http3 = http3(server);
        for head in heads {
            let id = http3.open_head(head, true);
            let end = http3.end_of(id);
            let refused = end.reset == Some(code::MESSAGE_ERROR) || end.status == 400;
            assert!(refused, "{head:?}: {end:?}, {:?}", http3.quic.lost());
        }
        assert_eq!(http3.get("/page").text(), "page");
    });
}

#[test]
fn trailers_of_requests_are_read() {
    let content = "location / { root %%DIR%%/dav; dav_methods PUT; }";
    let builder = server(content).file("dav/x", "");
    on_each_driver(&builder, |server| {
        writable(server, "dav");
        let mut http3 = http3(server);
        let id = http3.open("PUT", "/file", &[], false);
        http3.data(id, b"body", false);
        http3.fields(id, &[("x-sum", "1")]);
        http3.quic.finish(id);
        assert_eq!(http3.response(id).status, 201);
        assert_eq!(http3.get("/file").text(), "body");
    });
}

#[test]
fn unknown_frames_streams_and_settings_are_ignored() {
    let builder = server("").file("html/page", "page");
    on_each_driver(&builder, |server| {
        let mut http3 = http3(server);
        http3.frame(http3.control, 0x21, b"grease");
        http3.frame(http3.control, 0x1f * 1000 + 0x21, &[0; 3000]);
        let uni = http3.open_uni(0x21);
        http3.quic.write(uni, b"anything");
        let id = http3.open_stream();
        http3.frame(id, 0x21, b"before");
        http3.fields(
            id,
            &[
                (":method", "GET"),
                (":scheme", "https"),
                (":authority", "localhost"),
                (":path", "/page"),
            ],
        );
        http3.frame(id, 0x40, b"after");
        http3.quic.finish(id);
        assert_eq!(http3.response(id).text(), "page");
        assert_eq!(http3.get("/page").text(), "page");
    });
}

#[test]
fn requests_that_are_given_up() {
    let builder = server("").file("html/large", pattern(8 << 20)).file("html/page", "page");
    on_each_driver(&builder, |server| {
        let mut http3 = http3(server);
        for n in 0..50 {
            let id = http3.open("GET", "/large", &[], n % 2 == 0);
            if n % 3 == 0 {
                http3.until("a part", |http3| !http3.exchange(id).body.is_empty());
            }
            http3.quic.stop(id, code::REQUEST_CANCELLED);
            if n % 2 == 1 {
                http3.quic.reset(id, code::REQUEST_CANCELLED);
            }
        }
        assert_eq!(http3.get("/page").text(), "page");
    });
}

#[test]
fn a_head_that_is_cut_off() {
    let builder = server("").file("html/page", "page");
    on_each_driver(&builder, |server| {
        let mut http3 = http3(server);
        // The stream ends before a head: RFC 9114, 4.1.
        let id = http3.open_stream();
        http3.quic.finish(id);
        let end = http3.end_of(id);
        assert_eq!(end.reset.or(end.stopped), Some(code::REQUEST_INCOMPLETE), "{end:?}");
        assert_eq!(http3.get("/page").text(), "page");
        // A frame that is cut off is an error of the connection: RFC 9114, 7.1.
        let id = http3.open_stream();
        http3.quic.write(id, &[1, 40, 0, 0]);
        http3.quic.finish(id);
        assert_eq!(http3.close_code(), code::FRAME_ERROR);
    });
}

#[test]
fn heads_that_are_too_large_are_answered() {
    let builder = server("").file("html/page", "page");
    on_each_driver(&builder, |server| {
        let mut http3 = http3(server);
        let long = |len| "a".repeat(len);
        // A field, all fields, and more than is kept of a head: three times as much as there may be, each in one buffer.
        for (count, len) in [(1, 9_000), (5, 7_000), (16, 8_000), (1, 100_000)] {
            let names: Vec<_> = (0..count).map(|n| format!("x-{n}")).collect();
            let value = long(len);
            let fields: Vec<_> = names.iter().map(|name| (&name[..], &value[..])).collect();
            for body in [&b""[..], &pattern(100_000)] {
                let response = http3.request("GET", "/page", &fields, body);
                assert_eq!(response.status, 400, "{count} of {len}");
                let text = response.text();
                assert!(text.contains("Request Header Or Cookie Too Large"), "{text}");
            }
            assert_eq!(http3.get("/page").text(), "page", "the connection continues");
        }
    });
}

#[test]
fn heads_may_be_as_large_as_their_buffers() {
    let content = "large_client_header_buffers 4 64k; location / { return 200 $http_x$http_y; }";
    on_each_driver(&server(content), |server| {
        let mut http3 = http3(server);
        let (x, y) = ("x".repeat(60_000), "y".repeat(50_000));
        let response = http3.request("GET", "/", &[("x", &x), ("y", &y)], b"");
        assert!(response.text() == x + &y, "{}", response.status);
        assert_eq!(http3.get("/").status, 200);
    });
}
