//! `auth_request` and `auth_request_set`.

use nowait_testkit::check_on;

use crate::stage::{ask, asks_nginx, gets, on_each_driver, refused, server, site, wait_file};

#[test]
fn the_answer_of_the_other_location_decides() {
    let site = server(
        "location / { return 444; }
         location /open { auth_request /auth-204; }
         location /static { auth_request /file; }
         location = /file { }
         location /unauthorized { auth_request /auth-401; }
         location /forbidden { auth_request /auth-403; }
         location /odd { auth_request /auth-404; }
         location /server-error { auth_request /auth-500; }
         location /outer { auth_request /auth-403; location /outer/off { auth_request off; } }
         location = /closed { auth_request /auth-444; }
         location = /auth-204 { internal; return 204; }
         location = /auth-401 { internal; return 401; }
         location = /auth-403 { internal; return 403; }
         location = /auth-404 { internal; return 404; }
         location = /auth-444 { internal; return 444; }
         location = /auth-500 { internal; return 500; }",
    )
    .file("html/open", "let in")
    .file("html/static", "a file")
    .file("html/file", "yes")
    .file("html/outer/off", "nobody was asked")
    .allow_log("auth request unexpected status: 404")
    .allow_log("auth request unexpected status: 500");
    gets(
        &site,
        &[
            ("/open", "200\n!WWW-Authenticate\n\nlet in"),
            ("/static", "200\n\na file"),
            ("/unauthorized", "401"),
            ("/forbidden", "403"),
            ("/odd", "500"),
            ("/server-error", "500"),
            ("/outer/off", "200\n\nnobody was asked"),
            ("/closed", "closed"),
            // Clients may not go there themselves.
            ("/auth-204", "404"),
        ],
    );
}

#[test]
fn a_request_for_a_password_is_passed_on() {
    let site = server(
        "location / { auth_request /auth; }
         location = /auth {
             if ($http_x_key = right) { return 204; }
             add_header X-Auth-Location never always;
             auth_basic ignored; auth_basic_user_file users;
             error_page 401 = @challenge;
             return 401;
         }
         location @challenge { return 401; }
         location /basic { auth_request /asks; }
         location = /asks { auth_request /never; }",
    )
    .file("html/a", "hello")
    .file("html/asks", "access control concerns the main request only")
    .file("html/basic", "hello too");
    on_each_driver(&site, |server| {
        let answer = ask(server, "/a", &[]);
        assert_eq!(answer.status, 401);
        assert_eq!(answer.header("x-auth-location"), None);
        assert_eq!(ask(server, "/a", &["X-Key: right"]).text(), "hello");
        assert_eq!(ask(server, "/basic", &[]).text(), "hello too");
    });
}

#[test]
fn variables_come_from_the_subrequest() {
    let site = server(
        "location /a {
             auth_request /auth;
             auth_request_set $who $user;
             auth_request_set $asked \"$uri?$args $request_uri $status $request_method\";
             auth_request_set $limit_rate 100k;
             auth_request_set $unset $http_x_none;
             return 200 never;
         }
         location = /auth { set $user \"$http_x_user!\"; set $shared yes; return 204; }
         location = /a/b {
             auth_request /auth;
             auth_request_set $who $user;
             auth_request_set $asked \"$uri?$args $request_uri $status $request_method\";
             add_header X-Who $who; add_header X-Asked $asked; add_header X-Shared $shared;
         }
         location /c { add_header X-Who \"-$who-\"; }",
    )
    .file("html/a/b", "hello")
    .file("html/c", "nobody was asked")
    .allow_log("using uninitialized");
    on_each_driver(&site, |server| {
        check_on(
            server,
            "POST /a/b?x=1 HTTP/1.1
             Host: a
             X-User: me
             Content-Length: 0",
            "405",
        );
        check_on(
            server,
            "GET /a/b?x=1 HTTP/1.1
             Host: a
             X-User: me",
            "200
             X-Who: me!
             X-Asked: /auth? /a/b?x=1 204 GET
             X-Shared: yes

             hello",
        );
        check_on(server, "GET /c HTTP/1.1\nHost: a", "200\nX-Who: --\n\nnobody was asked");
    });
}

#[test]
fn content_of_the_request_stays_with_the_request() {
    if asks_nginx() {
        // There the size of the content counts for the subrequest, too.
        return;
    }
    let site = server(
        "location = /post { auth_request /auth; error_page 405 = /taken; }
         location = /taken { return 200 \"$request_method $content_length\"; }
         location = /auth { client_max_body_size 1; return 204; }",
    )
    .file("html/post", "x");
    on_each_driver(&site, |server| {
        check_on(
            server,
            "POST /post HTTP/1.1
             Host: a
             Content-Length: 5

             hello
             ---
             GET /post HTTP/1.1
             Host: a",
            "200

             GET 5
             ---
             200

             x",
        );
    });
}

#[test]
fn it_is_one_of_the_checks_of_satisfy() {
    let site = server(
        "location / { return 444; }
         location /all/allow { allow all; auth_request /auth; }
         location /all/deny { deny all; auth_request /auth; }
         location /all/basic {
             auth_basic r; auth_basic_user_file %%DIR%%/users; auth_request /auth;
         }
         location /any/allow { satisfy any; allow all; auth_request /auth; }
         location /any/deny { satisfy any; deny all; auth_request /auth; }
         location /any/basic {
             satisfy any; auth_basic r; auth_basic_user_file %%DIR%%/users; auth_request /auth;
         }
         location = /auth {
             if ($request_uri ~ open$) { return 204; }
             if ($request_uri ~ unauthorized$) { return 401; }
             return 403;
         }",
    )
    .file("users", "user:{PLAIN}secret\n")
    .allow_log("access forbidden by rule");
    gets(
        &site,
        &[
            ("/all/allow+open", "404"),
            ("/all/allow+unauthorized", "401"),
            ("/all/allow+forbidden", "403"),
            ("/all/deny+open", "403"),
            ("/all/deny+unauthorized", "403"),
            ("/all/basic+open", "401\nWWW-Authenticate: Basic realm=\"r\""),
            ("/all/basic+forbidden", "401"),
            ("/any/allow+forbidden", "404"),
            ("/any/deny+open", "404"),
            ("/any/deny+unauthorized", "401"),
            ("/any/deny+forbidden", "403"),
            ("/any/basic+open", "404"),
            ("/any/basic+unauthorized", "401\nWWW-Authenticate: Basic realm=\"r\""),
            ("/any/basic+forbidden", "401\nWWW-Authenticate: Basic realm=\"r\""),
        ],
    );
    on_each_driver(&site, |server| {
        let user = "Authorization: Basic dXNlcjpzZWNyZXQ=";
        assert_eq!(ask(server, "/all/basic+open", &[user]).status, 404);
        assert_eq!(ask(server, "/all/basic+forbidden", &[user]).status, 403);
        assert_eq!(ask(server, "/any/basic+forbidden", &[user]).status, 404);
    });
}

#[test]
fn a_subrequest_is_logged_if_asked_for() {
    let builder = site(
        "log_format main '$uri $status $request_uri';
         server {
             listen 127.0.0.1:%%PORT%%; root %%DIR%%/html;
             location /a { access_log %%DIR%%/main.log main; auth_request /auth; }
             location = /auth { access_log %%DIR%%/sub.log main; log_subrequest on; return 204; }
             location = /quiet { access_log %%DIR%%/sub.log main; return 204; }
             location /b { access_log %%DIR%%/main.log main; auth_request /quiet; }
         }",
    )
    .file("html/a", "x")
    .file("html/b", "x");
    on_each_driver(&builder, |server| {
        assert_eq!(ask(server, "/b", &[]).status, 200);
        assert_eq!(ask(server, "/a?1", &[]).status, 200);
        assert_eq!(wait_file(server, "sub.log", "/a"), "/auth 204 /a?1\n");
        assert_eq!(wait_file(server, "main.log", "/a"), "/b 200 /b\n/a 200 /a?1\n");
    });
}

#[test]
fn mistakes_are_told() {
    refused(
        &server("auth_request /a; auth_request /b;"),
        "\"auth_request\" directive is duplicate",
    );
    refused(&server("auth_request_set who x;"), "invalid variable name \"who\"");
    refused(&server("auth_request_set $uri x;"), "the duplicate \"uri\" variable");
}
