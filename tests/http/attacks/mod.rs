//! Attacks that advisories of other servers describe, each as its advisory triggers it: the attack
//! fails, and others are served. `docs/security/known-attacks.md` lists them, with those that other
//! tests cover.

mod contents;
mod expressions;
mod framing;
mod h2;
mod h2_heads;
mod h2_upstreams;
mod tls;
mod upstreams;

use std::io::Write;

use nowait_testkit::client::Arrival;
use nowait_testkit::origin::Step;
use nowait_testkit::{Client, Origin, Server, wait};

use crate::stage::{self, site};

/// Codes of errors (RFC 9113 section 7).
const PROTOCOL_ERROR: u32 = 1;
const FLOW_CONTROL_ERROR: u32 = 3;
const REFUSED_STREAM: u32 = 7;
const ENHANCE_YOUR_CALM: u32 = 11;

/// Types of frames (RFC 9113 section 6).
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;
const CONTINUATION: u8 = 9;

/// Flags.
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

/// Identifiers of settings.
const INITIAL_WINDOW_SIZE: u16 = 4;
const MAX_FRAME_SIZE: u16 = 5;

/// The field block of `GET /` at `a`, with nothing from the dynamic table.
const GET: &[u8] = &[0x82, 0x86, 0x84, 0x01, 1, b'a'];
/// That of `POST /`.
const POST: &[u8] = &[0x83, 0x86, 0x84, 0x01, 1, b'a'];

/// A frame.
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("a short frame").to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// HEADERS with a whole block.
fn headers(stream: u32, block: &[u8], end: bool) -> Vec<u8> {
    frame(HEADERS, END_HEADERS | if end { END_STREAM } else { 0 }, stream, block)
}

/// SETTINGS.
fn settings(values: &[(u16, u32)]) -> Vec<u8> {
    let value = |(id, value): &(u16, u32)| [&id.to_be_bytes()[..], &value.to_be_bytes()].concat();
    frame(SETTINGS, 0, 0, &values.iter().flat_map(value).collect::<Vec<_>>())
}

fn window_update(stream: u32, size: u32) -> Vec<u8> {
    frame(WINDOW_UPDATE, 0, stream, &size.to_be_bytes())
}

/// A literal field that is not indexed (RFC 7541 section 6.2.2).
fn field(name: &[u8], value: &[u8]) -> Vec<u8> {
    let length = |text: &[u8]| match u8::try_from(text.len()) {
        Ok(short @ 0..127) => vec![short],
        _ => {
            let mut rest = text.len() - 127;
            let mut out = vec![127];
            while rest > 127 {
                out.push((rest % 128) as u8 | 128);
                rest /= 128;
            }
            out.push(rest as u8);
            out
        }
    };
    [&[0], &length(name)[..], name, &length(value), value].concat()
}

/// A frame that has come.
#[derive(Debug)]
struct Frame {
    kind: u8,
    flags: u8,
    stream: u32,
    payload: Vec<u8>,
}

impl Frame {
    /// Four bytes of the payload.
    fn number(&self, at: usize) -> u32 {
        u32::from_be_bytes(*self.payload[at..].first_chunk().expect("four bytes"))
    }
}

/// A client of HTTP/2 that writes every byte itself.
struct Wire {
    client: Client,
    bytes: Vec<u8>,
}

impl Wire {
    /// Connects, and sends the preface with these settings.
    fn to(server: &Server, values: &[(u16, u32)]) -> Wire {
        let mut wire = Wire { client: Client::to_port(server.port()), bytes: Vec::new() };
        wire.send(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
        wire.send(&settings(values));
        wire
    }

    /// Sends, unless the server has closed.
    fn send(&mut self, bytes: &[u8]) {
        let _ = self.client.stream().write_all(bytes);
    }

    /// The next frame; `None` when the server has closed the connection.
    fn next(&mut self) -> Option<Frame> {
        loop {
            if let [a, b, c, kind, flags, stream @ ..] = &self.bytes[..]
                && let Some((stream, payload)) = stream.split_first_chunk::<4>()
                && let length = u32::from_be_bytes([0, *a, *b, *c]) as usize
                && payload.len() >= length
            {
                let frame = Frame {
                    kind: *kind,
                    flags: *flags,
                    stream: u32::from_be_bytes(*stream),
                    payload: payload[..length].to_vec(),
                };
                self.bytes.drain(..9 + length);
                return Some(frame);
            }
            match self.client.arrives_within(wait::PATIENCE) {
                Arrival::Bytes(_) => {
                    self.bytes.extend(self.client.read_some(usize::MAX));
                }
                Arrival::Nothing => panic!("nothing comes"),
                _ => return None,
            }
        }
    }

    /// The next frame that answers a request, or ends the connection.
    fn next_of_stream(&mut self) -> Option<Frame> {
        loop {
            let frame = self.next()?;
            if frame.kind == GOAWAY || frame.stream != 0 && frame.kind != WINDOW_UPDATE {
                return Some(frame);
            }
        }
    }

    /// The code with which the connection ends; `None` if the server closes it without GOAWAY.
    fn code(&mut self) -> Option<u32> {
        let mut code = None;
        while let Some(frame) = self.next() {
            if frame.kind == GOAWAY {
                code = Some(frame.number(4));
            }
        }
        code
    }

    /// The length of the content of a stream until it ends.
    fn content(&mut self, stream: u32) -> usize {
        let mut length = 0;
        loop {
            let frame = self.next().expect("the stream ends");
            if frame.stream != stream {
                continue;
            }
            assert_ne!(frame.kind, RST_STREAM, "{frame:?}");
            if frame.kind == DATA {
                length += frame.payload.len();
            }
            if frame.flags & END_STREAM != 0 {
                return length;
            }
        }
    }

    /// How much content arrives before the answer to a PING.
    fn content_until_pong(&mut self) -> usize {
        self.send(&frame(PING, 0, 0, b"attacks!"));
        let mut length = 0;
        loop {
            let frame = self.next().expect("an answer");
            match frame.kind {
                DATA => length += frame.payload.len(),
                PING => return length,
                _ => {}
            }
        }
    }
}

/// The memory of the processes that serve, in KB.
fn memory_kb(server: &Server) -> u64 {
    let resident = |pid: u32| {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
        line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<u64>().ok()).unwrap_or(0)
    };
    server.children().into_iter().map(resident).sum()
}

/// Runs a test on each driver, with an origin and a server of its own each time. `http` is the block, in
/// which `ORIGIN` stands for the origin's address.
#[track_caller]
fn with_origin(
    scripts: impl Fn() -> Vec<Vec<Step>>,
    http: &str,
    test: impl Fn(&mut Server, &Origin),
) {
    let builder = |address: &str| site(&http.replace("ORIGIN", address)).allow_log("upstream");
    stage::with_origin(scripts, builder, test);
}

/// A script that answers one request with these pieces, and closes.
fn pieces<P: AsRef<[u8]>>(asked: &str, pieces: impl IntoIterator<Item = P>) -> Vec<Step> {
    let mut steps = vec![Step::expect(asked)];
    // The server may have seen enough.
    steps.extend(pieces.into_iter().map(Step::reply_some));
    steps.push(Step::HalfClose);
    steps
}
