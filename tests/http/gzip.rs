//! `gzip`, `gunzip` and `gzip_static`.

use std::io::{Read, Write};

use nowait_testkit::{Response, Server, check_on};

use crate::stage::{ask, exchanges, on_each_driver, pattern, server, site, wait_file};

const ACCEPT: &str = "Accept-Encoding: gzip";

fn inflated(compressed: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    flate2::read::GzDecoder::new(compressed).read_to_end(&mut out).expect("a whole gzip member");
    out
}

pub fn deflated(text: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::new(6));
    encoder.write_all(text).unwrap();
    encoder.finish().unwrap()
}

#[track_caller]
fn assert_compressed(response: &Response, text: &[u8]) {
    assert_eq!(response.header("content-encoding"), Some("gzip"));
    assert_eq!(response.header("content-length"), None);
    assert_eq!(response.header("accept-ranges"), None);
    assert!(inflated(&response.body) == text, "{} bytes", response.body.len());
}

#[track_caller]
fn assert_plain(response: &Response, text: &[u8]) {
    assert_eq!(response.header("content-encoding"), None);
    assert!(response.body == text, "{} bytes", response.body.len());
}

/// Whether the answer to these headers is compressed.
fn is_compressed(server: &Server, target: &str, headers: &[&str]) -> bool {
    let response = ask(server, target, headers);
    let compressed = response.header("content-encoding") == Some("gzip");
    let text = if compressed { inflated(&response.body) } else { response.body };
    assert!(text.len() > 19, "{target}");
    compressed
}

#[test]
fn bodies_of_any_size_at_any_level() {
    let levels: String = (1..=9)
        .map(|level| {
            format!("location /{level}/ {{ alias %%DIR%%/html/; gzip_comp_level {level}; }}\n")
        })
        .collect();
    let sizes = [20, 4096, 4097, 8193, 16_385, 32_769, 49_153, 65_537, 262_144, 262_145];
    let builder = server(&format!(
        "gzip on; gzip_types text/plain;
         {levels}
         location /direct/ {{ alias %%DIR%%/html/; directio 1; }}
         location /window/ {{ alias %%DIR%%/html/; gzip_window 1k; gzip_hash 512; gzip_buffers 4 8k;
                              gzip_no_buffer on; postpone_gzipping 1k; }}
         location /rate/ {{ alias %%DIR%%/html/; limit_rate 1m; }}"
    ));
    let builder = sizes
        .iter()
        .fold(builder, |builder, size| builder.file(&format!("html/{size}"), pattern(*size)));
    on_each_driver(&builder, |server| {
        for way in ["1", "2", "3", "4", "5", "6", "7", "8", "9", "direct", "window", "rate"] {
            for size in sizes {
                let response = ask(server, &format!("/{way}/{size}"), &[ACCEPT]);
                assert_compressed(&response, &pattern(size));
                assert!(size < 100 || response.body.len() < size / 2, "{way} {size}");
            }
        }
        assert_plain(&ask(server, "/1/65537", &[]), &pattern(65_537));
    });
}

#[test]
fn only_what_is_worth_it_is_compressed() {
    let builder = server(
        "gzip on; gzip_min_length 30; default_type text/html;
         types { text/plain txt; text/css css; }
         location /types/ { gzip_types text/css; }
         location /all/ { gzip_types *; }
         location /off/ { gzip off; }
         location /if/ { gzip off; if ($arg_z) { gzip on; } }
         location /return { return 200 \"a text that is long enough for it\"; }
         location /created { return 201 \"a text that is long enough for it\"; }
         location /encoded { gzip_static always; }",
    );
    let text = pattern(30);
    let builder = ["a", "types/a.css", "types/a.txt", "all/a.txt", "off/a", "if/a"]
        .iter()
        .fold(builder, |builder, name| builder.file(&format!("html/{name}"), &text))
        .file("html/a.txt", &text)
        .file("html/short", &text[1..]);
    on_each_driver(&builder, |server| {
        for (target, compressed) in [
            ("/a", true),
            ("/a.txt", false),
            ("/short", false),
            ("/types/a.css", true),
            ("/types/a.txt", false),
            ("/all/a.txt", true),
            ("/off/a", false),
            ("/if/a", false),
            ("/if/a?z=1", true),
            ("/return", true),
            ("/created", false),
            ("/none", true),
        ] {
            assert_eq!(is_compressed(server, target, &[ACCEPT]), compressed, "{target}");
        }
    });
}

#[test]
fn the_client_decides() {
    let builder = server(
        "gzip on; default_type text/html; expires $arg_e;
         add_header Cache-Control $arg_c;
         location /http10/ { gzip_http_version 1.0; alias %%DIR%%/html/; }
         location /disable/ { gzip_disable msie6 \"^bad/[0-9]\"; alias %%DIR%%/html/; }
         location /any/ { gzip_proxied any; alias %%DIR%%/html/; }
         location /auth/ { gzip_proxied auth; alias %%DIR%%/html/; }
         location /expired/ { gzip_proxied expired no-store; alias %%DIR%%/html/; }
         location /noetag/ { gzip_proxied no_etag; alias %%DIR%%/html/; }
         location /noneatall/ { gzip_proxied no_etag; etag off; alias %%DIR%%/html/; }",
    )
    .file("html/a", pattern(100));
    let via = "Via: 1.1 proxy";
    on_each_driver(&builder, |server| {
        for (target, headers, compressed) in [
            ("/a", &["Accept-Encoding: deflate, gzip;q=0.5"][..], true),
            ("/a", &["Accept-Encoding: gzip;q=0"], false),
            ("/a", &["Accept-Encoding: *"], false),
            ("/a", &[ACCEPT, via], false),
            ("/any/a", &[ACCEPT, via], true),
            ("/auth/a", &[ACCEPT, via], true),
            ("/auth/a", &[ACCEPT, via, "Authorization: Basic eDp5"], true),
            ("/expired/a?e=-1", &[ACCEPT, via], true),
            ("/expired/a?e=1h", &[ACCEPT, via], false),
            ("/expired/a?c=no-store", &[ACCEPT, via], true),
            ("/expired/a?c=private", &[ACCEPT, via], false),
            ("/noetag/a", &[ACCEPT, via], false),
            ("/noneatall/a", &[ACCEPT, via], true),
            ("/disable/a", &[ACCEPT, "User-Agent: good/1"], true),
            ("/disable/a", &[ACCEPT, "User-Agent: BAD/1"], false),
            ("/disable/a", &[ACCEPT, "User-Agent: Mozilla/4.0 (MSIE 6.0; Windows)"], false),
            ("/disable/a", &[ACCEPT, "User-Agent: Mozilla/4.0 (MSIE 7.0; Windows)"], true),
        ] {
            assert_eq!(is_compressed(server, target, headers), compressed, "{target} {headers:?}");
        }
        let old = |target: &str| {
            let mut client = server.client();
            client.send(format!("GET {target} HTTP/1.0\r\n{ACCEPT}\r\n\r\n"));
            client.response()
        };
        assert_plain(&old("/a"), &pattern(100));
        assert_compressed(&old("/http10/a"), &pattern(100));
    });
}

#[test]
fn types_given_twice_are_added() {
    let builder = server(
        "gzip on; gzip_types a/b; gzip_types c/d e/f; default_type c/d;
         types { a/b a; x/y x; }
         location /all/ { gzip_types *; gzip_types a/b; }
         location /own/ { gzip_types e/f; }",
    )
    .file("html/t.a", pattern(100))
    .file("html/t", pattern(100))
    .file("html/t.x", pattern(100))
    .file("html/all/t.x", pattern(100))
    .file("html/own/t.a", pattern(100));
    on_each_driver(&builder, |server| {
        for (target, compressed) in
            [("/t.a", true), ("/t", true), ("/t.x", false), ("/all/t.x", true), ("/own/t.a", false)]
        {
            assert_eq!(is_compressed(server, target, &[ACCEPT]), compressed, "{target}");
        }
    });
}

#[test]
fn what_the_head_says() {
    let builder = server(
        "gzip on; gzip_vary on; default_type text/html;
         location /novary/ { gzip_vary off; }
         location /other/ { default_type image/png; }",
    )
    .file("html/a", pattern(100))
    .file("html/novary/a", pattern(100))
    .file("html/other/a", pattern(100));
    on_each_driver(&builder, |server| {
        let plain = ask(server, "/a", &[]);
        let tag = plain.header("etag").expect("a tag").to_owned();
        assert!(tag.starts_with('"'));
        assert_eq!(plain.header("vary"), Some("Accept-Encoding"));
        assert_eq!(plain.header("accept-ranges"), Some("bytes"));
        let weak = format!("W/{tag}");
        let response = ask(server, "/a", &[ACCEPT, "Range: bytes=0-1"]);
        assert_eq!(response.status, 200);
        assert_eq!(response.header("etag"), Some(&*weak));
        assert_eq!(response.all("vary").count(), 1);
        assert_compressed(&response, &pattern(100));
        for tag in [&tag, &weak] {
            let response = ask(server, "/a", &[ACCEPT, &format!("If-None-Match: {tag}")]);
            assert_eq!((response.status, response.header("content-encoding")), (304, None));
        }
        assert_eq!(ask(server, "/novary/a", &[ACCEPT]).header("vary"), None);
        assert_eq!(ask(server, "/other/a", &[ACCEPT]).header("vary"), None);
        let mut client = server.client();
        client.send(format!("HEAD /a HTTP/1.1\r\nHost: x\r\n{ACCEPT}\r\n\r\n"));
        let response = client.response_to_head();
        assert_eq!(response.header("content-encoding"), Some("gzip"));
        assert_eq!(response.header("content-length"), None);
    });
}

#[test]
fn charsets_are_converted_before() {
    let builder = site(
        "charset_map koi8-r utf-8 { C1 D0B0; C2 D0B1; }
         server {
            listen 127.0.0.1:%%PORT%%; root %%DIR%%/html; default_type text/html;
            gzip on; source_charset koi8-r; charset utf-8;
         }",
    )
    .file("html/a", b"\xc1\xc2".repeat(50_000));
    on_each_driver(&builder, |server| {
        let response = ask(server, "/a", &[ACCEPT]);
        assert_compressed(&response, "аб".repeat(50_000).as_bytes());
    });
}

#[test]
fn the_ratio_is_logged() {
    let builder = site(
        "log_format ratio \"$uri:$gzip_ratio;\";
         server {
            listen 127.0.0.1:%%PORT%%; root %%DIR%%/html; default_type text/html;
            gzip on; access_log %%DIR%%/ratio.log ratio;
         }",
    )
    .file("html/a", vec![b'x'; 300_000])
    .file("html/b", "x");
    on_each_driver(&builder, |server| {
        let response = ask(server, "/a", &[ACCEPT]);
        let ratio = 3e5 / response.body.len() as f64;
        ask(server, "/b", &[ACCEPT]);
        let log = wait_file(server, "ratio.log", "/b:");
        let logged = log.split("/a:").nth(1).and_then(|rest| rest.split(';').next()).unwrap();
        let difference = logged.parse::<f64>().unwrap() - ratio;
        assert!(difference.abs() < 0.011, "{logged} {ratio}");
        assert!(log.contains("/b:-;"), "{log}");
    });
}

#[test]
fn a_client_that_reads_nothing_holds_up_nobody() {
    let builder = server("gzip on; default_type text/html; sendfile on;")
        .file("html/big", pattern(4_000_000))
        .file("html/small", pattern(100));
    on_each_driver(&builder, |server| {
        let mut slow = server.client();
        slow.send(format!("GET /big HTTP/1.1\r\nHost: x\r\n{ACCEPT}\r\n\r\n"));
        for _ in 0..20 {
            assert_compressed(&ask(server, "/small", &[ACCEPT]), &pattern(100));
        }
        let response = slow.response();
        assert!(inflated(&response.body) == pattern(4_000_000));
    });
}

#[test]
fn compressed_files_are_decompressed_for_those_who_need_it() {
    let text = pattern(500_000);
    let bomb = deflated(&vec![0; 6_000_000]);
    let broken = {
        let whole = deflated(&text);
        whole[..whole.len() - 10].to_vec()
    };
    let builder = server(
        "gunzip on; gunzip_buffers 4 8k; gzip_static always; gzip_vary on;
         location /off/ { gunzip off; alias %%DIR%%/html/; }",
    )
    .file("html/a.gz", deflated(&text))
    .file("html/members.gz", [deflated(&text), deflated(b""), deflated(b"end")].concat())
    .file("html/bomb.gz", &bomb)
    .file("html/broken.gz", broken)
    .file("html/nothing.gz", "")
    .allow_log("inflate()");
    on_each_driver(&builder, |server| {
        let response = ask(server, "/a", &[]);
        assert_plain(&response, &text);
        assert_eq!(response.header("vary"), Some("Accept-Encoding"));
        assert!(response.header("etag").is_some_and(|tag| tag.starts_with("W/")));
        assert_eq!(response.header("accept-ranges"), None);
        assert_plain(&ask(server, "/members", &[]), &[&text[..], b"end"].concat());
        let response = ask(server, "/bomb", &[]);
        assert!(response.body.len() == 6_000_000 && response.body.iter().all(|b| *b == 0));
        let response = ask(server, "/a", &[ACCEPT]);
        assert_eq!(response.header("content-encoding"), Some("gzip"));
        assert!(response.header("etag").is_some_and(|tag| tag.starts_with('"')));
        assert!(response.header("content-length").is_some());
        assert!(inflated(&response.body) == text);
        assert_eq!(ask(server, "/off/a", &[]).header("content-encoding"), Some("gzip"));
        let mut client = server.client();
        client.send_get("/broken");
        assert!(client.try_response(false).is_err());
        server.wait_log("inflate()");
    });
}

#[test]
fn files_that_are_compressed_already() {
    let builder = server(
        "types { text/css css; } gzip_static on;
         location /vary/ { gzip_vary on; }
         location /off/ { gzip_static off; }
         location /always/ { gzip_static always; }
         location /cached/ { open_file_cache max=10; alias %%DIR%%/html/; }",
    )
    .file("html/a.css", "plain text")
    .file("html/a.css.gz", deflated(b"compressed text"))
    .file("html/plain.css", "plain text")
    .file("html/dir.css", "plain text")
    .file("html/dir.css.gz/x", "x")
    .file("html/vary/a.css", "plain text")
    .file("html/vary/a.css.gz", deflated(b"compressed text"))
    .file("html/vary/plain.css", "plain text")
    .file("html/off/a.css", "plain text")
    .file("html/off/a.css.gz", deflated(b"compressed text"))
    .file("html/always/a.css.gz", deflated(b"compressed text"))
    .file("html/index.html", "index")
    .file("html/index.html.gz", deflated(b"compressed index"));
    on_each_driver(&builder, |server| {
        for target in ["/a.css", "/vary/a.css", "/cached/a.css", "/cached/a.css"] {
            let response = ask(server, target, &[ACCEPT]);
            assert_eq!(inflated(&response.body), b"compressed text");
            assert_eq!(response.header("content-type"), Some("text/css"));
            assert_eq!(response.header("content-encoding"), Some("gzip"));
            assert!(response.header("content-length").is_some());
            assert_eq!(response.header("accept-ranges"), Some("bytes"));
            assert_plain(&ask(server, target, &[]), b"plain text");
        }
        for target in ["/plain.css", "/dir.css", "/off/a.css"] {
            assert_plain(&ask(server, target, &[ACCEPT]), b"plain text");
        }
        for headers in [&[ACCEPT][..], &[]] {
            let response = ask(server, "/always/a.css", headers);
            assert_eq!(inflated(&response.body), b"compressed text");
            assert_eq!(response.header("vary"), None);
            let response = ask(server, "/vary/a.css", headers);
            assert_eq!(response.header("vary"), Some("Accept-Encoding"));
            assert_eq!(ask(server, "/vary/plain.css", headers).header("vary"), None);
        }
        assert_eq!(inflated(&ask(server, "/", &[ACCEPT]).body), b"compressed index");
        let response = ask(server, "/a.css", &[ACCEPT, "Range: bytes=0-1"]);
        assert_eq!((response.status, &response.body[..]), (206, &b"\x1f\x8b"[..]));
        check_on(server, "POST /a.css HTTP/1.1\nHost: x\nContent-Length: 0", "405");
        check_on(server, "GET /none.css HTTP/1.1\nHost: x\nAccept-Encoding: gzip", "404");
    });
    exchanges(
        &server("gzip_static on;").file("html/a", "x"),
        &[("GET /a/b HTTP/1.1\nHost: x\nAccept-Encoding: gzip", "404")],
    );
}

#[test]
fn what_can_not_be_configured() {
    for (text, message) in [
        ("gzip_comp_level 0;", "value must be between 1 and 9"),
        ("gzip_comp_level 10;", "value must be between 1 and 9"),
        ("gzip_window 64k;", "\"gzip_window\" directive must be 512, 1k, 2k, 4k, 8k, 16k, or 32k"),
        ("gzip_hash 1;", "\"gzip_hash\" directive must be 512, 1k"),
        ("gzip_http_version 2;", "invalid value \"2\""),
        ("gzip_proxied sometimes;", "invalid value \"sometimes\""),
        ("gzip_disable \"(\";", "in \"(\""),
        ("gzip_static maybe;", "invalid value \"maybe\""),
    ] {
        let failure = server(text).try_start().expect_err(text);
        let said = failure.stderr + &failure.log;
        assert!(said.contains(message), "{message}: {said}");
    }
}
