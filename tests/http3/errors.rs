//! What the RFCs name as errors of a connection, and their codes.

use nowait_testkit::Server;
use nowait_testkit::http3::{Http3, code, frame, frame_of, setting, varint};

use crate::stage::{http3, on_each_driver, server};

/// What a client does, on a new connection.
type Offence = fn(&mut Http3);

#[test]
fn the_codes_of_errors() {
    let offences: &[(&str, u64, Offence)] = &[
        ("DATA before a head", code::FRAME_UNEXPECTED, |http3| {
            let id = http3.open_stream();
            http3.frame(id, frame::DATA, b"x");
        }),
        ("SETTINGS on a request's stream", code::FRAME_UNEXPECTED, |http3| {
            let id = http3.open_stream();
            http3.frame(id, frame::SETTINGS, b"");
        }),
        ("GOAWAY on a request's stream", code::FRAME_UNEXPECTED, |http3| {
            let id = http3.open_stream();
            http3.frame(id, frame::GOAWAY, &[0]);
        }),
        ("MAX_PUSH_ID on a request's stream", code::FRAME_UNEXPECTED, |http3| {
            let id = http3.open_stream();
            http3.frame(id, frame::MAX_PUSH_ID, &[0]);
        }),
        ("CANCEL_PUSH on a request's stream", code::FRAME_UNEXPECTED, |http3| {
            let id = http3.open_stream();
            http3.frame(id, frame::CANCEL_PUSH, &[0]);
        }),
        ("PUSH_PROMISE of a client", code::FRAME_UNEXPECTED, |http3| {
            let id = http3.open_stream();
            http3.frame(id, frame::PUSH_PROMISE, &[0, 0, 0]);
        }),
        ("PUSH_PROMISE on the control stream", code::FRAME_UNEXPECTED, |http3| {
            http3.frame(http3.control, frame::PUSH_PROMISE, &[0]);
        }),
        ("HEADERS on the control stream", code::FRAME_UNEXPECTED, |http3| {
            http3.frame(http3.control, frame::HEADERS, &[0, 0]);
        }),
        ("DATA on the control stream", code::FRAME_UNEXPECTED, |http3| {
            http3.frame(http3.control, frame::DATA, b"x");
        }),
        ("a type of HTTP/2", code::FRAME_UNEXPECTED, |http3| {
            http3.frame(http3.control, 6, b"");
        }),
        ("a type of HTTP/2 on a request's stream", code::FRAME_UNEXPECTED, |http3| {
            let id = http3.open_stream();
            http3.frame(id, 8, b"");
        }),
        ("second settings", code::FRAME_UNEXPECTED, |http3| {
            http3.frame(http3.control, frame::SETTINGS, b"");
        }),
        ("GOAWAY that grows", code::ID_ERROR, |http3| {
            http3.frame(http3.control, frame::GOAWAY, &varint(4));
            http3.frame(http3.control, frame::GOAWAY, &varint(8));
        }),
        ("MAX_PUSH_ID that shrinks", code::ID_ERROR, |http3| {
            http3.frame(http3.control, frame::MAX_PUSH_ID, &varint(4));
            http3.frame(http3.control, frame::MAX_PUSH_ID, &varint(2));
        }),
        ("CANCEL_PUSH of a push that there is none of", code::ID_ERROR, |http3| {
            http3.frame(http3.control, frame::CANCEL_PUSH, &varint(1));
        }),
        ("a frame with too much in it", code::FRAME_ERROR, |http3| {
            http3.frame(http3.control, frame::GOAWAY, &[0, 0]);
        }),
        ("a frame with too little in it", code::FRAME_ERROR, |http3| {
            http3.frame(http3.control, frame::MAX_PUSH_ID, b"");
        }),
        ("the control stream ends", code::CLOSED_CRITICAL_STREAM, |http3| {
            http3.quic.finish(http3.control);
        }),
        ("the control stream is reset", code::CLOSED_CRITICAL_STREAM, |http3| {
            http3.quic.reset(http3.control, 0);
        }),
        ("the encoder stream ends", code::CLOSED_CRITICAL_STREAM, |http3| {
            http3.quic.finish(http3.encoder);
        }),
        ("the decoder stream ends", code::CLOSED_CRITICAL_STREAM, |http3| {
            http3.quic.finish(http3.decoder);
        }),
        ("a second control stream", code::STREAM_CREATION_ERROR, |http3| {
            http3.open_uni(0);
        }),
        ("a second encoder stream", code::STREAM_CREATION_ERROR, |http3| {
            http3.open_uni(2);
        }),
        ("a push stream of a client", code::STREAM_CREATION_ERROR, |http3| {
            http3.open_uni(1);
        }),
        ("a section that refers to nothing", code::QPACK_DECOMPRESSION_FAILED, |http3| {
            let id = http3.open_stream();
            http3.frame(id, frame::HEADERS, &[0, 0, 0x80]);
        }),
        ("a static entry that does not exist", code::QPACK_DECOMPRESSION_FAILED, |http3| {
            let id = http3.open_stream();
            http3.frame(id, frame::HEADERS, &[0, 0, 0xff, 0x40]);
        }),
        ("a section that is cut off", code::QPACK_DECOMPRESSION_FAILED, |http3| {
            let id = http3.open_stream();
            http3.frame(id, frame::HEADERS, &[0, 0, 0x27]);
        }),
        ("an instruction that refers to nothing", code::QPACK_ENCODER_STREAM_ERROR, |http3| {
            http3.quic.write(http3.encoder, &[0x80, 0]);
        }),
        ("a table that is too large", code::QPACK_ENCODER_STREAM_ERROR, |http3| {
            http3.quic.write(http3.encoder, &[0x3f, 0xff, 0xff, 0xff, 0x7f]);
        }),
        ("an acknowledgement of nothing", code::QPACK_DECODER_STREAM_ERROR, |http3| {
            http3.quic.write(http3.decoder, &[0x80]);
        }),
        ("an increment of zero", code::QPACK_DECODER_STREAM_ERROR, |http3| {
            http3.quic.write(http3.decoder, &[0]);
        }),
        ("an increment beyond the table", code::QPACK_DECODER_STREAM_ERROR, |http3| {
            http3.quic.write(http3.decoder, &[5]);
        }),
    ];
    let builder = server("").file("html/page", "page");
    on_each_driver(&builder, |server| {
        for (what, expected, offend) in offences {
            eprintln!("{what}");
            let mut http3 = http3(server);
            assert_eq!(http3.get("/page").text(), "page");
            offend(&mut http3);
            assert_eq!(http3.close_code(), *expected, "{what}");
        }
        assert_eq!(http3(server).get("/page").text(), "page");
    });
}

/// A connection whose control stream says this.
#[track_caller]
fn closes_after(server: &Server, control: &[u8], expected: u64) {
    let options = crate::stage::trusting_options();
    let mut quic = nowait_testkit::quic::Quic::connect(server.port(), &options.quic).unwrap();
    let id = quic.open(nowait_testkit::quic::Dir::Uni);
    quic.write(id, &varint(0));
    quic.write(id, control);
    quic.until("the end of the connection", |quic| quic.lost().is_some());
    assert_eq!(quic.close_code(), Some(expected), "{control:?}: {:?}", quic.lost());
}

#[test]
fn errors_of_the_first_frames() {
    let setting = |name: u64, value: u64| [varint(name), varint(value)].concat();
    let cases: Vec<(Vec<u8>, u64)> = vec![
        (frame_of(frame::GOAWAY, &[0]), code::MISSING_SETTINGS),
        (frame_of(0x21, b""), code::MISSING_SETTINGS),
        (frame_of(frame::SETTINGS, &setting(2, 0)), code::SETTINGS_ERROR),
        (frame_of(frame::SETTINGS, &setting(4, 1)), code::SETTINGS_ERROR),
        (frame_of(frame::SETTINGS, &[setting(6, 1), setting(6, 1)].concat()), code::SETTINGS_ERROR),
        (
            frame_of(frame::SETTINGS, &setting(setting::ENABLE_CONNECT_PROTOCOL, 2)),
            code::SETTINGS_ERROR,
        ),
        (frame_of(frame::SETTINGS, &[6]), code::FRAME_ERROR),
    ];
    on_each_driver(&server(""), |server| {
        for (control, expected) in &cases {
            closes_after(server, control, *expected);
        }
    });
}

#[test]
fn what_clients_do_wrong_is_logged_at_info() {
    on_each_driver(&server(""), |server| {
        let mut http3 = http3(server);
        http3.frame(http3.control, frame::DATA, b"x");
        assert_eq!(http3.close_code(), code::FRAME_UNEXPECTED);
        server.wait_log("client: 127.0.0.1");
        assert!(!server.log().contains("[error]"), "{}", server.log());
    });
}
