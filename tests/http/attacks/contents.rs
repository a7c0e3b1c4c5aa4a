//! Files and contents of upstream servers that filters misread.

use nowait_testkit::movie::{Track, movie, play};
use nowait_testkit::origin::Step;
use nowait_testkit::{Driver, Origin};

use super::{pieces, with_origin};
use crate::image_filter::png;
use crate::passing::{Gate, wait_received};
use crate::stage::{ask, on_each_driver, server, site};

/// CVE-2024-7347, CVE-2026-27784, CVE-2026-32647: tables of MP4 files that are empty, not in order, or lead
/// to samples before the first one.
#[test]
fn movies_with_impossible_tables() {
    let file = movie(&[Track::video(10, 8, &[10, 7]), Track::sound(50, 8, &[40, 60])], true);
    let mut files = Vec::new();
    for name in ["stts", "stsc", "stsz", "stco", "stss", "mdhd", "mdat"] {
        let place = file.windows(4).position(|of| of == name.as_bytes()).unwrap();
        // The size of the atom, the number of entries, and the first entries.
        for at in [place - 4, place + 8, place + 12, place + 16, place + 24] {
            for number in [0_u32, 2, 0x8000_0000, 0xffff_ffff] {
                let mut broken = file.clone();
                broken[at..at + 4].copy_from_slice(&number.to_be_bytes());
                files.push(broken);
            }
        }
    }
    let mut builder = server("location / { mp4; }").file("html/whole.mp4", &file);
    for (n, file) in files.iter().enumerate() {
        builder = builder.file(&format!("html/{n}.mp4"), file);
    }
    on_each_driver(&builder, |server| {
        server.allow_log("mp4");
        let mut client = server.client();
        for n in 0..files.len() {
            for arguments in ["start=0.5", "start=7.9&end=8", "end=3"] {
                client.send_get(&format!("/{n}.mp4?{arguments}"));
                let response = match client.try_response(false) {
                    Ok(response) => response,
                    Err(why) => panic!("{n} {arguments}: {why}"),
                };
                assert!(
                    matches!(response.status, 200 | 500),
                    "{n} {arguments}: {}",
                    response.status
                );
                assert!(response.body.len() <= file.len() + 4096, "{n} {arguments}");
                if response.header("connection") == Some("close") {
                    client = server.client();
                }
            }
        }
        let part = ask(server, "/whole.mp4?start=1&end=2", &[]).body;
        assert_eq!(play(&part)[0].samples.len(), 10);
    });
}

/// nginx until 1.31.3: an image that ends early, and of unknown length.
#[test]
fn images_that_end_early() {
    let image = png(40, 40);
    let cuts = [0, 4, 8, 16, 20, 24, 29, 33, 41, 60, image.len() - 1, image.len()];
    let others: [&[u8]; 5] = [
        b"\xff\xd8\xff\xe0\0\x10JFIF",
        b"\xff\xd8\xff\xc0\0",
        b"GIF89a",
        b"GIF89a\x10\0\x10\0\xf7",
        b"RIFF\xff\xff\xff\xffWEBPVP8 ",
    ];
    let texts: Vec<&[u8]> = cuts.iter().map(|at| &image[..*at]).chain(others).collect();
    let head = b"HTTP/1.1 200 OK\r\nContent-Type: image/png\r\n\r\n";
    let scripts = || {
        let script = |text: &&[u8]| pieces("\r\n\r\n", [&head[..], text]);
        texts.iter().map(script).chain(texts.iter().map(script)).collect()
    };
    let http = "server { listen 127.0.0.1:%%PORT%%; image_filter_buffer 1m;
        location /resize { proxy_pass http://ORIGIN; image_filter resize 20 -; }
        location /size { proxy_pass http://ORIGIN; image_filter size; } }";
    with_origin(scripts, http, |server, _| {
        server.allow_log("image");
        for (n, text) in texts.iter().enumerate() {
            let response = ask(server, "/resize", &[]);
            match text.len() {
                // All pixels are there; the last chunk says nothing of them.
                length if text.starts_with(&image[..100]) && length < image.len() => {
                    assert!(matches!(response.status, 200 | 415), "{n}: {length}");
                }
                length if length == image.len() => assert_eq!(response.status, 200),
                length => assert_eq!(response.status, 415, "{n}: {length}"),
            }
        }
        for _ in &texts {
            assert_eq!(ask(server, "/size", &[]).status, 200);
        }
    });
}

/// CVE-2026-42934 and CVE-2026-48142: characters of UTF-8 that arrive in pieces, or not at all.
#[test]
fn characters_in_pieces() {
    let texts: [&[u8]; 16] = [
        "aаб€z".as_bytes(),
        "😀а".as_bytes(),
        b"\xe2\x82",
        b"\xe2\x82x",
        b"\xf0\x9f\x98",
        b"\xf0\x9f\x98x",
        b"\xf0\x9f\x98\xd0\xb0",
        b"\xf0\x9fx\x98\x80",
        b"\xc3(",
        b"\x80\x80\x80\x80\x80",
        b"\xff\xfe\xfd",
        b"\xed\xa0\x80",
        b"\xf4\x90\x80\x80",
        b"\xc0\xaf\xd0",
        b"\xe0\x80\x80\xd0\xb1",
        b"\xf8\x88\x80\x80\x80",
    ];
    let head = "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\n\r\n";
    let sizes = [1, 2, 3];
    let answer = |text: &[u8], size: usize| {
        let chunk =
            |part: &[u8]| [format!("{:x}\r\n", part.len()).as_bytes(), part, b"\r\n"].concat();
        let mut steps = vec![Step::expect("\r\n\r\n"), Step::reply(head)];
        steps.extend(text.chunks(size).map(|part| Step::reply(chunk(part))));
        steps.push(Step::reply("0\r\n\r\n"));
        steps.push(Step::HalfClose);
        steps
    };
    let scripts = || {
        let each = |text: &&[u8]| {
            let text = *text;
            [text.len()].into_iter().chain(sizes).map(|size| answer(text, size)).collect::<Vec<_>>()
        };
        texts.iter().flat_map(each).collect()
    };
    let http = "charset_map koi8-r utf-8 { C1 D0B0; C2 D0B1; }
        server { listen 127.0.0.1:%%PORT%%; proxy_buffering off; charset_types *;
            location / { proxy_pass http://ORIGIN; source_charset utf-8; charset koi8-r; } }";
    with_origin(scripts, http, |server, _| {
        for text in texts {
            let whole = ask(server, "/", &[]).body;
            // Nothing of the memory around it.
            assert!(whole.len() <= 8 * text.len().max(1), "{text:?} {whole:?}");
            for size in sizes {
                assert_eq!(ask(server, "/", &[]).body, whole, "{text:?} by {size}");
            }
        }
    });
}

/// nginx until 1.29.7 (found by OSS-Fuzz): a charset that is only a quotation mark, also in interim responses.
#[test]
fn charsets_that_are_none() {
    let kinds = [
        "text/html; charset=\"",
        "text/html; charset=",
        "text/html; charset=\"\"",
        "text/html;charset",
        "; charset=\"",
    ];
    let responses: Vec<String> = kinds
        .iter()
        .map(|kind| {
            let early = format!("HTTP/1.1 103 Early Hints\r\nContent-Type: {kind}\r\n\r\n");
            format!(
                "{early}{early}HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Type: {kind}\r\n\
                 Content-Length: 2\r\n\r\nok"
            )
        })
        .collect();
    let scripts = || responses.iter().map(|text| pieces("\r\n\r\n", [text])).collect();
    let http = "charset_map koi8-r utf-8 { C1 D0B0; }
        server { listen 127.0.0.1:%%PORT%%; early_hints 1; location / { proxy_pass http://ORIGIN;
            charset utf-8; source_charset koi8-r; override_charset on; charset_types *; } }";
    with_origin(scripts, http, |server, _| {
        for kind in kinds {
            let mut client = server.client();
            client.send_get("/");
            let mut response = client.response();
            while response.status == 103 {
                response = client.response();
            }
            assert!(response.status == 502 || response.text() == "ok", "{kind}: {response}");
        }
    });
}

/// CVE-2026-56434: a page that is passed on unbuffered while its includes wait for each other.
#[test]
fn includes_of_an_unbuffered_page() {
    let first = "A<!--#include virtual=\"/slow\" -->B<!--#include virtual=\"/quick\" -->";
    let second = "C<!--#include virtual=\"/quick\" --><!--#include virtual=\"/none\" -->D";
    let head = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: {}\r\n\r\n",
        first.len() + second.len()
    );
    let slow = "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nslow";
    for page_first in [true, false] {
        for driver in [Driver::Epoll, Driver::IoUring] {
            let (more, answer) = (Gate::default(), Gate::default());
            let page = vec![
                Step::expect("\r\n\r\n"),
                Step::reply(format!("{head}{first}")),
                more.step(),
                Step::reply(second),
            ];
            let origin = Origin::start([
                page,
                vec![Step::expect("\r\n\r\n"), answer.step(), Step::reply(slow)],
            ]);
            let server = site(&format!(
                "server {{ listen 127.0.0.1:%%PORT%%; proxy_buffering off;
                     location /page {{ ssi on; proxy_pass http://{0}; }}
                     location /slow {{ proxy_pass http://{0}; }}
                     location /quick {{ return 200 quick; }}
                     location /none {{ return 404; }} }}",
                origin.addr()
            ));
            let server = server.driver(driver).start();
            let mut client = server.client();
            client.send_get("/page");
            wait_received(&origin, "GET /slow");
            match page_first {
                true => {
                    more.open();
                    answer.open();
                }
                false => {
                    answer.open();
                    more.open();
                }
            }
            let text = client.response().text().to_owned();
            assert!(text.starts_with("AslowBquickCquick") && text.ends_with('D'), "{text}");
            assert_eq!(server.get("/quick").text(), "quick");
            server.stop();
            origin.finish();
        }
    }
}

/// Line ends in a key are no commands to memcached.
#[test]
fn keys_that_are_commands() {
    let scripts = || vec![pieces("\r\n", ["END\r\n"])];
    let http = "server { listen 127.0.0.1:%%PORT%%;
        location / { set $memcached_key \"$uri?$args\"; memcached_pass ORIGIN; } }";
    with_origin(scripts, http, |server, origin| {
        server.allow_log("key");
        let target = "/a%0d%0aset%20x%200%200%201%0d%0ay%0d%0a";
        assert_eq!(ask(server, target, &[]).status, 404);
        let asked = String::from_utf8(origin.received()[0].clone()).unwrap();
        assert_eq!(asked, "get /a%0D%0Aset%20x%200%200%201%0D%0Ay%0D%0A?\r\n");
    });
}
