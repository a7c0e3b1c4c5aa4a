//! The encoding of Protocol Buffers, as far as calls that the server makes itself need it: health checks, and exports of
//! traces. Their messages have few fields, so no library builds trees of them.
//!
//! Pure functions. Malformed input has no fields.

/// The value of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldValue<'a> {
    /// A number of variable length.
    Number(u64),
    /// Bytes, a text or a message.
    Bytes(&'a [u8]),
    /// A number of four or eight bytes, which no response has that is looked at.
    Fixed,
}

/// Appends a number of variable length.
pub fn push_varint(out: &mut Vec<u8>, mut value: u64) {
    while value > 0x7f {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Appends the key of a field: its number, and the kind of its value.
pub fn push_key(out: &mut Vec<u8>, field: u32, kind: u32) {
    push_varint(out, u64::from(field << 3 | kind));
}

/// Appends bytes, a message, or a text, which has to be UTF-8.
pub fn push_bytes(out: &mut Vec<u8>, field: u32, value: &[u8]) {
    push_key(out, field, 2);
    push_varint(out, value.len() as u64);
    out.extend_from_slice(value);
}

/// Takes the next field from a message: its number and its value. `None`: the message has ended, or is malformed.
pub fn next_field<'a>(message: &mut &'a [u8]) -> Option<(u64, FieldValue<'a>)> {
    let key = read_varint(message)?;
    let value = match key & 7 {
        0 => FieldValue::Number(read_varint(message)?),
        2 => {
            let length = usize::try_from(read_varint(message)?).ok()?;
            FieldValue::Bytes(message.split_off(..length)?)
        }
        kind => {
            message.split_off(match kind {
                1 => ..8,
                5 => ..4,
                _ => return None,
            })?;
            FieldValue::Fixed
        }
    };
    Some((key >> 3, value))
}

fn read_varint(input: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let octet = *input.split_off_first()?;
        value |= u64::from(octet & 0x7f) << shift;
        if octet & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_read_as_they_were_written() {
        let mut message = Vec::new();
        push_key(&mut message, 1, 0);
        push_varint(&mut message, u64::MAX);
        push_bytes(&mut message, 1000, &[7; 300]);
        push_key(&mut message, 3, 1);
        message.extend_from_slice(&[0; 8]);
        push_key(&mut message, 4, 5);
        message.extend_from_slice(&[0; 4]);
        let mut rest = &message[..];
        assert_eq!(next_field(&mut rest), Some((1, FieldValue::Number(u64::MAX))));
        assert_eq!(next_field(&mut rest), Some((1000, FieldValue::Bytes(&[7; 300]))));
        assert_eq!(next_field(&mut rest), Some((3, FieldValue::Fixed)));
        assert_eq!(next_field(&mut rest), Some((4, FieldValue::Fixed)));
        assert_eq!((next_field(&mut rest), rest.len()), (None, 0));
    }

    #[test]
    fn malformed_fields() {
        for bad in [
            &b"\x08"[..],
            b"\x0a\x05a",
            b"\x09\0\0\0\0\0\0\0",
            b"\x0d\0\0\0",
            b"\x0f",
            b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff",
        ] {
            assert_eq!(next_field(&mut &bad[..]), None, "{}", bad.escape_ascii());
        }
    }
}
