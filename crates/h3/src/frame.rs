//! The frame layer (RFC 9114 section 7): variable-length integers, types and lengths, and numbers of streams.

use bytes::BufMut;

/// The largest variable-length integer.
pub const VARINT_MAX: u64 = (1 << 62) - 1;

/// The number of a stream (RFC 9000 section 2.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId(u64);

impl StreamId {
    /// The last stream that a client could use for a request.
    pub const REQUEST_MAX: StreamId = StreamId(VARINT_MAX - 3);

    /// The stream of this number.
    pub const fn new(number: u64) -> StreamId {
        StreamId(number & VARINT_MAX)
    }

    /// Its number.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// Whether the client opens it.
    pub const fn is_client(self) -> bool {
        self.0 & 1 == 0
    }

    /// Whether both sides send on it.
    pub const fn is_bidirectional(self) -> bool {
        self.0 & 2 == 0
    }

    /// Whether it is one for requests.
    pub const fn is_request(self) -> bool {
        self.0 & 3 == 0
    }
}

impl std::fmt::Display for StreamId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

/// The type of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FrameType {
    /// DATA
    Data,
    /// HEADERS
    Headers,
    /// CANCEL_PUSH
    CancelPush,
    /// SETTINGS
    Settings,
    /// PUSH_PROMISE
    PushPromise,
    /// GOAWAY
    GoAway,
    /// MAX_PUSH_ID
    MaxPushId,
    /// PRIORITY_UPDATE for a request (RFC 9218 section 7.2)
    PriorityUpdate,
    /// PRIORITY_UPDATE for a push
    PriorityUpdatePush,
    /// A type that only HTTP/2 has, which must not occur (RFC 9114 section 7.2.8).
    Reserved,
    /// Any other one, which has no effect.
    Unknown,
}

impl FrameType {
    /// The type of this number.
    pub const fn new(number: u64) -> FrameType {
        match number {
            0x0 => FrameType::Data,
            0x1 => FrameType::Headers,
            0x3 => FrameType::CancelPush,
            0x4 => FrameType::Settings,
            0x5 => FrameType::PushPromise,
            0x7 => FrameType::GoAway,
            0xd => FrameType::MaxPushId,
            0xf0700 => FrameType::PriorityUpdate,
            0xf0701 => FrameType::PriorityUpdatePush,
            0x2 | 0x6 | 0x8 | 0x9 => FrameType::Reserved,
            _ => FrameType::Unknown,
        }
    }

    /// Its name.
    pub const fn as_str(self) -> &'static str {
        match self {
            FrameType::Data => "DATA",
            FrameType::Headers => "HEADERS",
            FrameType::CancelPush => "CANCEL_PUSH",
            FrameType::Settings => "SETTINGS",
            FrameType::PushPromise => "PUSH_PROMISE",
            FrameType::GoAway => "GOAWAY",
            FrameType::MaxPushId => "MAX_PUSH_ID",
            FrameType::PriorityUpdate | FrameType::PriorityUpdatePush => "PRIORITY_UPDATE",
            FrameType::Reserved => "reserved",
            FrameType::Unknown => "unknown",
        }
    }
}

/// Reads a variable-length integer (RFC 9000 section 16). Returns it and its length; `None`: it is incomplete.
#[inline]
pub fn read_varint(input: &[u8]) -> Option<(u64, usize)> {
    let first = *input.first()?;
    let length = 1 << (first >> 6);
    let octets = input.get(1..length)?;
    let more = |value, octet: &u8| value << 8 | u64::from(*octet);
    Some((octets.iter().fold(u64::from(first & 0x3f), more), length))
}

/// Writes a variable-length integer; larger ones than [`VARINT_MAX`] become it.
#[inline]
pub fn write_varint(out: &mut impl BufMut, value: u64) {
    match value {
        0..=0x3f => out.put_u8(value as u8),
        0x40..=0x3fff => out.put_u16(0x4000 | value as u16),
        0x4000..=0x3fff_ffff => out.put_u32(0x8000_0000 | value as u32),
        _ => out.put_u64(0xc000_0000_0000_0000 | value.min(VARINT_MAX)),
    }
}

/// Writes a frame that consists of one integer.
pub(crate) fn write_number(out: &mut impl BufMut, kind: u64, value: u64) {
    let mut payload = [0; 8];
    let mut rest = &mut payload[..];
    write_varint(&mut rest, value);
    let length = 8 - rest.len();
    write_varint(out, kind);
    write_varint(out, length as u64);
    out.put_slice(&payload[..length]);
}

/// The payload of a frame that consists of one integer. `None`: it is none, or more.
pub(crate) fn number(payload: &[u8]) -> Option<u64> {
    read_varint(payload).filter(|(_, length)| *length == payload.len()).map(|(number, _)| number)
}

/// One or two integers that begin a frame or a stream, and may come in pieces.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct PartialIntegers {
    octets: [u8; 16],
    len: u8,
}

impl PartialIntegers {
    /// Whether nothing is kept.
    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Takes a frame's type and length, or what there is of them. Returns the number of octets taken.
    #[inline]
    pub(crate) fn frame(&mut self, input: &[u8]) -> (usize, Option<(FrameType, u64)>) {
        self.take(input, |octets| {
            let (kind, first) = read_varint(octets)?;
            let (length, second) = read_varint(&octets[first..])?;
            Some(((FrameType::new(kind), length), first + second))
        })
    }

    /// Takes one integer.
    pub(crate) fn integer(&mut self, input: &[u8]) -> (usize, Option<u64>) {
        self.take(input, read_varint)
    }

    #[inline]
    fn take<T>(
        &mut self,
        input: &[u8],
        read: impl Fn(&[u8]) -> Option<(T, usize)>,
    ) -> (usize, Option<T>) {
        if self.is_empty()
            && let Some((value, length)) = read(input)
        {
            return (length, Some(value));
        }
        for (at, octet) in input.iter().enumerate() {
            let len = usize::from(self.len);
            self.octets[len] = *octet;
            if let Some((value, _)) = read(&self.octets[..=len]) {
                self.len = 0;
                return (at + 1, Some(value));
            }
            self.len += 1;
        }
        (input.len(), None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 9000 appendix A.1.
    #[test]
    fn the_examples_of_the_rfc() {
        for (octets, value) in [
            (&[0xc2, 0x19, 0x7c, 0x5e, 0xff, 0x14, 0xe8, 0x8c][..], 151_288_809_941_952_652),
            (&[0x9d, 0x7f, 0x3e, 0x7d], 494_878_333),
            (&[0x7b, 0xbd], 15_293),
            (&[0x25], 37),
        ] {
            assert_eq!(read_varint(octets), Some((value, octets.len())));
            assert_eq!(read_varint(&octets[..octets.len() - 1]), None);
            let mut out = Vec::new();
            write_varint(&mut out, value);
            assert_eq!(out, octets);
        }
        assert_eq!(read_varint(&[0x40, 0x25, 9]), Some((37, 2)));
        let mut out = Vec::new();
        write_varint(&mut out, u64::MAX);
        assert_eq!(read_varint(&out), Some((VARINT_MAX, 8)));
    }

    #[test]
    fn headers_may_come_in_pieces() {
        let mut octets = Vec::new();
        write_varint(&mut octets, 0xf0700);
        write_varint(&mut octets, VARINT_MAX);
        octets.push(77);
        for cut in 0..12 {
            let mut partial = PartialIntegers::default();
            assert_eq!(partial.frame(&octets[..cut]), (cut, None));
            let rest = partial.frame(&octets[cut..]);
            assert_eq!(rest, (12 - cut, Some((FrameType::PriorityUpdate, VARINT_MAX))));
            assert!(partial.is_empty());
        }
    }

    #[test]
    fn numbers_fill_their_frame() {
        assert_eq!(number(&[0x7b, 0xbd]), Some(15_293));
        assert_eq!(number(&[0x7b, 0xbd, 0]), None);
        assert_eq!(number(&[0x7b]), None);
        assert_eq!(number(&[]), None);
        let mut out = Vec::new();
        write_number(&mut out, 7, 64);
        assert_eq!(out, [7, 2, 0x40, 64]);
    }
}
