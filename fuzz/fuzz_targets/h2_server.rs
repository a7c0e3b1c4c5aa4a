//! The server's side of HTTP/2: the same events however the input is cut, in a possible order, and
//! well-formed frames as answers.
//!
//! Input: limits, cuts, then the bytes of a connection; after its preface unless limits say otherwise.
#![no_main]

use libfuzzer_sys::fuzz_target;
use nowait_fuzz::h2::{Order, check_output, feed, limits};
use nowait_fuzz::pieces;
use nowait_h2::frame::PREFACE;
use nowait_h2::server::ServerConnection;
use nowait_h2::{ErrorCode, Event};

fuzz_target!(|data: &[u8]| {
    let [choice, cuts, rest @ ..] = data else { return };
    let preface = [PREFACE, &[0, 0, 0, 4, 0, 0, 0, 0, 0][..]].concat();
    let input = match choice & 4 {
        0 => [&preface, rest].concat(),
        _ => rest.to_vec(),
    };
    let listen = |cuts: Option<u8>| {
        let mut connection = ServerConnection::new(limits(*choice));
        let order = &mut Order::default();
        match cuts {
            None => feed(&mut connection, order, std::iter::once(&input[..]), |_, _, _| {}),
            Some(cuts) => feed(&mut connection, order, pieces(&input, cuts), |_, _, _| {}),
        }
    };
    assert_eq!(listen(None), listen(Some(*cuts)));

    let mut connection = ServerConnection::new(limits(*choice));
    let pieces = pieces(&input, *cuts);
    let (_, output) = feed(&mut connection, &mut Order::default(), pieces, answer);
    check_output(&output);
});

/// Responds to everything, in ways that depend on the stream.
fn answer(connection: &mut ServerConnection, event: &Event, out: &mut Vec<u8>) {
    match *event {
        Event::Data { stream, ref range, .. } => connection.taken(stream, range.len()),
        Event::Request { stream, .. } | Event::StreamError { stream, answerable: true, .. } => {
            // A request may turn out malformed when its response has begun.
            let Ok(mut head) = connection.respond(stream, 200, out) else {
                return connection.reset(stream, ErrorCode::PROTOCOL_ERROR);
            };
            let end = stream.get() % 8 == 1;
            head.field(b"Server", b"nowait").field_number(b"X-Stream", stream.get().into());
            head.finish(end);
            connection.set_ready(stream, !end);
            if stream.get() % 8 == 3 {
                connection.reset(stream, ErrorCode::CANCEL);
            }
        }
        Event::Pong { .. } => connection.shrink(),
        _ => {}
    }
    for _ in 0..4 {
        let Some(stream) = connection.next_ready() else { return };
        let length = connection.reserve(stream, 1000);
        assert!(length > 0);
        let end = stream.get() % 8 == 7;
        connection.data_header(stream, length, end, out).expect("it was reserved");
        out.resize(out.len() + length, b'x');
    }
}
