//! The record of a request: how a request that has ended becomes words, and words become fields.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

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
const NUMBERS: usize = 12;

/// Words of a text of this many bytes: six share a word with the length.
const fn words_of(bytes: usize) -> usize {
    1 + bytes.saturating_sub(6).div_ceil(8)
}

// The total time, and eight texts at their longest.
const _: () = assert!(
    NUMBERS
        + words_of(8)
        + 3 * words_of(WORD_BYTES_MAX)
        + 4 * words_of(NAME_BYTES_MAX)
        + words_of(URI_BYTES_MAX)
        < WORDS
);

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
pub fn write(records: usize, request: &Request) {
    let mut words: Words = [0; WORDS - 1];
    let sent = request.sent();
    let client = request.client();
    let times = PhaseTimes::of(request);
    let (kind, address) = match request.peer().inet().map(|inet| inet.ip().to_canonical()) {
        None => (0, 0),
        Some(IpAddr::V4(ip)) => (4, u128::from(u32::from(ip))),
        Some(IpAddr::V6(ip)) => (6, u128::from(ip)),
    };
    let unmeasured = Duration::ZERO;
    words[0] = clock().unix_ms();
    words[1] = client.number;
    words[2] = u64::from(request.log_status())
        | protocol(request) << 16
        | kind << 24
        | (worker::index() as u64 & 0xff_ffff) << 32;
    words[3] = u64::from(client.requests.get());
    words[4] = sent.bytes();
    words[5] = request.received();
    words[6] = (address >> 64) as u64;
    words[7] = address as u64;
    words[8] = pair(times.received.unwrap_or(unmeasured), times.queue);
    words[9] = pair(times.connect, times.header);
    words[10] = pair(times.upstream, times.response.unwrap_or(unmeasured));
    words[11] = pair(times.pool_wait, times.disk);
    let mut text = Texts { words: &mut words, at: NUMBERS };
    text.push(&micros(times.total).to_le_bytes(), 8);
    text.push(request.head().method_bytes(), WORD_BYTES_MAX);
    text.push(request.head().uri(), URI_BYTES_MAX);
    text.push(request.host(), NAME_BYTES_MAX);
    text.push(request.server_name(), NAME_BYTES_MAX);
    text.push(&request.location().name, NAME_BYTES_MAX);
    match UpstreamState::get(request.state()) {
        Some(state) => {
            let tries = state.tries();
            let last = tries.last().and_then(|last| last.peer.as_deref()).unwrap_or_default();
            text.push(last.as_bytes(), NAME_BYTES_MAX);
            text.push(state.cache_status.get().unwrap_or_default().as_bytes(), WORD_BYTES_MAX);
        }
        None => {
            text.push(b"", 0);
            text.push(b"", 0);
        }
    }
    let pool = request.spent().pool();
    text.push(pool.as_deref().unwrap_or_default().as_bytes(), WORD_BYTES_MAX);
    let used = text.at;
    ring::push(records, &words[..used]);
}

/// Texts behind the numbers: a word with the length, and the text.
struct Texts<'a> {
    words: &'a mut Words,
    at: usize,
}

impl Texts<'_> {
    fn push(&mut self, text: &[u8], bytes_max: usize) {
        let text = &text[..text.len().min(bytes_max)];
        // The length and the first six bytes share a word.
        let mut first = [0; 8];
        let (head, rest) = text.split_at(text.len().min(6));
        first[..2].copy_from_slice(&(text.len() as u16).to_le_bytes());
        first[2..2 + head.len()].copy_from_slice(head);
        self.put(first);
        for chunk in rest.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.put(word);
        }
    }

    fn put(&mut self, word: [u8; 8]) {
        if let Some(place) = self.words.get_mut(self.at) {
            *place = u64::from_le_bytes(word);
            self.at += 1;
        }
    }
}

/// Reads texts.
struct TextReader<'a> {
    words: &'a Words,
    at: usize,
}

impl TextReader<'_> {
    fn next(&mut self) -> Vec<u8> {
        let first = self.word();
        let length = usize::from(u16::from_le_bytes([first[0], first[1]])).min(8 * WORDS);
        let mut text = first[2..].to_vec();
        while text.len() < length {
            text.extend_from_slice(&self.word());
        }
        text.truncate(length);
        text
    }

    fn word(&mut self) -> [u8; 8] {
        let word = self.words.get(self.at).copied().unwrap_or(0);
        self.at += 1;
        word.to_le_bytes()
    }

    fn text(&mut self) -> String {
        String::from_utf8_lossy(&self.next()).into_owned()
    }
}

impl RequestRecord {
    /// Reads a record.
    pub fn read(words: &Words) -> Self {
        let half = |at: usize| (words[at] >> 32, words[at] & u64::from(u32::MAX));
        let (receive, queue) = half(8);
        let (connect, header) = half(9);
        let (upstream, response) = half(10);
        let (pool_wait, disk) = half(11);
        let mut texts = TextReader { words, at: NUMBERS };
        let total = texts.next();
        let total = <[u8; 8]>::try_from(&total[..]).map_or(0, u64::from_le_bytes);
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
        let method = texts.text();
        let uri = texts.text();
        let host = texts.text();
        let server = texts.text();
        let location = texts.text();
        let upstream = texts.text();
        let cache = texts.text();
        let pool = texts.text();
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
            upstream,
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
        let mut words: Words = [0; WORDS - 1];
        let texts: [&[u8]; 5] = [b"", b"GET", b"123456", b"1234567", &[b'x'; 400]];
        let mut writer = Texts { words: &mut words, at: NUMBERS };
        for text in texts {
            writer.push(text, URI_BYTES_MAX);
        }
        let mut reader = TextReader { words: &words, at: NUMBERS };
        for text in texts {
            assert_eq!(reader.next(), text[..text.len().min(URI_BYTES_MAX)]);
        }
        // Whatever a ring contains can be read.
        for word in [0, u64::MAX, 0xffff] {
            RequestRecord::read(&[word; WORDS - 1]);
        }
    }
}
