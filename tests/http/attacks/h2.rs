//! Clients of HTTP/2 that make work, or hold what others need.

use nowait_testkit::http2::{ErrorCode, Http2};
use nowait_testkit::{Server, ServerBuilder};

use super::{
    CONTINUATION, DATA, END_HEADERS, END_STREAM, ENHANCE_YOUR_CALM, FLOW_CONTROL_ERROR, GET,
    GOAWAY, HEADERS, INITIAL_WINDOW_SIZE, MAX_FRAME_SIZE, PING, POST, PROTOCOL_ERROR,
    REFUSED_STREAM, RST_STREAM, Wire, frame, headers, memory_kb, settings, window_update,
};
use crate::stage::{on_each_driver, pattern, server};

/// Requests that an attacker may make on a connection before it ends.
const STREAMS_MAX: u32 = 2000;

/// A server that speaks HTTP/2, passes requests to itself, and has a file of 100,000 bytes.
fn site(content: &str) -> ServerBuilder {
    server(&format!(
        "http2 on; {content}
         location / {{ proxy_pass http://127.0.0.1:%%PORT%%/here; }}
         location /here {{ return 200 here; }}
         location /big {{ }}"
    ))
    .file("html/big", pattern(100_000))
    .allow_log("upstream")
}

/// How many streams are refused before the answer to a PING.
fn refusals_until_pong(wire: &mut Wire) -> usize {
    wire.send(&frame(PING, 0, 0, b"attacks!"));
    let mut refused = 0;
    loop {
        let frame = wire.next().expect("an answer");
        match frame.kind {
            RST_STREAM if frame.number(0) == REFUSED_STREAM => refused += 1,
            PING => return refused,
            _ => {}
        }
    }
}

/// Another client gets an answer.
#[track_caller]
fn serves(server: &Server) {
    assert_eq!(Http2::to_port(server.port()).get("/").text(), "here");
    assert_eq!(server.get("/big").body.len(), 100_000);
}

/// Repeats this until the connection ends, which it does with this code before `STREAMS_MAX` streams.
#[track_caller]
fn ends(server: &Server, code: ErrorCode, step: impl Fn(&mut Http2)) {
    let mut client = Http2::to_port(server.port());
    for count in 0.. {
        assert!(count < STREAMS_MAX, "no end");
        if client.goaway.is_some() || client.closed {
            break;
        }
        step(&mut client);
        if count % 50 == 49 {
            client.receive_for_a_moment();
        }
    }
    while !client.closed {
        client.receive_more();
    }
    let (last, got) = client.goaway.expect("a reason");
    assert_eq!(got, code);
    assert!(last <= 2 * STREAMS_MAX, "{last}");
    serves(server);
}

/// CVE-2023-44487, Rapid Reset.
#[test]
fn streams_that_are_opened_to_be_reset() {
    on_each_driver(&site(""), |server| {
        for path in ["/", "/big"] {
            ends(server, ErrorCode::ENHANCE_YOUR_CALM, |client| {
                let stream = client.send_get(path);
                client.reset(stream, ErrorCode::CANCEL);
            });
        }
    });
}

/// CVE-2025-8671, MadeYouReset: the server is made to reset streams itself.
#[test]
fn streams_whose_reset_is_provoked() {
    type Provoke = fn(u32) -> Vec<u8>;
    let provoke: [Provoke; 4] = [
        |stream| window_update(stream, 0),
        |stream| window_update(stream, 0x7fff_ffff),
        |stream| frame(DATA, END_STREAM, stream, b"more than was announced"),
        |stream| headers(stream, &super::field(b"te", b"trailers"), false),
    ];
    on_each_driver(&site(""), |server| {
        for provoke in provoke {
            let mut client = Http2::to_port(server.port());
            let mut count = 0;
            while client.goaway.is_none() && !client.closed {
                count += 1;
                assert!(count < STREAMS_MAX, "no end");
                let stream = client.open("POST", "/", &[("content-length", "1")], false);
                client.send_raw(&provoke(stream.get()));
                client.until("a reset", |client| {
                    let exchange = client.so_far(stream);
                    exchange.reset.is_some()
                        || exchange.status != 0
                        || client.goaway.is_some()
                        || client.closed
                });
            }
            let (_, code) = client.goaway.expect("a reason");
            let expected = [ErrorCode::ENHANCE_YOUR_CALM, ErrorCode::PROTOCOL_ERROR];
            assert!(expected.contains(&code), "{code:?}");
            serves(server);
        }
    });
}

/// CVE-2024-27316 and others: a field block that never ends.
#[test]
fn a_block_without_end() {
    let content = super::field(b"x-a", &[b'a'; 1000]);
    on_each_driver(&site(""), |server| {
        for (piece, most) in [(&b""[..], 1000), (&content, 200)] {
            let mut wire = Wire::to(server, &[]);
            wire.send(&frame(HEADERS, END_STREAM, 1, GET));
            for _ in 0..most {
                wire.send(&frame(CONTINUATION, 0, 1, piece));
            }
            // It ended before this one.
            wire.send(&frame(CONTINUATION, END_HEADERS, 1, b""));
            assert!(wire.code().is_none_or(|code| code != 0), "{} bytes", piece.len());
            serves(server);
        }
    });
}

/// CVE-2026-49975 and CVE-2026-47774, HTTP/2 Bomb: a byte of a block becomes a field, and a closed window
/// keeps them.
#[test]
fn fields_of_one_byte_each() {
    const CONNECTIONS: u64 = 8;
    on_each_driver(&site("client_max_body_size 1m;"), |server| {
        serves(server);
        let mut held = Vec::new();
        for (name, count, least) in [(&b"cookie"[..], 1000, 0), (b"a", 900, 20)] {
            let before = memory_kb(server);
            // An entry of the dynamic table, which costs a byte each time from then on.
            let entry = [&[0x40][..], &super::field(name, b"")[1..]].concat();
            for _ in 0..CONNECTIONS {
                let mut wire = Wire::to(server, &[(INITIAL_WINDOW_SIZE, 0)]);
                for n in 0..100 {
                    // Content that never comes.
                    let first = if n == 0 { &entry[..] } else { &[0xbe] };
                    let block = [POST, first, &vec![0xbe; count]].concat();
                    wire.send(&headers(2 * n + 1, &block, false));
                }
                assert!(refusals_until_pong(&mut wire) >= least);
                held.push(wire);
            }
            // All heads of a connection take up to a megabyte.
            let more = memory_kb(server).saturating_sub(before);
            assert!(more < 2 * 1024 * CONNECTIONS, "{more} KB");
        }
        serves(server);
        // More fields than a request may have.
        for count in [2000, 60_000] {
            let mut wire = Wire::to(server, &[]);
            let block = [POST, &[0x40, 1, b'a', 0], &vec![0xbe; count]].concat();
            let (first, rest) = block.split_at(block.len().min(16_000));
            wire.send(&frame(HEADERS, END_STREAM, 1, first));
            let pieces: Vec<_> = rest.chunks(16_000).collect();
            for piece in pieces {
                wire.send(&frame(CONTINUATION, 0, 1, piece));
            }
            wire.send(&frame(CONTINUATION, END_HEADERS, 1, b""));
            let answer = wire.next_of_stream().expect("a refusal");
            let refused = match answer.kind {
                // ":status: 400" is an entry of the static table.
                HEADERS => answer.payload[0] == 0x8c,
                kind => kind == RST_STREAM || kind == GOAWAY,
            };
            assert!(refused, "{answer:?}");
        }
        drop(held);
        serves(server);
    });
}

/// A window that a change of SETTINGS makes negative, and what follows.
#[test]
fn windows_that_settings_make_negative() {
    on_each_driver(&site(""), |server| {
        let mut wire = Wire::to(server, &[(INITIAL_WINDOW_SIZE, 1000)]);
        let big = [0x82, 0x86, 0x01, 1, b'a', 0x04, 4, b'/', b'b', b'i', b'g'];
        wire.send(&headers(1, &big, true));
        let mut got = 0;
        while got < 1000 {
            got += wire.content_until_pong();
        }
        assert_eq!(got, 1000);
        wire.send(&settings(&[(INITIAL_WINDOW_SIZE, 0)]));
        assert_eq!(wire.content_until_pong(), 0);
        // Half of what is missing.
        wire.send(&window_update(1, 500));
        assert_eq!(wire.content_until_pong(), 0);
        // Several values in one frame: the last one counts.
        wire.send(&settings(&[(INITIAL_WINDOW_SIZE, 0x7fff_ffff), (INITIAL_WINDOW_SIZE, 2000)]));
        let mut more = 0;
        while more < 1500 {
            more += wire.content_until_pong();
        }
        assert_eq!(more, 1500);
        wire.send(&[window_update(1, 200_000), window_update(0, 200_000)].concat());
        assert_eq!(got + more + wire.content(1), 100_000);
        serves(server);
    });
}

/// A setting that arrives in pieces is applied like any other (nginx acknowledged it and forgot it).
#[test]
fn settings_that_arrive_byte_by_byte() {
    on_each_driver(&site(""), |server| {
        let mut wire = Wire::to(server, &[]);
        for byte in settings(&[(INITIAL_WINDOW_SIZE, 100), (3, 5)]) {
            wire.send(&[byte]);
            std::thread::yield_now();
        }
        wire.content_until_pong();
        let big = [0x82, 0x86, 0x01, 1, b'a', 0x04, 4, b'/', b'b', b'i', b'g'];
        wire.send(&headers(1, &big, true));
        let mut got = 0;
        while got < 100 {
            got += wire.content_until_pong();
        }
        assert_eq!((got, wire.content_until_pong()), (100, 0));
    });
}

/// Settings and windows that would overflow, or cause a loop (CVE-2026-33814).
#[test]
fn settings_that_cannot_be_meant() {
    let overflow = [
        settings(&[(INITIAL_WINDOW_SIZE, 0)]),
        headers(1, &[0x82, 0x86, 0x01, 1, b'a', 0x04, 4, b'/', b'b', b'i', b'g'], true),
        window_update(1, 0x7fff_ffff),
        settings(&[(INITIAL_WINDOW_SIZE, 1)]),
    ];
    on_each_driver(&site(""), |server| {
        for (frames, code) in [
            (settings(&[(MAX_FRAME_SIZE, 0)]), PROTOCOL_ERROR),
            (settings(&[(MAX_FRAME_SIZE, 16_383)]), PROTOCOL_ERROR),
            (settings(&[(MAX_FRAME_SIZE, 1 << 24)]), PROTOCOL_ERROR),
            (settings(&[(INITIAL_WINDOW_SIZE, 1 << 31)]), FLOW_CONTROL_ERROR),
            (window_update(0, 0x7fff_ffff), FLOW_CONTROL_ERROR),
            (overflow.concat(), FLOW_CONTROL_ERROR),
        ] {
            let mut wire = Wire::to(server, &[]);
            wire.send(&frames);
            assert_eq!(wire.code(), Some(code), "{frames:?}");
        }
        serves(server);
    });
}

/// CVE-2023-43622 and CVE-2024-30156: a window that never opens.
#[test]
fn a_window_that_never_opens() {
    on_each_driver(&site("send_timeout 300ms; client_header_timeout 60s;"), |server| {
        let mut wire = Wire::to(server, &[(INITIAL_WINDOW_SIZE, 0)]);
        let big = [0x82, 0x86, 0x01, 1, b'a', 0x04, 4, b'/', b'b', b'i', b'g'];
        for n in 0..50 {
            wire.send(&headers(2 * n + 1, &big, true));
        }
        serves(server);
        // Nothing is kept for longer than allowed.
        let mut ended = 0;
        while ended < 50 {
            match wire.next() {
                Some(frame) if frame.kind == RST_STREAM => ended += 1,
                Some(frame) => assert_ne!(frame.kind, DATA),
                None => break,
            }
        }
        serves(server);
    });
}

/// Frames of streams that are gone, in all orders (use after free in several servers: CVE-2026-23918,
/// CVE-2026-26311; CVE-2026-73513: trailers that do not end their stream).
#[test]
fn frames_of_streams_that_are_gone() {
    let reset = frame(RST_STREAM, 0, 1, &[0, 0, 0, 8]);
    let trailers = headers(1, &super::field(b"x-t", b"1"), true);
    let late: [(&str, Vec<u8>); 5] = [
        ("DATA", frame(DATA, 0, 1, b"late")),
        ("the end", frame(DATA, END_STREAM, 1, b"")),
        ("a window", window_update(1, 1000)),
        ("trailers", trailers.clone()),
        ("another reset", reset.clone()),
    ];
    on_each_driver(&site(""), |server| {
        for (before, block) in [("GET", GET), ("POST", POST)] {
            for (name, frames) in &late {
                let mut wire = Wire::to(server, &[]);
                let first = headers(1, block, before == "GET");
                let other = headers(3, GET, true);
                wire.send(&[&first[..], &reset, frames, &other].concat());
                // The other stream is served, or the connection ends with a reason.
                loop {
                    let frame = wire.next_of_stream().expect("an answer");
                    let answered = frame.stream == 3 && frame.flags & END_STREAM != 0;
                    if answered || frame.kind == GOAWAY {
                        break;
                    }
                }
                serves(server);
                eprintln!("{before}, then {name}");
            }
        }
        let mut wire = Wire::to(server, &[]);
        let open = headers(1, &super::field(b"x-t", b"1"), false);
        wire.send(&[headers(1, POST, false), open].concat());
        let frame = wire.next_of_stream().expect("an answer");
        let malformed = match frame.kind {
            HEADERS => frame.payload[0] == 0x8c,
            RST_STREAM => frame.number(0) == PROTOCOL_ERROR,
            kind => kind == GOAWAY && frame.number(4) != ENHANCE_YOUR_CALM,
        };
        assert!(malformed, "{frame:?}");
        serves(server);
    });
}
