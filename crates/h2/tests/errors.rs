//! Every error of RFC 9113, as data: frames in, events and frames out.

mod support;

use nowait_h2::{ConnectionError, ErrorCode, FrameType, Limits, Priority, StreamId};
use support::*;

/// To a server that has exchanged settings.
fn to_server(input: &[Vec<u8>], events: &[&str], frames: &[&str]) {
    let mut server = server(Limits::default());
    check(&mut server, input, events, frames);
}

/// To a client that has sent requests on streams 1 and 3.
fn to_client(input: &[Vec<u8>], events: &[&str], frames: &[&str]) {
    let mut client = client(Limits::default(), 2);
    check(&mut client, input, events, frames);
}

#[track_caller]
fn check<R: nowait_h2::connection::Role>(
    connection: &mut nowait_h2::connection::Connection<R>,
    input: &[Vec<u8>],
    events: &[&str],
    frames: &[&str],
) {
    assert_eq!(feed(connection, &input.concat()), events);
    assert_eq!(output(connection), frames);
}

#[test]
fn prefaces() {
    for input in [&b"GET / HTTP/1.1\r\n\r\n"[..], b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\r"] {
        let mut server = nowait_h2::server::ServerConnection::new(Limits::default());
        assert_eq!(feed(&mut server, input), ["error InvalidPreface"]);
        assert_eq!(output(&mut server).last().unwrap(), "GOAWAY 0 PROTOCOL_ERROR");
    }
    let mut server = nowait_h2::server::ServerConnection::new(Limits::default());
    // As with nginx, a server does not insist on SETTINGS.
    let input = [nowait_h2::frame::PREFACE, &get(1)[..]].concat();
    assert_eq!(feed(&mut server, &input).len(), 1);
    let mut client = nowait_h2::client::ClientConnection::new(Limits::default());
    let input = frame(FrameType::Settings, ACK, 0, &[]);
    assert_eq!(feed(&mut client, &input), ["error MissingSettings"]);
}

#[test]
fn after_an_error_nothing_is_received() {
    let mut server = server(Limits::default());
    for _ in 0..2 {
        assert_eq!(feed(&mut server, &data(1, true, b"")), ["error IdleStream(Data)"]);
    }
    assert_eq!(output(&mut server), ["GOAWAY 0 PROTOCOL_ERROR"]);
}

/// Section 4 and 6: lengths and streams of each type of frame.
#[test]
fn lengths_and_streams() {
    for (input, error, code) in [
        (data(1, false, &[0; 16_385]), "FrameTooLarge(Data)", "FRAME_SIZE_ERROR"),
        (headers(1, true, &[0; 16_385]), "FrameTooLarge(Headers)", "FRAME_SIZE_ERROR"),
        (data(0, false, b"x"), "StreamIdentifier(Data)", "PROTOCOL_ERROR"),
        (headers(0, true, GET), "StreamIdentifier(Headers)", "PROTOCOL_ERROR"),
        (headers(2, true, GET), "StreamIdentifier(Headers)", "PROTOCOL_ERROR"),
        (frame(FrameType::Data, PADDED, 1, &[]), "FrameLength(Data)", "FRAME_SIZE_ERROR"),
        (frame(FrameType::Headers, PADDED, 1, &[]), "FrameLength(Headers)", "FRAME_SIZE_ERROR"),
        (frame(FrameType::Headers, 0x24, 1, &[0; 4]), "FrameLength(Headers)", "FRAME_SIZE_ERROR"),
        (frame(FrameType::Headers, 0x0c, 1, &[7, 0x82]), "Padding(Headers)", "PROTOCOL_ERROR"),
        (
            frame(FrameType::Headers, 0x24, 1, &[0, 0, 0, 1, 16, 0x82]),
            "SelfDependency(Headers)",
            "PROTOCOL_ERROR",
        ),
        (frame(FrameType::Priority, 0, 1, &[0; 4]), "FrameLength(Priority)", "FRAME_SIZE_ERROR"),
        (frame(FrameType::Priority, 0, 0, &[0; 5]), "StreamIdentifier(Priority)", "PROTOCOL_ERROR"),
        (
            frame(FrameType::Priority, 0, 9, &[0, 0, 0, 9, 1]),
            "SelfDependency(Priority)",
            "PROTOCOL_ERROR",
        ),
        (frame(FrameType::RstStream, 0, 1, &[0; 3]), "FrameLength(RstStream)", "FRAME_SIZE_ERROR"),
        (rst_stream(0), "StreamIdentifier(RstStream)", "PROTOCOL_ERROR"),
        (rst_stream(1), "IdleStream(RstStream)", "PROTOCOL_ERROR"),
        (rst_stream(2), "IdleStream(RstStream)", "PROTOCOL_ERROR"),
        (frame(FrameType::Settings, 0, 0, &[0; 5]), "FrameLength(Settings)", "FRAME_SIZE_ERROR"),
        (frame(FrameType::Settings, ACK, 0, &[0; 6]), "FrameLength(Settings)", "FRAME_SIZE_ERROR"),
        (
            frame(FrameType::Settings, 0, 0, &[0; 6 * 65]),
            "FrameLength(Settings)",
            "FRAME_SIZE_ERROR",
        ),
        (frame(FrameType::Settings, 0, 1, &[]), "StreamIdentifier(Settings)", "PROTOCOL_ERROR"),
        (frame(FrameType::PushPromise, 4, 1, &[0; 9]), "PushPromise", "PROTOCOL_ERROR"),
        (frame(FrameType::Ping, 0, 0, &[0; 7]), "FrameLength(Ping)", "FRAME_SIZE_ERROR"),
        (frame(FrameType::Ping, 0, 1, &[0; 8]), "StreamIdentifier(Ping)", "PROTOCOL_ERROR"),
        (frame(FrameType::GoAway, 0, 0, &[0; 7]), "FrameLength(GoAway)", "FRAME_SIZE_ERROR"),
        (frame(FrameType::GoAway, 0, 1, &[0; 8]), "StreamIdentifier(GoAway)", "PROTOCOL_ERROR"),
        (
            frame(FrameType::WindowUpdate, 0, 0, &[]),
            "FrameLength(WindowUpdate)",
            "FRAME_SIZE_ERROR",
        ),
        (window_update(0, 0), "ZeroIncrement", "PROTOCOL_ERROR"),
        (window_update(1, 1), "IdleStream(WindowUpdate)", "PROTOCOL_ERROR"),
        (window_update(0, 0x7fff_ffff), "WindowOverflow", "FLOW_CONTROL_ERROR"),
        (data(1, false, b"x"), "IdleStream(Data)", "PROTOCOL_ERROR"),
        (data(2, false, b"x"), "IdleStream(Data)", "PROTOCOL_ERROR"),
        (
            frame(FrameType::Continuation, END_HEADERS, 1, GET),
            "UnexpectedContinuation",
            "PROTOCOL_ERROR",
        ),
    ] {
        let goaway = format!("GOAWAY 0 {code}");
        to_server(&[input], &[&format!("error {error}")], &[&goaway]);
    }
}

/// Section 6.5.2.
#[test]
fn values_of_settings() {
    for (id, value, error, code) in [
        (2, 2, "InvalidSetting(2)", "PROTOCOL_ERROR"),
        (4, 0x8000_0000, "InitialWindow", "FLOW_CONTROL_ERROR"),
        (5, 16_383, "InvalidSetting(5)", "PROTOCOL_ERROR"),
        (5, 0x100_0000, "InvalidSetting(5)", "PROTOCOL_ERROR"),
        (8, 2, "InvalidSetting(8)", "PROTOCOL_ERROR"),
    ] {
        let (error, goaway) = (format!("error {error}"), format!("GOAWAY 0 {code}"));
        to_server(&[settings(&[(id, value)])], &[&error], &[&goaway]);
    }
    to_client(&[settings(&[(2, 1)])], &["error InvalidSetting(2)"], &["GOAWAY 0 PROTOCOL_ERROR"]);
    // A window of 65,535 + 2^31-1-1 would fit, one more does not.
    to_server(
        &[get(1), window_update(1, 0x7fff_ffff - 65_535), settings(&[(4, 65_536)])],
        &["request 1 end", "error InitialWindow"],
        &["GOAWAY 1 FLOW_CONTROL_ERROR"],
    );
    to_server(&[settings(&[(99, 1), (6, 1)])], &["settings"], &["SETTINGS ack"]);
}

/// Section 5.1: frames that a stream's state does not allow.
#[test]
fn states_of_streams() {
    // Half closed.
    to_server(
        &[get(1), data(1, true, b"x")],
        &["request 1 end", "broken 1 HalfClosed"],
        &["RST_STREAM 1 STREAM_CLOSED"],
    );
    to_server(
        &[get(1), get(1)],
        &["request 1 end", "broken 1 HalfClosed"],
        &["RST_STREAM 1 STREAM_CLOSED"],
    );
    to_server(
        &[get(1), window_update(1, 9), frame(FrameType::Priority, 0, 1, &[0; 5])],
        &["request 1 end"],
        &[],
    );
    // Closed by the client.
    to_server(
        &[post(1), rst_stream(1), data(1, false, b"x"), data(1, true, b"x")],
        &["request 1", "reset 1 CANCEL"],
        &["RST_STREAM 1 STREAM_CLOSED"],
    );
    to_server(
        &[post(1), rst_stream(1), rst_stream(1), window_update(1, 1)],
        &["request 1", "reset 1 CANCEL"],
        &[],
    );
    to_server(
        &[get(1), rst_stream(1), get(1)],
        &["request 1 end", "reset 1 CANCEL", "error StreamIdentifier(Headers)"],
        &["GOAWAY 1 PROTOCOL_ERROR"],
    );
    // Skipped.
    to_server(
        &[get(5), get(3)],
        &["request 5 end", "error StreamIdentifier(Headers)"],
        &["GOAWAY 5 PROTOCOL_ERROR"],
    );
}

/// What was on its way when we reset the stream is no error.
#[test]
fn frames_after_our_reset() {
    let mut server = server(Limits::default());
    assert_eq!(feed(&mut server, &post(1)), ["request 1"]);
    server.reset(id(1), nowait_h2::ErrorCode::CANCEL);
    server.reset(id(1), nowait_h2::ErrorCode::CANCEL);
    assert_eq!(output(&mut server), ["RST_STREAM 1 CANCEL"]);
    let late = [
        data(1, false, b"x"),
        window_update(1, 1),
        headers(1, true, &block(&[("a", "b")])),
        rst_stream(1),
    ];
    assert_eq!(feed(&mut server, &late.concat()), [""; 0]);
    assert_eq!(output(&mut server), [""; 0]);
    assert_eq!(feed(&mut server, &get(3)), ["request 3 end"]);
}

/// Section 4.3 and 6.10: a block is one unit.
#[test]
fn continuations() {
    let open = frame(FrameType::Headers, END, 1, &GET[..2]);
    let rest = frame(FrameType::Continuation, END_HEADERS, 1, &GET[2..]);
    to_server(&[open.clone(), rest.clone()], &["request 1 end"], &[]);
    for other in [
        data(1, false, b""),
        get(3),
        settings(&[]),
        frame(FrameType::Ping, 0, 0, &[0; 8]),
        frame(FrameType::Unknown(99), 0, 0, b""),
        frame(FrameType::Continuation, END_HEADERS, 3, &GET[2..]),
    ] {
        to_server(
            &[open.clone(), other],
            &["error ExpectedContinuation"],
            &["GOAWAY 0 PROTOCOL_ERROR"],
        );
    }
    to_server(
        &[open, rest.clone(), rest],
        &["request 1 end", "error UnexpectedContinuation"],
        &["GOAWAY 1 PROTOCOL_ERROR"],
    );
}

#[test]
fn field_blocks() {
    for (block, error, code) in [
        (&[0x80][..], "Compression(InvalidIndex)", "COMPRESSION_ERROR"),
        (&[0xbe], "Compression(InvalidIndex)", "COMPRESSION_ERROR"),
        (&[0xff], "Compression(Truncated)", "FRAME_SIZE_ERROR"),
        (&[0x42, 0xff], "Compression(Truncated)", "FRAME_SIZE_ERROR"),
        (&[0xff; 5], "Compression(IntegerTooLong)", "COMPRESSION_ERROR"),
        (&[0x3f, 0xe2, 0x1f], "Compression(InvalidTableSize)", "COMPRESSION_ERROR"),
        (&[0x82, 0x20], "Compression(InvalidTableSize)", "COMPRESSION_ERROR"),
        (&[0, 0x82, 0xff, 0xff, 0], "Compression(InvalidHuffman)", "COMPRESSION_ERROR"),
        (&[0, 0, 1, b'x'], "EmptyName", "PROTOCOL_ERROR"),
        (&[0, 0x7f, 0xff, 0x7f], "Compression(StringTooLong)", "ENHANCE_YOUR_CALM"),
    ] {
        let (error, goaway) = (format!("error {error}"), format!("GOAWAY 1 {code}"));
        to_server(&[headers(1, true, block)], &[&error], &[&goaway]);
    }
}

/// Section 8: stream errors. A server may respond; then the stream is reset.
#[test]
fn malformed_requests() {
    for (fields, fault) in [
        (&[("A", "b")][..], "InvalidName"),
        (&[("a", "b\n")], "InvalidValue"),
        (&[("a", "b"), (":authority", "y")], "PseudoOutOfOrder"),
        (&[(":path", "/")], "DuplicatePseudo"),
        (&[(":status", "200")], "UnknownPseudo"),
        (&[("connection", "close")], "ConnectionField"),
        (&[("transfer-encoding", "chunked")], "TransferEncoding"),
        (&[("te", "gzip")], "InvalidTe"),
        (&[("content-length", "x")], "InvalidContentLength"),
        (&[("content-length", "1")], "ContentTooShort"),
    ] {
        let mut server = server(Limits::default());
        let faulty = format!("faulty 1 Malformed({fault})");
        assert_eq!(feed(&mut server, &get_with(1, true, fields)), [faulty]);
        assert_eq!(output(&mut server), [""; 0]);
        let mut out = Vec::new();
        server.respond(id(1), 400, &mut out).unwrap().finish(true);
        server.poll_output(&mut out);
        assert_eq!(frame_texts(&out), ["HEADERS 1 400 end", "RST_STREAM 1 PROTOCOL_ERROR"]);
        assert_eq!(server.open_streams(), 0);
        assert_eq!(feed(&mut server, &get(3)), ["request 3 end"]);
    }
    to_server(&[headers(1, true, &[0x82])], &["faulty 1 Malformed(MissingScheme)"], &[]);
}

#[test]
fn malformed_bodies() {
    let five = |end| get_with(1, end, &[("content-length", "5")]);
    for (input, fault) in [
        (vec![five(false), data(1, true, b"four")], "ContentTooShort"),
        (vec![five(false), data(1, false, b"sixsix")], "ContentTooLong"),
        (vec![five(false), headers(1, true, &block(&[("a", "b")]))], "ContentTooShort"),
        (vec![post(1), headers(1, false, &block(&[("a", "b")]))], "TrailersWithoutEnd"),
        (vec![post(1), headers(1, true, &block(&[(":path", "/")]))], "PseudoInTrailers"),
        (vec![post(1), headers(1, true, &block(&[("A", "b")]))], "InvalidName"),
    ] {
        let faulty = format!("faulty 1 Malformed({fault})");
        let after = [input, vec![data(1, false, b"ignored")]].concat();
        let mut server = server(Limits::default());
        assert_eq!(feed(&mut server, &after.concat()), ["request 1", &faulty]);
        server.reset(id(1), nowait_h2::ErrorCode::PROTOCOL_ERROR);
        assert_eq!(output(&mut server), ["RST_STREAM 1 PROTOCOL_ERROR"]);
    }
}

/// A request may turn out malformed when its response has begun.
#[test]
fn malformed_during_the_response() {
    let mut server = server(Limits::default());
    assert_eq!(feed(&mut server, &get_with(1, false, &[("content-length", "1")])), ["request 1"]);
    let mut out = Vec::new();
    server.respond(id(1), 200, &mut out).unwrap().finish(false);
    let fault = ["faulty 1 Malformed(ContentTooLong)"];
    assert_eq!(feed(&mut server, &data(1, true, b"xx")), fault);
    server.data_header(id(1), 0, true, &mut out).unwrap();
    assert_eq!(output(&mut server), ["RST_STREAM 1 PROTOCOL_ERROR"]);
    assert_eq!(server.open_streams(), 0);
}

/// Section 6.9: windows.
#[test]
fn windows() {
    to_server(
        &[get(1), window_update(1, 0)],
        &["request 1 end", "broken 1 ZeroIncrement"],
        &["RST_STREAM 1 PROTOCOL_ERROR"],
    );
    to_server(
        &[get(1), window_update(1, 0x7fff_ffff)],
        &["request 1 end", "broken 1 WindowOverflow"],
        &["RST_STREAM 1 FLOW_CONTROL_ERROR"],
    );
    let limits = Limits { stream_window: 10, ..Limits::default() };
    let mut small = server(limits);
    let input = [post(1), data(1, false, b"0123456789"), post(3), data(3, false, b"0123456789x")];
    let (events, _) = feed_to(&mut small, &input.concat(), &mut FieldRecorder::default(), false);
    let data = "data 1 \"0123456789\"";
    assert_eq!(events, ["request 1", data, "request 3", "broken 3 FlowControl"]);
    assert_eq!(output(&mut small), ["RST_STREAM 3 FLOW_CONTROL_ERROR"]);

    let limits = Limits { connection_window: 0, stream_window: 1 << 20, ..Limits::default() };
    let mut small = server(limits);
    let input = [post(1), support::data(1, false, &[b'x'; 16_384]).repeat(4)].concat();
    let (events, _) = feed_to(&mut small, &input, &mut FieldRecorder::default(), false);
    assert_eq!(events.last().unwrap(), "error FlowControl");
    assert_eq!(output(&mut small), ["GOAWAY 1 FLOW_CONTROL_ERROR"]);
}

#[test]
fn padding_of_data() {
    let padded = |payload: &[u8]| frame(FrameType::Data, PADDED, 1, payload);
    to_server(
        &[post(1), padded(&[2, b'x', 0, 0]), padded(&[3, 0, 0, 0]), padded(&[4, 0, 0, 0])],
        &["request 1", "data 1 \"x\"", "error Padding(Data)"],
        &["GOAWAY 1 PROTOCOL_ERROR"],
    );
}

/// Padding, and data that nothing gets, returns to the windows at once.
#[test]
fn windows_lose_nothing() {
    let small = Limits { connection_window: 0, stream_window: 65_535, ..Limits::default() };
    let padded = frame(FrameType::Data, PADDED, 1, &[&[255, b'x'][..], &[0; 255]].concat());
    let mut padding = server(small);
    assert_eq!(feed(&mut padding, &post(1)), ["request 1"]);
    assert_eq!(feed(&mut padding, &padded.repeat(1000)).last().unwrap(), "data 1 \"x\"");

    let mut closed = server(small);
    assert_eq!(feed(&mut closed, &post(1)), ["request 1"]);
    closed.reset(id(1), nowait_h2::ErrorCode::CANCEL);
    assert_eq!(feed(&mut closed, &data(1, false, &[0; 16_384]).repeat(20)), [""; 0]);
}

/// The client's side of section 8.
#[test]
fn responses() {
    for (input, events, code) in [
        (data(1, false, b"x"), "broken 1 Malformed(DataBeforeHead)", "PROTOCOL_ERROR"),
        (headers(1, true, &[0x82]), "broken 1 Malformed(UnknownPseudo)", "PROTOCOL_ERROR"),
        (headers(1, true, &[]), "broken 1 Malformed(MissingStatus)", "PROTOCOL_ERROR"),
        (
            headers(1, true, &block(&[(":status", "2x")])),
            "broken 1 Malformed(InvalidStatus)",
            "PROTOCOL_ERROR",
        ),
        (
            headers(1, true, &block(&[(":status", "100")])),
            "broken 1 Malformed(InvalidInterim)",
            "PROTOCOL_ERROR",
        ),
        (
            headers(1, false, &block(&[(":status", "101")])),
            "broken 1 Malformed(InvalidInterim)",
            "PROTOCOL_ERROR",
        ),
        (
            headers(1, true, &block(&[(":status", "200"), ("content-length", "3")])),
            "broken 1 Malformed(ContentTooShort)",
            "PROTOCOL_ERROR",
        ),
    ] {
        to_client(&[input], &[events], &[&format!("RST_STREAM 1 {code}")]);
    }
    let error = |input: Vec<u8>, error: &str| {
        to_client(&[input], &[&format!("error {error}")], &["GOAWAY 0 PROTOCOL_ERROR"]);
    };
    error(headers(5, true, OK), "IdleStream(Headers)");
    error(data(5, true, b""), "IdleStream(Data)");
    error(headers(2, true, OK), "StreamIdentifier(Headers)");
    error(frame(FrameType::PushPromise, END_HEADERS, 1, &[0, 0, 0, 2, 0x82]), "PushPromise");
    to_client(
        &[headers(1, true, OK), headers(1, true, OK), data(1, true, b"x")],
        &["response 1 200 end"],
        &["RST_STREAM 1 STREAM_CLOSED"],
    );
}

/// "A request or response is also malformed if the value of a content-length header field does not equal the
/// sum of the DATA frame payload lengths" (section 8.1.1), and some responses have no content no matter what they
/// say.
#[test]
fn responses_are_as_long_as_they_say() {
    let head = |status, length| block(&[(":status", status), ("content-length", length)]);
    for (status, length, content, fault) in [
        ("200", "3", &b"four"[..], "ContentTooLong"),
        ("200", "3", b"ab", "ContentTooShort"),
        ("200", "0", b"x", "ContentTooLong"),
        ("204", "1", b"x", "ContentTooLong"),
        ("304", "1", b"x", "ContentTooLong"),
    ] {
        to_client(
            &[headers(1, false, &head(status, length)), data(1, true, content)],
            &[&format!("response 1 {status}"), &format!("broken 1 Malformed({fault})")],
            &["RST_STREAM 1 PROTOCOL_ERROR"],
        );
    }
    let mut client = nowait_h2::client::ClientConnection::new(Limits::default());
    client.open(&request(b"HEAD"), &mut Vec::new()).unwrap().finish(true);
    let input = [settings(&[]), headers(1, false, &head("200", "1")), data(1, true, b"x")].concat();
    let events = feed(&mut client, &input);
    assert_eq!(events[events.len() - 1], "broken 1 Malformed(ContentTooLong)", "{events:?}");
}

/// What an upstream server may do.
#[test]
fn lawful_responses() {
    let interim = headers(1, false, &block(&[(":status", "103"), ("link", "x")]));
    to_client(
        &[
            interim.clone(),
            interim,
            headers(1, false, OK),
            data(1, false, b"abc"),
            headers(1, true, &block(&[("grpc-status", "0")])),
            headers(3, true, &block(&[(":status", "304"), ("content-length", "9")])),
        ],
        &[
            "interim 1 103",
            "interim 1 103",
            "response 1 200",
            "data 1 \"abc\"",
            "trailers 1",
            "response 3 304 end",
        ],
        &[],
    );
    to_client(
        &[frame(FrameType::GoAway, 0, 0, &[0, 0, 0, 1, 0, 0, 0, 0]), headers(1, true, OK)],
        &["goaway 1 NO_ERROR", "reset 3 REFUSED_STREAM", "response 1 200 end"],
        &[],
    );
}

/// Unknown frames, flags and codes have no meaning.
#[test]
fn extensions() {
    to_server(
        &[
            frame(FrameType::Unknown(0x11), 0xff, 0, b"u=1"),
            frame(FrameType::Unknown(0xff), 0, 77, &[0; 300]),
            frame(FrameType::Headers, 0xd5, 1, GET),
            frame(FrameType::RstStream, 0xff, 1, &[0, 0, 1, 0]),
            frame(FrameType::Ping, 0xfe, 0, b"SEE-THIS"),
            frame(FrameType::GoAway, 0, 0, b"\0\0\0\0\0\0\0\xffdebug"),
        ],
        &["request 1 end", "reset 1 0x100", "goaway 0 0xff"],
        &["PING SEE-THIS ack"],
    );
}

/// RFC 9218 section 7.1.
#[test]
fn priorities_may_change_and_may_come_early() {
    let update = |stream: u32, value: &[u8]| {
        frame(FrameType::PriorityUpdate, 0, 0, &[&stream.to_be_bytes()[..], value].concat())
    };
    let mut server = server(Limits::default());
    let input = [update(5, b"u=1"), get(1), get(3), update(3, b"u=0"), get(5), update(99, b"u=0")];
    assert_eq!(
        feed(&mut server, &input.concat()),
        ["request 1 end", "request 3 end", "request 5 end"]
    );
    // The frame has precedence over the field.
    server.set_priority(StreamId::new(5), Priority { urgency: 7, incremental: true });
    for number in [1, 3, 5] {
        server.respond(StreamId::new(number), 200, &mut Vec::new()).unwrap().finish(false);
        server.set_ready(StreamId::new(number), true);
    }
    let order: Vec<u32> = (0..3)
        .map(|_| {
            let next = server.next_ready().unwrap();
            server.set_ready(next, false);
            next.get()
        })
        .collect();
    assert_eq!(order, [3, 5, 1]);
    // Of a stream that is gone, and with nothing in it.
    server.reset(StreamId::new(1), ErrorCode::CANCEL);
    assert!(feed(&mut server, &[update(1, b"u=0"), update(3, b"")].concat()).is_empty());
    for wrong in [update(0, b"u=1"), update(2, b"u=1")] {
        let mut server = support::server(Limits::default());
        assert_eq!(
            error_of(&mut server, &wrong),
            Some(ConnectionError::StreamIdentifier(FrameType::PriorityUpdate))
        );
    }
    let mut server = support::server(Limits::default());
    let long = update(1, &[b' '; 300]);
    assert_eq!(
        error_of(&mut server, &long),
        Some(ConnectionError::FrameLength(FrameType::PriorityUpdate))
    );
}
