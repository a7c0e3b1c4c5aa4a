//! `docs/status-openapi.json`: it describes what `status_api` serves, and `api` below `nowait/1`.
//!
//! A server with something in every part of the report is asked for every path that is documented, and
//! everything that it says is compared with the description.

use rcgen::generate_simple_self_signed;
use serde_json::{Map, Value, json};

use nowait_testkit::dns::{AAAA, DnsAnswer};
use nowait_testkit::wait::{PATIENCE, until};
use nowait_testkit::{Client, DnsServer, Server, ServerBuilder};

use crate::api::call;
use crate::stage::{ask, asks_nginx, on_each_driver, site as site_with};

/// The description, read at run time: its absence would otherwise break the build of all tests.
fn document() -> Value {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/status-openapi.json");
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

/// A checker for the part of JSON Schema that the description uses.
struct Schemas<'a>(&'a Value);

impl Schemas<'_> {
    /// Whether a value is what a schema describes; `at` names it in errors. Unlike in JSON Schema, members that are not
    /// described are errors: clients accept them, but here something is missing in the description.
    fn check(&self, schema: &Value, value: &Value, at: &str) -> Result<(), String> {
        let fail = |what: String| Err(format!("{at}: {what}: {value}"));
        let members = schema.as_object().unwrap_or_else(|| panic!("{at}: schema {schema}"));
        for (keyword, expected) in members {
            let holds = match (&keyword[..], value) {
                ("description", _) => true,
                ("$ref", _) => {
                    self.check(self.named(expected), value, at)?;
                    true
                }
                ("type", _) => types(expected).any(|name| is_of_type(value, name)),
                ("enum", _) => expected.as_array().unwrap().contains(value),
                ("minimum", Value::Number(number)) => number.as_i64() >= expected.as_i64(),
                ("minLength", Value::String(text)) => {
                    text.len() as u64 >= expected.as_u64().unwrap()
                }
                ("minItems", Value::Array(all)) => all.len() as u64 >= expected.as_u64().unwrap(),
                ("maxItems", Value::Array(all)) => all.len() as u64 <= expected.as_u64().unwrap(),
                ("items", Value::Array(all)) => {
                    for (index, one) in all.iter().enumerate() {
                        self.check(expected, one, &format!("{at}/{index}"))?;
                    }
                    true
                }
                ("required", Value::Object(all)) => {
                    let mut names = expected.as_array().unwrap().iter();
                    names.all(|name| all.contains_key(name.as_str().unwrap()))
                }
                ("properties", Value::Object(all)) => {
                    self.check_members(members, all, at)?;
                    true
                }
                ("additionalProperties", Value::Object(all))
                    if !members.contains_key("properties") =>
                {
                    self.check_members(members, all, at)?;
                    true
                }
                ("oneOf", _) => {
                    let choices = expected.as_array().unwrap().iter();
                    choices.filter(|one| self.check(one, value, at).is_ok()).count() == 1
                }
                // They say nothing about values of other types.
                (
                    "minimum"
                    | "minLength"
                    | "minItems"
                    | "maxItems"
                    | "items"
                    | "required"
                    | "properties"
                    | "additionalProperties",
                    _,
                ) => true,
                _ => panic!("{at}: unknown keyword {keyword}"),
            };
            if !holds {
                return fail(format!("not {keyword} {expected}"));
            }
        }
        Ok(())
    }

    fn check_members(
        &self,
        schema: &Map<String, Value>,
        members: &Map<String, Value>,
        at: &str,
    ) -> Result<(), String> {
        for (name, value) in members {
            let described = schema.get("properties").and_then(|all| all.get(name));
            match described.or(schema.get("additionalProperties")) {
                Some(one) if one.is_object() => self.check(one, value, &format!("{at}/{name}"))?,
                _ => return Err(format!("{at}: \"{name}\" is not described")),
            }
        }
        Ok(())
    }

    /// What a `$ref` refers to.
    fn named(&self, reference: &Value) -> &Value {
        let pointer = reference.as_str().and_then(|text| text.strip_prefix('#')).unwrap();
        self.0.pointer(pointer).unwrap_or_else(|| panic!("no {pointer}"))
    }
}

/// The schema of a response.
fn of_response(operation: &Value, status: u16) -> &Value {
    let response = &operation["responses"][status.to_string()];
    let schema = response.pointer("/content/application~1json/schema");
    schema.unwrap_or_else(|| panic!("no schema of {status}: {operation}"))
}

fn types(expected: &Value) -> impl Iterator<Item = &str> {
    let list = expected.as_array().map_or(std::slice::from_ref(expected), |all| all);
    list.iter().map(|name| name.as_str().unwrap())
}

fn is_of_type(value: &Value, name: &str) -> bool {
    match name {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_i64() || value.is_u64(),
        "string" => value.is_string(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        _ => panic!("unknown type {name}"),
    }
}

/// The paths that a path with `{parameters}` stands for, as far as the report has them: parameters are the names of
/// the entries, or their places.
fn paths(template: &str, report: &Value) -> Vec<String> {
    let mut found = vec![(String::new(), report)];
    for step in template.strip_prefix("/status/").unwrap().split('/').filter(|s| !s.is_empty()) {
        let inner = found.iter().flat_map(|(path, value)| -> Vec<(String, &Value)> {
            let steps: Vec<(String, &Value)> = match value {
                Value::Array(all) => {
                    all.iter().enumerate().map(|(at, one)| (at.to_string(), one)).collect()
                }
                Value::Object(all) if step.starts_with('{') => {
                    all.iter().map(|(name, one)| (name.clone(), one)).collect()
                }
                _ => value.get(step).map(|one| (step.to_owned(), one)).into_iter().collect(),
            };
            steps.into_iter().map(|(step, one)| (format!("{path}/{step}"), one)).collect()
        });
        found = inner.collect();
    }
    found.into_iter().map(|(path, _)| format!("/status{path}")).collect()
}

/// A server with something in every part of the report.
fn site(dns: &DnsServer) -> ServerBuilder {
    let own = generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let http = format!(
        "proxy_cache_path %%DIR%%/cache keys_zone=things:1m memory=2m;
         proxy_cache_path %%DIR%%/bounded keys_zone=bounded:1m max_size=8m;
         limit_req_zone $uri zone=requests:1m rate=1000r/s;
         limit_conn_zone $uri zone=connections:1m;
         resolver {} ipv6=off status_zone=inside;
         upstream shared {{ zone shared 64k; server 127.0.0.1:%%PORT_1%% weight=2; server 127.0.0.1:1 backup; }}
         upstream own {{ server 127.0.0.1:1 max_fails=1; }}
         server {{ listen 127.0.0.1:%%PORT_1%%; expires 1h; return 200 text; }}
         server {{ listen 127.0.0.1:%%PORT_2%% ssl; listen 127.0.0.1:%%PORT_2%% quic;
             ssl_certificate %%DIR%%/own.pem; ssl_certificate_key %%DIR%%/own.key; }}
         server {{ listen 127.0.0.1:%%PORT%%; root %%DIR%%/html; status_zone site;
             location / {{ status_zone files; limit_req zone=requests; limit_conn connections 10; aio threads=disk; }}
             location = /things {{ status_zone passed; proxy_pass http://shared; proxy_cache things; }}
             location = /bounded {{ proxy_pass http://shared; proxy_cache bounded; health_check interval=20ms; }}
             location = /down {{ proxy_pass http://own; }}
             location = /name {{ set $host_of_name a.example; proxy_pass http://$host_of_name:%%PORT_1%%; }}
             location /status/ {{ status_api; }}
             location /api/ {{ api write=on; }} location /read/ {{ api; }} }}",
        dns.addr()
    );
    let stream = "thread_pool disk threads=3;
        stream { limit_conn_zone $remote_addr zone=sessions:1m;
            upstream behind { zone behind 64k; server 127.0.0.1:%%PORT_1%%; }
            server { listen 127.0.0.1:%%PORT_3%%; status_zone behind; limit_conn sessions 10; proxy_pass behind; } }";
    let (chain, key) = (own.cert.pem(), own.signing_key.serialize_pem());
    site_with(&http)
        .main(stream)
        .file("html/a.txt", "text")
        .file("own.pem", chain)
        .file("own.key", key)
        .allow_log("127.0.0.1:1")
}

fn report(server: &Server) -> Value {
    serde_json::from_str(&ask(server, "/status/", &[]).text()).unwrap()
}

/// Fills the parts of the report; returns it.
fn fill(server: &Server) -> Value {
    for (path, status) in
        [("/a.txt", 200), ("/none", 404), ("/things", 200), ("/name", 200), ("/down", 502)]
    {
        assert_eq!(ask(server, path, &[]).status, status, "{path}");
    }
    assert_eq!(Client::to_port(server.port_n(3)).get("/").text(), "text");
    until("a stored object, a health check and a failed server", PATIENCE, || {
        let report = report(server);
        let mut caches = report["caches"].as_array().unwrap().iter();
        let is_stored = caches.any(|cache| cache["operations"]["stored"] == 1);
        let is_checked = report["upstreams"].to_string().contains("\"last_passed\":true");
        let has_findings = report["findings"] != json!([]) && report["events"] != json!([]);
        (is_stored && is_checked && has_findings).then_some(report)
    })
}

#[test]
fn every_path_serves_what_is_documented() {
    if asks_nginx() {
        return;
    }
    let dns = DnsServer::start(|query| {
        vec![match query.kind {
            AAAA => DnsAnswer::new(),
            _ => DnsAnswer::address(&query.name, 3600, "127.0.0.1"),
        }]
    });
    let document = document();
    let schemas = Schemas(&document);
    let documented = document["paths"].as_object().unwrap();
    on_each_driver(&site(&dns), |server| {
        let report = fill(server);
        let whole = &document["components"]["schemas"]["Report"]["properties"];
        for name in whole.as_object().unwrap().keys() {
            assert!(report.get(name).is_some(), "{name} is not in the report");
            assert!(documented.contains_key(&format!("/status/{name}")), "{name} has no path");
        }
        for (template, item) in documented.iter().filter(|(path, _)| path.starts_with("/status/")) {
            let schema = of_response(&item["get"], 200);
            let paths = if template == "/status/" {
                vec![template.clone()]
            } else {
                paths(template, &report)
            };
            assert!(!paths.is_empty(), "nothing for {template} in {report:#}");
            for path in paths {
                let response = ask(server, &path.replace(' ', "%20"), &[]);
                assert_eq!(response.status, 200, "{path}");
                let value = serde_json::from_str(&response.text()).unwrap();
                schemas.check(schema, &value, &path).unwrap();
            }
        }
    });
}

#[test]
fn levels_of_logs_are_as_documented() {
    if asks_nginx() {
        return;
    }
    let document = document();
    let schemas = Schemas(&document);
    let operations = &document["paths"]["/api/nowait/1/error_log"];
    let order = operations.pointer("/patch/requestBody/content/application~1json/schema").unwrap();
    let site = site_with(
        "server { listen 127.0.0.1:%%PORT%%; location /api/ { api write=on; } location /read/ { api; } }",
    );
    on_each_driver(&site, |server| {
        const PATH: &str = "/api/nowait/1/error_log";
        let is_as_documented = |operation: &str, status: u16, value: &Value| {
            let schema = of_response(&operations[operation], status);
            schemas.check(schema, value, &format!("{status}")).unwrap();
        };
        for (body, is_valid) in [
            (json!({ "level": "warn" }), true),
            (json!({ "level": null }), true),
            (json!({ "level": "loud" }), false),
            (json!({ "level": 3 }), false),
            (json!({}), false),
            (json!({ "level": "warn", "other": 1 }), false),
        ] {
            assert_eq!(schemas.check(order, &body, "body").is_ok(), is_valid, "{body}");
            let (status, value) = call(server, "PATCH", PATH, &body.to_string());
            assert_eq!(status, if is_valid { 200 } else { 400 }, "{value}");
            is_as_documented("patch", status, &value);
        }
        let (status, value) = call(server, "PATCH", "/read/nowait/1/error_log", "{}");
        assert_eq!(status, 405, "{value}");
        is_as_documented("patch", status, &value);
        let (status, value) = call(server, "PATCH", PATH, "no JSON");
        assert_eq!(status, 415, "{value}");
        is_as_documented("patch", status, &value);
        let (status, value) = call(server, "GET", PATH, "");
        assert_eq!(status, 200, "{value}");
        is_as_documented("get", status, &value);
    });
}

#[test]
fn purges_are_as_documented() {
    if asks_nginx() {
        return;
    }
    let document = document();
    let schemas = Schemas(&document);
    let operation = &document["paths"]["/api/nowait/1/caches/{cache}/purge"]["post"];
    let order = operation.pointer("/requestBody/content/application~1json/schema").unwrap();
    let site = site_with(
        "proxy_cache_path %%DIR%%/cache keys_zone=things:1m;
         server { listen 127.0.0.1:%%PORT%%; location /api/ { api write=on; } location /read/ { api; } }",
    );
    on_each_driver(&site, |server| {
        let call = |path: &str, fields: &str, body: &str, expected: u16| {
            let mut client = server.client();
            client.send(format!(
                "POST {path} HTTP/1.1\r\nHost: a\r\n{fields}Content-Length: {}\r\n\r\n{body}",
                body.len()
            ));
            let response = client.response();
            assert_eq!(response.status, expected, "{path} {body}");
            let value = serde_json::from_str(&response.text()).unwrap();
            let schema = of_response(operation, expected);
            schemas.check(schema, &value, &format!("{expected}")).unwrap();
        };
        const PATH: &str = "/api/nowait/1/caches/things/purge";
        for (body, is_valid) in [
            (json!({ "key": "a" }), true),
            (json!({ "prefix": "a", "soft": true }), true),
            (json!({ "tag": "a", "soft": false }), true),
            (json!({ "all": true }), true),
            (json!({}), false),
            (json!({ "all": false }), false),
            (json!({ "key": "" }), false),
            (json!({ "key": 1 }), false),
            (json!({ "key": "a", "tag": "a" }), false),
            (json!({ "key": "a", "other": "a" }), false),
        ] {
            assert_eq!(schemas.check(order, &body, "body").is_ok(), is_valid, "{body}");
            call(PATH, "", &body.to_string(), if is_valid { 200 } else { 400 });
        }
        call(PATH, "Sec-Fetch-Site: cross-site\r\n", "{}", 403);
        call("/api/nowait/1/caches/none/purge", "", "{}", 404);
        call("/read/nowait/1/caches/things/purge", "", "{}", 405);
        call(PATH, "", "no JSON", 415);
    });
}
