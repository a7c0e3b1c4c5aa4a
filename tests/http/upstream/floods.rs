//! Upstream servers that send without end what brings no content: they keep no other client from the server, and
//! their requests end.

use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use nowait_testkit::{Driver, Link, wait};
use rustls::{ServerConfig, ServerConnection, StreamOwned};

use crate::fastcgi;
use crate::transport::{TestRequest, Transport, origin_tls, site};

/// The preface of an HTTP/2 client.
const PREFACE: usize = 24;

/// Types of FastCGI records.
const STDOUT: u8 = 6;
const STDERR: u8 = 7;

/// How often the other client asks.
const REQUESTS: usize = 20;

/// What a server sends.
#[derive(Clone)]
struct Flood {
    /// It speaks HTTP/2, or FastCGI.
    http2: bool,
    /// At first.
    first: Vec<u8>,
    /// Until the connection is closed.
    then: Vec<u8>,
    /// Of the error log.
    log: &'static str,
}

/// A frame.
fn frame(kind: u8, flags: u8, stream: u8, payload: &[u8]) -> Vec<u8> {
    let length = u8::try_from(payload.len()).unwrap();
    [&[0, 0, length, kind, flags, 0, 0, 0, stream], payload].concat()
}

fn floods() -> Vec<(&'static str, Flood)> {
    let settings = frame(4, 0, 0, &[]);
    // Status 200, by its index; status 103, spelled out.
    let head = [&settings[..], &frame(1, 4, 1, &[0x88])].concat();
    let interim = frame(1, 4, 1, b"\x08\x03103");
    let http2 = |first: &[u8], then: Vec<u8>, log| Flood {
        http2: true,
        first: first.to_vec(),
        then: then.repeat(500),
        log,
    };
    let fastcgi = |first: &str, kind| {
        let first = if first.is_empty() { Vec::new() } else { fastcgi::record(STDOUT, first) };
        let then = fastcgi::record(kind, "").repeat(500);
        Flood { http2: false, first, then, log: "upstream sent too many empty FastCGI records" }
    };
    let flood = "upstream sent http2 flood";
    let begun = "Content-Type: text/plain\r\n\r\nabc";
    vec![
        ("PING", http2(&settings, frame(6, 0, 0, &[0; 8]), flood)),
        ("SETTINGS", http2(&settings, settings.clone(), flood)),
        ("WINDOW_UPDATE", http2(&settings, frame(8, 0, 0, &[0, 0, 0, 1]), flood)),
        ("WINDOW_UPDATE of the stream", http2(&head, frame(8, 0, 1, &[0, 0, 0, 1]), flood)),
        ("empty DATA", http2(&head, frame(0, 0, 1, &[]), flood)),
        ("interim responses", http2(&settings, interim, "upstream sent too many interim")),
        ("stderr before the head", fastcgi("", STDERR)),
        ("stderr after it", fastcgi(begun, STDERR)),
        ("the end of stdout", fastcgi(begun, STDOUT)),
    ]
}

/// Serves connections until the tests end. Returns its port, and counts connections that were closed.
fn start(flood: &Flood, tls: Option<Arc<ServerConfig>>) -> (u16, Arc<AtomicUsize>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    let closed = Arc::<AtomicUsize>::default();
    let (flood, count) = (flood.clone(), closed.clone());
    thread::spawn(move || {
        for socket in listener.incoming() {
            let (flood, count, tls) = (flood.clone(), count.clone(), tls.clone());
            thread::spawn(move || {
                let socket: TcpStream = socket.unwrap();
                match tls {
                    Some(tls) => {
                        let tls = ServerConnection::new(tls).unwrap();
                        send(StreamOwned::new(tls, socket), &flood);
                    }
                    None => send(socket, &flood),
                }
                count.fetch_add(1, Ordering::SeqCst);
            });
        }
    });
    (port, closed)
}

/// Sends when a request has come, until the connection is closed.
fn send(mut link: impl Link, flood: &Flood) {
    let mut received = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        let has_request = match flood.http2 {
            true => has_headers(received.get(PREFACE..).unwrap_or_default()),
            false => received.ends_with(fastcgi::ASKED),
        };
        if has_request {
            break;
        }
        match link.read(&mut buffer) {
            Ok(count @ 1..) => received.extend_from_slice(&buffer[..count]),
            _ => return,
        }
    }
    let mut next = &flood.first;
    while link.write_all(next).and_then(|()| link.flush()).is_ok() {
        next = &flood.then;
    }
}

/// Whether HEADERS are among these frames.
fn has_headers(mut frames: &[u8]) -> bool {
    while let [0, high, low, kind, _, _, _, _, _, rest @ ..] = frames {
        if *kind == 1 {
            return true;
        }
        frames = rest.get(u16::from_be_bytes([*high, *low]).into()..).unwrap_or_default();
    }
    false
}

/// While requests are flooded, others are answered; all of them end.
#[track_caller]
fn is_survived(flood: &Flood, secure: bool, driver: Driver, transports: [Transport; 4]) {
    let (port, closed) = start(flood, secure.then(|| origin_tls(true)));
    let pass = match (flood.http2, secure) {
        (true, true) => format!("proxy_http_version 2; proxy_pass https://127.0.0.1:{port};"),
        (true, false) => format!("proxy_http_version 2; proxy_pass http://127.0.0.1:{port};"),
        (false, _) => format!("fastcgi_pass 127.0.0.1:{port};"),
    };
    let builder = site(&format!(
        "server {{
             %%LISTEN%%
             root %%DIR%%/html;
             location /flooded {{ {pass} }}
             location / {{ return 200 other; }}
         }}"
    ));
    let server = builder.allow_log("upstream").driver(driver).start();
    let flooded = TestRequest { target: "/flooded", ..TestRequest::default() };
    let [asking, other, more @ ..] = transports;
    let mut asked = 0;
    for _ in 0..REQUESTS {
        let first = asking.send(&server, &flooded);
        assert_eq!(other.get(&server, "/").text(), "other");
        assert!(!first.ends_well());
        asked += 1;
    }
    for transport in more {
        assert!(!transport.send(&server, &flooded).ends_well());
        asked += 1;
    }
    server.wait_log(flood.log);
    // Nothing is received for longer than the request takes.
    wait::until("the end of all floods", wait::PATIENCE, || {
        (closed.load(Ordering::SeqCst) == asked).then_some(())
    });
    server.stop();
}

#[test]
fn floods_end_and_keep_nobody_else_from_the_server() {
    for (number, (name, flood)) in floods().iter().enumerate() {
        for secure in [false, true] {
            for (driver, more) in [(Driver::Epoll, 0), (Driver::IoUring, 1)] {
                if secure && !flood.http2 {
                    continue;
                }
                eprintln!("{name}, TLS: {secure}, {driver:?}");
                let mut transports = Transport::ALL;
                transports.rotate_left((number + more) % 4);
                is_survived(flood, secure, driver, transports);
            }
        }
    }
}
