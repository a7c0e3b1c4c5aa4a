//! `sub_filter`.

use crate::stage::{ask, exchanges, gets, on_each_driver, pattern, refused, server, site};

#[test]
fn strings_are_replaced() {
    let site = server(
        "default_type text/html;
         location / { sub_filter foo bar; }
         location /all { sub_filter foo bar; sub_filter_once off; alias %%DIR%%/html/text; }
         location /several {
             sub_filter foo [$uri]; sub_filter oo never; sub_filter Z ''; sub_filter_once off;
             alias %%DIR%%/html/text;
         }
         location /each-once {
             sub_filter foo 1; sub_filter Z 2; alias %%DIR%%/html/text;
         }
         location /variable {
             sub_filter $arg_a [$arg_b]; sub_filter '$arg_c' x; sub_filter_once off;
             alias %%DIR%%/html/text;
         }
         location /outer {
             sub_filter foo outer;
             location /outer/inner { alias %%DIR%%/html/text; }
             location /outer/own { sub_filter Z own; alias %%DIR%%/html/text; }
         }
         location /return { sub_filter foo bar; return 200 'a foo'; }
         location /404 { sub_filter 'not found' 'gone'; return 404; }",
    )
    .file("html/text", "foo Foo zZ ofoo")
    .file("html/none", "nothing");
    gets(
        &site,
        &[
            (
                "/text",
                "200\n!Content-Length\n!Last-Modified\n!ETag\n!Accept-Ranges\n\nbar Foo zZ ofoo",
            ),
            ("/none", "200\n!Content-Length\n\nnothing"),
            ("/all", "200\n\nbar bar zZ obar"),
            ("/several", "200\n\n[/several] [/several]  o[/several]"),
            ("/each-once", "200\n\n1 Foo 2Z ofoo"),
            ("/variable?a=FOO&b=b", "200\n\n[b] [b] zZ o[b]"),
            ("/variable?c=z", "200\n\nfoo Foo xx ofoo"),
            ("/variable", "200\nContent-Length: 15\n\nfoo Foo zZ ofoo"),
            ("/outer/inner", "200\n\nouter Foo zZ ofoo"),
            ("/outer/own", "200\n\nfoo Foo ownZ ofoo"),
            ("/return", "200\n\na bar"),
            ("/404", "404\n\n<html>*gone*"),
        ],
    );
}

#[test]
fn which_responses() {
    let site = server(
        "sub_filter foo bar;
         location /types { sub_filter_types text/plain; alias %%DIR%%/html/text; }
         location /any { sub_filter_types *; default_type x/y; alias %%DIR%%/html/text; }
         location /no-type { types { } default_type ''; sub_filter_types *; alias %%DIR%%/html/text; }
         location /no-type/one { types { } default_type ''; alias %%DIR%%/html/text; }
         location /html { default_type text/html; sub_filter_last_modified on; alias %%DIR%%/html/text; }
         location /empty { default_type text/html; }",
    )
    .file("html/text", "foo")
    .file("html/empty", "");
    gets(
        &site,
        &[
            ("/text", "200\nContent-Length: 3\n\nfoo"),
            ("/types", "200\n\nbar"),
            ("/any", "200\n\nbar"),
            ("/no-type", "200\n!Content-Type\n\nbar"),
            ("/no-type/one", "200\n!Content-Type\n\nfoo"),
            ("/html", "200\nLast-Modified: *\nETag: W/*\n\nbar"),
            ("/empty", "200\nContent-Length: 0\nETag: \"*\n\n"),
        ],
    );
    exchanges(
        &site,
        &[
            ("GET /types HTTP/1.1\nHost: a\nRange: bytes=0-0", "200\n!Accept-Ranges\n\nbar"),
            ("HEAD /types HTTP/1.1\nHost: a", "200\n!Content-Length"),
            ("GET /types HTTP/1.0\nHost: a", "200\n\nbar"),
        ],
    );
}

#[test]
fn long_texts() {
    let mut text = pattern(200_000);
    for at in [0, 4094, 32_766, 65_535, 131_070, 199_994] {
        text[at..at + 6].copy_from_slice(b"<HERE>");
    }
    let expected = String::from_utf8(text.clone()).unwrap().replace("<HERE>", "there");
    let builder = site(
        "server {
             listen 127.0.0.1:%%PORT%%; root %%DIR%%/html; default_type text/html;
             sub_filter <here> there; sub_filter_once off;
             location /gzip { gzip on; alias %%DIR%%/html/big; }
             location /ssi { ssi on; alias %%DIR%%/html/page; }
         }",
    )
    .file("html/big", &text)
    .file("html/page", "<!--#echo var='<here>' default='x' -->|<!--#include virtual='/one' -->")
    .file("html/one", "1<here>");
    on_each_driver(&builder, |server| {
        let answer = ask(server, "/big", &[]);
        assert!(answer.body == expected.as_bytes(), "{} bytes", answer.body.len());
        let answer = ask(server, "/gzip", &["Accept-Encoding: gzip"]);
        let mut whole = Vec::new();
        let mut reader = flate2::read::GzDecoder::new(&answer.body[..]);
        std::io::Read::read_to_end(&mut reader, &mut whole).unwrap();
        assert!(whole == expected.as_bytes());
        // Commands come after replacements, also in what is included.
        assert_eq!(ask(server, "/ssi", &[]).text(), "x|1there");
    });
}

#[test]
fn mistakes_are_told() {
    refused(&server("sub_filter '' x;"), "empty search pattern");
    let many: String = (0..256).map(|n| format!("sub_filter a{n} b;\n")).collect();
    refused(&server(&many), "number of search patterns exceeds 255");
}
