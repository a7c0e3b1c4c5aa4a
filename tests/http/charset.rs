//! `charset` and its family, and `random_index`.

use nowait_testkit::check_on;

use crate::stage::{ask, exchanges, gets, on_each_driver, server, site};

#[test]
fn the_charset_is_named_for_types_that_have_one() {
    let site = server(
        "types { text/html html; text/own own; image/png png; }
         charset utf-8;
         location /off/ { charset off; }
         location /types/ { charset_types text/own; }
         location /all/ { charset_types *; }
         location /var/ { charset $arg_c; }
         location /moved { return 301 /; }
         location /text { default_type text/plain; return 200 text; }",
    )
    .file("html/a.html", "A")
    .file("html/a.own", "A")
    .file("html/off/a.html", "A")
    .file("html/types/a.own", "A")
    .file("html/types/a.html", "A")
    .file("html/all/a.png", "A")
    .file("html/var/a.html", "A");
    gets(
        &site,
        &[
            ("/a.html", "200\nContent-Type: text/html; charset=utf-8\nContent-Length: 1\n\nA"),
            ("/a.own", "200\nContent-Type: text/own"),
            ("/off/a.html", "200\nContent-Type: text/html"),
            ("/types/a.own", "200\nContent-Type: text/own; charset=utf-8"),
            ("/types/a.html", "200\nContent-Type: text/html; charset=utf-8"),
            ("/all/a.png", "200\nContent-Type: image/png; charset=utf-8"),
            ("/var/a.html?c=koi8-r", "200\nContent-Type: text/html; charset=koi8-r"),
            ("/none", "404\nContent-Type: text/html; charset=utf-8"),
            ("/moved", "301\nContent-Type: text/html"),
            ("/text", "200\nContent-Type: text/plain; charset=utf-8"),
        ],
    );
}

const MAPS: &str = "
    charset_map koi8-r windows-1251 { C1 E0; C2 E1; }
    charset_map koi8-r utf-8 { C1 D0B0; C2 D0B1; }";

#[test]
fn texts_are_converted() {
    let site = site(&format!(
        "{MAPS}
         server {{
            listen 127.0.0.1:%%PORT%%; root %%DIR%%/html; default_type text/html;
            location / {{ source_charset koi8-r; charset windows-1251; }}
            location /same/ {{ source_charset koi8-r; charset KOI8-R; }}
            location /to/ {{ source_charset koi8-r; charset utf-8; }}
            location /from/ {{ source_charset utf-8; charset koi8-r; }}
         }}"
    ))
    .file("html/a", b"a\xc1\xc2z")
    .file("html/same/a", b"a\xc1\xc2z")
    .file("html/to/a", b"a\xc1\xc2z")
    .file("html/from/a", "aаб€z")
    .file("html/from/big", "аб€".repeat(30_000));
    on_each_driver(&site, |server| {
        let get = |path: &str| ask(server, path, &[]);
        let response = get("/a");
        assert_eq!(response.body, b"a\xe0\xe1z");
        assert_eq!(response.header("content-type"), Some("text/html; charset=windows-1251"));
        assert_eq!(response.header("content-length"), Some("4"));
        assert_eq!(get("/same/a").body, b"a\xc1\xc2z");
        let response = get("/to/a");
        assert_eq!(response.text(), "aабz");
        assert_eq!(response.header("content-length"), None);
        assert_eq!(get("/from/a").body, b"a\xc1\xc2&#8364;z");
        assert!(get("/from/big").body == b"\xc1\xc2&#8364;".repeat(30_000));
        // Ranges are those of the converted text where its length is the same.
        let response = ask(server, "/a", &["Range: bytes=1-2"]);
        assert_eq!((response.status, &response.body[..]), (206, &b"\xe0\xe1"[..]));
        assert_eq!(ask(server, "/to/a", &["Range: bytes=1-2"]).status, 200);
        check_on(server, "HEAD /a HTTP/1.1\nHost: x", "200\nContent-Length: 4");
    });
}

#[test]
fn a_missing_map_is_a_configuration_error() {
    for (text, message) in [
        (
            "server { source_charset a; charset b; }",
            "no \"charset_map\" between the charsets \"a\" and \"b\"",
        ),
        ("charset_map a A { }", "between the same charsets \"a\" and \"A\""),
        ("charset_map a b { } charset_map b a { }", "duplicate \"charset_map\" between"),
        ("charset_map a b { GG 00; }", "invalid value \"GG\""),
        ("charset_map a utf-8 { C0 FF; }", "invalid value \"FF\""),
    ] {
        let failure = site(text).try_start().expect_err(text);
        let said = failure.stderr + &failure.log;
        assert!(said.contains(message) || crate::stage::asks_nginx(), "{message}: {said}");
    }
}

#[test]
fn a_missing_map_at_run_time_leaves_the_text_alone() {
    let site =
        server("source_charset a; charset $arg_c; default_type text/html;").file("html/a", "A");
    on_each_driver(&site, |server| {
        check_on(server, "GET /a?c=b HTTP/1.1\nHost: x", "200\nContent-Type: text/html\n\nA");
        server.wait_log("no \"charset_map\" between the charsets \"a\" and \"b\"");
    });
}

#[test]
fn any_file_of_a_directory_may_stand_for_it() {
    let site = server("location /r/ { random_index on; }")
        .file("html/r/a", "A")
        .file("html/r/b", "B")
        .file("html/r/.hidden", "H")
        .file("html/r/d/x", "X")
        .file("html/r/e/f/x", "X");
    if crate::stage::asks_nginx() {
        return; // not in every build
    }
    on_each_driver(&site, |server| {
        let link = server.dir().join("html/r/link");
        std::os::unix::fs::symlink("../r/a", link).unwrap();
        let mut client = server.client();
        let mut seen = std::collections::BTreeSet::new();
        for _ in 0..200 {
            seen.insert(client.get("/r/").text());
        }
        assert_eq!(seen.into_iter().collect::<Vec<_>>(), ["A", "B"]);
    });
    exchanges(
        &site,
        &[
            ("GET /r/a HTTP/1.1\nHost: x", "200\n\nA"),
            ("GET /r/e/ HTTP/1.1\nHost: x", "403"),
            ("GET /r/none/ HTTP/1.1\nHost: x", "404"),
        ],
    );
}
