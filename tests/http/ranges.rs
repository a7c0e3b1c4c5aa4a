//! `Range`, `If-Range`, `max_ranges`: RFC 9110, section 14.

use nowait_testkit::check_on;

use crate::stage::{ask, on_each_driver, pattern, server};

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
