//! Hostile peers: each ends at a named bound, and useful work never does.

mod support;

use nowait_h2::connection::OUTPUT_MAX;
use nowait_h2::{ConnectionError, Event, Flood, FrameType, Limits};
use support::*;

fn limits() -> Limits {
    Limits { idle_frames_max: 100, resets_max: 20, refused_max: 20, ..Limits::default() }
}

/// Counts how often the input passes before the connection ends.
fn passes(first: &[u8], mut repeated: impl FnMut(u32) -> Vec<u8>) -> (u32, ConnectionError) {
    let mut server = server(limits());
    assert_eq!(error_of(&mut server, first), None);
    for count in 0..100_000 {
        if let Some(error) = error_of(&mut server, &repeated(count)) {
            let frames = output(&mut server);
            assert!(frames.last().unwrap().ends_with("ENHANCE_YOUR_CALM"), "{frames:?}");
            return (count, error);
        }
        server.poll_output(&mut Vec::new());
    }
    panic!("no end");
}

#[test]
fn frames_that_achieve_nothing() {
    let flood = ConnectionError::Flood(Flood::Frames);
    for (first, repeated) in [
        (vec![], frame(FrameType::Ping, 0, 0, &[0; 8])),
        (vec![], frame(FrameType::Ping, ACK, 0, &[0; 8])),
        (vec![], settings(&[])),
        (vec![], settings(&[(1, 0), (1, 4096)])),
        (vec![], frame(FrameType::Settings, ACK, 0, &[])),
        (vec![], frame(FrameType::Priority, 0, 1, &[0; 5])),
        (vec![], frame(FrameType::Unknown(0x99), 0, 0, b"u=1")),
        (vec![], frame(FrameType::PriorityUpdate, 0, 0, b"\0\0\0\x09u=1")),
        (vec![], frame(FrameType::GoAway, 0, 0, &[0; 8])),
        (vec![], window_update(0, 1)),
        (post(1), window_update(1, 1)),
        (post(1), data(1, false, b"")),
        (post(1), frame(FrameType::Data, PADDED, 1, &[1, 0])),
        ([get(1), rst_stream(1)].concat(), rst_stream(1)),
        ([get(1), rst_stream(1)].concat(), data(1, false, b"")),
        ([get(1), rst_stream(1)].concat(), window_update(1, 1)),
    ] {
        let (count, error) = passes(&first, |_| repeated.clone());
        assert_eq!(error, flood, "{repeated:?}");
        assert!((40..=100).contains(&count), "{count} {repeated:?}");
    }
}

/// CVE-2023-44487: streams that are opened to be reset.
#[test]
fn rapid_reset() {
    let (count, error) = passes(&[], |n| [get(2 * n + 1), rst_stream(2 * n + 1)].concat());
    assert_eq!((count, error), (20, ConnectionError::Flood(Flood::Resets)));
}

/// CVE-2025-8671: streams whose reset is provoked.
#[test]
fn provoked_resets() {
    for provoke in [window_update, |stream, _| data(stream, false, b"x")] {
        let (count, error) = passes(&[], |n| [get(2 * n + 1), provoke(2 * n + 1, 0)].concat());
        assert_eq!((count, error), (20, ConnectionError::Flood(Flood::Resets)));
    }
    // Malformed requests, reset by the peer so that they don't fill the table.
    let (_, error) =
        passes(&[], |n| [get_with(2 * n + 1, true, &[("A", "")]), rst_stream(2 * n + 1)].concat());
    assert_eq!(error, ConnectionError::Flood(Flood::Resets));
}

#[test]
fn streams_that_are_refused_again_and_again() {
    let (count, error) = passes(&[], |n| get(2 * n + 1));
    assert_eq!((count, error), (128 + 20, ConnectionError::Flood(Flood::Refused)));
}

/// CVE-2024-27316: a block that never ends.
#[test]
fn continuations_without_end() {
    let first = frame(FrameType::Headers, 0, 1, GET);
    let empty = frame(FrameType::Continuation, 0, 1, b"");
    let mut one = server(limits());
    assert_eq!(error_of(&mut one, &[&first[..], &empty.repeat(256)].concat()), None);
    assert_eq!(error_of(&mut one, &empty), Some(ConnectionError::BlockTooLarge));
    let full = frame(FrameType::Continuation, 0, 1, &[0x82; 16_384]);
    let mut other = server(limits());
    let error = error_of(&mut other, &[&first[..], &full.repeat(4)].concat());
    assert_eq!(error, Some(ConnectionError::BlockTooLarge));
    // The limit comes before the bytes.
    let mut third = server(Limits { block_bytes_max: 100, ..limits() });
    assert_eq!(error_of(&mut third, &full[..9]), Some(ConnectionError::UnexpectedContinuation));
    let mut third = server(Limits { block_bytes_max: 100, ..limits() });
    let header = &headers(1, true, &[0x82; 101])[..9];
    assert_eq!(error_of(&mut third, header), Some(ConnectionError::BlockTooLarge));
}

/// A small block that decodes to a large list.
#[test]
fn header_bombs() {
    let large = "v".repeat(4000);
    let mut bomb = [GET, &[0x40, 1, b'a', 0x7f, 0xa1, 0x1e]].concat();
    bomb.extend_from_slice(large.as_bytes());
    bomb.extend_from_slice(&[0xbe; 1000]);
    let mut server = server(limits());
    let error = error_of(&mut server, &headers(1, true, &bomb));
    assert_eq!(error, Some(ConnectionError::ListTooLarge));

    // A client loses only the stream, unless it is far too much.
    let bomb = |times| {
        let mut bomb = [OK, &[0x40, 1, b'a', 0x7f, 0xa1, 0x1e]].concat();
        bomb.extend_from_slice(large.as_bytes());
        bomb.resize(bomb.len() + times, 0xbe);
        headers(1, true, &bomb)
    };
    let mut one = client(limits(), 2);
    assert_eq!(feed(&mut one, &bomb(20)), ["broken 1 ListTooLarge"]);
    assert_eq!(feed(&mut one, &headers(3, true, OK)), ["response 3 200 end"]);
    let mut other = client(limits(), 2);
    assert_eq!(feed(&mut other, &bomb(100)), ["error ListTooLarge"]);
}

#[test]
fn many_fields() {
    let limits = Limits { fields_max: 10, ..limits() };
    let mut server = server(limits);
    let fields = [("a", "b"); 7];
    assert_eq!(feed(&mut server, &get_with(1, true, &fields)), ["faulty 1 ListTooLarge"]);
    assert_eq!(feed(&mut server, &get_with(3, true, &fields[..6])), ["request 3 end"]);
}

/// A peer that does not read: its frames wait inside up to a bound, then the input stops.
#[test]
fn answers_that_nobody_reads() {
    let mut server = server(Limits { idle_frames_max: 100_000, ..limits() });
    let input = frame(FrameType::Ping, 0, 0, &[0; 8]).repeat(10_000);
    let mut heads = FieldRecorder::default();
    let step = server.receive(&input, &mut heads).unwrap();
    assert_eq!(step.event, Event::OutputFull);
    assert!(step.consumed <= OUTPUT_MAX + 17);
    let again = server.receive(&input, &mut heads).unwrap();
    assert_eq!((again.consumed, again.event), (0, Event::OutputFull));
    let mut out = Vec::new();
    server.poll_output(&mut out);
    assert!(out.len() <= OUTPUT_MAX + 17);
    assert!(server.receive(&input, &mut heads).unwrap().consumed > 0);
}

/// Useful work pays for the frames that come with it.
#[test]
fn diligent_clients_never_run_out() {
    let mut server = server(limits());
    let mut out = Vec::new();
    for n in 0..2000 {
        let stream = 2 * n + 1;
        let input = [
            post(stream),
            data(stream, true, &[b'x'; 1000]),
            frame(FrameType::Ping, 0, 0, &[0; 8]),
            window_update(0, 5000),
            frame(FrameType::Priority, 0, stream, &[0; 5]),
        ];
        assert_eq!(error_of(&mut server, &input.concat()), None);
        out.clear();
        server.respond(id(stream), 200, &mut out).unwrap().finish(false);
        let length = server.reserve(id(stream), 5000);
        assert_eq!(length, 5000);
        server.data_header(id(stream), length, true, &mut out).unwrap();
    }
    // Half of the requests are withdrawn.
    for n in 2000..4000 {
        let stream = 2 * n + 1;
        assert_eq!(error_of(&mut server, &get(stream)), None);
        if n % 2 == 0 {
            server.respond(id(stream), 200, &mut out).unwrap().finish(true);
        }
        assert_eq!(error_of(&mut server, &rst_stream(stream)), None, "{n}");
    }
}

/// Time refills what work does not.
#[test]
fn patient_clients_never_run_out() {
    let mut server = server(limits());
    for n in 0..1000 {
        let stream = 2 * n + 1;
        let input = [get(stream), rst_stream(stream), frame(FrameType::Ping, 0, 0, &[0; 8])];
        assert_eq!(error_of(&mut server, &input.concat()), None);
        server.poll_output(&mut Vec::new());
        server.elapse(1);
    }
}
