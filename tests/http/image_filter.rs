//! `image_filter`. How pixels change is tested with the crate; here it is what clients see.

use std::io::Write as _;

use flate2::write::ZlibEncoder;
use flate2::{Compression, Crc};

use crate::stage::{ask, asks_nginx, on_each_driver, refused, server};

/// A PNG image.
pub fn png(width: u32, height: u32) -> Vec<u8> {
    let row = [&[0][..], &[200, 100, 50].repeat(width as usize)].concat();
    let mut data = ZlibEncoder::new(Vec::new(), Compression::fast());
    data.write_all(&row.repeat(height as usize)).unwrap();
    let head = [&width.to_be_bytes()[..], &height.to_be_bytes(), &[8, 2, 0, 0, 0]].concat();
    let chunks = [("IHDR", head), ("IDAT", data.finish().unwrap()), ("IEND", Vec::new())];
    let mut out = b"\x89PNG\r\n\x1a\n".to_vec();
    for (name, data) in chunks {
        let mut crc = Crc::new();
        crc.update(name.as_bytes());
        crc.update(&data);
        out.extend(u32::try_from(data.len()).unwrap().to_be_bytes());
        out.extend(name.as_bytes());
        out.extend(data);
        out.extend(crc.sum().to_be_bytes());
    }
    out
}

/// Width and height of a PNG image.
fn size(image: &[u8]) -> (u32, u32) {
    assert!(image.starts_with(b"\x89PNG"), "{}", image.escape_ascii());
    let number = |at: usize| u32::from_be_bytes(*image[at..].first_chunk().unwrap());
    (number(16), number(20))
}

#[test]
fn images_become_smaller() {
    let image = png(80, 40);
    let builder = server(
        "location /resize/ { image_filter resize 20 -; alias %%DIR%%/html/; }
        location /crop/ { image_filter crop $arg_w $arg_h; alias %%DIR%%/html/; }
        location /turn/ { image_filter rotate 90; alias %%DIR%%/html/; }
        location /both/ { image_filter resize 20 20; image_filter rotate $arg_r;
            alias %%DIR%%/html/;
            location /both/off/ { image_filter off; alias %%DIR%%/html/; }
            location /both/inherited/ { alias %%DIR%%/html/; } }
        location /sharp/ { image_filter resize 10 10; image_filter_sharpen 50;
            alias %%DIR%%/html/; }",
    )
    .file("html/a.png", image.clone());
    on_each_driver(&builder, |server| {
        for (target, expected) in [
            ("/resize/a.png", (20, 10)),
            ("/crop/a.png?w=20&h=20", (20, 20)),
            ("/turn/a.png", (40, 80)),
            ("/both/a.png?r=90", (10, 20)),
            ("/both/a.png?r=180", (20, 10)),
            ("/both/a.png?r=45", (20, 10)),
            ("/both/inherited/a.png?r=270", (10, 20)),
            ("/sharp/a.png", (10, 5)),
        ] {
            let response = ask(server, target, &["Range: bytes=0-3"]);
            assert_eq!(response.status, 200, "{target}");
            assert_eq!(size(&response.body), expected, "{target}");
            assert_eq!(response.header("content-type"), Some("image/png"));
            assert_eq!(response.header("accept-ranges"), None);
            assert!(response.header("last-modified").is_some());
            assert!(response.header("etag").unwrap().starts_with("W/\""), "{target}");
            let length = response.body.len().to_string();
            assert_eq!(response.header("content-length"), Some(length.as_str()));
            let mut client = server.client();
            client.send(format!("HEAD {target} HTTP/1.1\r\nHost: x\r\n\r\n"));
            let head = client.response_to_head();
            assert_eq!(head.header("content-length"), Some(length.as_str()));
        }
        // They fit already.
        for target in ["/crop/a.png?w=80&h=40", "/crop/a.png?w=-&h=100", "/both/off/a.png"] {
            let response = ask(server, target, &[]);
            assert_eq!(response.body, image, "{target}");
            assert!(response.header("etag").unwrap().starts_with('"'), "{target}");
        }
        let etag = ask(server, "/both/off/a.png", &[]).header("etag").unwrap().to_owned();
        for etag in [etag.clone(), format!("W/{etag}")] {
            let condition = format!("If-None-Match: {etag}");
            assert_eq!(ask(server, "/resize/a.png", &[&condition]).status, 304);
        }
        for target in ["/crop/a.png?w=20", "/crop/a.png?w=0&h=1", "/crop/a.png?w=x&h=1"] {
            assert_eq!(ask(server, target, &[]).status, 415, "{target}");
        }
    });
}

#[test]
fn images_are_checked_and_described() {
    let image = png(80, 40);
    let builder = server(
        "location /test/ { image_filter test; alias %%DIR%%/html/; }
        location /size/ { image_filter size; alias %%DIR%%/html/; }
        location /other/ { image_filter test; error_page 415 = /instead; alias %%DIR%%/html/; }
        location /instead { return 200 instead; }",
    )
    .file("html/a.txt", image.clone())
    .file("html/short.png", &image[..20])
    .file("html/text.png", "this is just a text")
    .file("html/empty.png", "");
    on_each_driver(&builder, |server| {
        let passed = ask(server, "/test/a.txt", &["Range: bytes=0-3"]);
        assert_eq!((passed.status, &passed.body), (200, &image));
        assert_eq!(passed.header("content-type"), Some("image/png"));
        assert_eq!(passed.header("accept-ranges"), None);
        assert_eq!(ask(server, "/test/short.png", &[]).status, 200);
        let described = ask(server, "/size/a.txt", &[]);
        assert_eq!(described.header("content-type"), Some("application/json"));
        assert_eq!(described.header("etag"), None);
        let expected = "{ \"img\" : { \"width\": 80, \"height\": 40, \"type\": \"png\" } }\r\n";
        assert_eq!(described.text(), expected);
        for name in ["short", "text", "empty", "none"] {
            assert_eq!(ask(server, &format!("/size/{name}.png"), &[]).text(), "{}\r\n", "{name}");
        }
        for name in ["text", "empty"] {
            assert_eq!(ask(server, &format!("/test/{name}.png"), &[]).status, 415, "{name}");
            assert_eq!(ask(server, &format!("/other/{name}.png"), &[]).text(), "instead");
        }
        assert_eq!(ask(server, "/test/none.png", &[]).status, 415);
    });
}

#[test]
fn limits_come_before_work() {
    let mut many = png(10, 10);
    many[16..20].copy_from_slice(&16_000_u32.to_be_bytes());
    many[20..24].copy_from_slice(&16_000_u32.to_be_bytes());
    let mut crc = Crc::new();
    crc.update(&many[12..29]);
    many[29..33].copy_from_slice(&crc.sum().to_be_bytes());
    let mut broken = png(100, 100);
    let end = broken.len() - 20;
    broken.truncate(end);
    let builder = server(
        "location / { image_filter resize 10 10; image_filter_buffer 2k; }
        location /proxy/ { image_filter resize 10 10; image_filter_buffer 2k;
            proxy_pass http://127.0.0.1:%%PORT%%/chunked/; }
        location /chunked/ { image_filter off; ssi on; ssi_types *; alias %%DIR%%/html/; }",
    )
    .file("html/many.png", many)
    .file("html/broken.png", broken)
    .file("html/large.png", [&png(20, 20)[..], &[0; 2048]].concat())
    .file("html/fine.png", png(100, 100));
    on_each_driver(&builder, |server| {
        assert_eq!(size(&ask(server, "/fine.png", &[]).body), (10, 10));
        assert_eq!(size(&ask(server, "/proxy/fine.png", &[]).body), (10, 10));
        for name in ["many", "broken", "large", "proxy/large"] {
            assert_eq!(ask(server, &format!("/{name}.png"), &[]).status, 415, "{name}");
        }
        server.wait_log("image filter: too big response");
        if !asks_nginx() {
            server.wait_log("image filter: too many pixels: 16000 x 16000");
            server.wait_log("image filter: broken png image: ");
        }
    });
}

#[test]
fn wrong_settings_are_refused() {
    for (setting, reason) in [
        ("image_filter shrink;", "invalid parameter \"shrink\""),
        ("image_filter resize 10;", "invalid parameter \"resize\""),
        ("image_filter resize 10 0;", "invalid parameter \"0\""),
        ("image_filter rotate 45;", "invalid parameter \"45\""),
        ("image_filter test 1;", "invalid parameter \"test\""),
        ("image_filter_jpeg_quality 0;", "invalid value \"0\""),
    ] {
        refused(&server(&format!("location / {{ {setting} }}")), reason);
    }
}
