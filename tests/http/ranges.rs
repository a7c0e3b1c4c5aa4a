//! `Range`, `If-Range`, `max_ranges`: RFC 9110, section 14.

use nowait_testkit::http2::Http2;
use nowait_testkit::{Response, check_on};

use crate::stage::{ask, asks_nginx, on_each_driver, pattern, server, site};

#[test]
fn single_ranges() {
    let site = server("location = /r { return 200 0123456789; }").file("html/a", "0123456789");
    on_each_driver(&site, |server| {
        for (range, expected) in [
            ("bytes=0-0", "206\nContent-Range: bytes 0-0/10\nContent-Length: 1\n\n0"),
            (
                "bytes=2-4",
                "206 Partial Content\nContent-Range: bytes 2-4/10\n!Accept-Ranges\n\n234",
            ),
            ("bytes=7-", "206\nContent-Range: bytes 7-9/10\n\n789"),
            ("bytes=-3", "206\nContent-Range: bytes 7-9/10\n\n789"),
            ("bytes=-30", "206\nContent-Range: bytes 0-9/10\n\n0123456789"),
            ("bytes=5-100", "206\nContent-Range: bytes 5-9/10\n\n56789"),
            ("bytes= 1 - 2 ", "206\n\n12"),
            ("Bytes=1-2", "206\n\n12"),
            ("bytes=10-", "416 Requested Range Not Satisfiable\nContent-Range: bytes */10"),
            ("bytes=4-2", "416"),
            ("bytes=", "200"),
            ("bytes=x-2", "416"),
            ("bytes=99999999999999999999-", "416"),
            ("lines=1-2", "200\nAccept-Ranges: bytes\n\n0123456789"),
        ] {
            eprintln!("{range}");
            check_on(server, &format!("GET /a HTTP/1.1\nHost: x\nRange: {range}"), expected);
        }
        // Only what offers ranges has them.
        check_on(server, "GET /r HTTP/1.1\nHost: x\nRange: bytes=1-2", "200\n\n0123456789");
        check_on(
            server,
            "HEAD /a HTTP/1.1\nHost: x\nRange: bytes=1-2",
            "206\nContent-Range: bytes 1-2/10\nContent-Length: 2",
        );
    });
}

#[test]
fn several_ranges_come_in_parts() {
    let site = server("types { text/x-a a; }").file("html/f.a", "0123456789");
    on_each_driver(&site, |server| {
        let response = ask(server, "/f.a", &["Range: bytes=0-1,-2, 4-4"]);
        assert_eq!(response.status, 206);
        assert_eq!(response.header("content-range"), None);
        let kind = response.header("content-type").unwrap();
        let boundary = kind.strip_prefix("multipart/byteranges; boundary=").unwrap();
        let part = |range: &str, text: &str| {
            format!(
                "\r\n--{boundary}\r\nContent-Type: text/x-a\r\n\
                 Content-Range: bytes {range}/10\r\n\r\n{text}"
            )
        };
        let expected = part("0-1", "01")
            + &part("8-9", "89")
            + &part("4-4", "4")
            + &format!("\r\n--{boundary}--\r\n");
        assert_eq!(response.text(), expected);
    });
}

#[test]
fn the_number_of_ranges_is_limited() {
    let site = server("location /one/ { max_ranges 1; } location /no/ { max_ranges 0; }")
        .file("html/one/a", "0123456789")
        .file("html/no/a", "0123456789")
        .file("html/a", "0123456789");
    on_each_driver(&site, |server| {
        for (path, range, expected) in [
            ("/one/a", "bytes=1-2", "206\n\n12"),
            ("/one/a", "bytes=1-2,4-5", "200\n\n0123456789"),
            ("/no/a", "bytes=1-2", "200\n!Accept-Ranges\n\n0123456789"),
            // Together longer than the file: the file.
            ("/a", "bytes=0-9,0-9", "200\n\n0123456789"),
        ] {
            let exchange = format!("GET {path} HTTP/1.1\nHost: x\nRange: {range}");
            check_on(server, &exchange, expected);
        }
    });
}

#[test]
fn if_range_guards_a_range() {
    let site = server("").file("html/a", "0123456789");
    on_each_driver(&site, |server| {
        let whole = ask(server, "/a", &[]);
        let etag = format!("If-Range: {}", whole.header("etag").unwrap());
        let date = format!("If-Range: {}", whole.header("last-modified").unwrap());
        let status = |if_range: &str| ask(server, "/a", &["Range: bytes=1-2", if_range]).status;
        assert_eq!(status(&etag), 206);
        assert_eq!(status(&date), 206);
        assert_eq!(status("If-Range: \"other\""), 200);
        assert_eq!(status("If-Range: Fri, 13 Jul 2012 11:01:20 GMT"), 200);
        assert_eq!(status("If-Range: x"), 200);
    });
}

#[test]
fn ranges_of_a_large_file_are_exact() {
    const SIZE: usize = 5 << 20;
    let body = pattern(SIZE);
    let site = server(
        "location /file/ { alias %%DIR%%/html/; sendfile on; }
         location /mem/ { alias %%DIR%%/html/; sendfile off; }
         location /small/ { alias %%DIR%%/html/; sendfile off; output_buffers 1 4k; }
         location /chunk/ { alias %%DIR%%/html/; sendfile on; sendfile_max_chunk 10k; }",
    )
    .file("html/big", &body);
    on_each_driver(&site, |server| {
        let mut client = server.client();
        for path in ["/file/big", "/mem/big", "/small/big", "/chunk/big"] {
            for (first, last) in [
                (0, 0),
                (1, 70_000),
                (4095, 4096),
                (65_535, 1_000_000),
                (SIZE - 1, SIZE - 1),
                (SIZE - 100_001, SIZE - 2),
                (0, SIZE - 1),
            ] {
                let range = format!("Range: bytes={first}-{last}");
                crate::stage::send(&mut client, path, &[&range]);
                let response = client.response();
                assert_eq!(response.status, 206);
                assert!(response.body == body[first..=last], "{path} {first}-{last}");
            }
            crate::stage::send(&mut client, path, &["Range: bytes=10-99999,2000000-3000000"]);
            let response = client.response();
            let find = |wanted: &[u8]| response.body.windows(wanted.len()).any(|w| w == wanted);
            assert!(find(&body[10..=99_999]) && find(&body[2_000_000..=3_000_000]), "{path}");
        }
    });
}

/// A filter that changes the content takes ranges back; what comes is always all of it.
#[test]
fn ranges_of_what_a_filter_changes() {
    const WHOLE: &str = "abcdefghij";
    let site = site(
        "charset_map koi8-r windows-1251 { C1 E0; C2 E1; }
         charset_map koi8-r utf-8 { C1 D0B0; C2 D0B1; }
         server {
             listen 127.0.0.1:%%PORT%%; root %%DIR%%/html; default_type text/html;
             proxy_set_header Range $slice_range;
             location /one/ { source_charset koi8-r; charset windows-1251; }
             location /many/ { source_charset koi8-r; charset utf-8; }
             location /sub/ { sub_filter gh GH; }
             location /ssi/ { ssi on; }
             location /before/ { add_before_body /plain/a; }
             location /after/ { add_after_body /plain/a; }
             location /gunzip/ { gzip_static always; gunzip on; }
             location /slice/ { slice 4; proxy_pass http://127.0.0.1:%%PORT%%/plain/; }
             location /slice/sub/ {
                 slice 4; proxy_pass http://127.0.0.1:%%PORT%%/plain/; sub_filter gh GH;
             }
             location /slice/ssi/ { slice 4; proxy_pass http://127.0.0.1:%%PORT%%/plain/; ssi on; }
             location /slice/add/ {
                 slice 4; proxy_pass http://127.0.0.1:%%PORT%%/plain/; add_after_body /plain/a;
             }
             location /slice/no/ {
                 slice 4; proxy_pass http://127.0.0.1:%%PORT%%/plain/; max_ranges 0;
             }
         }",
    )
    .file("html/plain/a", WHOLE)
    .file("html/one/a", b"\xc1bcde\xc2ghij")
    .file("html/many/a", b"\xc1bcde\xc2ghij")
    .file("html/sub/a", WHOLE)
    .file("html/ssi/a", WHOLE)
    .file("html/before/a", WHOLE)
    .file("html/after/a", WHOLE)
    .file("html/gunzip/a.gz", crate::gzip::deflated(WHOLE.as_bytes()));
    let changed = [
        ("/many/a", "\u{430}bcde\u{431}ghij"),
        ("/sub/a", "abcdefGHij"),
        ("/ssi/a", WHOLE),
        ("/before/a", "abcdefghijabcdefghij"),
        ("/after/a", "abcdefghijabcdefghij"),
        ("/gunzip/a", WHOLE),
        ("/slice/sub/a", "abcdefGHij"),
        ("/slice/ssi/a", WHOLE),
        ("/slice/add/a", "abcdefghijabcdefghij"),
        ("/slice/no/a", WHOLE),
    ];
    on_each_driver(&site, |server| {
        for range in ["bytes=0-1,6-7", "bytes=6-7", "bytes=9-", "bytes=-2", "bytes=5-2"] {
            for (path, expected) in changed {
                // nginx leaves out the parts before the range's first.
                if asks_nginx() && path.starts_with("/slice/") {
                    continue;
                }
                let exchange = format!("GET {path} HTTP/1.1\nHost: x\nRange: {range}");
                check_on(
                    server,
                    &exchange,
                    &format!("200\n!Accept-Ranges\n!Content-Range\n\n{expected}"),
                );
            }
        }
        // nginx sends the whole.
        if !asks_nginx() {
            let several = ask(server, "/slice/a", &["Range: bytes=0-1,6-7"]);
            assert_eq!((several.status, several.header("Content-Range")), (206, None));
            let last = "Content-Range: bytes 6-7/10\r\n\r\ngh\r\n--";
            assert!(several.text().contains(last), "{several}");
        }
        let exchange = "GET /slice/a HTTP/1.1\nHost: x\nRange: bytes=6-7";
        check_on(server, exchange, "206\nContent-Range: bytes 6-7/10\n\ngh");

        // A conversion that keeps the length is done with what was cut.
        let response = ask(server, "/one/a", &["Range: bytes=0-1,5-6"]);
        assert_eq!(response.status, 206);
        for part in [
            &b"Content-Range: bytes 0-1/10\r\n\r\n\xe0b\r\n"[..],
            b"Content-Range: bytes 5-6/10\r\n\r\n\xe1g\r\n",
        ] {
            let has = response.body.windows(part.len()).any(|bytes| bytes == part);
            assert!(has, "{}", response.body.escape_ascii());
        }
        let length = response.header("content-length").unwrap();
        assert_eq!(length, response.body.len().to_string());
    });
}

/// Scripts of other sites see a response only if it says so, also this one.
#[test]
fn an_unsatisfied_range_has_the_fields_of_the_whole() {
    let site = site(
        "proxy_cache_path %%DIR%%/cache keys_zone=zone:1m;
         add_header Access-Control-Allow-Origin $scheme://a;
         add_header X-Always 1 always;
         expires 1h;
         server {
             listen 127.0.0.1:%%PORT%%; http2 on; root %%DIR%%/html;
             location /cached/ {
                 proxy_pass http://127.0.0.1:%%PORT_1%%/; proxy_cache zone; proxy_cache_valid 1h;
             }
             location /forced/ {
                 proxy_pass http://127.0.0.1:%%PORT_1%%/; proxy_force_ranges on;
                 proxy_set_header Range \"\";
             }
             location /page/ { alias %%DIR%%/html/; error_page 416 /416; }
             location /named/ { alias %%DIR%%/html/; error_page 416 =200 @named; }
             location /416 { return 200 page; }
             location @named { return 200 page; }
         }
         server {
             listen 127.0.0.1:%%PORT_1%%; root %%DIR%%/html; expires off;
             add_header X-Origin 1; add_header Content-Language en;
             add_header_inherit off;
         }",
    )
    .file("html/a", "0123456789");
    on_each_driver(&site, |server| {
        // The second time from the cache.
        for path in ["/a", "/cached/a", "/cached/a", "/forced/a", "/page/a", "/named/a"] {
            let check = |response: Response| {
                eprintln!("{path}: {response}");
                let status = if path == "/named/a" { 200 } else { 416 };
                assert_eq!(response.status, status);
                let only = |name: &str| {
                    let all: Vec<String> = response.all(name).map(str::to_owned).collect();
                    assert!(all.len() <= 1, "{name}: {all:?}");
                    all.concat()
                };
                assert_eq!(only("access-control-allow-origin"), "http://a");
                assert_eq!(only("x-always"), "1");
                assert_eq!(only("cache-control"), "max-age=3600");
                assert!(!only("expires").is_empty());
                assert_eq!(only("content-range"), "bytes */10");
                assert_eq!(only("content-language"), "");
                let from_origin = path.starts_with("/cached") || path.starts_with("/forced");
                assert_eq!(only("x-origin"), if from_origin { "1" } else { "" });
            };
            check(ask(server, path, &["Range: bytes=10-"]));
            let mut client = Http2::to_port(server.port());
            let stream = client.open("GET", path, &[("range", "bytes=10-")], true);
            check(client.response(stream));
        }
    });
}
