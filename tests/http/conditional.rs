//! Conditional requests: RFC 9110, section 13.

use std::time::{Duration, UNIX_EPOCH};

use nowait_testkit::{Server, check_on};

use crate::stage::{on_each_driver, server};

/// `Fri, 13 Jul 2012 11:01:20 GMT`, so that the ETag of a 10-byte file is `"50000000-a"`.
const TIME: u64 = 0x5000_0000;

fn set_time(server: &Server) {
    for name in ["a", "off/a", "before/a", "noetag/a"] {
        let file = std::fs::File::open(server.dir().join("html").join(name)).unwrap();
        file.set_modified(UNIX_EPOCH + Duration::from_secs(TIME)).unwrap();
    }
}

#[test]
fn preconditions_decide() {
    let site = server(
        "location /off/ { if_modified_since off; }
         location /before/ { if_modified_since before; }
         location /noetag/ { etag off; }",
    )
    .file("html/a", "0123456789")
    .file("html/off/a", "0123456789")
    .file("html/before/a", "0123456789")
    .file("html/noetag/a", "0123456789");
    let same = "Fri, 13 Jul 2012 11:01:20 GMT";
    let later = "Fri, 13 Jul 2012 11:01:21 GMT";
    let earlier = "Fri, 13 Jul 2012 11:01:19 GMT";
    let cases: Vec<(&str, String, u16)> = vec![
        ("/a", format!("If-Modified-Since: {same}"), 304),
        ("/a", format!("If-Modified-Since: {later}"), 200),
        ("/a", format!("If-Modified-Since: {earlier}"), 200),
        ("/a", "If-Modified-Since: Friday, 13-Jul-12 11:01:20 GMT".to_owned(), 304),
        ("/a", "If-Modified-Since: Fri Jul 13 11:01:20 2012".to_owned(), 304),
        ("/a", "If-Modified-Since: nonsense".to_owned(), 200),
        ("/off/a", format!("If-Modified-Since: {same}"), 200),
        ("/before/a", format!("If-Modified-Since: {later}"), 304),
        ("/before/a", format!("If-Modified-Since: {earlier}"), 200),
        ("/a", format!("If-Unmodified-Since: {same}"), 200),
        ("/a", format!("If-Unmodified-Since: {later}"), 200),
        ("/a", format!("If-Unmodified-Since: {earlier}"), 412),
        ("/a", "If-None-Match: \"50000000-a\"".to_owned(), 304),
        ("/a", "If-None-Match: W/\"50000000-a\"".to_owned(), 304),
        ("/a", "If-None-Match: \"x\", \"50000000-a\"".to_owned(), 304),
        ("/a", "If-None-Match: *".to_owned(), 304),
        ("/a", "If-None-Match: \"x\"".to_owned(), 200),
        ("/a", format!("If-None-Match: \"x\"\nIf-Modified-Since: {same}"), 200),
        // As nginx: both must say so.
        ("/a", format!("If-None-Match: \"50000000-a\"\nIf-Modified-Since: {same}"), 304),
        ("/a", format!("If-None-Match: \"50000000-a\"\nIf-Modified-Since: {later}"), 200),
        ("/a", "If-Match: \"50000000-a\"".to_owned(), 200),
        ("/a", "If-Match: *".to_owned(), 200),
        ("/a", "If-Match: W/\"50000000-a\"".to_owned(), 412),
        ("/a", "If-Match: \"x\"".to_owned(), 412),
        ("/noetag/a", "If-Match: \"50000000-a\"".to_owned(), 412),
        ("/noetag/a", "If-None-Match: *".to_owned(), 304),
    ];
    on_each_driver(&site, |server| {
        set_time(server);
        for (path, header, status) in &cases {
            eprintln!("{path} {header}");
            let expected = match status {
                304 => "304 Not Modified\n!Content-Length\n!Content-Type\nDate: *\n---\n404".into(),
                200 => "200\n\n0123456789\n---\n404".to_owned(),
                // nginx closes the connection without saying so.
                status => format!("{status}"),
            };
            // The next request shows that the answer ended where it should.
            let exchange =
                format!("GET {path} HTTP/1.1\nHost: x\n{header}\n---\nGET /none HTTP/1.1\nHost: x");
            check_on(server, &exchange, &expected);
        }
    });
}

#[test]
fn a_304_repeats_the_validators() {
    let site = server("add_header X-A a;")
        .file("html/a", "0123456789")
        .file("html/off/a", "")
        .file("html/before/a", "")
        .file("html/noetag/a", "");
    on_each_driver(&site, |server| {
        set_time(server);
        check_on(
            server,
            "GET /a HTTP/1.1\nHost: x\nIf-None-Match: \"50000000-a\"",
            "304\nETag: \"50000000-a\"\nLast-Modified: Fri, 13 Jul 2012 11:01:20 GMT\nX-A: a\n\
             !Accept-Ranges\n!Content-Range",
        );
    });
}

#[test]
fn a_failed_precondition_can_have_a_page() {
    let site = server("error_page 412 /412; location = /412 { return 200 failed; }")
        .file("html/a", "0123456789");
    on_each_driver(&site, |server| {
        check_on(server, "GET /a HTTP/1.1\nHost: x\nIf-Match: \"x\"", "412\n\nfailed");
    });
}
