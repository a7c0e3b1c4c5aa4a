//! uWSGI with an application of WSGI.

use nowait_testkit::ports::free_port;
use nowait_testkit::{Client, Server};

use super::{UPLOAD_BYTES, adler32, content, large, site, uploads};
use crate::stage::{Background, DRIVERS, program, source};

#[test]
fn uwsgi_with_python() {
    let Some(mut command) = program("uwsgi") else { return };
    let port = free_port();
    command.args(["--plugin", "python3", "--need-app", "--processes", "2", "--die-on-term"]);
    command.args(["--master", "--socket", &format!("127.0.0.1:{port}")]);
    command.arg("--wsgi-file").arg(source("app.wsgi.py"));
    let _uwsgi = Background::serve(&mut command, port);
    let content = content();
    let expected = format!("{UPLOAD_BYTES} {:08x}", adler32(&content));
    for driver in DRIVERS {
        for buffering in ["on", "off"] {
            eprintln!("driver: {driver:?}, buffering: {buffering}");
            let server = site(&format!(
                "server {{
                     listen 127.0.0.1:%%PORT%%; client_max_body_size 0;
                     uwsgi_request_buffering {buffering}; uwsgi_buffering {buffering};
                     location / {{ include uwsgi_params; uwsgi_pass 127.0.0.1:{port}; }}
                 }}"
            ))
            .driver(driver)
            .start();
            let mut client = server.client();
            let response = client.get("/a%20b");
            assert_eq!((response.status, &response.reason[..]), (202, "Taken"));
            assert_eq!(response.text(), "GET localhost /a b");
            assert_eq!(response.header("x-own"), Some("1"));
            assert!(client.get("/large").text() == large());
            uploads(&mut client, "/upload", &content, &expected, &[false, true]);
            server.stop();
        }
    }
}

/// A WebSocket: the handshake and the first frame are the examples of RFC 6455.
#[track_caller]
fn chats(server: &Server, path: &str) {
    let mut client = server.client();
    client.send(format!(
        "GET {path} HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
         Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
    ));
    let response = client.response_to_head();
    assert_eq!(response.status, 101, "{response}");
    assert_eq!(response.header("sec-websocket-accept"), Some("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="));
    client.send(b"\x81\x85\x37\xfa\x21\x3d\x7f\x9f\x4d\x51\x58");
    returns(&mut client, b"\x81\x05Hello");
    // A long message, with a mask that changes nothing.
    let text = "0123456789".repeat(10_000);
    let length = (text.len() as u64).to_be_bytes();
    client.send([b"\x81\xff", &length[..], b"\0\0\0\0", text.as_bytes()].concat());
    returns(&mut client, &[b"\x81\x7f", &length[..], text.as_bytes()].concat());
    client.send(b"\x88\x80\0\0\0\0");
    client.rest();
}

/// Reads exactly this.
#[track_caller]
fn returns(client: &mut Client, expected: &[u8]) {
    let mut read = Vec::new();
    while read.len() < expected.len() {
        read.extend(client.read_some(expected.len() - read.len()));
    }
    assert!(read == expected, "{:?}", String::from_utf8_lossy(&read));
}

/// WebSockets of uWSGI: by HTTP, as its documentation recommends for proxies, and by its own protocol.
#[test]
fn web_sockets_of_uwsgi() {
    let Some(mut command) = program("uwsgi") else { return };
    let (http, own) = (free_port(), free_port());
    command.args(["--plugin", "http,python3", "--need-app", "--processes", "4", "--die-on-term"]);
    command.args(["--http", &format!("127.0.0.1:{http}"), "--http-websockets"]);
    command.args(["--master", "--socket", &format!("127.0.0.1:{own}")]);
    command.arg("--wsgi-file").arg(source("app.wsgi.py"));
    let _uwsgi = Background::serve(&mut command, http);
    for driver in DRIVERS {
        eprintln!("driver: {driver:?}");
        let server = site(&format!(
            "map $http_upgrade $connection_upgrade {{ default upgrade; '' close; }}
             server {{
                 listen 127.0.0.1:%%PORT%%;
                 location / {{
                     proxy_pass http://127.0.0.1:{http};
                     proxy_http_version 1.1;
                     proxy_set_header Upgrade $http_upgrade;
                     proxy_set_header Connection $connection_upgrade;
                     proxy_set_header Host $host;
                 }}
                 location /own/ {{
                     rewrite ^/own(/.*) $1 break;
                     include uwsgi_params;
                     uwsgi_pass 127.0.0.1:{own};
                 }}
             }}"
        ))
        .driver(driver)
        .start();
        assert_eq!(server.get("/a").text(), "GET localhost /a");
        for path in ["/chat", "/own/chat"] {
            eprintln!("path: {path}");
            chats(&server, path);
        }
        server.stop();
    }
}
