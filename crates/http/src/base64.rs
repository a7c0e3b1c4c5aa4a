//! Base64 as in RFC 4648 section 4, for headers and password files.

use base64::engine::general_purpose::{GeneralPurpose, NO_PAD, STANDARD};
use base64::{Engine, alphabet};

/// Like nginx, it does not look at bits that are left over.
static LENIENT: GeneralPurpose =
    GeneralPurpose::new(&alphabet::STANDARD, NO_PAD.with_decode_allow_trailing_bits(true));

/// Decodes; padding may be missing. `None` for bytes outside the alphabet and impossible lengths.
/// nginx: `ngx_decode_base64`.
pub fn decode(text: &[u8]) -> Option<Vec<u8>> {
    let digits = text.strip_suffix(b"==").or_else(|| text.strip_suffix(b"=")).unwrap_or(text);
    LENIENT.decode(digits).ok()
}

/// Encodes, with padding.
pub fn encode(bytes: &[u8]) -> Vec<u8> {
    STANDARD.encode(bytes).into_bytes()
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
            ("Zh", b"f"),
            ("Zm8==", b"fo"),
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
