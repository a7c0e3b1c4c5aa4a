//! Very many uploads at once with little memory: plain and over TLS, buffered and passed on as they arrive,
//! to an origin that reads slowly. Each sends a little and waits; then all go on in one turn of the server's
//! event loop. All of them are answered.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use nowait_testkit::wait::until;
use nowait_testkit::{Cgroup, Driver, Server};
use rustls::ClientConfig;

use super::slow_origins::Upload;
use super::slow_readers::stopped;
use super::slow_readers::tls_client::Authority;
use super::{DRIVERS, MB, PATIENCE, binary, clients, processes, settled};

/// The master, the process that writes logs, and the one that serves.
const PROCESSES: usize = 3;

/// 95 KB for each. The most is taken over TLS with buffering: 50 KB by the server (the session, the buffer of the
/// content, a record), 10 KB by its kernel, and pages of files in the queues of connections to the origin.
const CLIENTS: usize = 600;
const LIMIT: u64 = 56 * MB;

/// Content of an upload: more than all buffers on the way.
const UPLOAD_BYTES: usize = 100_000;

/// What comes before a client waits.
const BEGIN_BYTES: usize = 1000;

/// What the origin reads of a connection at a time, and how long it rests then.
const READ_BYTES: usize = 4096;
const REST: Duration = Duration::from_millis(5);

/// A connection to the origin.
struct Inbound {
    stream: TcpStream,
    received: usize,
    /// Bytes of the head, once it has ended.
    head: Option<usize>,
    begin: Vec<u8>,
}

impl Inbound {
    /// Reads a little. False: it was answered, or the server has left.
    fn read(&mut self) -> bool {
        let mut piece = [0; READ_BYTES];
        let count = match self.stream.read(&mut piece) {
            Ok(count @ 1..) => count,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return true,
            _ => return false,
        };
        self.received += count;
        if self.head.is_none() {
            self.begin.extend_from_slice(&piece[..count]);
            let end = self.begin.windows(4).position(|four| four == b"\r\n\r\n");
            self.head = end.map(|end| end + 4);
        }
        if self.head.is_none_or(|head| self.received < head + UPLOAD_BYTES) {
            return true;
        }
        let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
        // The server may have left.
        let _ = self.stream.write_all(answer);
        false
    }
}

/// An origin that reads slowly; it runs until `over`.
fn slow_origin(over: Arc<AtomicBool>) -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a loopback port");
    rustix::net::listen(&listener, 4096).expect("a long queue");
    listener.set_nonblocking(true).expect("an option");
    let address = listener.local_addr().expect("its address");
    std::thread::spawn(move || {
        let mut all = Vec::new();
        while !over.load(Ordering::Relaxed) {
            while let Ok((stream, _)) = listener.accept() {
                stream.set_nonblocking(true).expect("an option");
                all.push(Inbound { stream, received: 0, head: None, begin: Vec::new() });
            }
            all.retain_mut(Inbound::read);
            std::thread::sleep(REST);
        }
    });
    address
}

fn server(
    authority: &Authority,
    driver: Driver,
    secure: bool,
    buffers: bool,
    origin: SocketAddr,
) -> Server {
    let issued = authority.issue("localhost");
    let ssl = if secure { "ssl" } else { "" };
    let buffering = if buffers { "on" } else { "off" };
    Server::of(binary())
        .driver(driver)
        .file("c.pem", &issued.chain)
        .file("k.pem", &issued.key)
        .main("worker_rlimit_nofile 20000;")
        .events("worker_connections 10000;")
        .http(&format!(
            "client_body_timeout 600s; proxy_send_timeout 600s; proxy_read_timeout 600s;
             server {{
                 listen 127.0.0.1:%%PORT%% {ssl} backlog=4096;
                 ssl_certificate %%DIR%%/c.pem;
                 ssl_certificate_key %%DIR%%/k.pem;
                 location / {{
                     proxy_pass http://{origin};
                     proxy_http_version 1.1;
                     proxy_request_buffering {buffering};
                 }}
             }}"
        ))
        .allow_log("is buffered to a temporary file")
        .allow_log("setrlimit(RLIMIT_NOFILE")
        .start()
}

/// All upload, and are answered.
fn upload(server: &Server, config: Option<&Arc<ClientConfig>>) {
    let mut uploads: Vec<_> =
        (0..CLIENTS).map(|_| Upload::open(server, config, UPLOAD_BYTES)).collect();
    let mut left = vec![BEGIN_BYTES; CLIENTS];
    let round = |uploads: &mut Vec<Upload>, left: &mut Vec<usize>| {
        for (upload, left) in uploads.iter_mut().zip(left).filter(|(_, left)| **left > 0) {
            *left -= upload.send(*left);
        }
    };
    until("all to have begun", PATIENCE, || {
        round(&mut uploads, &mut left);
        left.iter().all(|left| *left == 0).then_some(())
    });
    settled(server);
    left = vec![UPLOAD_BYTES - BEGIN_BYTES; CLIENTS];
    stopped(server, || (0..4).for_each(|_| round(&mut uploads, &mut left)));
    let mut answered = vec![false; CLIENTS];
    until("all to be answered", PATIENCE, || {
        round(&mut uploads, &mut left);
        for (upload, answered) in uploads.iter_mut().zip(&mut answered) {
            *answered = *answered || upload.is_answered();
        }
        answered.iter().all(|answered| *answered).then_some(())
    });
}

#[test]
fn many_uploads_are_answered_with_little_memory() {
    if !clients::raise_limit(CLIENTS) {
        return;
    }
    let over = Arc::new(AtomicBool::new(false));
    let origin = slow_origin(over.clone());
    let authority = Authority::new("CA");
    let config = authority.client(None);
    for driver in DRIVERS {
        for (secure, buffers) in [(false, true), (false, false), (true, true), (true, false)] {
            let Some(cgroup) = Cgroup::make(LIMIT) else { return };
            eprintln!("{driver:?}, TLS {secure}, buffered {buffers}");
            let server = server(&authority, driver, secure, buffers, origin);
            // The process that serves may begin to run after the port is open.
            let all = until("three processes to run", PATIENCE, || {
                let all = processes(&server);
                (all.len() == PROCESSES).then_some(all)
            });
            all.iter().for_each(|pid| cgroup.take_in(*pid));
            upload(&server, secure.then_some(&config));
            assert_eq!(processes(&server), all, "{driver:?}: a process was killed");
            drop(server);
        }
    }
    over.store(true, Ordering::Relaxed);
}
