//! Escaping in log lines: as the inside of JSON strings, and as nginx does by default.
//!
//! Pure functions over bytes. Each `push_*` appends to a buffer that the caller reuses.

const HEX: &[u8; 16] = b"0123456789ABCDEF";

/// Whether [`push_json`] would change anything.
pub fn needs_json(input: &[u8]) -> bool {
    input.iter().any(|&byte| byte < 0x20 || byte == b'"' || byte == b'\\')
}

/// Appends `input` as the inside of a JSON string. Bytes from 0x80 are copied: it is valid JSON
/// if the input is UTF-8.
pub fn push_json(out: &mut Vec<u8>, input: &[u8]) {
    for &byte in input {
        match byte {
            b'"' | b'\\' => out.extend_from_slice(&[b'\\', byte]),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            0x08 => out.extend_from_slice(b"\\b"),
            0x0c => out.extend_from_slice(b"\\f"),
            0..=0x1f => {
                out.extend_from_slice(b"\\u00");
                out.push(b'0' + (byte >> 4));
                out.push(HEX[usize::from(byte & 15)]);
            }
            _ => out.push(byte),
        }
    }
}

/// Whether [`push_log`] would change anything.
pub fn needs_log(input: &[u8]) -> bool {
    input.iter().any(|&byte| is_special(byte))
}

/// Appends `input` as a value of an access log line with `escape=default`: `"`, `\` and all bytes
/// that are not printable ASCII as `\xXX`.
pub fn push_log(out: &mut Vec<u8>, input: &[u8]) {
    // Values are mostly clean: copy runs, not bytes.
    let mut rest = input;
    while let Some(at) = rest.iter().position(|&byte| is_special(byte)) {
        out.extend_from_slice(&rest[..at]);
        let byte = rest[at];
        out.extend_from_slice(b"\\x");
        out.push(HEX[usize::from(byte >> 4)]);
        out.push(HEX[usize::from(byte & 15)]);
        rest = &rest[at + 1..];
    }
    out.extend_from_slice(rest);
}

/// Whether a byte of an access log line is escaped.
fn is_special(byte: u8) -> bool {
    !matches!(byte, b' '..=b'~') || byte == b'"' || byte == b'\\'
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_and_log() {
        let run = |push: fn(&mut Vec<u8>, &[u8]), input: &[u8]| {
            let mut out = Vec::new();
            push(&mut out, input);
            String::from_utf8(out).unwrap()
        };
        assert_eq!(
            run(push_json, b"\"\\\n\r\t\x08\x0c\x00\x1f\x7f/"),
            "\\\"\\\\\\n\\r\\t\\b\\f\\u0000\\u001F\x7f/"
        );
        assert_eq!(run(push_log, b"a\"b\\\x00\x7f\xff'~"), "a\\x22b\\x5C\\x00\\x7F\\xFF'~");
        assert_eq!(run(push_log, b""), "");
    }
}
