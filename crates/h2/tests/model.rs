//! Random operations on both sides, by seed, with bytes delivered in random pieces: nothing sees an
//! error, every stream carries what was sent on it, and in the end nothing is left and no window has
//! lost a byte.

mod support;

use std::collections::BTreeMap;

use nowait_h2::connection::{Connection, Role};
use nowait_h2::{ErrorCode, Event, Limits, StreamId, client, server};
use support::*;

/// What one side has done and seen on a stream.
#[derive(Debug, Default, Clone, Copy)]
struct Half {
    head_sent: bool,
    sent: usize,
    ended: bool,
    received: usize,
    /// Received and not yet taken.
    held: usize,
    head_seen: bool,
    end_seen: bool,
    /// Reset by either side, as far as this side knows.
    gone: bool,
}

/// One side, its streams, and the bytes that it has sent and the other has not received.
struct Side<R> {
    connection: Connection<R>,
    halves: BTreeMap<StreamId, Half>,
    wire: Vec<u8>,
    heads: FieldRecorder,
    /// Fields that were sent on each stream, and are expected by the other side.
    fields: BTreeMap<StreamId, Vec<String>>,
    salt: usize,
}

fn octet(stream: StreamId, salt: usize, offset: usize) -> u8 {
    (stream.get() as usize * 31 + offset * 7 + offset / 251 + salt) as u8
}

impl<R: Role> Side<R> {
    fn new(connection: Connection<R>, salt: usize) -> Self {
        let (halves, fields) = (BTreeMap::new(), BTreeMap::new());
        Side { connection, halves, wire: Vec::new(), heads: FieldRecorder::default(), fields, salt }
    }

    /// A stream for which `which` holds.
    fn pick(&self, random: &mut TestRng, which: impl Fn(&Half) -> bool) -> Option<StreamId> {
        let all: Vec<_> =
            self.halves.iter().filter(|(_, half)| !half.gone && which(half)).collect();
        (!all.is_empty()).then(|| *all[random.below(all.len())].0)
    }

    fn send(&mut self, random: &mut TestRng) {
        let Some(stream) = self.pick(random, |half| half.head_sent && !half.ended) else { return };
        let half = self.halves.get_mut(&stream).unwrap();
        let length = self.connection.reserve(stream, random.below(20_000));
        let end = random.below(4) == 0;
        if self.connection.data_header(stream, length, end, &mut self.wire).is_err() {
            half.gone = true;
            return;
        }
        let salt = self.salt;
        self.wire.extend((0..length).map(|at| octet(stream, salt, half.sent + at)));
        half.sent += length;
        half.ended = end;
    }

    fn end(&mut self, stream: StreamId, trailers: bool) {
        let half = self.halves.get_mut(&stream).unwrap();
        half.ended = true;
        if !trailers {
            half.gone |= self.connection.data_header(stream, 0, true, &mut self.wire).is_err();
            return;
        }
        match self.connection.trailers_of(stream, &mut self.wire) {
            Ok(mut head) => {
                head.field(b"Grpc-Status", b"0");
                head.finish(true);
            }
            Err(_) => half.gone = true,
        }
    }

    fn reset(&mut self, stream: StreamId) {
        self.connection.reset(stream, ErrorCode::CANCEL);
        self.halves.get_mut(&stream).unwrap().gone = true;
    }

    fn take(&mut self, stream: StreamId, bytes: usize) {
        let half = self.halves.get_mut(&stream).unwrap();
        let bytes = bytes.min(half.held);
        half.held -= bytes;
        self.connection.taken(stream, bytes);
    }

    fn odds(&mut self, random: &mut TestRng) {
        match random.below(6) {
            0 => self.connection.ping(*b"whatever"),
            1 => self.connection.shrink(),
            2 => self.connection.grow_connection_window(random.below(1 << 20) as u32),
            3 => {
                if let Some(stream) = self.pick(random, |half| !half.end_seen) {
                    self.connection.grow_window(stream, random.below(1 << 18) as u32);
                }
            }
            4 => self.connection.elapse(1),
            _ => {
                self.connection.poll_output(&mut self.wire);
            }
        }
    }
}

/// Delivers up to `limit` bytes from one side to the other.
fn deliver<A: Role, B: Role>(from: &mut Side<A>, to: &mut Side<B>, limit: usize) {
    from.connection.poll_output(&mut from.wire);
    let length = limit.min(from.wire.len());
    let input: Vec<u8> = from.wire.drain(..length).collect();
    let mut at = 0;
    loop {
        let step = to.connection.receive(&input[at..], &mut to.heads).expect("no error");
        let piece = &input[at..];
        at += step.consumed;
        match step.event {
            Event::NeedMore => return,
            Event::OutputFull => {
                to.connection.poll_output(&mut to.wire);
            }
            Event::Request { stream, end } => {
                assert_eq!(Some(&to.heads.fields), from.fields.get(&stream));
                let half = Half { head_seen: true, end_seen: end, ..Half::default() };
                assert!(to.halves.insert(stream, half).is_none());
            }
            Event::Response { stream, status, end } => {
                assert_eq!(status, 200);
                assert_eq!(Some(&to.heads.fields), from.fields.get(&stream));
                let half = to.halves.get_mut(&stream).unwrap();
                assert!(!half.head_seen && !half.end_seen);
                half.head_seen = true;
                half.end_seen = end;
            }
            Event::Interim { stream, status } => {
                assert_eq!(status, 103);
                assert!(!to.halves[&stream].head_seen);
            }
            Event::Data { stream, range, end } => {
                let half = to.halves.get_mut(&stream).unwrap();
                assert!(half.head_seen && !half.end_seen);
                for (offset, &byte) in piece[range.clone()].iter().enumerate() {
                    assert_eq!(byte, octet(stream, from.salt, half.received + offset));
                }
                half.received += range.len();
                half.held += range.len();
                half.end_seen = end;
            }
            Event::Trailers { stream } => {
                assert_eq!(to.heads.fields, ["grpc-status: 0"]);
                let half = to.halves.get_mut(&stream).unwrap();
                assert!(!half.end_seen);
                half.end_seen = true;
            }
            Event::Reset { stream, code } => {
                assert!(matches!(code, ErrorCode::CANCEL | ErrorCode::REFUSED_STREAM));
                to.halves.get_mut(&stream).unwrap().gone = true;
            }
            Event::StreamError { stream, error, .. } => panic!("{stream} {error:?}"),
            Event::Pong { payload } => assert_eq!(&payload, b"whatever"),
            Event::Window { .. } | Event::Settings | Event::GoAway { .. } => {}
        }
    }
}

fn add_fields<R: Role>(
    head: &mut nowait_h2::HeadWriter<'_, R, Vec<u8>>,
    random: &mut TestRng,
    expected: &mut Vec<String>,
) {
    for _ in 0..random.below(8) {
        let name = ["server", "x-a", "x-b", "etag", "cookie", "content-type"][random.below(6)];
        let value = "v".repeat(random.below(300)) + &random.below(9).to_string();
        head.field(name.as_bytes(), value.as_bytes());
        expected.push(format!("{name}: {value}"));
    }
}

fn open(client: &mut Side<client::ClientSide>, random: &mut TestRng) {
    if client.connection.can_open() == 0 {
        return;
    }
    let end = random.below(2) == 0;
    let mut head = client.connection.open(&request(b"POST"), &mut client.wire).unwrap();
    let mut fields: Vec<_> =
        [":method: POST", ":scheme: https", ":authority: x", ":path: /"].map(String::from).to_vec();
    add_fields(&mut head, random, &mut fields);
    let stream = head.finish(end);
    client.fields.insert(stream, fields);
    client.halves.insert(stream, Half { head_sent: true, ended: end, ..Half::default() });
}

fn respond(
    server: &mut Side<server::ServerSide>,
    random: &mut TestRng,
    stream: StreamId,
    end: bool,
) {
    let half = server.halves.get_mut(&stream).unwrap();
    if random.below(4) == 0
        && let Ok(mut head) = server.connection.interim(stream, 103, &mut server.wire)
    {
        head.field(b"Link", b"</style.css>");
        head.finish(false);
    }
    let Ok(mut head) = server.connection.respond(stream, 200, &mut server.wire) else {
        half.gone = true;
        return;
    };
    let mut fields = vec![":status: 200".to_string()];
    add_fields(&mut head, random, &mut fields);
    head.finish(end);
    server.fields.insert(stream, fields);
    half.head_sent = true;
    half.ended = end;
}

fn limits(random: &mut TestRng) -> Limits {
    Limits {
        concurrent_streams: 1 + random.below(20) as u32,
        stream_window: [65_535, 65_536, 100_000, 1 << 20][random.below(4)],
        connection_window: [65_535, 200_000, u32::MAX][random.below(3)],
        frame_size: [16_384, 20_000][random.below(2)],
        header_table_size: [0, 100, 4096, 65_535][random.below(4)],
        idle_frames_max: u32::MAX,
        resets_max: u32::MAX,
        refused_max: u32::MAX,
        ..Limits::default()
    }
}

fn run(seed: u64) {
    let random = &mut TestRng(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let mut client = Side::new(client::ClientConnection::new(limits(random)), 0);
    let mut server = Side::new(server::ServerConnection::new(limits(random)), 100);
    for _ in 0..600 {
        match random.below(16) {
            0 | 1 => open(&mut client, random),
            2 => client.send(random),
            3 | 4 => server.send(random),
            5 | 6 => {
                if let Some(stream) = server.pick(random, |half| !half.head_sent) {
                    let end = random.below(4) == 0;
                    respond(&mut server, random, stream, end);
                }
            }
            7 if random.below(4) == 0 => {
                if let Some(stream) = client.pick(random, |half| !(half.ended && half.end_seen)) {
                    client.reset(stream);
                }
            }
            7 if random.below(4) == 0 => {
                if let Some(stream) = server.pick(random, |half| !(half.ended && half.end_seen)) {
                    server.reset(stream);
                }
            }
            8 => {
                if let Some(stream) = client.pick(random, |half| half.held > 0) {
                    client.take(stream, random.below(50_000));
                }
            }
            9 => {
                if let Some(stream) = server.pick(random, |half| half.held > 0) {
                    server.take(stream, random.below(50_000));
                }
            }
            10 => client.odds(random),
            11 => server.odds(random),
            12 | 13 => deliver(&mut client, &mut server, random.below(30_000)),
            _ => deliver(&mut server, &mut client, random.below(30_000)),
        }
    }
    settle(&mut client, &mut server, random);
}

/// Brings everything to its end and compares.
fn settle(
    client: &mut Side<client::ClientSide>,
    server: &mut Side<server::ServerSide>,
    random: &mut TestRng,
) {
    for _ in 0..4 {
        for _ in 0..10 {
            deliver(client, server, usize::MAX);
            deliver(server, client, usize::MAX);
        }
        for stream in client.halves.keys().copied().collect::<Vec<_>>() {
            client.take(stream, usize::MAX);
            let half = client.halves[&stream];
            if !half.ended && !half.gone {
                client.end(stream, random.below(2) == 0);
            }
        }
        for stream in server.halves.keys().copied().collect::<Vec<_>>() {
            server.take(stream, usize::MAX);
            let half = server.halves[&stream];
            if !half.head_sent && !half.gone {
                respond(server, random, stream, false);
            }
            let half = server.halves[&stream];
            if !half.ended && !half.gone {
                server.end(stream, random.below(2) == 0);
            }
        }
    }
    assert_eq!((client.connection.open_streams(), server.connection.open_streams()), (0, 0));
    for (stream, ours) in &client.halves {
        let Some(theirs) = server.halves.get(stream) else {
            assert!(ours.gone, "{stream} never arrived");
            continue;
        };
        if !ours.gone && !theirs.gone {
            assert_eq!((ours.sent, ours.ended), (theirs.received, theirs.end_seen), "{stream}");
            assert_eq!((theirs.sent, theirs.ended), (ours.received, ours.end_seen), "{stream}");
        }
        assert!(ours.sent >= theirs.received && theirs.sent >= ours.received);
    }
    // Less than half of a window may still be waiting for its update.
    open_windows(client);
    deliver(client, server, usize::MAX);
    let stream = *server.halves.keys().last().unwrap();
    if !server.halves[&stream].gone && !server.halves[&stream].head_sent {
        server.connection.respond(stream, 200, &mut server.wire).unwrap().finish(false);
        assert!(server.connection.reserve(stream, 16_000) == 16_000);
    }
}

fn open_windows(client: &mut Side<client::ClientSide>) {
    if client.connection.can_open() > 0 {
        let head = client.connection.open(&request(b"POST"), &mut client.wire).unwrap();
        let stream = head.finish(false);
        client.fields.insert(
            stream,
            [":method: POST", ":scheme: https", ":authority: x", ":path: /"]
                .map(String::from)
                .to_vec(),
        );
        client.halves.insert(stream, Half { head_sent: true, ..Half::default() });
        assert_eq!(client.connection.reserve(stream, 16_000), 16_000);
    }
}

#[test]
fn both_sides_agree() {
    let seeds = std::env::var("NOWAIT_H2_SEEDS").ok().and_then(|text| text.parse().ok());
    for seed in 0..seeds.unwrap_or(30) {
        if std::panic::catch_unwind(|| run(seed)).is_err() {
            panic!("seed {seed}");
        }
    }
}
