//! Requests to `api write=on`, and the directory of its state files.

use std::os::unix::fs::PermissionsExt;

use serde_json::Value;

use nowait_testkit::{Client, Response, Server};

/// A request with a body.
pub fn send(client: &mut Client, method: &str, path: &str, body: &str) -> Response {
    let length = body.len();
    client.send(format!(
        "{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\n{body}"
    ));
    client.response()
}

/// Status and body of a response.
#[track_caller]
pub fn call(server: &Server, method: &str, path: &str, body: &str) -> (u16, Value) {
    let response = send(&mut server.client(), method, path, body);
    let text = response.text();
    let value = match text.is_empty() {
        true => Value::Null,
        false => serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}")),
    };
    (response.status, value)
}

/// Status and code of an error.
#[track_caller]
pub fn refusal(server: &Server, method: &str, path: &str, body: &str) -> (u16, String) {
    let (status, value) = call(server, method, path, body);
    assert_eq!(value["error"]["status"], status, "{value}");
    assert_eq!(value["href"], "https://nginx.org/en/docs/http/ngx_http_api_module.html");
    assert_eq!(value["request_id"].as_str().map(str::len), Some(32), "{value}");
    assert!(!value["error"]["text"].as_str().unwrap().is_empty());
    (status, value["error"]["code"].as_str().unwrap().to_owned())
}

/// Requests that are refused: method, path, body, and the status and code of the error.
#[track_caller]
pub fn refusals(server: &Server, cases: &[(&str, &str, &str, u16, &str)]) {
    for (method, path, body, status, code) in cases {
        let shown: String = body.chars().take(80).collect();
        let found = refusal(server, method, path, body);
        assert_eq!(found, (*status, (*code).to_owned()), "{method} {path} {shown}");
    }
}

/// Lets the server write state files in `state`, whatever its user.
pub fn open_directory(server: &Server) {
    let all = std::fs::Permissions::from_mode(0o777);
    std::fs::set_permissions(server.dir().join("state"), all).unwrap();
}
