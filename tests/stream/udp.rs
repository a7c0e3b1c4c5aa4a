//! Datagrams that are passed on.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::time::Duration;

use nowait_testkit::Driver;

use crate::stage::{PATIENCE, on_each, stream, wait_file};

/// A socket of a client that talks to this address.
fn client(to: SocketAddr) -> UdpSocket {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).expect("a port");
    socket.set_read_timeout(Some(PATIENCE)).expect("a socket option");
    socket.connect(to).expect("an address");
    socket
}

fn hear(socket: &UdpSocket) -> Vec<u8> {
    let mut bytes = vec![0; 65_536];
    let len = socket.recv(&mut bytes).expect("a datagram");
    bytes.truncate(len);
    bytes
}

/// A server that sends each datagram back, with the port of its sender before it.
fn echo() -> SocketAddr {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let addr = socket.local_addr().expect("its address");
    std::thread::spawn(move || {
        let mut bytes = vec![0; 65_536];
        while let Ok((len, from)) = socket.recv_from(&mut bytes) {
            let answer = [from.port().to_string().as_bytes(), b" ", &bytes[..len]].concat();
            // Who has gone is not answered.
            let _ = socket.send_to(&answer, from);
        }
    });
    addr
}

/// Splits what the server has sent back: the port that it has seen, and the rest.
fn seen(answer: &[u8]) -> (u16, Vec<u8>) {
    let at = answer.iter().position(|b| *b == b' ').expect("a port and a space");
    let port = std::str::from_utf8(&answer[..at]).expect("digits").parse().expect("a port");
    (port, answer[at + 1..].to_vec())
}

const LOG: &str = "log_format main '$status $protocol $bytes_received $bytes_sent \
                   $upstream_bytes_sent $upstream_bytes_received $upstream_addr';
                   access_log %%DIR%%/access.log main;
                   server { listen 127.0.0.1:%%PORT%%; proxy_pass 127.0.0.1:1; }";

/// A server at the UDP port `%%PORT%%`; the same TCP port tells that it runs.
fn passing(up: SocketAddr, more: &str) -> nowait_testkit::ServerBuilder {
    let block =
        format!("{LOG} server {{ listen 127.0.0.1:%%PORT%% udp; proxy_pass %%UP%%; {more} }}");
    stream(&block).variable("UP", up).allow_log("connect() failed (111")
}

#[test]
fn datagrams_of_a_client_are_a_session() {
    let up = echo();
    on_each(&passing(up, "proxy_timeout 300ms;"), |server| {
        let (one, other) = (client(server.addr()), client(server.addr()));
        one.send(b"first").expect("it goes");
        let (port, text) = seen(&hear(&one));
        assert_eq!(text, b"first");
        one.send(b"second").expect("it goes");
        assert_eq!(seen(&hear(&one)), (port, b"second".to_vec()));
        other.send(b"").expect("it goes");
        let (other_port, text) = seen(&hear(&other));
        assert!(text.is_empty() && other_port != port);
        server.wait_log("udp timed out, packets from/to client:2/2, bytes from/to client:11/");
        wait_file(server, "access.log", "200 UDP 11 ");
        wait_file(server, "access.log", "200 UDP 0 ");
    });
}

#[test]
fn large_datagrams_stay_whole() {
    let up = echo();
    on_each(&passing(up, ""), |server| {
        let socket = client(server.addr());
        let large: Vec<u8> = (0..60_000u32).map(|n| (n % 251) as u8).collect();
        socket.send(&large).expect("it goes");
        assert_eq!(seen(&hear(&socket)).1, large);
    });
}

#[test]
fn sessions_end_by_counts() {
    let up = echo();
    on_each(&passing(up, "proxy_requests 2; proxy_responses 1;"), |server| {
        let socket = client(server.addr());
        let mut ports = Vec::new();
        for _ in 0..4 {
            socket.send(b"x").expect("it goes");
            ports.push(seen(&hear(&socket)).0);
        }
        assert!(ports[0] == ports[1] && ports[2] == ports[3] && ports[1] != ports[2], "{ports:?}");
        server.wait_log("udp done, packets from/to client:2/2");
        // Also when they come all at once.
        for n in 0..5 {
            socket.send(&[b'0' + n]).expect("it goes");
        }
        let mut answers: Vec<(Vec<u8>, u16)> = (0..5)
            .map(|_| {
                let (port, text) = seen(&hear(&socket));
                (text, port)
            })
            .collect();
        answers.sort();
        let ports: Vec<u16> = answers.iter().map(|(_, port)| *port).collect();
        assert!(ports[0] == ports[1] && ports[2] == ports[3], "{answers:?}");
        assert!(ports[1] != ports[2] && ports[3] != ports[4], "{answers:?}");
    });
    on_each(&passing(up, "proxy_responses 0;"), |server| {
        client(server.addr()).send(b"only told").expect("it goes");
        wait_file(server, "access.log", "200 UDP 9 0 9 0 127.0.0.1");
    });
}

#[test]
fn a_server_that_does_not_answer_has_failed() {
    let silent = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let up = silent.local_addr().expect("its address");
    on_each(&passing(up, "proxy_responses 1; proxy_timeout 200ms;"), |server| {
        client(server.addr()).send(b"x").expect("it goes");
        wait_file(server, "access.log", "502 UDP 1 0 1 0 127.0.0.1");
        server.wait_log(
            "upstream timed out (110: Connection timed out) while proxying connection, \
                         udp client: 127.0.0.1, server: 127.0.0.1:",
        );
    });
    drop(silent);
    on_each(&passing(up, "proxy_timeout 10s;"), |server| {
        client(server.addr()).send(b"x").expect("it goes");
        wait_file(server, "access.log", "502 UDP 1 0 ");
        server.wait_log("failed (111: Connection refused) while proxying");
    });
}

#[test]
fn an_answer_comes_from_the_address_that_was_asked() {
    let up = echo();
    let block =
        format!("{LOG} server {{ listen %%PORT%% udp; proxy_pass %%UP%%; proxy_timeout 300ms; }}");
    on_each(&stream(&block).variable("UP", up), |server| {
        for ip in ["127.0.0.1", "127.0.0.2"] {
            // The client hears only the address that it has asked.
            let socket =
                client((ip.parse::<Ipv4Addr>().expect("an address"), server.port()).into());
            socket.send(b"hello").expect("it goes");
            assert_eq!(seen(&hear(&socket)).1, b"hello");
        }
    });
}

#[test]
fn the_proxy_protocol_stands_before_the_first_datagram() {
    let up = echo();
    on_each(&passing(up, "proxy_protocol on;"), |server| {
        let socket = client(server.addr());
        let mine = socket.local_addr().expect("an address");
        socket.send(b"one").expect("it goes");
        let header =
            format!("PROXY TCP4 127.0.0.1 127.0.0.1 {} {}\r\n", mine.port(), server.port());
        assert_eq!(seen(&hear(&socket)).1, [header.as_bytes(), b"one"].concat());
        socket.send(b"two").expect("it goes");
        assert_eq!(seen(&hear(&socket)).1, b"two");
    });
}

#[test]
fn text_is_returned_and_rules_hold() {
    let block = format!(
        "{LOG} server {{ listen 127.0.0.1:%%PORT%% udp; return $protocol:$bytes_received; }}
         server {{ listen 127.0.0.2:%%PORT%% udp; return in; deny all; }}"
    );
    on_each(&stream(&block), |server| {
        let socket = client(server.addr());
        for text in ["one", "three"] {
            socket.send(text.as_bytes()).expect("it goes");
            assert_eq!(hear(&socket), format!("UDP:{}", text.len()).into_bytes());
        }
        client(([127, 0, 0, 2], server.port()).into()).send(b"x").expect("it goes");
        wait_file(server, "access.log", "403 UDP 1 0 - - -");
    });
}

#[test]
fn a_flood_is_bounded() {
    const SESSIONS_MAX: usize = 64;
    let up = echo();
    let builder = passing(up, "proxy_timeout 5s;")
        .events(&format!("worker_connections {SESSIONS_MAX};"))
        .allow_log("worker_connections are not enough");
    on_each(&builder, |server| {
        let sockets: Vec<UdpSocket> =
            (0..3 * SESSIONS_MAX).map(|_| client(server.addr())).collect();
        for socket in &sockets {
            socket.send(b"x").expect("it goes");
        }
        server.wait_log("64 worker_connections are not enough");
        // Those that are in are served as before.
        sockets[0].send(b"y").expect("it goes");
        assert_eq!(seen(&hear(&sockets[0])).1, b"x");
        assert_eq!(seen(&hear(&sockets[0])).1, b"y");
    });
}

#[test]
fn several_workers_and_a_reload() {
    let up = echo();
    for (parameters, driver) in [("", Driver::Epoll), (" reuseport", Driver::IoUring)] {
        let block = format!(
            "{LOG} server {{ listen 127.0.0.1:%%PORT%% udp{parameters}; proxy_pass %%UP%%; }}"
        );
        let server = stream(&block).variable("UP", up).workers(3).driver(driver).start();
        let sockets: Vec<UdpSocket> = (0..12).map(|_| client(server.addr())).collect();
        let ask = |socket: &UdpSocket| {
            socket.send(b"x").expect("it goes");
            seen(&hear(socket)).0
        };
        let ports: Vec<u16> = sockets.iter().map(ask).collect();
        server.reload();
        let again: Vec<u16> = sockets.iter().map(ask).collect();
        assert_eq!(ports, again, "sessions go on after a reload");
        let new = client(server.addr());
        new.set_read_timeout(Some(Duration::from_secs(20))).expect("a socket option");
        assert!(!ports.contains(&ask(&new)));
        // Sessions of UDP hold up no end.
        server.quit();
    }
}

#[test]
fn what_does_not_go_with_udp() {
    for (parameters, message) in [
        ("backlog=5", "\"backlog\" parameter is incompatible with \"udp\""),
        ("proxy_protocol", "\"proxy_protocol\" parameter is incompatible with \"udp\""),
        ("so_keepalive=on", "\"so_keepalive\" parameter is incompatible with \"udp\""),
        ("deferred", "\"deferred\" parameter is incompatible with \"udp\""),
    ] {
        let block = format!(
            "server {{ listen 127.0.0.1:%%PORT%% udp {parameters}; proxy_pass 127.0.0.1:1; }}"
        );
        let failure = stream(&block).try_start().expect_err(parameters);
        assert!(failure.stderr.contains(message), "{parameters}: {}", failure.stderr);
    }
}
