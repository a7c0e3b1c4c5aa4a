//! Base64 in both alphabets: base64url without padding (RFC 4648, 5), and that of PEM.

use base64::engine::general_purpose::{GeneralPurpose, NO_PAD, STANDARD, URL_SAFE_NO_PAD};
use base64::{Engine, alphabet};

/// It does not look at bits that are left over.
static LENIENT: GeneralPurpose =
    GeneralPurpose::new(&alphabet::URL_SAFE, NO_PAD.with_decode_allow_trailing_bits(true));

/// base64url without padding.
pub fn encode(bytes: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

/// The bytes of base64url, with or without padding. `None`: it is malformed.
pub fn decode(text: &str) -> Option<Vec<u8>> {
    LENIENT.decode(text.trim_end_matches('=')).ok()
}

/// A section of a PEM file.
pub(crate) fn pem(label: &str, der: &[u8]) -> String {
    let text = STANDARD.encode(der);
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
