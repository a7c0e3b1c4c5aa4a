//! `access_log` and `log_format`.

use std::io::Read;

use nowait_testkit::server::Signal;
use nowait_testkit::{check_on, wait};

use crate::stage::{ask, on_each_driver, server, site, wait_file};

#[test]
fn the_usual_format_says_it_all() {
    let site = server("location / { return 200 OK; }");
    on_each_driver(&site, |server| {
        ask(server, "/a%20b?c", &["Referer: http://r/", "User-Agent: me \"x\" \\ \u{e9}"]);
        let log = wait_file(server, "access.log", "GET");
        let line = log.lines().find(|line| line.contains("/a%20b")).unwrap();
        assert!(line.starts_with("127.0.0.1 - - ["), "{line}");
        assert!(
            line.ends_with(
                "] \"GET /a%20b?c HTTP/1.1\" 200 2 \"http://r/\" \"me \\x22x\\x22 \\x5C \\xC3\\xA9\""
            ),
            "{line}"
        );
    });
}

#[test]
fn formats_escape_as_they_say() {
    let site = site(
        r#"
        log_format plain "p:$arg_a|$http_x|$arg_none";
        log_format json escape=json '{"a":"$http_x","n":"$arg_none"}';
        log_format none escape=none "n:$http_x|$arg_none";
        log_format long "$status"  ":" "$body_bytes_sent" ':${request_method}x';
        server {
            listen 127.0.0.1:%%PORT%%;
            access_log %%DIR%%/plain.log plain;
            access_log %%DIR%%/json.log json;
            access_log %%DIR%%/none.log none;
            access_log %%DIR%%/long.log long;
            location / { return 200 OK; }
        }
        "#,
    );
    on_each_driver(&site, |server| {
        ask(server, "/?a=1", &["X: q\" b\\ t\t é"]);
        let lines = |name: &str| wait_file(server, name, "\n");
        assert_eq!(lines("plain.log"), "p:1|q\\x22 b\\x5C t\\x09 \\xC3\\xA9|-\n");
        assert_eq!(lines("json.log"), "{\"a\":\"q\\\" b\\\\ t\\t é\",\"n\":\"\"}\n");
        assert_eq!(lines("none.log"), "n:q\" b\\ t\t é|\n");
        assert_eq!(lines("long.log"), "200:2:GETx\n");
    });
}

#[test]
fn presets_are_json_whatever_clients_send() {
    let site = site(
        "server {
            listen 127.0.0.1:%%PORT%%;
            access_log %%DIR%%/a.json json;
            access_log %%DIR%%/ecs.json ecs;
            location / { return 200 OK; }
            location /up { proxy_pass http://127.0.0.1:1; }
            location /none { return 444; }
        }",
    )
    .allow_log("connect() failed");
    on_each_driver(&site, |server| {
        ask(server, "/\"%22?a=\\", &["User-Agent: \"\\\u{e9}\u{fffd}\t", "Referer: {}"]);
        ask(server, "/", &["User-Agent: \u{1}"]);
        ask(server, "/up", &[]);
        for bytes in
            ["GET /none HTTP/1.1\r\nHost: a\r\n\r\n", "GET /\r\n", "\u{0}\r\n\r\n", "GET /a\r"]
        {
            let mut client = server.client();
            client.send(bytes);
            client.half_close();
            client.rest();
        }
        ask(server, "/last", &[]);
        for name in ["a.json", "ecs.json"] {
            let log = wait_file(server, name, "/last");
            for line in log.lines() {
                let parsed: Result<serde_json::Value, _> = serde_json::from_str(line);
                assert!(parsed.is_ok_and(|value| value.is_object()), "{line}");
            }
        }
        let log = server.read("a.json");
        let lines: Vec<serde_json::Value> =
            log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!([&lines[0]["status"], &lines[0]["referrer"]], ["200", "{}"]);
        assert_eq!([&lines[2]["upstream_status"], &lines[2]["uri"]], ["502", "/up"]);
    });
    // One of the same name replaces it.
    let own = server("location / { return 200 OK; access_log %%DIR%%/own json; }");
    let own = own.http(
        "log_format json own; server { listen 127.0.0.1:%%PORT%%; access_log %%DIR%%/own json; }",
    );
    on_each_driver(&own, |server| {
        ask(server, "/", &[]);
        assert!(wait_file(server, "own", "own").lines().all(|line| line == "own"));
    });
}

#[test]
fn a_condition_and_off_decide() {
    let site = site(
        r#"
        log_format uri "$uri";
        access_log %%DIR%%/http.log uri;
        server {
            listen 127.0.0.1:%%PORT%%;
            location / { return 200 OK; }
            location /off { access_log off; return 200 OK; }
            location /own { access_log %%DIR%%/own.log uri; return 200 OK; }
            location /if { access_log %%DIR%%/if.log uri if=$arg_log; return 200 OK; }
        }
        "#,
    );
    on_each_driver(&site, |server| {
        let targets =
            ["/off", "/own", "/if", "/if?log=0", "/if?log=1", "/if?log=", "/if?log=x", "/last"];
        for target in targets {
            ask(server, target, &[]);
        }
        wait_file(server, "http.log", "/last");
        assert_eq!(wait_file(server, "if.log", "/if\n/if\n"), "/if\n/if\n");
        assert_eq!(wait_file(server, "own.log", "/own"), "/own\n");
        assert_eq!(server.read("http.log"), "/last\n");
    });
}

#[test]
fn buffered_lines_come_when_time_is_up_or_the_server_ends() {
    let site = site(
        r#"
        log_format uri "$uri";
        server {
            listen 127.0.0.1:%%PORT%%;
            location /flush { access_log %%DIR%%/flush.log uri buffer=64k flush=100ms; return 200 OK; }
            location /full { access_log %%DIR%%/full.log uri buffer=1k flush=1h; return 200 OK; }
            location /quit { access_log %%DIR%%/quit.log uri buffer=64k; return 200 OK; }
            location /gzip { access_log %%DIR%%/gzip.log uri gzip flush=100ms; return 200 OK; }
        }
        "#,
    );
    for stop in [true, false] {
        let server = site.clone().start();
        ask(&server, "/flush", &[]);
        wait_file(&server, "flush.log", "/flush\n");
        let mut client = server.client();
        for _ in 0..300 {
            client.get("/full");
        }
        wait_file(&server, "full.log", "/full\n/full\n");
        ask(&server, "/gzip", &[]);
        let read = || {
            let bytes = std::fs::read(server.dir().join("gzip.log")).unwrap_or_default();
            let mut text = String::new();
            flate2::read::MultiGzDecoder::new(&bytes[..]).read_to_string(&mut text).ok()?;
            (text == "/gzip\n").then_some(())
        };
        wait::until("the compressed log", wait::PATIENCE, read);
        ask(&server, "/quit", &[]);
        assert_eq!(server.read("quit.log"), "");
        let path = server.dir().join("quit.log");
        let mut file = std::fs::File::open(path).unwrap();
        if stop {
            server.stop()
        } else {
            server.quit()
        };
        let mut text = String::new();
        file.read_to_string(&mut text).unwrap();
        assert_eq!(text, "/quit\n");
    }
}

#[test]
fn a_path_may_have_variables() {
    let site = site(
        r#"
        log_format uri "$uri";
        server {
            listen 127.0.0.1:%%PORT%%;
            root %%DIR%%/logs;
            open_log_file_cache max=2;
            access_log %%DIR%%/logs/log_$arg_n uri;
            location / { return 200 OK; }
        }
        "#,
    )
    .file("logs/x", "");
    on_each_driver(&site, |server| {
        let all = std::os::unix::fs::PermissionsExt::from_mode(0o777);
        std::fs::set_permissions(server.dir().join("logs"), all).unwrap();
        for n in 0..5 {
            ask(server, &format!("/{n}?n={n}"), &[]);
            ask(server, &format!("/again?n={n}"), &[]);
        }
        for n in 0..5 {
            let log = wait_file(server, &format!("logs/log_{n}"), "/again\n");
            assert_eq!(log, format!("/{n}\n/again\n"));
        }
    });
}

#[test]
fn usr1_reopens_the_logs() {
    let site = server("location / { return 200 OK; }");
    on_each_driver(&site, |server| {
        ask(server, "/before", &[]);
        wait_file(server, "access.log", "/before");
        let path = server.dir().join("access.log");
        std::fs::rename(&path, server.dir().join("access.old")).unwrap();
        ask(server, "/between", &[]);
        wait_file(server, "access.old", "/between");
        server.signal(Signal::USR1);
        wait::until("a new log", wait::PATIENCE, || path.exists().then_some(()));
        let look = || {
            ask(server, "/after", &[]);
            server.read("access.log").contains("/after").then_some(())
        };
        wait::until("lines in the new log", wait::PATIENCE, look);
        assert!(!server.read("access.log").contains("/between"));
    });
}

#[test]
fn every_request_has_its_line() {
    let site = server("location / { return 200 $uri; } location /none { return 444; }")
        .file("html/a", "A");
    on_each_driver(&site, |server| {
        check_on(
            server,
            "GET /one HTTP/1.1\nHost: x\n---\nGET /two HTTP/1.1\nHost: x",
            "200\n---\n200",
        );
        check_on(server, "GET /none HTTP/1.1\nHost: x", "closed");
        for line in [
            "\"GET /one HTTP/1.1\" 200 4",
            "\"GET /two HTTP/1.1\" 200 4",
            "\"GET /none HTTP/1.1\" 444 0",
        ] {
            let log = wait_file(server, "access.log", line);
            assert_eq!(log.matches(line).count(), 1, "{log}");
        }
    });
}

#[test]
fn wrong_formats_are_refused() {
    for (text, message) in [
        ("access_log %%DIR%%/x.log nosuch;", "unknown log format \"nosuch\""),
        ("log_format x $nosuch; ", "unknown \"nosuch\" variable"),
        ("log_format x $uri; log_format x $uri;", "duplicate \"log_format\" name \"x\""),
        ("access_log %%DIR%%/x.log combined buffer=x;", "invalid buffer size \"x\""),
        ("access_log %%DIR%%/x.log combined flush=1s;", "no buffer is defined for access_log"),
        ("access_log %%DIR%%/x.log combined nonsense;", "invalid parameter \"nonsense\""),
    ] {
        let text = format!("{text} server {{ listen 127.0.0.1:%%PORT%%; }}");
        let failure = site(&text).try_start().expect_err(message);
        let said = failure.stderr + &failure.log;
        assert!(said.contains(message), "{message}: {said}");
    }
}
