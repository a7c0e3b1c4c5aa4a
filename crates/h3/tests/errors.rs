//! Every error of RFC 9114 and RFC 9204, by the input that provokes it.

mod support;

use nowait_h3::{ConnectionError, CriticalStream, ErrorCode, Limits, StreamId};
use support::*;

/// A server with the client's streams: control on 2, encoder on 6, decoder on 10.
fn server() -> Server {
    let mut server = Server::server(Limits::default());
    server.receive(2, &[0, 4, 0], false).unwrap();
    assert_eq!(server.take_events(), ["settings"]);
    server
}

/// The code with which the connection ends.
fn code(result: Result<(), ConnectionError>) -> ErrorCode {
    result.expect_err("an error").code()
}

/// The code after input on the control stream.
fn control(input: &[u8]) -> ErrorCode {
    code(server().receive(2, input, false))
}

/// The code after input on a request stream, of whose frames all are complete.
fn on_request(input: &[&[u8]], end: bool) -> ErrorCode {
    code(server().receive(0, &input.concat(), end))
}

/// What happens to a request of these bytes.
fn events(input: &[&[u8]], end: bool) -> Vec<String> {
    let mut server = server();
    server.receive(0, &input.concat(), end).unwrap();
    server.take_events()
}

#[test]
fn stream_creation_error() {
    for kind in [0u8, 2, 3] {
        let mut server = Server::server(Limits::default());
        server.receive(2, &[kind], false).unwrap();
        assert_eq!(code(server.receive(6, &[kind], false)), ErrorCode::H3_STREAM_CREATION_ERROR);
        // The connection is lost.
        let again = server.core.accept(StreamId::new(0));
        assert_eq!(again.unwrap_err().code(), ErrorCode::H3_STREAM_CREATION_ERROR);
    }
    // A push from a client, and a server's bidirectional stream.
    assert_eq!(code(server().receive(6, &[1], false)), ErrorCode::H3_STREAM_CREATION_ERROR);
    let mut client = Client::client(Limits::default());
    assert_eq!(code(client.receive(1, &[], false)), ErrorCode::H3_STREAM_CREATION_ERROR);
    // Unknown types have no effect.
    let mut server = server();
    server.receive(6, &[0x40, 0x21], false).unwrap();
    assert_eq!(server.take_events(), ["useless 6 H3_STREAM_CREATION_ERROR"]);
}

#[test]
fn closed_critical_stream() {
    for kind in [0u8, 2, 3] {
        let ends = |how: &dyn Fn(&mut Server) -> Result<(), ConnectionError>| {
            let mut server = Server::server(Limits::default());
            server.receive(2, &[kind], false).unwrap();
            assert_eq!(code(how(&mut server)), ErrorCode::H3_CLOSED_CRITICAL_STREAM);
        };
        ends(&|server| server.receive(2, &[], true));
        ends(&|server| server.core.peer_reset(id(2)).map(|_| ()));
        ends(&|server| Err(server.core.critical_stream_stopped()));
    }
    // One whose type never came is none of them.
    let mut server = server();
    server.receive(6, &[], false).unwrap();
    assert_eq!(server.core.peer_reset(id(6)), Ok(false));
    server.receive(14, &[], true).unwrap();
}

#[test]
fn missing_settings() {
    for input in [&[0, 0x7, 1, 0][..], &[0, 0x21, 0], &[0, 0x0, 0], &[0, 0xd, 1, 0]] {
        let mut server = Server::server(Limits::default());
        assert_eq!(code(server.receive(2, input, false)), ErrorCode::H3_MISSING_SETTINGS);
    }
}

#[test]
fn frame_unexpected() {
    let is = ErrorCode::H3_FRAME_UNEXPECTED;
    // A second SETTINGS, and frames of requests, on the control stream.
    for kind in [0x4, 0x0, 0x1, 0x5, 0x2, 0x6, 0x8, 0x9] {
        assert_eq!(control(&frame(kind, &[])), is, "{kind:#x}");
    }
    // Frames of the control stream, on a request's.
    for kind in [0x3, 0x4, 0x5, 0x7, 0xd, 0x2, 0x6, 0x8, 0x9, 0xf0700, 0xf0701] {
        assert_eq!(on_request(&[&frame(kind, &[0])], false), is, "{kind:#x}");
        assert_eq!(on_request(&[&headers(&GET), &frame(kind, &[0])], false), is, "{kind:#x}");
    }
    let trailers = headers(&[("a", "b")]);
    let data = frame(0, b"x");
    assert_eq!(on_request(&[&data], false), is);
    assert_eq!(on_request(&[&headers(&POST), &trailers, &data], false), is);
    assert_eq!(on_request(&[&headers(&POST), &trailers, &trailers], false), is);
    // In a tunnel, only DATA.
    let connect = headers(&[(":method", "CONNECT"), (":authority", "x:1")]);
    assert_eq!(on_request(&[&connect, &data, &trailers], false), is);
    // What only clients may send.
    for kind in [0xd, 0xf0700, 0xf0701] {
        let mut client = Client::client(Limits::default());
        client.receive(3, &[0, 4, 0], false).unwrap();
        assert_eq!(code(client.receive(3, &frame(kind, &[0]), false)), is, "{kind:#x}");
    }
}

#[test]
fn frame_error() {
    let is = ErrorCode::H3_FRAME_ERROR;
    for kind in [0x7, 0xd, 0x3] {
        for payload in [&[][..], &[0x40], &[1, 0], &[0; 9]] {
            assert_eq!(control(&frame(kind, payload)), is, "{kind:#x} {payload:?}");
        }
    }
    assert_eq!(control(&frame(0xf0700, &[])), is);
    let mut server = Server::server(Limits::default());
    assert_eq!(code(server.receive(2, &[0, 4, 1, 1], false)), is);
    // A stream that ends inside of a frame, or of its header.
    let post = headers(&POST);
    for cut in 1..post.len() {
        assert_eq!(on_request(&[&post[..cut]], true), is, "{cut}");
    }
    for rest in [&[0][..], &[0, 2, b'x'], &[0x40], &[0x21, 9, 0]] {
        assert_eq!(on_request(&[&post, rest], true), is, "{rest:?}");
    }
}

#[test]
fn excessive_load() {
    let is = ErrorCode::H3_EXCESSIVE_LOAD;
    assert_eq!(control(&frame(0xf0700, &[0; 400])), is);
    let mut server = Server::server(Limits::default());
    let settings = frame(4, &[0x21; 1026]);
    server.receive(2, &[0], false).unwrap();
    assert_eq!(code(server.receive(2, &settings, false)), is);
}

#[test]
fn id_error() {
    let is = ErrorCode::H3_ID_ERROR;
    // Nothing is pushed.
    assert_eq!(control(&frame(0x3, &[0])), is);
    assert_eq!(control(&frame(0xf0701, &[0])), is);
    assert_eq!(control(&[frame(0xd, &[5]), frame(0xd, &[4])].concat()), is);
    assert_eq!(control(&[frame(0x7, &[4]), frame(0x7, &[8])].concat()), is);
    // Not a request's stream.
    for stream in [1, 2, 3] {
        assert_eq!(control(&frame(0xf0700, &[stream])), is);
        let mut client = Client::client(Limits::default());
        client.receive(3, &[0, 4, 0], false).unwrap();
        assert_eq!(code(client.receive(3, &frame(0x7, &[stream]), false)), is);
    }
    // A push that a client has not allowed.
    let mut client = Client::client(Limits::default());
    assert_eq!(code(client.receive(3, &[1], false)), is);
    let mut client = Client::client(Limits::default());
    let mut out = Vec::new();
    client.core.open(id(0), &request(b"GET"), &mut out).unwrap().finish(true);
    assert_eq!(code(client.receive(0, &frame(0x5, &[0, 0, 0]), false)), is);
}

#[test]
fn settings_error() {
    for payload in [&[0x2, 0][..], &[0x3, 0], &[0x4, 0], &[0x5, 0], &[0x8, 2], &[0x7, 0, 0x7, 0]] {
        let mut server = Server::server(Limits::default());
        server.receive(2, &[0], false).unwrap();
        let error = code(server.receive(2, &frame(4, payload), false));
        assert_eq!(error, ErrorCode::H3_SETTINGS_ERROR, "{payload:?}");
    }
}

#[test]
fn request_incomplete() {
    for input in [&[][..], &frame(0x21, b"grease")] {
        assert_eq!(events(&[input], true), ["error 0 H3_REQUEST_INCOMPLETE"]);
    }
}

#[test]
fn message_error() {
    let bad = "error 0 H3_MESSAGE_ERROR answerable";
    for fields in [
        &[][..],
        &GET[1..],
        &[GET[0], GET[0], GET[1], GET[2]],
        &[GET[0], GET[1], GET[2], ("A", "b")],
        &[GET[0], GET[1], GET[2], ("", "b")],
        &[GET[0], GET[1], GET[2], ("a", "b\n")],
        &[GET[0], GET[1], GET[2], ("connection", "close")],
        &[GET[0], GET[1], GET[2], ("transfer-encoding", "chunked")],
        &[GET[0], GET[1], GET[2], ("te", "gzip")],
        &[GET[0], GET[1], GET[2], ("a", "b"), GET[3]],
        &[GET[0], GET[1], GET[2], (":status", "200")],
        &[GET[0], GET[1], GET[2], (":protocol", "websocket")],
        &[GET[0], GET[1], GET[2], ("content-length", "x")],
    ] {
        assert_eq!(events(&[&headers(fields)], false), [bad], "{fields:?}");
    }
    // Content that is longer or shorter than the message says.
    let post = headers(&[&POST[..], &[("content-length", "3")]].concat());
    let (two, four) = (frame(0, b"ab"), frame(0, b"abcd"));
    let trailers = headers(&[("a", "b")]);
    assert_eq!(events(&[&post], true), [bad]);
    assert_eq!(events(&[&post, &four], false), ["request 0", bad]);
    assert_eq!(events(&[&post, &two], true)[1], bad);
    assert_eq!(events(&[&post, &two, &two], true)[2], bad);
    assert_eq!(events(&[&post, &two, &trailers], true)[2], bad);
    let exact = events(&[&post, &two, &frame(0, b"c"), &trailers], true);
    assert_eq!(exact, ["request 0", "data 0 \"ab\"", "data 0 \"c\"", "trailers 0"]);
    let pseudo = headers(&[(":path", "/")]);
    assert_eq!(events(&[&headers(&POST), &pseudo], true)[1], bad);
}

#[test]
fn lists_that_are_too_large() {
    let too_large = "error 0 H3_EXCESSIVE_LOAD answerable";
    let limits = Limits::default();
    let long = "x".repeat(limits.string_bytes_max as usize + 1);
    let large = "x".repeat(limits.string_bytes_max as usize);
    let field = |value: &str| headers(&[&GET[..], &[("a", value)]].concat());
    assert_eq!(events(&[&field(&large)], true), ["request 0 end"]);
    assert_eq!(events(&[&field(&long)], true), [too_large]);
    let several: Vec<_> = GET.into_iter().chain([("a", large.as_str()); 4]).collect();
    assert_eq!(events(&[&headers(&several)], true), [too_large]);
    let many: Vec<_> = GET.into_iter().chain([("a", ""); 1000]).collect();
    assert_eq!(events(&[&headers(&many)], true), [too_large]);
    // A section that is larger than any that could be read is not kept.
    let header = [0x1, 0x80, 0x01, 0x00, 0x01];
    assert_eq!(events(&[&header], false), [too_large]);
    // Indexed fields cost an octet each, and count as what they stand for.
    let bomb = [&[0, 0][..], &[0xc0 | 15; 3], &vec![0xff, 85 - 63][..].repeat(900)].concat();
    assert_eq!(events(&[&frame(1, &bomb)], true), [too_large]);
}

#[test]
fn qpack_decompression_failed() {
    let is = ErrorCode::QPACK_DECOMPRESSION_FAILED;
    for section in [
        // No prefix, or only a part of it.
        &[][..],
        &[0],
        // Beyond the static table.
        &[0, 0, 0xff, 0x24],
        // An empty dynamic table: by both kinds of index.
        &[0, 0, 0x80],
        &[0, 0, 0x10],
        &[0, 0, 0x40, 0],
        &[0, 0, 0x00, 0],
        // Required Insert Counts that can't be.
        &[0xff, 0x02, 0],
        &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0],
        // A base below zero.
        &[0, 0x81],
        // Cut, and invalid, strings.
        &[0, 0, 0x23, b'a', b'b'],
        &[0, 0, 0x50, 0x02, b'x'],
        &[0, 0, 0x50, 0x81, 0x00],
        &[0, 0, 0x50, 0x84, 0xff, 0xff, 0xff, 0xff],
    ] {
        assert_eq!(on_request(&[&frame(1, section)], false), is, "{section:x?}");
    }
}

#[test]
fn a_required_insert_count_is_large_enough() {
    let inserted = |section: &[u8]| {
        let mut server = server();
        // Capacity 220, then two entries.
        let instructions = [0x3f, 0xbd, 0x01, 0x41, b'a', 1, b'1', 0x41, b'b', 1, b'2'];
        server.receive(6, &[&[2][..], &instructions].concat(), false).unwrap();
        server.receive(0, &frame(1, section), true)
    };
    let get = [0xc0 | 17, 0xc0 | 23, 0xc0 | 1, 0xc0];
    // Both entries, before and behind the base.
    inserted(&[&[3, 0][..], &get, &[0x80, 0x81]].concat()).unwrap();
    inserted(&[&[3, 0x81][..], &get, &[0x10, 0x11]].concat()).unwrap();
    inserted(&[&[2, 0][..], &get, &[0x80]].concat()).unwrap();
    // More than what is needed.
    inserted(&[&[3, 0][..], &get, &[0x81]].concat()).unwrap();
    inserted(&[&[3, 0][..], &get].concat()).unwrap();
    for section in [
        // Less.
        &[&[2, 0x81][..], &get, &[0x10, 0x11]].concat()[..],
        &[&[2, 0x80][..], &get, &[0x11]].concat(),
        &[&[2, 0][..], &get, &[0x81]].concat(),
    ] {
        let error = code(inserted(section));
        assert_eq!(error, ErrorCode::QPACK_DECOMPRESSION_FAILED, "{section:x?}");
    }
}

#[test]
fn qpack_encoder_stream_error() {
    let is = ErrorCode::QPACK_ENCODER_STREAM_ERROR;
    for instructions in [
        // A capacity above ours: 4097.
        &[0x3f, 0xe2, 0x1f][..],
        // Insertions without a capacity.
        &[0x41, b'a', 1, b'1'],
        // An entry larger than the table of 32.
        &[0x3f, 0x01, 0x41, b'a', 0],
        // Beyond the static table, and into an empty dynamic one.
        &[0x3f, 0xbd, 0x01, 0xff, 0x24, 0],
        &[0x3f, 0xbd, 0x01, 0x80, 0],
        &[0x3f, 0xbd, 0x01, 0x00],
        // An invalid Huffman code.
        &[0x3f, 0xbd, 0x01, 0x41, b'a', 0x81, 0x00],
    ] {
        let mut server = server();
        server.receive(6, &[2], false).unwrap();
        assert_eq!(code(server.receive(6, instructions, false)), is, "{instructions:x?}");
    }
}

#[test]
fn strings_of_the_encoder_stream_are_bounded() {
    let limits = Limits { string_bytes_max: 100, ..Limits::default() };
    for (start, is) in [
        // Longer than any, or than the table, before it has come.
        ([2, 0x3f, 0xbd, 0x01, 0x5f, 0x47], ErrorCode::H3_EXCESSIVE_LOAD),
        ([2, 0x3f, 0x31, 0x5f, 0x47, 0], ErrorCode::QPACK_ENCODER_STREAM_ERROR),
    ] {
        let mut server = Server::server(limits);
        assert_eq!(code(server.receive(6, &start, false)), is);
    }
}

#[test]
fn qpack_decoder_stream_error() {
    let is = ErrorCode::QPACK_DECODER_STREAM_ERROR;
    for instructions in [
        // A section that has no references, or does not exist.
        &[0x80][..],
        &[0x84],
        // An increment of nothing, or beyond what was inserted.
        &[0x00],
        &[0x01],
        &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01],
    ] {
        let mut server = server();
        server.receive(10, &[3], false).unwrap();
        assert_eq!(code(server.receive(10, instructions, false)), is, "{instructions:x?}");
    }
    // A cancellation of anything is none.
    let mut server = server();
    server.receive(10, &[3, 0x40, 0x44], false).unwrap();
}

#[test]
fn blocked_streams_are_bounded() {
    let limits = Limits { blocked_streams: 2, ..Limits::default() };
    let mut server = Server::server(limits);
    server.receive(2, &[0, 4, 0], false).unwrap();
    server.take_events();
    server.receive(6, &[2, 0x3f, 0xbd, 0x01], false).unwrap();
    let section = [2, 0, 0xc0 | 17, 0xc0 | 23, 0xc0 | 1, 0xc0, 0x80];
    for stream in [0, 4] {
        server.receive(stream, &frame(1, &section), true).unwrap();
    }
    assert_eq!(server.take_events(), ["blocked 0", "blocked 4"]);
    // One that is cancelled no longer counts.
    assert_eq!(server.core.peer_reset(id(4)), Ok(true));
    server.receive(8, &frame(1, &section), true).unwrap();
    assert_eq!(server.take_events(), ["blocked 8"]);
    // The entry comes, in pieces.
    for octet in [0x41, b'a', 1] {
        server.receive(6, &[octet], false).unwrap();
    }
    assert!(server.take_events().is_empty());
    server.receive(6, b"1", false).unwrap();
    assert_eq!(server.take_events(), ["request 0 end", "request 8 end"]);
    assert_eq!(server.sink.fields[4], "a: 1");
    // Cancellation, insertion, and both sections.
    assert_eq!(server.take_output(CriticalStream::Decoder), [3, 0x44, 0x01, 0x80, 0x88]);

    let later = [3, 0, 0xc0 | 17, 0xc0 | 23, 0xc0 | 1, 0xc0, 0x80];
    for stream in [12, 16] {
        server.receive(stream, &frame(1, &later), true).unwrap();
    }
    let error = code(server.receive(20, &frame(1, &later), true));
    assert_eq!(error, ErrorCode::QPACK_DECOMPRESSION_FAILED);
}

#[test]
fn trailers_may_wait_for_insertions() {
    let mut server = server();
    server.receive(6, &[2, 0x3f, 0xbd, 0x01], false).unwrap();
    server.receive(0, &headers(&POST), false).unwrap();
    server.receive(0, &frame(0, b"body"), false).unwrap();
    server.receive(0, &frame(1, &[2, 0, 0x80]), true).unwrap();
    assert_eq!(server.take_events(), ["request 0", "data 0 \"body\"", "blocked 0"]);
    server.receive(6, &[0x41, b'a', 1, b'1'], false).unwrap();
    assert_eq!(server.take_events(), ["trailers 0"]);
    assert_eq!(server.sink.fields, ["a: 1"]);
}

#[test]
fn responses() {
    let events = |input: &[&[u8]], end: bool, method: &'static [u8]| {
        let mut client = Client::client(Limits::default());
        client.core.open(id(0), &request(method), &mut Vec::new()).unwrap().finish(true);
        client.receive(0, &input.concat(), end).unwrap();
        client.take_events()
    };
    let bad = ["error 0 H3_MESSAGE_ERROR"];
    let ok = headers(&[(":status", "200"), ("content-length", "2")]);
    let body = frame(0, b"ab");
    assert_eq!(events(&[&ok, &body], true, b"GET"), ["response 0 200", "data 0 \"ab\" end"]);
    assert_eq!(events(&[&ok], true, b"HEAD"), ["response 0 200 end"]);
    assert_eq!(events(&[&ok, &body], true, b"HEAD")[1..], bad);
    assert_eq!(events(&[&ok], true, b"GET"), bad);
    let none = headers(&[(":status", "204")]);
    assert_eq!(events(&[&none, &body], true, b"GET")[1..], bad);
    assert_eq!(events(&[&headers(&[(":status", "101")])], false, b"GET"), bad);
    assert_eq!(events(&[&headers(&[(":status", "103")])], true, b"GET"), bad);
    assert_eq!(events(&[&headers(&[("a", "b")])], true, b"GET"), bad);
    let hint = headers(&[(":status", "103")]);
    assert_eq!(events(&[&hint.repeat(33)], false, b"GET")[32..], bad);
}
