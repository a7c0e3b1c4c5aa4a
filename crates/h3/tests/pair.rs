//! A client and a server together, without a network.

mod support;

use nowait_h3::{ErrorCode, Limits, Priority, SendError};
use support::*;

fn pair() -> ConnectionPair {
    ConnectionPair::new(Limits::default(), Limits::default())
}

#[test]
fn a_request_and_its_response() {
    let mut pair = pair();
    let mut out = Vec::new();
    let mut head = pair.client.core.open(id(0), &request(b"POST"), &mut out).unwrap();
    head.field(b"User-Agent", b" a\r\nb ").field(b"Connection", b"close").field(b"bad name", b"");
    head.field(b"te", b"trailers").field(b"TE", b"gzip").field_number(b"Content-Length", 3);
    head.finish(false);
    pair.client.core.data_header(id(0), 3, &mut out).unwrap();
    out.extend_from_slice(b"abc");
    pair.client.core.end(id(0));
    pair.server.receive(0, &out, true).unwrap();
    assert_eq!(pair.server.take_events(), ["request 0", "data 0 \"abc\" end"]);
    assert_eq!(
        pair.server.sink.fields,
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

    let mut out = Vec::new();
    let mut head = pair.server.core.interim(id(0), 103, &mut out).unwrap();
    head.field(b"Link", b"</a>");
    head.finish(true);
    pair.server.core.respond(id(0), 200, &mut out).unwrap().finish(false);
    pair.server.core.data_header(id(0), 2, &mut out).unwrap();
    out.extend_from_slice(b"ok");
    let mut trailers = pair.server.core.trailers_of(id(0), &mut out).unwrap();
    trailers.field(b"Grpc-Status", b"0");
    trailers.finish(false);
    pair.client.receive(0, &out, true).unwrap();
    let events = ["interim 0 103", "response 0 200", "data 0 \"ok\"", "trailers 0"];
    assert_eq!(pair.client.take_events(), events);
    assert_eq!(pair.client.sink.fields, ["grpc-status: 0"]);
    assert_eq!((pair.client.core.open_streams(), pair.server.core.open_streams()), (0, 0));
}

#[test]
fn repeated_fields_are_indexed_once_they_are_acknowledged() {
    let mut pair = pair();
    let mut lengths = Vec::new();
    for number in 0..6 {
        let stream = id(4 * number);
        let mut out = Vec::new();
        let mut head = pair.client.core.open(stream, &request(b"GET"), &mut out).unwrap();
        head.field(b"User-Agent", b"a browser of some length").field(b"x-own", b"value");
        head.finish(true);
        lengths.push(out.len());
        pair.server.receive(stream.get(), &out, true).unwrap();
        assert_eq!(
            pair.server.sink.fields[4..],
            ["user-agent: a browser of some length", "x-own: value"]
        );
        pair.exchange();
    }
    // `:method`, `:scheme`, `:path` are in the static table; the rest is in the dynamic one at last.
    assert_eq!(lengths.last(), Some(&10));
    assert!(lengths[0] > 30, "{lengths:?}");
}

#[test]
fn the_order_of_frames_is_kept_by_senders() {
    let mut pair = pair();
    let mut out = Vec::new();
    assert!(pair.server.core.respond(id(0), 200, &mut out).is_err());
    pair.server.receive(0, &headers(&GET), true).unwrap();
    let core = &mut pair.server.core;
    assert_eq!(core.data_header(id(0), 1, &mut out), Err(SendError::OutOfOrder));
    assert_eq!(core.trailers_of(id(0), &mut out).err(), Some(SendError::OutOfOrder));
    core.respond(id(0), 200, &mut out).unwrap().finish(false);
    assert_eq!(core.respond(id(0), 200, &mut out).err(), Some(SendError::OutOfOrder));
    assert_eq!(core.interim(id(0), 103, &mut out).err(), Some(SendError::OutOfOrder));
    core.end(id(0));
    assert_eq!(core.data_header(id(0), 1, &mut out), Err(SendError::Closed));
}

#[test]
fn urgent_streams_come_first() {
    let mut pair = pair();
    for stream in [0, 4, 8] {
        pair.server.receive(stream, &headers(&GET), true).unwrap();
        pair.server.core.set_ready(id(stream), true);
    }
    let core = &mut pair.server.core;
    assert_eq!([(); 4].map(|()| core.next_ready().unwrap().get()), [0, 4, 8, 0]);
    core.set_priority(id(8), Priority::parse(b"u=1"));
    assert_eq!([(); 2].map(|()| core.next_ready().unwrap().get()), [8, 8]);
    // PRIORITY_UPDATE has precedence over the field, and may come before its request.
    let update = [&[0x80, 0xf, 0x7, 0, 4][..], &[4], b"u=0"].concat();
    pair.server.receive(2, &update, false).unwrap();
    assert_eq!(pair.server.take_events().last().unwrap(), "priority 4");
    let core = &mut pair.server.core;
    core.set_priority(id(4), Priority::parse(b"u=7"));
    assert_eq!(core.next_ready(), Some(id(4)));
    let update = [&[0x80, 0xf, 0x7, 0, 4][..], &[12], b"u=6"].concat();
    pair.server.receive(2, &update, false).unwrap();
    pair.server.receive(12, &headers(&GET), true).unwrap();
    assert_eq!(pair.server.core.priority(id(12)).urgency, 6);
}

#[test]
fn a_graceful_end() {
    let mut pair = pair();
    pair.server.receive(0, &headers(&GET), true).unwrap();
    pair.server.core.announce_shutdown();
    pair.exchange();
    assert_eq!(pair.client.take_events(), [format!("goaway {}", (1u64 << 62) - 4)]);
    assert!(!pair.client.core.has_rejected(id(400)));
    pair.server.receive(4, &headers(&GET), true).unwrap();
    pair.server.core.shutdown();
    pair.exchange();
    assert_eq!(pair.client.take_events(), ["goaway 8"]);
    assert!(pair.client.core.has_rejected(id(8)) && !pair.client.core.has_rejected(id(4)));
    pair.server.receive(8, &headers(&GET), true).unwrap();
    assert_eq!(pair.server.take_events(), ["request 0 end", "request 4 end", "rejected 8"]);
    let mut out = Vec::new();
    assert!(pair.client.core.open(id(12), &request(b"GET"), &mut out).is_err());
}

#[test]
fn a_client_that_wants_no_pushes_may_go_on() {
    let mut pair = pair();
    pair.client.core.shutdown();
    pair.exchange();
    assert_eq!(pair.server.take_events(), ["goaway 0"]);
    assert!(!pair.server.core.is_going_away());
    pair.server.receive(0, &headers(&GET), true).unwrap();
    assert_eq!(pair.server.take_events(), ["request 0 end"]);
}

#[test]
fn a_malformed_request_gets_a_response() {
    let mut pair = pair();
    pair.server.receive(0, &headers(&GET[1..]), false).unwrap();
    assert_eq!(pair.server.take_events(), ["error 0 H3_MESSAGE_ERROR answerable"]);
    assert_eq!(pair.server.core.fault(id(0)), Some(ErrorCode::H3_MESSAGE_ERROR));
    let mut out = Vec::new();
    pair.server.core.respond(id(0), 400, &mut out).unwrap().finish(true);
    pair.server.receive(0, b"anything", true).unwrap();
    assert!(pair.server.take_events().is_empty());
    assert_eq!(pair.server.core.open_streams(), 0);
}
