//! The pages of the VTS module, for programs that read them.

use serde_json::{Value, json};

use crate::stage::{ask, asks_nginx, on_each_driver, refused, site};

const SITE: &str = "vhost_traffic_status_zone shared:vts:10m;
    upstream u { server 127.0.0.1:%%PORT_1%%; }
    proxy_cache_path %%DIR%%/cache keys_zone=c:1m max_size=10m;
    server { listen 127.0.0.1:%%PORT%%; server_name one.test two.test;
        location / { return 200 one; }
        location /uncounted { vhost_traffic_status off; return 200 one; }
        location /cached { proxy_pass http://u/; proxy_cache c; proxy_cache_valid 1h; } }
    server { listen 127.0.0.1:%%PORT%%; server_name named.test; status_zone own;
        location / { return 404; } }
    server { listen 127.0.0.1:%%PORT%%; server_name off.test; vhost_traffic_status off;
        location / { return 200 off; } }
    server { listen 127.0.0.1:%%PORT_1%%; location / { return 200 origin; } }
    server { listen 127.0.0.1:%%PORT%%; server_name status.test; vhost_traffic_status off;
        location /status { vhost_traffic_status_display; vhost_traffic_status_display_format html; }
        location /sum { vhost_traffic_status_display json; vhost_traffic_status_display_sum_key all; } }";

#[test]
fn servers_are_counted_by_name() {
    if asks_nginx() {
        return;
    }
    on_each_driver(&site(SITE), |server| {
        let get = |host: &str, path: &str| {
            let mut client = server.client();
            client.send(format!(
                "GET {path} HTTP/1.1\r\nHost: {host}\r\nAccept: text/html\r\nConnection: close\r\n\r\n"
            ));
            client.response()
        };
        for (host, path) in [
            ("one.test", "/"),
            ("one.test", "/uncounted"),
            ("two.test", "/"),
            ("one.test", "/cached"),
            ("one.test", "/cached"),
            ("named.test", "/"),
            ("off.test", "/"),
        ] {
            get(host, path);
        }
        let tree: Value =
            serde_json::from_str(&get("status.test", "/status/format/json").text()).unwrap();
        let zones = &tree["serverZones"];
        let names: Vec<&String> = zones.as_object().unwrap().keys().collect();
        assert_eq!(names, ["*", "_", "one.test", "own"]);
        let one = &zones["one.test"];
        assert_eq!(one["requestCounter"], 4);
        let responses = json!({ "1xx": 0, "2xx": 4, "3xx": 0, "4xx": 0, "5xx": 0, "miss": 1,
            "bypass": 0, "expired": 0, "stale": 0, "updating": 0, "revalidated": 0, "hit": 1 });
        assert_eq!(one["responses"], responses);
        assert!(one["inBytes"].as_u64() > Some(100) && one["outBytes"].as_u64() > Some(100));
        assert_eq!(zones["own"]["responses"]["4xx"], 1);
        // The origin has one request.
        assert_eq!(zones["_"]["requestCounter"], 1);
        assert_eq!(zones["*"]["requestCounter"], 6);
        let peer = &tree["upstreamZones"]["u"][0];
        assert_eq!((&peer["requestCounter"], &peer["responses"]["2xx"]), (&json!(1), &json!(1)));
        assert_eq!(
            (&peer["weight"], &peer["maxFails"], &peer["failTimeout"]),
            (&json!(1), &json!(1), &json!(10))
        );
        assert_eq!(tree["cacheZones"]["c"]["maxSize"], 10 << 20);
        let responses = &tree["cacheZones"]["c"]["responses"];
        assert_eq!((&responses["miss"], &responses["hit"]), (&json!(1), &json!(1)), "{tree}");
        assert!(tree["connections"]["requests"].as_u64() >= Some(8), "{tree}");

        let text = get("status.test", "/status/format/prometheus");
        for line in [
            "nginx_vts_server_requests_total{host=\"one.test\",code=\"2xx\"} 4",
            "nginx_vts_server_requests_total{host=\"*\",code=\"total\"} 6",
            "nginx_vts_server_cache_total{host=\"one.test\",status=\"hit\"} 1",
            "nginx_vts_cache_requests_total{cache_zone=\"c\",status=\"hit\"} 1",
        ] {
            assert!(text.text().lines().any(|one| one == line), "{line}: {}", text.text());
        }
        let page = get("status.test", "/status");
        assert_eq!(page.status, 200);
        assert!(page.text().contains("<title>"), "{}", page.text());
        let sum: Value = serde_json::from_str(&get("status.test", "/sum").text()).unwrap();
        assert_eq!(sum["serverZones"]["all"]["requestCounter"], 6);
        assert_eq!(get("status.test", "/status/format/xml").status, 404);
    });
}

#[test]
fn nothing_is_counted_unasked() {
    if asks_nginx() {
        return;
    }
    let site = site(
        "server { listen 127.0.0.1:%%PORT%%; server_name a;
             location / { vhost_traffic_status_display; } }",
    );
    on_each_driver(&site, |server| {
        let tree: Value = serde_json::from_str(&ask(server, "/", &[]).text()).unwrap();
        assert_eq!(tree["serverZones"].as_object().unwrap().keys().collect::<Vec<_>>(), ["*"]);
    });
    refused(&crate::stage::site("vhost_traffic_status_zone 10m; server { }"), "shared:name:size");
}

#[test]
fn servers_that_are_not_counted_cause_a_warning() {
    if asks_nginx() {
        return;
    }
    let servers: String = (0..4097)
        .map(|n| format!("server {{ listen 127.0.0.1:%%PORT%%; server_name {n}.test; }}\n"))
        .collect();
    let site = site(&format!("vhost_traffic_status_zone; {servers}"));
    let warning = "more than 4096 zones: further servers are not counted";
    let server = site.allow_log(warning).start();
    server.wait_file("error.log", warning);
    // In its own time: so many servers may need more than a quick end allows.
    server.quit();
}
