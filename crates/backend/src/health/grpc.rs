//! `health_check type=grpc`: the call `grpc.health.v1.Health/Check`, and the evaluation of its response.

use bytes::Bytes;
use nowait_message::{FieldPosition, Known, RequestHead, Span};

use crate::protobuf::{self, FieldValue};

/// The method of the health service.
pub(super) const PATH: &[u8] = b"/grpc.health.v1.Health/Check";

/// `SERVING` of the response's `ServingStatus`.
const SERVING: u64 = 1;

/// The service to check, and the statuses that count as healthy.
#[derive(Clone, Debug, Default)]
pub struct GrpcCheck {
    /// The service; empty: the server as a whole.
    pub service: Bytes,
    /// A status of the call that counts as healthy, too; 0: none but success.
    pub status: u16,
}

impl GrpcCheck {
    /// The message of the request: `HealthCheckRequest { string service = 1; }` behind its length.
    pub(super) fn message(&self) -> Bytes {
        let mut message = Vec::new();
        if !self.service.is_empty() {
            protobuf::push_bytes(&mut message, 1, &self.service);
        }
        let length = u32::try_from(message.len()).unwrap_or(u32::MAX);
        [&[0], &length.to_be_bytes()[..], &message].concat().into()
    }

    /// Whether a call with this status and these messages shows a healthy server.
    pub(super) fn passes(&self, status: Option<&[u8]>, body: &[u8]) -> bool {
        match status.and_then(nowait_conf::number) {
            Some(0) => serving(body) == Some(SERVING),
            Some(status) => self.status != 0 && status == u64::from(self.status),
            None => false,
        }
    }
}

/// Adds the fields of a call to the head of a request.
pub(super) fn prepare(head: &mut RequestHead) {
    for (known, name, value) in [
        (Known::ContentType, &b"Content-Type"[..], &b"application/grpc"[..]),
        (Known::Te, b"TE", b"trailers"),
    ] {
        let mut text = std::mem::take(head.text_mut());
        let start = text.len();
        let middle = start + name.len();
        text.extend_from_slice(name);
        text.extend_from_slice(value);
        let (name, value) = (Span::new(start, middle), Span::new(middle, text.len()));
        let added = head.add(&text, FieldPosition { name, value, known: Some(known) });
        debug_assert!(added.is_ok(), "these fields are valid");
        *head.text_mut() = text;
    }
}

/// The field 1, a number, of the first message: `HealthCheckResponse { ServingStatus status = 1; }`. As
/// everywhere in its encoding, a missing number is zero.
fn serving(body: &[u8]) -> Option<u64> {
    let (prefix, rest) = body.split_at_checked(5)?;
    let length = u32::from_be_bytes([prefix[1], prefix[2], prefix[3], prefix[4]]);
    let mut message = rest.get(..length as usize).filter(|_| prefix[0] == 0)?;
    let mut status = 0;
    while !message.is_empty() {
        if let (1, FieldValue::Number(value)) = protobuf::next_field(&mut message)? {
            status = value;
        }
    }
    Some(status)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_those_of_the_health_service() {
        let all = GrpcCheck::default();
        assert_eq!(all.message(), &b"\0\0\0\0\0"[..]);
        let one = GrpcCheck { service: Bytes::from_static(b"s.S"), status: 0 };
        assert_eq!(one.message(), &b"\0\0\0\0\x05\x0a\x03s.S"[..]);
        let long = GrpcCheck { service: vec![b's'; 300].into(), status: 0 };
        assert_eq!(long.message()[..8], b"\0\0\0\x01\x2f\x0a\xac\x02"[..]);
    }

    #[test]
    fn the_server_has_to_serve() {
        let check = GrpcCheck::default();
        let ok = Some(&b"0"[..]);
        assert!(check.passes(ok, b"\0\0\0\0\x02\x08\x01"));
        // With an unknown field.
        assert!(check.passes(ok, b"\0\0\0\0\x05\x12\x01x\x08\x01"));
        assert!(!check.passes(ok, b"\0\0\0\0\x02\x08\x02"));
        for body in [&b""[..], b"\0\0\0\0\0", b"\0\0\0\0\x02\x08", b"\0\0\0\0\x01\xff"] {
            assert!(!check.passes(ok, body));
        }
        assert!(!check.passes(None, b"\0\0\0\0\x02\x08\x01"));
        assert!(!check.passes(Some(b"12"), b""));
        let lenient = GrpcCheck { status: 12, ..GrpcCheck::default() };
        assert!(lenient.passes(Some(b"12"), b"") && !lenient.passes(Some(b"14"), b""));
    }
}
