//! `limit_req` and `limit_conn`.

use std::time::{Duration, Instant};

use nowait_testkit::{ServerBuilder, wait};

use crate::stage::{ask, on_each_driver, site, wait_file};

/// A server whose keys are the argument `k`; what was decided goes to a log.
fn limited(zones: &str, content: &str) -> ServerBuilder {
    site(&format!(
        "log_format said '$uri $status $limit_req_status $limit_conn_status';
         access_log %%DIR%%/said.log said;
         {zones}
         server {{ listen 127.0.0.1:%%PORT%%; root %%DIR%%/html; {content} }}"
    ))
}

#[test]
fn requests_above_the_rate_are_refused() {
    let site = limited(
        "limit_req_zone $arg_k zone=one:32k rate=1r/m;
         limit_req_zone $arg_k zone=two:32k rate=1r/m;",
        "location /a { limit_req zone=one; }
         location /b { limit_req zone=one; limit_req_status 429; limit_req_log_level info; }
         location /burst { limit_req zone=two burst=2 nodelay; error_page 503 =200 /a?k=x; }",
    )
    .file("html/a", "a")
    .file("html/b", "b")
    .file("html/burst", "burst")
    .allow_log("limiting requests");
    on_each_driver(&site, |server| {
        assert_eq!(ask(server, "/a?k=1", &[]).status, 200);
        assert_eq!(ask(server, "/a?k=1", &[]).status, 503);
        assert_eq!(ask(server, "/b?k=1", &[]).status, 429);
        // Other keys have buckets of their own; empty ones have none.
        assert_eq!(ask(server, "/b?k=2", &[]).status, 200);
        for _ in 0..3 {
            assert_eq!(ask(server, "/a", &[]).status, 200);
        }
        for _ in 0..3 {
            assert_eq!(ask(server, "/burst?k=1", &[]).text(), "burst");
        }
        // The page for the refused request is not limited again.
        for _ in 0..2 {
            assert_eq!(ask(server, "/burst?k=1", &[]).text(), "a");
        }
        server.wait_log("by zone \"two\"");
        let log = server.log();
        let line = log.lines().find(|line| line.contains("\"GET /a?k=1 ")).unwrap();
        let (level, message) = line.split_once(" limiting requests, excess: ").unwrap();
        assert!(level.contains(" [error] "), "{line}");
        // A little may have leaked.
        assert!(message.starts_with("1.000 by") || message.starts_with("0.9"), "{line}");
        assert!(message.contains(" by zone \"one\", client: 127.0.0.1, server: "), "{line}");
        let log = wait_file(server, "said.log", "/b 200");
        let said: Vec<&str> = log.lines().take(4).collect();
        let expected =
            ["/a 200 PASSED -", "/a 503 REJECTED -", "/b 429 REJECTED -", "/b 200 PASSED -"];
        assert_eq!(said, expected);
        server.wait_log("\"GET /b");
        let log = server.log();
        let line = log.lines().find(|line| line.contains("\"GET /b")).unwrap();
        assert!(line.contains(" [info] "), "{line}");
    });
}

#[test]
fn requests_of_a_burst_wait() {
    let site = limited(
        "limit_req_zone $arg_k zone=one:32k rate=2r/s;",
        "location / { limit_req zone=one burst=5; return 200 later; }
         location /file { limit_req zone=one burst=5; limit_req_log_level notice; }",
    )
    .file("html/file", "file")
    .allow_log("delaying request");
    on_each_driver(&site, |server| {
        // `return` answers before the limits are asked.
        for _ in 0..9 {
            assert_eq!(ask(server, "/?k=1", &[]).text(), "later");
        }
        // Pipelined, and only the second waits.
        let mut client = server.client();
        let started = Instant::now();
        client.send(
            "GET /file?k=1 HTTP/1.1\r\nHost: a\r\n\r\nGET /file?k=1 HTTP/1.1\r\nHost: a\r\n\r\n",
        );
        assert_eq!(client.response().text(), "file");
        assert_eq!(client.response().text(), "file");
        assert!(started.elapsed() >= Duration::from_millis(490), "the second has to wait");
        let log = wait_file(server, "said.log", "DELAYED");
        assert!(log.contains("/file 200 PASSED -\n/file 200 DELAYED -\n"), "{log}");
    });
}

#[test]
fn the_delay_is_logged_and_a_client_that_goes_is_let_go() {
    let site = limited(
        "limit_req_zone $arg_k zone=one:32k rate=1r/m;",
        "error_log %%DIR%%/info.log info;
         location / { limit_req zone=one burst=5; }",
    )
    .file("html/file", "file")
    .allow_log("delaying request");
    on_each_driver(&site, |server| {
        assert_eq!(ask(server, "/file?k=1", &[]).text(), "file");
        let mut client = server.client();
        client.send_get("/file?k=1");
        let log = wait_file(server, "info.log", "delaying request");
        assert!(log.contains(" [warn] "), "{log}");
        assert!(log.contains("delaying request, excess: "), "{log}");
        assert!(log.contains(", by zone \"one\", client: 127.0.0.1"), "{log}");
        // Half closed is closed while nothing is done for the request.
        client.half_close();
        let log = wait_file(server, "said.log", "499");
        assert!(log.contains("/file 499 DELAYED -"), "{log}");
        wait_file(server, "info.log", "client prematurely closed connection, client");
    });
}

#[test]
fn several_limits_and_trials() {
    let site = limited(
        "limit_req_zone $arg_k zone=a:32k rate=1r/m;
         limit_req_zone $arg_j zone=b:32k rate=1r/m;
         limit_req_zone $arg_k zone=t:32k rate=1r/m;",
        "limit_req zone=a burst=2 nodelay; limit_req zone=b;
         location /try { limit_req zone=t burst=1; limit_req_dry_run on; }",
    )
    .file("html/x", "x")
    .file("html/try", "try")
    .allow_log("limiting requests")
    .allow_log("delaying request");
    on_each_driver(&site, |server| {
        for (target, status) in [
            ("/x?k=1&j=1", 200),
            // Refused by one, so not counted by the other.
            ("/x?k=1&j=1", 503),
            ("/x?k=1&j=2", 200),
            ("/x?k=1&j=3", 200),
            ("/x?k=1&j=4", 503),
            ("/x?j=4", 200),
            ("/try?k=1", 200),
            ("/try?k=1", 200),
            ("/try?k=1", 200),
        ] {
            assert_eq!(ask(server, target, &[]).status, status, "{target}");
        }
        server.wait_log("limiting requests, dry run, excess: ");
        server.wait_log("delaying request, dry run, excess: ");
        let log = server.log();
        assert!(log.contains(" by zone \"a\"") && log.contains(" by zone \"b\""), "{log}");
        let log = wait_file(server, "said.log", "REJECTED_DRY_RUN");
        assert!(log.contains("/try 200 DELAYED_DRY_RUN -\n/try 200 REJECTED_DRY_RUN -"), "{log}");
    });
}

#[test]
fn a_reload_keeps_what_is_known_and_changes_the_limits() {
    let zone = |key: &str, size: &str| {
        format!(
            "limit_req_zone $arg_{key} zone=one:{size} rate=1r/m; limit_conn_zone $arg_k zone=c:32k;"
        )
    };
    let http = |zones: &str, limit: &str| {
        format!(
            "{zones} server {{ listen 127.0.0.1:%%PORT%%; root %%DIR%%/html;
             location / {{ limit_req zone=one {limit}; limit_conn c 1; }} }}"
        )
    };
    let site = site(&http(&zone("k", "32k"), "")).file("html/x", "x").allow_log("limiting");
    on_each_driver(&site, |server| {
        assert_eq!(ask(server, "/x?k=1&j=1", &[]).status, 200);
        server.reload();
        assert_eq!(ask(server, "/x?k=1&j=1", &[]).status, 503);
        server.set_http(&http(&zone("k", "32k"), "burst=1 nodelay"));
        server.reload();
        assert_eq!(ask(server, "/x?k=1&j=1", &[]).status, 200);
        assert_eq!(ask(server, "/x?k=1&j=1", &[]).status, 503);
        server.set_http(&http(&zone("k", "64k"), ""));
        server.reload();
        assert_eq!(ask(server, "/x?k=1&j=1", &[]).status, 200, "another zone");
        if server.binary().is_nginx() {
            return;
        }
        server.set_http(&http(&zone("j", "64k"), ""));
        server.reload();
        assert_eq!(ask(server, "/x?k=1&j=1", &[]).status, 200, "another key");
    });
}

#[test]
fn connections_above_the_limit_are_refused() {
    let site = limited(
        "limit_conn_zone $arg_k zone=one:32k;
         limit_conn_zone $server_name zone=all:32k;",
        "location / { limit_conn one 1; limit_rate 1k; }
         location /status { limit_conn one 1; limit_conn_status 429; }
         location /try { limit_conn one 1; limit_conn_dry_run on; }
         location /all { limit_conn one 9; limit_conn all 2; }",
    )
    .file("html/slow", "x".repeat(64 * 1024))
    .file("html/status", "ok")
    .file("html/try", "ok")
    .file("html/all", "ok")
    .allow_log("limiting connections");
    on_each_driver(&site, |server| {
        let mut slow = server.client();
        slow.send_get("/slow?k=1");
        assert!(!slow.read_some(100).is_empty());
        assert_eq!(ask(server, "/slow?k=1", &[]).status, 503);
        assert_eq!(ask(server, "/status?k=1", &[]).status, 429);
        assert_eq!(ask(server, "/try?k=1", &[]).status, 200);
        assert_eq!(ask(server, "/all?k=1", &[]).status, 200);
        assert_eq!(ask(server, "/status?k=2", &[]).status, 200);
        assert_eq!(ask(server, "/status", &[]).status, 200);
        server.wait_log("limiting connections by zone \"one\"");
        server.wait_log("limiting connections, dry run, by zone \"one\"");
        slow.reset();
        // The end of a request is seen some time after the client has gone.
        wait::until("the count to go down", wait::PATIENCE, || {
            (ask(server, "/status?k=1", &[]).status == 200).then_some(())
        });
        // A connection that is only kept open counts no more.
        let mut kept = server.client();
        assert_eq!(kept.get("/status?k=3").status, 200);
        assert_eq!(ask(server, "/status?k=3", &[]).status, 200);
        assert_eq!(kept.get("/status?k=3").status, 200);
        // The last line of all: those before it are there then, too.
        let log = wait_file(server, "said.log", "/status 200 - -\n");
        assert!(log.contains("/try 200 - REJECTED_DRY_RUN"), "{log}");
        assert!(log.contains("/slow 503 - REJECTED"), "{log}");
        assert!(log.contains("/status 200 - PASSED\n/status 200 - -\n"), "{log}");
    });
}

#[test]
fn what_is_wrong_is_said_in_the_words_of_nginx() {
    for (http, message) in [
        ("limit_req_zone $uri zone=a rate=1r/s;", "invalid zone size \"zone=a\""),
        ("limit_req_zone $uri zone=a:1k rate=1r/s;", "is too small"),
        ("limit_req_zone $uri zone=a:1m rate=0r/s;", "invalid rate \"rate=0r/s\""),
        ("limit_req_zone $uri rate=1r/s burst=1;", "invalid parameter \"burst=1\""),
        ("limit_req_zone $uri rate=1r/s rate=1r/s;", "must have \"zone\" parameter"),
        ("limit_conn_zone $uri zone=a:1m; limit_req zone=a;", "declared for a different use"),
        (
            "limit_conn_zone $uri zone=a:1m; limit_conn_zone $args zone=a:1m;",
            "limit_conn_zone \"a\" is already bound to key \"$uri\"",
        ),
        ("limit_req zone=nosuch;", "zero size shared memory zone \"nosuch\""),
        ("limit_req burst=1;", "\"limit_req\" must have \"zone\" parameter"),
        ("limit_req zone=a burst=0;", "invalid burst value \"burst=0\""),
        ("limit_req zone=a delay=x;", "invalid delay value \"delay=x\""),
        ("limit_req zone=a; limit_req zone=a;", "\"limit_req\" directive is duplicate"),
        ("limit_conn a 0;", "invalid number of connections \"0\""),
        ("limit_conn a 65536;", "connection limit must be less 65536"),
        ("limit_req_status 399;", "value must be between 400 and 599"),
    ] {
        let server = "server { listen 127.0.0.1:%%PORT%%; }";
        let failure = site(&format!("{http}\n{server}")).try_start().expect_err(http);
        let said = failure.stderr + &failure.log;
        assert!(said.contains(message), "{http}: {said}");
    }
}
