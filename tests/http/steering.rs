//! `api write=on`: servers of groups, `state`, resetting statistics, purging caches.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use serde_json::{Value, json};

use nowait_testkit::server::{Signal, signal};
use nowait_testkit::wait::{PATIENCE, until};
use nowait_testkit::{Client, Server, ServerBuilder};

use crate::api::{call, open_directory, refusal, refusals, send};
use crate::stage::{on_each_driver, refused, site as site_with};

/// Three backends that say their number, a group `u` of the first, and this inside of the group and the server.
fn site(inside: &str, content: &str) -> ServerBuilder {
    let backends: String = (1..4)
        .map(|n| format!("server {{ listen 127.0.0.1:%%PORT_{n}%%; return 200 {n}; }}\n"))
        .collect();
    site_with(&format!(
        "upstream u {{ zone u 64k; {inside} }}
         upstream fixed {{ server 127.0.0.1:%%PORT_1%%; }}
         server {{ listen 127.0.0.1:%%PORT%%;
         location / {{ proxy_pass http://u; proxy_set_header Connection \"\"; }}
         location /fixed {{ proxy_pass http://fixed; }}
         location /api/ {{ api write=on; }} location /read/ {{ api; }} {content} }}
         {backends}"
    ))
    .workers(2)
}

fn group() -> ServerBuilder {
    site("server 127.0.0.1:%%PORT_1%%;", "")
}

const SERVERS: &str = "/api/9/http/upstreams/u/servers";

fn address(server: &Server, n: usize) -> String {
    format!("127.0.0.1:{}", server.port_n(n))
}

fn add(server: &Server, n: usize) -> Value {
    let body = json!({ "server": address(server, n) }).to_string();
    let (status, value) = call(server, "POST", SERVERS, &body);
    assert_eq!(status, 201, "{value}");
    value
}

/// The answers of the next requests, sorted.
fn answers(server: &Server, count: usize) -> String {
    let mut client = server.client();
    let mut all: Vec<String> = (0..count).map(|_| client.get("/").text()).collect();
    all.sort();
    all.concat()
}

fn listed(server: &Server) -> Vec<String> {
    let (status, list) = call(server, "GET", SERVERS, "");
    assert_eq!(status, 200, "{list}");
    let name = |entry: &Value| entry["server"].as_str().unwrap().to_owned();
    list.as_array().unwrap().iter().map(name).collect()
}

#[test]
fn servers_are_added_changed_and_removed() {
    on_each_driver(&group(), |server| {
        assert_eq!(answers(server, 2), "11");
        let added = add(server, 2);
        let expected = json!({
            "id": 1, "server": address(server, 2), "weight": 1, "max_conns": 0, "max_fails": 1,
            "fail_timeout": "10s", "slow_start": "0s", "route": "", "backup": false, "down": false,
        });
        assert_eq!(added, expected);
        assert_eq!(answers(server, 4), "1122");
        let (status, changed) =
            call(server, "PATCH", &format!("{SERVERS}/1"), r#"{"weight":3,"max_fails":0}"#);
        assert_eq!(
            (status, &changed["weight"], &changed["max_fails"]),
            (200, &json!(3), &json!(0))
        );
        assert_eq!(call(server, "GET", &format!("{SERVERS}/1"), "").1, changed);
        call(server, "PATCH", &format!("{SERVERS}/0"), r#"{"down":true}"#);
        assert_eq!(answers(server, 4), "2222");
        let peers = call(server, "GET", "/read/9/http/upstreams/u/peers", "").1;
        assert_eq!((&peers[0]["state"], &peers[1]["weight"]), (&json!("down"), &json!(3)));
        let (status, list) = call(server, "DELETE", &format!("{SERVERS}/1"), "");
        assert_eq!((status, list.as_array().unwrap().len()), (200, 1));
        call(server, "PATCH", &format!("{SERVERS}/0"), r#"{"down":false}"#);
        assert_eq!(answers(server, 2), "11");
        // Another address, with another ID than the one before.
        assert_eq!(add(server, 3)["id"], 2);
        let body = json!({ "server": address(server, 2) }).to_string();
        assert_eq!(call(server, "PATCH", &format!("{SERVERS}/2"), &body).0, 200);
        assert_eq!(answers(server, 4), "1122");
        // Without a state file, a reload returns to the configuration.
        server.reload();
        until("the configuration's servers", PATIENCE, || {
            (listed(server) == [address(server, 1)]).then_some(())
        });
        assert_eq!(answers(server, 2), "11");
        server.wait_log(&format!(
            "api: server {} (id 1, weight=1 max_conns=0 max_fails=1 fail_timeout=10s) added to \
             upstream \"u\", client: 127.0.0.1",
            address(server, 2)
        ));
        server.wait_log("removed from upstream \"u\"");
    });
}

#[test]
fn what_is_wrong_is_refused() {
    on_each_driver(&group(), |server| {
        let own = format!("{SERVERS}/0");
        let taken = json!({ "server": address(server, 1) }).to_string();
        let huge = format!("{{\"server\":\"{}\"}}", "x".repeat(70_000));
        let deep = "[".repeat(10_000);
        // A state file with such a word could not be read.
        let long = json!({ "server": format!("{}:80", "a".repeat(5000)) }).to_string();
        let cases = [
            ("POST", "/read/9/http/upstreams/u/servers", "{}", 405, "MethodDisabled"),
            ("DELETE", "/read/9/http/requests", "", 405, "MethodDisabled"),
            ("PUT", SERVERS, "{}", 405, "MethodDisabled"),
            ("POST", &own, "{}", 405, "MethodDisabled"),
            ("POST", "/api/9/nginx", "{}", 405, "MethodDisabled"),
            ("POST", "/api/10/http/upstreams/u/servers", "{}", 404, "UnknownVersion"),
            ("POST", "/api/9/http/upstreams/v/servers", "{}", 404, "UpstreamNotFound"),
            ("GET", "/api/9/http/upstreams/v/servers", "", 404, "UpstreamNotFound"),
            ("GET", "/api/9/http/upstreams/v", "", 404, "UpstreamNotFound"),
            ("GET", "/api/9/http/upstreams/fixed/servers", "", 400, "UpstreamStatic"),
            ("POST", "/api/9/http/upstreams/fixed/servers", "{}", 400, "UpstreamStatic"),
            ("GET", "/api/9/http/upstreams/u/servers/7", "", 404, "UpstreamServerNotFound"),
            ("PATCH", "/api/9/http/upstreams/u/servers/7", "{}", 404, "UpstreamServerNotFound"),
            ("DELETE", "/api/9/http/upstreams/u/servers/7", "", 404, "UpstreamServerNotFound"),
            ("DELETE", "/api/9/http/upstreams/u/servers/x", "", 400, "UpstreamBadServerId"),
            ("DELETE", SERVERS, "", 405, "MethodDisabled"),
            ("POST", SERVERS, "", 415, "JsonError"),
            ("POST", SERVERS, "{", 415, "JsonError"),
            ("POST", SERVERS, "[1]", 415, "JsonError"),
            ("POST", SERVERS, "{\"server\":\"\u{0}\"}", 415, "JsonError"),
            ("POST", SERVERS, &deep, 415, "JsonError"),
            ("POST", SERVERS, &huge, 413, "BodyReadError"),
            ("POST", SERVERS, &taken, 409, "EntryExists"),
            ("POST", SERVERS, &long, 400, "UpstreamBadAddress"),
            ("POST", SERVERS, r#"{"server":"127.0.0.1","x":1}"#, 400, "UpstreamConfFormatError"),
            ("PATCH", &own, r#"{"backup":true}"#, 400, "UpstreamConfFormatError"),
            ("PATCH", &own, r#"{"weight":0}"#, 400, "UpstreamBadWeight"),
            ("PATCH", &own, r#"{"server":"a.example"}"#, 400, "UpstreamServerImmutable"),
        ];
        refusals(server, &cases);
        assert_eq!(listed(server), [address(server, 1)]);
        assert_eq!(answers(server, 2), "11");
        // The bodies that were not read, and the JSON that was not one.
        server.allow_log("client intended to send too large body");
    });
}

/// Threads that request `/` until they are told to stop, and the number of their requests.
struct Load {
    stop: Arc<AtomicBool>,
    threads: Vec<std::thread::JoinHandle<usize>>,
    total: Arc<AtomicUsize>,
}

impl Load {
    fn start(server: &Server) -> Self {
        let (stop, total) = (Arc::<AtomicBool>::default(), Arc::<AtomicUsize>::default());
        let run = |keep_alive: bool| {
            let (stop, total, addr) = (stop.clone(), total.clone(), server.addr());
            move || {
                let (mut count, mut client) = (0, Client::to(addr));
                while !stop.load(Ordering::Relaxed) {
                    let response = client.get("/");
                    assert_eq!(response.status, 200, "{response:?}");
                    // After as many requests as `keepalive_requests` says, connections are closed.
                    if !keep_alive || response.header("Connection") == Some("close") {
                        client = Client::to(addr);
                    }
                    count += 1;
                    total.fetch_add(1, Ordering::Relaxed);
                }
                count
            }
        };
        let threads = [true, true, true, false].map(|kept| std::thread::spawn(run(kept)));
        Self { threads: threads.into(), stop, total }
    }

    /// Waits for more requests.
    fn progress(&self) {
        let before = self.total.load(Ordering::Relaxed);
        until("requests to be answered", PATIENCE, || {
            let failed = self.threads.iter().any(std::thread::JoinHandle::is_finished);
            assert!(!failed, "a request failed");
            (self.total.load(Ordering::Relaxed) > before + 20).then_some(())
        });
    }

    fn end(self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads {
            assert!(thread.join().expect("no request failed") > 0);
        }
    }
}

#[test]
fn no_request_is_lost_while_servers_change() {
    on_each_driver(&site("server 127.0.0.1:%%PORT_1%%; keepalive 8;", ""), |server| {
        let load = Load::start(server);
        let mut last = call(server, "GET", SERVERS, "").1[0]["id"].clone();
        for round in 0..12 {
            let added = add(server, 2 + round % 2)["id"].clone();
            let path = format!("{SERVERS}/{added}");
            load.progress();
            call(server, "PATCH", &path, r#"{"weight":5}"#);
            call(server, "PATCH", &format!("{SERVERS}/{last}"), r#"{"drain":true}"#);
            load.progress();
            assert_eq!(call(server, "DELETE", &format!("{SERVERS}/{last}"), "").0, 200);
            load.progress();
            last = added;
        }
        load.end();
        assert_eq!(listed(server).len(), 1);
    });
}

/// A server whose only requests wait for it when it is removed.
#[test]
fn requests_of_a_removed_server_are_served_to_their_end() {
    let site = site_with(
        "upstream u { zone u 64k; server 127.0.0.1:%%PORT_1%%; }
         server { listen 127.0.0.1:%%PORT%%;
         location / { proxy_pass http://u; proxy_buffering off; } location /api/ { api write=on; } }
         server { listen 127.0.0.1:%%PORT_1%%; limit_rate 50k; root %%DIR%%; }",
    )
    .file("long", "x".repeat(150_000));
    on_each_driver(&site, |server| {
        let mut client = server.client();
        client.send_get("/long");
        until("its request", PATIENCE, || {
            let peers = call(server, "GET", "/api/9/http/upstreams/u/peers", "").1;
            (peers[0]["active"] == 1).then_some(())
        });
        assert_eq!(call(server, "DELETE", &format!("{SERVERS}/0"), "").0, 200);
        assert_eq!(server.get("/").status, 502);
        let response = client.response();
        assert_eq!((response.status, response.text().len()), (200, 150_000));
        server.allow_log("no live upstreams");
    });
}

#[test]
fn two_writers_at_the_same_time_leave_one_truth() {
    on_each_driver(&with_state(), |server| {
        open_directory(server);
        let writers: Vec<_> = (0..4_u8)
            .map(|writer| {
                let addr = server.addr();
                std::thread::spawn(move || {
                    let mut client = Client::to(addr);
                    for n in 0..10 {
                        let body = format!("{{\"server\":\"127.0.9.{writer}:{}\"}}", 1000 + n);
                        let response = send(&mut client, "POST", SERVERS, &body);
                        assert_eq!(response.status, 201, "{response:?}");
                        if n % 2 == 1 {
                            let value: Value = serde_json::from_str(&response.text()).unwrap();
                            let path = format!("{SERVERS}/{}", value["id"]);
                            assert_eq!(send(&mut client, "DELETE", &path, "").status, 200);
                        }
                    }
                })
            })
            .collect();
        writers.into_iter().for_each(|writer| writer.join().unwrap());
        let mut names = listed(server);
        assert_eq!(names.len(), 20);
        let text = std::fs::read_to_string(server.dir().join("state/u")).unwrap();
        let mut saved: Vec<&str> =
            text.lines().map(|line| &line["server ".len()..line.len() - 1]).collect();
        saved.sort_unstable();
        names.sort();
        assert_eq!(saved, names);
        // Exactly one of several that add the same server.
        let body = json!({ "server": "127.0.9.9:80" }).to_string();
        let same: Vec<_> = (0..4)
            .map(|_| {
                let (addr, body) = (server.addr(), body.clone());
                std::thread::spawn(move || {
                    send(&mut Client::to(addr), "POST", SERVERS, &body).status
                })
            })
            .collect();
        let mut statuses: Vec<u16> = same.into_iter().map(|one| one.join().unwrap()).collect();
        statuses.sort_unstable();
        assert_eq!(statuses, [201, 409, 409, 409]);
    });
}

/// The group's servers are in a file.
fn with_state() -> ServerBuilder {
    site("state %%DIR%%/state/u;", "").file("state/.keep", "")
}

#[test]
fn a_state_file_keeps_changes() {
    let reload = |server: &Server| server.reload();
    on_each_driver(&with_state(), |server| {
        open_directory(server);
        assert_eq!(server.get("/").status, 502);
        server.allow_log("no live upstreams");
        add(server, 2);
        let path = server.dir().join("state/u");
        let text = || std::fs::read_to_string(&path).unwrap();
        assert_eq!(text(), format!("server {};\n", address(server, 2)));
        call(server, "PATCH", &format!("{SERVERS}/0"), r#"{"weight":7,"route":"a \"b;"}"#);
        let expected = format!("server {} weight=7 \"route=a \\\"b;\";\n", address(server, 2));
        assert_eq!(text(), expected);
        reload(server);
        let servers = call(server, "GET", SERVERS, "").1;
        assert_eq!((&servers[0]["weight"], &servers[0]["route"]), (&json!(7), &json!("a \"b;")));
        assert_eq!(answers(server, 2), "22");
        // The file is older than the servers: it could not be written.
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, &expected).unwrap();
        let directory = server.dir().join("state");
        let moved = server.dir().join("moved");
        std::fs::rename(&directory, &moved).unwrap();
        assert_eq!(add(server, 3)["id"], 1);
        server.wait_log("api: state of upstream \"u\" was not saved in");
        server.allow_log("was not saved in");
        std::fs::rename(&moved, &directory).unwrap();
        reload(server);
        assert_eq!(listed(server), [address(server, 2), address(server, 3)]);
        // An operator's text counts.
        std::fs::write(&path, format!("# mine\nserver {};\n", address(server, 1))).unwrap();
        reload(server);
        until("the operator's servers", PATIENCE, || {
            (listed(server) == [address(server, 1)]).then_some(())
        });
        assert_eq!(answers(server, 2), "11");
    });
}

#[test]
fn no_change_is_lost_by_reloads() {
    on_each_driver(&with_state(), |server| {
        open_directory(server);
        add(server, 1);
        let load = Load::start(server);
        for n in 0..8 {
            // While the new generation is made.
            server.signal(nowait_testkit::server::Signal::HUP);
            let body = format!("{{\"server\":\"127.0.0.1:{}\",\"down\":true}}", 1 + n);
            assert_eq!(call(server, "POST", SERVERS, &body).0, 201);
            load.progress();
        }
        server.reload();
        assert_eq!(listed(server).len(), 9);
        load.end();
        let saved = std::fs::read_to_string(server.dir().join("state/u")).unwrap();
        assert_eq!(saved.lines().count(), 9);
    });
}

#[test]
fn wrong_state_files_are_refused() {
    let with = |text: &str| with_state().file("state/u", text);
    refused(&with("server 127.0.0.1:80"), "in state file");
    refused(&with("least_conn;"), "unexpected directive \"least_conn\" in state file");
    refused(&with("server 127.0.0.1:80 { }"), "unexpected directive \"server\" in state file");
    refused(&with("server 127.0.0.1:80 weight=x;"), "invalid parameter \"weight=x\"");
    refused(
        &site("server 127.0.0.1:80; state %%DIR%%/state/u;", ""),
        "\"state\" cannot be used along with \"server\"",
    );
    refused(
        &site("state %%DIR%%/state/u; server 127.0.0.1:80;", ""),
        "\"state\" cannot be used along with \"server\"",
    );
    refused(&site_with("upstream u { state %%DIR%%/u; }"), "requires \"zone\"");
    refused(
        &site_with(
            "upstream u { zone u 64k; state %%DIR%%/u; } upstream v { zone v 64k; state %%DIR%%/u; }",
        ),
        "is already in use",
    );
}

/// A server process that has died is replaced by one that reads the state files again. They did not exist when the
/// configuration was read.
#[test]
fn changes_survive_the_server_process() {
    let site = site_with(
        "keyval_zone zone=pairs:32k state=%%DIR%%/state/pairs;
         upstream u { zone u 64k; state %%DIR%%/state/u; }
         server { listen 127.0.0.1:%%PORT%%; location /api/ { api write=on; } }",
    )
    .file("state/.keep", "")
    .allow_log("exited on signal 9")
    .allow_log("in state file of keyval zone \"pairs\"")
    .allow_log("state files cannot be used");
    let kill = |server: &Server| {
        let before = server.children();
        before.iter().for_each(|pid| signal(*pid, Signal::KILL));
        until("a new server process", PATIENCE, || {
            let now = server.children();
            (!now.is_empty() && before.iter().all(|pid| !now.contains(pid))).then_some(())
        });
    };
    on_each_driver(&site, |server| {
        open_directory(server);
        let body = r#"{"server":"127.0.0.1:1"}"#;
        assert_eq!(call(server, "POST", SERVERS, body).0, 201);
        let body = r#"{"a":"1"}"#;
        assert_eq!(call(server, "POST", "/api/9/http/keyvals/pairs", body).0, 201);
        let remain = || {
            assert_eq!(listed(server), ["127.0.0.1:1"]);
            assert_eq!(call(server, "GET", "/api/9/http/keyvals/pairs", "").1, json!({ "a": "1" }));
        };
        kill(server);
        remain();
        // One that cannot be read does not keep the server from starting.
        server.write("state/pairs", "{");
        kill(server);
        server
            .wait_log("state files cannot be used: the server process starts with their contents");
        remain();
    });
}

/// A page of another site makes a browser that knows the password send requests.
#[test]
fn pages_of_other_sites_change_nothing() {
    on_each_driver(&group(), |server| {
        let path = format!("{SERVERS}/0");
        let patch = |fields: &str| {
            let mut client = server.client();
            client.send(format!(
                "PATCH {path} HTTP/1.1\r\nHost: api.example:81\r\n{fields}\
                 Content-Length: 12\r\n\r\n{{\"weight\":2}}"
            ));
            client.response().status
        };
        for (fields, status) in [
            ("Origin: http://evil.example\r\n", 403),
            ("Origin: http://api.example\r\n", 403),
            ("Origin: null\r\n", 403),
            ("Sec-Fetch-Site: cross-site\r\n", 403),
            ("Sec-Fetch-Site: same-site\r\nOrigin: http://api.example:81\r\n", 403),
            ("", 200),
            ("Origin: http://api.example:81\r\n", 200),
            ("Sec-Fetch-Site: same-origin\r\nOrigin: https://outside.example\r\n", 200),
        ] {
            assert_eq!(patch(fields), status, "{fields}");
        }
    });
}

/// A name is resolved as one of the configuration is, and again after a reload.
#[test]
fn names_are_added() {
    on_each_driver(&with_state(), |server| {
        open_directory(server);
        let body = format!("{{\"server\":\"localhost:{}\"}}", server.port_n(2));
        let (status, added) = call(server, "POST", SERVERS, &body);
        assert_eq!((status, &added["id"]), (201, &json!(0)), "{added}");
        // The first request waits for the addresses.
        assert_eq!(server.get("/").text(), "2");
        server.allow_log("Connection refused");
        let all = call(server, "GET", SERVERS, "").1;
        assert_eq!(
            (&all[1]["parent"], &all[1]["host"]),
            (&json!(0), &json!(format!("localhost:{}", server.port_n(2))))
        );
        let found = refusal(server, "DELETE", &format!("{SERVERS}/1"), "");
        assert_eq!(found, (400, "UpstreamServerImmutable".into()));
        server.reload();
        assert_eq!(server.get("/").text(), "2");
        assert_eq!(call(server, "DELETE", &format!("{SERVERS}/0"), "").1, json!([]));
        assert_eq!(server.get("/").status, 502);
        server.allow_log("no live upstreams");
    });
}

#[test]
fn groups_of_stream_are_changed_too() {
    let site = group().main(
        "stream { upstream t { zone t 64k; server 127.0.0.1:%%PORT_1%%; }
         server { listen 127.0.0.1:%%PORT_4%%; proxy_pass t; } }",
    );
    const PATH: &str = "/api/9/stream/upstreams/t/servers";
    on_each_driver(&site, |server| {
        let through = || Client::to_port(server.port_n(4)).get("/").text();
        assert_eq!(through(), "1");
        let body = json!({ "server": address(server, 2), "max_conns": 5 }).to_string();
        let (status, added) = call(server, "POST", PATH, &body);
        let expected = json!({
            "id": 1, "server": address(server, 2), "weight": 1, "max_conns": 5, "max_fails": 1,
            "fail_timeout": "10s", "slow_start": "0s", "backup": false, "down": false,
        });
        assert_eq!((status, added), (201, expected));
        assert_eq!(call(server, "DELETE", &format!("{PATH}/0"), "").0, 200);
        assert_eq!([through(), through()], ["2", "2"]);
        assert_eq!(call(server, "DELETE", "/api/9/stream/upstreams/t", "").0, 204);
        let found = refusal(server, "POST", PATH, r#"{"server":"127.0.0.1"}"#);
        assert_eq!(found, (400, "UpstreamBadAddress".into()));
    });
}

/// Who is logged: the client, and the user whose password was right.
#[test]
fn the_log_says_who_asked() {
    let site = site(
        "server 127.0.0.1:%%PORT_1%%;",
        "location /secret/ { auth_basic api; auth_basic_user admin \"{PLAIN}word\"; api write=on; }",
    );
    on_each_driver(&site, |server| {
        let mut client = server.client();
        let patch = |client: &mut Client, path: &str, word: &str| {
            let credentials = nowait_testkit_base64(word);
            client.send(format!(
                "PATCH {path}/9/http/upstreams/u/servers/0 HTTP/1.1\r\nHost: localhost\r\n\
                 Authorization: Basic {credentials}\r\nContent-Length: 12\r\n\r\n{{\"weight\":2}}"
            ));
            client.response().status
        };
        assert_eq!(patch(&mut client, "/secret", "admin:wrong"), 401);
        server.allow_log("password mismatch");
        // Nobody has verified this one.
        assert_eq!(patch(&mut client, "/api", "liar:word"), 200);
        server.wait_log("changed in upstream \"u\", client: 127.0.0.1");
        assert!(!server.log().contains("liar"), "{}", server.log());
        assert_eq!(patch(&mut client, "/secret", "admin:word"), 200);
        server.wait_log("changed in upstream \"u\", by user \"admin\", client: 127.0.0.1");
    });
}

fn nowait_testkit_base64(text: &str) -> &'static str {
    match text {
        "admin:word" => "YWRtaW46d29yZA==",
        "admin:wrong" => "YWRtaW46d3Jvbmc=",
        "liar:word" => "bGlhcjp3b3Jk",
        other => panic!("{other}"),
    }
}

#[test]
fn statistics_are_reset() {
    let site = site("server 127.0.0.1:%%PORT_1%%;", "status_zone site;");
    on_each_driver(&site, |server| {
        assert_eq!(answers(server, 3), "111");
        let get = |path: &str| call(server, "GET", &format!("/api/9{path}"), "").1;
        until("the requests to be counted", PATIENCE, || {
            (get("/http/server_zones/site/responses/2xx").as_u64() >= Some(3)).then_some(())
        });
        for path in
            ["/http/server_zones/site", "/http/upstreams/u", "/http/requests", "/connections"]
        {
            assert_eq!(call(server, "DELETE", &format!("/api/9{path}"), "").0, 204, "{path}");
        }
        assert!(get("/http/server_zones/site/requests").as_u64() < Some(9));
        assert_eq!(get("/http/upstreams/u/peers/0/requests"), 0);
        assert!(get("/connections/accepted").as_u64() < Some(6));
        for (path, code) in [
            ("/http/server_zones/none", "ServerZoneNotFound"),
            ("/http/caches/none", "CacheNotFound"),
            ("/slabs/none", "SlabNotFound"),
            ("/resolvers/none", "ResolverZoneNotFound"),
        ] {
            let found = refusal(server, "DELETE", &format!("/api/9{path}"), "");
            assert_eq!(found, (404, code.to_owned()));
        }
    });
}

#[test]
fn caches_are_purged() {
    let site = site_with(
        "proxy_cache_path %%DIR%%/cache keys_zone=c:1m;
         server { listen 127.0.0.1:%%PORT%%; location /api/ { api write=on; }
         location / { proxy_pass http://127.0.0.1:%%PORT_1%%; proxy_cache c; proxy_cache_key $uri;
         proxy_cache_valid 1h; add_header X-Cache $upstream_cache_status; } }
         server { listen 127.0.0.1:%%PORT_1%%; add_header Cache-Tag tag; return 200 text; }",
    );
    const PATH: &str = "/api/nowait/1/caches/c/purge";
    on_each_driver(&site, |server| {
        let fill = || {
            for path in ["/a/1", "/a/2", "/b"] {
                until("a hit", PATIENCE, || {
                    (server.get(path).header("x-cache") == Some("HIT")).then_some(())
                });
            }
        };
        for (body, count) in
            [(r#"{"key":"/b"}"#, 1), (r#"{"prefix":"/a/"}"#, 2), (r#"{"all":true}"#, 3)]
        {
            fill();
            assert_eq!(
                call(server, "POST", PATH, body),
                (200, json!({ "purged": count })),
                "{body}"
            );
        }
        assert_eq!(server.get("/b").header("x-cache"), Some("MISS"));
        server.wait_log("api: 1 objects of cache \"c\" purged: key /b");
        for (path, body, expected) in [
            (PATH, "{}", (400, "CachePurgeFormatError")),
            (PATH, r#"{"key":"a","tag":"b"}"#, (400, "CachePurgeFormatError")),
            (PATH, r#"{"key":1}"#, (400, "CachePurgeFormatError")),
            (PATH, r#"{"all":false}"#, (400, "CachePurgeFormatError")),
            (PATH, "", (415, "JsonError")),
            ("/api/nowait/1/caches/d/purge", "{}", (404, "CacheNotFound")),
            ("/api/nowait/1/caches/c", "{}", (405, "MethodDisabled")),
        ] {
            let (status, code) = refusal(server, "POST", path, body);
            assert_eq!((status, &code[..]), expected, "{path} {body}");
        }
    });
}
