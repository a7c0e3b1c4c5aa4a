//! Clients that take nothing of a large proxied response, over every transport and on both drivers.
//!
//! All of them are served in one turn of the event loop, since the server is stopped while they ask. A
//! driver that keeps the memory of every send until the end of the turn needs it for all of them at once.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;

use nowait_testkit::Server;
use rustix::process::{Pid, Signal, kill_process};
use rustls::ClientConfig;

use super::{DRIVERS, KB, binary, clients, processes, settled};

#[path = "../http/tls/client.rs"]
#[allow(dead_code, reason = "the client of other tests")]
pub mod tls_client;

use tls_client::{Authority, TlsClient};

const CLIENTS: usize = 500;

/// More than the largest piece that is sent at once, and less than the kernel takes.
const RESPONSE_BYTES: usize = 1_000_000;

/// The preface of HTTP/2, with large windows: for the only stream by a setting, for the connection by
/// an update.
const HTTP2: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\
    \x00\x00\x06\x04\x00\x00\x00\x00\x00\x00\x04\x00\x20\x00\x00\
    \x00\x00\x04\x08\x00\x00\x00\x00\x00\x00\x20\x00\x00";

/// `GET /large` as the first request: method, scheme, then authority and path as literals.
const HTTP2_GET: &[u8] = b"\x00\x00\x0d\x01\x05\x00\x00\x00\x01\x82\x86\x01\x01a\x04\x06/large";

const GET: &[u8] = b"GET /large HTTP/1.1\r\nHost: a\r\n\r\n";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ReaderTransport {
    Plain,
    Tls,
    Http2,
}

impl ReaderTransport {
    /// Memory of a client in KB: some above what is measured with either driver on idle and on busy machines
    /// (8 to 10; 11 to 39; 40 to 72). With io_uring, that is up to 10 KB of the receive buffers that it provides
    /// for all clients together, and with TLS the record that is being sent. A stream of HTTP/2 holds a piece of
    /// the response, of up to 64 KB if the server was late to read it.
    fn bound(self) -> u64 {
        match self {
            ReaderTransport::Plain => 20,
            ReaderTransport::Tls => 46,
            ReaderTransport::Http2 => 84,
        }
    }
}

/// A client of any transport; it leaves when it is dropped.
enum SlowClient {
    Plain(TcpStream),
    Tls(Box<TlsClient>),
}

impl SlowClient {
    fn write(&mut self, bytes: &[u8]) {
        match self {
            SlowClient::Plain(stream) => stream.write_all(bytes).expect("a request is sent"),
            SlowClient::Tls(client) => client.send(bytes),
        }
    }

    fn read(&mut self, bytes: &mut [u8]) {
        match self {
            SlowClient::Plain(stream) => stream.read_exact(bytes).expect("a response begins"),
            SlowClient::Tls(client) => {
                client.reader().read_exact(bytes).expect("a response begins")
            }
        }
    }
}

/// Connects so many clients, which are ready to ask.
fn connect(
    address: SocketAddr,
    transport: ReaderTransport,
    config: &Arc<ClientConfig>,
    count: usize,
) -> Vec<SlowClient> {
    let open = |_| {
        let stream = TcpStream::connect(address).expect("a connection");
        match transport {
            ReaderTransport::Plain => SlowClient::Plain(stream),
            ReaderTransport::Http2 => {
                let mut client = SlowClient::Plain(stream);
                client.write(HTTP2);
                // The server's settings.
                client.read(&mut [0; 9]);
                client
            }
            ReaderTransport::Tls => {
                let mut client = TlsClient::over(stream, config, "localhost");
                assert!(client.get("/tiny").0.starts_with("HTTP/1.1 200"));
                SlowClient::Tls(Box::new(client))
            }
        }
    };
    (0..count).map(open).collect()
}

/// Has all clients ask at the same time; returns when the responses have begun.
fn ask(server: &Server, transport: ReaderTransport, clients: &mut [SlowClient]) {
    let request = if transport == ReaderTransport::Http2 { HTTP2_GET } else { GET };
    stopped(server, || clients.iter_mut().for_each(|client| client.write(request)));
    for client in clients {
        let mut begin = [0; 12];
        client.read(&mut begin);
        assert!(transport == ReaderTransport::Http2 || &begin == b"HTTP/1.1 200", "{begin:?}");
    }
}

/// Does something while no process of the server runs.
pub fn stopped(server: &Server, work: impl FnOnce()) {
    let all = processes(server);
    let signal = |signal| {
        for pid in &all {
            let pid = Pid::from_raw(pid.cast_signed()).expect("a process");
            kill_process(pid, signal).expect("a process of ours");
        }
    };
    signal(Signal::STOP);
    work();
    signal(Signal::CONT);
}

#[test]
fn clients_that_take_nothing_hold_little() {
    if !clients::raise_limit(CLIENTS) {
        return;
    }
    let authority = Authority::new("CA");
    let config = authority.client(None);
    let issued = authority.issue("localhost");
    let origin = Server::of(binary())
        .file("www/large", vec![b'x'; RESPONSE_BYTES])
        .events("worker_connections 10000;")
        .http("server { listen 127.0.0.1:%%PORT%% backlog=4096; root %%DIR%%/www; }")
        .start();
    let mut beyond = Vec::new();
    for driver in DRIVERS {
        for transport in [ReaderTransport::Plain, ReaderTransport::Tls, ReaderTransport::Http2] {
            let ssl = if transport == ReaderTransport::Tls { "ssl" } else { "" };
            let server = Server::of(binary())
                .driver(driver)
                .file("c.pem", &issued.chain)
                .file("k.pem", &issued.key)
                .events("worker_connections 10000;")
                .http(&format!(
                    "send_timeout 600s; proxy_read_timeout 600s;
                     server {{
                         listen 127.0.0.1:%%PORT%% {ssl} backlog=4096;
                         http2 on;
                         ssl_certificate %%DIR%%/c.pem;
                         ssl_certificate_key %%DIR%%/k.pem;
                         location = /tiny {{ return 200 OK; }}
                         location / {{
                             proxy_pass http://127.0.0.1:{};
                             proxy_buffering off;
                         }}
                     }}",
                    origin.port()
                ))
                .start();
            // What is made once is there then.
            let mut first = connect(server.addr(), transport, &config, 20);
            ask(&server, transport, &mut first);
            drop(first);
            let before = settled(&server);
            let mut clients = connect(server.addr(), transport, &config, CLIENTS);
            ask(&server, transport, &mut clients);
            let each = settled(&server).saturating_sub(before) / CLIENTS as u64;
            eprintln!("{driver:?} {transport:?}: {:.1} KB", each as f64 / KB as f64);
            let bound = transport.bound();
            if each > bound * KB {
                beyond.push(format!("{driver:?}, {transport:?}: {each} bytes, not {bound} KB"));
            }
            drop(clients);
        }
    }
    assert!(beyond.is_empty(), "{beyond:#?}");
}
