//! The load generator of encrypted connections: one thread, one epoll, HTTP/1.1 or HTTP/2.
//!
//! Like [`crate::load`] it must cost less than the server, though it decrypts as much: so of each response,
//! only status and length are looked at.

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::fd::OwnedFd;
use rustls::{ClientConfig, ClientConnection};

use crate::{h2, probe, tls};

const BUFFER_BYTES: usize = 256 * 1024;
/// A server that answers nothing for so long has failed.
const STALLED: Duration = Duration::from_secs(30);

/// What clients speak.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// HTTP/1.1 over TLS.
    Https,
    /// HTTP/2 over TLS.
    Http2,
}

/// What to run.
pub struct EncryptedLoad<'a> {
    pub target: SocketAddr,
    pub protocol: Protocol,
    pub path: &'a str,
    /// Of every response.
    pub body_bytes: u64,
    pub connections: usize,
    /// Requests at a time on each connection; 1 with HTTP/1.1.
    pub streams: usize,
}

/// Runs a load for some time, and returns the number of responses in it; `edge` is called when that time
/// begins and when it ends.
///
/// # Errors
/// A response that is not the expected one, a connection that ends, or a server that stalls.
pub fn run(
    load: &EncryptedLoad<'_>,
    warm_up: Duration,
    length: Duration,
    mut edge: impl FnMut(),
) -> Result<u64, String> {
    let texts = Texts::new(load);
    let mut run = EncryptedRun::start(load, &texts)?;
    let end = Instant::now() + warm_up;
    run.until(|run| run.now >= end)?;
    edge();
    let (before, end) = (run.complete, Instant::now() + length);
    run.until(|run| run.now >= end)?;
    edge();
    Ok(run.complete - before)
}

/// Sends exactly so many requests, and returns when they are answered.
///
/// # Errors
/// Those of [`run`].
pub fn requests(load: &EncryptedLoad<'_>, count: u64) -> Result<(), String> {
    let texts = Texts::new(load);
    let mut run = EncryptedRun::start_with(load, &texts, count)?;
    run.until(|run| run.complete == count)
}

/// Makes one request on a new connection; a response that takes longer than the limit is given up. Returns the time
/// from the request to the last byte, without the handshake, and the bytes of content that have come by then.
///
/// # Errors
/// Those of [`run`].
pub fn transfer(load: &EncryptedLoad<'_>, limit: Duration) -> Result<(Duration, u64), String> {
    let texts = Texts::new(load);
    let mut run = EncryptedRun::start_with(load, &texts, 0)?;
    let begin = Instant::now();
    run.unsent = 1;
    run.request(0);
    run.send(0).map_err(|error| format!("sending: {error}"))?;
    run.until(|run| run.complete == 1 || run.now >= begin + limit)?;
    let bytes = match (run.complete, &run.connections[0].codec) {
        (1, _) => load.body_bytes,
        (_, Codec::Http1(http1)) => http1.come,
        (_, Codec::Http2(http2)) => http2.come(),
    };
    Ok((begin.elapsed(), bytes))
}

/// The requests.
struct Texts {
    http1: Vec<u8>,
    http2: h2::RequestFields,
}

impl Texts {
    fn new(load: &EncryptedLoad<'_>) -> Texts {
        Texts {
            http1: probe::request(load.path, false),
            http2: h2::RequestFields::new(&load.target.to_string(), load.path, "nowait-bench"),
        }
    }
}

/// Where a connection is in its responses.
enum Codec<'a> {
    Http1(Http1<'a>),
    Http2(h2::Http2Connection<'a>),
}

struct EncryptedConnection<'a> {
    socket: TcpStream,
    tls: ClientConnection,
    codec: Codec<'a>,
}

struct EncryptedRun<'a> {
    epoll: OwnedFd,
    connections: Vec<EncryptedConnection<'a>>,
    /// Requests that may still be sent, and responses.
    unsent: u64,
    complete: u64,
    now: Instant,
    encrypted: Vec<u8>,
    plain: Vec<u8>,
    out: Vec<u8>,
}

impl<'a> EncryptedRun<'a> {
    fn start(load: &EncryptedLoad<'_>, texts: &'a Texts) -> Result<EncryptedRun<'a>, String> {
        EncryptedRun::start_with(load, texts, u64::MAX)
    }

    fn start_with(
        load: &EncryptedLoad<'_>,
        texts: &'a Texts,
        count: u64,
    ) -> Result<EncryptedRun<'a>, String> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(|e| e.to_string())?;
        let mut config = Arc::unwrap_or_clone(tls::client(false));
        config.alpn_protocols = match load.protocol {
            Protocol::Https => vec![b"http/1.1".to_vec()],
            Protocol::Http2 => vec![b"h2".to_vec()],
        };
        let mut run = EncryptedRun {
            epoll,
            connections: Vec::new(),
            unsent: count,
            complete: 0,
            now: Instant::now(),
            encrypted: vec![0; BUFFER_BYTES],
            plain: vec![0; BUFFER_BYTES],
            out: Vec::new(),
        };
        let config = Arc::new(config);
        for _ in 0..load.connections {
            run.connect(load, texts, &config).map_err(|error| format!("connecting: {error}"))?;
        }
        for index in 0..load.connections {
            for _ in 0..load.streams {
                run.request(index);
            }
            run.send(index).map_err(|error| format!("sending: {error}"))?;
        }
        Ok(run)
    }

    fn connect(
        &mut self,
        load: &EncryptedLoad<'_>,
        texts: &'a Texts,
        config: &Arc<ClientConfig>,
    ) -> io::Result<()> {
        let (socket, tls) = tls::TlsConnection::open(load.target, config)?.into_parts();
        let expected = &config.alpn_protocols[0];
        if tls.alpn_protocol() != Some(expected) {
            return Err(io::Error::other("the server does not speak the protocol"));
        }
        socket.set_nonblocking(true)?;
        let data = EventData::new_u64(self.connections.len() as u64);
        epoll::add(&self.epoll, &socket, data, EventFlags::IN | EventFlags::ET)?;
        let codec = match load.protocol {
            Protocol::Https => Codec::Http1(Http1::new(&texts.http1, load.body_bytes)),
            Protocol::Http2 => {
                Codec::Http2(h2::Http2Connection::new(&texts.http2, load.body_bytes, &mut self.out))
            }
        };
        self.connections.push(EncryptedConnection { socket, tls, codec });
        let index = self.connections.len() - 1;
        self.send(index)?;
        // What followed the handshake may have been read with it.
        self.received(index, 0).map_err(io::Error::other)
    }

    /// Serves events until a condition holds.
    fn until(&mut self, ends: impl Fn(&EncryptedRun<'_>) -> bool) -> Result<(), String> {
        let timeout = rustix::time::Timespec { tv_sec: 0, tv_nsec: 5_000_000 };
        let mut events = Vec::with_capacity(256);
        let (mut complete, mut progress) = (self.complete, Instant::now());
        while !ends(self) {
            events.clear();
            match epoll::wait(
                &self.epoll,
                rustix::buffer::spare_capacity(&mut events),
                Some(&timeout),
            ) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(format!("epoll_wait: {error}")),
            }
            self.now = Instant::now();
            for event in events.drain(..) {
                self.ready(event.data.u64() as usize)?;
            }
            if self.complete > complete {
                (complete, progress) = (self.complete, self.now);
            } else if self.now - progress > STALLED {
                return Err("no response came".to_owned());
            }
        }
        Ok(())
    }

    /// Reads what has come, and asks again.
    fn ready(&mut self, index: usize) -> Result<(), String> {
        loop {
            let mut socket = &self.connections[index].socket;
            let read = match socket.read(&mut self.encrypted) {
                Ok(0) => return Err("the server has closed a connection".to_owned()),
                Ok(read) => read,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(format!("reading: {error}")),
            };
            self.received(index, read)?;
            self.send(index).map_err(|error| format!("sending: {error}"))?;
            if read < self.encrypted.len() {
                // Drained: the next arrival is a new event.
                return Ok(());
            }
        }
    }

    /// Decrypts, counts the responses, and writes a request for each.
    fn received(&mut self, index: usize, read: usize) -> Result<(), String> {
        let mut encrypted = &self.encrypted[..read];
        let mut answered = 0;
        loop {
            let EncryptedConnection { tls, codec, .. } = &mut self.connections[index];
            if !encrypted.is_empty() {
                tls.read_tls(&mut encrypted).map_err(|error| error.to_string())?;
            }
            let state = tls.process_new_packets().map_err(|error| error.to_string())?;
            let mut left = state.plaintext_bytes_to_read();
            while left > 0 {
                let plain =
                    tls.reader().read(&mut self.plain).map_err(|error| error.to_string())?;
                left -= plain;
                answered += match codec {
                    Codec::Http1(http1) => http1.receive(&self.plain[..plain])?,
                    Codec::Http2(http2) => http2.receive(&self.plain[..plain], &mut self.out)?,
                };
            }
            if encrypted.is_empty() {
                break;
            }
        }
        self.complete += answered;
        for _ in 0..answered {
            self.request(index);
        }
        Ok(())
    }

    /// Writes a request, if there may be another one.
    fn request(&mut self, index: usize) {
        if self.unsent == 0 {
            return;
        }
        self.unsent -= 1;
        match &mut self.connections[index].codec {
            Codec::Http1(http1) => self.out.extend(http1.text),
            Codec::Http2(http2) => http2.send(&mut self.out),
        }
    }

    /// Encrypts and sends what was written.
    fn send(&mut self, index: usize) -> io::Result<()> {
        let EncryptedConnection { socket, tls, .. } = &mut self.connections[index];
        if !self.out.is_empty() {
            tls.writer().write_all(&self.out)?;
            self.out.clear();
        }
        while tls.wants_write() {
            // Requests are small, and the peer reads: there is room.
            tls.write_tls(socket)?;
        }
        Ok(())
    }
}

/// One request at a time on a connection.
struct Http1<'a> {
    text: &'a [u8],
    body_bytes: u64,
    /// The head of the first response; all have this length.
    head: Vec<u8>,
    head_bytes: Option<u64>,
    /// Bytes of the current response that have come.
    come: u64,
}

impl<'a> Http1<'a> {
    fn new(text: &'a [u8], body_bytes: u64) -> Http1<'a> {
        Http1 { text, body_bytes, head: Vec::new(), head_bytes: None, come: 0 }
    }

    /// Takes what has come; returns how many responses are complete.
    fn receive(&mut self, bytes: &[u8]) -> Result<u64, String> {
        const STATUS: &[u8] = b"HTTP/1.1 200";
        if self.come == 0 && !bytes.starts_with(STATUS) && !STATUS.starts_with(bytes) {
            let line = bytes.split(|byte| *byte == b'\r').next().unwrap_or_default();
            return Err(format!("wrong response: {}", String::from_utf8_lossy(line)));
        }
        self.come += bytes.len() as u64;
        let head_bytes = match self.head_bytes {
            Some(head_bytes) => head_bytes,
            None => {
                self.head.extend(bytes);
                let end = self.head.windows(4).position(|part| part == b"\r\n\r\n");
                let Some(end) = end else { return Ok(0) };
                self.head = Vec::new();
                *self.head_bytes.insert(end as u64 + 4)
            }
        };
        let total = head_bytes + self.body_bytes;
        match self.come.cmp(&total) {
            std::cmp::Ordering::Less => Ok(0),
            std::cmp::Ordering::Equal => {
                self.come = 0;
                Ok(1)
            }
            std::cmp::Ordering::Greater => Err(format!("{} bytes, {total} expected", self.come)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn responses_are_told_apart_by_their_length() {
        let response = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nOK";
        for step in 1..=response.len() {
            let mut http1 = Http1::new(b"", 2);
            for _ in 0..3 {
                let complete: u64 =
                    response.chunks(step).map(|part| http1.receive(part).unwrap()).sum();
                assert_eq!(complete, 1);
            }
            assert!(http1.receive(b"HTTP/1.1 500 Error\r\n").is_err());
        }
        let mut http1 = Http1::new(b"", 2);
        assert!(http1.receive(b"HTTP/1.1 200 OK\r\n\r\nOK!").is_err());
    }
}
