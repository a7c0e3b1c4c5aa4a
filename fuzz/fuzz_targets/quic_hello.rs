//! The first datagrams of a QUIC client: whatever their Initial packets carry, collecting the hello neither panics nor
//! grows, and a hello that is complete stays so.
//!
//! Input: packets, each behind its kind and its length. Most are frames, which are protected here as a client would.
#![no_main]

use libfuzzer_sys::fuzz_target;
use nowait_quic::HelloCollector;
use nowait_tls::quic::initial_keys;

/// The destination that the client has chosen.
const ID: &[u8] = &[1, 2, 3, 4, 5, 6, 7, 8];

/// Frames in an Initial packet.
fn protected(number: u8, frames: &[u8]) -> Vec<u8> {
    let keys = initial_keys(ID, false).local;
    let mut payload = frames.to_vec();
    payload.resize(payload.len().max(8), 0);
    let mut packet = vec![0xc0, 0, 0, 0, 1, ID.len() as u8];
    packet.extend_from_slice(ID);
    packet.extend_from_slice(&[0, 0]);
    let len = (1 + payload.len() + keys.packet.tag_len()) as u16 | 0x4000;
    packet.extend_from_slice(&len.to_be_bytes());
    let number_at = packet.len();
    packet.push(number);
    let tag = keys.packet.encrypt_in_place(u64::from(number), &packet, &mut payload);
    packet.extend_from_slice(&payload);
    packet.extend_from_slice(tag.expect("short enough").as_ref());
    let sample = packet[number_at + 4..][..keys.header.sample_len()].to_vec();
    let (first, rest) = packet.split_at_mut(1);
    let number = &mut rest[number_at - 1..number_at];
    keys.header.encrypt_in_place(&sample, &mut first[0], number).expect("the sample is whole");
    packet
}

fuzz_target!(|data: &[u8]| {
    let mut collector = HelloCollector::new(ID);
    let mut rest = data;
    let mut number = 0u8;
    while let [kind, len, more @ ..] = rest {
        let (part, behind) = more.split_at((usize::from(*len) * 8).min(more.len()));
        rest = behind;
        number = number.wrapping_add(1);
        let datagram = match kind % 4 {
            0 => part.to_vec(),
            1 => [protected(number, part), part.to_vec()].concat(),
            2 => [protected(number, part), protected(number.wrapping_add(100), part)].concat(),
            _ => protected(number, part),
        };
        match collector.take(&datagram, ID) {
            Ok(None) => {}
            Ok(Some(hello)) => {
                hello.server_name();
                hello.alpn();
                assert!(matches!(collector.take(&[], ID), Ok(Some(_))));
            }
            Err(_) => return,
        }
    }
});
