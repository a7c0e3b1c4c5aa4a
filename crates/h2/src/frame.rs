//! The header of a frame (RFC 9113 section 4.1), and what it alone decides: whether the frame may have
//! this length and this stream. It is checked before any of the payload is kept.
//!
//! Payloads are read in [`crate::frames`].

use bytes::BufMut;

use crate::error::ConnectionError;

/// The length of a frame header in octets.
pub const HEADER_LEN: usize = 9;

/// The smallest value of `SETTINGS_MAX_FRAME_SIZE`, and its default.
pub const FRAME_SIZE_DEFAULT: u32 = 1 << 14;

/// The largest value of `SETTINGS_MAX_FRAME_SIZE`.
pub const FRAME_SIZE_MAX: u32 = (1 << 24) - 1;

/// The largest flow-control window.
pub const WINDOW_MAX: u32 = (1 << 31) - 1;

/// The initial flow-control window.
pub const WINDOW_DEFAULT: u32 = 65_535;

/// The preface that a client sends before its first frame.
pub const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// The number of a stream; 0 is the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct StreamId(u32);

impl StreamId {
    /// The connection itself.
    pub const CONNECTION: StreamId = StreamId(0);
    /// The largest number.
    pub const MAX: StreamId = StreamId(WINDOW_MAX);

    /// From a number, whose highest bit is ignored: "the value of R is unset when sent and ignored
    /// when received".
    pub const fn new(number: u32) -> Self {
        StreamId(number & WINDOW_MAX)
    }

    /// The number.
    pub const fn get(self) -> u32 {
        self.0
    }

    /// Whether a client opens streams of this number.
    pub const fn is_client(self) -> bool {
        self.0 % 2 == 1
    }
}

impl std::fmt::Display for StreamId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

/// The type of a frame (RFC 9113 section 6).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "each variant is the frame of that name")]
pub enum FrameType {
    Data,
    Headers,
    Priority,
    RstStream,
    Settings,
    PushPromise,
    Ping,
    GoAway,
    WindowUpdate,
    Continuation,
    /// RFC 9218 section 7.1.
    PriorityUpdate,
    /// An extension. "Implementations MUST ignore and discard frames of unknown types" (RFC 9113
    /// section 5.5).
    Unknown(u8),
}

impl FrameType {
    const fn from_octet(octet: u8) -> Self {
        match octet {
            0 => FrameType::Data,
            1 => FrameType::Headers,
            2 => FrameType::Priority,
            3 => FrameType::RstStream,
            4 => FrameType::Settings,
            5 => FrameType::PushPromise,
            6 => FrameType::Ping,
            7 => FrameType::GoAway,
            8 => FrameType::WindowUpdate,
            9 => FrameType::Continuation,
            0x10 => FrameType::PriorityUpdate,
            other => FrameType::Unknown(other),
        }
    }

    const fn octet(self) -> u8 {
        match self {
            FrameType::Data => 0,
            FrameType::Headers => 1,
            FrameType::Priority => 2,
            FrameType::RstStream => 3,
            FrameType::Settings => 4,
            FrameType::PushPromise => 5,
            FrameType::Ping => 6,
            FrameType::GoAway => 7,
            FrameType::WindowUpdate => 8,
            FrameType::Continuation => 9,
            FrameType::PriorityUpdate => 0x10,
            FrameType::Unknown(octet) => octet,
        }
    }

    /// The name in the RFC.
    pub const fn as_str(self) -> &'static str {
        match self {
            FrameType::Data => "DATA",
            FrameType::Headers => "HEADERS",
            FrameType::Priority => "PRIORITY",
            FrameType::RstStream => "RST_STREAM",
            FrameType::Settings => "SETTINGS",
            FrameType::PushPromise => "PUSH_PROMISE",
            FrameType::Ping => "PING",
            FrameType::GoAway => "GOAWAY",
            FrameType::WindowUpdate => "WINDOW_UPDATE",
            FrameType::Continuation => "CONTINUATION",
            FrameType::PriorityUpdate => "PRIORITY_UPDATE",
            FrameType::Unknown(_) => "unknown",
        }
    }
}

/// Flags of a frame; each type defines its own and ignores the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Flags(pub u8);

impl Flags {
    /// None.
    pub const NONE: Flags = Flags(0);
    /// Of SETTINGS and PING.
    pub const ACK: Flags = Flags(0x01);
    /// Of DATA and HEADERS.
    pub const END_STREAM: Flags = Flags(0x01);
    /// Of HEADERS and CONTINUATION.
    pub const END_HEADERS: Flags = Flags(0x04);
    /// Of DATA and HEADERS.
    pub const PADDED: Flags = Flags(0x08);
    /// Of HEADERS.
    pub const PRIORITY: Flags = Flags(0x20);

    /// Whether all of `flags` are set.
    pub const fn has(self, flags: Flags) -> bool {
        self.0 & flags.0 == flags.0
    }

    /// These flags as well, on a condition.
    #[must_use]
    pub const fn with(self, flags: Flags, condition: bool) -> Self {
        if condition { Flags(self.0 | flags.0) } else { self }
    }
}

/// The header of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrameHeader {
    /// The length of the payload.
    pub length: u32,
    /// The type.
    pub kind: FrameType,
    /// The flags.
    pub flags: Flags,
    /// The stream.
    pub stream: StreamId,
}

impl FrameHeader {
    /// Reads a header.
    #[inline]
    pub const fn parse(octets: &[u8; HEADER_LEN]) -> Self {
        let [l0, l1, l2, kind, flags, s0, s1, s2, s3] = *octets;
        FrameHeader {
            length: u32::from_be_bytes([0, l0, l1, l2]),
            kind: FrameType::from_octet(kind),
            flags: Flags(flags),
            stream: StreamId::new(u32::from_be_bytes([s0, s1, s2, s3])),
        }
    }

    /// The octets of the header.
    #[inline]
    pub const fn octets(&self) -> [u8; HEADER_LEN] {
        let [_, l0, l1, l2] = self.length.to_be_bytes();
        let [s0, s1, s2, s3] = self.stream.get().to_be_bytes();
        [l0, l1, l2, self.kind.octet(), self.flags.0, s0, s1, s2, s3]
    }

    /// Writes the header.
    #[inline]
    pub fn write(&self, out: &mut impl BufMut) {
        out.put_slice(&self.octets());
    }

    /// Checks length and stream against the type, and the length against our
    /// `SETTINGS_MAX_FRAME_SIZE`.
    #[inline]
    pub fn check(&self, size_max: u32) -> Result<(), ConnectionError> {
        // An oversized DATA frame might be an error of its stream alone (RFC 9113 section 4.2). A peer
        // that ignores the setting is not worth the difference.
        if self.length > size_max {
            return Err(ConnectionError::FrameTooLarge(self.kind));
        }
        let (flags, length) = (self.flags, self.length);
        let fits = match self.kind {
            FrameType::Data => length >= u32::from(flags.has(Flags::PADDED)),
            FrameType::Headers => {
                let fixed = if flags.has(Flags::PRIORITY) { 5 } else { 0 };
                length >= fixed + u32::from(flags.has(Flags::PADDED))
            }
            FrameType::Priority => length == 5,
            FrameType::RstStream | FrameType::WindowUpdate => length == 4,
            FrameType::Settings if flags.has(Flags::ACK) => length == 0,
            FrameType::Settings => length.is_multiple_of(6),
            FrameType::Ping => length == 8,
            FrameType::PriorityUpdate => length >= 4,
            FrameType::GoAway => length >= 8,
            FrameType::PushPromise | FrameType::Continuation | FrameType::Unknown(_) => true,
        };
        if !fits {
            return Err(ConnectionError::FrameLength(self.kind));
        }
        let of_connection = self.stream == StreamId::CONNECTION;
        let placed = match self.kind {
            FrameType::Settings
            | FrameType::Ping
            | FrameType::GoAway
            | FrameType::PriorityUpdate => of_connection,
            FrameType::WindowUpdate | FrameType::Unknown(_) => true,
            _ => !of_connection,
        };
        if placed { Ok(()) } else { Err(ConnectionError::StreamIdentifier(self.kind)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_returns() {
        for octet in 0..=255 {
            let kind = FrameType::from_octet(octet);
            let stream = StreamId::new(0x8123_4567);
            let header = FrameHeader { length: 0xabcdef, kind, flags: Flags(octet), stream };
            assert_eq!(FrameHeader::parse(&header.octets()), header);
            assert_eq!(stream.get(), 0x0123_4567);
        }
    }

    #[test]
    fn lengths_and_streams_are_checked() {
        use ConnectionError::{FrameLength, FrameTooLarge, StreamIdentifier};
        let check = |kind, flags, length, stream| {
            let stream = StreamId::new(stream);
            FrameHeader { length, kind, flags, stream }.check(FRAME_SIZE_DEFAULT)
        };
        let padded = Flags::PADDED;
        for (kind, flags, length, stream, expected) in [
            (FrameType::Data, Flags::NONE, 16_384, 1, Ok(())),
            (FrameType::Data, Flags::NONE, 16_385, 1, Err(FrameTooLarge(FrameType::Data))),
            (FrameType::Data, padded, 0, 1, Err(FrameLength(FrameType::Data))),
            (FrameType::Data, Flags::NONE, 0, 0, Err(StreamIdentifier(FrameType::Data))),
            (FrameType::Headers, padded, 0, 1, Err(FrameLength(FrameType::Headers))),
            (FrameType::Headers, Flags::PRIORITY, 4, 1, Err(FrameLength(FrameType::Headers))),
            (FrameType::Headers, Flags(0x28), 5, 1, Err(FrameLength(FrameType::Headers))),
            (FrameType::Headers, Flags(0x28), 6, 1, Ok(())),
            (FrameType::Headers, Flags::NONE, 1, 0, Err(StreamIdentifier(FrameType::Headers))),
            (FrameType::Priority, Flags::NONE, 4, 1, Err(FrameLength(FrameType::Priority))),
            (FrameType::Priority, Flags::NONE, 5, 0, Err(StreamIdentifier(FrameType::Priority))),
            (FrameType::RstStream, Flags::NONE, 5, 1, Err(FrameLength(FrameType::RstStream))),
            (FrameType::RstStream, Flags::NONE, 4, 0, Err(StreamIdentifier(FrameType::RstStream))),
            (FrameType::Settings, Flags::NONE, 7, 0, Err(FrameLength(FrameType::Settings))),
            (FrameType::Settings, Flags::ACK, 6, 0, Err(FrameLength(FrameType::Settings))),
            (FrameType::Settings, Flags::NONE, 6, 1, Err(StreamIdentifier(FrameType::Settings))),
            (FrameType::Ping, Flags::NONE, 7, 0, Err(FrameLength(FrameType::Ping))),
            (FrameType::Ping, Flags::NONE, 8, 1, Err(StreamIdentifier(FrameType::Ping))),
            (FrameType::GoAway, Flags::NONE, 7, 0, Err(FrameLength(FrameType::GoAway))),
            (FrameType::GoAway, Flags::NONE, 8, 1, Err(StreamIdentifier(FrameType::GoAway))),
            (FrameType::WindowUpdate, Flags::NONE, 3, 1, Err(FrameLength(FrameType::WindowUpdate))),
            (FrameType::WindowUpdate, Flags::NONE, 4, 0, Ok(())),
            (
                FrameType::Continuation,
                Flags::NONE,
                0,
                0,
                Err(StreamIdentifier(FrameType::Continuation)),
            ),
            (
                FrameType::PriorityUpdate,
                Flags::NONE,
                3,
                0,
                Err(FrameLength(FrameType::PriorityUpdate)),
            ),
            (
                FrameType::PriorityUpdate,
                Flags::NONE,
                4,
                1,
                Err(StreamIdentifier(FrameType::PriorityUpdate)),
            ),
            (FrameType::PriorityUpdate, Flags::NONE, 4, 0, Ok(())),
            (FrameType::Unknown(99), Flags(0xff), 0, 0, Ok(())),
        ] {
            assert_eq!(check(kind, flags, length, stream), expected, "{kind:?} {flags:?} {length}");
        }
    }
}
