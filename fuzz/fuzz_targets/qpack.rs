//! What is encoded by QPACK arrives, whenever instructions and acknowledgements do.
//!
//! Input: a capacity, then steps: an octet with a kind and a length, and bytes.
#![no_main]

use std::collections::VecDeque;

use libfuzzer_sys::fuzz_target;
use nowait_h3::StreamId;
use nowait_h3::qpack::{Decoder, Encoder};

type Field = (Vec<u8>, Vec<u8>);

fuzz_target!(|data: &[u8]| {
    let [capacity, rest @ ..] = data else { return };
    let capacity = u32::from(*capacity) << 4;
    let (mut encoder, mut decoder) = (Encoder::default(), Decoder::new(capacity, 4096));
    encoder.allow(capacity.into());
    let mut sections: VecDeque<(StreamId, Vec<u8>, Vec<Field>)> = VecDeque::new();
    let mut next = 0;
    let mut rest = rest;
    while let Some((&what, tail)) = rest.split_first() {
        let (bytes, tail) = tail.split_at(usize::from(what >> 3).min(tail.len()));
        rest = tail;
        match what & 7 {
            0..=2 => {
                let stream = StreamId::new(next);
                next += 4;
                let fields: Vec<Field> = bytes.chunks(4).map(field).collect();
                encoder.begin();
                for (name, value) in &fields {
                    encoder.field(name, value, what & 7 == 2);
                }
                let mut section = Vec::new();
                encoder.finish(stream, |prefix, rest| section = [prefix, rest].concat());
                sections.push_back((stream, section, fields));
            }
            3 => {
                let instructions = encoder.take_output();
                decoder.receive(&instructions, &mut u32::MAX.clone()).expect("they are ours");
            }
            4 => {
                let instructions = decoder.take_output();
                encoder.receive(&instructions).expect("they are ours");
            }
            5 => {
                let at = bytes.len().min(sections.len().saturating_sub(1));
                if let Some((stream, ..)) = sections.remove(at) {
                    decoder.cancel(stream);
                }
            }
            _ => {
                let at = bytes.len().min(sections.len().saturating_sub(1));
                if let Some((stream, section, fields)) = sections.remove(at) {
                    let mut reading = decoder.section(&section, 100).expect("a prefix");
                    let required = reading.required();
                    assert!(!reading.is_blocked());
                    for (name, value) in &fields {
                        let field = reading.next().expect("a valid field").expect("a field");
                        assert_eq!((field.name, field.value), (&name[..], &value[..]));
                    }
                    assert!(reading.next().expect("the end").is_none());
                    decoder.acknowledge(stream, required);
                }
            }
        }
        assert!(decoder.heap().max(encoder.heap()) <= 64 * 1024);
    }
});

/// A field of few octets, so that fields repeat.
fn field(octets: &[u8]) -> Field {
    const NAMES: [&[u8]; 8] =
        [b":status", b"server", b"etag", b"x-a", b"x-b", b"cookie", b"alt-svc", b"date"];
    let name = NAMES[usize::from(octets[0] & 7)];
    (name.to_vec(), octets[1..].repeat(1 + usize::from(octets[0] >> 4)))
}
