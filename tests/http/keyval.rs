//! `keyval_zone` and `keyval`: variables whose values the API sets.

use serde_json::{Value, json};

use nowait_testkit::server::Signal;
use nowait_testkit::wait::{PATIENCE, until};
use nowait_testkit::{Client, Server, ServerBuilder};

use crate::api::{open_directory, refusals};
use crate::stage::{on_each_driver, refused, site as site_with};

fn site(parameters: &str) -> ServerBuilder {
    site_with(&format!(
        "keyval $arg_k $value zone=one; keyval $http_x_client $net zone=nets;
         keyval $uri $start zone=starts;
         keyval_zone zone=one:32k {parameters}; keyval_zone zone=nets:32k type=ip;
         keyval_zone zone=starts:32k type=prefix;
         server {{ listen 127.0.0.1:%%PORT%%; location /api/ {{ api write=on; }}
         location /read/ {{ api; }} location / {{ return 200 \"$value,$net,$start\"; }} }}"
    ))
    .workers(2)
    .file("state/.keep", "")
    .main(
        "stream { keyval_zone zone=two:32k; keyval $server_port $answer zone=two;
         server { listen 127.0.0.1:%%PORT_1%%; return \"<$answer>\"; } }",
    )
}

#[track_caller]
fn call(server: &Server, method: &str, path: &str, body: &str) -> (u16, Value) {
    crate::api::call(server, method, &format!("/api/9/{path}"), body)
}

fn values(server: &Server, path: &str, client: &str) -> String {
    crate::stage::ask(server, path, &[&format!("X-Client: {client}")]).text()
}

#[test]
fn variables_have_the_values_of_pairs() {
    on_each_driver(&site(""), |server| {
        assert_eq!(values(server, "/?k=a", ""), ",,");
        assert_eq!(call(server, "POST", "http/keyvals/one", r#"{"a":"1","b":"2"}"#).0, 201);
        assert_eq!(call(server, "POST", "http/keyvals/nets", r#"{"192.0.2.0/24":"net"}"#).0, 201);
        assert_eq!(call(server, "POST", "http/keyvals/starts", r#"{"/x/":"start"}"#).0, 201);
        assert_eq!(values(server, "/x/y?k=a", "192.0.2.7"), "1,net,start");
        assert_eq!(values(server, "/y?k=b", "192.0.3.7"), "2,,");
        assert_eq!(call(server, "PATCH", "http/keyvals/one", r#"{"a":"3"}"#).0, 204);
        assert_eq!(call(server, "PATCH", "http/keyvals/one", r#"{"b":null}"#).0, 204);
        assert_eq!(call(server, "GET", "http/keyvals/one", "").1, json!({ "a": "3" }));
        assert_eq!(call(server, "GET", "http/keyvals/one?key=%61", "").1, json!({ "a": "3" }));
        let all = call(server, "GET", "http/keyvals/", "").1;
        assert_eq!(all["nets"], json!({ "192.0.2.0/24": "net" }));
        assert_eq!(
            call(server, "GET", "http/keyvals?fields=", "").1,
            json!(["one", "nets", "starts"])
        );
        // A reload keeps them.
        server.reload();
        assert_eq!(values(server, "/x/y?k=a", "192.0.2.7"), "3,net,start");
        assert_eq!(call(server, "DELETE", "http/keyvals/one", "").0, 204);
        assert_eq!(values(server, "/?k=a", ""), ",,");
        server.wait_log("api: 2 keys added to http keyval zone \"one\", client: 127.0.0.1");
        server.wait_log("api: key \"b\" removed in http keyval zone \"one\"");
        // In stream, too.
        let answer = || String::from_utf8(Client::to_port(server.port_n(1)).rest()).unwrap();
        assert_eq!(answer(), "<>");
        let body = json!({ server.port_n(1).to_string(): "text" }).to_string();
        assert_eq!(call(server, "POST", "stream/keyvals/two", &body).0, 201);
        assert_eq!(answer(), "<text>");
    });
}

#[test]
fn wrong_requests_change_nothing() {
    on_each_driver(&site(""), |server| {
        assert_eq!(call(server, "POST", "http/keyvals/one", r#"{"a":"1"}"#).0, 201);
        let large = json!({ "large": "x".repeat(40_000) }).to_string();
        let long = json!({ "x".repeat(5000): "" }).to_string();
        let cases = [
            ("GET", "/api/9/http/keyvals/none", "", 404, "KeyvalNotFound"),
            ("POST", "/api/9/http/keyvals/none", "{}", 404, "KeyvalNotFound"),
            ("POST", "/api/9/stream/keyvals/one", "{}", 404, "KeyvalNotFound"),
            ("GET", "/api/9/http/keyvals/one?key=b", "", 404, "KeyvalKeyNotFound"),
            ("POST", "/api/9/http/keyvals/one", "{}", 400, "KeyvalFormatError"),
            ("POST", "/api/9/http/keyvals/one", "{", 415, "JsonError"),
            ("POST", "/api/9/http/keyvals/one", "[]", 415, "JsonError"),
            ("POST", "/api/9/http/keyvals/one", r#"{"b":1}"#, 400, "KeyvalFormatError"),
            ("POST", "/api/9/http/keyvals/one", r#"{"b":{}}"#, 400, "KeyvalFormatError"),
            ("POST", "/api/9/http/keyvals/one", r#"{"b":null}"#, 400, "KeyvalFormatError"),
            ("POST", "/api/9/http/keyvals/one", r#"{"b":"1","c":"2"}"#, 400, "KeyvalFormatError"),
            ("POST", "/api/9/http/keyvals/one", r#"{"a":"2"}"#, 409, "KeyvalKeyExists"),
            ("POST", "/api/9/http/keyvals/one", &large, 413, "KeyvalOutOfMemory"),
            ("POST", "/api/9/http/keyvals/one", &long, 400, "KeyvalFormatError"),
            ("POST", "/api/9/http/keyvals/nets", r#"{"x":"2"}"#, 400, "KeyvalFormatError"),
            (
                "POST",
                "/api/9/http/keyvals/one",
                r#"{"b":{"value":"1","expire":5}}"#,
                400,
                "KeyvalFormatError",
            ),
            ("PATCH", "/api/9/http/keyvals/one", r#"{"b":"1"}"#, 404, "KeyvalKeyNotFound"),
            ("PATCH", "/api/9/http/keyvals/one", r#"{"a":"1","b":"1"}"#, 400, "KeyvalFormatError"),
            ("PUT", "/api/9/http/keyvals/one", "{}", 405, "MethodDisabled"),
            ("POST", "/api/9/http/keyvals", "{}", 404, "PathNotFound"),
        ];
        refusals(server, &cases);
        let mut client = server.client();
        client.send("DELETE /read/9/http/keyvals/one HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!(client.response().status, 405);
        assert_eq!(call(server, "GET", "http/keyvals/one", "").1, json!({ "a": "1" }));
    });
}

#[test]
fn a_state_file_keeps_pairs_over_restarts() {
    let site = site("timeout=1h state=%%DIR%%/state/one");
    on_each_driver(&site.clone(), |server| {
        open_directory(server);
        let body = r#"{"a":"1","b":{"value":"2","expire":1}}"#;
        assert_eq!(call(server, "POST", "http/keyvals/one", body).0, 201);
        until("the end of a pair", PATIENCE, || {
            (values(server, "/?k=b", "") == ",,").then_some(())
        });
        let state = || std::fs::read(server.dir().join("state/one")).unwrap();
        let text: Value = serde_json::from_slice(&state()).unwrap();
        assert_eq!(text["a"]["value"], "1");
        let other = site.clone().file("state/one", state()).start();
        assert_eq!(values(&other, "/?k=a", ""), "1,,");
        assert_eq!(call(&other, "GET", "http/keyvals/one", "").1, json!({ "a": "1" }));
        other.stop();
        // A reload reads no older text.
        std::fs::write(server.dir().join("state/one"), r#"{"a":"old"}"#).unwrap();
        server.reload();
        assert_eq!(values(server, "/?k=a", ""), "1,,");
        // But the next start will read it.
        std::fs::write(server.dir().join("state/one"), "{").unwrap();
        server.signal(Signal::HUP);
        server.wait_log("in state file of keyval zone \"one\"");
        server.allow_log("in state file of keyval zone");
    });
}

#[test]
fn wrong_zones_are_refused() {
    for (text, message) in [
        ("keyval_zone zone=a:1k;", "zone \"a\" is too small"),
        ("keyval_zone zone=a;", "invalid zone size"),
        ("keyval_zone zone=:32k;", "invalid zone name"),
        ("keyval_zone type=ip;", "must have \"zone\" parameter"),
        ("keyval_zone zone=a:32k type=x;", "invalid parameter \"type=x\""),
        ("keyval_zone zone=a:32k timeout=x;", "timeout=x"),
        ("keyval_zone zone=a:32k x;", "invalid parameter \"x\""),
        ("keyval_zone zone=a:32k; keyval_zone zone=a:32k;", "is already defined"),
        ("keyval $uri $a zone=a;", "zero size shared memory zone \"a\""),
        ("keyval $uri a zone=a; keyval_zone zone=a:32k;", "invalid variable name"),
        ("keyval $uri $a name; keyval_zone zone=a:32k;", "invalid parameter \"name\""),
        ("keyval_zone zone=a:32k state=/proc;", "failed"),
        // Each would overwrite what the other has written.
        (
            "keyval_zone zone=a:32k state=%%DIR%%/a; keyval_zone zone=b:32k state=%%DIR%%/a;",
            "is already in use",
        ),
        (
            "keyval_zone zone=a:32k state=%%DIR%%/a; upstream u { zone u 64k; state %%DIR%%/a; }",
            "is already in use",
        ),
    ] {
        refused(&site_with(text), message);
    }
    // A state file could become larger than the next start reads.
    site_with("keyval_zone zone=a:17m state=%%DIR%%/a; server { listen 127.0.0.1:%%PORT%%; }")
        .start()
        .wait_log("pairs of keyval zone \"a\" may take 16m");
    let broken = site_with("keyval_zone zone=a:32k state=%%DIR%%/state;").file("state", "{");
    refused(&broken, "in state file of keyval zone \"a\"");
}
