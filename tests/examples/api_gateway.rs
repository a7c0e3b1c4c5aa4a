//! `examples/api-gateway.conf`: who may ask, where it goes, and what a broken service looks like.

use nowait_testkit::{Server, ServerBuilder};

use super::curl::{curl, is_installed};
use super::example;

/// The gateway, with services of the same server behind it: `good` is let in, `bad` is not.
fn gateway() -> ServerBuilder {
    let mut text = include_str!("../../examples/api-gateway.conf").to_owned();
    for (n, port) in ["9001", "9002", "9003", "9004"].iter().enumerate() {
        text = text.replace(&format!("127.0.0.1:{port}"), &format!("127.0.0.1:%%PORT_{}%%", n + 1));
    }
    let services = r#"
    map $http_authorization $verdict {
        ""           401;
        "Bearer bad" 403;
        default      204;
    }
    log_format checked '$http_x_original_method $http_x_original_uri';
    server {
        listen 127.0.0.1:%%PORT_1%%;
        access_log %%DIR%%/checked.log checked;
        add_header X-User "user of $http_authorization";
        location /check {
            if ($verdict = 401) { return 401; }
            if ($verdict = 403) { return 403; }
            return 204;
        }
    }
    server {
        listen 127.0.0.1:%%PORT_2%%;
        listen 127.0.0.1:%%PORT_3%%;
        location / { return 200 "order $uri for $http_x_user$http_authorization of $http_x_request_id"; }
        location /broken { return 503 broken; }
        location /teapot { return 418 "a teapot"; }
    }
    server { listen 127.0.0.1:%%PORT_4%%; return 200 "user $uri"; }
    server {"#;
    let text = text.replacen("    server {", services, 1);
    example(&text).file("log/kept", "").file("var/cache/kept", "").allow_log("upstream")
}

fn get(server: &Server, target: &str, headers: &str) -> nowait_testkit::Response {
    let mut client = server.client();
    client.send(format!("GET {target} HTTP/1.1\r\nHost: api\r\n{headers}\r\n"));
    client.response()
}

#[test]
fn api_gateway() {
    let server = gateway().allow_log("limiting").start();
    let good = "Authorization: Bearer good\r\n";
    assert_eq!(get(&server, "/healthz", "").text(), "{\"status\":\"up\"}\n");
    let nobody = get(&server, "/orders/7", "");
    assert_eq!((nobody.status, nobody.text()), (401, "{\"error\":\"log in first\"}\n".into()));
    assert_eq!(nobody.header("WWW-Authenticate"), Some("Bearer realm=\"api\""));
    assert!(nobody.header("X-Request-Id").is_some_and(|id| id.len() == 32));
    assert_eq!(get(&server, "/orders/7", "Authorization: Bearer bad\r\n").status, 403);
    // What the client says of itself is not believed, its identifier is kept if it is a sound one.
    let said = format!("{good}X-User: root\r\nX-Request-Id: trace-12345\r\n");
    let order = get(&server, "/orders/7", &said);
    assert_eq!(order.text(), "order /7 for user of Bearer good of trace-12345");
    assert_eq!(order.header("X-Request-Id"), Some("trace-12345"));
    let odd = get(&server, "/orders/7", &format!("{good}X-Request-Id: a\"b\r\n"));
    assert_ne!(odd.header("X-Request-Id"), Some("a\"b"));
    // What was allowed is remembered.
    let checks = server.wait_file("checked.log", &"GET /orders/7\n".repeat(3));
    assert_eq!(checks.matches("GET /orders/7\n").count(), 3, "{checks}");
    // Services fail in their own words, unless no server can answer.
    assert_eq!(get(&server, "/orders/teapot", good).text(), "a teapot");
    let broken = get(&server, "/orders/broken", good);
    assert_eq!((broken.status, broken.text()), (503, "broken".into()));
    assert_eq!(get(&server, "/users/1", good).text(), "user /1");
    let mut client = server.client();
    client.send(format!("POST /users/1 HTTP/1.1\r\nHost: api\r\n{good}Content-Length: 0\r\n\r\n"));
    assert_eq!(client.response().status, 403);
    assert_eq!(get(&server, "/else", good).status, 404);
    assert_eq!(get(&server, "/_auth", good).status, 404);
    // Above the rate.
    let statuses: Vec<u16> = (0..60).map(|_| get(&server, "/users/1", good).status).collect();
    assert!(statuses.contains(&429), "{statuses:?}");
    assert!(server.quit().success());
}

#[test]
fn api_gateway_with_curl() {
    if !is_installed() {
        return;
    }
    let server = gateway().start();
    let port = server.port();
    let good = ["--oauth2-bearer", "good"];
    let order = curl(port, "http://api.example/orders/1", &good);
    assert_eq!(order.status, 200, "{}", order.heads);
    assert!(order.text().starts_with("order /1 for user of Bearer good of "), "{}", order.text());
    let post = [&good[..], &["--data", "{\"n\":1}"]].concat();
    assert_eq!(curl(port, "http://api.example/orders/", &post).status, 200);
    let large = "x".repeat(2 << 20);
    let file = server.write("large", large).display().to_string();
    let file = format!("@{file}");
    let large = [&good[..], &["--data-binary", &file]].concat();
    assert_eq!(curl(port, "http://api.example/orders/", &large).status, 413);
    assert_eq!(curl(port, "http://api.example/orders/1", &[]).status, 401);
    assert!(server.quit().success());
}
