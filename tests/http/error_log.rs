//! `error_log`: levels, and logs of their own for servers and locations.

use nowait_testkit::wait;

use crate::stage::{ask, on_each_driver, refused, server, site, wait_file};

#[test]
fn a_location_may_have_its_own_log_and_level() {
    let site = server(
        "error_log %%DIR%%/server.log;
         location /own/ { error_log %%DIR%%/own.log; }
         location /crit/ { error_log %%DIR%%/crit.log crit; }
         location /two/ { error_log %%DIR%%/two.log; error_log %%DIR%%/own.log; }
         location /quiet/ { log_not_found off; }",
    )
    .file("html/own/x", "");
    on_each_driver(&site, |server| {
        for path in ["/crit/a", "/quiet/a", "/a", "/own/b", "/two/c"] {
            assert_eq!(ask(server, path, &[]).status, 404);
        }
        let log = wait_file(server, "two.log", "/two/c");
        let line = log.lines().next().unwrap();
        let (head, message) = line.split_once(" [error] ").unwrap();
        assert_eq!(head.len(), "2000/01/01 00:00:00".len(), "{line}");
        let (number, message) = message.split_once(": *").unwrap();
        assert!(number.bytes().all(|b| b.is_ascii_digit() || b == b'#'), "{line}");
        let expected = format!(
            " open() \"{}/html/two/c\" failed (2: No such file or directory), client: 127.0.0.1, \
             server: , request: \"GET /two/c HTTP/1.1\", host: \"localhost\"",
            server.dir().display()
        );
        assert!(message.ends_with(&expected), "{line}");
        assert!(wait_file(server, "own.log", "/two/c").contains("/own/b"));
        assert!(wait_file(server, "server.log", "/html/a").contains("/html/a"));
        assert!(!server.read("server.log").contains("/own/b"));
        assert!(!server.read("server.log").contains("/quiet/"));
        assert_eq!(server.read("crit.log"), "");
    });
}

#[test]
fn a_location_may_log_to_standard_error() {
    let site = server("location /said/ { error_log stderr; }");
    on_each_driver(&site, |server| {
        assert_eq!(ask(server, "/said/a", &[]).status, 404);
        let said = || server.stderr().contains("/html/said/a\" failed").then_some(());
        wait::until("the line on standard error", wait::PATIENCE, said);
        assert!(!server.log().contains("/said/a"));
    });
}

#[test]
fn info_tells_of_clients() {
    let site = site(
        "server { listen 127.0.0.1:%%PORT%%; error_log %%DIR%%/info.log info; }
         server { listen 127.0.0.1:%%PORT_1%%; error_log %%DIR%%/notice.log notice; }",
    );
    on_each_driver(&site, |server| {
        for port in [server.port(), server.port_n(1)] {
            let mut client = nowait_testkit::Client::to_port(port);
            client.send("GET /\u{1} HTTP/1.1\r\n\r\n");
            assert_eq!(client.response().status, 400);
        }
        let log = wait_file(server, "info.log", "client sent invalid request");
        assert!(log.contains("[info]") && log.contains("while reading client request line"));
        assert_eq!(server.read("notice.log"), "");
    });
}

#[test]
fn debug_tells_what_happens_to_a_request() {
    let site = server(
        "error_log %%DIR%%/debug.log debug;
         location /a { return 200 ok; }
         location /quiet { error_log %%DIR%%/quiet.log info; return 200 ok; }
         location /p { proxy_pass http://127.0.0.1:%%PORT%%/a; }",
    );
    on_each_driver(&site, |server| {
        assert_eq!(ask(server, "/quiet", &[]).status, 200);
        assert_eq!(ask(server, "/p", &["X-Mark: m"]).text(), "ok");
        wait_file(server, "debug.log", "upstream connection is a new one");
        let log = wait_file(server, "debug.log", "http request ended");
        for part in [
            "[debug] ",
            "http request line: \"GET /p HTTP/1.1\"",
            "http header: \"X-Mark: m\"",
            "using configuration \"/p\"",
            &format!("connect to 127.0.0.1:{}", server.port()),
            "using configuration \"/a\"",
            "http response: 200, a head of ",
        ] {
            assert!(log.contains(part), "{part} in {log}");
        }
        assert!(!log.contains("client: "), "debug lines say no more than they do: {log}");
        assert_eq!(server.read("quiet.log"), "");
    });
}

#[test]
fn wrong_levels_are_refused() {
    let failure = server("error_log %%DIR%%/x.log loud;").try_start().expect_err("no such level");
    let said = failure.stderr + &failure.log;
    assert!(said.contains("invalid log level \"loud\""), "{said}");
}

/// Error logs are read at terminals, which obey escape sequences.
#[test]
fn a_line_controls_no_terminal() {
    let site = site(
        "server {
             listen 127.0.0.1:%%PORT%%;
             root %%DIR%%/html;
             error_log %%DIR%%/own.log;
             error_log stderr;
             location /cgi { fastcgi_pass 127.0.0.1:%%PORT_1%%; }
         }",
    );
    // (target, what the log says of it)
    let cases = [
        ("/private/%1b%5d0;x%07", r"/private/\x1B]0;x\x07"),
        ("/a%7fb", r"/a\x7Fb"),
        ("/c1%c2%9b31m", r"/c1\xC2\x9B31m"),
        ("/raw%9b31m", r"/raw"),
        ("/bidi%e2%80%aeb", r"/bidi\xE2\x80\xAEb"),
        ("/separators%e2%80%a8b%c2%85", r"/separators\xE2\x80\xA8b\xC2\x85"),
        ("/text%c3%a4%e2%9c%93", "/textä✓"),
        ("/lines%0d%0a2000/01/01", "/lines  2000/01/01"),
    ];
    on_each_driver(&site, |server| {
        for (target, _) in cases {
            ask(server, target, &["Referer: http://a/\u{9b}2J"]);
        }
        // Heads that are refused, and a server that answers with something else.
        for head in ["GET /\u{1b}[31m HTTP/1.1\r\n\r\n", "\u{1b}c\u{9b}\r\n\r\n"] {
            server.client().send(head);
        }
        let log = server.wait_file("own.log", "/lines") + &server.stderr();
        for (_, text) in cases {
            assert!(log.contains(text), "{text}: {log}");
        }
        let controls: Vec<char> = log.chars().filter(|c| c.is_control() && *c != '\n').collect();
        assert_eq!(controls, [], "{log}");
        assert!(!log.contains(['\u{202e}', '\u{2028}']), "{log}");
    });
}

/// Lines of a log in JSON.
fn objects(log: &str) -> Vec<serde_json::Value> {
    log.lines().map(|line| serde_json::from_str(line).expect(line)).collect()
}

#[test]
fn lines_may_be_json() {
    let site = site(
        r#"error_log_tag request_id $http_x_id;
         error_log_tag none $arg_none;
         server {
             listen 127.0.0.1:%%PORT%%;
             root %%DIR%%/html;
             error_log %%DIR%%/own.json error json tag=web;
             error_log %%DIR%%/tagged.log error tag=web;
             location /up { proxy_pass http://127.0.0.1:1/x; }
         }"#,
    )
    .allow_log("connect() failed");
    on_each_driver(&site, |server| {
        assert_eq!(ask(server, "/%22a%0d%1b", &["X-Id: \"7\"", "Referer: http://r/"]).status, 404);
        assert_eq!(ask(server, "/up", &["X-Id: 8"]).status, 502);
        let lines = objects(&wait_file(server, "own.json", "/up"));
        let [missing, refused] = &lines[..] else { panic!("{lines:?}") };
        assert_eq!(missing["level"], "error");
        assert_eq!(missing["tag"], "web");
        assert_eq!(missing["request_id"], "\"7\"");
        assert_eq!(missing["errno"], 2);
        assert_eq!(missing["errtext"], "No such file or directory");
        let message = format!("open() \"{}/html/\"a\r\u{1b}\" failed", server.dir().display());
        assert_eq!(missing["msg"], message);
        assert_eq!(missing["client"], "127.0.0.1");
        assert_eq!(missing["request"], "GET /%22a%0d%1b HTTP/1.1");
        assert_eq!(missing["host"], "localhost");
        assert_eq!(missing["referrer"], "http://r/");
        assert!(missing["pid"].is_u64() && missing["tid"].is_u64() && missing["cnum"].is_u64());
        assert!(missing["timestamp"].as_str().is_some_and(|time| time.len() == 25), "{missing}");
        assert!(missing.get("none").is_none() && missing.get("truncated").is_none(), "{missing}");
        assert_eq!(refused["upstream"], "http://127.0.0.1:1/x");
        assert_eq!(refused["errno"], 111);
        assert_eq!(refused["action"], "connecting to upstream");
        assert!(wait_file(server, "tagged.log", "/up").contains(" [web] connect() failed"));
    });
}

#[test]
fn the_program_s_own_log_may_be_json() {
    let site =
        server("location / { return 200 ok; }").main("error_log %%DIR%%/main.json notice json;");
    on_each_driver(&site, |server| {
        ask(server, "/", &[]);
        let log = wait_file(server, "main.json", "start worker process");
        assert!(objects(&log).iter().all(|line| line["level"].is_string()), "{log}");
    });
}

#[test]
fn filters_choose_lines() {
    let site = server(
        "error_log %%DIR%%/all.log;
         error_log %%DIR%%/only.log error filter=~*/WANTED;
         error_log %%DIR%%/not.log error filter=!~/wanted;",
    );
    on_each_driver(&site, |server| {
        for path in ["/a", "/wanted", "/last"] {
            assert_eq!(ask(server, path, &[]).status, 404);
        }
        assert_eq!(wait_file(server, "all.log", "/last").lines().count(), 3);
        let not = wait_file(server, "not.log", "/last");
        assert!(not.lines().count() == 2 && !not.contains("/wanted"), "{not}");
        let only = wait_file(server, "only.log", "/wanted");
        assert!(only.lines().count() == 1, "{only}");
    });
    refused(&server("error_log %%DIR%%/x.log error filter=~(;"), "missing closing parenthesis");
    refused(&server("error_log %%DIR%%/x.log rate=5;"), "invalid rate \"5\"");
    refused(&server("error_log_tag a:b c;"), "invalid name \"a:b\" of a tag");
}

/// How many lines of requests a log has, and how many its limit has left out.
fn written_and_left_out(log: &str) -> (usize, usize) {
    let counts = log
        .lines()
        .filter_map(|line| line.split_once(" lines were left out")?.0.rsplit(' ').next());
    let left_out = counts.map(|count| count.parse::<usize>().unwrap()).sum();
    (log.lines().filter(|line| line.contains(", client:")).count(), left_out)
}

#[test]
fn repetitions_are_counted_instead_of_written() {
    let site = server(
        "error_log %%DIR%%/own.log error rate=2r/s;
         error_log %%DIR%%/all.log;
         location /inner { }",
    );
    on_each_driver(&site, |server| {
        // Locations share a directive's limit.
        for path in ["/a", "/inner/b", "/c1", "/inner/d2", "/e"] {
            assert_eq!(ask(server, path, &[]).status, 404);
        }
        wait_file(server, "all.log", "/e");
        // The line comes although nothing else is logged.
        let log = wait_file(server, "own.log", "left out");
        let (written, left_out) = written_and_left_out(&log);
        assert_eq!(written + left_out, 5, "{log}");
        assert!(written >= 2 && log.contains("by \"rate\", the last: open() \""), "{log}");
    });
}

#[test]
fn repetitions_are_counted_when_a_reload_ends_the_log() {
    let site = server("error_log %%DIR%%/own.log error rate=1r/m; error_log %%DIR%%/all.log;");
    on_each_driver(&site, |server| {
        for path in ["/a", "/b", "/c"] {
            assert_eq!(ask(server, path, &[]).status, 404);
        }
        wait_file(server, "all.log", "/c");
        server.reload();
        let log = wait_file(server, "own.log", "left out");
        let (written, left_out) = written_and_left_out(&log);
        assert_eq!(written + left_out, 3, "{log}");
    });
}
