//! What the targets of HTTP/2 share: limits to try, a sink, and connections fed in pieces.

use std::collections::BTreeMap;

use nowait_h2::connection::{Connection, Role};
use nowait_h2::frame::HEADER_LEN;
use nowait_h2::hpack::{Decoder, HpackField};
use nowait_h2::{Event, FrameHeader, FrameType, Limits, Sink, StreamId};

/// More heap memory than any of [`limits`] allows a connection, in bytes.
const HEAP_MAX: usize = 512 * 1024;

/// nginx's default limits, or ones so small that every bound is near.
pub fn limits(choice: u8) -> Limits {
    let small = Limits {
        concurrent_streams: 2,
        stream_window: 20,
        connection_window: 0,
        header_table_size: 100,
        string_bytes_max: 60,
        list_bytes_max: 200,
        fields_max: 8,
        block_bytes_max: 300,
        continuations_max: 3,
        interim_max: 1,
        extended_connect: true,
        idle_frames_max: 8,
        resets_max: 3,
        refused_max: 2,
        ..Limits::default()
    };
    match choice & 3 {
        0 => Limits::default(),
        1 => small,
        2 => Limits { stream_window: 1 << 20, header_table_size: 65_535, ..small },
        _ => Limits { header_table_size: 0, extended_connect: true, ..Limits::default() },
    }
}

/// Keeps the last fields as text.
#[derive(Debug, Default)]
pub struct Heads(pub String);

impl Sink for Heads {
    fn begin(&mut self, stream: StreamId) {
        self.0 = format!("{stream}:");
    }

    fn field(&mut self, field: &HpackField<'_>) {
        assert!(!field.name.is_empty());
        assert!(!field.value.iter().any(|c| matches!(c, b'\r' | b'\n' | 0)));
        assert!(!field.name.iter().any(u8::is_ascii_uppercase));
        self.0 += &format!(" {field:?}");
    }
}

/// The state of a stream as its events tell it.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Seen {
    /// Opened by us.
    Asked,
    Head,
    End,
}

/// Checks the order of events.
#[derive(Debug, Default)]
pub struct Order(BTreeMap<StreamId, Seen>);

impl Order {
    /// We have opened a stream.
    pub fn open(&mut self, stream: StreamId) {
        self.0.insert(stream, Seen::Asked);
    }

    fn check(&mut self, event: &Event) {
        match *event {
            Event::Request { stream, end } => {
                let before = self.0.insert(stream, if end { Seen::End } else { Seen::Head });
                assert_eq!(before, None);
            }
            Event::Response { stream, end, .. } => {
                let before = self.0.insert(stream, if end { Seen::End } else { Seen::Head });
                assert_eq!(before, Some(Seen::Asked));
            }
            Event::Interim { stream, .. } => assert_eq!(self.0[&stream], Seen::Asked),
            Event::Data { stream, ref range, end } => {
                assert_eq!(self.0[&stream], Seen::Head);
                assert!(end || !range.is_empty());
                if end {
                    self.0.insert(stream, Seen::End);
                }
            }
            Event::Trailers { stream } => {
                assert_eq!(self.0.insert(stream, Seen::End), Some(Seen::Head));
            }
            Event::StreamError { stream, answerable: true, .. } => {
                self.0.insert(stream, Seen::End);
            }
            Event::StreamError { stream, .. } | Event::Reset { stream, .. } => {
                assert!(self.0.contains_key(&stream));
            }
            _ => {}
        }
    }
}

/// Feeds a connection; returns its events as text, with the pieces of each body joined, and what it
/// has sent. `act` may answer each event, and appends to what is sent.
pub fn feed<'a, R: Role>(
    connection: &mut Connection<R>,
    order: &mut Order,
    pieces: impl Iterator<Item = &'a [u8]>,
    mut act: impl FnMut(&mut Connection<R>, &Event, &mut Vec<u8>),
) -> (Vec<String>, Vec<u8>) {
    let (mut heads, mut events, mut out) = (Heads::default(), Vec::new(), Vec::new());
    let mut body: Option<(StreamId, Vec<u8>)> = None;
    for piece in pieces {
        let mut at = 0;
        loop {
            let step = match connection.receive(&piece[at..], &mut heads) {
                Ok(step) => step,
                Err(error) => {
                    events.push(format!("{body:?} {error:?}"));
                    connection.poll_output(&mut out);
                    return (events, out);
                }
            };
            assert!(connection.heap() <= HEAP_MAX, "{} bytes", connection.heap());
            let rest = &piece[at..];
            at += step.consumed;
            assert!(at <= piece.len());
            order.check(&step.event);
            act(connection, &step.event, &mut out);
            match step.event {
                Event::NeedMore => {
                    assert_eq!(at, piece.len());
                    break;
                }
                Event::OutputFull => assert!(connection.poll_output(&mut out)),
                Event::Data { stream, range, end } => {
                    assert!(range.end <= step.consumed);
                    let (_, bytes) = body.get_or_insert((stream, Vec::new()));
                    bytes.extend_from_slice(&rest[range]);
                    if end {
                        events.push(format!("{:?} end", body.take()));
                    }
                }
                event => events.push(format!("{:?} {event:?} {}", body.take(), heads.0)),
            }
        }
    }
    connection.poll_output(&mut out);
    (events, out)
}

/// Checks that a connection has sent well-formed frames and blocks.
pub fn check_output(mut output: &[u8]) {
    let mut decoder = Decoder::default();
    decoder.allow(65_535);
    let mut block = Vec::new();
    while let Some((octets, rest)) = output.split_first_chunk::<HEADER_LEN>() {
        let header = FrameHeader::parse(octets);
        header.check(1 << 24).expect("a correct header");
        let (payload, rest) = rest.split_at(header.length as usize);
        output = rest;
        if matches!(header.kind, FrameType::Headers | FrameType::Continuation) {
            block.extend_from_slice(payload);
            if header.flags.has(nowait_h2::Flags::END_HEADERS) {
                let mut fields = decoder.block(&block, usize::MAX);
                while fields.next().expect("a correct block").is_some() {}
                block.clear();
            }
        }
    }
    assert!(output.is_empty());
}
