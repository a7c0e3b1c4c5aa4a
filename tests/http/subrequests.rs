//! Subrequests that are passed on: what the other server is asked, and what becomes of its answer.

use nowait_testkit::check_on;

use crate::stage::{ask, on_each_driver, pattern, server, site, wait_file};

#[test]
fn another_server_decides_who_comes_in() {
    let site = server(
        "location /a {
             auth_request /auth;
             auth_request_set $user $upstream_http_x_user;
             auth_request_set $asked $upstream_status;
             error_page 405 = /taken;
             add_header X-User $user; add_header X-Asked $asked;
         }
         location = /taken { return 200 \"$request_method\"; }
         location = /auth {
             internal;
             proxy_pass http://127.0.0.1:%%PORT%%/who;
             proxy_pass_request_body off;
             proxy_set_header Content-Length \"\";
             proxy_set_header X-Original $request_uri;
         }
         location = /who {
             if ($http_x_key = wrong) { return 403; }
             add_header WWW-Authenticate 'Bearer realm=\"x\"' always;
             add_header X-User \"$http_x_original $request_method [$content_length]\";
             if ($http_x_key = '') { return 401; }
             return 204;
         }",
    )
    .file("html/a", "hello");
    on_each_driver(&site, |server| {
        check_on(
            server,
            "GET /a?q HTTP/1.1
             Host: a
             X-Key: right",
            "200
             X-User: /a?q GET []
             X-Asked: 204

             hello",
        );
        check_on(
            server,
            "POST /a HTTP/1.1
             Host: a
             X-Key: right
             Content-Length: 5

             hello
             ---
             GET /a HTTP/1.1
             Host: a
             X-Key: right",
            "200

             GET
             ---
             200

             hello",
        );
        let answer = ask(server, "/a", &[]);
        assert_eq!(answer.header("www-authenticate"), Some("Bearer realm=\"x\""));
        assert_eq!(answer.status, 401);
        assert_eq!(ask(server, "/a", &["X-Key: wrong"]).status, 403);
    });
}

#[test]
fn pages_include_what_other_servers_say() {
    let text = pattern(200_000);
    let site = server(
        "location /page { ssi on; default_type text/html; }
         location /far/ { proxy_pass http://127.0.0.1:%%PORT%%/near/; }
         location /near/ { alias %%DIR%%/html/; }
         location /echo { return 200 '$request_method $args'; }
         location /far-echo { proxy_pass http://127.0.0.1:%%PORT%%/echo; }
         location /around {
             default_type text/html; add_before_body /far/short; add_after_body /far/big;
         }",
    )
    .file(
        "html/page",
        "1<!--#include virtual='/far/big' -->2<!--#include virtual='/far/short' -->3\
         <!--#include virtual='/far-echo?x=1' set='v' -->[<!--#echo var='v' -->]\
         <!--#block name='b' -->stub<!--#endblock -->\
         <!--#include virtual='/far/empty' stub='b' --><!--#include virtual='/far/none' stub='b' -->",
    )
    .file("html/big", &text)
    .file("html/short", "short")
    .file("html/empty", "")
    .file("html/around", "-");
    on_each_driver(&site, |server| {
        let answer = ask(server, "/page", &[]);
        let missing = answer.text().contains("404 Not Found");
        let head = [b"1", &text[..], b"2short3", b"[GET x=1]stub"].concat();
        assert!(answer.body.starts_with(&head), "{} bytes", answer.body.len());
        // A page of the other server is an answer like any other.
        assert!(missing);
        let around = ask(server, "/around", &[]);
        assert!(around.body == [b"short-", &text[..]].concat());
    });
}

#[test]
fn copies_go_to_other_servers_with_their_content() {
    let builder = site(
        "log_format copy '$request_uri $http_x_mark [$content_length] $request_body';
         server {
             listen 127.0.0.1:%%PORT%%; root %%DIR%%/html;
             location / { mirror /copy; proxy_pass http://127.0.0.1:%%PORT%%/main/; }
             location /main/ { return 200 answered; }
             location = /copy {
                 internal; proxy_pass http://127.0.0.1:%%PORT%%/log$request_uri;
                 proxy_pass_request_body on;
             }
             location /log/ {
                 # The content is there when something has asked for it.
                 mirror /nothing; error_page 404 405 = /fine;
             }
             location = /nothing { internal; return 204; }
             location = /fine { access_log %%DIR%%/copies.log copy; return 200; }
         }",
    )
    .allow_log("No such file or directory");
    on_each_driver(&builder, |server| {
        check_on(
            server,
            "POST /with?q HTTP/1.1
             Host: a
             X-Mark: m
             Content-Length: 5

             hello",
            "200\n\nanswered",
        );
        let log = wait_file(server, "copies.log", "/with");
        assert_eq!(log, "/log/with?q m [5] hello\n");
    });
}
