//! Collects a client's hello from its first datagrams, before anything else is done for the client: its Initial packets
//! are protected by keys that anyone can derive (RFC 9001, 5.2).
//!
//! Called by the endpoint, which keeps the datagrams: once the server is chosen, they are processed again by the
//! transport. A packet that cannot be read is skipped here, and left for the transport to judge.

use nowait_tls::quic::{hello_records, initial_keys};
use nowait_tls::{Acceptor, HELLO_BYTES_MAX, Hello, Refusal};
use rustls::quic::DirectionalKeys;

use crate::packet::{Packet, first_packet, varint};

/// Pieces of a hello that are kept until those before them have come, at most: browsers send theirs in random order,
/// in about a dozen pieces.
const PIECES_MAX: usize = 64;

/// Bytes of a handshake message's header: its type and its length (RFC 8446, 4).
const MESSAGE_HEADER_BYTES: usize = 4;

/// The bits of a long header's first byte that are the length of the packet number, less one.
const NUMBER_LENGTH_MASK: u8 = 0x03;

/// The longest packet number.
const NUMBER_BYTES_MAX: usize = 4;

/// Types of frames in Initial packets (RFC 9000, 12.4).
const PADDING: u64 = 0x00;
const PING: u64 = 0x01;
const ACK: u64 = 0x02;
const ACK_ECN: u64 = 0x03;
const CRYPTO: u64 = 0x06;

/// A hello that is being collected.
pub struct HelloCollector {
    keys: DirectionalKeys,
    message: Vec<u8>,
    /// What is there of the message: disjoint ranges in order.
    pieces: Vec<(usize, usize)>,
}

impl HelloCollector {
    /// For a client whose first packet had this destination.
    pub fn new(id: &[u8]) -> HelloCollector {
        let keys = initial_keys(id, true).remote;
        HelloCollector { keys, message: Vec::new(), pieces: Vec::new() }
    }

    /// Takes a datagram to this destination. `None`: the hello is incomplete.
    ///
    /// # Errors
    /// The hello is malformed, too long, or in too many pieces.
    pub fn take(&mut self, datagram: &[u8], id: &[u8]) -> Result<Option<Hello>, Refusal> {
        let mut rest = datagram;
        while let Some(packet) = first_packet(rest, id) {
            let end = match packet {
                Packet::Other(end) => end,
                Packet::Initial(packet) => {
                    let (this, _) = rest.split_at(packet.end);
                    if let Some(frames) = self.open(this, packet.number) {
                        self.take_frames(&frames)?;
                    }
                    packet.end
                }
            };
            rest = &rest[end..];
        }
        self.complete()
    }

    /// Whether a piece of the hello is there.
    pub fn has_begun(&self) -> bool {
        !self.pieces.is_empty()
    }

    /// Decrypts a packet; `None`: it can't be.
    fn open(&self, packet: &[u8], number_at: usize) -> Option<Vec<u8>> {
        let mut packet = packet.to_vec();
        let sample_at = number_at + NUMBER_BYTES_MAX;
        let sample_len = self.keys.header.sample_len();
        let sample = packet.get(sample_at..sample_at + sample_len)?.to_vec();
        let (first, number) = packet[..sample_at].split_at_mut(number_at);
        self.keys.header.decrypt_in_place(&sample, first.first_mut()?, number).ok()?;
        let len = usize::from(first.first()? & NUMBER_LENGTH_MASK) + 1;
        // The first packets of a client have small numbers: nothing of them is cut off.
        let number = number[..len].iter().fold(0, |number, byte| number << 8 | u64::from(*byte));
        let (header, payload) = packet.split_at_mut(number_at + len);
        let plain = self.keys.packet.decrypt_in_place(number, header, payload).ok()?;
        Some(plain.to_vec())
    }

    /// Takes the pieces of the hello; other frames, and what follows one that is malformed, are left to the transport.
    fn take_frames(&mut self, frames: &[u8]) -> Result<(), Refusal> {
        let mut rest = frames;
        while let Some(piece) = next_piece(&mut rest) {
            self.take_piece(piece)?;
        }
        Ok(())
    }

    fn take_piece(&mut self, (offset, data): (u64, &[u8])) -> Result<(), Refusal> {
        let begin = usize::try_from(offset).unwrap_or(usize::MAX);
        let end = begin.saturating_add(data.len());
        if end > HELLO_BYTES_MAX + MESSAGE_HEADER_BYTES || self.pieces.len() >= PIECES_MAX {
            return Err(too_long());
        }
        if self.message.len() < end {
            self.message.resize(end, 0);
        }
        self.message[begin..end].copy_from_slice(data);
        let (mut begin, mut end) = (begin, end);
        self.pieces.retain(|(from, to)| {
            let apart = *to < begin || *from > end;
            if !apart {
                (begin, end) = (begin.min(*from), end.max(*to));
            }
            apart
        });
        let at = self.pieces.partition_point(|(from, _)| *from < begin);
        self.pieces.insert(at, (begin, end));
        Ok(())
    }

    /// The hello, if all of it is there.
    fn complete(&mut self) -> Result<Option<Hello>, Refusal> {
        let Some((0, there)) = self.pieces.first().copied() else { return Ok(None) };
        let Some([kind, high, middle, low]) = self.message.first_chunk().copied() else {
            return Ok(None);
        };
        let len = MESSAGE_HEADER_BYTES + u32::from_be_bytes([0, high, middle, low]) as usize;
        const CLIENT_HELLO: u8 = 1;
        // Another message, or a hello that is announced to be too long, is refused by the acceptor.
        let is_whole = there >= len || kind != CLIENT_HELLO || len > HELLO_BYTES_MAX;
        if !is_whole {
            return Ok(None);
        }
        let message = &self.message[..there.min(len)];
        Acceptor::quic().receive(&hello_records(message))
    }
}

/// The next CRYPTO frame: its offset and its data. `None`: there is none that can be read.
fn next_piece<'a>(rest: &mut &'a [u8]) -> Option<(u64, &'a [u8])> {
    let number = |rest: &mut &'a [u8]| {
        let (value, len) = varint(rest)?;
        *rest = &rest[len..];
        Some(value)
    };
    loop {
        match number(rest)? {
            PADDING | PING => {}
            kind @ (ACK | ACK_ECN) => {
                number(rest)?;
                number(rest)?;
                let ranges = number(rest)?;
                number(rest)?;
                let counts = if kind == ACK_ECN { 3 } else { 0 };
                // Ends with the packet at the latest.
                for _ in 0..ranges.saturating_mul(2).saturating_add(counts) {
                    number(rest)?;
                }
            }
            CRYPTO => {
                let offset = number(rest)?;
                let len = usize::try_from(number(rest)?).ok()?;
                let (data, behind) = rest.split_at_checked(len)?;
                *rest = behind;
                return Some((offset, data));
            }
            _ => return None,
        }
    }
}

/// The refusal of a hello that is too long.
fn too_long() -> Refusal {
    Refusal { error: nowait_tls::Error::TooLong, alert: Vec::new() }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An Initial packet of a client with these frames.
    fn initial(id: &[u8], number: u8, frames: &[u8]) -> Vec<u8> {
        let keys = initial_keys(id, false).local;
        let mut payload = frames.to_vec();
        payload.resize(payload.len().max(8), 0);
        let tag = keys.packet.tag_len();
        let mut packet = vec![0xc0, 0, 0, 0, 1, id.len() as u8];
        packet.extend_from_slice(id);
        packet.extend_from_slice(&[0, 0]);
        let len = (1 + payload.len() + tag) as u16 | 0x4000;
        packet.extend_from_slice(&len.to_be_bytes());
        let number_at = packet.len();
        packet.push(number);
        let made = keys.packet.encrypt_in_place(u64::from(number), &packet, &mut payload).unwrap();
        packet.extend_from_slice(&payload);
        packet.extend_from_slice(made.as_ref());
        let sample = packet[number_at + 4..][..keys.header.sample_len()].to_vec();
        let (first, rest) = packet.split_at_mut(1);
        keys.header
            .encrypt_in_place(&sample, &mut first[0], &mut rest[number_at - 1..number_at])
            .unwrap();
        packet
    }

    fn crypto(offset: usize, data: &[u8]) -> Vec<u8> {
        let long = |n: usize| (n as u16 | 0x4000).to_be_bytes();
        [&[6][..], &long(offset), &long(data.len()), data].concat()
    }

    fn hello() -> Vec<u8> {
        let client = nowait_tls::TlsClient::new(nowait_tls::ClientSettings {
            sends_name: true,
            alpn: vec![b"h3".to_vec()],
            ..Default::default()
        });
        let (mut session, _) = client.unwrap().connect_quic("example.com", vec![1, 2]).unwrap();
        let mut message = Vec::new();
        session.write(&mut message);
        message
    }

    const ID: &[u8] = &[1, 2, 3, 4, 5, 6, 7, 8];

    #[test]
    fn a_hello_is_collected_in_any_order() {
        let hello = hello();
        // The hybrid key share makes it longer than a datagram.
        assert!(hello.len() > 1200);
        for pieces in [1, 2, 7, 40] {
            let size = hello.len().div_ceil(pieces);
            let all: Vec<(usize, &[u8])> =
                hello.chunks(size).enumerate().map(|(n, piece)| (n * size, piece)).collect();
            for reverse in [false, true] {
                let mut order = all.clone();
                if reverse {
                    order.reverse();
                }
                let mut collector = HelloCollector::new(ID);
                let last = order.len() - 1;
                for (n, (offset, data)) in order.iter().enumerate() {
                    let frames = [&[0, 1][..], &crypto(*offset, data), &[0; 30]].concat();
                    let packet = initial(ID, n as u8, &frames);
                    // Once more is no more, and garbage changes nothing.
                    for datagram in [&packet[..], &packet, &packet[..20], b"garbage"] {
                        let taken = collector.take(datagram, ID).unwrap();
                        if n < last {
                            assert!(taken.is_none());
                        } else if let Some(taken) = taken {
                            assert_eq!(taken.server_name().as_deref(), Some("example.com"));
                            assert_eq!(taken.alpn(), [b"h3"]);
                        }
                    }
                }
                assert!(collector.complete().unwrap().is_some());
            }
        }
    }

    #[test]
    fn coalesced_packets_and_other_frames_are_read() {
        let hello = hello();
        let (one, two) = hello.split_at(700);
        let acks = [&[2, 9, 0, 1, 0, 1, 1][..], &crypto(0, one)].concat();
        let ecn = [&[3, 9, 0, 0, 0, 5, 5, 5][..], &crypto(700, two)].concat();
        let datagram = [initial(ID, 0, &acks), initial(ID, 1, &ecn)].concat();
        let mut collector = HelloCollector::new(ID);
        assert!(collector.take(&datagram, ID).unwrap().is_some());
    }

    #[test]
    fn what_is_too_long_or_no_hello_is_refused() {
        let refused = |frames: &[u8]| {
            let mut collector = HelloCollector::new(ID);
            collector.take(&initial(ID, 0, frames), ID).is_err()
        };
        assert!(refused(&crypto(HELLO_BYTES_MAX, &[0; 10])));
        assert!(refused(&crypto(0, &[2, 0, 0, 1, 0])));
        assert!(refused(&crypto(0, &[1, 1, 0, 0, 0])));
        let pieces: Vec<u8> = (0..200).flat_map(|n| crypto(n * 3, b"x")).collect();
        assert!(refused(&pieces));
        assert!(!refused(&crypto(0, &[1, 0, 1, 0, 0])));
        // For another connection, or unreadable.
        let mut collector = HelloCollector::new(ID);
        let packet = initial(&[9; 8], 0, &crypto(HELLO_BYTES_MAX, &[0; 10]));
        assert!(matches!(collector.take(&packet, ID), Ok(None)));
        assert!(matches!(collector.take(&packet, &[9; 8]), Ok(None)));
    }

    #[test]
    fn any_frames_are_survived() {
        let hello = hello();
        let mut seed = 7u64;
        let mut random = move |below: usize| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 33) as usize % below
        };
        for _ in 0..2_000 {
            let mut collector = HelloCollector::new(ID);
            for number in 0..8 {
                let mut frames = Vec::new();
                while random(4) > 0 {
                    match random(5) {
                        0 => frames.push(random(256) as u8),
                        1 => frames.extend([2, 0x40, random(256) as u8, 0, random(9) as u8, 0]),
                        2 => frames.extend([3, 1, 1, random(3) as u8, 0xff]),
                        _ => {
                            let begin = random(hello.len());
                            let end = (begin + random(900)).min(hello.len());
                            frames.extend(crypto(begin, &hello[begin..end]));
                        }
                    }
                }
                match collector.take(&initial(ID, number, &frames), ID) {
                    Ok(None) => {}
                    Ok(Some(hello)) => assert_eq!(hello.alpn(), [b"h3"]),
                    Err(_) => break,
                }
            }
        }
    }
}
