//! `brotli`, `zstd` and their `_static`.

use std::io::Read;

use nowait_testkit::{Response, Server, wait};

use crate::stage::{ask, gets, on_each_driver, pattern, refused, server, site, wait_file};

fn plain(response: &Response) -> Vec<u8> {
    let mut out = Vec::new();
    match response.header("content-encoding") {
        Some("br") => {
            let mut reader = brotli_decompressor::Decompressor::new(&response.body[..], 4096);
            reader.read_to_end(&mut out).expect("a whole brotli stream");
        }
        Some("zstd") => {
            let mut context = zstd_safe::DCtx::create();
            let mut input = zstd_safe::InBuffer::around(&response.body);
            let mut left = 1;
            while left > 0 {
                let at = out.len();
                out.reserve(1 << 17);
                let mut room = zstd_safe::OutBuffer::around_pos(&mut out, at);
                left = context.decompress_stream(&mut room, &mut input).expect("a zstd frame");
            }
        }
        Some("gzip") => {
            let mut reader = flate2::read::GzDecoder::new(&response.body[..]);
            reader.read_to_end(&mut out).expect("a whole gzip member");
        }
        None => out = response.body.clone(),
        Some(other) => panic!("{other}"),
    }
    out
}

/// The coding of the answer to this `Accept-Encoding`.
fn coding(server: &Server, target: &str, accept: &str) -> String {
    let answer = ask(server, target, &[&format!("Accept-Encoding: {accept}")]);
    assert!(!plain(&answer).is_empty(), "{target}");
    answer.header("content-encoding").unwrap_or("none").to_owned()
}

#[test]
fn bodies_of_any_size_at_any_level() {
    let locations: String = [0, 1, 4, 6, 9]
        .map(|level| {
            format!("location /br{level}/ {{ alias %%DIR%%/html/; brotli_comp_level {level}; }}\n")
        })
        .into_iter()
        .chain([1, 3, 9, 19].map(|level| {
            format!("location /zstd{level}/ {{ alias %%DIR%%/html/; zstd_comp_level {level}; }}\n")
        }))
        .collect();
    let sizes = [20, 4097, 32_768, 65_537, 262_144, 262_145];
    let site = server(&format!(
        "brotli on; zstd on; default_type text/html;
         {locations}
         location /window/ {{ alias %%DIR%%/html/; brotli_window 1k; brotli_buffers 4 8k; zstd_buffers 4 8k; }}
         location /direct/ {{ alias %%DIR%%/html/; directio 1; }}"
    ));
    let site =
        sizes.iter().fold(site, |site, size| site.file(&format!("html/{size}"), pattern(*size)));
    on_each_driver(&site, |server| {
        for size in sizes {
            for place in ["br0", "br1", "br4", "br6", "br9", "window", "direct"] {
                let answer = ask(server, &format!("/{place}/{size}"), &["Accept-Encoding: br"]);
                assert_eq!(answer.header("content-encoding"), Some("br"), "{place} {size}");
                assert_eq!(answer.header("content-length"), None);
                assert_eq!(answer.header("accept-ranges"), None);
                assert!(answer.header("etag").unwrap().starts_with("W/\""));
                assert!(plain(&answer) == pattern(size), "{place} {size}");
            }
            for place in ["zstd1", "zstd3", "zstd9", "zstd19", "direct"] {
                let answer = ask(server, &format!("/{place}/{size}"), &["Accept-Encoding: zstd"]);
                assert_eq!(answer.header("content-encoding"), Some("zstd"), "{place} {size}");
                assert!(plain(&answer) == pattern(size), "{place} {size}");
            }
        }
    });
}

#[test]
fn clients_that_leave_cost_nothing_but_their_work() {
    let site = server(
        "gzip on; brotli on; zstd on; default_type text/html; gzip_comp_level 9;
         brotli_comp_level 9; zstd_comp_level 15; access_log %%DIR%%/left.log;",
    )
    .file("html/whole", pattern(200_000))
    .file("html/pieces", pattern(2_000_000));
    on_each_driver(&site, |server| {
        for target in ["whole", "pieces"] {
            for name in ["gzip", "br", "zstd"] {
                let lines = format!("GET /{target}?{name} HTTP/1.1\r\nHost: x\r\nAccept-Encoding:");
                for _ in 0..4 {
                    let mut client = server.client();
                    client.send(format!("{lines} {name}\r\n\r\n"));
                    // It has begun.
                    client.read_some(1);
                    client.reset();
                }
                assert_eq!(coding(server, &format!("/{target}"), name), name);
            }
        }
        // All of them have ended, and nothing was left half done.
        wait::until("24 requests that were left", wait::PATIENCE, || {
            let left = server.read("left.log");
            (left.matches("?").count() == 24).then_some(())
        });
    });
}

#[test]
fn which_coding() {
    let site = server(
        "gzip on; gzip_types text/plain; gzip_vary on;
         location / { brotli on; brotli_types text/plain; zstd on; zstd_types text/plain; }
         location /br { brotli on; brotli_types *; alias %%DIR%%/html/a; }
         location /zstd { zstd on; zstd_types text/plain; alias %%DIR%%/html/a; }
         location /html { brotli on; zstd on; alias %%DIR%%/html/a; }
         location /long { brotli on; brotli_types *; brotli_min_length 1k; alias %%DIR%%/html/a; }
         location /if { if ($arg_x) { brotli on; zstd on; } brotli_types *; zstd_types *; alias %%DIR%%/html/a; }",
    )
    .file("html/a", pattern(500));
    on_each_driver(&site, |server| {
        for (target, accept, expected) in [
            ("/a", "br", "br"),
            ("/a", "zstd", "zstd"),
            ("/a", "gzip", "gzip"),
            ("/a", "gzip, deflate, br, zstd", "br"),
            ("/a", "gzip, br;q=0.5, zstd;q=0.6", "zstd"),
            ("/a", "gzip, br;q=0, zstd;q=0", "gzip"),
            ("/a", "deflate", "none"),
            ("/a", "*", "none"),
            ("/br", "zstd, br;q=0.1", "br"),
            ("/zstd", "br, gzip", "gzip"),
            ("/html", "br, zstd", "none"),
            ("/long", "br", "none"),
            ("/if?x=1", "zstd", "zstd"),
            ("/if", "zstd", "none"),
        ] {
            assert_eq!(coding(server, target, accept), expected, "{target} {accept}");
        }
        assert_eq!(ask(server, "/a", &[]).header("vary"), Some("Accept-Encoding"));
        let answer = ask(server, "/a", &["Accept-Encoding: br", "Range: bytes=0-1"]);
        assert_eq!((answer.status, answer.header("vary")), (200, Some("Accept-Encoding")));
    });
}

#[test]
fn files_that_are_compressed_already() {
    let site = server(
        "location / { brotli_static on; zstd_static on; gzip_static on; gzip_vary on; }
         location /always/ { alias %%DIR%%/html/; brotli_static always; }
         location /off/ { alias %%DIR%%/html/; }
         location /both/ { alias %%DIR%%/html/; brotli_static on; brotli on; brotli_types *; }",
    )
    .file("html/a", "plain text that is long enough")
    .file("html/a.br", "in brotli")
    .file("html/a.zst", "in zstd")
    .file("html/a.gz", "in gzip")
    .file("html/b", "only plain")
    .file("html/c", "plain c")
    .file("html/c.gz", "c in gzip");
    on_each_driver(&site, |server| {
        for (target, accept, expected) in [
            ("/a", "br", "in brotli"),
            ("/a", "zstd", "in zstd"),
            ("/a", "gzip", "in gzip"),
            ("/a", "gzip, zstd, br", "in brotli"),
            ("/a", "br;q=0.5, zstd", "in zstd"),
            ("/a", "identity", "plain text that is long enough"),
            ("/b", "br, zstd, gzip", "only plain"),
            ("/c", "br, zstd, gzip", "c in gzip"),
            ("/always/a", "identity", "in brotli"),
            ("/off/a", "br", "plain text that is long enough"),
            ("/both/a", "br", "in brotli"),
        ] {
            let answer = ask(server, target, &[&format!("Accept-Encoding: {accept}")]);
            assert_eq!(answer.text(), expected, "{target} {accept}");
            let coded = !expected.contains("plain");
            assert_eq!(answer.header("content-encoding").is_some(), coded);
        }
        assert_eq!(ask(server, "/a", &[]).header("vary"), Some("Accept-Encoding"));
    });
    gets(&site, &[("/a.br", "200\n!Content-Encoding\n\nin brotli")]);
}

#[test]
fn ratios_are_logged() {
    let site = crate::stage::site(
        "log_format r '$uri $brotli_ratio $zstd_ratio $gzip_ratio';
         server {
             listen 127.0.0.1:%%PORT%%; root %%DIR%%/html; access_log %%DIR%%/ratios.log r;
             brotli on; zstd on; brotli_types *; zstd_types *;
         }",
    )
    .file("html/a", "x".repeat(10_000));
    on_each_driver(&site, |server| {
        assert_eq!(coding(server, "/a", "br"), "br");
        assert_eq!(coding(server, "/a?2", "zstd"), "zstd");
        ask(server, "/none", &[]);
        let log = wait_file(server, "ratios.log", "/none");
        let lines: Vec<Vec<&str>> = log.lines().map(|line| line.split(' ').collect()).collect();
        let number = |text: &str| text.parse::<f64>().is_ok_and(|ratio| ratio > 10.0);
        assert!(number(lines[0][1]) && lines[0][2] == "-" && lines[0][3] == "-", "{log}");
        assert!(lines[1][1] == "-" && number(lines[1][2]), "{log}");
        assert_eq!(lines[2][1..], ["-", "-", "-"]);
    });
}

#[test]
fn a_dictionary_may_be_given() {
    let text = pattern(3000);
    let text = &text;
    let site = site(
        "zstd_dict_file known;
         server {
             listen 127.0.0.1:%%PORT%%;
             root %%DIR%%/html;
             zstd on;
             zstd_types *;
         }",
    )
    .file("known", text)
    .file("html/a", text)
    .file("html/long", text.repeat(50));
    on_each_driver(&site, |server| {
        for (target, text) in [("/a", text.clone()), ("/long", text.repeat(50))] {
            let answer = ask(server, target, &["Accept-Encoding: zstd"]);
            assert_eq!(answer.header("content-encoding"), Some("zstd"));
            assert!(answer.body.len() < 500, "{}", answer.body.len());
            let mut context = zstd_safe::DCtx::create();
            context.load_dictionary(&pattern(3000)).unwrap();
            let mut out = Vec::with_capacity(text.len());
            context.decompress(&mut out, &answer.body).unwrap();
            assert!(out == text, "{target}");
        }
    });
}

#[test]
fn mistakes_are_told() {
    let dictionary =
        |lines: &str| site(&format!("{lines} server {{ listen 127.0.0.1:%%PORT%%; }}"));
    let missing = "/none\" failed (2: No such file or directory)";
    refused(&dictionary("zstd_dict_file none;"), missing);
    refused(&dictionary("zstd_dict_file empty;").file("empty", ""), "is empty");
    refused(&server("zstd_dict_file x;"), "\"zstd_dict_file\" directive is not allowed here");
    refused(&server("brotli_comp_level 12;"), "value must be between 0 and 11");
    refused(&server("zstd_comp_level 0;"), "value must be between 1 and 22");
    refused(&server("brotli_window 3k;"), "must be a power of two from 1k to 16m");
    refused(&server("brotli_static maybe;"), "invalid value \"maybe\"");
}
