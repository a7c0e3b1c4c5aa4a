//! `add_before_body`, `add_after_body` and `addition_types`.

use crate::stage::{ask, asks_nginx, gets, on_each_driver, server, site, wait_file};

#[test]
fn text_is_put_around_bodies() {
    let site = server(
        "default_type text/html;
         location / { add_before_body /before; add_after_body /after; }
         location /only-before { add_before_body /before; }
         location /only-after { add_after_body /text?x; }
         location /plain { default_type text/plain; add_before_body /before; }
         location /all {
             default_type text/plain; addition_types text/plain; add_before_body /text;
         }
         location /any { default_type x/y; addition_types *; add_before_body /text; }
         location /all/off { add_before_body \"\"; }
         location /before { return 200 before-; }
         location /after { return 200 -after; }
         location /text { return 200 '[$uri $args $request_uri]'; }
         location /missing { add_after_body /none; }
         location /none { return 404; }
         location /moved { add_after_body /after; return 301 /x; }",
    )
    .file("html/a", "body")
    .file("html/empty", "")
    .file("html/only-before", "body")
    .file("html/only-after", "body")
    .file("html/plain", "body")
    .file("html/all", "body")
    .file("html/any", "body")
    .file("html/missing", "body");
    gets(
        &site,
        &[
            ("/a", "200\n!Content-Length\n!Accept-Ranges\nETag: W/*\n\nbefore-body-after"),
            ("/empty", "200\n\nbefore--after"),
            ("/only-before", "200\n\nbefore-body"),
            ("/only-after", "200\n\nbody[/text?x  /only-after]"),
            ("/plain", "200\nContent-Length: 4\n\nbody"),
            ("/all?q", "200\n\n[/text  /all?q]body"),
            ("/any", "200\n\n[/text  /any]body"),
            ("/missing", "200\n\nbody<html>*404 Not Found*"),
            ("/moved", "301\nContent-Length: *"),
            ("/none", "404\nContent-Length: *"),
        ],
    );
    on_each_driver(&site, |server| {
        assert_eq!(ask(server, "/a", &["Range: bytes=0-1"]).text(), "before-body-after");
    });
}

#[test]
fn what_is_added_may_have_additions_of_its_own_only_in_the_main_request() {
    let site = server(
        "default_type text/html;
         location / { add_before_body /inner; }
         location /inner { add_before_body /inner; add_header X-Inner yes; }",
    )
    .file("html/a", "body")
    .file("html/inner", "inner ");
    gets(&site, &[("/a", "200\n!X-Inner\n\ninner body"), ("/inner", "200\n\ninner inner ")]);
}

#[test]
fn large_bodies_and_compression() {
    let text = crate::stage::pattern(300_000);
    let builder = site(
        "log_format f '$uri $body_bytes_sent $request_completion';
         server {
             listen 127.0.0.1:%%PORT%%; root %%DIR%%/html; default_type text/html;
             location /big { add_before_body /pre; add_after_body /post; }
             location /gzip { alias %%DIR%%/html/big; gzip on; add_after_body /post; }
             location /pre { access_log %%DIR%%/sub.log f; log_subrequest on; }
             location /post { gzip on; charset utf-8; alias %%DIR%%/html/pre; }
         }",
    )
    .file("html/big", &text)
    .file("html/pre", &text);
    on_each_driver(&builder, |server| {
        let answer = ask(server, "/big", &[]);
        assert!(answer.body == [&text[..], &text, &text].concat());
        let log = wait_file(server, "sub.log", "/pre");
        // There it counts what was sent on the connection.
        if !asks_nginx() {
            assert_eq!(log, "/pre 300000 OK\n");
        }
        let answer = ask(server, "/gzip", &["Accept-Encoding: gzip"]);
        let mut whole = Vec::new();
        let mut reader = flate2::read::GzDecoder::new(&answer.body[..]);
        std::io::Read::read_to_end(&mut reader, &mut whole).unwrap();
        assert!(whole == [&text[..], &text].concat());
    });
}
