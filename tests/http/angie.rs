//! `api PATH`, `prometheus`: the statistics of Angie's API, and metrics made of them by templates.

use serde_json::{Value, json};

use nowait_testkit::wait::{PATIENCE, until};
use nowait_testkit::{Client, Server, ServerBuilder};

use crate::stage::{ask, asks_nginx, on_each_driver, refused, site as site_with};

const HTTP: &str = r#"
    include prometheus_all.conf;
    prometheus_template own {
        'own_requests{zone="$1",host="$host"}' $p8s_value path=~^/http/server_zones/([^/]+)/requests/total$;
        own_zones $p8s_value path=/http/server_zones/ type=gauge 'help=Zones of servers.';
        own_state $p8s_value path=~/state$;
        own_host $arg_host;
        own_generation $p8s_value path=/angie/generation;
    }
    proxy_cache_path %%DIR%%/cache keys_zone=things:1m max_size=8m;
    limit_req_zone $uri zone=rates:1m rate=1000r/s;
    limit_conn_zone $uri zone=counts:1m;
    resolver 127.0.0.1:1 status_zone=inside;
    upstream peers { zone peers 64k; server 127.0.0.1:%%PORT_1%% weight=2 max_conns=9; server 127.0.0.1:1 backup down; }
    upstream hidden { server 127.0.0.1:1; }
    server { listen 127.0.0.1:%%PORT_1%%; expires 1h; return 200 text; }
    server { listen 127.0.0.1:%%PORT%%; status_zone "the \"site\"";
        location / { status_zone things; limit_req zone=rates; limit_conn counts 9;
            proxy_pass http://peers; proxy_cache things; }
        location /none { return 404; }
        location /status/ { api /status/; }
        location /zones/ { api /status/http/server_zones/; }
        location = /active { api /status/connections/active; }
        location ~ ^/at/([^/]+)/(.*)$ { api /status/http/$1_zones/$2; }
        location /config/ { api $arg_path; }
        location = /all { prometheus all; }
        location = /own { prometheus own; } }"#;

const STREAM: &str = "stream { limit_conn_zone $remote_addr zone=sessions:1m;
    upstream behind { zone behind 64k; server 127.0.0.1:%%PORT_1%%; }
    server { listen 127.0.0.1:%%PORT_2%%; status_zone front; limit_conn sessions 9; proxy_pass behind; } }";

fn site() -> ServerBuilder {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../conf/prometheus_all.conf");
    let template = std::fs::read_to_string(path).unwrap();
    site_with(HTTP)
        .main(STREAM)
        .file("conf/prometheus_all.conf", template.clone())
        .file("prometheus_all.conf", template)
}

fn get(server: &Server, path: &str, status: u16) -> Value {
    let response = ask(server, path, &[]);
    assert_eq!(response.status, status, "{path}: {}", response.text());
    assert_eq!(response.header("content-type"), Some("application/json"), "{path}");
    serde_json::from_str(&response.text()).unwrap()
}

/// Fills the zones; returns the tree.
fn fill(server: &Server) -> Value {
    for (path, status) in [("/a", 200), ("/a", 200), ("/none", 404)] {
        assert_eq!(ask(server, path, &[]).status, status, "{path}");
    }
    assert_eq!(Client::to_port(server.port_n(2)).get("/").text(), "text");
    until("the end of requests and sessions", PATIENCE, || {
        let tree = get(server, "/status/", 200);
        let site = &tree["http"]["server_zones"]["the \"site\""];
        let ended = site["requests"]["processing"] == 1
            && tree["stream"]["server_zones"]["front"]["sessions"]["success"] == 1
            && tree["http"]["caches"]["things"]["hit"]["responses"] == 1;
        ended.then_some(tree)
    })
}

#[test]
fn the_tree_has_the_documented_elements() {
    if asks_nginx() {
        return;
    }
    on_each_driver(&site(), |server| {
        let tree = fill(server);
        let names = |value: &Value| -> Vec<String> {
            let mut names: Vec<_> = value.as_object().unwrap().keys().cloned().collect();
            names.sort();
            names
        };
        assert_eq!(names(&tree), ["angie", "connections", "http", "resolvers", "slabs", "stream"]);
        assert_eq!(
            names(&tree["angie"]),
            ["address", "build", "generation", "load_time", "version"]
        );
        let load_time = tree["angie"]["load_time"].as_str().unwrap();
        assert!(load_time.starts_with("20") && load_time.ends_with('Z'), "{load_time}");
        assert_eq!(names(&tree["connections"]), ["accepted", "active", "dropped", "idle"]);
        let http = &tree["http"];
        let sections =
            ["caches", "limit_conns", "limit_reqs", "location_zones", "server_zones", "upstreams"];
        assert_eq!(names(http), sections);
        let zone = &http["server_zones"]["the \"site\""];
        assert_eq!(names(zone), ["data", "requests", "responses"]);
        assert_eq!(names(&zone["requests"]), ["discarded", "processing", "total"]);
        assert_eq!(zone["responses"]["404"], 1);
        assert_eq!(names(&zone["data"]), ["received", "sent"]);
        let zone = &http["location_zones"]["things"];
        assert_eq!(zone["requests"], json!({ "total": 2, "discarded": 0 }));
        assert_eq!(zone["responses"], json!({ "200": 2 }));
        let cache = &http["caches"]["things"];
        assert_eq!(cache["max_size"], 8 << 20);
        assert_eq!(cache["hit"], json!({ "responses": 1, "bytes": 4 }));
        assert_eq!(
            cache["miss"],
            json!({ "responses": 1, "bytes": 4, "responses_written": 1, "bytes_written": 4 })
        );
        assert_eq!(
            http["limit_reqs"]["rates"],
            json!({ "passed": 2, "delayed": 0, "rejected": 0 })
        );
        assert_eq!(http["limit_conns"]["counts"], json!({ "passed": 2, "rejected": 0 }));
        assert_eq!(names(&http["upstreams"]), ["peers"]);
        let group = &http["upstreams"]["peers"];
        assert!(group["keepalive"].is_u64());
        let peer = &group["peers"][format!("127.0.0.1:{}", server.port_n(1))];
        assert_eq!(
            (&peer["weight"], &peer["max_conns"], &peer["backup"]),
            (&json!(2), &json!(9), &json!(false))
        );
        assert_eq!(
            (&peer["state"], &peer["selected"]),
            (&json!("up"), &json!({ "current": 0, "total": 1 }))
        );
        assert_eq!(peer["responses"], json!({ "2xx": 1 }));
        assert_eq!(peer["health"], json!({ "fails": 0, "unavailable": 0, "downtime": 0 }));
        let other = &group["peers"]["127.0.0.1:1"];
        assert_eq!((&other["state"], &other["backup"]), (&json!("down"), &json!(true)));
        let resolver = &tree["resolvers"]["inside"];
        assert_eq!(resolver["queries"], json!({ "name": 0, "srv": 0, "addr": 0 }));
        assert_eq!(names(&resolver["responses"]).len(), 8);
        let stream = &tree["stream"];
        assert_eq!(names(stream), ["limit_conns", "server_zones", "upstreams"]);
        let zone = &stream["server_zones"]["front"];
        assert_eq!(
            zone["connections"],
            json!({ "total": 1, "processing": 0, "discarded": 0, "passed": 0 })
        );
        assert_eq!(
            zone["sessions"],
            json!({ "success": 1, "invalid": 0, "forbidden": 0,
            "internal_error": 0, "bad_gateway": 0, "service_unavailable": 0 })
        );
        let peer =
            &stream["upstreams"]["behind"]["peers"][format!("127.0.0.1:{}", server.port_n(1))];
        assert_eq!(peer["selected"]["total"], 1);
        assert_eq!(peer.get("responses"), None);
    });
}

#[test]
fn every_element_has_a_path() {
    if asks_nginx() {
        return;
    }
    on_each_driver(&site(), |server| {
        fn walk(server: &Server, path: &str, value: &Value) {
            for (name, value) in value.as_object().into_iter().flatten() {
                let path = format!("{path}/{}", name.replace('"', "%22").replace(' ', "%20"));
                let one = get(server, &path, 200);
                assert_eq!(std::mem::discriminant(&one), std::mem::discriminant(value), "{path}");
                walk(server, &path, value);
            }
        }
        walk(server, "/status", &fill(server));
        assert_eq!(get(server, "/active", 200), 1);
        assert_eq!(get(server, "/zones/the%20%22site%22/requests/processing", 200), 1);
        assert_eq!(get(server, "/at/location/things/responses/200", 200), 2);
        assert!(get(server, "/status/angie/load_time?date=epoch", 200).is_u64());
        assert_eq!(get(server, "/config/?path=/status/connections/active", 200), 1);
        assert_eq!(get(server, "/config/?path=/", 200)["status"]["connections"]["active"], 1);
        let lines = |path: &str| ask(server, path, &[]).text().lines().count();
        assert!(lines("/status/connections") > 3 && lines("/status/connections?pretty=off") == 1);
        for path in
            ["/status/none", "/status/connections/active/x", "/at/none/x", "/config/?path=/config"]
        {
            let error = get(server, path, 404);
            assert_eq!(error["error"], "PathNotFound", "{path}: {error}");
            assert!(
                error["description"].as_str().is_some_and(|text| text.contains('"')),
                "{error}"
            );
        }
        let mut client = server.client();
        client.send("DELETE /status/connections HTTP/1.1\r\nHost: a\r\n\r\n");
        let response = client.response();
        let error: Value = serde_json::from_str(&response.text()).unwrap();
        assert_eq!((response.status, &error["error"]), (405, &json!("MethodNotAllowed")));
    });
}

#[test]
fn templates_of_metrics() {
    if asks_nginx() {
        return;
    }
    on_each_driver(&site(), |server| {
        fill(server);
        let all = ask(server, "/all", &[]);
        assert_eq!(all.header("content-type"), Some("text/plain; version=0.0.4; charset=utf-8"));
        let text = all.text();
        let peer = format!("127.0.0.1:{}", server.port_n(1));
        for line in [
            "# TYPE angie_connections_active gauge".into(),
            "angie_connections_active 1".into(),
            "angie_connections_dropped 0".into(),
            "angie_http_server_zones_requests_processing{zone=\"the \\\"site\\\"\"} 1".into(),
            "angie_http_location_zones_requests_total{zone=\"things\"} 2".into(),
            "angie_http_location_zones_responses{zone=\"things\",code=\"200\"} 2".into(),
            format!("angie_http_upstreams_peers_state{{upstream=\"peers\",peer=\"{peer}\"}} 1"),
            "angie_http_upstreams_peers_state{upstream=\"peers\",peer=\"127.0.0.1:1\"} 2".into(),
            format!(
                "angie_http_upstreams_peers_responses{{upstream=\"peers\",peer=\"{peer}\",code=\"2xx\"}} 1"
            ),
            "angie_http_caches_responses{zone=\"things\",status=\"hit\"} 1".into(),
            "angie_http_caches_bytes_written{zone=\"things\",status=\"miss\"} 4".into(),
            "angie_http_limit_reqs{zone=\"rates\",status=\"passed\"} 2".into(),
            "angie_resolvers_responses{zone=\"inside\",status=\"success\"} 0".into(),
            "angie_stream_server_zones_sessions{zone=\"front\",status=\"success\"} 1".into(),
            format!(
                "angie_stream_upstreams_peers_selected_total{{upstream=\"behind\",peer=\"{peer}\"}} 1"
            ),
        ] {
            let line: String = line;
            assert!(text.lines().any(|one| one == line), "{line} in {text}");
        }
        let own = ask(server, "/own?host=7", &[]).text();
        let mut lines: Vec<_> = own.lines().collect();
        let requests = lines.remove(0);
        assert!(
            requests.starts_with("own_requests{zone=\"the \\\"site\\\"\",host=\"localhost\"} "),
            "{own}"
        );
        let expected = [
            "# HELP own_zones Zones of servers.",
            "# TYPE own_zones gauge",
            "own_zones 1",
            "own_host 7",
            "own_generation 1",
        ];
        assert_eq!(lines, expected, "states are no numbers");
        assert!(!ask(server, "/own", &[]).text().contains("own_host"));
    });
}

#[test]
fn wrong_paths_and_templates_are_refused() {
    for (text, message) in [
        ("server { location / { api /config/; } }", "there is no \"/config/\" in the API"),
        ("server { location / { prometheus none; } }", "unknown Prometheus template \"none\""),
        (
            "prometheus_template a { } prometheus_template a { }",
            "duplicate Prometheus template \"a\"",
        ),
        ("prometheus_template a { b; }", "invalid number of metric parameters"),
        ("prometheus_template a { b 1; }", "metric value \"1\" is not a variable"),
        ("prometheus_template a { 'b$host' $p8s_value; }", "invalid metric name \"b$host\""),
        ("prometheus_template a { b $p8s_value path=; }", "empty parameter \"path=\""),
        ("prometheus_template a { b $p8s_value path=~(; }", "(\""),
        ("prometheus_template a { b $p8s_value kind=x; }", "invalid metric parameter \"kind=x\""),
    ] {
        refused(&site_with(text), message);
    }
}
