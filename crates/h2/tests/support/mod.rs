//! What the tests share: frames by hand, events and frames as text, and a sink that keeps fields.
#![allow(dead_code, reason = "each test uses some of it")]

use nowait_h2::connection::{Connection, Role};
use nowait_h2::frame::{HEADER_LEN, PREFACE};
use nowait_h2::frames::{self, Setting};
use nowait_h2::hpack::{Decoder, HpackField};
use nowait_h2::{
    ConnectionError, Event, Flags, FrameHeader, FrameType, Limits, Sink, StreamId, client, server,
};

/// Keeps the fields of the last block.
#[derive(Debug, Default)]
pub struct FieldRecorder {
    pub stream: StreamId,
    pub fields: Vec<String>,
}

impl Sink for FieldRecorder {
    fn begin(&mut self, stream: StreamId) {
        self.stream = stream;
        self.fields.clear();
    }

    fn field(&mut self, field: &HpackField<'_>) {
        let text = |octets: &[u8]| String::from_utf8_lossy(octets).into_owned();
        self.fields.push(format!("{}: {}", text(field.name), text(field.value)));
    }
}

pub fn id(number: u32) -> StreamId {
    StreamId::new(number)
}

/// Any frame.
pub fn frame(kind: FrameType, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = payload.len() as u32;
    let header = FrameHeader { length, kind, flags: Flags(flags), stream: id(stream) };
    [&header.octets(), payload].concat()
}

pub const END: u8 = 1;
pub const ACK: u8 = 1;
pub const END_HEADERS: u8 = 4;
pub const PADDED: u8 = 8;
pub const PRIORITY: u8 = 32;

/// `GET https://x/` without indexing.
pub const GET: &[u8] = &[0x82, 0x87, 0x84, 0x01, 1, b'x'];

/// `:status: 200`
pub const OK: &[u8] = &[0x88];

/// A block of fields, none of them indexed.
pub fn block(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in fields {
        assert!(name.len() < 127 && value.len() < 127);
        block.extend_from_slice(&[0, name.len() as u8]);
        block.extend_from_slice(name.as_bytes());
        block.push(value.len() as u8);
        block.extend_from_slice(value.as_bytes());
    }
    block
}

pub fn headers(stream: u32, end: bool, block: &[u8]) -> Vec<u8> {
    frame(FrameType::Headers, END_HEADERS | u8::from(end), stream, block)
}

pub fn get(stream: u32) -> Vec<u8> {
    headers(stream, true, GET)
}

/// A request whose body follows.
pub fn post(stream: u32) -> Vec<u8> {
    headers(stream, false, GET)
}

/// A request with other fields than those of [`GET`].
pub fn get_with(stream: u32, end: bool, fields: &[(&str, &str)]) -> Vec<u8> {
    headers(stream, end, &[GET, &block(fields)].concat())
}

pub fn data(stream: u32, end: bool, bytes: &[u8]) -> Vec<u8> {
    frame(FrameType::Data, u8::from(end), stream, bytes)
}

pub fn window_update(stream: u32, increment: u32) -> Vec<u8> {
    frame(FrameType::WindowUpdate, 0, stream, &increment.to_be_bytes())
}

pub fn rst_stream(stream: u32) -> Vec<u8> {
    frame(FrameType::RstStream, 0, stream, &[0, 0, 0, 8])
}

pub fn settings(settings: &[(u16, u32)]) -> Vec<u8> {
    let settings: Vec<_> = settings.iter().map(|&(id, value)| Setting { id, value }).collect();
    let mut out = Vec::new();
    frames::settings(&mut out, &settings);
    out
}

/// A server that has exchanged settings with its client.
pub fn server(limits: Limits) -> server::ServerConnection {
    let mut server = server::ServerConnection::new(limits);
    let hello = [PREFACE, &settings(&[])[..], &frame(FrameType::Settings, ACK, 0, &[])].concat();
    assert_eq!(feed(&mut server, &hello), ["settings"]);
    server.poll_output(&mut Vec::new());
    server
}

/// A client that has exchanged settings with its server and sent `GET` on streams 1, 3, …
pub fn client(limits: Limits, requests: usize) -> client::ClientConnection {
    let mut client = client::ClientConnection::new(limits);
    let hello = [settings(&[]), frame(FrameType::Settings, ACK, 0, &[])].concat();
    assert_eq!(feed(&mut client, &hello), ["settings"]);
    for _ in 0..requests {
        client.open(&request(b"GET"), &mut Vec::new()).unwrap().finish(true);
    }
    client.poll_output(&mut Vec::new());
    client
}

pub fn request(method: &[u8]) -> client::RequestControl<'_> {
    client::RequestControl { method, scheme: b"https", authority: b"x", path: b"/", protocol: None }
}

/// The events of an input, as text. Data is taken at once; an error is the last one.
pub fn feed<R: Role>(connection: &mut Connection<R>, input: &[u8]) -> Vec<String> {
    feed_to(connection, input, &mut FieldRecorder::default(), true).0
}

/// The same with a given sink. Control frames that don't fit inside are returned.
pub fn feed_to<R: Role>(
    connection: &mut Connection<R>,
    input: &[u8],
    heads: &mut FieldRecorder,
    take: bool,
) -> (Vec<String>, Vec<u8>) {
    let (mut at, mut texts, mut output) = (0, Vec::new(), Vec::new());
    loop {
        let step = match connection.receive(&input[at..], heads) {
            Ok(step) => step,
            Err(error) => {
                texts.push(format!("error {:?}", error));
                return (texts, output);
            }
        };
        let piece = &input[at..];
        at += step.consumed;
        match &step.event {
            Event::NeedMore => {
                assert_eq!(at, input.len());
                return (texts, output);
            }
            Event::OutputFull => {
                connection.poll_output(&mut output);
            }
            Event::Data { stream, range, .. } if take => connection.taken(*stream, range.len()),
            _ => {}
        }
        texts.extend(event_text(step.event, piece));
    }
}

fn event_text(event: Event, input: &[u8]) -> Option<String> {
    let end = |end| if end { " end" } else { "" };
    Some(match event {
        Event::NeedMore | Event::OutputFull => return None,
        Event::Request { stream, end: last } => format!("request {stream}{}", end(last)),
        Event::Response { stream, status, end: last } => {
            format!("response {stream} {status}{}", end(last))
        }
        Event::Interim { stream, status } => format!("interim {stream} {status}"),
        Event::Data { stream, range, end: last } => {
            let bytes = String::from_utf8_lossy(&input[range]).into_owned();
            format!("data {stream} \"{bytes}\"{}", end(last))
        }
        Event::Trailers { stream } => format!("trailers {stream}"),
        Event::StreamError { stream, error, answerable } => {
            format!("{} {stream} {error:?}", if answerable { "faulty" } else { "broken" })
        }
        Event::Reset { stream, code } => format!("reset {stream} {code:?}"),
        Event::Window { stream } => format!("window {stream}"),
        Event::Settings => "settings".to_string(),
        Event::GoAway { last, code } => format!("goaway {last} {code:?}"),
        Event::Pong { payload } => format!("pong {}", String::from_utf8_lossy(&payload)),
    })
}

/// The waiting control frames, as text.
pub fn output<R: Role>(connection: &mut Connection<R>) -> Vec<String> {
    let mut output = Vec::new();
    connection.poll_output(&mut output);
    frame_texts(&output)
}

/// Frames as text. Field blocks are decoded if they need no earlier ones.
pub fn frame_texts(mut output: &[u8]) -> Vec<String> {
    let mut texts = Vec::new();
    while let Some((octets, rest)) = output.split_first_chunk::<HEADER_LEN>() {
        let header = FrameHeader::parse(octets);
        let (payload, rest) = rest.split_at(header.length as usize);
        output = rest;
        let stream = header.stream;
        let ack = if header.flags.has(Flags::ACK) { " ack" } else { "" };
        let end = if header.flags.has(Flags::END_STREAM) { " end" } else { "" };
        texts.push(match header.kind {
            FrameType::RstStream => format!("RST_STREAM {stream} {:?}", frames::code(payload)),
            FrameType::GoAway => {
                let (last, code) = frames::last_and_code(payload);
                format!("GOAWAY {last} {code:?}")
            }
            FrameType::WindowUpdate => {
                format!("WINDOW_UPDATE {stream} {}", frames::increment(payload))
            }
            FrameType::Ping => format!("PING {}{ack}", String::from_utf8_lossy(payload)),
            FrameType::Settings => format!("SETTINGS{ack}"),
            FrameType::Headers => {
                let mut decoder = Decoder::default();
                let mut block = decoder.block(payload, 4096);
                let status = block.next().ok().flatten().map_or(String::new(), |field| {
                    String::from_utf8_lossy(field.value).into_owned()
                });
                format!("HEADERS {stream} {status}{end}")
            }
            FrameType::Data => format!("DATA {stream} {}{end}", String::from_utf8_lossy(payload)),
            kind => format!("{} {stream}", kind.as_str()),
        });
    }
    assert!(output.is_empty());
    texts
}

/// The error of a connection, if the input leads to one.
pub fn error_of<R: Role>(connection: &mut Connection<R>, input: &[u8]) -> Option<ConnectionError> {
    let mut heads = FieldRecorder::default();
    let mut at = 0;
    loop {
        match connection.receive(&input[at..], &mut heads) {
            Ok(step) if step.event == Event::NeedMore => return None,
            Ok(step) if step.event == Event::OutputFull => {
                at += step.consumed;
                connection.poll_output(&mut Vec::new());
            }
            Ok(step) => at += step.consumed,
            Err(error) => return Some(error),
        }
    }
}

/// Random numbers by seed.
pub struct TestRng(pub u64);

impl TestRng {
    pub fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        ((self.0 >> 11) as usize) % limit
    }
}
