//! `request_ring`, `requests_api` and `nowait log`: recent requests with their times.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::process::{Command, Output, Stdio};
use std::thread;

use nowait_testkit::{Server, wait};
use serde_json::{Value, json};

use crate::stage::{ask, on_each_driver, refused, site};

fn recent(server: &Server, arguments: &str) -> Value {
    let response = server.get(&format!("/requests?{arguments}"));
    let text = response.text();
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

fn uris(page: &Value) -> Vec<&str> {
    let requests = page["requests"].as_array().expect("a list");
    requests.iter().map(|request| request["uri"].as_str().expect("a text")).collect()
}

fn ring() -> nowait_testkit::ServerBuilder {
    site(
        "request_ring 8;
         server {
             listen 127.0.0.1:%%PORT%%;
             server_name main.test;
             root %%DIR%%/html;
             location /a { return 200 ok; }
             location /bad { return 500; }
             location /up { proxy_pass http://127.0.0.1:%%PORT%%/a/up; }
             location = /requests { request_ring off; requests_api; }
         }",
    )
    .file("html/f", "file")
    .workers(1)
}

#[test]
fn requests_are_remembered_with_their_times() {
    on_each_driver(&ring(), |server| {
        assert_eq!(ask(server, "/f?q=%20", &[]).text(), "file");
        assert_eq!(ask(server, "/bad", &[]).status, 500);
        assert_eq!(ask(server, "/up", &[]).text(), "ok");
        let long = format!("/a{}", "x".repeat(3000));
        assert_eq!(ask(server, &long, &[]).status, 200);
        let all = recent(server, "");
        assert_eq!(uris(&all), ["/f?q=%20", "/bad", "/a/up", "/up", &long[..256]]);
        let file = &all["requests"][0];
        for (name, value) in [
            ("status", 200.into()),
            ("method", "GET".into()),
            ("host", "localhost".into()),
            ("server", "main.test".into()),
            ("location", "".into()),
            ("protocol", "HTTP/1.1".into()),
            ("client", "127.0.0.1".into()),
            ("connection_requests", 1.into()),
            ("worker", 0.into()),
            ("pool", "default".into()),
            ("upstream", "".into()),
            ("cache", "".into()),
        ] as [(&str, Value); 12]
        {
            assert_eq!(file[name], value, "{name}: {file}");
        }
        assert!(file["bytes"].as_u64() > Some(4) && file["request_bytes"].as_u64() > Some(10));
        let times = &file["times_us"];
        assert!(times["disk_time"].as_u64() > Some(0), "{times}");
        let sum = times["disk_time"].as_u64().unwrap() + times["pool_wait"].as_u64().unwrap();
        assert_eq!(times["disk_wait"], sum, "{times}");
        assert!(file["ended_ms"].as_u64() > Some(1_700_000_000_000));
        let up = &all["requests"][3];
        assert_eq!(up["upstream"], format!("127.0.0.1:{}", server.port()));
        // What comes behind a place, and what is lost if nobody looks.
        let next = all["next"].as_str().unwrap();
        assert_eq!(uris(&recent(server, &format!("after={next}"))), <[&str; 0]>::default());
        assert_eq!(ask(server, "/a/1", &[]).status, 200);
        assert_eq!(uris(&recent(server, &format!("after={next}"))), ["/a/1"]);
        for n in 2..=10 {
            assert_eq!(ask(server, &format!("/a/{n}"), &[]).status, 200);
        }
        let late = recent(server, &format!("after={next}"));
        assert_eq!((late["missed"].as_u64(), uris(&late).len()), (Some(2), 8), "{late}");
        let last = recent(server, "limit=2");
        assert_eq!((uris(&last), &last["left_out"]), (vec!["/a/9", "/a/10"], &6.into()));
    });
}

#[test]
fn filters_select_requests() {
    on_each_driver(&ring(), |server| {
        for path in ["/a/1", "/bad", "/f", "/missing"] {
            ask(server, path, &[]);
        }
        for (filter, expected) in [
            ("status%20%3E%3D%20500", &["/bad"][..]),
            ("status%3D404%20or%20uri~%5E/a", &["/a/1", "/missing"]),
            ("not%20(status%3D200)%20and%20status%3C500", &["/missing"]),
            ("disk_wait>0us%20and%20bytes%3E1", &["/f", "/missing"]),
            ("time>1h", &[]),
        ] {
            assert_eq!(uris(&recent(server, &format!("filter={filter}"))), expected, "{filter}");
        }
        for (arguments, argument) in [
            ("filter=statsu", "filter"),
            ("filter=(((", "filter"),
            ("filter=uri~(", "filter"),
            ("filter=%ff", "filter"),
            ("after=x", "after"),
            ("limit=0", "limit"),
            ("limit=999999", "limit"),
        ] {
            let response = server.get(&format!("/requests?{arguments}"));
            assert_eq!(response.status, 400, "{arguments}");
            let page: Value = serde_json::from_str(&response.text()).unwrap();
            assert_eq!(page["error"]["argument"], argument, "{page}");
        }
        check_methods(server);
    });
}

fn check_methods(server: &Server) {
    let mut client = server.client();
    client.send(
        "POST /requests HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
    );
    assert_eq!(client.response().status, 405);
}

fn log_command(server: &Server, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_nowait"));
    let url = format!("http://127.0.0.1:{}/requests", server.port());
    command.arg("log").args(arguments).arg(url).output().expect("the program starts")
}

#[test]
fn the_command_shows_them() {
    let mut server = ring().start();
    for path in ["/a/1", "/bad", "/a/2"] {
        ask(&server, path, &[]);
    }
    let said = log_command(&server, &["status >= 500"]);
    let text = String::from_utf8(said.stdout).unwrap();
    assert!(said.status.success() && text.lines().count() == 1, "{text}");
    assert!(text.contains(" 127.0.0.1 500 GET localhost/bad "), "{text}");
    let said = log_command(&server, &["--json", "--limit", "2"]);
    let lines: Vec<Value> = String::from_utf8(said.stdout)
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str(line).expect(line))
        .collect();
    assert_eq!([&lines[0]["uri"], &lines[1]["uri"]], ["/bad", "/a/2"]);
    let wrong = log_command(&server, &["status >= 500 and statsu = 1"]);
    assert_eq!(wrong.status.code(), Some(1));
    let said = String::from_utf8(wrong.stderr).unwrap();
    assert!(
        said.contains(
            "did you mean \"status\"?\n  status >= 500 and statsu = 1\n                    ^"
        ),
        "{said}"
    );

    let mut command = Command::new(env!("CARGO_BIN_EXE_nowait"));
    let url = format!("http://127.0.0.1:{}/requests", server.port());
    let mut child = command
        .args(["log", "-f", "--limit=1", "uri ~ ^/a", &url])
        .stdout(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.next().unwrap().unwrap().contains("/a/2"));
    // The limit is for those that were there: of later ones, none is left out.
    for path in ["/a/3", "/bad", "/a/4", "/a/5"] {
        ask(&server, path, &[]);
    }
    for path in ["/a/3", "/a/4", "/a/5"] {
        let line = lines.next().unwrap().unwrap();
        assert!(line.contains(path), "{line}");
    }
    child.kill().unwrap();
    child.wait().unwrap();
    server.allow_log("client prematurely closed");
    server.stop();
}

/// What a command of the program prints.
fn printed(arguments: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_nowait"));
    let said = command.args(arguments).output().expect("the program starts");
    String::from_utf8(said.stdout).expect("UTF-8")
}

#[test]
fn servers_do_not_steer_the_terminal() {
    // Control Sequence Introducer as one character, DEL, and a reversal of the direction.
    let text = "a\u{9b}2J\u{7f}\u{202e}b";
    let page = json!({
        "next": "",
        "requests": [{ "uri": text }],
        "connections": [{ "state": text }],
    });
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/page", listener.local_addr().unwrap());
    let commands = [["log", &url, "--json"], ["connections", &url, "--json"]];
    let server = thread::spawn(move || {
        // Each command runs twice.
        for _ in 0..4 {
            let mut lines = BufReader::new(listener.accept().unwrap().0);
            let mut line = String::new();
            while line != "\r\n" {
                line.clear();
                assert_ne!(lines.read_line(&mut line).unwrap(), 0, "the request ends");
            }
            write!(lines.get_mut(), "HTTP/1.1 200 OK\r\n\r\n{page}").unwrap();
        }
    });
    for command in &commands {
        assert!(
            printed(&command[..2]).contains("a\\xC2\\x9B2J\\x7F\\xE2\\x80\\xAEb"),
            "{command:?}"
        );
        assert!(printed(command).contains("a\\u009B2J\\u007F\\u202Eb"), "{command:?}");
    }
    server.join().unwrap();
}

#[test]
fn rings_survive_requests_of_an_older_configuration() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let with = |size: &str| {
        format!(
            "request_ring {size};
             server {{
                 listen 127.0.0.1:%%PORT%%;
                 location /a {{ return 200 ok; }}
                 location /up {{ proxy_pass http://{}; }}
                 location = /requests {{ request_ring off; requests_api; }}
             }}",
            silent.local_addr().unwrap()
        )
    };
    on_each_driver(&site(&with("8")).workers(1), |server| {
        let end = |upstream: std::net::TcpStream| {
            let answer = b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n";
            (&upstream).write_all(answer).unwrap();
        };
        let mut old = server.client();
        crate::stage::send(&mut old, "/up/1", &[]);
        let (first, _) = silent.accept().unwrap();
        server.set_http(&with("16"));
        server.reload();
        assert_eq!(ask(server, "/a/1", &[]).status, 200);
        end(first);
        assert_eq!(old.response().status, 204);
        assert_eq!(ask(server, "/a/2", &[]).status, 200);
        assert_eq!(uris(&recent(server, "")), ["/a/1", "/up/1", "/a/2"]);
        // The same size: nothing is lost. None: nothing is kept.
        server.reload();
        assert_eq!(uris(&recent(server, "")).len(), 3);
        server.set_http(&with("off"));
        server.reload();
        assert_eq!(uris(&recent(server, "")), <[&str; 0]>::default());
    });
}

#[test]
fn wrong_sizes() {
    let with = |ring: &str| site(&format!("{ring} server {{ listen 127.0.0.1:%%PORT%%; }}"));
    refused(&with("request_ring 0;"), "invalid number of requests \"0\"");
    refused(&with("request_ring 65537;"), "invalid number of requests \"65537\"");
    let inside = site("server { listen 127.0.0.1:%%PORT%%; request_ring 5; }");
    refused(&inside, "a worker has one ring for all servers");
}

/// The connection whose request has this text.
fn with<'a>(page: &'a Value, request: &str) -> Option<&'a Value> {
    let all = page["connections"].as_array().expect("a list");
    all.iter().find(|one| {
        let mut requests = one["in_progress"].as_array().into_iter().flatten();
        requests.any(|found| found["request"] == request)
    })
}

#[test]
fn connections_show_what_they_wait_for() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let site = site(&format!(
        "server {{
             listen 127.0.0.1:%%PORT%%;
             root %%DIR%%/html;
             location /up {{ proxy_pass http://{}; }}
             location = /connections {{ connections_api; }}
         }}",
        silent.local_addr().unwrap()
    ))
    .file("html/large", crate::stage::pattern(20_000_000))
    .workers(2)
    .allow_log("client prematurely closed")
    .allow_log("client closed");
    on_each_driver(&site, |server| {
        let mut idle = server.client();
        crate::stage::send(&mut idle, "/missing", &[]);
        assert_eq!(idle.response().status, 404);
        let (mut waits, mut reads_late) = (server.client(), server.client());
        crate::stage::send(&mut waits, "/up/a?b", &[]);
        crate::stage::send(&mut reads_late, "/large", &[]);
        let (_upstream, _) = silent.accept().unwrap();
        let look = || {
            let page: Value = serde_json::from_str(&server.get("/connections").text()).unwrap();
            let upstream = with(&page, "GET /up/a?b")?["state"].as_str()?.to_owned();
            let large = with(&page, "GET /large")?;
            let client = large["state"].as_str()?.to_owned();
            large["sent"].as_u64().filter(|sent| *sent > 100_000)?;
            let is_sent = upstream.contains("reading response header from upstream");
            (is_sent && client == "client").then_some((page, upstream))
        };
        let (page, upstream) = wait::until("all states", wait::PATIENCE, look);
        let name = format!("upstream {}: ", silent.local_addr().unwrap());
        assert!(upstream.starts_with(&name), "{upstream}");
        let large = with(&page, "GET /large").unwrap();
        assert!(large["received"].as_u64() > Some(10), "{large}");
        let all = page["connections"].as_array().unwrap();
        let idle_one = all.iter().find(|one| one["state"] == "idle").expect("an idle one");
        assert_eq!((&idle_one["requests"], &idle_one["protocol"]), (&1.into(), &"HTTP/1.1".into()));
        assert!(idle_one["idle_ms"].is_u64() && idle_one["in_progress"] == Value::Array(vec![]));
        assert!(with(&page, "GET /connections").is_some_and(|own| own["state"] == "handler"));
        assert_eq!((&page["has_more"], &page["silent_workers"]), (&false.into(), &0.into()));
        let few: Value = serde_json::from_str(&server.get("/connections?limit=1").text()).unwrap();
        assert_eq!(few["has_more"], true);
        assert_eq!(server.get("/connections?limit=0").status, 400);
        let url = format!("http://127.0.0.1:{}/connections", server.port());
        let text = printed(&["connections", &url]);
        assert!(text.contains("reading response header from upstream, GET /up/a?b for "), "{text}");
        drop((waits, reads_late));
        // Requests that have ended are off the list, even while their connections live.
        crate::stage::send(&mut idle, "/missing", &[]);
        assert_eq!(idle.response().status, 404);
        wait::until("the end of both", wait::PATIENCE, || {
            let page: Value = serde_json::from_str(&server.get("/connections").text()).unwrap();
            let all = page["connections"].as_array().unwrap();
            let busy = all.iter().filter(|one| one["in_progress"] != Value::Array(vec![]));
            (busy.count() == 1).then_some(())
        });
    });
}
