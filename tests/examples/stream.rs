//! `examples/stream.conf`: sites by name, a database, DNS.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};

use nowait_testkit::dns::{A, DnsAnswer};
use nowait_testkit::wait::{self, PATIENCE};
use nowait_testkit::{Client, DnsServer, client_hello, ports};

use super::curl;
use super::example;

/// A server that says its name and what it was told first, and then what it gets, to the end.
pub(super) fn upstream(name: &'static str) -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let addr = listener.local_addr().expect("its address");
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            std::thread::spawn(move || {
                // Who has gone needs no answer.
                let _ = stream.set_read_timeout(Some(PATIENCE));
                let _ = stream.write_all(format!("{name}: ").as_bytes());
                let mut bytes = [0; 4096];
                while let Ok(len @ 1..) = stream.read(&mut bytes) {
                    if stream.write_all(&bytes[..len]).is_err() {
                        return;
                    }
                }
            });
        }
    });
    addr
}

/// A question for the address of `a.example`.
fn question() -> Vec<u8> {
    let head = [0x12, 0x34, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    [&head[..], b"\x01a\x07example\x00\x00\x01\x00\x01"].concat()
}

#[test]
fn stream() {
    let answer = |address: &'static str| {
        DnsServer::start(move |query| match query.kind {
            A => vec![DnsAnswer::address(&query.name, 60, address)],
            _ => vec![DnsAnswer::new()],
        })
    };
    let (one, two) = (answer("10.0.0.1"), answer("10.0.0.2"));
    let nobody = SocketAddr::from((Ipv4Addr::LOCALHOST, ports::free_port()));
    let behind = [
        upstream("shop"),
        upstream("backup shop"),
        upstream("api"),
        upstream("other"),
        nobody,
        upstream("second database"),
        one.addr(),
        two.addr(),
    ];
    let [database, dns] = [ports::free_port(), ports::free_port()];
    let mut text = include_str!("../../examples/stream.conf").to_owned();
    for (n, addr) in behind.iter().enumerate() {
        text = text.replace(&format!("127.0.0.1:900{}", n + 1), &addr.to_string());
    }
    text = text.replace("listen 8001", &format!("listen {database}"));
    text = text.replace("listen 8002", &format!("listen {dns}"));
    let server = example(&text).file("log/kept", "").allow_log("upstream").start();

    // Sites. What a client has said first arrives, after who it is.
    for (name, site) in [
        ("shop.example.com", "shop"),
        ("v1.api.example.com", "api"),
        ("api.example.com", "other"),
        ("else.example", "other"),
        ("", "other"),
    ] {
        let mut client = server.client();
        let hello = client_hello(name, &["h2"], 16_000);
        let from = client.stream().local_addr().expect("an address");
        client.send(&hello);
        let to = server.port();
        let expected = format!("{site}: PROXY TCP4 127.0.0.1 127.0.0.1 {} {to}\r\n", from.port());
        let expected = [expected.as_bytes(), &hello].concat();
        let mut heard = Vec::new();
        while heard.len() < expected.len() {
            let more = client.read_some(expected.len() - heard.len());
            assert!(!more.is_empty(), "{name}: {}", heard.escape_ascii());
            heard.extend(more);
        }
        assert_eq!(heard, expected, "{name}");
    }

    // The second database stands in; both directions end by themselves.
    let mut client = Client::to_port(database);
    client.send("select 1");
    client.half_close();
    assert_eq!(String::from_utf8_lossy(&client.rest()), "second database: select 1");

    // DNS by UDP goes to both, in turn.
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    socket.set_read_timeout(Some(PATIENCE)).expect("a socket option");
    socket.connect((Ipv4Addr::LOCALHOST, dns)).expect("an address");
    let mut last = Vec::new();
    for _ in 0..2 {
        socket.send(&question()).expect("it goes");
        let mut bytes = [0; 512];
        let len = socket.recv(&mut bytes).expect("an answer");
        assert_eq!(bytes[..2], [0x12, 0x34]);
        last.push(bytes[len - 1]);
    }
    last.sort_unstable();
    assert_eq!(last, [1, 2]);
    // By TCP, too.
    let mut client = Client::to_port(dns);
    let length = u16::try_from(question().len()).expect("short").to_be_bytes();
    client.send([&length[..], &question()].concat());
    let answer = client.read_some(512);
    assert!(!answer.is_empty());
    drop(client);

    let log = wait::until("lines of all sessions", PATIENCE, || {
        let log = server.read("log/stream.log");
        ["\"v1.api.example.com\" ", " UDP 200 ", " 200 \"shop.example.com\" "]
            .iter()
            .all(|part| log.contains(part))
            .then_some(log)
    });
    assert!(log.contains(&format!("{nobody}, ")), "{log}");
    assert!(server.quit().success());
}

/// A real TLS client: its name leads to the site, whose answer is no TLS.
#[test]
fn stream_with_a_real_client() {
    if !curl::is_installed() {
        return;
    }
    let shop = upstream("shop");
    let text = include_str!("../../examples/stream.conf")
        .replace("127.0.0.1:9001", &shop.to_string())
        .replace("listen 8001", &format!("listen {}", ports::free_port()))
        .replace("listen 8002", &format!("listen {}", ports::free_port()));
    let server = example(&text).file("log/kept", "").allow_log("upstream").start();
    let output = std::process::Command::new("curl")
        .args(["--silent", "--max-time", "30", "--noproxy", "*", "--connect-to"])
        .args([&format!("::127.0.0.1:{}", server.port()), "https://shop.example.com/"])
        .output()
        .expect("curl is installed");
    assert!(!output.status.success());
    wait::until("the line of the session", PATIENCE, || {
        let line = format!(" TCP 200 \"shop.example.com\" {shop} ");
        server.read("log/stream.log").contains(&line).then_some(())
    });
    server.stop();
}
