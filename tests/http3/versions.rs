//! One configuration for all three versions of HTTP: the same bytes, and the same lines in the log.

use std::io::Read;
use std::net::TcpStream;
use std::sync::Arc;

use nowait_testkit::Server;
use nowait_testkit::http2::{Http2, Limits};
use nowait_testkit::http3::trusting;
use nowait_testkit::quic::{Dir, Quic, QuicOptions};
use rustls::pki_types::ServerName;
use rustls::{ClientConnection, StreamOwned};

use crate::client::{Authority, TlsClient};
use crate::stage::{block, http3, on_each_driver, pattern, server, site};

/// Fields of a response, apart from those that belong to a connection, a time, or a version.
fn comparable(fields: &[(String, String)]) -> Vec<(String, String)> {
    let apart = ["date", "connection", "alt-svc", "keep-alive", "transfer-encoding"];
    let fields = fields.iter().map(|(name, value)| (name.to_ascii_lowercase(), value.clone()));
    fields.filter(|(name, _)| !apart.contains(&&name[..])).collect()
}

/// A response: status, fields, content.
type Seen = (u16, Vec<(String, String)>, Vec<u8>);

fn over_http1(server: &Server, tls: &Arc<rustls::ClientConfig>, path: &str) -> Seen {
    let socket = TcpStream::connect(server.addr()).unwrap();
    let mut client = TlsClient::over(socket, tls, "localhost");
    client.send(format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"));
    let mut bytes = Vec::new();
    client.reader().read_to_end(&mut bytes).unwrap();
    let end = bytes.windows(4).position(|bytes| bytes == b"\r\n\r\n").unwrap();
    let head = String::from_utf8(bytes[..end].to_vec()).unwrap();
    let status = head[9..12].parse().unwrap();
    let lines = head.lines().skip(1).filter_map(|line| line.split_once(": "));
    let fields: Vec<_> = lines.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    (status, comparable(&fields), bytes[end + 4..].to_vec())
}

fn over_http2(server: &Server, tls: &Arc<rustls::ClientConfig>, path: &str) -> Seen {
    let mut tls = rustls::ClientConfig::clone(tls);
    tls.alpn_protocols = vec![b"h2".to_vec()];
    let name = ServerName::try_from("localhost").unwrap();
    let session = ClientConnection::new(Arc::new(tls), name).unwrap();
    let socket = TcpStream::connect(server.addr()).unwrap();
    let link = StreamOwned::new(session, socket);
    let mut client = Http2::above(link, "https", Limits::default());
    let id = client.open("GET", path, &[], true);
    let response = client.response(id);
    (response.status, comparable(&response.headers), response.body)
}

fn over_http3(server: &Server, path: &str) -> Seen {
    let response = http3(server).get(path);
    (response.status, comparable(&response.headers), response.body)
}

#[test]
fn the_same_bytes_and_the_same_log() {
    let authority = Authority::new("authority");
    let own = authority.issue("localhost");
    let content = "add_header X-Added \"$request_method $uri\"; gzip off; autoindex on;\
                   location = /redirect { return 301 /elsewhere; } location = /error { return 503; }\
                   location /proxied/ { proxy_pass http://127.0.0.1:%%PORT_1%%/; }\
                   access_log %%DIR%%/seen.log seen;";
    let http = format!(
        "log_format seen '$remote_addr $request_method $uri $status $body_bytes_sent $http_user_agent \
         $scheme $host $request_completion $server_port $ssl_protocol';\n{}\n\
         server {{ listen 127.0.0.1:%%PORT_1%%; root %%DIR%%/html; }}",
        block(content)
    );
    let builder = site(&http)
        .file("own.pem", own.chain)
        .file("own.key", own.key)
        .file("html/page.html", "<p>page")
        .file("html/large.bin", pattern(300_000))
        .file("html/empty", "");
    let paths = [
        "/page.html",
        "/large.bin",
        "/empty",
        "/missing",
        "/redirect",
        "/error",
        "/",
        "/../x",
        "/%00",
        "/proxied/page.html",
        "/proxied/large.bin",
        "/proxied/missing",
    ];
    on_each_driver(&builder, |server| {
        let tls = authority.client(None);
        for path in paths {
            let one = over_http1(server, &tls, path);
            let two = over_http2(server, &tls, path);
            let three = over_http3(server, path);
            assert_eq!(two.0, three.0, "{path}");
            assert_eq!(one.0, three.0, "{path}");
            assert_eq!(two.1, three.1, "{path}");
            assert!(one.2.ends_with(b"0\r\n\r\n") || one.2 == three.2, "{path}");
            assert!(two.2 == three.2, "{path}");
        }
        let lines = 3 * paths.len();
        let log = nowait_testkit::wait::until("the log", nowait_testkit::wait::PATIENCE, || {
            Some(server.read("seen.log")).filter(|log| log.lines().count() >= lines)
        });
        let lines: Vec<&str> = log.lines().collect();
        for (path, lines) in paths.iter().zip(lines.chunks(3)) {
            // The length of a listing, which HTTP/1.1 sends in chunks, includes these.
            if *path != "/" {
                assert_eq!(lines[0], lines[2], "{path}");
            }
            assert_eq!(lines[1], lines[2], "{path}");
        }
    });
}

#[test]
fn http_0_9_has_neither_heads_nor_frames() {
    let content = pattern(300_000);
    let builder = server("http3_hq on; location /echo { return 200 \"$http3 $host\"; }")
        .file("html/page", "page")
        .file("html/large", content.clone());
    on_each_driver(&builder, |server| {
        let options = QuicOptions::new(trusting("hq-interop"));
        let mut quic = Quic::connect(server.port(), &options).unwrap();
        let mut get = |line: &[u8]| {
            let stream = quic.open(Dir::Bi);
            quic.write(stream, line);
            quic.finish(stream);
            quic.until("the end", |quic| quic.input(stream).ended);
            quic.bytes(stream).to_vec()
        };
        assert_eq!(get(b"GET /page\r\n"), b"page");
        assert_eq!(get(b"GET /page"), b"page");
        assert_eq!(get(b"GET /echo\n"), b"hq localhost");
        assert!(get(b"GET /large\r\n") == content);
        let stream = quic.open(Dir::Bi);
        quic.write(stream, b"POST /page\r\n");
        quic.until("a reset", |quic| quic.input(stream).reset.is_some());
    });
}
