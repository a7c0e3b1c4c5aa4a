//! The configurations of the pages about monitoring, logs, reverse proxies, access, limits and `stream`: what they
//! are for, and what they must refuse.

use std::net::TcpListener;

use nowait_testkit::origin::Step;
use nowait_testkit::ports::free_port;
use nowait_testkit::{Origin, Response, Server, ServerBuilder};

use super::docs::of;
use super::example;

/// A configuration of a page, on a port of the test.
fn page(name: &str, part: &str) -> String {
    of(name, part)
        .replace("listen 127.0.0.1:80;", "listen 127.0.0.1:%%PORT%%;")
        .replace("listen 80;", "listen %%PORT%%;")
        .replace("include mime.types;", "")
}

/// An upstream server that responds to as many requests, each on a connection of its own.
fn origin<'a>(heads: impl IntoIterator<Item = &'a str>) -> Origin {
    let script = |head: &str| {
        vec![Step::expect(b"\r\n\r\n"), Step::reply(format!("{head}\r\nConnection: close\r\n\r\n"))]
    };
    Origin::start(heads.into_iter().map(script).collect::<Vec<_>>())
}

fn with(builder: ServerBuilder) -> Server {
    builder.file("logs/.keep", "").start()
}

fn ask(server: &Server, request: &str, fields: &str) -> Response {
    let mut client = server.client();
    client.send(format!(
        "{request} HTTP/1.1\r\nHost: app.example.org\r\n{fields}Connection: close\r\n\r\n"
    ));
    client.response()
}

fn received(origin: &Origin) -> Vec<String> {
    origin.received().iter().map(|bytes| String::from_utf8_lossy(bytes).into_owned()).collect()
}

#[test]
fn monitoring() {
    let numbers = free_port();
    let text = page("monitoring.md", "location = /metrics")
        .replace("127.0.0.1:9145", &format!("127.0.0.1:{numbers}"))
        // What only caches and groups have.
        .replace(
            "    server {\n        listen %%PORT%%;",
            "    limit_req_zone $uri zone=l:1m rate=1r/s;\n\
             \x20   proxy_cache_path %%DIR%%/cache keys_zone=a:1m max_size=1m memory=1m;\n\
             \x20   upstream u { zone u 64k; server 127.0.0.1:1; }\n\
             \x20   server {\n        listen %%PORT%%; location /u { proxy_cache a; proxy_pass http://u; }",
        );
    let stream = format!(
        "\nstream {{ server {{ listen 127.0.0.1:{}; status_zone sessions; return ok; }} }}\n",
        free_port()
    );
    let server = with(example(&(text + &stream)).file("srv/site/a", "a"));
    assert_eq!(server.get("/a").text(), "a");
    // Not for the public.
    assert_eq!([server.get("/metrics").status, server.get("/status/").status], [404, 404]);
    let mut inside = nowait_testkit::Client::to_port(numbers);
    let all = inside.get("/metrics").text();
    let md = include_str!("../../docs/monitoring.md");
    let names: Vec<&str> = words(md).collect();
    assert!(names.len() > 40, "{names:?}");
    let rules = include_str!("../../packaging/monitoring/nowait-rules.yml");
    let (_, block) = rules.split_once('\n').expect("a comment");
    assert!(
        md.contains(&format!("```yaml\n{block}```")),
        "the page shows the rules of the package"
    );
    let dashboard = include_str!("../../packaging/monitoring/nowait-dashboard.json");
    let panels: serde_json::Value = serde_json::from_str(dashboard).expect("JSON");
    assert!(panels["panels"].as_array().is_some_and(|panels| panels.len() > 10));
    for name in names.into_iter().chain(words(dashboard)) {
        let ends = ["_total", "_sum", "_count", "_bucket", "_info"];
        let family = ends.iter().find_map(|end| name.strip_suffix(end)).unwrap_or(name);
        let is_known =
            all.contains(&format!("# TYPE {family} ")) || all.contains(&format!("# TYPE {name} "));
        assert!(is_known, "{name} is not in:\n{all}");
    }
    // Names that the table shortens.
    let shortened = md.lines().filter(|line| line.starts_with("| `nowait_"));
    for line in shortened {
        let words: Vec<&str> = line.split('`').collect();
        let Some(first) = words.iter().find(|word| word.starts_with("nowait_")) else { continue };
        for end in words.iter().filter_map(|word| word.strip_prefix('…')) {
            let end = end.strip_suffix("_total").unwrap_or(end);
            let is_known =
                (1..=first.len()).any(|at| all.contains(&format!("# TYPE {}{end} ", &first[..at])));
            assert!(is_known, "…{end} of {first}");
        }
    }
    let status = nowait_testkit::Client::to_port(numbers).get("/status/thread_pools");
    assert_eq!(status.status, 200);
    assert!(server.quit().success());
}

#[test]
fn steering() {
    let numbers = free_port();
    let user = "deploy:{PLAIN}secret\n";
    let text = page("steering.md", "api write=on")
        .replace("127.0.0.1:9145", &format!("127.0.0.1:{numbers}"))
        .replace("/var/lib/nowait/app.conf", "%%DIR%%/app.conf")
        .replace("/etc/nowait/api.users", "%%DIR%%/api.users");
    let origin = origin(["HTTP/1.1 200 OK\r\nContent-Length: 0"]);
    let builder = example(&text).file("api.users", user);
    let mut server = with(builder.file("app.conf", "server 127.0.0.1:1 down;\n"));
    const PATH: &str = "/api/9/http/upstreams/app/servers";
    let call = |fields: &str| {
        let body = format!("{{\"server\":\"{}\"}}", origin.addr());
        let mut client = nowait_testkit::Client::to_port(numbers);
        client.send(format!(
            "POST {PATH} HTTP/1.1\r\nHost: a\r\n{fields}Content-Length: {}\r\n\r\n{body}",
            body.len()
        ));
        client.response().status
    };
    assert_eq!([call(""), server.get(PATH).status], [401, 502]);
    assert_eq!(call("Authorization: Basic ZGVwbG95OnNlY3JldA==\r\n"), 201);
    assert_eq!(server.get("/").status, 200);
    server.wait_log("by user \"deploy\"");
    // The user of the server may not write into the test's directory.
    for text in ["no live upstreams", "was not saved in"] {
        server.allow_log(text);
    }
    server.stop();
    origin.finish();
}

#[test]
fn dashboard() {
    let text =
        page("dashboard.md", "dashboard on;").replace("127.0.0.1:9145", "127.0.0.1:%%PORT%%");
    let server = with(example(&text));
    let page = server.get("/dashboard/");
    assert_eq!(page.header("content-type"), Some("text/html; charset=utf-8"));
    let mut client = server.client();
    client.send_get("/dashboard/events");
    let first = client.read_some(4096);
    assert!(first.starts_with(b"HTTP/1.1 200 OK"), "{}", String::from_utf8_lossy(&first));
    assert_eq!(server.get("/status/findings").text(), "[]\n");
    assert!(server.quit().success());
}

#[test]
fn blocked_addresses() {
    let numbers = free_port();
    let text = page("steering.md", "keyval_zone")
        .replace("127.0.0.1:9145", &format!("127.0.0.1:{numbers}"))
        .replace("/var/lib/nowait/blocked.json", "%%DIR%%/blocked.json");
    let mut server = with(example(&text).file("srv/site/a", "a"));
    assert_eq!(server.get("/a").status, 200);
    let body = "{\"127.0.0.0/8\":\"1\"}";
    let mut client = nowait_testkit::Client::to_port(numbers);
    client.send(format!(
        "POST /api/9/http/keyvals/blocked HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    ));
    assert_eq!(client.response().status, 201);
    assert_eq!(server.get("/a").status, 403);
    // The user of the server may not write into the test's directory.
    server.allow_log("were not saved in");
    server.stop();
}

/// The names of metrics in a text.
fn words(text: &str) -> impl Iterator<Item = &str> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words.filter(|word| word.starts_with("nowait_"))
}

#[test]
fn logs() {
    let text = page("logs.md", "notable.json").replace("127.0.0.1:8080", "127.0.0.1:1");
    let mut server = with(example(&text).file("srv/site/a", "a"));
    server.allow_log("connect() failed");
    assert_eq!(server.get("/a").status, 200);
    assert_eq!(server.get("/api/x").status, 502);
    let all = server.wait_file("logs/access.json", "/api/x");
    let lines: Vec<serde_json::Value> = all
        .lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}")))
        .collect();
    assert_eq!([&lines[0]["uri"], &lines[1]["upstream_status"]], ["/a", "502"]);
    let notable = server.wait_file("logs/notable.json", "/api/x");
    assert!(!notable.contains("\"/a\""), "{notable}");
    server.stop();
}

#[test]
fn error_logs_as_json() {
    let text = page("logs.md", "filter=~upstream");
    let server = with(example(&text).file("srv/site/a", "a"));
    for path in ["/favicon.ico", "/x", "/y1"] {
        assert_eq!(server.get(path).status, 404);
    }
    let all = server.wait_file("logs/error.json", "/y1");
    let lines =
        all.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).expect(line));
    let missing: Vec<_> = lines.filter(|line| line["errno"] == 2).collect();
    let message = format!("open() \"{}/srv/site/x\" failed", server.dir().display());
    assert_eq!([&missing[1]["msg"], &missing[1]["tag"]], [message.as_str(), "www"]);
    assert!(missing[1]["request_id"].as_str().is_some_and(|id| id.len() == 32), "{}", missing[1]);
    let some = server.wait_file("logs/error.log", "/y1");
    assert!(some.contains("/site/x") && !some.contains("favicon"), "{some}");
    assert_eq!(server.read("logs/upstreams.log"), "");
    server.stop();
}

#[test]
fn recent_requests() {
    let numbers = free_port();
    let text = page("logs.md", "request_ring 2000;")
        .replace("127.0.0.1:9145", &format!("127.0.0.1:{numbers}"));
    let server = with(example(&text).file("srv/site/a", "a"));
    assert_eq!([server.get("/a").status, server.get("/x").status], [200, 404]);
    let shown = std::process::Command::new(env!("CARGO_BIN_EXE_nowait"))
        .args(["log", "status >= 500 or disk_wait > 100ms or status = 404"])
        .arg(format!("http://127.0.0.1:{numbers}/requests"))
        .output()
        .expect("the program starts");
    let text = String::from_utf8(shown.stdout).expect("text");
    assert!(shown.status.success() && text.lines().count() == 1, "{text}");
    assert!(text.contains(" 404 GET "), "{text}");
    let shown = std::process::Command::new(env!("CARGO_BIN_EXE_nowait"))
        .args(["connections", &format!("http://127.0.0.1:{numbers}/connections")])
        .output()
        .expect("the program starts");
    let text = String::from_utf8(shown.stdout).expect("text");
    assert!(text.contains("handler, GET /connections"), "{text}");
    server.stop();
}

#[test]
fn tracing() {
    let collector = nowait_testkit::Http2Origin::start();
    let text = page("tracing.md", "otel_exporter")
        .replace("localhost:4317;", &format!("127.0.0.1:{}; batch_size 1;", collector.port()))
        .replace("http://127.0.0.1:8080", "http://127.0.0.1:1");
    let mut server = with(example(&text).file("srv/site/a", "a"));
    server.allow_log("connect() failed");
    assert_eq!(ask(&server, "GET /health", "").status, 204);
    let parent = "traceparent: 00-0af7651916cd43dd8448eb211c80319c-b9c7c989f97918e1-01\r\n";
    assert_eq!(ask(&server, "GET /health", parent).status, 204);
    assert_eq!(ask(&server, "GET /api/x", parent).status, 502);
    let mut peer = collector.accept();
    let stream = peer.request();
    let export = peer.complete(stream).body.clone();
    let has = |part: &[u8]| export.windows(part.len()).any(|window| window == part);
    assert!(has(b"/api/x") && has(b"www") && has(&[0x0a, 0xf7, 0x65, 0x19]) && !has(b"/health"));
    peer.respond(stream, 200, &[("grpc-status", "0")], true);
    server.stop();
}

#[test]
fn a_reverse_proxy() {
    let origin =
        origin(["HTTP/1.1 200 OK\r\nContent-Length: 0", "HTTP/1.1 200 OK\r\nContent-Length: 0"]);
    let text = of("reverse-proxy.md", "acme_issuer");
    let (start, rest) = text.split_once("    acme_issuer").expect("the issuer");
    let (_, rest) = rest.split_once("    }\n").expect("its end");
    let plain = free_port();
    let text = format!("{start}{rest}")
        .replace("user  nowait;", "")
        .replace("include mime.types;", "")
        .replace("listen [::]:80;", "")
        .replace("listen [::]:443 ssl;", "")
        .replace("listen 80;", &format!("listen 127.0.0.1:{plain};"))
        .replace("listen 443 ssl;", "listen %%PORT%%;")
        .replace("acme_certificate letsencrypt;", "")
        .replace("ssl_certificate     $acme_certificate;", "")
        .replace("ssl_certificate_key $acme_certificate_key;", "")
        .replace("127.0.0.1:3000", &origin.addr().to_string());
    let server = with(example(&text));
    let mut client = nowait_testkit::Client::to_port(plain);
    client.send("GET /a?b HTTP/1.1\r\nHost: app.example.org\r\n\r\n");
    let redirect = client.response();
    assert_eq!(
        (redirect.status, redirect.header("location")),
        (301, Some("https://app.example.org/a?b"))
    );
    let forged = "X-Forwarded-For: 1.2.3.4\r\nX-Forwarded-Proto: https\r\n";
    assert_eq!(ask(&server, "GET /a", forged).status, 200);
    let said = received(&origin).concat();
    assert!(said.contains("X-Forwarded-For: 127.0.0.1\r\n") && !said.contains("1.2.3.4"), "{said}");
    assert!(said.contains("Host: app.example.org\r\n") && !said.contains("Upgrade"), "{said}");
    let mut client = server.client();
    client.send(
        "GET /ws HTTP/1.1\r\nHost: app.example.org\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n",
    );
    client.response();
    let said = received(&origin).concat();
    assert!(
        said.contains("Upgrade: websocket\r\n") && said.contains("Connection: upgrade\r\n"),
        "{said}"
    );
    server.stop();
}

#[test]
fn limits() {
    let text = page("limits.md", "zone=logins").replace("127.0.0.1:3000", "127.0.0.1:1");
    let mut server = with(example(&text).file("srv/site/a", "a").file("srv/site/download/a", "a"));
    for text in ["limiting requests", "connect() failed"] {
        server.allow_log(text);
    }
    let statuses: Vec<u16> = (0..8).map(|_| server.get("/login").status).collect();
    // One at the rate, and five more.
    assert_eq!(statuses, [502, 502, 502, 502, 502, 502, 429, 429]);
    assert_eq!([server.get("/a").status, server.get("/download/a").status], [200, 200]);
    server.stop();
}

#[test]
fn a_login_of_another_program() {
    let login = origin([
        "HTTP/1.1 401 Unauthorized\r\nContent-Length: 0",
        "HTTP/1.1 202 Accepted\r\nX-Auth-Request-User: alice\r\nX-Auth-Request-Email: a@b\r\nContent-Length: 0",
        "HTTP/1.1 200 OK\r\nContent-Length: 0",
        "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0",
    ]);
    let app = origin(["HTTP/1.1 200 OK\r\nContent-Length: 0"]);
    let text = page("access.md", "oauth2/auth")
        .replace("127.0.0.1:4180", &login.addr().to_string())
        .replace("127.0.0.1:3000", &app.addr().to_string());
    let mut server = with(example(&text));
    let refused = ask(&server, "GET /a?b", "");
    let to = "/oauth2/sign_in?rd=http://app.example.org/a?b";
    assert_eq!(refused.status, 302);
    assert!(
        refused.header("location").is_some_and(|location| location.ends_with(to)),
        "{refused:?}"
    );
    // A client cannot name itself.
    let forged = "X-User: root\r\nX-Email: root@b\r\nContent-Length: 3\r\n";
    let mut client = server.client();
    client.send(format!("POST /a HTTP/1.1\r\nHost: app.example.org\r\n{forged}\r\nabc"));
    assert_eq!(client.response().status, 200);
    let said = received(&app).concat();
    assert!(said.contains("X-User: alice\r\nX-Email: a@b\r\n") && !said.contains("root"), "{said}");
    assert_eq!(ask(&server, "GET /oauth2/start", "").status, 200);
    // Only requests of the server itself ask.
    assert_eq!(ask(&server, "GET /oauth2/auth", "").status, 404);
    server.allow_log("auth request unexpected status: 503");
    assert_eq!(ask(&server, "GET /a", "").status, 500);
    assert_eq!(received(&app).len(), 1);
    server.stop();
}

#[test]
fn passwords() {
    let text =
        page("access.md", "auth_basic_user_file").replace("/etc/nowait/users", "%%DIR%%/users");
    // {PLAIN} is one of the forms that nginx knows.
    let builder = example(&text).file("users", "alice:{PLAIN}secret\n").file("srv/private/a", "a");
    let mut server = with(builder);
    server.allow_log("password mismatch");
    assert_eq!(ask(&server, "GET /a", "").status, 401);
    assert_eq!(ask(&server, "GET /a", "Authorization: Basic YWxpY2U6c2VjcmV0\r\n").text(), "a");
    assert_eq!(ask(&server, "GET /a", "Authorization: Basic YWxpY2U6d3Jvbmc=\r\n").status, 401);
    server.stop();
}

#[test]
fn addresses() {
    let text = page("access.md", "$is_blocked");
    let site =
        |text: &str| with(example(text).file("srv/site/a", "a").file("srv/site/admin/a", "admin"));
    let server = site(&text);
    assert_eq!([server.get("/a").text(), server.get("/admin/a").text()], ["a", "admin"]);
    server.stop();
    let mut server = site(&text.replace("            allow 127.0.0.1;\n", ""));
    server.allow_log("access forbidden by rule");
    assert_eq!([server.get("/a").status, server.get("/admin/a").status], [200, 403]);
    server.stop();
    let server = site(&text.replace("198.51.100.0/24", "127.0.0.0/8"));
    assert_eq!([server.get("/a").status, server.get("/admin/a").status], [403, 403]);
    server.stop();
}

#[test]
fn connections_of_tcp() {
    let database = super::stream::upstream("database");
    let dead =
        TcpListener::bind("127.0.0.1:0").expect("a free port").local_addr().expect("its address");
    let text = page("stream.md", "databases")
        .replace("127.0.0.1:5432", "127.0.0.1:%%PORT%%")
        .replace("127.0.0.1:53 ", &format!("127.0.0.1:{} ", free_port()))
        .replace("10.0.0.11:5432", &dead.to_string())
        .replace("10.0.0.12:5432", &dead.to_string())
        .replace("10.0.0.13:5432", &database.to_string());
    let mut server = with(example(&text));
    server.allow_log("connect() failed");
    let mut client = server.client();
    client.send("query");
    // A session ends when the client closes its side.
    let (said, mut received) = (b"database: query", Vec::new());
    while received.len() < said.len() {
        received.extend(client.read_some(said.len() - received.len()));
    }
    assert_eq!(received, said);
    server.stop();
}
