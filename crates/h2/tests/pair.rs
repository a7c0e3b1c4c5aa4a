//! A client and a server together, without a network.

mod support;

use nowait_h2::client::OpenError;
use nowait_h2::connection::{Connection, Role};
use nowait_h2::{ErrorCode, Limits, SendError, client, server};
use support::*;

/// Both sides, and what is on its way between them.
struct ConnectionPair {
    client: client::ClientConnection,
    server: server::ServerConnection,
    to_server: Vec<u8>,
    to_client: Vec<u8>,
    requests: FieldRecorder,
    responses: FieldRecorder,
    /// Take data at once.
    take: bool,
}

impl ConnectionPair {
    fn new(client: Limits, server: Limits) -> Self {
        let mut pair = ConnectionPair {
            client: client::ClientConnection::new(client),
            server: server::ServerConnection::new(server),
            to_server: Vec::new(),
            to_client: Vec::new(),
            requests: FieldRecorder::default(),
            responses: FieldRecorder::default(),
            take: true,
        };
        assert_eq!(pair.run(), (vec!["settings".to_string()], vec!["settings".to_string()]));
        pair
    }

    /// Exchanges bytes until both sides are silent; returns the events of server and client.
    fn run(&mut self) -> (Vec<String>, Vec<String>) {
        let (mut at_server, mut at_client) = (Vec::new(), Vec::new());
        loop {
            self.client.poll_output(&mut self.to_server);
            self.server.poll_output(&mut self.to_client);
            if self.to_server.is_empty() && self.to_client.is_empty() {
                return (at_server, at_client);
            }
            let input = std::mem::take(&mut self.to_server);
            let take = self.take;
            let (events, out) = feed_to(&mut self.server, &input, &mut self.requests, take);
            at_server.extend(events);
            self.to_client.extend(out);
            self.server.poll_output(&mut self.to_client);
            let input = std::mem::take(&mut self.to_client);
            let (events, out) = feed_to(&mut self.client, &input, &mut self.responses, take);
            at_client.extend(events);
            self.to_server.extend(out);
        }
    }

    fn open(&mut self, end: bool) -> u32 {
        let head = self.client.open(&request(b"GET"), &mut self.to_server).unwrap();
        head.finish(end).get()
    }

    fn respond(&mut self, stream: u32, status: u16, end: bool) {
        self.server.respond(id(stream), status, &mut self.to_client).unwrap().finish(end);
    }
}

/// Sends as much of a body as windows allow; returns what is left.
fn send<R: Role>(
    connection: &mut Connection<R>,
    stream: u32,
    body: usize,
    out: &mut Vec<u8>,
) -> usize {
    let mut left = body;
    loop {
        let length = connection.reserve(id(stream), left);
        if length == 0 {
            return left;
        }
        left -= length;
        connection.data_header(id(stream), length, left == 0, out).unwrap();
        out.resize(out.len() + length, b'x');
    }
}

fn lines(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| text.to_string()).collect()
}

#[test]
fn a_request_and_its_response() {
    let mut pair = ConnectionPair::new(Limits::default(), Limits::default());
    let mut head = pair.client.open(&request(b"POST"), &mut pair.to_server).unwrap();
    head.field(b"User-Agent", b" a\r\nb ").field(b"Connection", b"close").field(b"bad name", b"");
    head.field(b"te", b"trailers").field(b"TE", b"gzip").field_number(b"Content-Length", 3);
    assert_eq!(head.finish(false), id(1));
    pair.client.data_header(id(1), 3, true, &mut pair.to_server).unwrap();
    pair.to_server.extend_from_slice(b"abc");
    assert_eq!(pair.run().0, ["request 1", "data 1 \"abc\" end"]);
    assert_eq!(
        pair.requests.fields,
        [
            ":method: POST",
            ":scheme: https",
            ":authority: x",
            ":path: /",
            "user-agent: a  b",
            "te: trailers",
            "content-length: 3"
        ]
    );

    let mut head = pair.server.interim(id(1), 103, &mut pair.to_client).unwrap();
    head.field(b"Link", b"</a>");
    head.finish(true);
    pair.respond(1, 200, false);
    pair.server.data_header(id(1), 2, false, &mut pair.to_client).unwrap();
    pair.to_client.extend_from_slice(b"ok");
    let mut trailers = pair.server.trailers_of(id(1), &mut pair.to_client).unwrap();
    trailers.field(b"Grpc-Status", b"0");
    trailers.finish(false);
    let events = ["interim 1 103", "response 1 200", "data 1 \"ok\"", "trailers 1"];
    assert_eq!(pair.run().1, events);
    assert_eq!(pair.responses.fields, ["grpc-status: 0"]);
    assert_eq!((pair.client.open_streams(), pair.server.open_streams()), (0, 0));
}

/// The same events, however the input is cut.
#[test]
fn byte_by_byte() {
    let padded =
        frame(nowait_h2::FrameType::Data, PADDED | END, 3, &[3, b'e', b'n', b'd', 0, 0, 0]);
    let input = [
        nowait_h2::frame::PREFACE.to_vec(),
        settings(&[(3, 1), (4, 70_000)]),
        get(1),
        post(3),
        data(3, false, b"some data"),
        padded,
        frame(nowait_h2::FrameType::Ping, 0, 0, b"01234567"),
        frame(nowait_h2::FrameType::Headers, END, 5, &GET[..3]),
        frame(nowait_h2::FrameType::Continuation, 0, 5, b""),
        frame(nowait_h2::FrameType::Continuation, END_HEADERS, 5, &GET[3..]),
        frame(nowait_h2::FrameType::Unknown(77), 0, 5, b"unknown"),
        get_with(7, true, &[("A", "b")]),
        rst_stream(7),
        data(9, true, b""),
    ]
    .concat();
    for size in [1, 2, 3, 7, 10, 1000] {
        let mut server = server::ServerConnection::new(Limits::default());
        let mut heads = FieldRecorder::default();
        let (mut events, mut content) = (Vec::new(), String::new());
        for piece in input.chunks(size) {
            for event in feed_to(&mut server, piece, &mut heads, true).0 {
                // Data comes in as many pieces as the input.
                match event.strip_prefix("data 3 \"").and_then(|rest| rest.split_once('"')) {
                    Some((data, end)) => {
                        content += data;
                        content += end;
                    }
                    None => events.push(event),
                }
            }
        }
        assert_eq!(content, "some dataend end", "{size}");
        assert_eq!(
            events,
            [
                "settings",
                "request 1 end",
                "request 3",
                "request 5 end",
                "faulty 7 Malformed(InvalidName)",
                "reset 7 CANCEL",
                "error IdleStream(Data)"
            ],
            "{size}"
        );
        let frames = output(&mut server);
        let expected = ["SETTINGS", "WINDOW_UPDATE 0 2147418112", "SETTINGS ack"];
        assert_eq!(frames[..3], expected);
        assert_eq!(frames[3..], ["PING 01234567 ack", "GOAWAY 7 PROTOCOL_ERROR"]);
    }
}

#[test]
fn windows_carry_back_pressure() {
    let limits = Limits { stream_window: 100_000, ..Limits::default() };
    let mut pair = ConnectionPair::new(Limits::default(), limits);
    pair.take = false;
    let stream = pair.open(false);
    let left = send(&mut pair.client, stream, 250_000, &mut pair.to_server);
    assert_eq!(left, 150_000);
    assert!(pair.client.is_stalled());
    let received: usize = pair.run().0.iter().filter(|e| e.starts_with("data")).count();
    assert_eq!(received, 100_000_usize.div_ceil(16_384));
    assert_eq!(send(&mut pair.client, stream, left, &mut pair.to_server), left);

    // Less than half of the window is not worth a frame.
    pair.server.taken(id(stream), 49_999);
    assert_eq!(pair.run().1, [""; 0]);
    pair.server.taken(id(stream), 1);
    assert_eq!(pair.run().1, ["window 1"]);
    let left = send(&mut pair.client, stream, left, &mut pair.to_server);
    assert_eq!(left, 100_000);
    // More than was held counts once.
    pair.server.taken(id(stream), 1 << 30);
    pair.run();
    pair.server.grow_window(id(stream), 200_000);
    pair.run();
    assert_eq!(send(&mut pair.client, stream, left, &mut pair.to_server), 0);
    assert_eq!(pair.client.content_sent(), 250_000);
    let events = pair.run().0;
    assert!(events.last().unwrap().ends_with("end"));
}

#[test]
fn the_connection_has_a_window_of_its_own() {
    let limits = Limits { connection_window: 65_535, stream_window: 1 << 20, ..Limits::default() };
    let mut pair = ConnectionPair::new(limits, Limits::default());
    pair.take = false;
    let (one, three) = (pair.open(true), pair.open(true));
    pair.run();
    pair.respond(one, 200, false);
    pair.respond(three, 200, false);
    let mut out = std::mem::take(&mut pair.to_client);
    assert_eq!(send(&mut pair.server, one, 65_000, &mut out), 0);
    assert_eq!(send(&mut pair.server, three, 1000, &mut out), 465);
    assert_eq!(pair.server.next_ready(), None);
    assert!(!pair.server.has_next());
    pair.to_client = out;
    pair.run();
    // The first stream is closed at the client, which gives back what it held of it.
    assert_eq!(pair.server.reserve(id(three), 465), 465);
    assert_eq!(pair.client.open_streams(), 1);
}

#[test]
fn a_window_may_become_negative() {
    let mut pair = ConnectionPair::new(Limits::default(), Limits::default());
    let stream = pair.open(false);
    for _ in 0..4 {
        assert_eq!(pair.client.reserve(id(stream), 15_000), 15_000);
        pair.client.data_header(id(stream), 15_000, false, &mut pair.to_server).unwrap();
    }
    // 5,536 bytes of the window of 65,536 were left.
    assert_eq!(feed(&mut pair.client, &settings(&[(4, 10_000)])), ["settings"]);
    assert_eq!(pair.client.reserve(id(stream), 99), 0);
    assert_eq!(feed(&mut pair.client, &window_update(stream, 50_000)), [""; 0]);
    assert_eq!(feed(&mut pair.client, &window_update(stream, 1)), ["window 1"]);
    assert_eq!(pair.client.reserve(id(stream), 99), 1);
    let stream = pair.open(false);
    assert_eq!(pair.client.reserve(id(stream), 99_999), 10_000);
}

#[test]
fn large_heads_are_continued() {
    let large = Limits {
        list_bytes_max: 200_000,
        string_bytes_max: 100_000,
        block_bytes_max: 200_000,
        ..Limits::default()
    };
    for size in [16_380, 16_381, 16_382, 16_383, 16_384, 16_385, 60_000, 99_999] {
        let mut pair = ConnectionPair::new(large, large);
        // Not shorter in Huffman coding.
        let value = "{".repeat(size);
        let mut head = pair.client.open(&request(b"GET"), &mut pair.to_server).unwrap();
        head.sensitive_field(b"x-long", value.as_bytes()).field(b"x-last", b"1");
        head.finish(true);
        assert_eq!(pair.run().0, ["request 1 end"]);
        assert_eq!(
            pair.requests.fields[4..],
            [format!("x-long: {value}"), "x-last: 1".to_string()]
        );
    }
}

#[test]
fn graceful_end_of_a_server() {
    let mut pair = ConnectionPair::new(Limits::default(), Limits::default());
    let first = pair.open(true);
    pair.server.announce_shutdown();
    pair.server.ping(*b"shutdown");
    let second = pair.open(true);
    let (at_server, at_client) = pair.run();
    assert_eq!(at_server, ["request 1 end", "request 3 end", "pong shutdown"]);
    assert_eq!(at_client, ["goaway 2147483647 NO_ERROR"]);
    assert_eq!(pair.client.can_open(), 0);
    let refused = pair.client.open(&request(b"GET"), &mut Vec::new()).err();
    assert_eq!(refused, Some(OpenError::GoingAway));
    pair.server.shutdown();
    assert!(pair.server.is_going_away());
    assert_eq!(pair.run().1, ["goaway 3 NO_ERROR"]);
    pair.respond(first, 204, true);
    pair.respond(second, 204, true);
    assert_eq!(pair.run().1, ["response 1 204 end", "response 3 204 end"]);
    assert_eq!((pair.client.open_streams(), pair.server.open_streams()), (0, 0));
}

#[test]
fn the_last_possible_stream_does_not_keep_a_connection() {
    let mut server = server(Limits::default());
    assert_eq!(feed(&mut server, &get(0x7fff_ffff)), ["request 2147483647 end"]);
    server.shutdown();
    assert!(server.is_going_away());
}

#[test]
fn streams_that_cross_the_last_goaway_are_ignored() {
    let mut server = server(Limits::default());
    assert_eq!(feed(&mut server, &get(1)), ["request 1 end"]);
    server.shutdown();
    // What they insert into the table still counts.
    let indexed = [GET, &[0x40, 1, b'a', 1, b'b']].concat();
    let input = [headers(3, false, &indexed), data(3, false, b"x"), rst_stream(3)].concat();
    assert_eq!(feed(&mut server, &input), [""; 0]);
    assert_eq!(output(&mut server), ["GOAWAY 1 NO_ERROR"]);
    assert_eq!(server.open_streams(), 1);
}

#[test]
fn streams_beyond_the_limit_are_refused() {
    let limits = Limits { concurrent_streams: 2, ..Limits::default() };
    let mut server = server(limits);
    let input = [post(1), post(3), post(5), data(5, false, b"late"), rst_stream(1), post(7)];
    let events = ["request 1", "request 3", "reset 1 CANCEL", "request 7"];
    assert_eq!(feed(&mut server, &input.concat()), events);
    assert_eq!(output(&mut server), ["RST_STREAM 5 REFUSED_STREAM"]);

    let mut pair = ConnectionPair::new(Limits::default(), limits);
    assert_eq!(pair.client.can_open(), 2);
    pair.open(true);
    pair.open(true);
    let refused = pair.client.open(&request(b"GET"), &mut pair.to_server).err();
    assert_eq!(refused, Some(OpenError::TooManyStreams));
    pair.run();
    pair.respond(1, 200, true);
    pair.run();
    assert_eq!(pair.client.can_open(), 1);
}

/// A client that does not know a small window yet might exceed it.
#[test]
fn bodies_wait_for_small_windows_to_be_known() {
    let limits = Limits { stream_window: 1000, ..Limits::default() };
    let mut server = server::ServerConnection::new(limits);
    let hello = [nowait_h2::frame::PREFACE, &settings(&[])[..]].concat();
    let input =
        [hello, post(1), get(3), frame(nowait_h2::FrameType::Settings, ACK, 0, &[]), post(5)];
    let events = ["settings", "request 3 end", "request 5"];
    assert_eq!(feed(&mut server, &input.concat()), events);
    assert!(output(&mut server).contains(&"RST_STREAM 1 REFUSED_STREAM".to_string()));
}

#[test]
fn a_response_before_the_end_of_the_request() {
    let mut pair = ConnectionPair::new(Limits::default(), Limits::default());
    let stream = pair.open(false);
    pair.run();
    pair.respond(stream, 413, true);
    assert_eq!(pair.server.open_streams(), 1);
    pair.server.reset(id(stream), ErrorCode::NO_ERROR);
    assert_eq!(pair.run().1, ["response 1 413 end", "reset 1 NO_ERROR"]);
    let late = pair.client.data_header(id(stream), 0, true, &mut Vec::new());
    assert_eq!(late, Err(SendError::Closed));
    assert_eq!(
        pair.server.respond(id(stream), 200, &mut Vec::new()).err(),
        Some(SendError::Closed)
    );
}

#[test]
fn misuse_is_refused() {
    let mut pair = ConnectionPair::new(Limits::default(), Limits::default());
    let stream = id(pair.open(true));
    pair.run();
    let mut out = Vec::new();
    let early = pair.server.data_header(stream, 0, false, &mut out);
    assert_eq!(early, Err(SendError::OutOfOrder));
    assert_eq!(pair.server.trailers_of(stream, &mut out).err(), Some(SendError::OutOfOrder));
    assert_eq!(pair.server.reserve(stream, 10), 0);
    pair.server.respond(stream, 200, &mut out).unwrap().finish(false);
    assert_eq!(pair.server.respond(stream, 200, &mut out).err(), Some(SendError::OutOfOrder));
    assert_eq!(pair.server.interim(stream, 103, &mut out).err(), Some(SendError::OutOfOrder));
    let more = pair.server.data_header(stream, 16_385, false, &mut out);
    assert_eq!(more, Err(SendError::BeyondWindow));
    assert_eq!(frame_texts(&out), ["HEADERS 1 200"]);
}

#[test]
fn heads_and_tunnels_have_no_length() {
    let mut pair = ConnectionPair::new(Limits::default(), Limits::default());
    pair.client.open(&request(b"HEAD"), &mut pair.to_server).unwrap().finish(true);
    let connect = client::RequestControl { scheme: b"", path: b"", ..request(b"CONNECT") };
    pair.client.open(&connect, &mut pair.to_server).unwrap().finish(false);
    assert_eq!(pair.run().0, ["request 1 end", "request 3"]);
    for stream in [1, 3] {
        let mut head = pair.server.respond(id(stream), 200, &mut pair.to_client).unwrap();
        head.field(b"content-length", b"5");
        head.finish(stream == 1);
    }
    pair.server.data_header(id(3), 1, false, &mut pair.to_client).unwrap();
    pair.to_client.push(b'x');
    let events = ["response 1 200 end", "response 3 200", "data 3 \"x\""];
    assert_eq!(pair.run().1, events);
}

#[test]
fn extended_connect() {
    let limits = Limits { extended_connect: true, ..Limits::default() };
    let mut pair = ConnectionPair::new(Limits::default(), limits);
    assert!(pair.client.peer().enable_connect_protocol);
    let websocket = client::RequestControl { protocol: Some(b"websocket"), ..request(b"CONNECT") };
    pair.client.open(&websocket, &mut pair.to_server).unwrap().finish(false);
    assert_eq!(pair.run().0, ["request 1"]);
    assert_eq!(pair.requests.fields[4], ":protocol: websocket");
    let mut server = server(Limits::default());
    let protocol = block(&[(":protocol", "websocket")]);
    let events = feed(&mut server, &headers(1, false, &[GET, &protocol].concat()));
    assert_eq!(events, ["faulty 1 Malformed(UnexpectedProtocol)"]);
}

#[test]
fn turns() {
    let mut pair = ConnectionPair::new(Limits::default(), Limits::default());
    for _ in 0..3 {
        pair.open(true);
    }
    pair.run();
    let mut out = Vec::new();
    let mut left = [0, 40_000, 0, 1000, 0, 20_000];
    for stream in [1, 3, 5] {
        pair.server.respond(id(stream), 200, &mut out).unwrap().finish(false);
        pair.server.set_ready(id(stream), true);
    }
    assert!(pair.server.has_next());
    let mut order = Vec::new();
    while let Some(stream) = pair.server.next_ready() {
        let rest = &mut left[stream.get() as usize];
        let length = pair.server.reserve(stream, *rest);
        *rest -= length;
        pair.server.data_header(stream, length, *rest == 0, &mut out).unwrap();
        order.push(stream.get());
    }
    assert_eq!(order, [1, 3, 5, 1, 5, 1]);
    assert!(!pair.server.has_next());
    assert_eq!(lines(&[]), output(&mut pair.server));
}

/// Everything that waits is sent before what is written next.
#[test]
fn control_frames_come_first() {
    let mut server = server(Limits::default());
    let ping = frame(nowait_h2::FrameType::Ping, 0, 0, b"12345678");
    assert_eq!(feed(&mut server, &[get(1), ping].concat()), ["request 1 end"]);
    assert!(server.has_output());
    let mut out = Vec::new();
    server.respond(id(1), 204, &mut out).unwrap().finish(true);
    assert_eq!(frame_texts(&out), ["PING 12345678 ack", "HEADERS 1 204 end"]);
}

#[test]
fn a_buffer_of_another_type() {
    let mut server = server(Limits::default());
    feed(&mut server, &get(1));
    let mut out = bytes::BytesMut::from(&b""[..]);
    server.respond(id(1), 200, &mut out).unwrap().finish(false);
    server.data_header(id(1), 1, true, &mut out).unwrap();
    out.extend_from_slice(b"x");
    assert_eq!(frame_texts(&out), ["HEADERS 1 200", "DATA 1 x end"]);
}
