//! The record of a request: how a request that has ended becomes words, and words become fields.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use nowait_backend::cache::cache_status;
use nowait_http::request::Request;
use nowait_http::timeline::PhaseTimes;
use nowait_http::upstream_state::UpstreamState;
use nowait_message::Version;
use nowait_runtime::{clock, worker};

use super::ring::{self, WORDS, Words};

/// Longest URI that is kept, bytes.
pub const URI_BYTES_MAX: usize = 256;

/// Longest host, server, location and upstream server that is kept, bytes.
const NAME_BYTES_MAX: usize = 56;

/// Longest method, cache status and name of a pool, bytes.
const WORD_BYTES_MAX: usize = 15;

/// A request that has ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestRecord {
    /// When it ended, in milliseconds since 1970.
    pub ended_ms: u64,
    /// The number of its connection.
    pub connection: u64,
    /// How many requests its connection had had, this one included.
    pub requests: u64,
    /// The worker.
    pub worker: u64,
    /// The status of its response; 0: none.
    pub status: u64,
    /// Bytes sent.
    pub bytes: u64,
    /// Bytes received.
    pub request_bytes: u64,
    /// `HTTP/1.1` and so on.
    pub protocol: &'static str,
    /// The client's address; `None`: it is a Unix-domain socket.
    pub client: Option<IpAddr>,
    /// The times.
    pub times: RecordTimes,
    /// The method.
    pub method: String,
    /// `Host`.
    pub host: String,
    /// The name of the server.
    pub server: String,
    /// The location.
    pub location: String,
    /// The URI as it was received, up to [`URI_BYTES_MAX`].
    pub uri: String,
    /// The upstream server that was tried last.
    pub upstream: String,
    /// `$upstream_cache_status`
    pub cache: String,
    /// The pool of the last file operation.
    pub pool: String,
}

/// The times of a record, in microseconds. What was not measured is zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecordTimes {
    /// Until the head was complete.
    pub receive: u64,
    /// In the `queue` of a group.
    pub queue: u64,
    /// Connecting to servers.
    pub connect: u64,
    /// Until servers had sent their heads.
    pub header: u64,
    /// Until servers had sent their responses.
    pub upstream: u64,
    /// Waiting for threads of pools.
    pub pool_wait: u64,
    /// On threads of pools.
    pub disk: u64,
    /// Until the response began.
    pub response: u64,
    /// From then on.
    pub sending: u64,
    /// All of it.
    pub total: u64,
}

/// Words of numbers, before the texts.
const NUMBERS: usize = 15;

/// The texts of a record.
const TEXTS: usize = 8;

/// Bytes of all texts, at most.
const TEXT_BYTES_MAX: usize = 3 * WORD_BYTES_MAX + 4 * NAME_BYTES_MAX + URI_BYTES_MAX;

const _: () = assert!(NUMBERS + TEXT_BYTES_MAX.div_ceil(8) < WORDS);

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// Two times in one word: at most 71 minutes each.
fn pair(one: Duration, other: Duration) -> u64 {
    let limit = u64::from(u32::MAX);
    micros(one).min(limit) << 32 | micros(other).min(limit)
}

const PROTOCOLS: [&str; 5] = ["HTTP/0.9", "HTTP/1.0", "HTTP/1.1", "HTTP/2.0", "HTTP/3.0"];

fn protocol(request: &Request) -> u64 {
    match request.head().version() {
        Version::Http09 => 0,
        Version::Http10 => 1,
        Version::Http2 => 3,
        Version::Http3 => 4,
        _ => 2,
    }
}

/// Writes a request that has ended into the ring of this worker.
pub fn write(request: &Request) {
    let client = request.client();
    let times = PhaseTimes::of(request);
    let (kind, address) = match request.peer().inet().map(|inet| inet.ip().to_canonical()) {
        None => (0, 0),
        Some(IpAddr::V4(ip)) => (4, u128::from(u32::from(ip))),
        Some(IpAddr::V6(ip)) => (6, u128::from(ip)),
    };
    let unmeasured = Duration::ZERO;
    let mut texts = Texts { bytes: [0; TEXT_BYTES_MAX], length: 0, lengths: [0; TEXTS], count: 0 };
    texts.push(request.head().method_bytes(), WORD_BYTES_MAX);
    texts.push(request.head().uri(), URI_BYTES_MAX);
    texts.push(request.host(), NAME_BYTES_MAX);
    texts.push(request.server_name(), NAME_BYTES_MAX);
    texts.push(&request.location().name, NAME_BYTES_MAX);
    match UpstreamState::get(request.state()) {
        Some(state) => {
            let tries = state.tries();
            let last = tries.last().and_then(|last| last.peer.as_deref()).unwrap_or_default();
            texts.push(last.as_bytes(), NAME_BYTES_MAX);
        }
        None => texts.count += 1,
    }
    let cache = cache_status(request).map(|status| status.as_str()).unwrap_or_default();
    texts.push(cache.as_bytes(), WORD_BYTES_MAX);
    let pool = request.spent().pool();
    texts.push(pool.as_deref().unwrap_or_default().as_bytes(), WORD_BYTES_MAX);
    let numbers: [u64; NUMBERS] = [
        clock().unix_ms(),
        client.number,
        u64::from(request.log_status())
            | protocol(request) << 16
            | kind << 24
            | (worker::index() as u64 & 0xff_ffff) << 32,
        u64::from(client.requests.get()),
        request.sent().bytes(),
        request.received(),
        (address >> 64) as u64,
        address as u64,
        pair(times.received.unwrap_or(unmeasured), times.queue),
        pair(times.connect, times.header),
        pair(times.upstream, times.response.unwrap_or(unmeasured)),
        pair(times.pool_wait, times.disk),
        micros(times.total),
        texts.lengths(0),
        texts.lengths(4),
    ];
    ring::push(&numbers, &texts.bytes[..texts.length]);
}

/// Texts, one behind the other.
struct Texts {
    bytes: [u8; TEXT_BYTES_MAX],
    length: usize,
    lengths: [u16; TEXTS],
    count: usize,
}

impl Texts {
    fn push(&mut self, text: &[u8], bytes_max: usize) {
        let text = &text[..text.len().min(bytes_max)];
        let end = self.length + text.len();
        if let Some(place) = self.bytes.get_mut(self.length..end) {
            place.copy_from_slice(text);
            self.length = end;
            self.lengths[self.count] = text.len() as u16;
        }
        self.count += 1;
    }

    /// Four lengths in a word.
    fn lengths(&self, from: usize) -> u64 {
        let four = &self.lengths[from..from + 4];
        four.iter().rev().fold(0, |word, length| word << 16 | u64::from(*length))
    }
}

/// The texts of a record; whatever it contains can be read.
fn texts(words: &Words) -> [String; TEXTS] {
    let lengths = [words[NUMBERS - 2], words[NUMBERS - 1]];
    let bytes: Vec<u8> = words[NUMBERS..].iter().flat_map(|word| word.to_le_bytes()).collect();
    let mut rest = &bytes[..];
    std::array::from_fn(|at| {
        let length = (lengths[at / 4] >> (16 * (at % 4)) & 0xffff) as usize;
        let (text, after) = rest.split_at(length.min(rest.len()));
        rest = after;
        String::from_utf8_lossy(text).into_owned()
    })
}

impl RequestRecord {
    /// Reads a record.
    pub fn read(words: &Words) -> Self {
        let half = |at: usize| (words[at] >> 32, words[at] & u64::from(u32::MAX));
        let (receive, queue) = half(8);
        let (connect, header) = half(9);
        let (upstream, response) = half(10);
        let (pool_wait, disk) = half(11);
        let total = words[12];
        let times = RecordTimes {
            receive,
            queue,
            connect,
            header,
            upstream,
            pool_wait,
            disk,
            response,
            sending: if response > 0 { total.saturating_sub(response) } else { 0 },
            total,
        };
        let bits = words[2];
        let client = match bits >> 24 & 0xff {
            4 => Some(IpAddr::V4(Ipv4Addr::from(words[7] as u32))),
            6 => {
                Some(IpAddr::V6(Ipv6Addr::from(u128::from(words[6]) << 64 | u128::from(words[7]))))
            }
            _ => None,
        };
        let [method, uri, host, server, location, upstream_name, cache, pool] = texts(words);
        Self {
            ended_ms: words[0],
            connection: words[1],
            requests: words[3],
            worker: bits >> 32,
            status: bits & 0xffff,
            bytes: words[4],
            request_bytes: words[5],
            protocol: PROTOCOLS.get((bits >> 16 & 0xff) as usize).unwrap_or(&""),
            client,
            times,
            method,
            host,
            server,
            location,
            uri,
            upstream: upstream_name,
            cache,
            pool,
        }
    }

    /// The client's address, or `unix:`.
    pub fn client_text(&self) -> String {
        self.client.map_or_else(|| "unix:".to_owned(), |ip| ip.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_read_as_they_were_written() {
        let mut written =
            Texts { bytes: [0; TEXT_BYTES_MAX], length: 0, lengths: [0; TEXTS], count: 0 };
        let long = [b'x'; 400];
        let all: [&[u8]; TEXTS] =
            [b"GET", &long, b"", b"1", b"12345678", b"", b"HIT", "ä".as_bytes()];
        for text in all {
            written.push(text, URI_BYTES_MAX);
        }
        let mut words: Words = [0; WORDS - 1];
        words[NUMBERS - 2] = written.lengths(0);
        words[NUMBERS - 1] = written.lengths(4);
        for (word, bytes) in words[NUMBERS..].iter_mut().zip(written.bytes.chunks(8)) {
            let mut whole = [0; 8];
            whole[..bytes.len()].copy_from_slice(bytes);
            *word = u64::from_le_bytes(whole);
        }
        let expected =
            all.map(|text| String::from_utf8_lossy(&text[..text.len().min(256)]).into_owned());
        assert_eq!(texts(&words), expected);
        for word in [0, u64::MAX, 0xffff] {
            RequestRecord::read(&[word; WORDS - 1]);
        }
    }
}
