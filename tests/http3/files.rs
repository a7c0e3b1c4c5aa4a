//! Files: lengths around the bounds of buffers and datagrams, ranges, conditions.

use crate::stage::{http3, on_each_driver, pattern, server, with_table};

/// Around a datagram, a buffer, a window, and beyond what goes at once.
const LENGTHS: &[usize] =
    &[0, 1, 63, 64, 1199, 1200, 1201, 16_383, 16_384, 16_385, 65_535, 65_536, 65_537, 1 << 20];

#[test]
fn every_length_arrives_whole() {
    let mut builder = server("location /aio { alias %%DIR%%/html; aio threads; }");
    for len in LENGTHS {
        builder = builder.file(&format!("html/{len}"), pattern(*len));
    }
    on_each_driver(&builder, |server| {
        let mut http3 = http3(server);
        for len in LENGTHS {
            for path in [format!("/{len}"), format!("/aio/{len}")] {
                let response = http3.get(&path);
                assert_eq!(response.status, 200, "{path}");
                assert_eq!(response.header("content-length"), Some(&len.to_string()[..]));
                assert!(response.body == pattern(*len), "{path}");
                let head = http3.request("HEAD", &path, &[], b"");
                assert_eq!((head.status, head.body.len()), (200, 0));
                assert_eq!(head.header("content-length"), Some(&len.to_string()[..]));
            }
        }
    });
}

#[test]
fn a_large_file_is_sent_at_the_pace_of_the_client() {
    let content = pattern(20 << 20);
    let builder = server("").file("html/large", &content).file("html/small", "small");
    on_each_driver(&builder, |server| {
        let mut http3 = http3(server);
        let large = http3.open("GET", "/large", &[], true);
        http3.until("a part of the large file", |http3| http3.exchange(large).body.len() > 1 << 20);
        assert_eq!(http3.get("/small").text(), "small");
        assert!(http3.response(large).body == content);
    });
}

#[test]
fn a_client_that_takes_nothing_gets_everything_later() {
    let content = pattern(4 << 20);
    let builder = server("").file("html/large", &content).file("html/small", "small");
    on_each_driver(&builder, |server| {
        let mut slow = http3(server);
        slow.quic.take_nothing();
        let large = slow.open("GET", "/large", &[], true);
        slow.quic.for_time(std::time::Duration::from_millis(300));
        assert_eq!(http3(server).get("/small").text(), "small");
        slow.quic.take();
        assert!(slow.response(large).body == content);
    });
}

#[test]
fn ranges_and_conditions() {
    let builder = server("").file("html/ten", "0123456789");
    on_each_driver(&builder, |server| {
        let mut http3 = http3(server);
        let whole = http3.get("/ten");
        let etag = whole.header("etag").unwrap().to_owned();
        let part = http3.request("GET", "/ten", &[("range", "bytes=2-4")], b"");
        assert_eq!((part.status, &part.body[..]), (206, &b"234"[..]));
        assert_eq!(part.header("content-range"), Some("bytes 2-4/10"));
        let parts = http3.request("GET", "/ten", &[("range", "bytes=0-0,9-9")], b"");
        assert_eq!(parts.status, 206);
        assert!(parts.header("content-type").unwrap().starts_with("multipart/byteranges"));
        assert!(parts.text().contains("\r\n\r\n9\r\n"), "{parts}");
        let none = http3.request("GET", "/ten", &[("range", "bytes=10-")], b"");
        assert_eq!(none.status, 416);
        let same = http3.request("GET", "/ten", &[("if-none-match", &etag)], b"");
        assert_eq!((same.status, same.body.len()), (304, 0));
        let other = http3.request("GET", "/ten", &[("if-match", "\"other\"")], b"");
        assert_eq!(other.status, 412);
        assert_eq!(http3.get("/missing").status, 404);
    });
}

#[test]
fn fields_repeat_with_and_without_a_table() {
    let content = "add_header X-Long aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa;\
                   add_header X-Each $request_id;";
    let builder = server(content).file("html/page", "page");
    on_each_driver(&builder, |server| {
        for (capacity, blocked) in [(0, 0), (4096, 0), (4096, 16), (64, 4), (220, 100)] {
            eprintln!("capacity {capacity}, {blocked} blocked");
            let mut http3 = with_table(server, capacity, blocked);
            http3.settings();
            for _ in 0..20 {
                let page = http3.get("/page");
                assert_eq!((page.status, page.text()), (200, "page".into()));
                assert_eq!(page.header("x-long").unwrap().len(), 67);
                assert_eq!(page.header("x-each").unwrap().len(), 32);
            }
            assert!(capacity > 0 || http3.inserted() == 0);
        }
    });
}
