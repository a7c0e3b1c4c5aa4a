//! Requests, and what their answers must be.

use std::io::Read;

use nowait_runtime::sim;

use super::origin::{self, Manner};
use super::origin_gateway::Protocol;
use super::site::{FILES, MODIFIED, content};
use super::wire::field;

/// A complete response.
#[derive(Debug)]
pub struct Response {
    pub status: u16,
    pub head: String,
    pub body: Vec<u8>,
}

/// A request.
pub struct Ask {
    pub method: &'static str,
    pub target: String,
    /// Further fields, each with its line end.
    fields: String,
    pub body: Vec<u8>,
    expected: Expected,
    /// Whether the origin handles it.
    pub is_proxied: bool,
    /// Whether the answer may be incomplete, because the origin's is.
    pub may_break: bool,
}

/// What the answer must be.
enum Expected {
    /// This status, with any body.
    Status(u16),
    /// This status and body, if not 503 for a limit.
    Body { status: u16, body: Vec<u8>, limited: bool },
    /// A part of a file of the answering generation.
    File { status: u16, name: &'static str, first: usize, last: usize, limited: bool },
    /// The length of a file.
    Length(usize),
    /// The number of the answering generation.
    Generation,
}

impl Ask {
    /// The next request of a client.
    pub fn draw(client: u16, at: u64) -> Ask {
        match sim::random(10) {
            0 => Ask::get("/return/x".to_owned(), Expected::Generation),
            1 => Ask::get("/moved/x".to_owned(), Expected::Status(302)),
            2 => Ask::get("/files/missing".to_owned(), Expected::Status(404)),
            3..6 => Ask::file(),
            6 | 7 => Ask::cached(),
            _ => Ask::proxied(client, at),
        }
    }

    fn get(target: String, expected: Expected) -> Ask {
        Ask {
            method: "GET",
            target,
            fields: String::new(),
            body: Vec::new(),
            expected,
            is_proxied: false,
            may_break: false,
        }
    }

    fn file() -> Ask {
        let (name, len) = FILES[sim::random(FILES.len() as u64) as usize];
        let place = ["files", "files", "slowly", "few"][sim::random(4) as usize];
        let limited = place == "few";
        let whole = |status| Expected::File { status, name, first: 0, last: len, limited };
        let mut ask = Ask::get(format!("/{place}/{name}"), whole(200));
        match sim::random(6) {
            _ if limited => {}
            0 => {
                ask.method = "HEAD";
                ask.expected = Expected::Length(len);
            }
            1 if len > 0 => {
                let first = sim::random(len as u64) as usize;
                let last = first + sim::random((len - first) as u64) as usize;
                ask.fields = format!("Range: bytes={first}-{last}\r\n");
                ask.expected = Expected::File { status: 206, name, first, last: last + 1, limited };
            }
            2 => {
                ask.fields = format!("Range: bytes={len}-\r\n");
                ask.expected = if len == 0 { whole(200) } else { Expected::Status(416) };
            }
            3 => {
                ask.fields = format!("If-Modified-Since: {}\r\n", MODIFIED.1);
                ask.expected = Expected::Status(304);
            }
            4 => ask.fields = "Accept-Encoding: gzip\r\n".to_owned(),
            _ => {}
        }
        ask
    }

    /// One of a few that all clients share.
    fn cached() -> Ask {
        let number = sim::random(6) as usize;
        let manner = ["plain", "chunked", "slow", "close", "flaky", "plain"][number];
        let len = [200_000, 5000, 70_000, 1000, 10_000, 0][number];
        let place = ["cached", "cached-fastcgi"][sim::random(2) as usize];
        let id = format!("{place}-{number}");
        let body = origin::body(&id, len);
        let expected = Expected::Body { status: 200, body, limited: false };
        let ask = Ask::get(format!("/{place}/{manner}/{len}/{id}"), expected);
        Ask { is_proxied: true, ..ask }
    }

    fn proxied(client: u16, at: u64) -> Ask {
        let (protocol, group) = Protocol::ALL[sim::random(Protocol::ALL.len() as u64) as usize];
        let gateway = sim::random(2) == 0;
        let kind = match gateway {
            true => group,
            false => ["buffered", "unbuffered"][sim::random(2) as usize],
        };
        let (mut manner, mut name) = Manner::ALL[sim::random(Manner::ALL.len() as u64) as usize];
        if gateway && protocol == Protocol::Memcached && !manner.suits_values() {
            (manner, name) = Manner::ALL[0];
        }
        let len = [0, 1, 1000, 5000, 70_000, 200_000][sim::random(6) as usize];
        let id = format!("{client}-{at}");
        let target = format!("/{kind}/{name}/{len}/{id}");
        let body = origin::body(&id, len);
        let exactly = |status, body| Expected::Body { status, body, limited: false };
        let expected = match manner {
            Manner::Error => exactly(503, body.clone()),
            Manner::Truncated => Expected::Status(200),
            Manner::Hang => Expected::Status(504),
            Manner::Garbage => Expected::Status(502),
            _ => exactly(200, body.clone()),
        };
        let mut ask = Ask::get(target, expected);
        if matches!(manner, Manner::Echo | Manner::Early) {
            ask.method = "POST";
            ask.body = body;
        }
        ask.is_proxied = true;
        ask.may_break = manner == Manner::Truncated;
        ask
    }

    /// Further fields.
    pub fn fields(&self) -> impl Iterator<Item = (&str, &str)> {
        self.fields.lines().filter_map(|line| line.split_once(": "))
    }

    /// The request on the wire.
    pub fn bytes(&self, closes: bool) -> Vec<u8> {
        let Ask { method, target, fields, body, .. } = self;
        let length = match *method {
            "POST" => format!("Content-Length: {}\r\n", body.len()),
            _ => String::new(),
        };
        let close = if closes { "Connection: close\r\n" } else { "" };
        let head =
            format!("{method} {target} HTTP/1.1\r\nHost: sim\r\n{fields}{length}{close}\r\n");
        [head.as_bytes(), body].concat()
    }

    /// Checks a complete answer of this generation.
    ///
    /// # Errors
    /// What is wrong.
    pub fn check(&self, generation: u64, response: &Response) -> Result<(), String> {
        let status = response.status;
        let same = |wanted: u16, body: &[u8], limited: bool| match limited && status == 503 {
            true => Ok(()),
            false if status != wanted => Err(format!("status {status}, not {wanted}")),
            false => compare(&decoded(response)?, body),
        };
        match &self.expected {
            Expected::Status(wanted) if status == *wanted => Ok(()),
            Expected::Status(wanted) => Err(format!("status {status}, not {wanted}")),
            Expected::Body { status, body, limited } => same(*status, body, *limited),
            Expected::File { status, name, first, last, limited } => {
                let whole = content(name, generation, *last);
                same(*status, &whole[*first..], *limited)
            }
            Expected::Length(len) => {
                let announced = field(&response.head, "content-length");
                match status == 200 && announced == Some(&len.to_string()[..]) {
                    true => Ok(()),
                    false => Err(format!("status {status}, length {announced:?}, not {len}")),
                }
            }
            Expected::Generation => {
                same(200, format!("generation {generation}\n").as_bytes(), false)
            }
        }
    }
}

fn decoded(response: &Response) -> Result<Vec<u8>, String> {
    if field(&response.head, "content-encoding") != Some("gzip") {
        return Ok(response.body.clone());
    }
    let mut plain = Vec::new();
    let mut decoder = flate2::read::MultiGzDecoder::new(&response.body[..]);
    decoder.read_to_end(&mut plain).map_err(|error| format!("gzip: {error}"))?;
    Ok(plain)
}

fn compare(body: &[u8], wanted: &[u8]) -> Result<(), String> {
    if body == wanted {
        return Ok(());
    }
    let at = body.iter().zip(wanted).position(|(a, b)| a != b);
    let at = at.unwrap_or(body.len().min(wanted.len()));
    Err(format!("{} bytes, not {}; the first difference is at {at}", body.len(), wanted.len()))
}
