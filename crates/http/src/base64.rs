//! Base64 as in RFC 4648 section 4, for headers and password files.

/// Decodes; padding may be missing. `None` for bytes outside the alphabet and impossible lengths.
/// nginx: `ngx_decode_base64`.
pub fn decode(text: &[u8]) -> Option<Vec<u8>> {
    let length = text.iter().position(|&b| b == b'=').unwrap_or(text.len());
    let (digits, padding) = text.split_at(length);
    if digits.len() % 4 == 1 || padding.len() > 2 || padding.iter().any(|&b| b != b'=') {
        return None;
    }
    let mut out = Vec::with_capacity(digits.len() / 4 * 3 + 2);
    for group in digits.chunks(4) {
        let mut bits = 0_u32;
        for &digit in group {
            bits = bits << 6 | u32::from(value(digit)?);
        }
        bits <<= 6 * (4 - group.len());
        out.extend_from_slice(&bits.to_be_bytes()[1..group.len()]);
    }
    Some(out)
}

/// Encodes, with padding.
pub fn encode(bytes: &[u8]) -> Vec<u8> {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = Vec::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let byte = |n: usize| u32::from(group.get(n).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for n in 0..4 {
            let digit = (bits >> (18 - 6 * n) & 63) as usize;
            out.push(if n <= group.len() { DIGITS[digit] } else { b'=' });
        }
    }
    out
}

fn value(digit: u8) -> Option<u8> {
    match digit {
        b'A'..=b'Z' => Some(digit - b'A'),
        b'a'..=b'z' => Some(digit - b'a' + 26),
        b'0'..=b'9' => Some(digit - b'0' + 52),
        b'+' => Some(62),
        b'/' => Some(63),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encodes_with_padding() {
        for (bytes, text) in
            [(&b""[..], ""), (b"f", "Zg=="), (b"fo", "Zm8="), (b"\xff\xfe\xfd", "//79")]
        {
            assert_eq!(encode(bytes), text.as_bytes());
        }
    }

    #[test]
    fn decodes_with_and_without_padding() {
        for (text, bytes) in [
            ("", &b""[..]),
            ("Zg==", b"f"),
            ("Zg", b"f"),
            ("Zm8=", b"fo"),
            ("Zm9v", b"foo"),
            ("Zm9vYmE", b"fooba"),
            ("//79", b"\xff\xfe\xfd"),
        ] {
            assert_eq!(decode(text.as_bytes()).as_deref(), Some(bytes), "{text}");
        }
        for text in ["Z", "Zm9vY", "_w==", "Zg=x", "Zg===", "Z g=", "\u{fc}"] {
            assert_eq!(decode(text.as_bytes()), None, "{text}");
        }
    }
}
