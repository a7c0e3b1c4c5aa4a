//! Payloads of frames (RFC 9113 section 6): reading and writing.
//!
//! Lengths and streams have been checked with the header ([`crate::FrameHeader::check`]). DATA has no
//! reader: its payload is never in one place.

mod settings;
mod write;

pub use settings::{Parameters, Setting};
pub use write::{
    data_header, goaway, headers_header, ping, priority, rst_stream, settings, settings_ack,
    window_update,
};

use crate::error::{ConnectionError, ErrorCode};
use crate::frame::{Flags, FrameHeader, FrameType, StreamId};

/// The block fragment of a HEADERS frame, without padding and priority.
pub fn headers<'p>(header: &FrameHeader, payload: &'p [u8]) -> Result<&'p [u8], ConnectionError> {
    let mut fragment = payload;
    let mut padding = 0;
    if header.flags.has(Flags::PADDED) {
        let (&first, rest) =
            fragment.split_first().ok_or(ConnectionError::FrameLength(FrameType::Headers))?;
        padding = usize::from(first);
        fragment = rest;
    }
    if header.flags.has(Flags::PRIORITY) {
        let (dependency, rest) =
            fragment.split_at_checked(5).ok_or(ConnectionError::FrameLength(FrameType::Headers))?;
        self::dependency(header, dependency)?;
        fragment = rest;
    }
    // "Padding that exceeds the size remaining for the field block fragment MUST be treated as a
    // PROTOCOL_ERROR."
    let length = fragment.len().checked_sub(padding);
    Ok(&fragment[..length.ok_or(ConnectionError::Padding(FrameType::Headers))?])
}

/// Checks the five octets of a priority, which have no effect otherwise (RFC 9113 section 5.3.2).
pub fn dependency(header: &FrameHeader, payload: &[u8]) -> Result<(), ConnectionError> {
    if StreamId::new(number(payload)) == header.stream {
        return Err(ConnectionError::SelfDependency(header.kind));
    }
    Ok(())
}

/// The code of a RST_STREAM frame.
pub fn code(payload: &[u8]) -> ErrorCode {
    ErrorCode(number(payload))
}

/// The increment of a WINDOW_UPDATE frame.
pub fn increment(payload: &[u8]) -> u32 {
    number(payload) & crate::frame::WINDOW_MAX
}

/// Last stream and code of a GOAWAY frame.
pub fn last_and_code(payload: &[u8]) -> (StreamId, ErrorCode) {
    (StreamId::new(number(payload)), code(payload.get(4..).unwrap_or_default()))
}

/// The first four octets.
fn number(payload: &[u8]) -> u32 {
    payload.first_chunk().map_or(0, |octets| u32::from_be_bytes(*octets))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(flags: u8, payload: &[u8]) -> FrameHeader {
        FrameHeader {
            length: payload.len() as u32,
            kind: FrameType::Headers,
            flags: Flags(flags),
            stream: StreamId::new(5),
        }
    }

    #[test]
    fn padding_and_priority_are_removed() {
        let check = |flags, payload: &'static [u8]| headers(&header(flags, payload), payload);
        assert_eq!(check(0, b"block"), Ok(&b"block"[..]));
        assert_eq!(check(0x08, b"\x02block\0\0"), Ok(&b"block"[..]));
        assert_eq!(check(0x08, b"\x02\0\0"), Ok(&b""[..]));
        assert_eq!(check(0x08, b"\x03\0\0"), Err(ConnectionError::Padding(FrameType::Headers)));
        assert_eq!(check(0x28, b"\x01\x80\0\0\x03\x10block\0"), Ok(&b"block"[..]));
        let own = Err(ConnectionError::SelfDependency(FrameType::Headers));
        assert_eq!(check(0x20, b"\x80\0\0\x05\x10block"), own);
        assert_eq!(check(0x20, b"\0\0\0"), Err(ConnectionError::FrameLength(FrameType::Headers)));
    }

    #[test]
    fn numbers_of_payloads() {
        assert_eq!(code(&[0, 0, 0, 8]), ErrorCode::CANCEL);
        assert_eq!(increment(&[0x80, 0, 1, 0]), 256);
        let goaway = [0x80, 0, 0, 9, 0, 0, 0, 11, b'd'];
        assert_eq!(last_and_code(&goaway), (StreamId::new(9), ErrorCode::ENHANCE_YOUR_CALM));
    }
}
