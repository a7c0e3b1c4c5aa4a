//! Clients that request, purge and disconnect until they are stopped, and check the responses.

use std::io::Write;
use std::net::SocketAddr;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::ScopedJoinHandle;

use nowait_testkit::wait::{PATIENCE, until};
use nowait_testkit::{Client, Response};

use crate::objects::{self, OBJECTS, Xorshift};
use crate::origin::VersionedOrigin;

/// The state shared by all clients.
pub struct Truth {
    pub origin: VersionedOrigin,
    pub addr: SocketAddr,
    /// Older versions were purged: they must not be served.
    floors: Vec<AtomicU64>,
    /// The number of starts and ends of changes of an object: a purge, or a fetch past the cache.
    changes: Vec<AtomicU64>,
    /// The number of whole responses so far.
    pub responses: AtomicU64,
    pub over: AtomicBool,
}

/// A response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Got {
    pub version: u64,
    pub hit: bool,
}

/// Why there was no response.
#[derive(Debug)]
pub struct Lost(String);

/// The behaviour of a load's clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mix {
    /// They accept that the server may be killed.
    MayBeKilled,
    /// Every request must get a response, including range requests; some clients leave before the
    /// end.
    AllAnswered,
}

impl Truth {
    pub fn new(origin: VersionedOrigin, addr: SocketAddr) -> Self {
        let zeros = || (0..OBJECTS).map(|_| AtomicU64::new(0)).collect();
        Self {
            origin,
            addr,
            floors: zeros(),
            changes: zeros(),
            responses: AtomicU64::new(0),
            over: AtomicBool::new(false),
        }
    }

    /// Changes whenever the object is purged or fetched past the cache.
    pub fn changes(&self, object: usize) -> u64 {
        self.changes[object].load(Ordering::SeqCst)
    }

    /// Waits until there are this many more responses, or a client has failed.
    pub fn wait_for(&self, more: u64, clients: &[ScopedJoinHandle<'_, ()>]) {
        let responses = || self.responses.load(Ordering::SeqCst);
        let enough = responses() + more;
        while responses() < enough && !clients.iter().any(|client| client.is_finished()) {
            // The time limit is per response, not for all of them.
            let before = responses();
            until("a response", PATIENCE, || {
                let failed = clients.iter().any(|client| client.is_finished());
                (failed || responses() > before).then_some(())
            });
        }
    }

    /// Requests an object and checks the response.
    pub fn get(&self, object: usize) -> Result<Got, Lost> {
        self.ask(object, "", None)
    }

    /// Like [`Truth::get`], past the cache: the stored object is replaced.
    fn renew(&self, object: usize) -> Result<Got, Lost> {
        self.changes[object].fetch_add(1, Ordering::SeqCst);
        let got = self.ask(object, "?fresh=1", None);
        self.changes[object].fetch_add(1, Ordering::SeqCst);
        got
    }

    fn ask(
        &self,
        object: usize,
        arguments: &str,
        range: Option<Range<usize>>,
    ) -> Result<Got, Lost> {
        let floor = self.floors[object].load(Ordering::SeqCst);
        let field = range.map_or_else(String::new, |range| {
            format!("Range: bytes={}-{}\r\n", range.start, range.end - 1)
        });
        let mut client = self.send("GET", object, arguments, &field)?;
        let response = answer(&mut client)?;
        let version: u64 = response
            .header("X-Version")
            .unwrap_or_else(|| panic!("object {object}: status {}", response.status))
            .parse()
            .expect("a number");
        let newest = self.origin.newest(object);
        assert!(version <= newest, "object {object}: version {version} was never sent");
        assert!(
            version >= floor,
            "object {object}: version {version} was purged, {floor} is the first after that"
        );
        let body = objects::body(object, version);
        let expected = match response.status {
            200 => &body[..],
            206 => &body[part(&response)],
            status => panic!("object {object}: status {status}"),
        };
        assert!(response.body == expected, "object {object}: not the bytes of version {version}");
        self.responses.fetch_add(1, Ordering::SeqCst);
        Ok(Got { version, hit: response.header("X-Cache") == Some("HIT") })
    }

    /// Purges an object. Without a response it is unknown whether it was purged.
    fn purge(&self, object: usize) -> Result<(), Lost> {
        self.changes[object].fetch_add(1, Ordering::SeqCst);
        let newest = self.origin.newest(object);
        let mut client = self.send("PURGE", object, "", "")?;
        let response = answer(&mut client)?;
        assert!(matches!(response.status, 204 | 404), "purge: {}", response.status);
        self.floors[object].fetch_max(newest + 1, Ordering::SeqCst);
        self.changes[object].fetch_add(1, Ordering::SeqCst);
        self.responses.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }

    /// Requests an object and disconnects in the middle of its body.
    fn leave(&self, object: usize, after: usize) -> Result<(), Lost> {
        let mut client = self.send("GET", object, "", "")?;
        client.read_some(after.max(1));
        Ok(())
    }

    fn send(
        &self,
        method: &str,
        object: usize,
        arguments: &str,
        fields: &str,
    ) -> Result<Client, Lost> {
        let client = Client::try_to(self.addr).map_err(|error| Lost(error.to_string()))?;
        let path = objects::path(object);
        let request = format!(
            "{method} {path}{arguments} HTTP/1.1\r\nHost: a\r\n{fields}Connection: close\r\n\r\n"
        );
        let sent = client.stream().write_all(request.as_bytes());
        sent.map(|()| client).map_err(|error| Lost(error.to_string()))
    }

    /// Requests and purges until the end.
    pub fn load(&self, seed: u64, mix: Mix) {
        let mut random = Xorshift::new(seed);
        while !self.over.load(Ordering::SeqCst) {
            // Some are requested far more often than others.
            let limit = 1 + random.below(OBJECTS);
            let object = random.below(limit);
            let size = objects::size(object);
            let done = match random.below(16) {
                0 => self.purge(object),
                1..4 => self.renew(object).map(drop),
                4..7 if mix == Mix::AllAnswered && size > 0 => {
                    let start = random.below(size);
                    let end = start + 1 + random.below(size - start);
                    self.ask(object, "", Some(start..end)).map(drop)
                }
                7..9 if mix == Mix::AllAnswered => self.leave(object, random.below(size + 1)),
                _ => self.get(object).map(drop),
            };
            if let Err(Lost(why)) = done {
                assert!(mix == Mix::MayBeKilled, "object {object}: {why}");
            }
        }
    }
}

fn answer(client: &mut Client) -> Result<Response, Lost> {
    match client.try_response(false) {
        Err(why) if why.starts_with("malformed") => panic!("{why}"),
        result => result.map_err(Lost),
    }
}

/// Parses `Content-Range: bytes 5-9/100`.
fn part(response: &Response) -> Range<usize> {
    let field = response.header("Content-Range").expect("a part says which");
    let range = field.strip_prefix("bytes ").and_then(|field| field.split_once('/'));
    let (first, last) = range.and_then(|(range, _)| range.split_once('-')).expect("one range");
    let number = |digits: &str| digits.parse::<usize>().expect("a number");
    number(first)..number(last) + 1
}
