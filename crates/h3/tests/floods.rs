//! Peers that send much and mean little: every bound has its error, and work pays for it.

mod support;

use nowait_h3::{ConnectionError, CriticalStream, Flood, Limits};
use support::*;

fn server(limits: Limits) -> Server {
    let mut server = Server::server(limits);
    server.receive(2, &[0, 4, 0], false).unwrap();
    server.take_events();
    server
}

/// Repeats an act until the connection ends; returns how often it went well, and the flood.
fn until_error(mut act: impl FnMut(u64) -> Result<(), ConnectionError>) -> (u64, Flood) {
    for count in 0..1_000_000 {
        match act(count) {
            Ok(()) => {}
            Err(ConnectionError::Flood(flood)) => return (count, flood),
            Err(error) => panic!("{error:?} after {count}"),
        }
    }
    panic!("no error");
}

const LIMITS: Limits = Limits {
    table_capacity: 4096,
    blocked_streams: 16,
    string_bytes_max: 8192,
    list_bytes_max: 32_768,
    fields_max: 1000,
    section_bytes_max: 65_536,
    kept_bytes_max: 100_000,
    interim_max: 32,
    extended_connect: false,
    idle_frames_max: 100,
    resets_max: 20,
    insertions_max: 50,
};

#[test]
fn frames_without_effect() {
    let grease = frame(0x21, b"");
    let mut one = server(LIMITS);
    assert_eq!(until_error(|_| one.receive(2, &grease, false)), (100, Flood::Frames));
    let mut one = server(LIMITS);
    assert_eq!(until_error(|_| one.receive(0, &grease, false)), (100, Flood::Frames));
    let mut one = server(LIMITS);
    one.receive(0, &headers(&POST), false).unwrap();
    let empty = frame(0, b"");
    assert_eq!(until_error(|_| one.receive(0, &empty, false)), (100, Flood::Frames));
    let mut one = server(LIMITS);
    let update = frame(0xf0700, &[4, b'u', b'=', b'1']);
    assert_eq!(until_error(|_| one.receive(2, &update, false)), (100, Flood::Frames));
    let mut one = server(LIMITS);
    let unknown = |n: u64| one.receive(6 + 4 * n, &[0x40, 0x21], true);
    assert_eq!(until_error(unknown), (100, Flood::Frames));
    // Content pays for them, and so does time.
    let mut one = server(LIMITS);
    one.receive(0, &headers(&POST), false).unwrap();
    for _ in 0..1000 {
        one.receive(0, &[empty.clone(), frame(0, &[b'x'; 256])].concat(), false).unwrap();
    }
    for _ in 0..100 {
        one.receive(0, &empty.repeat(40), false).unwrap();
        one.core.elapse(1);
    }
}

#[test]
fn rapid_resets() {
    let get = headers(&GET);
    let mut one = server(LIMITS);
    let reset = |n: u64| {
        one.receive(4 * n, &get, true)?;
        one.core.peer_stopped(id(4 * n))?;
        one.core.abandon(id(4 * n));
        Ok(())
    };
    assert_eq!(until_error(reset), (20, Flood::Resets));
    let mut one = server(LIMITS);
    let reset = |n: u64| {
        one.receive(4 * n, &headers(&POST), false)?;
        one.core.peer_reset(id(4 * n))?;
        one.core.abandon(id(4 * n));
        Ok(())
    };
    assert_eq!(until_error(reset), (20, Flood::Resets));
    // Errors that lead to resets (CVE-2025-8671).
    let mut one = server(LIMITS);
    let wrong = headers(&GET[1..]);
    assert_eq!(until_error(|n| one.receive(4 * n, &wrong, true)), (20, Flood::Resets));
    // Responses pay.
    let mut one = server(LIMITS);
    for n in 0..1000 {
        one.receive(4 * n, &get, true).unwrap();
        if n % 2 == 0 {
            one.core.respond(id(4 * n), 200, &mut Vec::new()).unwrap().finish(true);
        } else {
            one.core.peer_stopped(id(4 * n)).unwrap();
            one.core.abandon(id(4 * n));
        }
    }
}

#[test]
fn insertions() {
    let mut one = server(LIMITS);
    one.receive(6, &[2, 0x3f, 0xe1, 0x1f, 0x41, b'a', 1, b'1'], false).unwrap();
    assert_eq!(until_error(|_| one.receive(6, &[0], false)), (48, Flood::Insertions));
    let mut one = server(LIMITS);
    one.receive(6, &[2, 0x3f, 0xe1, 0x1f, 0x41, b'a', 1, b'1'], false).unwrap();
    assert_eq!(until_error(|_| one.receive(6, &[0; 1000], false)), (0, Flood::Insertions));
    // The capacity may change as often.
    let mut one = server(LIMITS);
    one.receive(6, &[2], false).unwrap();
    assert_eq!(until_error(|_| one.receive(6, &[0x20], false)), (50, Flood::Insertions));
}

#[test]
fn instructions_of_the_decoder() {
    let mut one = server(LIMITS);
    one.receive(10, &[3], false).unwrap();
    assert_eq!(until_error(|_| one.receive(10, &[0x44], false)), (50, Flood::Insertions));
}

#[test]
fn sections_that_never_end() {
    let mut one = server(LIMITS);
    // 60,000 bytes are announced.
    let start = [&[1, 0x80, 0, 0xea, 0x60][..], &[0; 9_995]].concat();
    let (count, flood) = until_error(|n| one.receive(4 * n, &start, false));
    assert_eq!((count, flood), (10, Flood::Sections));
    let mut one = server(LIMITS);
    one.receive(6, &[2, 0x3f, 0xe1, 0x1f], false).unwrap();
    let mut waits = vec![2, 0, 0x80];
    waits.resize(9_000, 0xc0 | 17);
    let waits = frame(1, &waits);
    let (count, flood) = until_error(|n| one.receive(4 * n, &waits, false));
    assert_eq!((count, flood), (11, Flood::Sections));
}

#[test]
fn peers_that_read_nothing() {
    let limits = Limits { insertions_max: 100, ..LIMITS };
    let mut one = server(limits);
    one.receive(6, &[2, 0x3f, 0xe1, 0x1f, 0x41, b'a', 1, b'1'], false).unwrap();
    let section = frame(1, &[2, 0, 0xc0 | 17, 0xc0 | 23, 0xc0 | 1, 0xc0, 0x80]);
    let ask = |n: u64| {
        one.receive(4 * n, &section, true)?;
        one.core.respond(id(4 * n), 200, &mut Vec::new()).unwrap().finish(true);
        Ok(())
    };
    let (count, flood) = until_error(ask);
    assert!(count > 4000, "{count}");
    assert_eq!(flood, Flood::Unread);
    assert!(one.core.output(CriticalStream::Decoder).len() < 17 * 1024);
}

#[test]
fn memory_is_bounded() {
    let mut one = server(Limits::default());
    for n in 0..1000 {
        one.receive(4 * n, &headers(&GET), true).unwrap();
        one.core.respond(id(4 * n), 200, &mut Vec::new()).unwrap().finish(true);
    }
    assert_eq!(one.core.open_streams(), 0);
    one.core.shrink();
    assert!(one.core.heap() < 1024, "{}", one.core.heap());
    assert!(size_of_val(&one.core) < 1024, "{}", size_of_val(&one.core));
}
