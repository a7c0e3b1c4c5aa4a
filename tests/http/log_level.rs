//! The level of all error logs, changed while the server runs: by `api`, and by `nowait log-level`.

use serde_json::json;

use nowait_testkit::{Server, ServerBuilder};

use crate::api::{call, refusals};
use crate::stage::{asks_nginx, on_each_driver, site as site_with, wait_file};

const PATH: &str = "/api/nowait/1/error_log";

fn site() -> ServerBuilder {
    site_with(
        "server { listen 127.0.0.1:%%PORT%%; error_log %%DIR%%/own.log error;
         error_log %%DIR%%/notices.log notice;
         location /api/ { api write=on; } location /read/ { api; } }",
    )
    .workers(2)
}

fn set(server: &Server, level: &serde_json::Value) {
    let body = json!({ "level": level });
    assert_eq!(call(server, "PATCH", PATH, &body.to_string()), (200, body.clone()));
    assert_eq!(call(server, "GET", PATH, ""), (200, body));
}

fn command(server: &Server, level: &str) -> (Option<i32>, String) {
    let mut command = server.binary().command();
    command.arg("log-level").arg("-p").arg(server.dir());
    command.arg("-c").arg(server.dir().join("nginx.conf")).arg(level);
    let output = command.output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8(said).unwrap())
}

#[test]
fn the_api_sets_the_level_of_all_logs_until_a_reload() {
    if asks_nginx() {
        return;
    }
    on_each_driver(&site(), |server| {
        assert_eq!(call(server, "GET", PATH, ""), (200, json!({ "level": null })));
        set(server, &json!("debug"));
        // Each level lets the line pass that says who has asked.
        let said =
            "api: all error logs have the level \"debug\" until the next reload, client: 127.0.0.1";
        for log in ["own.log", "notices.log"] {
            wait_file(server, log, said);
            wait_file(server, log, "[debug]");
        }
        set(server, &json!("crit"));
        wait_file(server, "own.log", "the level \"crit\"");
        set(server, &json!(null));
        let log = wait_file(server, "notices.log", "all error logs have their own levels again");
        assert!(!server.read("own.log").contains("their own levels again"), "{log}");
        set(server, &json!("info"));
        server.reload();
        assert_eq!(call(server, "GET", PATH, ""), (200, json!({ "level": null })));
        server.wait_log("all error logs have their configured levels again");
    });
}

#[test]
fn the_command_sets_it_over_the_control_socket() {
    if asks_nginx() {
        return;
    }
    on_each_driver(&site(), |server| {
        let said = "all error logs have the level \"debug\" until the next reload\n";
        assert_eq!(command(server, "debug"), (Some(0), said.to_owned()));
        assert_eq!(call(server, "GET", PATH, ""), (200, json!({ "level": "debug" })));
        wait_file(server, "own.log", "http request ended");
        server.wait_log("level \"debug\" of all error logs requested by process ");
        let said = "all error logs have their configured levels\n";
        assert_eq!(command(server, "configured"), (Some(0), said.to_owned()));
        assert_eq!(call(server, "GET", PATH, ""), (200, json!({ "level": null })));
        let (code, said) = command(server, "loud");
        assert_eq!(code, Some(2));
        assert!(said.contains("possible values: emerg, alert"), "{said}");
    });
}

#[test]
fn wrong_levels_are_refused() {
    if asks_nginx() {
        return;
    }
    on_each_driver(&site(), |server| {
        const CODE: &str = "ErrorLogFormatError";
        refusals(
            server,
            &[
                ("PATCH", PATH, r#"{"level":"loud"}"#, 400, CODE),
                ("PATCH", PATH, r#"{"level":7}"#, 400, CODE),
                ("PATCH", PATH, "{}", 400, CODE),
                ("PATCH", PATH, r#"{"level":"info","logs":1}"#, 400, CODE),
                ("PATCH", PATH, "info", 415, "JsonError"),
                ("POST", PATH, r#"{"level":"info"}"#, 405, "MethodDisabled"),
                ("PATCH", "/read/nowait/1/error_log", r#"{"level":"info"}"#, 405, "MethodDisabled"),
            ],
        );
        assert_eq!(call(server, "GET", PATH, ""), (200, json!({ "level": null })));
    });
}
