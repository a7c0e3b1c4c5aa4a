//! Escaping in log lines: in error logs, as the inside of JSON strings, and as nginx does by default.
//!
//! Pure functions over bytes. Each `push_*` appends to a buffer that the caller reuses. Logs are read at
//! terminals: only `escape=none` lets control characters through.

use std::borrow::Cow;

const HEX: &[u8; 16] = b"0123456789ABCDEF";

/// Whether a character acts on a terminal or on the text around it, instead of being shown: controls
/// (C0, DEL, C1), line and paragraph separators, and those that change the direction of text.
fn is_control(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}')
        || matches!(c, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Whether [`push_line`] might change anything.
fn needs_line(input: &[u8]) -> bool {
    input.iter().any(|byte| !matches!(byte, b' '..=b'~'))
}

/// Appends `input` as one line of an error log. Line breaks become spaces; other bytes of controls,
/// and bytes that are not UTF-8, become `\xXX`, as in access logs. The rest is copied: the result is
/// UTF-8.
pub fn push_line(out: &mut Vec<u8>, input: &[u8]) {
    for chunk in input.utf8_chunks() {
        let mut rest = chunk.valid();
        while let Some((at, c)) = rest.char_indices().find(|(_, c)| is_control(*c)) {
            let (clean, from) = rest.split_at(at);
            let (control, after) = from.split_at(c.len_utf8());
            out.extend_from_slice(clean.as_bytes());
            match c {
                '\n' | '\r' => out.push(b' '),
                _ => push_hex(out, control.as_bytes()),
            }
            rest = after;
        }
        out.extend_from_slice(rest.as_bytes());
        push_hex(out, chunk.invalid());
    }
}

/// Escapes what follows `from` in a buffer, as [`push_line`].
pub fn line_from(out: &mut Vec<u8>, from: usize) {
    if needs_line(&out[from..]) {
        let raw = out.split_off(from);
        push_line(out, &raw);
    }
}

/// [`push_line`] of a text.
pub fn line(text: &str) -> Cow<'_, str> {
    if !needs_line(text.as_bytes()) {
        return Cow::Borrowed(text);
    }
    let mut out = Vec::with_capacity(text.len() + 16);
    push_line(&mut out, text.as_bytes());
    Cow::Owned(String::from_utf8_lossy(&out).into_owned())
}

/// JSON that a library has written, for a terminal: the controls that JSON allows in texts are escaped, too.
pub fn json_text(json: &str) -> Cow<'_, str> {
    // Line feeds can only stand between values.
    let acts = |c: char| c != '\n' && is_control(c);
    if !json.contains(acts) {
        return Cow::Borrowed(json);
    }
    let mut out = String::with_capacity(json.len() + 16);
    for c in json.chars() {
        match acts(c) {
            // None of them is above U+FFFF.
            true => out.push_str(&format!("\\u{:04X}", u32::from(c))),
            false => out.push(c),
        }
    }
    Cow::Owned(out)
}

/// Shortens a line to at most this many bytes, at the end of a character.
pub fn cut(line: &mut Vec<u8>, bytes_max: usize) {
    if line.len() > bytes_max {
        let is_inside = |at: &usize| line[*at] & 0xc0 == 0x80;
        // A character has at most three more bytes.
        let end = (bytes_max.saturating_sub(3)..=bytes_max).rev().find(|at| !is_inside(at));
        line.truncate(end.unwrap_or(bytes_max));
    }
}

fn push_hex(out: &mut Vec<u8>, bytes: &[u8]) {
    for byte in bytes {
        out.extend_from_slice(b"\\x");
        out.push(HEX[usize::from(byte >> 4)]);
        out.push(HEX[usize::from(byte & 15)]);
    }
}

/// Whether [`push_json`] would change anything.
pub fn needs_json(input: &[u8]) -> bool {
    let is_first = |byte: u8| byte < 0x20 || matches!(byte, b'"' | b'\\' | 0x7f | 0xc2);
    input.iter().any(|&byte| is_first(byte))
}

/// Appends `input` as the inside of a JSON string. Bytes from 0x80 are copied, except C1 controls: it
/// is valid JSON if the input is UTF-8.
pub fn push_json(out: &mut Vec<u8>, input: &[u8]) {
    let mut bytes = input.iter().copied().peekable();
    while let Some(byte) = bytes.next() {
        match byte {
            // nginx differs: it copies DEL and C1, which JSON allows and terminals obey.
            0x7f => out.extend_from_slice(b"\\u007F"),
            0xc2 => match bytes.next_if(|next| matches!(next, 0x80..=0x9f)) {
                Some(c1) => {
                    out.extend_from_slice(b"\\u00");
                    out.push(HEX[usize::from(c1 >> 4)]);
                    out.push(HEX[usize::from(c1 & 15)]);
                }
                None => out.push(byte),
            },
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
        push_hex(out, &rest[at..=at]);
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
            "\\\"\\\\\\n\\r\\t\\b\\f\\u0000\\u001F\\u007F/"
        );
        assert_eq!(run(push_json, "\u{80}\u{9b}\u{a0}ä".as_bytes()), "\\u0080\\u009B\u{a0}ä");
        assert!(needs_json(b"\x7f") && needs_json("\u{9b}".as_bytes()) && !needs_json(b"a/"));
        assert_eq!(run(push_log, b"a\"b\\\x00\x7f\xff'~"), "a\\x22b\\x5C\\x00\\x7F\\xFF'~");
        assert_eq!(run(push_log, b""), "");
    }

    #[test]
    fn lines() {
        let run = |input: &[u8]| {
            let mut out = b"time ".to_vec();
            out.extend_from_slice(input);
            line_from(&mut out, 5);
            String::from_utf8(out).unwrap()[5..].to_owned()
        };
        assert_eq!(run(b"\x1b]0;x\x07 \t\x7f\0"), "\\x1B]0;x\\x07 \\x09\\x7F\\x00");
        assert_eq!(run(b"a\r\nb\nc"), "a  b c");
        // Text stays text, and so do backslashes.
        assert_eq!(run("grün/✓ \u{200d}\\x".as_bytes()), "grün/✓ \u{200d}\\x");
        assert_eq!(run("\u{9b}31m\u{85}".as_bytes()), "\\xC2\\x9B31m\\xC2\\x85");
        assert_eq!(run("\u{2028}\u{202e}\u{2066}".as_bytes()).matches('\\').count(), 9);
        assert_eq!(run(b"\x9b31m\xff\xc3(\xe2\x82"), "\\x9B31m\\xFF\\xC3(\\xE2\\x82");
        assert!(matches!(line("plain"), Cow::Borrowed(_)));
        assert_eq!(line("ä\u{1b}c"), "ä\\x1Bc");
        let json = "{\n  \"a\": \"ä\u{7f}\u{9b}2J\u{202e}\"\n}";
        assert_eq!(json_text(json), "{\n  \"a\": \"ä\\u007F\\u009B2J\\u202E\"\n}");
        assert!(matches!(json_text("{}\n"), Cow::Borrowed(_)));
        for length in 0..8 {
            let mut text = "aé✓".as_bytes().to_vec();
            cut(&mut text, length);
            assert!(text.len() <= length && String::from_utf8(text).is_ok(), "{length}");
        }
    }
}
