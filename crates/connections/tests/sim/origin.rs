//! The scripted origin: a request's URI says how it is answered.
//!
//! `/KIND/MANNER/LENGTH/ID`: the kind belongs to the proxy; manner, length and ID to the origin.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use nowait_runtime::net::{Listener, ListenerOptions, SendOptions, Stream};
use nowait_runtime::pool::Pool;
use nowait_runtime::{JoinHandle, sim, sleep, spawn};

use super::origin_gateway::{self, Protocol};
use super::origin_http2;
use super::site::content;
use super::tls;
use super::wire::{PATIENCE, Reader, field};

/// The addresses of the upstream servers.
pub const ADDRESSES: [SocketAddr; 2] = [
    SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::new(198, 51, 100, 1)), 81),
    SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::new(198, 51, 100, 2)), 82),
];

/// The address of the same server with TLS.
pub fn secure(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip(), address.port() + 400)
}

/// How the origin answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manner {
    /// With a `Content-Length`.
    Plain,
    /// In chunks.
    Chunked,
    /// The end of the connection ends the body.
    Close,
    /// In pieces, seconds apart.
    Slow,
    /// With the body of the request.
    Echo,
    /// Over HTTP/2 before it has the request's body, the rest of which it does not want.
    Early,
    /// With status 503.
    Error,
    /// The first attempt is reset without an answer.
    Flaky,
    /// With less than announced, then closes.
    Truncated,
    /// Never.
    Hang,
    /// With something that is no response.
    Garbage,
}

impl Manner {
    pub const ALL: [(Manner, &'static str); 11] = [
        (Manner::Plain, "plain"),
        (Manner::Chunked, "chunked"),
        (Manner::Close, "close"),
        (Manner::Slow, "slow"),
        (Manner::Echo, "echo"),
        (Manner::Early, "early"),
        (Manner::Error, "error"),
        (Manner::Flaky, "flaky"),
        (Manner::Truncated, "truncated"),
        (Manner::Hang, "hang"),
        (Manner::Garbage, "garbage"),
    ];

    /// Whether memcached can answer so: it has neither contents of requests nor statuses.
    pub fn suits_values(self) -> bool {
        !matches!(self, Manner::Echo | Manner::Early | Manner::Error)
    }

    fn named(name: &str) -> Option<Manner> {
        Manner::ALL.iter().find(|(_, known)| *known == name).map(|(manner, _)| *manner)
    }
}

/// The body of a request's response.
pub fn body(id: &str, len: usize) -> Vec<u8> {
    content(id, 0, len)
}

thread_local! {
    static DEPARTURES: Cell<u64> = const { Cell::new(0) };
    static SECURED: Cell<u64> = const { Cell::new(0) };
}

/// The number of connections of the proxy with TLS.
pub fn secured() -> u64 {
    SECURED.get()
}

/// How often an origin has ended a connection that others use, too.
pub fn departures() -> u64 {
    DEPARTURES.get()
}

/// An origin ends a connection that others use, too.
pub fn note_departure() {
    DEPARTURES.set(departures() + 1);
}

/// What the servers remember.
#[derive(Default)]
pub struct Memory {
    /// Attempts so far, by ID.
    attempts: RefCell<HashMap<String, u32>>,
}

impl Memory {
    /// The number of this attempt.
    pub fn attempt(&self, id: &str) -> u32 {
        let mut attempts = self.attempts.borrow_mut();
        let attempt = attempts.entry(id.to_owned()).or_default();
        *attempt += 1;
        *attempt
    }
}

/// What a request's URI asks for.
pub struct Asked {
    pub manner: Manner,
    pub len: usize,
    pub id: String,
}

impl Asked {
    pub fn parse(target: &str) -> Option<Asked> {
        let mut parts = target.trim_start_matches('/').split('/').skip(1);
        let manner = parts.next().and_then(Manner::named)?;
        let len = parts.next().and_then(|len| len.parse().ok()).unwrap_or(0);
        Some(Asked { manner, len, id: parts.next().unwrap_or_default().to_owned() })
    }
}

/// What a server speaks.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Speaks {
    Http,
    Https,
    Gateway(Protocol),
}

/// Starts both servers, for all protocols. The threads are those for handshakes.
pub fn start(pool: &Pool) -> Vec<JoinHandle<()>> {
    let (memory, tls) = (Rc::<Memory>::default(), tls::server());
    let mut origins = Vec::new();
    let mut listen = |address: SocketAddr, speaks: Speaks| {
        let fd = match speaks {
            Speaks::Https => sim::listen_encrypted(address).unwrap(),
            Speaks::Http | Speaks::Gateway(_) => sim::listen(address).unwrap(),
        };
        let options = ListenerOptions { id: 100 + origins.len() as u64, shared: false };
        let listener = Listener::from_fd(fd, options).unwrap();
        let (memory, tls, pool) = (memory.clone(), tls.clone(), pool.clone());
        origins.push(spawn(async move {
            while let Ok(accepted) = listener.accept().await {
                let (memory, tls, pool) = (memory.clone(), tls.clone(), pool.clone());
                drop(spawn(async move {
                    let stream = accepted.stream;
                    // The proxy may close at any time.
                    let _ = match speaks {
                        Speaks::Http => serve(stream, memory).await,
                        Speaks::Https if tls::accept(&stream, &tls, pool).await => {
                            SECURED.set(secured() + 1);
                            serve(stream, memory).await
                        }
                        Speaks::Https => Ok(()),
                        Speaks::Gateway(protocol) => {
                            origin_gateway::serve(protocol, stream, memory).await
                        }
                    };
                }));
            }
        }));
    };
    for address in ADDRESSES {
        listen(address, Speaks::Http);
        listen(secure(address), Speaks::Https);
        for (protocol, _) in Protocol::ALL {
            listen(protocol.beside(address), Speaks::Gateway(protocol));
        }
    }
    origins
}

async fn serve(stream: Stream, memory: Rc<Memory>) -> io::Result<()> {
    let mut reader = Reader::new(Rc::new(stream));
    loop {
        let Ok(head) = reader.head().await else { return Ok(()) };
        if head.starts_with("PRI ") {
            let (stream, rest) = reader.into_parts();
            origin_http2::serve(stream, [head.as_bytes(), &rest].concat(), memory).await;
            return Ok(());
        }
        let target = head.split(' ').nth(1).unwrap_or_default().to_owned();
        let Some(Asked { manner, len, id }) = Asked::parse(&target) else { return Ok(()) };
        sim::note(format_args!("origin: {target}"));
        let attempt = memory.attempt(&id);
        let Ok(request) = reader.body(&head, false).await else { return Ok(()) };
        let keeps = !head.to_ascii_lowercase().contains("\r\nconnection: close")
            && head.lines().next().is_some_and(|line| line.ends_with("HTTP/1.1"));
        let full = body(&id, len);
        let stream = reader.stream();
        if sim::random(3) == 0 {
            sleep(Duration::from_millis(sim::random(500))).await;
        }
        let ok = |fields: String| format!("HTTP/1.1 200 OK\r\n{fields}\r\n");
        match manner {
            Manner::Plain | Manner::Early | Manner::Flaky
                if manner != Manner::Flaky || attempt > 1 =>
            {
                send(stream, ok(format!("Content-Length: {len}\r\n")), full, false).await?;
            }
            Manner::Slow => {
                send(stream, ok(format!("Content-Length: {len}\r\n")), full, true).await?;
            }
            Manner::Echo => {
                let len = request.len();
                send(stream, ok(format!("Content-Length: {len}\r\n")), request, false).await?;
            }
            Manner::Error => {
                let head = format!("HTTP/1.1 503 Busy\r\nContent-Length: {len}\r\n\r\n");
                send(stream, head, full, false).await?;
            }
            Manner::Chunked => {
                let mut chunks = Vec::new();
                for chunk in full.chunks(1 + sim::random(5000) as usize) {
                    chunks.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
                    chunks.extend_from_slice(chunk);
                    chunks.extend_from_slice(b"\r\n");
                }
                chunks.extend_from_slice(b"0\r\n\r\n");
                let head = ok("Transfer-Encoding: chunked\r\n".to_owned());
                send(stream, head, chunks, false).await?;
            }
            Manner::Close => {
                send(stream, ok("Connection: close\r\n".to_owned()), full, false).await?;
                return stream.shutdown_write().map(drop);
            }
            Manner::Truncated => {
                let head = ok(format!("Content-Length: {}\r\n", len + 1));
                send(stream, head, full, false).await?;
                return stream.shutdown_write().map(drop);
            }
            Manner::Hang => {
                while !stream.recv(PATIENCE).await?.is_empty() {}
                return Ok(());
            }
            Manner::Garbage => {
                send(stream, "what?\r\n\r\n".to_owned(), Vec::new(), false).await?;
                return stream.shutdown_write().map(drop);
            }
            Manner::Plain | Manner::Early | Manner::Flaky => return stream.set_reset_on_close(),
        }
        if !keeps || field(&head, "connection").is_some_and(|value| value == "close") {
            return Ok(());
        }
    }
}

async fn send(stream: &Stream, head: String, body: Vec<u8>, slow: bool) -> io::Result<()> {
    let mut all = head.into_bytes();
    all.extend_from_slice(&body);
    let mut all = Bytes::from(all);
    let pieces = if slow { 4 } else { 1 };
    for left in (1..=pieces).rev() {
        let piece = all.split_to(all.len() / left);
        stream.send(piece, SendOptions::new(PATIENCE)).await?;
        if left > 1 {
            sleep(Duration::from_millis(sim::random(3000))).await;
        }
    }
    Ok(())
}
