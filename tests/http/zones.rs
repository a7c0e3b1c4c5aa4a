//! `status_zone`, and what `status_api`, `metrics` and `api` say of zones.

use serde_json::{Value, json};

use nowait_testkit::wait::{PATIENCE, until};
use nowait_testkit::{Response, Server, ServerBuilder};

use crate::stage::{on_each_driver, server, site as site_with};

const SITE: &str = r#"
    status_zone "the \"site\"";
    location /status/ { status_api; }
    location = /metrics { metrics; }
    location /api/ { api; }
    location /a/ { status_zone files; return 200 "text"; }
    location = /moved { status_zone redirects; return 301 /a/; }
    location = /inner { status_zone start; rewrite ^ /a/ last; }
    location = /if { if ($arg_a) { status_zone chosen; return 204; } return 404; }
    location = /none { return 444; }
    location /up/ { status_zone up; proxy_pass http://peers; }
    location /slow/ { limit_rate 1; return 200 "0123456789"; }
"#;

fn site() -> ServerBuilder {
    site_with(&format!(
        "upstream peers {{ zone peers 64k; server 127.0.0.1:1; queue 3; }}
         server {{ listen 127.0.0.1:%%PORT%%; {SITE} }}"
    ))
}

fn json(response: &Response) -> Value {
    assert_eq!(response.header("content-type"), Some("application/json"), "{response:?}");
    serde_json::from_str(&response.text()).unwrap_or_else(|e| panic!("{e}: {}", response.text()))
}

fn zone(server: &Server, kind: &str, name: &str) -> Value {
    let all = json(&server.get(&format!("/status/zones/{kind}")));
    let all = all.as_array().unwrap().iter().find(|zone| zone["name"] == name).cloned();
    all.unwrap_or_else(|| panic!("no zone {name}"))
}

const NAME: &str = "the \"site\"";

/// The server's zone, when all requests but this one have ended: a client can have its response before.
fn settled(server: &Server) -> Value {
    until("the other requests to end", PATIENCE, || {
        let zone = zone(server, "servers", NAME);
        (zone["processing"] == 1).then_some(zone)
    })
}

#[test]
fn requests_are_counted_where_they_end() {
    on_each_driver(&site(), |server| {
        for (path, status) in [
            ("/a/", 200),
            ("/a/b", 200),
            ("/moved", 301),
            ("/inner", 200),
            ("/if?a=1", 204),
            ("/if", 404),
        ] {
            assert_eq!(server.get(path).status, status, "{path}");
        }
        settled(server);
        let counts = |name: &str| {
            let zone = zone(server, "locations", name);
            (zone["requests"].as_u64().unwrap(), zone["responses"]["codes"].to_string())
        };
        assert_eq!(counts("files"), (3, "{\"200\":3}".into()));
        assert_eq!(counts("redirects"), (1, "{\"301\":1}".into()));
        assert_eq!(counts("start"), (0, "{}".into()));
        assert_eq!(counts("chosen"), (1, "{\"204\":1}".into()));
        let before = settled(server);
        let mut client = server.client();
        client.send("GET /none HTTP/1.1\r\nHost: a\r\n\r\n");
        client.expect_closed();
        // Its own request is being processed, and those that asked have been counted.
        let after = settled(server);
        let more = |key: &str| after[key].as_u64().unwrap() - before[key].as_u64().unwrap();
        // Others may have asked for this in vain.
        assert!(more("requests") >= 2, "{before} {after}");
        assert_eq!(more("discarded"), 1, "{before} {after}");
        assert!(more("received") > 30 && more("sent") > 100, "{before} {after}");
        let times = &after["request_time_us"];
        assert_eq!(times["count"].as_u64().unwrap() + 1, after["requests"].as_u64().unwrap());
        assert!(
            times["p50"].as_u64() <= times["p999"].as_u64() && times["p50"].is_u64(),
            "{times}"
        );
    });
}

#[test]
fn requests_in_progress_and_reloads() {
    on_each_driver(&site(), |server| {
        let mut slow = server.client();
        slow.send("GET /slow/ HTTP/1.1\r\nHost: a\r\n\r\n");
        let processing = || {
            let zone = zone(server, "servers", NAME);
            (zone["processing"] == 2).then_some(zone)
        };
        let before = until("a request in progress", PATIENCE, processing);
        server.reload();
        let after = zone(server, "servers", NAME);
        assert!(after["requests"].as_u64() > before["requests"].as_u64(), "{before} {after}");
        assert_eq!(after["processing"], 2);
        drop(slow);
        until("its end", PATIENCE, || {
            (zone(server, "servers", NAME)["processing"] == 1).then_some(())
        });
    });
}

#[test]
fn metrics_of_zones() {
    let builder = site().allow_log("connect() failed");
    on_each_driver(&builder, |server| {
        server.get("/a/");
        assert_eq!(server.get("/up/").status, 502);
        settled(server);
        let text = server.get("/metrics").text();
        for line in [
            "nowait_zone_requests_total{kind=\"location\",zone=\"files\"} 1\n",
            "nowait_zone_responses_total{kind=\"location\",zone=\"up\",status=\"502\"} 1\n",
            "nowait_zone_responses_total{kind=\"server\",zone=\"the \\\"site\\\"\",status=\"502\"} 1\n",
            "nowait_zone_processing{kind=\"server\",zone=\"the \\\"site\\\"\"} 1\n",
            "nowait_zone_request_seconds_bucket{kind=\"location\",zone=\"files\",le=\"+Inf\"} 1\n",
            "nowait_zone_upstream_seconds_count{kind=\"location\",zone=\"up\"} 1\n",
            "nowait_zone_upstream_seconds_count{kind=\"location\",zone=\"files\"} 0\n",
        ] {
            assert!(text.contains(line), "{line} in {text}");
        }
    });
}

#[test]
fn the_api_of_nginx_plus() {
    on_each_driver(&site(), |server| {
        server.get("/a/");
        settled(server);
        let at = |path: &str| json(&server.get(&format!("/api/{path}")));
        assert_eq!(at("").as_array().unwrap().last(), Some(&9.into()));
        let names = at("9/");
        for name in [
            "nginx",
            "processes",
            "connections",
            "slabs",
            "http",
            "stream",
            "resolvers",
            "ssl",
            "workers",
        ] {
            assert!(names.as_array().unwrap().contains(&name.into()), "{names}");
        }
        let names = at("9/http");
        for name in
            ["requests", "server_zones", "location_zones", "caches", "limit_reqs", "upstreams"]
        {
            assert!(names.as_array().unwrap().contains(&name.into()), "{names}");
            at(&format!("9/http/{name}/"));
        }
        let nginx = at("9/nginx");
        assert_eq!(nginx["generation"], 1);
        for key in ["timestamp", "load_timestamp"] {
            let text = nginx[key].as_str().unwrap();
            assert!(text.starts_with("20") && text.ends_with('Z') && text.len() == 24, "{nginx}");
        }
        assert!(nginx["load_timestamp"].as_str() <= nginx["timestamp"].as_str(), "{nginx}");
        assert_eq!(at("9/connections")["active"], 1);
        assert!(at("9/http/requests")["total"].as_u64() > Some(10));
        let zones = at("9/http/server_zones");
        let zone = &zones["the \"site\""];
        assert_eq!(zone["processing"], 1);
        let responses = &zone["responses"];
        assert_eq!(responses["total"], responses["2xx"]);
        assert_eq!(responses["codes"]["200"], responses["2xx"]);
        assert_eq!(at("9/http/location_zones/files")["requests"], 1);
        let peers = at("9/http/upstreams/peers");
        assert_eq!((&peers["zone"], &peers["queue"]["max_size"]), (&"peers".into(), &3.into()));
        assert_eq!(at("9/http/upstreams/peers/peers/0/state"), "up");
        assert_eq!(
            at("9/http/location_zones?fields=requests")["files"].to_string(),
            "{\"requests\":1}"
        );
        assert!(at("9/http/location_zones?fields=").as_array().unwrap().contains(&"files".into()));
        assert_eq!(at("9/nginx?fields=generation").to_string(), "{\"generation\":1}");
        for (path, code) in [
            ("8x/", "UnknownVersion"),
            ("10/nginx", "UnknownVersion"),
            ("9/nothing", "PathNotFound"),
            ("9/http/upstreams/none", "UpstreamNotFound"),
            ("9/http/upstreams/peers/peers/7", "PathNotFound"),
            ("9/nginx/pid/x", "PathNotFound"),
        ] {
            let response = server.get(&format!("/api/{path}"));
            assert_eq!(
                (response.status, &json(&response)["error"]["code"]),
                (404, &code.into()),
                "{path}"
            );
        }
        let mut client = server.client();
        client.send("DELETE /api/9/http/server_zones HTTP/1.1\r\nHost: a\r\n\r\n");
        let refused = client.response();
        assert_eq!(
            (refused.status, &json(&refused)["error"]["code"]),
            (405, &"MethodDisabled".into())
        );
    });
}

#[test]
fn responses_of_caches() {
    let site = "proxy_cache_path %%DIR%%/cache keys_zone=things:1m max_size=8m;
         server { listen 127.0.0.1:%%PORT_1%%;
             location = /gone { return 404 none; }
             location / { expires 1h; return 200 0123456789; } }
         server { listen 127.0.0.1:%%PORT%%;
             location /status/ { status_api; } location = /metrics { metrics; } location /api/ { api write=on; }
             location / { proxy_pass http://127.0.0.1:%%PORT_1%%; proxy_cache things;
                 proxy_cache_bypass $arg_bypass; proxy_no_cache $arg_no; } }";
    on_each_driver(&site_with(site), |server| {
        let caches = || json(&server.get("/api/9/http/caches"))["things"].clone();
        let settled = |status: &str, expected: Value| {
            let found = until("the end of the requests", PATIENCE, || {
                let one = caches()[status].clone();
                (one["responses"] == expected["responses"]).then_some(one)
            });
            assert_eq!(found, expected, "{status}");
        };
        let (body, none) = ("0123456789", "none");
        for (path, expected) in [
            ("/a", body),
            ("/a", body),
            ("/a", body),
            ("/gone", none),
            ("/a?bypass=1", body),
            ("/b?bypass=1&no=1", body),
            ("/c?no=1", body),
        ] {
            assert_eq!(server.get(path).text(), expected, "{path}");
        }
        settled("hit", json!({ "responses": 2, "bytes": 20 }));
        let of = |responses, bytes, written, bytes_written| json!({ "responses": responses, "bytes": bytes, "responses_written": written, "bytes_written": bytes_written });
        settled("miss", of(3, 24, 1, 10));
        settled("bypass", of(2, 20, 1, 10));
        settled("expired", of(0, 0, 0, 0));
        for status in ["stale", "updating", "revalidated"] {
            settled(status, json!({ "responses": 0, "bytes": 0 }));
        }
        let whole = caches();
        assert_eq!((&whole["max_size"], whole["size"].is_u64()), (&json!(8 << 20), true));
        let own = json(&server.get("/status/caches/things"));
        assert_eq!(own["responses"]["miss"], whole["miss"], "{own}");
        let text = server.get("/metrics").text();
        for line in [
            "nowait_cache_responses_total{cache=\"things\",status=\"hit\"} 2\n",
            "nowait_cache_responses_bytes_total{cache=\"things\",status=\"miss\"} 24\n",
            "nowait_cache_written_total{cache=\"things\",status=\"bypass\"} 1\n",
            "nowait_cache_written_bytes_total{cache=\"things\",status=\"miss\"} 10\n",
        ] {
            assert!(text.contains(line), "{line} in {text}");
        }
        server.reload();
        settled("hit", json!({ "responses": 2, "bytes": 20 }));
        let mut client = server.client();
        client.send("DELETE /api/9/http/caches/things HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!(client.response().status, 204);
        settled("hit", json!({ "responses": 0, "bytes": 0 }));
        assert_eq!(caches()["max_size"], 8 << 20);
    });
}

#[test]
fn wrong_zones_are_refused() {
    for (text, message) in [
        ("status_zone;", "invalid number of arguments in \"status_zone\" directive"),
        ("status_zone '';", "invalid zone name \"\""),
        ("status_zone $host;", "variables in zone name \"$host\" are not supported"),
        ("location /api/ { api write=maybe; }", "invalid parameter \"write=maybe\""),
        ("location /api/ { api on; }", "invalid parameter \"on\""),
        ("status_zone a; status_zone b;", "\"status_zone\" directive is duplicate"),
    ] {
        let failure = server(text).try_start().expect_err(text);
        let said = failure.stderr + &failure.log;
        assert!(said.contains(message), "{message}: {said}");
    }
}

#[test]
fn decisions_of_limits() {
    let site =
        "limit_req_zone $arg_a zone=rates:1m rate=1r/m; limit_conn_zone $arg_b zone=counts:1m;
         server { listen 127.0.0.1:%%PORT%%; status_zone site;
         location /status/ { status_api; }
         location = /metrics { metrics; }
         location /api/ { api; }
         location /rate { limit_req zone=rates; empty_gif; }
         location /dry { limit_req_dry_run on; limit_req zone=rates; empty_gif; }
         location /count { limit_conn counts 1; empty_gif; } }";
    let builder = site_with(site).allow_log("limiting requests");
    on_each_driver(&builder, |server| {
        for (path, status) in [
            ("/rate", 200),
            ("/rate?a=1", 200),
            ("/rate?a=1", 503),
            ("/rate?a=2", 200),
            ("/dry?a=2", 200),
            ("/count?b=1", 200),
            ("/count?b=1", 200),
        ] {
            assert_eq!(server.get(path).status, status, "{path}");
        }
        server.reload();
        let api = json(&server.get("/api/9/http/limit_reqs/rates"));
        let counts = ["passed", "delayed", "rejected", "delayed_dry_run", "rejected_dry_run"];
        let counts = counts.map(|name| api[name].as_u64().unwrap());
        assert_eq!(counts, [2, 0, 1, 0, 1], "{api}");
        let status = json(&server.get("/status/limits/limit_conns/counts"));
        assert_eq!((&status["passed"], &status["rejected"]), (&2.into(), &0.into()), "{status}");
        let text = server.get("/metrics").text();
        let line = "nowait_limit_req_total{zone=\"rates\",result=\"rejected\"} 1\n";
        assert!(text.contains(line), "{text}");
        assert!(!text.contains("nowait_stream_limit_conn"), "{text}");
    });
}
