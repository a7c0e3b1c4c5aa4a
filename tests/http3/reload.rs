//! Reloads and changes of the workers under way.

use std::fs;
use std::net::UdpSocket;

use nowait_testkit::Client;
use nowait_testkit::http2::Http2;
use nowait_testkit::http3::{Http3, code};
use nowait_testkit::wait::{PATIENCE, until};

use crate::stage::{block, http3, on_each_driver, pattern, server, site};

#[test]
fn a_reload_keeps_connections_and_its_settings_hold() {
    let builder = server("add_header X-Old 1; location /slow { limit_rate 500k; }")
        .file("html/slow", pattern(500_000))
        .file("html/page", "page")
        .workers(2);
    on_each_driver(&builder, |server| {
        let mut clients: Vec<Http3> = (0..8).map(|_| http3(server)).collect();
        let mut slow = Vec::new();
        for client in &mut clients {
            assert_eq!(client.get("/page").header("x-old"), Some("1"));
            slow.push(client.open("GET", "/slow", &[], true));
        }
        server.set_http(&block("add_header X-New 1; location /slow { limit_rate 500k; }"));
        server.reload();
        for (client, slow) in clients.iter_mut().zip(slow) {
            let page = client.get("/page");
            assert_eq!((page.header("x-old"), page.header("x-new")), (None, Some("1")));
            assert!(client.response(slow).body == pattern(500_000));
            assert_eq!(client.goaway(), None);
        }
    });
}

#[test]
fn changed_numbers_of_workers_lose_no_connection() {
    let builder = server("location /slow { limit_rate 500k; }")
        .file("html/slow", pattern(1_000_000))
        .file("html/page", "page")
        .workers(2);
    on_each_driver(&builder, |server| {
        let mut clients: Vec<Http3> = (0..8).map(|_| http3(server)).collect();
        for workers in [4, 1, 3] {
            let slow: Vec<_> =
                clients.iter_mut().map(|client| client.open("GET", "/slow", &[], true)).collect();
            for (client, slow) in clients.iter_mut().zip(&slow) {
                client.until("a part", |client| !client.exchange(*slow).body.is_empty());
            }
            server.set_workers(workers);
            server.reload();
            for (client, slow) in clients.iter_mut().zip(slow) {
                assert!(client.response(slow).body == pattern(1_000_000));
            }
            // They continue on other workers.
            for client in &mut clients {
                assert_eq!(client.get("/page").text(), "page");
                assert_eq!(client.goaway(), None);
            }
        }
    });
}

#[test]
fn addresses_come_and_go() {
    let builder = server("").file("html/page", "page");
    on_each_driver(&builder, |server| {
        let mut first = http3(server);
        assert_eq!(first.get("/page").text(), "page");
        let with = block("");
        let without = with.replace("listen 127.0.0.1:%%PORT%% quic;", "");
        server.set_http(&without);
        server.reload();
        server.set_http(&with);
        server.reload();
        assert_eq!(http3(server).get("/page").text(), "page");
    });
}

#[test]
fn connections_that_are_not_served_any_more_end() {
    let slow = "location /slow { limit_rate 500k; }";
    let at = |port: &str| block(slow).replace("%%PORT%%", port);
    let plain = "server { listen 127.0.0.1:%%PORT_2%%; http2 on; root %%DIR%%/html; }\n\
                 server { listen 127.0.0.1:%%PORT_3%%; root %%DIR%%/html; location /slow { limit_rate 500k; } }\n";
    let builder = site(&format!("{}{}{plain}", at("%%PORT%%"), at("%%PORT_1%%")))
        .file("html/slow", pattern(500_000))
        .file("html/page", "page")
        .workers(2);
    on_each_driver(&builder, |server| {
        let connect = |port| {
            let mut http3 = Http3::to_port(port);
            assert_eq!(http3.get("/page").text(), "page");
            http3
        };
        let mut kept: Vec<_> = (0..4).map(|_| connect(server.port())).collect();
        let mut gone: Vec<_> = (0..4).map(|_| connect(server.port_n(1))).collect();
        let mut http2 = Http2::to_port(server.port_n(2));
        let mut http1 = Client::to_port(server.port_n(3));
        assert_eq!((http2.get("/page").status, http1.get("/page").status), (200, 200));
        let mut busy = Client::to_port(server.port_n(3));
        busy.send("GET /slow HTTP/1.1\r\nHost: localhost\r\n\r\n");
        let begun = busy.read_some(1000);
        let slow = gone[0].open("GET", "/slow", &[], true);
        gone[0].until("a part", |http3| !http3.exchange(slow).body.is_empty());
        // Their addresses have gone, but requests in progress are served.
        server.set_http(&at("%%PORT%%"));
        server.reload();
        assert!(gone[0].response(slow).body == pattern(500_000));
        for mut http3 in gone {
            assert_eq!(http3.close_code(), code::NO_ERROR);
            assert!(http3.goaway().is_some());
        }
        http2.until_closed();
        http1.expect_closed();
        // Its client could send another request, and would get no response.
        let rest = busy.rest();
        assert!([begun, rest].concat().ends_with(&pattern(500_000)[400_000..]));
        // HTTP/3 is switched off.
        for http3 in &mut kept {
            assert_eq!(http3.get("/page").text(), "page");
            assert_eq!(http3.goaway(), None);
        }
        server.set_http(&format!("{}\nhttp3 off;", at("%%PORT%%")));
        server.reload();
        for mut http3 in kept {
            assert_eq!(http3.close_code(), code::NO_ERROR);
            assert!(http3.goaway().is_some());
        }
    });
}

#[test]
fn an_address_moves_between_http_and_stream() {
    const STREAM: &str = "stream { server { listen 127.0.0.1:%%PORT_1%% udp; return text; } }";
    let builder = server("").main(STREAM).file("html/page", "page");
    on_each_driver(&builder, |server| {
        let file = server.dir().join("nginx.conf");
        let before = fs::read_to_string(&file).unwrap();
        let (port, other) = (server.port().to_string(), server.port_n(1).to_string());
        // Each gets the port of the other one, and gives it back.
        let quic = |port: &str| format!("listen 127.0.0.1:{port} quic;");
        let udp = |port: &str| format!("listen 127.0.0.1:{port} udp;");
        let after = before
            .replace(&quic(&port), "%%QUIC%%")
            .replace(&udp(&other), &udp(&port))
            .replace("%%QUIC%%", &quic(&other));
        assert_ne!(before, after);
        let asks = |port: u16| {
            let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
            socket.connect(("127.0.0.1", port)).unwrap();
            socket.set_read_timeout(Some(std::time::Duration::from_millis(100))).unwrap();
            until("an answer of stream", PATIENCE, || {
                socket.send(b"x").unwrap();
                let mut text = [0; 4];
                (socket.recv(&mut text).is_ok() && &text == b"text").then_some(())
            });
        };
        for _ in 0..2 {
            assert_eq!(http3(server).get("/page").text(), "page");
            asks(server.port_n(1));
            fs::write(&file, &after).unwrap();
            server.reload();
            assert_eq!(Http3::to_port(server.port_n(1)).get("/page").text(), "page");
            asks(server.port());
            fs::write(&file, &before).unwrap();
            server.reload();
        }
    });
}
