//! Integers with a prefix (RFC 7541 section 5.1).
//!
//! In HPACK, at most [`CONTINUATION_OCTETS_MAX`] octets follow the prefix, as in nginx: no length or index that
//! a limit would admit needs more, and an endless run of zeros ends early.

use bytes::BufMut;

use crate::CodingError;

/// Octets after the prefix.
const CONTINUATION_OCTETS_MAX: usize = 3;

/// Reads an integer whose first octet has `prefix` bits of it. Returns the value and the rest.
#[inline]
pub fn read(block: &[u8], prefix: u32) -> Result<(u32, &[u8]), CodingError> {
    let (&first, mut rest) = block.split_first().ok_or(CodingError::Truncated)?;
    let mask = (1u32 << prefix) - 1;
    let mut value = u32::from(first) & mask;
    if value < mask {
        return Ok((value, rest));
    }
    for shift in 0..CONTINUATION_OCTETS_MAX {
        let (&octet, tail) = rest.split_first().ok_or(CodingError::Truncated)?;
        value += u32::from(octet & 0x7f) << (7 * shift);
        rest = tail;
        if octet & 0x80 == 0 {
            return Ok((value, rest));
        }
    }
    Err(CodingError::IntegerTooLong)
}

/// The largest integer of QPACK.
const LONG_MAX: u64 = (1 << 62) - 1;

/// Reads an integer as [`read`] does, but one of up to 62 bits: "QPACK implementations MUST be able to decode
/// integers up to and including 62 bits long" (RFC 9204 section 4.1.1).
#[inline]
pub fn read_long(block: &[u8], prefix: u32) -> Result<(u64, &[u8]), CodingError> {
    let (&first, mut rest) = block.split_first().ok_or(CodingError::Truncated)?;
    let mask = (1u64 << prefix) - 1;
    let mut value = u64::from(first) & mask;
    if value < mask {
        return Ok((value, rest));
    }
    for shift in (0..63).step_by(7) {
        let (&octet, tail) = rest.split_first().ok_or(CodingError::Truncated)?;
        value += u64::from(octet & 0x7f) << shift;
        rest = tail;
        if value > LONG_MAX {
            break;
        }
        if octet & 0x80 == 0 {
            return Ok((value, rest));
        }
    }
    Err(CodingError::IntegerTooLong)
}

/// Writes an integer after the bits of `pattern`, which are those above the prefix.
#[inline]
pub fn write(out: &mut impl BufMut, pattern: u8, prefix: u32, value: usize) {
    let mask = (1usize << prefix) - 1;
    if value < mask {
        return out.put_u8(pattern | value as u8);
    }
    out.put_u8(pattern | mask as u8);
    let mut rest = value - mask;
    while rest >= 0x80 {
        out.put_u8(rest as u8 | 0x80);
        rest >>= 7;
    }
    out.put_u8(rest as u8);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 7541 appendix C.1.
    #[test]
    fn the_examples_of_the_rfc() {
        for (value, prefix, octets) in [
            (10, 5, &[0b01010][..]),
            (1337, 5, &[0b11111, 0b1001_1010, 0b0000_1010]),
            (42, 8, &[0b0010_1010]),
        ] {
            let mut out = Vec::new();
            write(&mut out, 0, prefix, value);
            assert_eq!(out, octets);
            assert_eq!(read(&out, prefix), Ok((value as u32, &[][..])));
        }
    }

    #[test]
    fn the_largest_value_and_one_octet_more() {
        assert_eq!(read(&[0x7f, 0xff, 0xff, 0x7f, 9], 7), Ok((127 + (1 << 21) - 1, &[9][..])));
        assert_eq!(read(&[0x7f, 0xff, 0xff, 0xff, 0], 7), Err(CodingError::IntegerTooLong));
        assert_eq!(read(&[0x7f, 0x80, 0x80, 0x80, 0], 7), Err(CodingError::IntegerTooLong));
        assert_eq!(read(&[0x7f, 0x80], 7), Err(CodingError::Truncated));
        assert_eq!(read(&[], 7), Err(CodingError::Truncated));
    }

    #[test]
    fn long_integers() {
        for value in [0, 126, 127, 128, 1 << 21, 1 << 32, LONG_MAX] {
            let mut out = Vec::new();
            write(&mut out, 0, 7, value as usize);
            assert_eq!(read_long(&out, 7), Ok((value, &[][..])), "{value}");
            for length in 0..out.len() {
                assert_eq!(read_long(&out[..length], 7), Err(CodingError::Truncated));
            }
        }
        let mut out = Vec::new();
        write(&mut out, 0, 7, 1 << 62);
        assert_eq!(read_long(&out, 7), Err(CodingError::IntegerTooLong));
        assert_eq!(read_long(&[0xff; 12], 7), Err(CodingError::IntegerTooLong));
        assert_eq!(
            read_long(&[0x7f, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0], 7),
            Err(CodingError::IntegerTooLong)
        );
    }
}
