//! The parts of packets that are read before their connection is known: the header's invariants (RFC 8999), and the
//! header of Initial packets (RFC 9000, 17.2.2).
//!
//! Called by the router and by the collector of hellos. Never decrypts anything.

use crate::connection_id::ID_BYTES;
use crate::crypto::VERSION;

/// Bytes of a connection ID in version 1, at most (RFC 9000, 17.2).
pub(crate) const CONNECTION_ID_BYTES_MAX: usize = 20;

/// The header form: long.
const LONG: u8 = 0x80;

/// The type of a long header, and that of Initial packets.
const TYPE_MASK: u8 = 0x30;
const INITIAL: u8 = 0;

/// A packet's destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Destination<'a> {
    /// The connection ID.
    pub(crate) id: &'a [u8],
    /// It has a long header, and the client may have chosen the ID.
    pub(crate) long: bool,
}

/// The destination of a datagram's first packet. `None`: not a packet.
pub(crate) fn destination(datagram: &[u8]) -> Option<Destination<'_>> {
    let first = *datagram.first()?;
    if first & LONG == 0 {
        return Some(Destination { id: datagram.get(1..1 + ID_BYTES)?, long: false });
    }
    let len = usize::from(*datagram.get(5)?);
    Some(Destination { id: datagram.get(6..6 + len)?, long: true })
}

/// Whether a datagram's first packet has a long header of the version that is spoken.
pub(crate) fn is_of_version(datagram: &[u8]) -> bool {
    let version = datagram.get(1..5).is_some_and(|version| version == VERSION.to_be_bytes());
    version && datagram[0] & LONG != 0
}

/// An Initial packet in a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct InitialPacket {
    /// The offset of the packet number.
    pub(crate) number: usize,
    /// The end of the packet.
    pub(crate) end: usize,
}

/// Reads numbers and fields from the front.
struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let taken = self.bytes.get(self.at..self.at.checked_add(len)?)?;
        self.at += len;
        Some(taken)
    }

    fn byte(&mut self) -> Option<u8> {
        self.take(1).map(|byte| byte[0])
    }

    fn varint(&mut self) -> Option<u64> {
        let (value, len) = varint(self.bytes.get(self.at..)?)?;
        self.at += len;
        Some(value)
    }
}

/// A number of variable length at the front, and its length (RFC 9000, 16).
pub(crate) fn varint(bytes: &[u8]) -> Option<(u64, usize)> {
    let first = *bytes.first()?;
    let len = 1usize << (first >> 6);
    let start = u64::from(first & 0x3f);
    let rest = bytes.get(1..len)?;
    Some((rest.iter().fold(start, |value, byte| value << 8 | u64::from(*byte)), len))
}

/// A packet of a datagram, as far as its header says.
pub(crate) enum Packet {
    /// An Initial packet.
    Initial(InitialPacket),
    /// Another packet with a long header, which ends here.
    Other(usize),
}

/// The packet at the beginning of this part of a datagram, if its end is known and it is addressed to `id`.
pub(crate) fn first_packet(part: &[u8], id: &[u8]) -> Option<Packet> {
    const RETRY: u8 = 0x30;
    let mut reader = Reader { bytes: part, at: 0 };
    let first = reader.byte()?;
    let version = u32::from_be_bytes(reader.take(4)?.try_into().ok()?);
    if first & LONG == 0 || version != VERSION || first & TYPE_MASK == RETRY {
        return None;
    }
    let len = usize::from(reader.byte()?);
    if len > CONNECTION_ID_BYTES_MAX || reader.take(len)? != id {
        return None;
    }
    let len = usize::from(reader.byte()?);
    if len > CONNECTION_ID_BYTES_MAX {
        return None;
    }
    reader.take(len)?;
    let is_initial = first & TYPE_MASK == INITIAL;
    if is_initial {
        let token = usize::try_from(reader.varint()?).ok()?;
        reader.take(token)?;
    }
    let len = usize::try_from(reader.varint()?).ok()?;
    let number = reader.at;
    reader.take(len)?;
    let end = reader.at;
    Some(if is_initial {
        Packet::Initial(InitialPacket { number, end })
    } else {
        Packet::Other(end)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_the_rfc_are_read() {
        // RFC 9000, appendix A.1.
        for (bytes, value) in [
            (&[0xc2, 0x19, 0x7c, 0x5e, 0xff, 0x14, 0xe8, 0x8c][..], 151_288_809_941_952_652),
            (&[0x9d, 0x7f, 0x3e, 0x7d], 494_878_333),
            (&[0x7b, 0xbd], 15_293),
            (&[0x25], 37),
            (&[0x40, 0x25], 37),
        ] {
            assert_eq!(varint(bytes), Some((value, bytes.len())));
            assert_eq!(varint(&bytes[..bytes.len() - 1]), None);
        }
    }

    #[test]
    fn destinations_are_found_in_both_forms() {
        let short = [0x40, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 99];
        let found = destination(&short).unwrap();
        assert_eq!((found.id, found.long), (&short[1..17], false));
        let long = [0xc0, 0, 0, 0, 1, 3, 7, 8, 9, 0];
        let found = destination(&long).unwrap();
        assert_eq!((found.id, found.long), (&[7, 8, 9][..], true));
        for len in 0..9 {
            assert_eq!(destination(&long[..len]), None);
        }
        assert_eq!(destination(&short[..16]), None);
    }

    #[test]
    fn initial_packets_are_delimited() {
        let packet = [0xc0, 0, 0, 0, 1, 2, 7, 8, 1, 5, 2, 9, 9, 0x40, 3, 1, 2, 3, 77];
        let Some(Packet::Initial(found)) = first_packet(&packet, &[7, 8]) else { panic!() };
        assert_eq!((found.number, found.end), (15, 18));
        assert!(first_packet(&packet, &[7, 9]).is_none());
        for len in 0..18 {
            assert!(first_packet(&packet[..len], &[7, 8]).is_none());
        }
        // 0-RTT has no token.
        let packet = [0xd0, 0, 0, 0, 1, 2, 7, 8, 1, 5, 3, 1, 2, 3];
        assert!(matches!(first_packet(&packet, &[7, 8]), Some(Packet::Other(14))));
        // Another version, a Retry packet, a short header.
        for (at, byte) in [(4, 2), (0, 0xf0), (0, 0x40)] {
            let mut other = packet;
            other[at] = byte;
            assert!(first_packet(&other, &[7, 8]).is_none());
        }
    }
}
