//! Base64 in both alphabets: base64url without padding (RFC 4648, 5), and that of PEM.

const URL: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
const STANDARD: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

fn push(out: &mut String, bytes: &[u8], alphabet: &[u8; 64]) {
    for chunk in bytes.chunks(3) {
        let mut word = [0; 4];
        word[1..=chunk.len()].copy_from_slice(chunk);
        let bits = u32::from_be_bytes(word);
        for at in 0..=chunk.len() {
            let six = (bits >> (18 - 6 * at)) as usize & 63;
            out.push(char::from(alphabet[six]));
        }
    }
}

/// base64url without padding.
pub fn encode(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len().div_ceil(3) * 4);
    push(&mut out, bytes, URL);
    out
}

/// The bytes of base64url, with or without padding. `None`: it is malformed.
pub fn decode(text: &str) -> Option<Vec<u8>> {
    let text = text.trim_end_matches('=');
    let mut out = Vec::with_capacity(text.len() / 4 * 3 + 2);
    for chunk in text.as_bytes().chunks(4) {
        let mut bits = 0u32;
        for byte in chunk {
            let six = URL.iter().position(|known| known == byte)?;
            bits = bits << 6 | u32::try_from(six).ok()?;
        }
        let bytes = match chunk.len() {
            4 => 3,
            3 => 2,
            2 => 1,
            _ => return None,
        };
        bits <<= 6 * (4 - chunk.len());
        out.extend_from_slice(&bits.to_be_bytes()[1..=bytes]);
    }
    Some(out)
}

/// A section of a PEM file.
pub(crate) fn pem(label: &str, der: &[u8]) -> String {
    let mut text = String::with_capacity(der.len() * 2);
    push(&mut text, der, STANDARD);
    while !text.len().is_multiple_of(4) {
        text.push('=');
    }
    let mut out = format!("-----BEGIN {label}-----\n");
    for line in text.as_bytes().chunks(64) {
        out.push_str(&String::from_utf8_lossy(line));
        out.push('\n');
    }
    out.push_str(&format!("-----END {label}-----\n"));
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_and_back() {
        for (bytes, text) in
            [("", ""), ("f", "Zg"), ("fo", "Zm8"), ("foo", "Zm9v"), ("foob", "Zm9vYg")]
        {
            assert_eq!(encode(bytes.as_bytes()), text);
            assert_eq!(decode(text).as_deref(), Some(bytes.as_bytes()));
        }
        assert_eq!(encode(&[0xfb, 0xff]), "-_8");
        assert_eq!(decode("-_8="), Some(vec![0xfb, 0xff]));
        assert!(decode("a").is_none() && decode("a+b/").is_none() && decode("ä").is_none());
    }
}
