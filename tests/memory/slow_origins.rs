//! Clients whose uploads are passed on as they arrive: to an origin that takes everything, and to one that
//! takes nothing, with and without TLS, on both drivers.
//!
//! All of them send while the server is stopped, so that it finds content of everybody in one turn of its
//! event loop.

use std::fs::Permissions;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;

use nowait_testkit::wait::until;
use nowait_testkit::{Driver, Server, TempDir};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketType};
use rustls::ClientConfig;

use super::slow_readers::stopped;
use super::slow_readers::tls_client::{Authority, TlsClient};
use super::{DRIVERS, KB, PATIENCE, binary, clients, settled};

const CLIENTS: usize = 500;

/// What each sends: more than the kernel takes for an origin that takes nothing, and little enough that the
/// clients' kernel takes the rest.
const SENT_BYTES: usize = 600_000;

/// So many looks without anything sent: the server takes no more.
const LOOKS: usize = 20;

/// What the origin does with content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Takes {
    All,
    Nothing,
}

impl Takes {
    /// Memory of an upload in KB: some above what is measured. With io_uring, that is up to 20 KB more: receive
    /// buffers for all clients together, and a piece that is being sent. A record of TLS that has not arrived
    /// completely is kept, and those that arrived with it; once everything is taken, nothing of it is.
    fn bound(self, driver: Driver, secure: bool) -> u64 {
        let own = match (self, secure) {
            (Takes::All, false) => 20,
            (Takes::All, true) => 34,
            (Takes::Nothing, false) => 36,
            (Takes::Nothing, true) => 56,
        };
        if driver == Driver::IoUring { own + 24 } else { own }
    }
}

/// Accepts connections and never reads from them. Kernels buffer megabytes for an unread TCP connection,
/// but little for a connection of this kind.
fn silent(path: &Path) -> OwnedFd {
    let socket = rustix::net::socket(AddressFamily::UNIX, SocketType::STREAM, None);
    let socket = socket.expect("a socket");
    let address = SocketAddrUnix::new(path).expect("a short path");
    rustix::net::bind(&socket, &address).expect("an address");
    std::fs::set_permissions(path, Permissions::from_mode(0o777)).expect("for every user");
    rustix::net::listen(&socket, 4096).expect("a long queue");
    socket
}

/// An upload.
pub enum Upload {
    Plain(TcpStream),
    Tls(Box<TlsClient>),
}

impl Upload {
    /// Connects, and announces this much content.
    pub fn open(server: &Server, config: Option<&Arc<ClientConfig>>, length: usize) -> Upload {
        let stream = TcpStream::connect(server.addr()).expect("a connection");
        let mut upload = match config {
            None => Upload::Plain(stream),
            Some(config) => Upload::Tls(Box::new(TlsClient::over(stream, config, "localhost"))),
        };
        let head = format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n");
        match &mut upload {
            Upload::Plain(stream) => stream.write_all(head.as_bytes()).expect("a head is sent"),
            Upload::Tls(client) => client.send(head),
        }
        upload
    }
}

impl Upload {
    /// Sends as much of `left` bytes as the connection takes; returns how much that is.
    pub fn send(&mut self, left: usize) -> usize {
        let content = &[b'x'; 65536][..left.min(65536)];
        let sent = match self {
            Upload::Plain(stream) => {
                stream.set_nonblocking(true).and_then(|()| stream.write(content))
            }
            Upload::Tls(client) => client.try_send(content),
        };
        match sent {
            Ok(sent) => sent,
            Err(error) if error.kind() == ErrorKind::WouldBlock => 0,
            Err(error) => panic!("content is not taken: {error}"),
        }
    }

    /// Whether there is an answer with status 200; sends what waits here.
    pub fn is_answered(&mut self) -> bool {
        let mut begin = [0; 12];
        let received = match self {
            Upload::Plain(stream) => {
                stream.set_nonblocking(true).and_then(|()| stream.read(&mut begin))
            }
            Upload::Tls(client) => client.try_read(&mut begin),
        };
        match received {
            Ok(count) => {
                assert_eq!(&begin[..count], b"HTTP/1.1 200");
                true
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => false,
            Err(error) => panic!("no answer: {error}"),
        }
    }
}

/// Opens so many uploads; returns when the server takes no more of any of them.
fn uploads(server: &Server, config: Option<&Arc<ClientConfig>>, count: usize) -> Vec<Upload> {
    // The last byte never comes.
    let mut uploads: Vec<_> =
        (0..count).map(|_| Upload::open(server, config, SENT_BYTES + 1)).collect();
    let mut left = vec![SENT_BYTES; count];
    let mut round = || -> usize {
        let all = uploads.iter_mut().zip(&mut left).filter(|(_, left)| **left > 0);
        let sent = all.map(|(upload, left)| {
            let sent = upload.send(*left);
            *left -= sent;
            sent
        });
        sent.sum()
    };
    stopped(server, || while round() > 0 {});
    let mut quiet = 0;
    until("uploads to stop", PATIENCE, || {
        quiet = if round() > 0 { 0 } else { quiet + 1 };
        (quiet == LOOKS).then_some(())
    });
    uploads
}

#[test]
fn uploads_that_are_passed_on_hold_little() {
    if !clients::raise_limit(CLIENTS) {
        return;
    }
    let authority = Authority::new("CA");
    let config = authority.client(None);
    let issued = authority.issue("localhost");
    let willing = Server::of(binary())
        .events("worker_connections 10000;")
        .http(
            "client_max_body_size 0; client_body_timeout 600s;
             lingering_time 600s; lingering_timeout 600s;
             server { listen 127.0.0.1:%%PORT%% backlog=4096;
                 location / { proxy_pass http://127.0.0.1:%%PORT_1%%; proxy_request_buffering off; } }
             server { listen 127.0.0.1:%%PORT_1%% backlog=4096; return 200 OK; }",
        )
        .start();
    let dir = TempDir::new("silent");
    std::fs::set_permissions(dir.path(), Permissions::from_mode(0o777)).expect("for every user");
    let path = dir.path().join("socket");
    let _silent = silent(&path);
    let mut beyond = Vec::new();
    for driver in DRIVERS {
        for (takes, secure) in [
            (Takes::All, false),
            (Takes::All, true),
            (Takes::Nothing, false),
            (Takes::Nothing, true),
        ] {
            let ssl = if secure { "ssl" } else { "" };
            let origin = match takes {
                Takes::All => willing.addr().to_string(),
                Takes::Nothing => format!("unix:{}:", path.display()),
            };
            let server = Server::of(binary())
                .driver(driver)
                .file("c.pem", &issued.chain)
                .file("k.pem", &issued.key)
                .events("worker_connections 10000;")
                .http(&format!(
                    "client_max_body_size 0; client_body_timeout 600s; proxy_send_timeout 600s;
                     lingering_time 600s; lingering_timeout 600s;
                     server {{
                         listen 127.0.0.1:%%PORT%% {ssl} backlog=4096 rcvbuf=64k;
                         ssl_certificate %%DIR%%/c.pem;
                         ssl_certificate_key %%DIR%%/k.pem;
                         location / {{
                             proxy_pass http://{origin};
                             proxy_http_version 1.1;
                             proxy_request_buffering off;
                         }}
                     }}"
                ))
                .start();
            let config = secure.then_some(&config);
            // What is made once is there then.
            drop(uploads(&server, config, 20));
            let before = settled(&server);
            let uploads = uploads(&server, config, CLIENTS);
            let each = settled(&server).saturating_sub(before) / CLIENTS as u64;
            let bound = takes.bound(driver, secure);
            eprintln!("{driver:?} {takes:?} tls={secure}: {:.1} KB", each as f64 / KB as f64);
            if each > bound * KB {
                beyond.push(format!(
                    "{driver:?}, {takes:?}, TLS {secure}: {each} bytes, not {bound} KB"
                ));
            }
            drop(uploads);
        }
    }
    assert!(beyond.is_empty(), "{beyond:#?}");
}
