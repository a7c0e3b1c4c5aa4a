//! How redirects name their target.

use crate::stage::{exchanges, gets, on_each_driver, server, site};

#[test]
fn scheme_host_and_port_are_told_unless_switched_off() {
    let site = site(
        "server { listen 127.0.0.1:%%PORT%%; server_name one; root %%DIR%%/html;
                  location = /return { return 301 /x; } }
         server { listen 127.0.0.1:%%PORT%%; server_name relative; root %%DIR%%/html;
                  absolute_redirect off; }
         server { listen 127.0.0.1:%%PORT%%; server_name noport; root %%DIR%%/html;
                  port_in_redirect off; }
         server { listen 127.0.0.1:%%PORT%%; server_name main *.named; root %%DIR%%/html;
                  server_name_in_redirect on; }",
    )
    .file("html/d/x", "");
    exchanges(
        &site,
        &[
            ("GET /d HTTP/1.1\nHost: one", "301\nLocation: http://one:*/d/"),
            ("GET /d HTTP/1.1\nHost: ONE:1234", "301\nLocation: http://one:*/d/"),
            ("GET /return HTTP/1.1\nHost: one", "301\nLocation: http://one:*/x"),
            ("GET /d HTTP/1.0", "301\nLocation: http://127.0.0.1:*/d/"),
            ("GET /d HTTP/1.1\nHost: relative", "301\nLocation: /d/"),
            ("GET /d HTTP/1.1\nHost: noport", "301\nLocation: http://noport/d/"),
            ("GET /d HTTP/1.1\nHost: a.named", "301\nLocation: http://main:*/d/"),
        ],
    );
}

#[test]
fn the_port_is_that_of_the_server() {
    let site = server("location / { return 301 /x; }");
    on_each_driver(&site, |server| {
        let response = server.get("/");
        let expected = format!("http://localhost:{}/x", server.port());
        assert_eq!(response.header("location"), Some(expected.as_str()));
    });
}

#[test]
fn targets_are_escaped() {
    let site = server("").file("html/a b?%/x", "");
    gets(
        &site,
        &[
            ("/a%20b%3f%25", "301\nLocation: http://localhost:*/a%20b%3F%25/"),
            ("/a%20b%3f%25?q=%20", "301\nLocation: http://localhost:*/a%20b%3F%25/?q=%20"),
        ],
    );
}

#[test]
fn nothing_from_the_client_splits_the_head() {
    let site = server("location / { return 302 http://x.test$uri; }");
    if crate::stage::asks_nginx() {
        return; // it sends what the client wrote
    }
    gets(&site, &[("/a%0d%0aX-Injected:%20yes", "302\n!X-Injected")]);
}

#[test]
fn names_without_their_slash() {
    if crate::stage::asks_nginx() {
        return;
    }
    let site = server(
        "auto_redirect off;
         location /on/ { auto_redirect on; return 200 on; }
         location /off/ { proxy_pass http://127.0.0.1:1; }
         location /default/ { auto_redirect default; return 200 default; }
         location /passed/ { auto_redirect default; proxy_pass http://127.0.0.1:1; }
         location / { return 200 root; }",
    );
    gets(
        &site,
        &[
            ("/on?a=b", "301\nLocation: http://localhost:*/on/?a=b"),
            ("/on/", "200\n\non"),
            ("/off", "200\n\nroot"),
            ("/default", "200\n\nroot"),
            ("/passed", "301\nLocation: http://localhost:*/passed/"),
        ],
    );
}
