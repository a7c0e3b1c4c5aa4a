//! `post_action`.

use crate::stage::{ask, on_each_driver, refused, server, site, wait_file};

#[test]
fn others_are_told_what_was_sent() {
    let site = site(
        "log_format told '$request_method $uri $args';
         server {
             listen 127.0.0.1:%%PORT%%;
             root %%DIR%%/html;
             location / { post_action /tell; }
             location = /tell {
                 internal;
                 proxy_pass http://127.0.0.1:%%PORT_1%%/uri?$status,$body_bytes_sent,$request_completion;
             }
             location /named/ { alias %%DIR%%/html/; post_action @named; }
             location @named {
                 proxy_pass http://127.0.0.1:%%PORT_1%%;
                 proxy_set_header X-Sent $body_bytes_sent;
             }
             location /off/ { alias %%DIR%%/html/; post_action ''; }
             location /nowhere/ { alias %%DIR%%/html/; post_action @nobody; }
         }
         server {
             listen 127.0.0.1:%%PORT_1%%;
             access_log %%DIR%%/told.log told;
             location / { return 200 $http_x_sent; }
         }",
    )
    .file("html/a", "0123456789")
    .allow_log("could not find named location");
    on_each_driver(&site, |server| {
        let mut client = server.client();
        for target in ["/a", "/off/a", "/nowhere/a", "/named/a?x=1"] {
            assert_eq!(client.get(target).text(), "0123456789", "{target}");
        }
        assert_eq!(ask(server, "/none", &[]).status, 404);
        let log = wait_file(server, "told.log", "404");
        let log = format!("{log}{}", wait_file(server, "told.log", "/named/a"));
        assert!(log.contains("GET /uri 200,10,OK\n"), "{log}");
        assert!(log.contains("GET /named/a x=1\n"), "{log}");
        assert!(log.contains("GET /uri 404,"), "{log}");
        assert!(!log.contains("off") && !log.contains("nowhere"), "{log}");
        server.wait_log("could not find named location \"@nobody\"");
        // Clients can't ask for it.
        assert_eq!(ask(server, "/tell", &[]).status, 404);
    });
}

#[test]
fn an_action_has_none_of_its_own() {
    let site = server("post_action /x; access_log %%DIR%%/all.log; log_subrequest on; location = /end { access_log %%DIR%%/end.log; }")
        .file("html/x", "x")
        .file("html/end", "end");
    on_each_driver(&site, |server| {
        assert_eq!(ask(server, "/x", &[]).text(), "x");
        assert_eq!(ask(server, "/end", &[]).text(), "end");
        wait_file(server, "end.log", "/end");
        let log = wait_file(server, "all.log", "\n");
        assert!(log.lines().count() <= 4, "{log}");
    });
    refused(&server("post_action;"), "invalid number of arguments in \"post_action\" directive");
}
