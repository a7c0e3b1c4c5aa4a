//! Responses: heads in the form of CGI, their bodies, and how they are sent.

use nowait_testkit::origin::Step;

use super::{ASKED, STDERR, answer, end, on_each, out, record, whole};
use crate::passing::{Gate, read_until};
use crate::stage::ask;

#[test]
fn the_status_is_a_field() {
    for (head, status, reason) in [
        ("Content-Type: a/b\r\n", 200, "OK"),
        ("Status: 404\r\n", 404, "Not Found"),
        ("Status: 404 Nothing here\r\n", 404, "Nothing here"),
        ("Location: /x\r\n", 302, "Moved Temporarily"),
        ("Location: /x\r\nStatus: 201 Created\r\n", 201, "Created"),
        ("", 200, "OK"),
    ] {
        on_each(
            || vec![answer(whole(&format!("{head}\r\nbody")))],
            "",
            |server, _| {
                let response = server.get("/");
                assert_eq!((response.status, &response.reason[..]), (status, reason), "{head}");
                assert_eq!(response.header("status"), None);
                assert_eq!(response.text(), "body");
                assert!(response.header("date").is_some() && response.header("server").is_some());
            },
        );
    }
}

#[test]
fn records_may_split_a_response_anywhere() {
    let response = "Content-Type: text/plain\r\nX-Own: value\r\n\r\nthe body of it";
    for size in [1, 7, 30] {
        let bytes = response.as_bytes().chunks(size).map(|part| record(6, part));
        let bytes = [bytes.collect::<Vec<_>>().concat(), end()].concat();
        on_each(
            || vec![answer(&bytes)],
            "fastcgi_buffer_size 8k; fastcgi_buffers 8 8k;",
            |server, _| {
                let response = server.get("/");
                assert_eq!(response.header("x-own"), Some("value"));
                assert_eq!(response.text(), "the body of it");
            },
        );
    }
}

#[test]
fn a_large_response_with_and_without_buffers() {
    let body: String = (0..50_000).map(|n| format!("{n:05}")).collect();
    let parts: Vec<u8> = body.as_bytes().chunks(60_000).flat_map(|part| record(6, part)).collect();
    let bytes = [out("Content-Type: text/plain\r\n\r\n"), parts, end()].concat();
    for conf in
        ["", "fastcgi_buffering off;", "fastcgi_max_temp_file_size 0;", "fastcgi_limit_rate 10m;"]
    {
        on_each(
            || vec![answer(&bytes)],
            conf,
            |server, _| {
                assert!(server.get("/").text() == body, "{conf}");
            },
        );
    }
}

#[test]
fn a_response_is_streamed() {
    let gate = Gate::default();
    let script = || {
        let first = out("Content-Type: text/plain\r\n\r\nfirst");
        let second = [out("second"), end()].concat();
        vec![vec![Step::expect(ASKED), Step::reply(first), gate.step(), Step::reply(second)]]
    };
    on_each(script, "fastcgi_buffering off;", |server, _| {
        let mut client = server.client();
        client.send_get("/");
        read_until(&mut client, "first\r\n");
        gate.open();
        read_until(&mut client, "0\r\n\r\n");
    });
}

#[test]
fn heads_alone() {
    for (request, response) in [
        ("HEAD / HTTP/1.1", "Content-Length: 4\r\n\r\nbody"),
        ("HEAD / HTTP/1.1", "Content-Length: 4\r\n\r\n"),
        ("GET / HTTP/1.1", "Status: 304 Not Modified\r\n\r\n"),
        ("GET / HTTP/1.1", "Status: 204 No Content\r\n\r\n"),
    ] {
        on_each(
            || vec![answer(whole(response))],
            "",
            |server, _| {
                let mut client = server.client();
                client.send(format!("{request}\r\nHost: a\r\nConnection: close\r\n\r\n"));
                let head = String::from_utf8(client.rest()).unwrap();
                assert!(head.ends_with("\r\n\r\n") && !head.contains("body"), "{head}");
            },
        );
    }
}

#[test]
fn x_accel() {
    let conf =
        "location /redirect { fastcgi_pass u; } location /hidden { internal; return 200 hidden; }
                location /rate { fastcgi_pass u; fastcgi_ignore_headers X-Accel-Redirect; }";
    let response = || vec![answer(whole("X-Accel-Redirect: /hidden\r\nSet-Cookie: a=b\r\n\r\nno"))];
    on_each(response, conf, |server, _| {
        let response = server.get("/redirect");
        assert_eq!(response.text(), "hidden");
        assert_eq!(response.header("set-cookie"), Some("a=b"));
        assert_eq!(response.header("x-accel-redirect"), None);
    });
    on_each(response, conf, |server, _| assert_eq!(server.get("/rate").text(), "no"));
}

#[test]
fn pages_for_errors() {
    let conf = "error_page 404 /page; location = /page { return 200 page; }
                location / { fastcgi_pass u; fastcgi_intercept_errors on; }";
    on_each(
        || vec![answer(whole("Status: 404\r\n\r\nno"))],
        conf,
        |server, _| {
            let response = server.get("/x");
            assert_eq!((response.status, response.text()), (404, "page".to_owned()));
        },
    );
}

#[test]
fn fields_that_are_hidden_and_passed() {
    let conf = "fastcgi_hide_header X-Hidden; fastcgi_pass_header X-Accel-Buffering;";
    let response = "Server: app\r\nX-Hidden: 1\r\nX-Accel-Buffering: no\r\nX_Own: 2\r\n\r\nbody";
    on_each(
        || vec![answer(whole(response))],
        conf,
        |server, _| {
            let response = server.get("/");
            assert_eq!(response.header("server"), Some("app"));
            assert_eq!(response.header("x-hidden"), None);
            assert_eq!(response.header("x-accel-buffering"), Some("no"));
            assert_eq!(response.header("x_own"), Some("2"));
        },
    );
}

#[test]
fn ranges_are_forced() {
    let conf = "fastcgi_force_ranges on;";
    let response = "Content-Length: 10\r\nAccept-Ranges: none\r\n\r\n0123456789";
    on_each(
        || vec![answer(whole(response))],
        conf,
        |server, _| {
            let response = ask(server, "/", &["Range: bytes=2-4"]);
            assert_eq!((response.status, response.text()), (206, "234".to_owned()));
        },
    );
}

#[test]
fn texts_for_the_log() {
    let response = [
        record(STDERR, "first warning.\n"),
        out("Content-Type: text/plain\r\n"),
        record(STDERR, "second"),
        out("\r\nbo"),
        record(STDERR, "third\r\n"),
        out("dy"),
        end(),
    ];
    on_each(
        || vec![answer(response.concat())],
        "",
        |server, _| {
            server.allow_log("FastCGI sent in stderr");
            assert_eq!(server.get("/").text(), "body");
            for text in ["first warning", "second", "third"] {
                let line = format!("FastCGI sent in stderr: \"{text}\" while reading ");
                server.wait_log(&line);
            }
        },
    );
}

/// However much an application has to say, its head fits the buffer.
#[test]
fn many_texts_before_a_head() {
    let texts: Vec<u8> =
        (0..50).flat_map(|n| record(STDERR, format!("{n} {}", "x".repeat(500)))).collect();
    on_each(
        || vec![answer([&texts[..], &whole("A: b\r\n\r\nbody")].concat())],
        "",
        |server, _| {
            server.allow_log("FastCGI sent in stderr");
            assert_eq!(server.get("/").text(), "body");
            server.wait_log("FastCGI sent in stderr: \"49 xxx");
        },
    );
}
