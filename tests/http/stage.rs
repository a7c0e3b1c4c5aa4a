//! What the tests share: a server per driver and the short forms of an exchange.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use nowait_testkit::origin::Step;
use nowait_testkit::{Binary, Client, Driver, Origin, Response, Server, ServerBuilder, check_on};

/// Describes a server with this `http` block.
pub fn site(http: &str) -> ServerBuilder {
    Server::of(Binary::under_test(env!("CARGO_BIN_EXE_nowait"))).http(http)
}

/// Whether the tests ask nginx, for the few places where it is known to differ.
pub fn asks_nginx() -> bool {
    Binary::under_test("").is_nginx()
}

/// A server at `%%PORT%%` with this content.
pub fn server(content: &str) -> ServerBuilder {
    site(&format!("server {{\nlisten 127.0.0.1:%%PORT%%;\nroot %%DIR%%/html;\n{content}\n}}"))
}

/// Runs a test on each driver, with a server of its own each time.
#[track_caller]
pub fn on_each_driver(builder: &ServerBuilder, test: impl Fn(&mut Server)) {
    for driver in [Driver::Epoll, Driver::IoUring] {
        // Shown with a failure.
        eprintln!("driver: {driver:?}");
        let mut server = builder.clone().driver(driver).start();
        test(&mut server);
        let nginx = server.binary().is_nginx();
        server.stop();
        if nginx {
            break;
        }
    }
}

/// Runs a test on each driver, with an origin and a server of its own each time. The server is described
/// when the address of the origin is known.
#[track_caller]
pub fn with_origin(
    scripts: impl Fn() -> Vec<Vec<Step>>,
    builder: impl Fn(&str) -> ServerBuilder,
    test: impl Fn(&mut Server, &Origin),
) {
    for driver in [Driver::Epoll, Driver::IoUring] {
        // Shown with a failure.
        eprintln!("driver: {driver:?}");
        let origin = Origin::start(scripts());
        let mut server = builder(&origin.addr().to_string()).driver(driver).start();
        test(&mut server, &origin);
        let nginx = server.binary().is_nginx();
        server.stop();
        origin.finish();
        if nginx {
            break;
        }
    }
}

/// Has exchanges with a server on each driver, one connection per exchange.
#[track_caller]
pub fn exchanges(builder: &ServerBuilder, cases: &[(&str, &str)]) {
    on_each_driver(builder, |server| {
        for (exchange, expected) in cases {
            eprintln!("exchange: {exchange}");
            check_on(server, exchange, expected);
        }
    });
}

/// Requests targets from a server on each driver; what is expected is written as in
/// [`nowait_testkit::check`].
#[track_caller]
pub fn gets(builder: &ServerBuilder, cases: &[(&str, &str)]) {
    on_each_driver(builder, |server| {
        for (target, expected) in cases {
            eprintln!("target: {target}");
            check_on(server, &format!("GET {target} HTTP/1.1\nHost: localhost"), expected);
        }
    });
}

/// Sends a request with these header lines on a connection of its own.
#[track_caller]
pub fn ask(server: &Server, target: &str, headers: &[&str]) -> Response {
    let mut client = server.client();
    send(&mut client, target, headers);
    client.response()
}

/// Sends a GET request with these header lines.
#[track_caller]
pub fn send(client: &mut Client, target: &str, headers: &[&str]) {
    let lines: String = headers.iter().map(|line| format!("{line}\r\n")).collect();
    client.send(format!("GET {target} HTTP/1.1\r\nHost: localhost\r\n{lines}\r\n"));
}

/// Waits until a file below the server's directory contains a text, and returns the file.
#[track_caller]
pub fn wait_file(server: &Server, relative: &str, text: &str) -> String {
    server.wait_file(relative, text)
}

/// Bytes in which every position can be recognised: lines with their numbers.
pub fn pattern(len: usize) -> Vec<u8> {
    let mut out = Vec::with_capacity(len + 8);
    let mut line = *b"0000000\n";
    while out.len() < len {
        out.extend_from_slice(&line);
        // Count in place: formatting numbers would take most of the tests' time.
        for digit in line[..7].iter_mut().rev() {
            if *digit < b'9' {
                *digit += 1;
                break;
            }
            *digit = b'0';
        }
    }
    out.truncate(len);
    out
}

/// Starts a server that must refuse its configuration for this reason.
#[track_caller]
pub fn refused(builder: &ServerBuilder, reason: &str) {
    let failure = builder.clone().try_start().expect_err(reason);
    let said = format!("{}{}", failure.stderr, failure.log);
    assert!(said.contains(reason), "{reason}: {said}");
}

/// A server whose queue of connections is full: it answers no other one.
pub struct FullQueue {
    listener: TcpListener,
    _waiting: Vec<TcpStream>,
}

impl FullQueue {
    /// Listens, and fills the queue.
    pub fn new() -> FullQueue {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let mut waiting = Vec::new();
        while let Ok(stream) = TcpStream::connect_timeout(&address, Duration::from_millis(300)) {
            waiting.push(stream);
            assert!(waiting.len() < 10_000, "its queue has no end");
        }
        FullQueue { listener, _waiting: waiting }
    }

    /// Where it does not answer.
    pub fn address(&self) -> SocketAddr {
        self.listener.local_addr().unwrap()
    }
}
