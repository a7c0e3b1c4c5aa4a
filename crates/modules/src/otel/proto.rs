//! Writes messages of Protocol Buffers, and reads the one number that the response to an export has.
//!
//! Spans are written once, in the form in which they are sent: a general library would build a tree of each message
//! first. The numbers of fields are those of the `.proto` files of OpenTelemetry, version 1.

use nowait_backend::protobuf::{self, FieldValue, push_key, push_varint};

pub use protobuf::push_bytes as bytes;

/// A number.
pub fn number(out: &mut Vec<u8>, field: u32, value: u64) {
    push_key(out, field, 0);
    push_varint(out, value);
}

/// A number of eight bytes.
pub fn fixed64(out: &mut Vec<u8>, field: u32, value: u64) {
    push_key(out, field, 1);
    out.extend_from_slice(&value.to_le_bytes());
}

/// A floating-point number.
fn double(out: &mut Vec<u8>, field: u32, value: f64) {
    fixed64(out, field, value.to_bits());
}

/// A message within this one.
pub fn nested(out: &mut Vec<u8>, field: u32, write: impl FnOnce(&mut Vec<u8>)) {
    push_key(out, field, 2);
    let start = out.len();
    write(out);
    let length = out.len() - start;
    // The length stands before the content, and its own length is only known now.
    let mut prefix = Vec::with_capacity(10);
    push_varint(&mut prefix, length as u64);
    out.splice(start..start, prefix);
}

/// `KeyValue { string key = 1; AnyValue value = 2; }` with a text.
pub fn text_attribute(out: &mut Vec<u8>, name: &str, value: &str) {
    bytes(out, 1, name.as_bytes());
    // AnyValue { string string_value = 1; }
    nested(out, 2, |out| bytes(out, 1, value.as_bytes()));
}

/// The same with an array of one text.
pub fn array_attribute(out: &mut Vec<u8>, name: &str, value: &str) {
    bytes(out, 1, name.as_bytes());
    // AnyValue { ArrayValue array_value = 5; }, ArrayValue { repeated AnyValue values = 1; }
    nested(out, 2, |out| {
        nested(out, 5, |out| nested(out, 1, |out| bytes(out, 1, value.as_bytes())));
    });
}

/// The same with a whole number.
pub fn number_attribute(out: &mut Vec<u8>, name: &str, value: u64) {
    bytes(out, 1, name.as_bytes());
    // AnyValue { int64 int_value = 3; }
    nested(out, 2, |out| number(out, 3, value));
}

/// The same with a floating-point number.
pub fn double_attribute(out: &mut Vec<u8>, name: &str, value: f64) {
    bytes(out, 1, name.as_bytes());
    // AnyValue { double double_value = 4; }
    nested(out, 2, |out| double(out, 4, value));
}

/// The spans that a collector has rejected, according to its response: `ExportTraceServiceResponse {
/// ExportTracePartialSuccess partial_success = 1; }`, `ExportTracePartialSuccess { int64 rejected_spans = 1; }`.
/// Anything that cannot be read rejects nothing.
pub fn rejected_spans(response: &[u8]) -> u64 {
    let read = || match field(response, 1)? {
        FieldValue::Bytes(partial) => match field(partial, 1)? {
            FieldValue::Number(count) => Some(count),
            _ => None,
        },
        _ => None,
    };
    read().unwrap_or(0)
}

/// The first field of this number.
fn field(mut message: &[u8], wanted: u64) -> Option<FieldValue<'_>> {
    loop {
        let (number, value) = protobuf::next_field(&mut message)?;
        if number == wanted {
            return Some(value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages() {
        let mut out = Vec::new();
        number(&mut out, 1, 150);
        assert_eq!(out, [0x08, 0x96, 0x01]);
        out.clear();
        nested(&mut out, 3, |out| number(out, 1, 150));
        assert_eq!(out, [0x1a, 0x03, 0x08, 0x96, 0x01]);
        out.clear();
        nested(&mut out, 1, |out| bytes(out, 1, &[7; 300]));
        assert_eq!(out[..6], [0x0a, 0xaf, 0x02, 0x0a, 0xac, 0x02]);
        assert_eq!(out.len(), 306);
    }

    #[test]
    fn responses() {
        let mut response = Vec::new();
        nested(&mut response, 1, |out| {
            bytes(out, 2, b"too old");
            number(out, 1, 7);
        });
        assert_eq!(rejected_spans(&response), 7);
        for bad in [
            &b""[..],
            b"\0",
            b"\x0a",
            b"\x0a\x05\x08",
            b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff",
            b"\x0f",
        ] {
            assert_eq!(rejected_spans(bad), 0, "{bad:?}");
        }
    }
}
