//! Requests of HTTP/1 that hide another one: what a server behind, or this one, could take for a request
//! is never served.

use std::io::Write;

use nowait_testkit::client::Arrival;
use nowait_testkit::{Server, ServerBuilder, wait};

use crate::stage::{on_each_driver, site};

const HIDDEN: &str = "GET /hidden HTTP/1.1\r\nHost: a\r\n\r\n";

const LAST: &str = "GET /last HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";

/// A server with every kind of answer, in front of another one.
fn two_servers(more: &str) -> ServerBuilder {
    site(&format!(
        "log_format line '$request';
         proxy_cache_path %%DIR%%/cache keys_zone=zone:1m;
         proxy_http_version 1.1;
         server {{
             listen 127.0.0.1:%%PORT%%; root %%DIR%%/html; access_log %%DIR%%/front.log line;
             {more}
             location /proxied {{ proxy_pass http://127.0.0.1:%%PORT_1%%; }}
             location /streamed {{
                 proxy_pass http://127.0.0.1:%%PORT_1%%; proxy_request_buffering off;
             }}
             location /cached {{
                 proxy_pass http://127.0.0.1:%%PORT_1%%; proxy_cache zone; proxy_cache_valid 1h;
             }}
             location /upgrading {{
                 proxy_pass http://127.0.0.1:%%PORT_1%%;
                 proxy_set_header Upgrade $http_upgrade; proxy_set_header Connection upgrade;
             }}
             location /static {{ }}
             location /returned {{ return 200 returned; }}
             location /moved {{ return 302 /static; }}
             location /denied {{ deny all; }}
             location /secret {{ auth_basic secret; auth_basic_user_file none; }}
             location /small {{ client_max_body_size 5; proxy_pass http://127.0.0.1:%%PORT_1%%; }}
             location /hidden {{ return 200 HIDDEN; }}
             location /last {{ return 200 last; }}
         }}
         server {{
             listen 127.0.0.1:%%PORT_1%%; access_log %%DIR%%/behind.log line;
             location / {{ return 200 behind; }}
             location /hidden {{ return 200 HIDDEN; }}
         }}"
    ))
    .file("html/static", "static")
    .allow_log("client")
}

const PATHS: [&str; 11] = [
    "/proxied",
    "/streamed",
    "/cached",
    "/upgrading",
    "/static",
    "/static/",
    "/returned",
    "/moved",
    "/denied",
    "/secret",
    "/small",
];

/// All that the server says to these bytes.
fn said(server: &Server, bytes: &str) -> String {
    let mut client = server.client();
    // The server may close at any time.
    let _ = client.stream().write_all(bytes.as_bytes());
    let mut all = Vec::new();
    loop {
        match client.arrives_within(wait::PATIENCE) {
            Arrival::Bytes(_) => all.extend(client.read_some(usize::MAX)),
            Arrival::Nothing => panic!("no end for {bytes}"),
            _ => return String::from_utf8_lossy(&all).into_owned(),
        }
    }
}

/// The server answers these bytes once at most, and the last request afterwards at most.
#[track_caller]
fn hides(server: &Server, bytes: &str) -> String {
    let said = said(server, &format!("{bytes}{LAST}"));
    assert!(!said.contains("HIDDEN"), "{bytes}: {said}");
    let answers: Vec<_> =
        said.split("HTTP/1.1 ").skip(1).filter(|a| !a.starts_with("100 ")).collect();
    assert!((1..=2).contains(&answers.len()), "{bytes}: {said}");
    if let [_, last] = answers[..] {
        assert!(last.ends_with("\r\n\r\nlast"), "{bytes}: {said}");
    }
    said
}

/// The bytes are refused, and nothing behind them is read.
#[track_caller]
fn is_refused(server: &Server, bytes: &str) {
    let said = hides(server, bytes);
    let refused = said.starts_with("HTTP/1.1 400 ") || said.starts_with("HTTP/1.1 501 ");
    assert!(refused && !said.contains("\r\n\r\nlast"), "{bytes}: {said}");
}

/// No request was seen that no client made.
#[track_caller]
fn nothing_came_through(server: &Server) {
    assert_eq!(server.get("/proxied").text(), "behind");
    for log in ["front.log", "behind.log"] {
        let log = server.wait_file(log, "GET /proxied HTTP/1.1\n");
        assert!(!log.contains("hidden"), "{log}");
    }
}

/// 'CL.0', 'TE.0', '0.CL' and early responses: regardless of the method and the answer, content is content.
/// CVE-2025-4366: that of a request that is answered from a cache, too.
#[test]
fn content_is_no_request_however_it_is_answered() {
    on_each_driver(&two_servers(""), |server| {
        assert_eq!(server.get("/cached").text(), "behind");
        for path in PATHS {
            for method in
                ["GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "TRACE", "PROPFIND", "X"]
            {
                let head = format!("{method} {path} HTTP/1.1\r\nHost: a\r\n");
                let length = HIDDEN.len();
                for fields in ["", "Expect: 100-continue\r\n", "Connection: keep-alive, X\r\n"] {
                    hides(
                        server,
                        &format!("{head}{fields}Content-Length: {length}\r\n\r\n{HIDDEN}"),
                    );
                }
                hides(
                    server,
                    &format!(
                        "{head}Transfer-Encoding: chunked\r\n\r\n{length:x}\r\n{HIDDEN}\r\n0\r\n\r\n"
                    ),
                );
            }
        }
        nothing_came_through(server);
    });
}

/// Lengths that one of two servers might overlook: CVE-2023-25725, CVE-2023-40225, CVE-2026-2835,
/// CVE-2026-42581 and the families of 'TE.TE' and '0.CL'.
#[test]
fn lengths_that_can_be_overlooked() {
    on_each_driver(&two_servers("ignore_invalid_headers off;"), |server| {
        let length = HIDDEN.len();
        for path in PATHS {
            for (version, lines) in [
                ("1.1", "Content-Length: LENGTH\r\nTransfer-Encoding: chunked"),
                ("1.1", "Transfer-Encoding: chunked\r\nContent-Length: LENGTH"),
                ("1.0", "Transfer-Encoding: chunked"),
                ("1.0", "Transfer-Encoding: chunked\r\nContent-Length: LENGTH"),
                ("1.1", "Transfer-Encoding: identity, chunked"),
                ("1.1", "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity"),
                ("1.1", "Transfer-Encoding: \x0bchunked"),
                ("1.1", "Transfer-Encoding:\r\n chunked"),
                ("1.1", "Transfer-Encoding : chunked"),
                ("1.1", "Transfer-Encoding\t: chunked"),
                ("1.1", " Transfer-Encoding: chunked"),
                ("1.1", "X: y\r\n Transfer-Encoding: chunked"),
                ("1.1", "X: y\rTransfer-Encoding: chunked"),
                ("1.1", "Content-Length:"),
                ("1.1", "Content-Length:\r\n LENGTH"),
                ("1.1", " Content-Length: LENGTH"),
                ("1.1", "Content-Length : LENGTH"),
                ("1.1", "Content-Length: 0\r\nContent-Length: LENGTH"),
                ("1.1", "Content-Length: 0LENGTH "),
                ("1.1", "Content-Length: 0x20"),
                ("1.1", ": empty\r\nContent-Length: LENGTH"),
                ("1.1", "X\0: y\r\nContent-Length: LENGTH"),
            ] {
                let lines = lines.replace("LENGTH", &length.to_string());
                // A zero before a number is a number, too.
                let bytes =
                    format!("POST {path} HTTP/{version}\r\nHost: a\r\n{lines}\r\n\r\n{HIDDEN}");
                match lines.starts_with("Content-Length: 0") && !lines.contains(['x', '\n']) {
                    true => drop(hides(server, &bytes)),
                    false => is_refused(server, &bytes),
                }
            }
            // CVE-2026-50020: controls before a request line.
            for before in ["\0", "\x01", "\x0b", " ", "\t", "\r", "\x7f"] {
                is_refused(server, &format!("{before}GET {path} HTTP/1.1\r\nHost: a\r\n\r\n"));
            }
        }
        nothing_came_through(server);
    });
}

/// 'Funky chunks' and other ends of chunks that two servers see differently: CVE-2025-22871, CVE-2025-47905;
/// sizes that overflow (nginx 1.29.4 to 1.31.3).
#[test]
fn chunks_that_end_elsewhere() {
    on_each_driver(&two_servers(""), |server| {
        for path in PATHS {
            for chunks in [
                "1;\nx\r\n0\r\n\r\n",
                "1;a=\"\n\"\r\nx\r\n0\r\n\r\n",
                "1;a\rb\r\nx\r\n0\r\n\r\n",
                "1;\0\r\nx\r\n0\r\n\r\n",
                "1\nx\r\n0\r\n\r\n",
                "1\r\nx\n0\r\n\r\n",
                "1\r\nxXX0\r\n\r\n",
                "1\r\nx0\r\n\r\n",
                "0\n\r\n",
                "0\r\n\n",
                "0 \r\n X: y\r\n\r\n",
                "0x1\r\nx\r\n0\r\n\r\n",
                "-1\r\nx\r\n0\r\n\r\n",
                "8000000000000000\r\n",
                "ffffffffffffffff\r\n",
                "10000000000000001\r\nx\r\n0\r\n\r\n",
                "0\r\nTransfer-Encoding\0: x\r\n\r\n",
            ] {
                let head = format!(
                    "POST {path} HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
                );
                hides(server, &format!("{head}{chunks}{HIDDEN}"));
            }
        }
        nothing_came_through(server);
    });
}

/// An `Expect` that is not the known one must not make two servers wait for different things.
#[test]
fn odd_expectations_change_no_length() {
    on_each_driver(&two_servers(""), |server| {
        let length = HIDDEN.len();
        for path in PATHS {
            for expect in [
                "100-continue",
                "100-Continue",
                "y 100-continue",
                "100-continue, x",
                "x=100-continue",
                "",
                "200-ok",
            ] {
                for method in ["GET", "HEAD", "OPTIONS", "POST"] {
                    hides(
                        server,
                        &format!(
                            "{method} {path} HTTP/1.1\r\nHost: a\r\nExpect: {expect}\r\n\
                             Content-Length: {length}\r\n\r\n{HIDDEN}"
                        ),
                    );
                }
            }
        }
        nothing_came_through(server);
    });
}

/// CVE-2024-23326, CVE-2026-2833, CVE-2026-73548 and CVE-2026-58055: what follows a request for another
/// protocol goes to the server behind only if that has switched.
#[test]
fn bytes_behind_an_upgrade_wait_for_the_switch() {
    on_each_driver(&two_servers(""), |server| {
        let length = HIDDEN.len();
        for protocol in ["websocket", "foo", "h2c", "TLS/1.0"] {
            let head = format!(
                "GET /upgrading HTTP/1.1\r\nHost: a\r\nUpgrade: {protocol}\r\nConnection: upgrade\r\n"
            );
            hides(server, &format!("{head}Content-Length: {length}\r\n\r\n{HIDDEN}"));
            hides(
                server,
                &format!(
                    "{head}Transfer-Encoding: chunked\r\n\r\n{length:x}\r\n{HIDDEN}\r\n0\r\n\r\n"
                ),
            );
        }
        nothing_came_through(server);
        // It is a request to this server, whose rules hold.
        let second = HIDDEN.replace("/hidden", "/denied");
        let said = said(
            server,
            &format!(
                "GET /upgrading HTTP/1.1\r\nHost: a\r\nUpgrade: foo\r\nConnection: upgrade\r\n\r\n{second}{LAST}"
            ),
        );
        assert!(said.starts_with("HTTP/1.1 200 "), "{said}");
        assert!(!server.read("behind.log").contains("denied"));
    });
}

/// CVE-2025-64763: nothing that follows a refused CONNECT is a request.
#[test]
fn bytes_behind_a_refused_tunnel_are_no_request() {
    on_each_driver(&two_servers(""), |server| {
        for target in ["a:80", "127.0.0.1:1", "/proxied"] {
            let said = said(
                server,
                &format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n{HIDDEN}"),
            );
            assert!(said.starts_with("HTTP/1.1 4"), "{said}");
            assert!(!said.contains("HIDDEN"), "{said}");
        }
        nothing_came_through(server);
    });
}

/// CVE-2025-30346: after a malformed request nothing is read.
#[test]
fn a_malformed_request_is_the_last_one() {
    on_each_driver(&two_servers(""), |server| {
        for malformed in [
            "GET /a b HTTP/1.1\r\nHost: a\r\n\r\n",
            "GET / HTTP/1.1\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
            "G\x01 / HTTP/1.1\r\nHost: a\r\n\r\n",
        ] {
            let said = said(server, &format!("{malformed}{HIDDEN}"));
            assert!(said.starts_with("HTTP/1.1 400 "), "{said}");
            assert_eq!(said.matches("HTTP/1.1 ").count(), 1, "{said}");
        }
        nothing_came_through(server);
    });
}
