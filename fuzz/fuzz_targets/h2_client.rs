//! The client's side of HTTP/2: the same events however the input is cut, in a possible order.
//!
//! Input: limits and requests, cuts, then the bytes of a server; after its settings unless limits say
//! otherwise.
#![no_main]

use libfuzzer_sys::fuzz_target;
use nowait_fuzz::h2::{Order, check_output, feed, limits};
use nowait_fuzz::pieces;
use nowait_h2::Event;
use nowait_h2::client::{ClientConnection, RequestControl};

fuzz_target!(|data: &[u8]| {
    let [choice, cuts, rest @ ..] = data else { return };
    let settings = [0, 0, 0, 4, 0, 0, 0, 0, 0];
    let input = match choice & 4 {
        0 => [&settings, rest].concat(),
        _ => rest.to_vec(),
    };
    let listen = |cuts: Option<u8>| {
        let (mut connection, mut order, _) = client(*choice);
        match cuts {
            None => feed(&mut connection, &mut order, std::iter::once(&input[..]), |_, _, _| {}),
            Some(cuts) => feed(&mut connection, &mut order, pieces(&input, cuts), |_, _, _| {}),
        }
    };
    assert_eq!(listen(None), listen(Some(*cuts)));

    let (mut connection, mut order, mut output) = client(*choice);
    let (_, more) = feed(&mut connection, &mut order, pieces(&input, *cuts), send);
    output.extend(more);
    check_output(&output[nowait_h2::frame::PREFACE.len()..]);
});

/// A client that waits for four responses.
fn client(choice: u8) -> (ClientConnection, Order, Vec<u8>) {
    let mut connection = ClientConnection::new(limits(choice));
    let (mut order, mut out) = (Order::default(), Vec::new());
    for (number, method) in ["GET", "HEAD", "POST", "CONNECT"].iter().enumerate() {
        let request = RequestControl {
            method: method.as_bytes(),
            scheme: b"https",
            authority: b"example",
            path: b"/",
            protocol: None,
        };
        let mut head = connection.open(&request, &mut out).expect("there is no limit yet");
        head.field(b"X-Odd", b" value\r\n").field(b"Connection", b"close");
        order.open(head.finish(choice >> number & 8 == 0));
    }
    (connection, order, out)
}

/// Takes data and sends some.
fn send(connection: &mut ClientConnection, event: &Event, out: &mut Vec<u8>) {
    if let Event::Data { stream, ref range, .. } = *event {
        connection.taken(stream, range.len());
    }
    for stream in connection.streams().collect::<Vec<_>>() {
        let length = connection.reserve(stream, 500);
        if length > 0 {
            connection.data_header(stream, length, length % 2 == 1, out).expect("it was reserved");
            out.resize(out.len() + length, b'x');
        }
    }
}
