//! `mirror` and `mirror_request_body`.

use nowait_testkit::check_on;

use crate::stage::{ask, asks_nginx, on_each_driver, refused, server, site, wait_file};

/// What the copies are told apart by.
const FORMAT: &str =
    "log_format copy '$uri $args $request_method $http_x_mark $request_body [$content_length]';";

#[test]
fn copies_are_made_and_their_answers_dropped() {
    let builder = site(&format!(
        "{FORMAT}
         server {{
             listen 127.0.0.1:%%PORT%%; root %%DIR%%/html;
             location / {{ mirror /copy/one; mirror /copy/two; }}
             location /off {{ mirror off; }}
             location /nested {{ mirror /chain; }}
             location = /chain {{
                 internal; mirror /copy/chain;
                 access_log %%DIR%%/copies.log copy; log_subrequest on;
             }}
             location /copy/ {{
                 internal; access_log %%DIR%%/copies.log copy; log_subrequest on;
                 return 200 never;
             }}
         }}"
    ))
    .file("html/a", "hello")
    .file("html/off", "no copies")
    .file("html/nested", "one copy")
    .file("html/chain", "a copy is not copied");
    on_each_driver(&builder, |server| {
        assert_eq!(ask(server, "/off", &[]).text(), "no copies");
        assert_eq!(ask(server, "/nested", &[]).text(), "one copy");
        wait_file(server, "copies.log", "/chain");
        assert_eq!(ask(server, "/a?x=1", &["X-Mark: m"]).text(), "hello");
        let log = wait_file(server, "copies.log", "/copy/two");
        let mut lines: Vec<_> = log.lines().collect();
        lines.sort_unstable();
        assert_eq!(
            lines,
            ["/chain - GET - - [-]", "/copy/one x=1 GET m - [-]", "/copy/two x=1 GET m - [-]"]
        );
    });
}

#[test]
fn copies_have_the_content_unless_told_otherwise() {
    let builder = site(&format!(
        "{FORMAT}
         server {{
             listen 127.0.0.1:%%PORT%%; root %%DIR%%/html;
             error_page 405 = /taken;
             location = /taken {{ return 200 taken; }}
             location / {{ mirror /copy/with; }}
             location /without {{ mirror /copy/without; mirror_request_body off; }}
             location /file {{ mirror /copy/file; client_body_in_file_only clean; }}
             location /copy/ {{
                 internal; access_log %%DIR%%/copies.log copy; log_subrequest on;
                 return 200 never;
             }}
         }}"
    ))
    .file("html/with", "")
    .file("html/without", "")
    .file("html/file", "");
    on_each_driver(&builder, |server| {
        check_on(
            server,
            "POST /with HTTP/1.1
             Host: a
             Content-Length: 5

             hello",
            "200\n\ntaken",
        );
        wait_file(server, "copies.log", "hello");
        check_on(
            server,
            "POST /without HTTP/1.1
             Host: a
             Content-Length: 5

             hello",
            "200\n\ntaken",
        );
        wait_file(server, "copies.log", "/copy/without");
        check_on(
            server,
            "POST /file HTTP/1.1
             Host: a
             Content-Length: 5

             hello",
            "200\n\ntaken",
        );
        let log = wait_file(server, "copies.log", "/copy/file");
        let mut lines: Vec<_> = log.lines().collect();
        lines.sort_unstable();
        // There the main request has already become a GET for the error page.
        let method = if asks_nginx() { "GET" } else { "POST" };
        assert_eq!(lines[0], format!("/copy/file - {method} - - [5]"));
        assert_eq!(lines[1], format!("/copy/with - {method} - hello [5]"));
        assert_eq!(lines[2], format!("/copy/without - {method} - - [5]"));
    });
}

#[test]
fn mistakes_are_told() {
    refused(&server("mirror /a; mirror off;"), "\"mirror\" directive is duplicate");
    refused(&server("mirror off; mirror /a;"), "\"mirror\" directive is duplicate");
}
