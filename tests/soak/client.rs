//! A client that does one thing after the other, chosen at random, and checks what it gets.

use std::collections::HashMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::objects::{self, Objects};

/// A response that takes longer is lost.
const PATIENCE: Duration = Duration::from_secs(60);

/// What has happened.
#[derive(Default, Debug)]
pub struct Counts {
    /// Complete responses by their `X-Cache`.
    by_cache: HashMap<String, u64>,
    ranges: u64,
    heads: u64,
    purges: u64,
    left: u64,
    slow: u64,
    bytes: u64,
}

impl Counts {
    pub fn add(&mut self, other: &Counts) {
        for (cache, count) in &other.by_cache {
            *self.by_cache.entry(cache.clone()).or_default() += count;
        }
        self.ranges += other.ranges;
        self.heads += other.heads;
        self.purges += other.purges;
        self.left += other.left;
        self.slow += other.slow;
        self.bytes += other.bytes;
    }

    /// A run in which something never happened proves nothing about it.
    pub fn assert_all_happened(&self) {
        // How stale ones are brought up to date depends on the moment.
        for cache in ["HIT", "MISS", "STALE"] {
            assert!(self.by_cache.contains_key(cache), "no {cache}: {self:?}");
        }
        let [ranges, heads, purges] = [self.ranges, self.heads, self.purges];
        assert!(ranges > 0 && heads > 0 && purges > 0, "{self:?}");
        assert!(self.left > 0 && self.slow > 0 && self.bytes > 0, "{self:?}");
    }
}

/// The walk of one client.
pub struct Walk {
    target: SocketAddr,
    objects: Arc<Objects>,
    done: Arc<AtomicBool>,
    random: u64,
    connection: Option<BufReader<TcpStream>>,
    counts: Counts,
}

struct Head {
    status: u16,
    headers: HashMap<String, String>,
}

impl Walk {
    pub fn new(
        target: SocketAddr,
        objects: Arc<Objects>,
        done: Arc<AtomicBool>,
        seed: u64,
    ) -> Walk {
        let random = seed | 1;
        Walk { target, objects, done, random, connection: None, counts: Counts::default() }
    }

    /// Walks until it is told that all is done.
    pub fn run(mut self) -> Counts {
        while !self.done.load(Ordering::Relaxed) {
            // Small numbers are asked for more often, so that some objects are hot.
            let number = self.below(objects::COUNT).min(self.below(objects::COUNT));
            match self.below(20) {
                0 => self.purge(number),
                1 => self.head(number),
                2 | 3 => self.range(number),
                4 => self.leave(number),
                5 => self.slowly(number),
                _ => self.get(number),
            }
        }
        self.counts
    }

    fn below(&mut self, bound: u32) -> u32 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        ((self.random >> 32) % u64::from(bound)) as u32
    }

    /// Sends a request, on the open connection if there is one, and reads the head.
    fn ask(&mut self, method: &str, number: u32, headers: &str) -> Head {
        let text = format!("{method} /object/{number} HTTP/1.1\r\nHost: soak\r\n{headers}\r\n");
        let stream = self.connection.get_or_insert_with(|| {
            let stream = TcpStream::connect(self.target).expect("the server accepts");
            stream.set_read_timeout(Some(PATIENCE)).expect("a timeout can be set");
            stream.set_nodelay(true).expect("a socket option can be set");
            BufReader::new(stream)
        });
        stream.get_mut().write_all(text.as_bytes()).expect("the connection is kept");
        let mut line = |what: &str| {
            let mut line = String::new();
            let read = stream.read_line(&mut line);
            let read = read.unwrap_or_else(|e| panic!("{method} {number} {headers:?} {what}: {e}"));
            assert!(read > 0, "{method} {number} {headers:?}: the connection ended ({what})");
            line.trim_end().to_owned()
        };
        let status = line("status");
        let status = status.split(' ').nth(1).and_then(|code| code.parse().ok());
        let mut headers = HashMap::new();
        loop {
            let line = line("headers");
            let Some((name, value)) = line.split_once(": ") else { break };
            headers.insert(name.to_ascii_lowercase(), value.to_owned());
        }
        Head { status: status.expect("a status line"), headers }
    }

    fn get(&mut self, number: u32) {
        let head = self.ask("GET", number, "");
        self.whole(number, &head);
        let cache = head.headers.get("x-cache").cloned().unwrap_or_default();
        *self.counts.by_cache.entry(cache).or_default() += 1;
    }

    fn whole(&mut self, number: u32, head: &Head) {
        assert_eq!(head.status, 200, "object {number}: {:?}", head.headers);
        let version = self.version(number, head);
        let body = self.body(number, head);
        let length = objects::length(number, version);
        self.compare(number, version, 0, &body);
        assert_eq!(body.len(), length, "object {number} version {version}: {:?}", head.headers);
    }

    /// The version that the response says it is, which must have existed.
    fn version(&self, number: u32, head: &Head) -> u32 {
        let etag = head.headers.get("etag").unwrap_or_else(|| panic!("{number}: no ETag"));
        let newest = self.objects.version(number);
        let version = (1..=newest).rev().find(|version| objects::etag(number, *version) == *etag);
        version.unwrap_or_else(|| panic!("object {number} has no version {etag}"))
    }

    fn body(&mut self, number: u32, head: &Head) -> Vec<u8> {
        let body = self.framed(number, head);
        if head.headers.get("connection").is_some_and(|value| value == "close") {
            self.connection = None;
        }
        body
    }

    fn framed(&mut self, number: u32, head: &Head) -> Vec<u8> {
        let stream = self.connection.as_mut().expect("the response came on it");
        let mut body = Vec::new();
        if let Some(length) = head.headers.get("content-length") {
            body.resize(length.parse().expect("a length is a number"), 0);
            stream.read_exact(&mut body).unwrap_or_else(|e| {
                panic!("object {number}: the body ended early: {e} {:?}", head.headers)
            });
        } else {
            assert_eq!(head.headers.get("transfer-encoding").map(String::as_str), Some("chunked"));
            loop {
                let mut line = String::new();
                stream.read_line(&mut line).expect("a chunk begins");
                let size = usize::from_str_radix(line.trim(), 16)
                    .unwrap_or_else(|_| panic!("object {number}: chunk size {line:?}"));
                let at = body.len();
                body.resize(at + size + 2, 0);
                stream.read_exact(&mut body[at..]).expect("a chunk is complete");
                assert_eq!(&body[at + size..], b"\r\n");
                body.truncate(at + size);
                if size == 0 {
                    break;
                }
            }
        }
        self.counts.bytes += body.len() as u64;
        body
    }

    fn compare(&self, number: u32, version: u32, from: usize, body: &[u8]) {
        let expected = objects::bytes(number, version, from, from + body.len());
        if let Some(at) = (0..body.len()).find(|at| body[*at] != expected[*at]) {
            panic!("object {number} version {version}: byte {} differs", from + at);
        }
    }

    fn head(&mut self, number: u32) {
        let head = self.ask("HEAD", number, "");
        assert_eq!(head.status, 200);
        self.version(number, &head);
        if head.headers.get("connection").is_some_and(|value| value == "close") {
            self.connection = None;
        }
        self.counts.heads += 1;
    }

    fn range(&mut self, number: u32) {
        let (from, length) = (self.below(70_000) as usize, self.below(30_000) as usize + 1);
        let header = format!("Range: bytes={from}-{}\r\n", from + length - 1);
        let head = self.ask("GET", number, &header);
        match head.status {
            // What can't be cut is sent whole.
            200 => self.whole(number, &head),
            206 => {
                let version = self.version(number, &head);
                let total = objects::length(number, version);
                let end = total.min(from + length);
                let range = format!("bytes {from}-{}/{total}", end - 1);
                assert_eq!(head.headers.get("content-range"), Some(&range), "object {number}");
                let body = self.body(number, &head);
                self.compare(number, version, from, &body);
                assert_eq!(body.len(), end - from, "object {number}");
                self.counts.ranges += 1;
            }
            416 => {
                self.body(number, &head);
            }
            status => panic!("object {number} {header}: {status} {:?}", head.headers),
        }
    }

    fn purge(&mut self, number: u32) {
        let head = self.ask("PURGE", number, "");
        // 404: it was not there.
        assert!(matches!(head.status, 200 | 204 | 404), "{}", head.status);
        if head.status != 204 {
            self.body(number, &head);
        }
        self.counts.purges += 1;
    }

    /// Leaves in the middle of the body.
    fn leave(&mut self, number: u32) {
        let head = self.ask("GET", number, "");
        assert_eq!(head.status, 200);
        let version = self.version(number, &head);
        let chunked = head.headers.contains_key("transfer-encoding");
        let some = self.below(20_000) as usize;
        let mut stream = self.connection.take().expect("the response came on it");
        let mut part = vec![0; some.min(objects::length(number, version))];
        if !chunked && stream.read_exact(&mut part).is_ok() {
            self.compare(number, version, 0, &part);
        }
        self.counts.left += 1;
    }

    /// Reads the body slowly, so that the server has to wait.
    fn slowly(&mut self, number: u32) {
        let head = self.ask("GET", number, "");
        let stream = self.connection.as_ref().expect("the response came on it").get_ref();
        let window = rustix::net::sockopt::set_socket_recv_buffer_size(stream, 32 << 10);
        window.expect("a socket option can be set");
        std::thread::sleep(Duration::from_millis(u64::from(self.below(50))));
        self.whole(number, &head);
        self.connection = None;
        self.counts.slow += 1;
    }
}
