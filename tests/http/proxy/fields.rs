//! Names of fields and trailers in servers' responses; interim responses; `ICY`.

use nowait_testkit::http2::Http2;
use nowait_testkit::origin::Step;
use nowait_testkit::{Driver, Http2Origin, Origin};

use super::{answered, wire};
use crate::stage::{asks_nginx, on_each_driver, server, site};

#[test]
fn names_may_have_odd_characters() {
    answered(
        "location / {
             proxy_pass http://%%ORIGIN%%;
             proxy_hide_header X_Hidden;
             proxy_hide_header X@Hidden;
             add_header X-Seen \"$upstream_http_x_user $sent_http_x_user $upstream_http_x_hidden\";
         }",
        &[
            (
                "HTTP/1.1 200 OK\nX_User: me\nX.Y: 1\nX@Y: 2\nX/Y: 3\nX!: 4\n_: 5\nX_Hidden: 6\n\
                 x@hidden: 7\nContent-Length: 2\n\nok",
                "200\nX_User: me\nX.Y: 1\nX@Y: 2\nX/Y: 3\nX!: 4\n_: 5\n!X_Hidden\n!X@Hidden\n\
                 X-Seen: me me 6\n\nok",
            ),
            ("HTTP/1.1 200 OK\nContent_Length: 1\nContent-Length: 2\n\nok", "200\n\nok"),
        ],
    );
}

#[test]
fn dangerous_names_are_refused() {
    let line = |line: &str| format!("HTTP/1.1 200 OK\n{line}\nContent-Length: 2\n\nok");
    let lines = ["X : a", "X\t: a", " X: a", ": a", "X\u{1}: a", "X\0: a", "X\u{7f}: a", "X\r: a"];
    let replies: Vec<String> = lines.iter().map(|text| line(text)).collect();
    let cases: Vec<_> = replies.iter().map(|reply| (&**reply, "502")).collect();
    answered("location / { proxy_pass http://%%ORIGIN%%; }", &cases);
}

#[test]
fn an_authorization_server_may_name_fields_with_underscores() {
    for driver in [Driver::Epoll, Driver::IoUring] {
        let reply = wire("HTTP/1.1 200 OK\nX_User: me\nContent-Length: 0\n\n");
        let origin = Origin::start([[Step::expect("\r\n\r\n"), Step::reply(reply)]]);
        let server = server(&format!(
            "location / {{
                 auth_request /auth; auth_request_set $user $upstream_http_x_user;
                 add_header X-Who $user;
             }}
             location = /auth {{ proxy_pass http://{}; }}",
            origin.addr()
        ));
        let server = server.file("html/file", "x").driver(driver).start();
        assert_eq!(server.get("/file").header("x-who"), Some("me"));
        server.stop();
        origin.finish();
    }
}

/// Fields that only a head may have, each as its name and its value.
const FRAMING: [(&str, &str); 10] = [
    ("Content-Length", "3"),
    ("Connection", "close"),
    ("Keep-Alive", "5"),
    ("Trailer", "X"),
    ("Host", "other"),
    ("TE", "trailers"),
    ("Upgrade", "h2c"),
    ("Content-Encoding", "gzip"),
    ("Content-Type", "text/html"),
    ("Content-Range", "bytes 0-1/2"),
];

#[test]
fn trailers_have_no_framing_fields() {
    // nginx passes them.
    if asks_nginx() {
        return;
    }
    let lines: String =
        FRAMING.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    let reply = format!(
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\
         2\r\nok\r\n0\r\n{lines}Transfer-Encoding: chunked\r\nX_Sum: 1\r\nX@Y: 2\r\n\r\n"
    );
    let only =
        format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n{lines}\r\n");
    for driver in [Driver::Epoll, Driver::IoUring] {
        let answer = |reply: &str| [Step::expect("\r\n\r\n"), Step::reply(reply)];
        let scripts = [answer(&reply), answer(&reply), answer(&only), answer(&only)];
        let origin = Origin::start(scripts);
        let server = server(&format!(
            "http2 on; location / {{ proxy_pass http://{}; proxy_pass_trailers on; }}",
            origin.addr()
        ));
        let server = server.driver(driver).start();
        for rest in [&[("X_Sum", "1"), ("X@Y", "2")][..], &[]] {
            let mut client = server.client();
            client.send("GET / HTTP/1.1\r\nHost: a\r\nTE: trailers\r\n\r\n");
            let response = client.response();
            assert_eq!(response.text(), "ok");
            let got: Vec<_> =
                response.trailers.iter().map(|(name, value)| (&**name, &**value)).collect();
            assert_eq!(got, rest);
            let mut client = Http2::to_port(server.port());
            let response = client.get("/");
            assert_eq!(response.text(), "ok");
            let got: Vec<_> =
                response.trailers.iter().map(|(name, value)| (&**name, &**value)).collect();
            // "Field names are strings containing a subset of ASCII characters": tokens only.
            assert_eq!(got, if rest.is_empty() { &[][..] } else { &[("x_sum", "1")] });
        }
        server.stop();
        origin.finish();
    }
}

/// A HEADERS frame that ends its stream, with these fields as literals.
fn trailers(stream: u32, fields: &[(&str, &str)]) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in fields {
        block.extend_from_slice(&[0, name.len() as u8]);
        block.extend_from_slice(name.to_ascii_lowercase().as_bytes());
        block.push(value.len() as u8);
        block.extend_from_slice(value.as_bytes());
    }
    let mut frame = (block.len() as u32).to_be_bytes()[1..].to_vec();
    frame.extend_from_slice(&[1, 5]);
    frame.extend_from_slice(&stream.to_be_bytes());
    frame.extend_from_slice(&block);
    frame
}

#[test]
fn trailers_of_http2_have_no_framing_fields_either() {
    if asks_nginx() {
        return;
    }
    // Others are malformed in HTTP/2.
    let framing = ["Content-Length", "Trailer", "Host", "Content-Encoding", "Content-Type"];
    let fields: Vec<_> = FRAMING.iter().filter(|(name, _)| framing.contains(name)).collect();
    let fields: Vec<_> = fields.into_iter().copied().chain([("x-sum", "1")]).collect();
    let origin = Http2Origin::start();
    let site = site(&format!(
        "upstream u {{ server 127.0.0.1:{}; }}
         server {{ listen 127.0.0.1:%%PORT%%; http2 on; proxy_http_version 2;
             location / {{ proxy_pass http://u; proxy_pass_trailers on; }}
             location /grpc {{ grpc_pass u; }} }}",
        origin.port()
    ));
    on_each_driver(&site, |server| {
        for path in ["/", "/grpc"] {
            let mut client = Http2::to_port(server.port());
            let asked = client.send_get(path);
            let mut peer = origin.accept();
            let stream = peer.request();
            peer.respond(stream, 200, &[], false);
            peer.data(stream, b"ok", false);
            peer.send_raw(&trailers(1, &fields));
            let response = client.response(asked);
            assert_eq!(response.text(), "ok");
            assert_eq!(response.trailers, [("x-sum".to_owned(), "1".to_owned())]);
        }
    });
}

/// Interim responses before the final one at most.
const INTERIM_MAX: usize = 32;

#[test]
fn interim_responses_are_bounded() {
    let with = |count: usize| {
        let more = "HTTP/1.1 102 Processing\r\n\r\n".repeat(count - 1);
        let last = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
        format!("HTTP/1.1 102 Processing\n\n{more}{last}")
    };
    if !asks_nginx() {
        answered(
            "location / { proxy_pass http://%%ORIGIN%%; }",
            &[(&with(INTERIM_MAX), "200\n\nok"), (&with(INTERIM_MAX + 1), "502")],
        );
    }
}

#[test]
fn interim_responses_of_http2_are_bounded() {
    if asks_nginx() {
        return;
    }
    let origin = Http2Origin::start();
    let site = site(&format!(
        "upstream u {{ server 127.0.0.1:{}; keepalive 1; }}
         server {{ listen 127.0.0.1:%%PORT%%; proxy_http_version 2; early_hints 1;
             location / {{ proxy_pass http://u; }}
             location /grpc {{ grpc_pass u; }} }}",
        origin.port()
    ));
    let site = site.allow_log("upstream sent too many interim responses");
    on_each_driver(&site, |server| {
        for path in ["/", "/grpc"] {
            let mut client = server.client();
            client.send_get(path);
            let mut peer = origin.accept();
            let stream = peer.request();
            (0..INTERIM_MAX).for_each(|_| peer.interim(stream, 102, &[]));
            peer.answer(stream, "ok");
            let response = loop {
                let response = client.response();
                if response.status != 102 {
                    break response;
                }
            };
            assert_eq!(response.text(), "ok");
            client.send_get(path);
            let stream = peer.request();
            for _ in 0..=INTERIM_MAX {
                peer.interim(stream, 103, &[("x", "y")]);
            }
            peer.until("a reset", |peer| peer.asked(stream).reset.is_some());
            let response = loop {
                let response = client.response();
                if response.status != 103 {
                    break response;
                }
            };
            assert_eq!(response.status, 502);
            server.wait_log("upstream sent too many interim responses");
        }
    });
}

#[test]
fn radio_stations_may_say_icy() {
    // nginx passes it on as the content of HTTP/0.9.
    if asks_nginx() {
        return;
    }
    let reply = "ICY 200 OK\nicy-name: Radio\nicy-metaint:8192\nContent-Type: audio/mpeg\n\n";
    for driver in [Driver::Epoll, Driver::IoUring] {
        let script =
            || [Step::expect("\r\n\r\n"), Step::reply(wire(reply) + "sound"), Step::HalfClose];
        let origin = Origin::start([script(), script()]);
        let address = origin.addr();
        let server = server(&format!(
            "location /radio {{ proxy_pass http://{address}; proxy_allow_icy on; }}
             location / {{ proxy_pass http://{address}; }}"
        ));
        let mut server = server.driver(driver).start();
        let response = server.get("/radio");
        assert_eq!((response.status, response.reason.as_str()), (200, "OK"));
        assert_eq!(response.header("icy-name"), Some("Radio"));
        assert_eq!(response.header("icy-metaint"), Some("8192"));
        assert_eq!(response.header("content-type"), Some("audio/mpeg"));
        assert_eq!(response.text(), "sound");
        server.allow_log("upstream sent no valid HTTP/1.0 header");
        assert_eq!(server.get("/").status, 502);
        server.stop();
        origin.finish();
    }
}
