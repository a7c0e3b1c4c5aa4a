//! The server's side of HTTP/3: a possible order of events, the same ones on each stream however its input is cut, and
//! well-formed frames as answers.
//!
//! Input: limits, cuts, then packets of streams.
#![no_main]

use libfuzzer_sys::fuzz_target;
use nowait_fuzz::h3::{Feeder, Packet, limits, packets};
use nowait_fuzz::pieces;
use nowait_h3::frame::read_varint;
use nowait_h3::qpack::Decoder;
use nowait_h3::server::ServerConnection;
use nowait_h3::{Event, StreamId};

fuzz_target!(|data: &[u8]| {
    let [choice, cuts, rest @ ..] = data else { return };
    let packets = packets(rest, false);
    let listen = |cuts: Option<u8>| {
        let mut feeder = Feeder::new(ServerConnection::new(limits(*choice)));
        for packet in &packets {
            if !feed(&mut feeder, packet, cuts, &mut |_, _, _| {}) {
                return (None, feeder.events);
            }
        }
        (Some(feeder.core.open_streams()), feeder.events)
    };
    let (whole, events) = listen(None);
    let (cut, events_of_pieces) = listen(Some(*cuts));
    // Where a connection ends, streams that were unblocked may have been served or not, and entries may have been evicted
    // before these are. Pieces are kept, and the small limits count them.
    if whole.is_some() && cut.is_some() {
        assert_eq!(whole, cut);
        assert_eq!(events, events_of_pieces);
    }
    assert!(choice & 3 != 3 || whole.is_some() == cut.is_some());

    let mut feeder = Feeder::new(ServerConnection::new(limits(*choice)));
    let mut out = Vec::new();
    for packet in &packets {
        let mut act = |core: &mut ServerConnection, stream, event: &Event| {
            answer(core, stream, event, &mut out);
        };
        if !feed(&mut feeder, packet, Some(*cuts), &mut act) {
            break;
        }
        if cuts & 1 == 0 {
            feeder.drain();
        }
    }
    check(&out);
});

/// Feeds a packet, cut or not.
fn feed(
    feeder: &mut Feeder<nowait_h3::server::ServerSide>,
    packet: &Packet<'_>,
    cuts: Option<u8>,
    act: &mut impl FnMut(&mut ServerConnection, StreamId, &Event),
) -> bool {
    let Some(cuts) = cuts else { return feeder.feed(packet, act) };
    let mut left = packet.bytes.len();
    for bytes in pieces(packet.bytes, cuts) {
        left -= bytes.len();
        let end = packet.end && left == 0;
        if !feeder.feed(&Packet { bytes, end, ..packet.clone() }, act) {
            return false;
        }
    }
    !packet.bytes.is_empty() || feeder.feed(packet, act)
}

/// Responds to everything, in ways that depend on the stream.
fn answer(core: &mut ServerConnection, stream: StreamId, event: &Event, out: &mut Vec<u8>) {
    let is_request =
        matches!(event, Event::Request { .. } | Event::StreamError { answerable: true, .. });
    if !is_request {
        return;
    }
    // A request may turn out malformed when its response has begun.
    let Ok(mut head) = core.respond(stream, 200, out) else { return };
    head.field(b"Server", b"nowait").field_number(b"X-Stream", stream.get());
    head.finish(false);
    match stream.get() % 16 {
        0 => core.end(stream),
        4 => {
            core.data_header(stream, 5, out).expect("the response is open");
            out.extend_from_slice(b"hello");
            core.trailers_of(stream, out).expect("the response is open").finish(true);
        }
        8 => core.abandon(stream),
        _ => {}
    }
}

/// Frames are complete, and heads can be decoded, as far as the table is not needed.
fn check(mut out: &[u8]) {
    while !out.is_empty() {
        let (kind, first) = read_varint(out).expect("a type");
        let (length, second) = read_varint(&out[first..]).expect("a length");
        let (payload, rest) = out[first + second..].split_at(length as usize);
        out = rest;
        if kind == 1 && payload[0] == 0 {
            let mut decoder = Decoder::new(0, 4096);
            let mut section = decoder.section(payload, 10_000).expect("a prefix");
            while section.next().expect("a field").is_some() {}
        }
    }
}
