//! The order of the fields of a response, and which of them there are: as nginx sends them.

use nowait_testkit::Response;
use nowait_testkit::origin::{Origin, Step};

use crate::stage::{ask, on_each_driver, server, site, wait_file};

/// The names of all fields in their order.
fn names(response: &Response) -> String {
    let names: Vec<_> = response.headers.iter().map(|(name, _)| name.as_str()).collect();
    names.join(" ")
}

#[test]
fn our_own_responses() {
    let builder = server(
        "absolute_redirect on;
         location /added/ { add_header X-A a; add_header Last-Modified \"Wed, 01 Jan 2020 00:00:00 GMT\"; }
         location /a { add_header X-A a; }
         location /expires/ { expires 1h; add_header X-A a; }
         location /gzip/ { gzip on; gzip_vary on; gzip_types *; add_header X-A a; default_type a/b; }
         location /301 { return 301 /x; add_header X-A a; }
         location /302 { return 302 http://x/; add_header X-A a; }
         location /204 {
             add_header Last-Modified \"Wed, 01 Jan 2020 00:00:00 GMT\";
             add_header X-A a;
             return 204 text;
         }
         location /401 { auth_basic realm; auth_basic_user_file html/none; add_header X-A a always; }
         location /ok { return 200 ok; add_header X-A a; }",
    )
    .file("html/a", "0123456789")
    .file("html/added/a", "0123456789")
    .file("html/expires/a", "0123456789")
    .file("html/gzip/a", "0123456789".repeat(10));
    const START: &str = "Server Date Content-Type Content-Length";
    on_each_driver(&builder, |server| {
        for (target, lines, expected) in [
            ("/ok", &[][..], format!("{START} Connection X-A")),
            ("/a", &[], format!("{START} Last-Modified Connection ETag X-A Accept-Ranges")),
            (
                "/a",
                &["Range: bytes=1-2"],
                format!("{START} Last-Modified Connection ETag X-A Content-Range"),
            ),
            ("/added/a", &[], format!("{START} Connection ETag X-A Last-Modified Accept-Ranges")),
            (
                "/expires/a",
                &[],
                format!(
                    "{START} Last-Modified Connection ETag Expires Cache-Control X-A Accept-Ranges"
                ),
            ),
            (
                "/gzip/a",
                &["Accept-Encoding: gzip"],
                "Server Date Content-Type Last-Modified Transfer-Encoding Connection Vary ETag X-A \
                 Content-Encoding"
                    .to_owned(),
            ),
            ("/301", &[], format!("{START} Location Connection X-A")),
            ("/302", &[], format!("{START} Connection Location X-A")),
            ("/204", &[], "Server Date Connection Last-Modified X-A".to_owned()),
            ("/401", &[], format!("{START} Connection WWW-Authenticate X-A")),
            ("/none", &[], format!("{START} Connection")),
        ] {
            assert_eq!(names(&ask(server, target, lines)), expected, "{target} {lines:?}");
        }
    });
}

const FIELDS: &str = "X-First: 1\r\nETag: \"x\"\r\nDate: Wed, 01 Jan 2020 00:00:00 GMT\r\n\
     Last-Modified: Wed, 01 Jan 2020 00:00:00 GMT\r\nContent-Type: text/plain;charset=utf-8\r\n\
     X-Up: 1\r\nAccept-Ranges: bytes\r\nServer: o\r\nContent-Encoding: x\r\nX-Last: 1\r\n";

#[test]
fn responses_of_upstreams() {
    for (status, length, expected) in [
        (
            "200 OK",
            "Content-Length: 2\r\n\r\nok",
            "Server Date Content-Type Content-Length Connection X-First ETag Last-Modified X-Up \
             Accept-Ranges Content-Encoding X-Last X-A",
        ),
        (
            "204 No Content",
            "\r\n",
            "Server Date Content-Type Connection X-First ETag Last-Modified X-Up Accept-Ranges \
             Content-Encoding X-Last X-A",
        ),
    ] {
        let reply = format!("HTTP/1.1 {status}\r\nConnection: close\r\n{FIELDS}{length}");
        let script = || vec![Step::expect("\r\n\r\n"), Step::reply(&reply), Step::HalfClose];
        let origin = Origin::start((0..4).map(|_| script()));
        let builder = site(&format!(
            "server {{ listen 127.0.0.1:%%PORT%%; add_header X-A a;
                 location / {{ proxy_pass http://{0}; }}
                 location /own/ {{
                     proxy_pass http://{0};
                     proxy_pass_header Date;
                     proxy_pass_header Server;
                 }} }}",
            origin.addr()
        ));
        on_each_driver(&builder, |server| {
            let response = ask(server, "/", &[]);
            assert_eq!(names(&response), expected);
            assert_eq!(response.header("content-type"), Some("text/plain;charset=utf-8"));
            let own = expected
                .replace("Server Date ", "")
                .replace("ETag ", "ETag Date ")
                .replace("Accept-Ranges ", "Accept-Ranges Server ");
            assert_eq!(names(&ask(server, "/own/", &[])), own);
        });
    }
}

#[test]
fn the_framing_of_chunks_counts_as_sent() {
    let builder = site(
        "log_format sent \"$body_bytes_sent $bytes_sent\";
         access_log %%DIR%%/sent.log sent;
         server {
             listen 127.0.0.1:%%PORT%%;
             ssi on;
             ssi_types *;
             location / { root %%DIR%%/html; }
         }",
    )
    .file("html/a", "hello");
    on_each_driver(&builder, |server| {
        let mut client = server.client();
        client.send("GET /a HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        let all = client.rest();
        let body = b"5\r\nhello\r\n0\r\n\r\n";
        assert!(all.ends_with(body), "{}", String::from_utf8_lossy(&all));
        wait_file(server, "sent.log", &format!("{} {}\n", body.len(), all.len()));
    });
}
