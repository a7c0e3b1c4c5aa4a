//! `allow`, `deny`, `satisfy` and `limit_except`.

use crate::stage::{exchanges, gets, on_each_driver, server};

#[test]
fn rules() {
    let site = server("location /allow { allow 127.0.0.1; deny all; }").file("html/allow", "ok");
    gets(&site, &[("/allow", "200\n\nok")]);
    let site = server(
        r#"
        deny 127.0.0.0/8;
        location /outer { }
        location /inner { allow all; }
        location /unix { allow unix:; }
        location /six { deny ::/0; }
        location /any { satisfy any; deny all; }
        location /page { error_page 403 /inner; }
        location /nested/ { location /nested/x { } allow all; }
        "#,
    )
    .file("html/inner", "inner")
    .file("html/outer", "outer")
    .file("html/unix", "unix")
    .file("html/six", "six")
    .file("html/nested/x", "nested")
    .allow_log("access forbidden by rule");
    gets(
        &site,
        &[
            ("/outer", "403"),
            ("/inner", "200\n\ninner"),
            ("/unix", "200\n\nunix"),
            ("/six", "200\n\nsix"),
            ("/any", "403"),
            ("/page", "403\n\ninner"),
            ("/nested/x", "200\n\nnested"),
        ],
    );
    on_each_driver(&site, |server| {
        server.get("/outer");
        server.wait_log("access forbidden by rule");
    });
}

#[test]
fn methods() {
    let site = server(
        r#"
        location /get { limit_except GET { deny all; } }
        location /head { limit_except HEAD { deny all; } }
        location /post { limit_except get Post { deny all; } error_page 405 =200 /done; }
        location /done { return 200 done; }
        "#,
    )
    .file("html/get", "get")
    .file("html/head", "head")
    .file("html/post", "post")
    .allow_log("access forbidden by rule");
    exchanges(
        &site,
        &[
            ("GET /get HTTP/1.1\nHost: a", "200\n\nget"),
            ("HEAD /get HTTP/1.1\nHost: a", "200"),
            ("POST /get HTTP/1.1\nHost: a\nContent-Length: 0", "403"),
            ("BREW /get HTTP/1.1\nHost: a", "403"),
            ("GET /head HTTP/1.1\nHost: a", "403"),
            ("HEAD /head HTTP/1.1\nHost: a", "200"),
            ("GET /post HTTP/1.1\nHost: a", "200\n\npost"),
            ("POST /post HTTP/1.1\nHost: a\nContent-Length: 0", "200\n\ndone"),
            ("DELETE /post HTTP/1.1\nHost: a", "403"),
        ],
    );
}

/// With `satisfy any`, a refusal counts only where it was given.
#[test]
fn an_error_page_is_not_refused_for_another_location() {
    let site = server(
        r#"
        location /any {
            satisfy any;
            deny all;
            auth_request /broken;
            error_page 500 /page;
        }
        location /broken { internal; return 500; }
        location /page { }
        "#,
    )
    .file("html/page", "page")
    .allow_log("auth request unexpected status");
    gets(&site, &[("/any", "500\n\npage")]);
}
