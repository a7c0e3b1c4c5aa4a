//! The load generator: one thread, one epoll, many connections.
//!
//! It must cost less than the server that it loads, or the server idles and what is measured is
//! the generator. So a response is recognised by its length, which a probe has found out before
//! (see [`crate::probe`]), bodies of large responses are discarded in the kernel, and where every
//! response arrives in one segment a connection is only drained every few responses. The first
//! response of every connection is compared byte by byte.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};

/// Responses up to this size may be left unread for a while.
const LAZY_RESPONSE_BYTES_MAX: u64 = 4096;
/// How many responses may wait unread in a socket.
const LAZY_RESPONSES: u32 = 8;
/// Responses that must have come in one piece each before they are left unread.
const LAZY_AFTER: u64 = 2000;
const BUFFER_BYTES: usize = 1 << 20;
/// Requests up to this size fit into a socket's buffer.
const FITTING_BYTES_MAX: usize = 8 * 1024;
/// Above this the rest of a response is discarded in the kernel.
const DISCARD_BYTES_MIN: u64 = 64 * 1024;
/// Longer bodies are compared by the probe only, which has the time.
const COMPARE_BYTES_MAX: usize = 4 << 20;
/// From one request of a list to the next; prime, so that all come.
const STRIDE: usize = 7919;
const LATENCY_MAX: Duration = Duration::from_secs(60);

/// One kind of response, as the probe saw it.
#[derive(Debug, Clone)]
pub struct Expect {
    /// The head with its empty line.
    pub head: Arc<[u8]>,
    pub body: Arc<[u8]>,
}

impl Expect {
    /// Length of head and body in bytes.
    pub fn total(&self) -> u64 {
        (self.head.len() + self.body.len()) as u64
    }
}

/// Connections that do the same.
#[derive(Debug, Clone)]
pub struct LoadGroup {
    pub connections: usize,
    /// Complete request texts. Each connection sends them in the same scrambled order from a start of its
    /// own, so that with many files no two connections request the same file at about the same time.
    pub requests: Vec<Vec<u8>>,
    /// Every response of the group has this size; the body is that of the first request.
    pub expect: Expect,
    /// A new connection for every request.
    pub close: bool,
}

/// What to run.
pub struct Load<'a> {
    pub target: SocketAddr,
    pub groups: &'a [LoadGroup],
    pub warm_up: Duration,
    pub length: Duration,
}

/// What a group saw in the measured time.
pub struct GroupResult {
    /// Finished responses. Of large ones (see [`GroupResult::requests`]) the bytes tell more.
    pub responses: u64,
    pub bytes: u64,
    pub response_bytes: u64,
    /// Of requests, in the measured time, and of each of them.
    pub uploaded: u64,
    pub request_bytes: u64,
    /// From sending the request to the last byte of the response, in microseconds.
    pub latency: Histogram<u64>,
    /// Connections that the server closed or that failed.
    pub failures: u64,
}

impl GroupResult {
    fn new(group: &LoadGroup) -> GroupResult {
        let micros = LATENCY_MAX.as_micros() as u64;
        GroupResult {
            responses: 0,
            bytes: 0,
            response_bytes: group.expect.total(),
            uploaded: 0,
            request_bytes: group.requests.first().map_or(0, |text| text.len() as u64),
            latency: Histogram::new_with_max(micros, 3).expect("constant bounds are valid"),
            failures: 0,
        }
    }

    /// Requests served, parts of large requests and responses counted too.
    pub fn requests(&self) -> f64 {
        if self.request_bytes >= DISCARD_BYTES_MIN {
            self.uploaded as f64 / self.request_bytes as f64
        } else if self.response_bytes >= DISCARD_BYTES_MIN {
            self.bytes as f64 / self.response_bytes as f64
        } else {
            self.responses as f64
        }
    }

    /// A percentile of the latency.
    pub fn latency_at(&self, percent: f64) -> Duration {
        Duration::from_micros(self.latency.value_at_percentile(percent))
    }

    fn reset(&mut self) {
        (self.responses, self.bytes, self.uploaded, self.failures) = (0, 0, 0, 0);
        self.latency.reset();
    }
}

/// Why a run is worthless.
#[derive(Debug)]
pub enum LoadError {
    /// The response is not the one that the probe saw.
    Response(String),
    /// No progress at all: the server hangs or has died.
    Stalled,
    System(&'static str, Errno),
}

impl std::fmt::Display for LoadError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            LoadError::Response(what) => write!(f, "wrong response: {what}"),
            LoadError::Stalled => write!(f, "no response came"),
            LoadError::System(call, errno) => write!(f, "{call}: {errno}"),
        }
    }
}

/// Runs the load; `edge` is called when the measured time begins and when it ends.
pub fn run(load: &Load<'_>, mut edge: impl FnMut()) -> Result<Vec<GroupResult>, LoadError> {
    let mut run = LoadRun::start(load)?;
    let begin = Instant::now();
    run.until(begin + load.warm_up)?;
    run.seen.iter_mut().for_each(GroupResult::reset);
    edge();
    run.until(Instant::now() + load.length)?;
    edge();
    if run.seen.iter().all(|seen| seen.requests() == 0.0) {
        return Err(LoadError::Stalled);
    }
    Ok(run.seen)
}

/// A connection and where it is in its response.
struct LoadConnection {
    group: usize,
    socket: OwnedFd,
    /// Index of the next request; steps through the group's list.
    next: usize,
    /// The part of the current request that was not sent yet.
    unsent: std::ops::Range<usize>,
    /// Its index.
    current: usize,
    sent: Instant,
    /// Bytes of the current response still to come; 0 while waiting for the end of file.
    remaining: u64,
    /// Responses that have come and were not read.
    unread: u32,
    /// What remains belongs to responses that have been counted already.
    overdue: bool,
    /// Compare the current response byte by byte.
    compare: bool,
}

/// Whether the responses of a group come in one piece and may be left unread.
#[derive(Clone, Copy)]
enum Pieces {
    /// So many did, one after the other.
    One(u64),
    /// They do not, or must not.
    Many,
}

struct LoadRun<'a> {
    load: &'a Load<'a>,
    epoll: OwnedFd,
    connections: Vec<LoadConnection>,
    seen: Vec<GroupResult>,
    pieces: Vec<Pieces>,
    buffer: Vec<u8>,
    /// The time of the current batch of events.
    now: Instant,
}

impl<'a> LoadRun<'a> {
    fn start(load: &'a Load<'a>) -> Result<LoadRun<'a>, LoadError> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)
            .map_err(|errno| LoadError::System("epoll_create", errno))?;
        let mut run = LoadRun {
            load,
            epoll,
            connections: Vec::new(),
            seen: load.groups.iter().map(GroupResult::new).collect(),
            pieces: load.groups.iter().map(initial_pieces).collect(),
            buffer: vec![0; BUFFER_BYTES],
            now: Instant::now(),
        };
        for (index, group) in load.groups.iter().enumerate() {
            for nth in 0..group.connections {
                let socket = open(load.target)?;
                let connection = LoadConnection {
                    group: index,
                    socket,
                    next: first_of(nth, group),
                    unsent: 0..0,
                    current: 0,
                    sent: run.now,
                    remaining: 0,
                    unread: 0,
                    overdue: false,
                    compare: group.requests.len() == 1
                        && group.expect.body.len() <= COMPARE_BYTES_MAX,
                };
                run.connections.push(connection);
                run.register(run.connections.len() - 1)?;
            }
        }
        for index in 0..run.connections.len() {
            run.request(index)?;
        }
        Ok(run)
    }

    fn register(&self, index: usize) -> Result<(), LoadError> {
        let connection = &self.connections[index];
        let mut flags = EventFlags::IN | EventFlags::RDHUP | EventFlags::ET;
        let requests = &self.load.groups[connection.group].requests;
        if requests.iter().any(|text| text.len() > FITTING_BYTES_MAX) {
            flags |= EventFlags::OUT;
        }
        let socket = &connection.socket;
        epoll::add(&self.epoll, socket, EventData::new_u64(index as u64), flags)
            .map_err(|errno| LoadError::System("epoll_ctl", errno))
    }

    /// Serves events until the given time.
    fn until(&mut self, end: Instant) -> Result<(), LoadError> {
        let timeout = rustix::time::Timespec { tv_sec: 0, tv_nsec: 5_000_000 };
        let mut events = Vec::with_capacity(256);
        while self.now < end {
            events.clear();
            let spare = rustix::buffer::spare_capacity(&mut events);
            match epoll::wait(&self.epoll, spare, Some(&timeout)) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(errno) => return Err(LoadError::System("epoll_wait", errno)),
            }
            self.now = Instant::now();
            for event in events.drain(..) {
                let flags = event.flags;
                let hung_up = flags.intersects(EventFlags::RDHUP | EventFlags::ERR);
                let index = event.data.u64() as usize;
                if flags.contains(EventFlags::OUT) {
                    self.send(index);
                    if !hung_up && !flags.contains(EventFlags::IN) {
                        continue;
                    }
                }
                self.ready(index, hung_up)?;
            }
        }
        Ok(())
    }

    /// Sends the next request of a connection.
    fn request(&mut self, index: usize) -> Result<(), LoadError> {
        let connection = &mut self.connections[index];
        let group = &self.load.groups[connection.group];
        let (current, text) = (connection.next, &group.requests[connection.next]);
        connection.next = (connection.next + STRIDE) % group.requests.len();
        connection.sent = self.now;
        if connection.remaining == 0 {
            connection.remaining = group.expect.total();
        }
        (connection.current, connection.unsent) = (current, 0..text.len());
        self.send(index);
        Ok(())
    }

    /// Sends what fits of the rest of a request.
    fn send(&mut self, index: usize) {
        let connection = &mut self.connections[index];
        let text = &self.load.groups[connection.group].requests[connection.current];
        let seen = &mut self.seen[connection.group];
        while !connection.unsent.is_empty() {
            let rest = &text[connection.unsent.clone()];
            let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
            match rustix::net::send(&connection.socket, rest, flags) {
                Ok(sent) => {
                    connection.unsent.start += sent;
                    seen.uploaded += sent as u64;
                }
                Err(Errno::AGAIN) if text.len() > FITTING_BYTES_MAX => return,
                // The server has gone; the end of file that follows opens the connection again.
                Err(_) => {
                    connection.unsent = 0..0;
                    seen.failures += 1;
                }
            }
        }
    }

    fn ready(&mut self, index: usize, hung_up: bool) -> Result<(), LoadError> {
        let connection = &self.connections[index];
        let lazy = matches!(self.pieces[connection.group], Pieces::One(n) if n >= LAZY_AFTER);
        let lazy = lazy || connection.unread > 0;
        // `compare` keeps a new connection out; a part still to come is read before all else.
        let total = self.load.groups[connection.group].expect.total();
        if lazy && !hung_up && !connection.compare && connection.remaining == total {
            self.leave_unread(index)
        } else {
            self.read(index, hung_up)
        }
    }

    /// Takes an event for a whole response; every few of them the socket is drained and the sum
    /// of bytes compared.
    fn leave_unread(&mut self, index: usize) -> Result<(), LoadError> {
        let connection = &mut self.connections[index];
        let total = connection.remaining;
        finished(&mut self.seen[connection.group], self.now - connection.sent, total);
        connection.unread += 1;
        if connection.unread == LAZY_RESPONSES {
            let expected = total * u64::from(LAZY_RESPONSES);
            connection.unread = 0;
            let room = &mut self.buffer[..expected as usize + 1];
            let (read, _) = rustix::net::recv(&connection.socket, room, RecvFlags::DONTWAIT)
                .map_err(|errno| LoadError::System("recv", errno))?;
            if read as u64 > expected {
                let what = format!("{read} bytes instead of {expected} in a row");
                return Err(LoadError::Response(what));
            }
            for at in (0..read).step_by(total as usize) {
                check_status(&self.buffer[at..read])?;
            }
            if (read as u64) < expected {
                // An event was not a whole response: read every one from now on, beginning with
                // what is still to come of those that were counted.
                self.pieces[connection.group] = Pieces::Many;
                connection.remaining = expected - read as u64;
                connection.overdue = true;
                return Ok(());
            }
        }
        self.request(index)
    }

    /// Reads what has come.
    fn read(&mut self, index: usize, hung_up: bool) -> Result<(), LoadError> {
        let unread = std::mem::take(&mut self.connections[index].unread);
        if unread > 0 {
            return Err(LoadError::Response("closed with unread responses".to_owned()));
        }
        loop {
            let connection = &mut self.connections[index];
            let group = &self.load.groups[connection.group];
            let total = group.expect.total();
            let first = connection.remaining == total;
            let discard = !first && !connection.compare && connection.remaining > DISCARD_BYTES_MIN;
            let flags = if discard { RecvFlags::TRUNC } else { RecvFlags::empty() };
            let read = match rustix::net::recv(
                &connection.socket,
                &mut self.buffer[..],
                flags | RecvFlags::DONTWAIT,
            ) {
                // With `TRUNC` the second number is what the kernel took.
                Ok((_, taken)) => taken,
                Err(Errno::AGAIN) => return Ok(()),
                Err(_) => 0,
            };
            if read == 0 {
                return self.closed(index);
            }
            if read as u64 > connection.remaining {
                return Err(LoadError::Response(format!(
                    "{read} bytes, {} expected",
                    connection.remaining
                )));
            }
            if first {
                check_status(&self.buffer[..read])?;
            }
            if connection.compare {
                let at = (total - connection.remaining) as usize;
                compare(&group.expect, at, &self.buffer[..read])?;
            }
            connection.remaining -= read as u64;
            let whole = first && connection.remaining == 0;
            self.pieces[connection.group] = match self.pieces[connection.group] {
                Pieces::One(n) if whole => Pieces::One(n + 1),
                Pieces::One(_) => Pieces::One(0),
                Pieces::Many => Pieces::Many,
            };
            let seen = &mut self.seen[connection.group];
            if connection.remaining == 0 {
                connection.compare = false;
                if std::mem::take(&mut connection.overdue) {
                    return self.request(index);
                }
                finished(seen, self.now - connection.sent, read as u64);
                if !group.close {
                    return self.request(index);
                }
                if hung_up {
                    return self.closed(index);
                }
                return Ok(());
            }
            seen.bytes += read as u64;
            if read < self.buffer.len() {
                // Drained: the next arrival is a new event.
                return Ok(());
            }
        }
    }

    /// The server has closed: opens the connection again.
    fn closed(&mut self, index: usize) -> Result<(), LoadError> {
        let connection = &mut self.connections[index];
        if !self.load.groups[connection.group].close || connection.remaining > 0 {
            self.seen[connection.group].failures += 1;
        }
        connection.remaining = 0;
        connection.overdue = false;
        connection.compare = false;
        connection.socket = open(self.load.target)?;
        self.register(index)?;
        self.request(index)
    }
}

/// The first request of the `nth` connection: what a walk from 0 reaches after its share of the list.
fn first_of(nth: usize, group: &LoadGroup) -> usize {
    let len = group.requests.len();
    nth * len / group.connections * STRIDE % len
}

fn initial_pieces(group: &LoadGroup) -> Pieces {
    let may = !group.close && group.expect.total() <= LAZY_RESPONSE_BYTES_MAX;
    if may { Pieces::One(0) } else { Pieces::Many }
}

/// A connected socket. Loopback answers within the call.
pub fn open(target: SocketAddr) -> Result<OwnedFd, LoadError> {
    let family = if target.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = rustix::net::socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None)
        .map_err(|errno| LoadError::System("socket", errno))?;
    rustix::net::connect(&socket, &target).map_err(|errno| LoadError::System("connect", errno))?;
    Ok(socket)
}

fn finished(seen: &mut GroupResult, took: Duration, bytes: u64) {
    seen.responses += 1;
    seen.bytes += bytes;
    let micros = took.min(LATENCY_MAX).as_micros() as u64;
    seen.latency.saturating_record(micros);
}

/// The response must begin with the status line of success.
fn check_status(bytes: &[u8]) -> Result<(), LoadError> {
    let line = bytes.split(|byte| *byte == b'\r').next().unwrap_or_default();
    if line.starts_with(b"HTTP/1.1 200") || b"HTTP/1.1 200".starts_with(line) {
        return Ok(());
    }
    Err(LoadError::Response(String::from_utf8_lossy(line).into_owned()))
}

/// Compares the part of a response that starts at byte `at` with the expected body.
fn compare(expect: &Expect, at: usize, bytes: &[u8]) -> Result<(), LoadError> {
    let head_left = expect.head.len().saturating_sub(at).min(bytes.len());
    let body_at = (at + head_left) - expect.head.len().min(at + head_left);
    let body = &bytes[head_left..];
    if body.is_empty() || expect.body[body_at..].starts_with(body) {
        return Ok(());
    }
    Err(LoadError::Response(format!(
        "the body differs in bytes {body_at}..{}",
        body_at + body.len()
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_are_compared_across_pieces() {
        let expect = Expect { head: Arc::from(*b"head"), body: Arc::from(*b"body") };
        let response = b"headbody";
        for split in 0..response.len() {
            let (left, right) = response.split_at(split);
            assert!(compare(&expect, 0, left).is_ok());
            assert!(compare(&expect, split, right).is_ok());
        }
        assert!(compare(&expect, 0, b"headbodx").is_err());
        assert!(compare(&expect, 6, b"xy").is_err());
    }

    #[test]
    fn connections_walk_through_all_requests_and_begin_apart() {
        let expect = Expect { head: Arc::from(*b"head"), body: Arc::from(*b"body") };
        for (connections, requests) in [(64, 10_000), (200, 300), (64, 1), (3, 2)] {
            let requests = vec![Vec::new(); requests];
            let group = LoadGroup { connections, requests, expect: expect.clone(), close: false };
            let len = group.requests.len();
            let walk: Vec<usize> = (0..len).map(|step| step * STRIDE % len).collect();
            let all: std::collections::BTreeSet<_> = walk.iter().collect();
            assert_eq!(all.len(), len);
            let share = len / connections;
            for nth in 0..connections {
                let step = walk.iter().position(|index| *index == first_of(nth, &group));
                assert!(step.is_some_and(|step| step.abs_diff(nth * share) <= nth));
            }
        }
    }

    #[test]
    fn only_success_passes() {
        assert!(check_status(b"HTTP/1.1 200 OK\r\nServer").is_ok());
        assert!(check_status(b"HTTP/1").is_ok());
        assert!(check_status(b"HTTP/1.1 500 Internal\r\n").is_err());
    }
}
