//! Events, certificates and findings in the status: what operators see of the last hours, and what they are told
//! to do.

use std::time::{Duration, SystemTime};

use rcgen::{CertificateParams, KeyPair, date_time_ymd};
use serde_json::Value;

use nowait_testkit::wait::{PATIENCE, until};
use nowait_testkit::{Driver, Server};

use crate::stage::{ask, on_each_driver, site};

/// Waits for an event of this kind; returns the last one.
#[track_caller]
fn event(server: &Server, kind: &str) -> Value {
    until(kind, PATIENCE, || {
        let all = part(server, "events");
        all.as_array().unwrap().iter().rfind(|event| event["kind"] == kind).cloned()
    })
}

#[track_caller]
fn part(server: &Server, part: &str) -> Value {
    let response = ask(server, &format!("/status/{part}"), &[]);
    assert_eq!(response.status, 200, "{part}: {response}");
    serde_json::from_str(&response.text()).unwrap()
}

#[track_caller]
fn finding(server: &Server, of: &str) -> Value {
    until(of, PATIENCE, || {
        let all = part(server, "findings");
        all.as_array().unwrap().iter().find(|finding| finding["of"] == of).cloned()
    })
}

fn status(rest: &str) -> String {
    format!("server {{ listen 127.0.0.1:%%PORT%%; location /status/ {{ status_api; }} {rest} }}")
}

#[test]
fn reloads_are_events_and_keep_those_before() {
    on_each_driver(&site(&status("")), |server| {
        let first = event(server, "configuration_applied");
        assert!(
            first["text"].as_str().unwrap().starts_with("configuration 1 is in use"),
            "{first}"
        );
        assert_eq!((&first["severity"], &first["count"]), (&"info".into(), &1.into()));
        server.set_http("nonsense;");
        server.allow_log("[emerg]");
        server.reload();
        let refused = event(server, "configuration_refused");
        let text = refused["text"].as_str().unwrap();
        assert!(text.contains("unknown directive \"nonsense\""), "{text}");
        assert_eq!(refused["severity"], "error");
        server.set_http(&status("location = /new { return 200 new; }"));
        server.reload();
        assert_eq!(ask(server, "/new", &[]).text(), "new");
        // Repeated within a minute: counted, and put last.
        let second = until("the second configuration", PATIENCE, || {
            Some(event(server, "configuration_applied")).filter(|event| event["count"] == 2)
        });
        assert!(second["number"].as_u64() > refused["number"].as_u64(), "{second} {refused}");
        assert!(second["first_ms"].as_u64() <= second["time_ms"].as_u64());
        assert_eq!(event(server, "configuration_refused"), refused);
    });
}

#[test]
fn peers_that_fail_are_events_and_findings() {
    let http = format!(
        "upstream u {{ server 127.0.0.1:%%PORT_1%% max_fails=1 fail_timeout=1s;\n\
         server 127.0.0.1:%%PORT_2%% backup; }}\n{}\n\
         server {{ listen 127.0.0.1:%%PORT_2%%; location / {{ return 200 backup; }} }}\n",
        status("location / { proxy_pass http://u; }")
    );
    on_each_driver(&site(&http), |server| {
        server.allow_log("Connection refused");
        server.allow_log("temporarily disabled");
        assert_eq!(ask(server, "/", &[]).text(), "backup");
        let down = event(server, "peer_down");
        let subject = format!("u 127.0.0.1:{}", server.port_n(1));
        assert_eq!(
            (down["subject"].as_str(), &down["severity"]),
            (Some(&*subject), &"warning".into())
        );
        let found = finding(server, "upstream");
        assert_eq!(found["subject"], "u");
        assert!(
            found["text"].as_str().unwrap().ends_with("1 of 2 servers get requests"),
            "{found}"
        );
        assert!(!found["hint"].as_str().unwrap().is_empty());
        // It answers from now on, and is tried again after a second.
        server.set_http(&format!(
            "{http}\nserver {{ listen 127.0.0.1:%%PORT_1%%; location / {{ return 200 main; }} }}"
        ));
        server.reload();
        until("the peer", PATIENCE, || (ask(server, "/", &[]).text() == "main").then_some(()));
        let up = event(server, "peer_up");
        assert_eq!(up["subject"].as_str(), Some(&*subject));
        // Nothing else writes a line about that.
        server.wait_log(" of upstream \"u\" is in use again");
        let gone = || part(server, "findings").as_array().unwrap().is_empty().then_some(());
        until("no findings", PATIENCE, gone);
    });
}

/// A certificate for `soon.example` that expires in so many days, and its key.
fn certificate(days: u64) -> (String, String) {
    let mut params = CertificateParams::new(vec!["soon.example".to_owned()]).unwrap();
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    params.not_after = date_time_ymd(1970, 1, 1) + now + Duration::from_secs(days * 86_400);
    let key = KeyPair::generate().unwrap();
    (params.self_signed(&key).unwrap().pem(), key.serialize_pem())
}

#[test]
fn certificates_are_listed_and_their_end_is_announced() {
    let (soon, later) = (certificate(5), certificate(50));
    let http = format!(
        "{}\nserver {{ listen 127.0.0.1:%%PORT_1%% ssl; ssl_certificate %%DIR%%/a.pem;\n\
         ssl_certificate_key %%DIR%%/a.key; }}",
        status("location = /metrics { metrics; }")
    );
    let builder = site(&http).file("a.pem", &soon.0).file("a.key", &soon.1);
    on_each_driver(&builder, |server| {
        let listed = part(server, "certificates");
        assert_eq!(listed.as_array().unwrap().len(), 1, "{listed}");
        let one = &listed[0];
        assert_eq!(
            (one["name"].as_str(), one["names"][0].as_str()),
            (Some("soon.example"), Some("soon.example"))
        );
        assert!(one["source"].as_str().unwrap().ends_with("/a.pem"), "{one}");
        let left = one["seconds_left"].as_i64().unwrap();
        assert!((3 * 86_400..=5 * 86_400).contains(&left), "{left}");
        let warned = event(server, "certificate_expiring");
        assert_eq!(
            (&warned["subject"], &warned["severity"]),
            (&"soon.example".into(), &"warning".into())
        );
        server.wait_log("the certificate for soon.example in ");
        assert_eq!(finding(server, "certificate")["severity"], "warning");
        let metrics = ask(server, "/metrics", &[]).text();
        assert!(
            metrics
                .contains("nowait_certificate_not_after_timestamp_seconds{name=\"soon.example\""),
            "{metrics}"
        );
        server.write("a.pem", &later.0);
        server.write("a.key", &later.1);
        server.reload();
        assert_eq!(event(server, "certificate_renewed")["subject"], "soon.example");
        let renewed = || {
            let all = part(server, "certificates");
            let days = all[0]["seconds_left"].as_i64().unwrap() / 86_400;
            (all.as_array().unwrap().len() == 1 && days > 40).then_some(())
        };
        until("the old certificate is gone", PATIENCE, renewed);
        assert_eq!(part(server, "findings").as_array().unwrap().len(), 0);
    });
}

#[test]
fn file_systems_have_places_and_times() {
    let http = status("aio_open on; location / { root %%DIR%%/html; }");
    let server = site(&http).file("html/a", "a").driver(Driver::Epoll).start();
    assert_eq!(ask(&server, "/a", &[]).text(), "a");
    let all = part(&server, "file_systems");
    let used = |one: &&Value| one["operations"]["open_pool"].as_u64() > Some(0);
    let one = all.as_array().unwrap().iter().find(used).unwrap().clone();
    assert!(one["directory"].as_str().is_some_and(|place| place.starts_with('/')), "{one}");
    assert!(one["source"].as_str().is_some(), "{one}");
    assert_eq!(
        (&one["waiting"], &one["in_progress"], &one["stalled_us"]),
        (&0.into(), &0.into(), &0.into())
    );
    assert_eq!(one["errors"], 0);
    server.stop();
}
