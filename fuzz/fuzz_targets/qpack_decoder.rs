//! Field sections and instructions of a peer: nothing but an error comes of malformed ones, and memory is bounded.
//!
//! Input: a capacity, then parts, each after an octet with its length and its kind.
#![no_main]

use libfuzzer_sys::fuzz_target;
use nowait_h3::StreamId;
use nowait_h3::qpack::{Decoder, Encoder};

const STRING_MAX: usize = 300;

fuzz_target!(|data: &[u8]| {
    let [capacity, rest @ ..] = data else { return };
    let mut decoder = Decoder::new(u32::from(*capacity) << 4, 4096);
    let mut encoder = Encoder::default();
    encoder.allow(u64::from(*capacity) << 4);
    let mut rest = rest;
    let mut stream = 0;
    while let Some((&what, tail)) = rest.split_first() {
        let (part, tail) = tail.split_at(usize::from(what >> 2).min(tail.len()));
        rest = tail;
        let is_valid = match what & 3 {
            0 | 1 => decoder.receive(part, &mut 100).is_ok(),
            2 => section(&mut decoder, part),
            _ => {
                encoder.begin();
                encoder.field(b"x-field", part, false);
                encoder.finish(StreamId::new(stream), |_, _| {});
                stream += 4;
                encoder.receive(part).is_ok()
            }
        };
        assert!(decoder.heap().max(encoder.heap()) <= 64 * 1024);
        if !is_valid {
            return;
        }
    }
});

fn section(decoder: &mut Decoder, part: &[u8]) -> bool {
    let Ok(mut section) = decoder.section(part, STRING_MAX) else { return false };
    if section.is_blocked() {
        return true;
    }
    let required = section.required();
    loop {
        match section.next() {
            Ok(Some(field)) => {
                assert!(field.name.len() <= 4096 && field.value.len() <= 4096);
            }
            Ok(None) => break,
            Err(_) => return false,
        }
    }
    decoder.acknowledge(StreamId::new(0), required);
    true
}
