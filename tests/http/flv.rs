//! `flv`.

use crate::stage::{ask, on_each_driver, server};

/// What precedes the rest of a file.
const HEADER: &[u8] = b"FLV\x01\x05\0\0\0\x09\0\0\0\0";

#[test]
fn files_from_a_position_on() {
    let content: Vec<u8> = (0..100).flat_map(|n| format!("{n:04}......").into_bytes()).collect();
    let builder = server("location / { flv; index index.html; }")
        .file("html/a.flv", content.clone())
        .file("html/index.html", "index");
    let from = |at: usize| [HEADER, &content[at..]].concat();
    on_each_driver(&builder, |server| {
        for (target, expected) in [
            ("/a.flv", content.clone()),
            ("/a.flv?start=990", from(990)),
            ("/a.flv?x=1&start=1", from(1)),
            ("/a.flv?start=0", content.clone()),
            ("/a.flv?start=1000", content.clone()),
            ("/a.flv?start=-1", content.clone()),
            ("/a.flv?start=99999999999999999999999999", content.clone()),
            ("/a.flv?start=", content.clone()),
        ] {
            let response = ask(server, target, &[]);
            assert_eq!((response.status, response.body), (200, expected), "{target}");
        }
        for (range, at, content_range) in [
            ("bytes=0-9", 0..10, "bytes 0-9/913"),
            ("bytes=10-19", 10..20, "bytes 10-19/913"),
            ("bytes=13-13", 13..14, "bytes 13-13/913"),
            ("bytes=-10", 903..913, "bytes 903-912/913"),
        ] {
            let response = ask(server, "/a.flv?start=100", &[&format!("Range: {range}")]);
            assert_eq!(response.status, 206, "{range}");
            assert_eq!(response.header("content-range"), Some(content_range));
            assert_eq!(response.body, from(100)[at], "{range}");
        }
        let several = ask(server, "/a.flv?start=100", &["Range: bytes=5-20,900-"]);
        let text = several.text();
        assert_eq!(several.status, 206);
        assert!(text.contains("\r\n\r\n\0\0\0\x09\0\0\0\x000010....\r\n"), "{text:?}");
        assert!(text.contains("\r\n\r\n...0099......\r\n"), "{text:?}");
        // Directories are left to others.
        assert_eq!(ask(server, "/", &[]).text(), "index");
        assert_eq!(ask(server, "/none", &[]).status, 404);
        let mut client = server.client();
        client.send("POST /a.flv HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n");
        assert_eq!(client.response().status, 405);
    });
}
