//! A DNS server scripted by a closure, on the same port for UDP and TCP; and functions to build its
//! messages.
//!
//! The messages are encoded by hand and not with the library that the product uses, so that they
//! can be malformed on purpose.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::wait::PATIENCE;

/// Record types.
pub const A: u16 = 1;
/// A canonical name.
pub const CNAME: u16 = 5;
/// Start of authority: how long negative responses are valid.
pub const SOA: u16 = 6;
/// An IPv6 address.
pub const AAAA: u16 = 28;
/// A service record.
pub const SRV: u16 = 33;

/// The server has failed.
pub const SERVFAIL: u8 = 2;
/// No such name.
pub const NXDOMAIN: u8 = 3;

/// How often the server checks whether to stop.
const TICK: Duration = Duration::from_millis(20);

/// Number of attempts to find a port that is free for both protocols.
const PORT_TRIES: usize = 50;

/// A received query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Query {
    /// As written in the query, without the final dot.
    pub name: String,
    /// One of the record types.
    pub kind: u16,
    /// The message's id.
    pub id: u16,
    /// Received by TCP.
    pub tcp: bool,
    /// Number of earlier queries for the same name and type.
    pub number: usize,
    /// The question section.
    question: Vec<u8>,
}

impl Query {
    /// Parses a query.
    ///
    /// # Panics
    /// If it is malformed.
    pub fn parse(message: &[u8], tcp: bool) -> Query {
        let mut labels = Vec::new();
        let mut at = 12;
        while message[at] != 0 {
            let end = at + 1 + usize::from(message[at]);
            labels.push(String::from_utf8_lossy(&message[at + 1..end]).into_owned());
            at = end;
        }
        let end = at + 5;
        Query {
            name: labels.join("."),
            kind: u16::from_be_bytes([message[at + 1], message[at + 2]]),
            id: u16::from_be_bytes([message[0], message[1]]),
            tcp,
            number: 0,
            question: message[12..end].to_vec(),
        }
    }
}

/// A response, built step by step.
#[derive(Clone, Debug)]
pub struct DnsAnswer {
    code: u8,
    flags: u16,
    id_offset: u16,
    question: Option<(String, u16)>,
    answers: Vec<Vec<u8>>,
    authority: Vec<Vec<u8>>,
    raw: Option<Vec<u8>>,
    silent: bool,
}

impl Default for DnsAnswer {
    fn default() -> DnsAnswer {
        DnsAnswer::new()
    }
}

impl DnsAnswer {
    /// A successful response without records.
    pub fn new() -> DnsAnswer {
        DnsAnswer {
            code: 0,
            flags: 0x8180,
            id_offset: 0,
            question: None,
            answers: Vec::new(),
            authority: Vec::new(),
            raw: None,
            silent: false,
        }
    }

    /// No response at all.
    pub fn silence() -> DnsAnswer {
        DnsAnswer { silent: true, ..DnsAnswer::new() }
    }

    /// A response of exactly these bytes.
    pub fn raw(bytes: &[u8]) -> DnsAnswer {
        DnsAnswer { raw: Some(bytes.to_vec()), ..DnsAnswer::new() }
    }

    /// This response code, without records.
    pub fn failure(code: u8) -> DnsAnswer {
        DnsAnswer { code, ..DnsAnswer::new() }
    }

    /// One address.
    pub fn address(name: &str, ttl: u32, address: &str) -> DnsAnswer {
        DnsAnswer::new().with_address(name, ttl, address)
    }

    /// Uses the id of another query.
    #[must_use]
    pub fn with_wrong_id(mut self) -> DnsAnswer {
        self.id_offset = 1;
        self
    }

    /// Uses the question of another query.
    #[must_use]
    pub fn with_question(mut self, name: &str, kind: u16) -> DnsAnswer {
        self.question = Some((name.to_owned(), kind));
        self
    }

    /// Sets these additional flags: 0x200 is "truncated".
    #[must_use]
    pub fn with_flags(mut self, flags: u16) -> DnsAnswer {
        self.flags ^= flags;
        self
    }

    /// Adds an A or AAAA record.
    #[must_use]
    pub fn with_address(self, name: &str, ttl: u32, address: &str) -> DnsAnswer {
        match address.parse().expect("an address") {
            IpAddr::V4(ip) => self.with_record(name, A, ttl, &ip.octets()),
            IpAddr::V6(ip) => self.with_record(name, AAAA, ttl, &ip.octets()),
        }
    }

    /// Adds an alias.
    #[must_use]
    pub fn with_cname(self, name: &str, ttl: u32, target: &str) -> DnsAnswer {
        self.with_record(name, CNAME, ttl, &wire(target))
    }

    /// Adds a service record.
    #[must_use]
    pub fn with_srv(self, name: &str, ttl: u32, numbers: [u16; 3], target: &str) -> DnsAnswer {
        let mut data: Vec<u8> = numbers.iter().flat_map(|number| number.to_be_bytes()).collect();
        data.extend(wire(target));
        self.with_record(name, SRV, ttl, &data)
    }

    /// Adds any record to the answer section.
    #[must_use]
    pub fn with_record(mut self, name: &str, kind: u16, ttl: u32, data: &[u8]) -> DnsAnswer {
        self.answers.push(record(name, kind, ttl, data));
        self
    }

    /// Adds an SOA record to the authority section, which limits how long negative responses are
    /// valid.
    #[must_use]
    pub fn with_soa(mut self, name: &str, ttl: u32, minimum: u32) -> DnsAnswer {
        let mut data = [wire("ns.example"), wire("admin.example")].concat();
        for number in [1, 3600, 600, 86_400, minimum] {
            data.extend(u32::to_be_bytes(number));
        }
        self.authority.push(record(name, SOA, ttl, &data));
        self
    }

    /// The message; `None` for no response.
    pub fn message(&self, query: &Query) -> Option<Vec<u8>> {
        if self.silent {
            return None;
        }
        if let Some(raw) = &self.raw {
            return Some(raw.clone());
        }
        let counts = [1, self.answers.len() as u16, self.authority.len() as u16, 0];
        let mut message = query.id.wrapping_add(self.id_offset).to_be_bytes().to_vec();
        message.extend((self.flags | u16::from(self.code)).to_be_bytes());
        message.extend(counts.iter().flat_map(|count| count.to_be_bytes()));
        match &self.question {
            None => message.extend(&query.question),
            Some((name, kind)) => {
                message.extend(wire(name));
                message.extend(kind.to_be_bytes());
                message.extend(1u16.to_be_bytes());
            }
        }
        message.extend(self.answers.concat());
        message.extend(self.authority.concat());
        Some(message)
    }
}

fn record(name: &str, kind: u16, ttl: u32, data: &[u8]) -> Vec<u8> {
    let mut record = wire(name);
    record.extend(kind.to_be_bytes());
    record.extend(1u16.to_be_bytes());
    record.extend(ttl.to_be_bytes());
    record.extend((data.len() as u16).to_be_bytes());
    record.extend(data);
    record
}

/// A name in wire format.
fn wire(name: &str) -> Vec<u8> {
    let labels = name.split('.').filter(|label| !label.is_empty());
    let mut bytes: Vec<u8> =
        labels.flat_map(|label| [&[label.len() as u8], label.as_bytes()].concat()).collect();
    bytes.push(0);
    bytes
}

/// Returns the responses to a query, in the order in which they are sent.
pub type Script = dyn Fn(&Query) -> Vec<DnsAnswer> + Send + Sync;

/// A running server.
#[derive(Debug)]
pub struct DnsServer {
    addr: SocketAddr,
    shared: Arc<DnsState>,
    threads: Vec<JoinHandle<()>>,
}

struct DnsState {
    stop: AtomicBool,
    script: Box<Script>,
    queries: Mutex<Vec<Query>>,
    numbers: Mutex<HashMap<(String, u16), usize>>,
}

impl std::fmt::Debug for DnsState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").finish_non_exhaustive()
    }
}

impl DnsServer {
    /// Serves the responses of `script` on a free port of 127.0.0.1. Over TCP only the first
    /// response is used.
    ///
    /// # Panics
    /// If no port can be bound.
    #[track_caller]
    pub fn start(script: impl Fn(&Query) -> Vec<DnsAnswer> + Send + Sync + 'static) -> DnsServer {
        let bind = || {
            let tcp = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).ok()?;
            let udp = UdpSocket::bind(tcp.local_addr().ok()?).ok()?;
            Some((tcp, udp))
        };
        let (tcp, udp) = (0..PORT_TRIES).find_map(|_| bind()).expect("a loopback port");
        let addr = udp.local_addr().expect("a bound socket has an address");
        let shared = Arc::new(DnsState {
            stop: AtomicBool::new(false),
            script: Box::new(script),
            queries: Mutex::default(),
            numbers: Mutex::default(),
        });
        let threads = {
            let (by_udp, by_tcp) = (shared.clone(), shared.clone());
            vec![
                std::thread::spawn(move || serve_udp(&udp, &by_udp)),
                std::thread::spawn(move || serve_tcp(&tcp, &by_tcp)),
            ]
        };
        DnsServer { addr, shared, threads }
    }

    /// The address it listens on.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// The queries so far, in order.
    pub fn queries(&self) -> Vec<Query> {
        self.shared.queries.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Number of queries so far for this name and type.
    pub fn count(&self, name: &str, kind: u16) -> usize {
        self.queries().iter().filter(|query| query.name == name && query.kind == kind).count()
    }
}

impl Drop for DnsServer {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        // Wakes the accept call.
        let _ = TcpStream::connect(self.addr);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

impl DnsState {
    fn answers(&self, message: &[u8], tcp: bool) -> Vec<Vec<u8>> {
        let mut query = Query::parse(message, tcp);
        let mut numbers = self.numbers.lock().unwrap_or_else(PoisonError::into_inner);
        let number = numbers.entry((query.name.clone(), query.kind)).or_default();
        query.number = *number;
        *number += 1;
        drop(numbers);
        self.queries.lock().unwrap_or_else(PoisonError::into_inner).push(query.clone());
        (self.script)(&query).iter().filter_map(|answer| answer.message(&query)).collect()
    }
}

fn serve_udp(socket: &UdpSocket, shared: &DnsState) {
    let _ = socket.set_read_timeout(Some(TICK));
    let mut buffer = [0; 2048];
    while !shared.stop.load(Ordering::SeqCst) {
        let Ok((len, from)) = socket.recv_from(&mut buffer) else { continue };
        for answer in shared.answers(&buffer[..len], false) {
            let _ = socket.send_to(&answer, from);
        }
    }
}

fn serve_tcp(listener: &TcpListener, shared: &DnsState) {
    for stream in listener.incoming() {
        if shared.stop.load(Ordering::SeqCst) {
            return;
        }
        if let Ok(stream) = stream {
            // One query per connection; a client that leaves early is no error.
            let _ = answer_tcp(stream, shared);
        }
    }
}

fn answer_tcp(mut stream: TcpStream, shared: &DnsState) -> std::io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut length = [0; 2];
    stream.read_exact(&mut length)?;
    let mut message = vec![0; usize::from(u16::from_be_bytes(length))];
    stream.read_exact(&mut message)?;
    if let Some(answer) = shared.answers(&message, true).first() {
        stream.write_all(&(answer.len() as u16).to_be_bytes())?;
        stream.write_all(answer)?;
    }
    Ok(())
}
