//! Writing frames into the caller's buffer. PUSH_PROMISE has no writer: Nowait never pushes.

use bytes::BufMut;

use super::Setting;
use crate::error::ErrorCode;
use crate::frame::{Flags, FrameHeader, FrameType, StreamId};

fn header(out: &mut impl BufMut, kind: FrameType, flags: Flags, stream: StreamId, length: usize) {
    FrameHeader { length: length as u32, kind, flags, stream }.write(out);
}

/// What precedes `length` octets of data.
pub fn data_header(out: &mut impl BufMut, stream: StreamId, length: usize, end: bool) {
    header(out, FrameType::Data, Flags::NONE.with(Flags::END_STREAM, end), stream, length);
}

/// What precedes a field block of `length` octets in one frame.
pub fn headers_header(out: &mut impl BufMut, stream: StreamId, length: usize, end: bool) {
    let flags = Flags::END_HEADERS.with(Flags::END_STREAM, end);
    header(out, FrameType::Headers, flags, stream, length);
}

/// PRIORITY, which has no effect (RFC 9113 section 5.3.2).
pub fn priority(out: &mut impl BufMut, stream: StreamId, dependency: StreamId, weight: u8) {
    header(out, FrameType::Priority, Flags::NONE, stream, 5);
    out.put_u32(dependency.get());
    out.put_u8(weight);
}

/// RST_STREAM.
pub fn rst_stream(out: &mut impl BufMut, stream: StreamId, code: ErrorCode) {
    header(out, FrameType::RstStream, Flags::NONE, stream, 4);
    out.put_u32(code.0);
}

/// SETTINGS.
pub fn settings(out: &mut impl BufMut, settings: &[Setting]) {
    header(out, FrameType::Settings, Flags::NONE, StreamId::CONNECTION, 6 * settings.len());
    for setting in settings {
        out.put_u16(setting.id);
        out.put_u32(setting.value);
    }
}

/// The acknowledgement of SETTINGS.
pub fn settings_ack(out: &mut impl BufMut) {
    header(out, FrameType::Settings, Flags::ACK, StreamId::CONNECTION, 0);
}

/// PING, or its acknowledgement.
pub fn ping(out: &mut impl BufMut, payload: [u8; 8], ack: bool) {
    header(out, FrameType::Ping, Flags::NONE.with(Flags::ACK, ack), StreamId::CONNECTION, 8);
    out.put_slice(&payload);
}

/// GOAWAY without debug data.
pub fn goaway(out: &mut impl BufMut, last: StreamId, code: ErrorCode) {
    header(out, FrameType::GoAway, Flags::NONE, StreamId::CONNECTION, 8);
    out.put_u32(last.get());
    out.put_u32(code.0);
}

/// WINDOW_UPDATE.
pub fn window_update(out: &mut impl BufMut, stream: StreamId, increment: u32) {
    header(out, FrameType::WindowUpdate, Flags::NONE, stream, 4);
    out.put_u32(increment);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn octets_of_frames() {
        let mut out = Vec::new();
        let stream = StreamId::new(3);
        settings(&mut out, &[Setting { id: Setting::ENABLE_PUSH, value: 0 }]);
        settings_ack(&mut out);
        ping(&mut out, *b"12345678", true);
        window_update(&mut out, stream, 0x0102_0304);
        rst_stream(&mut out, stream, ErrorCode::CANCEL);
        goaway(&mut out, stream, ErrorCode::NO_ERROR);
        priority(&mut out, stream, StreamId::new(1), 15);
        headers_header(&mut out, stream, 70_000, true);
        data_header(&mut out, stream, 5, false);
        let expected = [
            &b"\0\0\x06\x04\0\0\0\0\0\0\x02\0\0\0\0"[..],
            b"\0\0\0\x04\x01\0\0\0\0",
            b"\0\0\x08\x06\x01\0\0\0\x0012345678",
            b"\0\0\x04\x08\0\0\0\0\x03\x01\x02\x03\x04",
            b"\0\0\x04\x03\0\0\0\0\x03\0\0\0\x08",
            b"\0\0\x08\x07\0\0\0\0\0\0\0\0\x03\0\0\0\0",
            b"\0\0\x05\x02\0\0\0\0\x03\0\0\0\x01\x0f",
            b"\x01\x11\x70\x01\x05\0\0\0\x03",
            b"\0\0\x05\0\0\0\0\0\x03",
        ];
        assert_eq!(out, expected.concat());
    }
}
