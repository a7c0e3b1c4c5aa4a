//! `status_api`, `metrics`, and the variables of time spent in thread pools.

use std::io::Write as _;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::Value;

use nowait_testkit::wait::{PATIENCE, until};
use nowait_testkit::{Server, skip};

use crate::stage::{ask, exchanges, on_each_driver, server, site as site_with, wait_file};

const SITE: &str = r#"
    aio threads=disk;
    location /status/ { status_api; }
    location = /metrics { metrics; }
    location = /spent { return 200 "$pool_wait_time $pool_service_time"; }
"#;

fn status(server: &Server, part: &str) -> Value {
    let response = server.get(&format!("/status/{part}"));
    assert_eq!(response.status, 200);
    assert_eq!(response.header("content-type"), Some("application/json"));
    assert_eq!(response.header("cache-control"), Some("no-cache"));
    serde_json::from_str(&response.text()).unwrap_or_else(|e| panic!("{e}: {}", response.text()))
}

fn site() -> nowait_testkit::ServerBuilder {
    server(SITE)
        .main("thread_pool disk threads=3 max_queue=70; thread_pool other threads=1;")
        .file("html/a.txt", "text")
}

/// With thousands of zones, a report takes a tenth of a second.
#[test]
fn reports_are_made_beside_the_loops() {
    let site = server(
        "status_zone site; location /status/ { status_api; } location /metrics { metrics; }
         location /api/ { api write=on; } location /vts/ { vhost_traffic_status_display; }",
    );
    for (method, target, status) in [
        ("GET", "/status/", 200),
        ("GET", "/metrics", 200),
        ("GET", "/api/9/http/server_zones", 200),
        ("DELETE", "/api/9/http/server_zones/site", 204),
        ("GET", "/vts/", 200),
        ("GET", "/vts/format/prometheus", 200),
    ] {
        let server = site.clone().start();
        let is_made_apart = || {
            let mut threads = server.children().into_iter().flat_map(thread_names);
            threads.any(|name| name.starts_with("reports"))
        };
        assert!(!is_made_apart(), "{target}");
        let mut client = server.client();
        client.send(format!("{method} {target} HTTP/1.1\r\nHost: a\r\n\r\n"));
        assert_eq!(client.response().status, status, "{method} {target}");
        assert!(is_made_apart(), "{method} {target}");
        server.stop();
    }
}

fn thread_names(process: u32) -> Vec<String> {
    let threads = std::fs::read_dir(format!("/proc/{process}/task")).unwrap();
    threads
        .filter_map(|thread| std::fs::read_to_string(thread.unwrap().path().join("comm")).ok())
        .collect()
}

#[test]
fn the_state_of_the_server() {
    on_each_driver(&site(), |server| {
        assert_eq!(server.get("/a.txt").text(), "text");
        let all = status(server, "");
        assert_eq!(all["generation"], 1);
        assert!(all["version"].as_str().is_some_and(|text| text.starts_with("nowait/")));
        assert_eq!(all["connections"]["writing"], 1);
        assert!(all["requests"]["total"].as_u64() >= Some(2));

        let workers = all["workers"].as_array().unwrap();
        assert_eq!(workers.len(), 1);
        let blocked = &workers[0]["event_loop_blocked"];
        let turns = blocked["turns"].as_u64().unwrap();
        let histogram = blocked["histogram"].as_array().unwrap();
        let sum: u64 = histogram.iter().filter_map(|bucket| bucket["turns"].as_u64()).sum();
        assert!(turns > 0 && sum == turns, "{blocked}");
        assert!(blocked["longest_us"].as_u64() <= blocked["total_us"].as_u64(), "{blocked}");

        let pools = all["thread_pools"].as_array().unwrap();
        let names: Vec<_> = pools.iter().filter_map(|pool| pool["name"].as_str()).collect();
        assert_eq!(names, ["compute", "default", "disk", "other"]);
        // The file was opened by the pool that the location names, and by no other.
        assert_eq!((&pools[2]["threads"], &pools[2]["max_queue"]), (&3.into(), &70.into()));
        assert!(pools[2]["operations"]["open"]["completed"].as_u64() >= Some(1), "{}", pools[2]);
        assert_eq!(pools[3]["operations"], Value::Object(Default::default()));
        let systems = all["file_systems"].as_array().unwrap();
        assert!(systems.iter().any(|system| system["operations"]["open_pool"] != 0), "{all:#}");
    });
}

#[test]
fn a_part_of_it() {
    on_each_driver(&site(), |server| {
        assert_eq!(status(server, "thread_pools/disk/threads"), 3);
        assert_eq!(status(server, "thread_pools/2/name/"), "disk");
        // Once the server has noticed that the others are closed.
        let active = || (status(server, "connections/active") == 1).then_some(());
        until("one active connection", PATIENCE, active);
        for unknown in ["no", "thread_pools/none", "generation/1", "thread_pools/9", "%ff"] {
            assert_eq!(server.get(&format!("/status/{unknown}")).status, 404, "{unknown}");
        }
    });
    exchanges(
        &site(),
        &[
            ("HEAD /status/ HTTP/1.1\nHost: a", "200\nContent-Type: application/json"),
            ("POST /status/ HTTP/1.1\nHost: a\nContent-Length: 0", "405"),
            ("POST /metrics HTTP/1.1\nHost: a\nContent-Length: 0", "405"),
        ],
    );
}

/// What the parser of the OpenMetrics project's Python client finds, as `NAME{LABELS} VALUE`
/// lines; `None` when it is not installed.
fn parsed(text: &str) -> Option<String> {
    const PARSE: &str = "
import sys
from prometheus_client.openmetrics.parser import text_string_to_metric_families
for family in text_string_to_metric_families(sys.stdin.read()):
    for sample in family.samples:
        labels = ','.join(f'{name}={value}' for name, value in sorted(sample.labels.items()))
        print(f'{sample.name}{{{labels}}} {sample.value}')
";
    let python = ["/usr/bin/python3", "python3"].into_iter().find(|python| {
        let mut import = Command::new(python);
        import.args(["-c", "import prometheus_client.openmetrics"]);
        import.stderr(Stdio::null()).status().is_ok_and(|status| status.success())
    })?;
    let mut child = Command::new(python)
        .args(["-c", PARSE])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "the parser refuses: {text}");
    Some(String::from_utf8(output.stdout).unwrap())
}

#[test]
fn metrics_are_openmetrics() {
    on_each_driver(&site(), |server| {
        assert_eq!(server.get("/a.txt").text(), "text");
        let response = server.get("/metrics");
        assert_eq!(
            response.header("content-type"),
            Some("application/openmetrics-text; version=1.0.0; charset=utf-8")
        );
        let text = response.text();
        assert!(text.ends_with("# EOF\n"), "{text}");
        assert!(text.contains("\nnowait_generation 1\n"), "{text}");
        let Some(samples) = parsed(&text) else {
            skip("python3-prometheus-client", "without it no other program parses the metrics");
            return;
        };
        for expected in [
            "nowait_generation{} 1",
            "nowait_connections{state=writing} 1",
            "nowait_worker_connections{worker=0} ",
            "nowait_event_loop_blocked_seconds_bucket{le=+Inf,worker=0} ",
            "nowait_thread_pool_threads{pool=disk} 3",
            "nowait_thread_pool_tasks_total{operation=open,pool=disk,result=completed} ",
            "nowait_thread_pool_wait_seconds_sum{operation=open,pool=disk} ",
            "nowait_file_system_operations_total{",
        ] {
            assert!(samples.contains(expected), "{expected:?} is not in {samples}");
        }
    });
}

#[test]
fn time_in_pools_is_accounted_to_the_request() {
    let site = site_with(&format!(
        "log_format spent '$uri $pool_wait_time $pool_service_time $disk_wait_time';
        log_format phases '$uri [$pool_name] $loop_delay $request_phase_times';
        server {{
            listen 127.0.0.1:%%PORT%%;
            root %%DIR%%/html;
            access_log %%DIR%%/spent.log spent;
            access_log %%DIR%%/phases.log phases;
            location = /quick {{ return 200 quick; }}
            location /up {{ proxy_pass http://127.0.0.1:%%PORT%%/fresh.txt; }}
            {SITE}
        }}"
    ))
    .main("thread_pool disk threads=3;")
    .file("html/fresh.txt", "text");
    on_each_driver(&site, |server| {
        // No file, no time; a file that nothing has opened takes some.
        assert_eq!(ask(server, "/spent", &[]).text(), "0.000000 0.000000");
        assert_eq!(server.get("/fresh.txt").text(), "text");
        assert_eq!(server.get("/quick").text(), "quick");
        let log = wait_file(server, "spent.log", "/quick");
        let of = |uri: &str| -> Vec<f64> {
            let line = log.lines().find(|line| line.starts_with(uri)).unwrap();
            line.split(' ').skip(1).map(|time| time.parse().unwrap()).collect()
        };
        assert!(of("/fresh.txt").iter().all(|time| *time > 0.0), "{log}");
        let [waited, served, both] = of("/fresh.txt")[..] else { panic!("{log}") };
        assert!((waited + served - both).abs() < 2e-6, "{log}");
        assert_eq!(of("/quick"), [0.0; 3], "{log}");
        assert_eq!(server.get("/up").text(), "text");
        let log = wait_file(server, "phases.log", "/up");
        let line = |uri: &str| log.lines().find(|line| line.starts_with(uri)).expect(uri);
        assert!(line("/spent").starts_with("/spent [-] "), "{log}");
        assert!(line("/fresh.txt").starts_with("/fresh.txt [disk] "), "{log}");
        let (_, times) = line("/up").split_once(" received=").unwrap();
        let names: Vec<&str> =
            times.split(' ').filter_map(|time| Some(time.split_once('=')?.0)).collect();
        let known =
            ["queue", "connect", "upstream", "pool_wait", "disk", "response", "sending", "total"];
        assert_eq!(names, known, "{log}");
    });
}

#[test]
fn the_state_of_upstreams() {
    let site = site_with(
        "upstream u { zone z 64k; server 127.0.0.1:%%PORT_1%% weight=2; server 127.0.0.1:1 backup; }
         server { listen 127.0.0.1:%%PORT_1%%; return 200 a; }
         server { listen 127.0.0.1:%%PORT%%;
             location / { proxy_pass http://u; }
             location /status/ { status_api; }
             location = /metrics { metrics; }
         }",
    );
    on_each_driver(&site, |server| {
        for _ in 0..3 {
            assert_eq!(server.get("/a").text(), "a");
        }
        let group = status(server, "upstreams/u");
        assert_eq!(group["zone"], "z");
        let peer = &group["peers"][0];
        assert_eq!((&peer["state"], &peer["weight"]), (&"up".into(), &2.into()));
        assert_eq!((&peer["requests"], &peer["active"]), (&3.into(), &0.into()));
        assert_eq!((&peer["responses"]["2xx"], &peer["idle"]), (&3.into(), &1.into()));
        assert!(peer["sent"].as_u64() > Some(0) && peer["received"].as_u64() > Some(0));
        assert_eq!(group["peers"][1]["backup"], true);
        let text = server.get("/metrics").text();
        let line = format!(
            "nowait_upstream_requests_total{{upstream=\"u\",peer=\"127.0.0.1:{}\"}} 3\n",
            server.port_n(1)
        );
        assert!(text.contains(&line), "{text}");
    });
}

#[test]
fn the_state_of_caches() {
    let site = site_with(
        "proxy_cache_path %%DIR%%/cache keys_zone=things:1m max_size=8m memory=2m;
         server { listen 127.0.0.1:%%PORT_1%%; expires 1h; return 200 a; }
         server { listen 127.0.0.1:%%PORT%%;
             location / { proxy_pass http://127.0.0.1:%%PORT_1%%; proxy_cache things; }
             location /status/ { status_api; }
             location = /metrics { metrics; }
         }",
    );
    on_each_driver(&site, |server| {
        let cache = status(server, "caches/things");
        assert_eq!((&cache["in_use"], &cache["objects"]), (&true.into(), &0.into()), "{cache}");
        assert_eq!(cache["max_size"], 8 << 20);
        for _ in 0..3 {
            assert_eq!(server.get("/a").text(), "a");
        }
        // It goes to the disk while it is served already.
        let cache = until("the object to be stored", Duration::from_secs(20), || {
            let cache = status(server, "caches/things");
            (cache["operations"]["stored"] == 1).then_some(cache)
        });
        let operations = &cache["operations"];
        assert_eq!((&operations["misses"], &operations["stored"]), (&1.into(), &1.into()));
        assert_eq!(cache["objects"], 1, "{cache}");
        assert!(cache["size"].as_u64() > Some(0), "{cache}");
        let text = server.get("/metrics").text();
        for line in [
            "nowait_cache_up{cache=\"things\"} 1\n",
            "nowait_cache_operations_total{cache=\"things\",operation=\"misses\"} 1\n",
        ] {
            assert!(text.contains(line), "{line} {text}");
        }
        let samples = parsed(&text);
        assert!(samples.is_none_or(|samples| samples.contains("nowait_cache_max_size_bytes{")));
    });
}
