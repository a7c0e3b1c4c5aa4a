//! `tunnel_pass`: CONNECT over HTTP/1.1 and HTTP/2.

use nowait_testkit::dns::{self, DnsAnswer};
use nowait_testkit::http2::{ErrorCode, Http2};
use nowait_testkit::origin::Step;
use nowait_testkit::{Client, DnsServer, Driver, Origin, Server, ServerBuilder, wait};

use crate::stage::{FullQueue, ask, on_each_driver, pattern, refused, site, wait_file};

/// A server with this content, which logs its tunnels.
fn proxy(content: &str) -> ServerBuilder {
    site(&format!(
        "log_format tunnel '$request|$status|$remote_user|$upstream_addr|$upstream_status|\
         $upstream_bytes_sent/$upstream_bytes_received|$body_bytes_sent';\n\
         server {{ listen 127.0.0.1:%%PORT%%; http2 on; root %%DIR%%/html;\n\
         access_log %%DIR%%/tunnel.log tunnel;\n{content}\n}}"
    ))
    .file("html/a", "a file")
}

fn connect(client: &mut Client, to: &str, headers: &str) {
    client.send(format!("CONNECT {to} HTTP/1.1\r\nHost: {to}\r\n{headers}\r\n"));
}

/// The status of a CONNECT that is refused.
#[track_caller]
fn status(server: &Server, to: &str, headers: &str) -> u16 {
    let mut client = server.client();
    connect(&mut client, to, headers);
    let response = client.response();
    assert_eq!(response.header("connection"), Some("close"), "{to}");
    response.status
}

/// The same over HTTP/2.
#[track_caller]
fn status_by_h2(server: &Server, to: &str, fields: &[(&str, &str)]) -> u16 {
    let mut client = Http2::to_port(server.port());
    let stream = client.connect_to(to, fields);
    client.response(stream).status
}

#[test]
fn a_client_reaches_what_it_names() {
    for driver in [Driver::Epoll, Driver::IoUring] {
        let many = pattern(1_000_000);
        let origin = Origin::start([vec![
            Step::reply("hello "),
            Step::expect("early late"),
            Step::expect(&many),
            Step::reply(&many),
            Step::Closed,
        ]]);
        let server = proxy("tunnel_pass;").driver(driver).start();
        let to = origin.addr().to_string();
        let mut client = server.client();
        client.send(format!("CONNECT {to} HTTP/1.1\r\nHost: {to}\r\n\r\nearly "));
        let head = client.response_to_head();
        assert_eq!(head.status, 200);
        for name in ["content-length", "transfer-encoding", "content-type"] {
            assert_eq!(head.header(name), None, "{name}");
        }
        client.send("late");
        client.send(&many);
        client.half_close();
        assert!(client.rest() == [&b"hello "[..], &many].concat());
        wait_file(
            &server,
            "tunnel.log",
            &format!("CONNECT {to} HTTP/1.1|200|-|{to}|200|1000010/1000006|1000006\n"),
        );
        server.stop();
        origin.finish();
    }
}

#[test]
fn a_stream_of_http_2_is_a_tunnel() {
    for driver in [Driver::Epoll, Driver::IoUring] {
        let many = pattern(1_000_000);
        let (release, held) = std::sync::mpsc::channel();
        let origin = Origin::start([
            vec![
                Step::reply("hello "),
                Step::expect(&many),
                Step::reply(&many),
                Step::HalfClose,
                Step::Closed,
            ],
            vec![Step::expect("bye"), Step::Wait(held)],
        ]);
        let server = proxy("location / { tunnel_pass $host:$request_port; }").driver(driver);
        let server = server.start();
        let to = origin.addr().to_string();
        let mut client = Http2::to_port(server.port());
        let tunnel = client.connect_to(&to, &[]);
        client.until("the tunnel", |client| client.so_far(tunnel).body == b"hello ");
        // Other streams go on.
        assert_eq!(client.get("/a").status, 405);
        client.data(tunnel, &many, true);
        let response = client.response(tunnel);
        assert_eq!((response.status, response.header("content-length")), (200, None));
        assert!(response.body == [&b"hello "[..], &many].concat());
        wait_file(&server, "tunnel.log", &format!("CONNECT {to} HTTP/2.0|200|-|{to}|200|"));
        // A reset ends it, even if the server keeps its side open.
        let tunnel = client.connect_to(&to, &[]);
        client.until("the tunnel", |client| client.so_far(tunnel).status == 200);
        client.data(tunnel, b"bye", false);
        client.reset(tunnel, ErrorCode::CANCEL);
        wait::until("the end of the tunnel", wait::PATIENCE, || {
            (server.read("tunnel.log").matches("CONNECT").count() == 2).then_some(())
        });
        drop(release);
        server.stop();
        origin.finish();
    }
}

#[test]
fn nobody_is_a_proxy_by_default() {
    let site = proxy("location /files/ { } location = / { return 200 ok; }");
    on_each_driver(&site, |server| {
        let to = server.addr().to_string();
        assert_eq!(status(server, &to, ""), 405);
        assert_eq!(status_by_h2(server, &to, &[]), 405);
    });
    // A location that is no tunnel is none because another one is.
    let site = proxy(
        "location / { proxy_pass http://127.0.0.1:%%PORT_1%%; }\n\
         location /tunnel { tunnel_pass; }",
    );
    on_each_driver(&site, |server| {
        let to = server.addr().to_string();
        assert_eq!(status(server, &to, ""), 405);
        assert_eq!(status_by_h2(server, &to, &[]), 405);
    });
}

#[test]
fn requests_that_no_tunnel_is_made_for() {
    on_each_driver(&proxy("tunnel_pass;"), |server| {
        assert_eq!(ask(server, "/a", &[]).status, 405);
        let malformed =
            ["a", "a:", ":1", ":", "a:65536", "a:b", "a:1/", "a:1?", "http://a:1", "u:p@a:1"];
        for to in malformed {
            assert_eq!(status(server, to, ""), 400, "{to}");
            assert_eq!(status_by_h2(server, to, &[]), 400, "{to}");
        }
        // It would be a socket in the file system.
        assert_eq!(status(server, "unix:80", ""), 400);
        assert_eq!(status_by_h2(server, "UNIX:80", &[]), 400);
        let to = server.addr().to_string();
        assert_eq!(status(server, &to, "Content-Length: 1\r\n"), 400);
        assert_eq!(status(server, &to, "Transfer-Encoding: chunked\r\n"), 400);
        assert_eq!(status_by_h2(server, &to, &[("content-length", "1")]), 400);
        let mut client = server.client();
        client.send(format!("CONNECT {to} HTTP/1.0\r\n\r\n"));
        assert_eq!(client.response().status, 405);
    });
}

#[test]
fn access_is_restricted() {
    let conf = "auth_basic \"closed proxy\"; auth_basic_user_file %%DIR%%/users;
        if ($allowed = 0) { return 403; }
        tunnel_pass $to;
        location /a { auth_basic off; }";
    for driver in [Driver::Epoll, Driver::IoUring] {
        let script = || vec![Step::expect("ping"), Step::reply("pong"), Step::HalfClose];
        let origin = Origin::start([script(), script()]);
        let server = site(&format!(
            "map $request_port $allowed {{ default 0; 443 1; }}
             map $host $to {{ default 127.0.0.1:1; named.example {}; }}
             log_format who '$status $remote_user';
             server {{ listen 127.0.0.1:%%PORT%%; http2 on; access_log %%DIR%%/who.log who;
             {conf} }}",
            origin.addr()
        ));
        let server = server.file("users", "me:{PLAIN}secret\n").driver(driver).start();
        // nginx: ngx_http_proxy_auth
        let mut client = server.client();
        connect(&mut client, "named.example:443", "Authorization: Basic bWU6c2VjcmV0\r\n");
        let response = client.response();
        assert_eq!(response.status, 407);
        assert_eq!(response.header("proxy-authenticate"), Some("Basic realm=\"closed proxy\""));
        assert_eq!(response.header("www-authenticate"), None);
        assert_eq!(status_by_h2(&server, "named.example:443", &[]), 407);
        let credentials = "Basic bWU6c2VjcmV0";
        let line = format!("Proxy-Authorization: {credentials}\r\n");
        assert_eq!(status(&server, "named.example:25", &line), 403);
        let mut client = server.client();
        connect(&mut client, "named.example:443", &line);
        assert_eq!(client.response_to_head().status, 200);
        client.send("ping");
        assert_eq!(client.rest(), b"pong");
        drop(client);
        wait_file(&server, "who.log", "200 me\n");
        let mut client = Http2::to_port(server.port());
        let field = [("proxy-authorization", credentials)];
        let tunnel = client.connect_to("named.example:443", &field);
        client.data(tunnel, b"ping", true);
        assert_eq!(client.response(tunnel).text(), "pong");
        server.stop();
        origin.finish();
    }
}

#[test]
fn unreachable_destinations() {
    let dns = DnsServer::start(|_| vec![DnsAnswer::failure(dns::NXDOMAIN)]);
    let site = proxy(&format!(
        "resolver {}; tunnel_pass; location = /a {{ proxy_pass http://127.0.0.1:%%PORT_1%%; }}",
        dns.addr()
    ))
    .allow_log("connect() failed")
    .allow_log("could not be resolved");
    on_each_driver(&site, |server| {
        let nobody = format!("127.0.0.1:{}", server.port_n(1));
        assert_eq!(status(server, &nobody, ""), 502);
        assert_eq!(status_by_h2(server, &nobody, &[]), 502);
        assert_eq!(status(server, "none.example:443", ""), 502);
        server.wait_log("none.example could not be resolved (3: Host not found)");
        server.wait_log(&format!("upstream: \"tunnel://{nobody}\""));
    });
    // The next server of a group is tried, unless it may not be.
    for (next, expected) in [("error", 200), ("off", 502)] {
        for driver in [Driver::Epoll, Driver::IoUring] {
            let origin = Origin::start([vec![Step::HalfClose]]);
            let server = site_of_group(&origin, next).driver(driver).start();
            let mut client = server.client();
            connect(&mut client, "any.example:443", "");
            assert_eq!(client.response_to_head().status, expected, "{next}");
            drop(client);
            server.stop();
        }
    }
}

/// A group whose first server is a port on which nothing listens.
fn site_of_group(origin: &Origin, next: &str) -> ServerBuilder {
    site(&format!(
        "upstream u {{ server 127.0.0.1:%%PORT_1%%; server {}; }}
         server {{ listen 127.0.0.1:%%PORT%%; tunnel_pass u; tunnel_next_upstream {next}; }}",
        origin.addr()
    ))
    .allow_log("connect() failed")
    .allow_log("upstream server temporarily disabled")
}

#[test]
fn silence_ends_a_tunnel() {
    for driver in [Driver::Epoll, Driver::IoUring] {
        let origin = Origin::start([vec![Step::Closed]]);
        let site = proxy("tunnel_pass; tunnel_read_timeout 100ms;").driver(driver);
        let server = site.allow_log("upstream timed out").start();
        let mut client = server.client();
        connect(&mut client, &origin.addr().to_string(), "");
        assert_eq!(client.response_to_head().status, 200);
        client.expect_closed();
        server.wait_log("upstream timed out (110: Connection timed out) while proxying upgraded");
        server.stop();
    }
}

#[test]
fn nothing_is_done_to_the_bytes() {
    let text = "<html></head>SECRET</html>";
    let filters = "gzip on; gzip_types *; gzip_min_length 0; gzip_proxied any; ssi on; ssi_types *;
        sub_filter SECRET other; sub_filter_types *; charset utf-8; charset_types *;
        add_before_body /a; addition_types *; add_header X-By me; limit_rate 1;
        location = /a { }";
    for driver in [Driver::Epoll, Driver::IoUring] {
        let script = || vec![Step::expect("x"), Step::reply(text), Step::HalfClose];
        let origin = Origin::start([script(), script()]);
        let server = proxy(&format!("tunnel_pass; {filters}")).driver(driver).start();
        let to = origin.addr().to_string();
        let mut client = server.client();
        connect(&mut client, &to, "Accept-Encoding: gzip\r\nRange: bytes=0-3\r\n");
        let head = client.response_to_head();
        assert_eq!((head.status, head.header("x-by")), (200, Some("me")));
        client.send("x");
        assert_eq!(client.rest(), text.as_bytes());
        let mut client = Http2::to_port(server.port());
        let fields = [("accept-encoding", "gzip"), ("range", "bytes=0-3")];
        let tunnel = client.connect_to(&to, &fields);
        client.data(tunnel, b"x", true);
        assert_eq!(client.response(tunnel).text(), text);
        server.stop();
        origin.finish();
    }
}

#[test]
fn mistakes_in_the_configuration() {
    for (content, reason) in [
        ("tunnel_pass; tunnel_pass;", "\"tunnel_pass\" directive is duplicate"),
        ("tunnel_pass a.example;", "no port in upstream \"a.example\""),
        ("tunnel_pass 127.0.0.1:1 x;", "invalid number of arguments in \"tunnel_pass\""),
        ("tunnel_pass 127.0.0.1:99999;", "invalid port in upstream \"127.0.0.1:99999\""),
        ("tunnel_next_upstream http_500;", "invalid value \"http_500\""),
        ("location / { limit_except GET { tunnel_pass; } }", "is not allowed here"),
    ] {
        refused(&proxy(content), reason);
    }
}

#[test]
fn a_connection_that_does_not_stand_in_time() {
    let full = FullQueue::new();
    on_each_driver(&proxy("tunnel_pass; tunnel_connect_timeout 100ms;"), |server| {
        server.allow_log("upstream timed out");
        let to = full.address().to_string();
        assert_eq!(status(server, &to, ""), 504);
        assert_eq!(status_by_h2(server, &to, &[]), 504);
        server.wait_log("upstream timed out (110: Connection timed out) while connecting");
    });
}
