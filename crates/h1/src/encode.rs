//! Writing heads and chunk framing into the caller's buffer.
//!
//! The caller decides which fields to write, in which order. Two things are never emitted, for any input
//! of the caller: a CR, LF or NUL inside a value (each becomes a space, as RFC 9110 section 5.5 advises),
//! and a field whose name has other characters than visible ASCII, or a colon (it is omitted). So no
//! variable in `add_header` can split a response.

use bytes::BufMut;

use crate::status_line;
use nowait_message::Fields;
use nowait_message::scan::is_passable_name;

/// The end of a chunk after its data.
pub const CHUNK_END: &[u8] = b"\r\n";

/// The last chunk, without trailers.
pub const LAST_CHUNK: &[u8] = b"0\r\n\r\n";

/// The interim response that requests the body.
pub const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

/// Writes one head.
#[derive(Debug)]
#[must_use = "a head ends with `finish`"]
pub struct HeadWriter<'a, B: BufMut> {
    out: &'a mut B,
}

impl<'a, B: BufMut> HeadWriter<'a, B> {
    /// Begins a response with `HTTP/1.1`, the sender's version regardless of the client's (RFC 9110
    /// section 2.5), and nginx's reason phrase for the status.
    #[inline]
    pub fn response(out: &'a mut B, status: u16) -> Self {
        match status_line::line(status) {
            Some(line) => out.put_slice(line),
            None => {
                out.put_slice(b"HTTP/1.1 ");
                put_decimal(out, u64::from(status));
                out.put_slice(b" \r\n");
            }
        }
        HeadWriter { out }
    }

    /// Continues a head that was begun in `out`.
    #[inline]
    pub fn resume(out: &'a mut B) -> Self {
        HeadWriter { out }
    }

    /// Begins a response with a given reason, for example an upstream's.
    pub fn response_with_reason(out: &'a mut B, status: u16, reason: &[u8]) -> Self {
        out.put_slice(b"HTTP/1.1 ");
        put_decimal(out, u64::from(status));
        out.put_u8(b' ');
        put_clean(out, reason);
        out.put_slice(b"\r\n");
        HeadWriter { out }
    }

    /// Begins a request. Space and control characters in method and target, which would break
    /// the line, are percent-encoded.
    pub fn request(out: &'a mut B, method: &[u8], target: &[u8], http11: bool) -> Self {
        put_unspaced(out, method);
        out.put_u8(b' ');
        put_unspaced(out, target);
        out.put_slice(if http11 { b" HTTP/1.1\r\n" } else { b" HTTP/1.0\r\n" });
        HeadWriter { out }
    }

    /// Begins the end of a chunked body: the last chunk; the fields that follow are trailers.
    pub fn trailers(out: &'a mut B) -> Self {
        out.put_slice(b"0\r\n");
        HeadWriter { out }
    }

    /// Adds a field. Omitted unless the name [may be passed on](is_passable_name); CR, LF and NUL in the
    /// value become spaces.
    pub fn field(&mut self, name: &[u8], value: &[u8]) -> &mut Self {
        if is_passable_name(name) {
            self.out.put_slice(name);
            self.out.put_slice(b": ");
            put_clean(self.out, value);
            self.out.put_slice(b"\r\n");
        }
        self
    }

    /// Adds a field with a trusted name. CR, LF and NUL in the value become spaces.
    #[inline]
    pub fn named(&mut self, name: &'static str, value: &[u8]) -> &mut Self {
        self.out.put_slice(name.as_bytes());
        self.out.put_slice(b": ");
        put_clean(self.out, value);
        self.out.put_slice(b"\r\n");
        self
    }

    /// Adds `Content-Type`. CR, LF and NUL in the value become spaces.
    #[inline]
    pub fn content_type(&mut self, value: &[u8]) -> &mut Self {
        self.out.put_slice(b"Content-Type: ");
        put_clean(self.out, value);
        self.out.put_slice(b"\r\n");
        self
    }

    /// Adds `Content-Length`.
    #[inline]
    pub fn content_length(&mut self, length: u64) -> &mut Self {
        self.out.put_slice(b"Content-Length: ");
        let mut line = [0; DECIMAL_MAX + 2];
        line[DECIMAL_MAX..].copy_from_slice(b"\r\n");
        let start = decimal_before(&mut line, DECIMAL_MAX, length);
        self.out.put_slice(&line[start..]);
        self
    }

    /// Adds `Date`.
    #[inline]
    pub fn date(&mut self, date: &[u8; 29]) -> &mut Self {
        self.date_line(*b"Date: xxx, xx xxx xxxx xx:xx:xx GMT\r\n", "Date", date)
    }

    /// Adds `Last-Modified`.
    #[inline]
    pub fn last_modified(&mut self, date: &[u8; 29]) -> &mut Self {
        let line = *b"Last-Modified: xxx, xx xxx xxxx xx:xx:xx GMT\r\n";
        self.date_line(line, "Last-Modified", date)
    }

    /// Adds a line whose length is known, in one piece: `line` with this date before its end.
    #[inline]
    fn date_line<const N: usize>(
        &mut self,
        mut line: [u8; N],
        name: &'static str,
        date: &[u8; 29],
    ) -> &mut Self {
        if !nowait_message::scan::is_one_line(date) {
            return self.named(name, date);
        }
        line[N - 31..N - 2].copy_from_slice(date);
        self.out.put_slice(&line);
        self
    }

    /// Adds trusted, complete field lines, including CRLF.
    #[inline]
    pub fn lines(&mut self, lines: &'static str) -> &mut Self {
        debug_assert!(lines.is_empty() || lines.ends_with("\r\n"));
        self.out.put_slice(lines.as_bytes());
        self
    }

    /// Ends the head.
    #[inline]
    pub fn finish(self) {
        self.out.put_slice(b"\r\n");
    }
}

/// Writes what precedes the data of a chunk of `length` bytes; [`CHUNK_END`] follows the data.
/// A length of 0 writes nothing: that would end the body.
pub fn chunk_start(out: &mut impl BufMut, length: u64) {
    if length == 0 {
        return;
    }
    let mut digits = [0; 16];
    let mut at = digits.len();
    let mut left = length;
    while left > 0 {
        at -= 1;
        digits[at] = b"0123456789abcdef"[(left & 15) as usize];
        left >>= 4;
    }
    out.put_slice(&digits[at..]);
    out.put_slice(b"\r\n");
}

/// Writes the last chunk with trailers, cleaned as fields are.
pub fn last_chunk<B: BufMut>(out: &mut B, trailers: Fields<'_>) {
    out.put_slice(b"0\r\n");
    let mut writer = HeadWriter { out };
    for field in trailers.iter() {
        writer.field(field.name, field.value);
    }
    writer.finish();
}

/// Digits of the largest number.
const DECIMAL_MAX: usize = 20;

/// Writes a number without allocating.
pub fn put_decimal(out: &mut impl BufMut, number: u64) {
    let mut digits = [0; DECIMAL_MAX];
    let start = decimal_before(&mut digits, DECIMAL_MAX, number);
    out.put_slice(&digits[start..]);
}

/// Puts a number into `text` before `end`, and returns where it starts.
#[inline]
fn decimal_before(text: &mut [u8], end: usize, mut number: u64) -> usize {
    let mut at = end;
    loop {
        at -= 1;
        text[at] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            return at;
        }
    }
}

/// Makes each CR, LF and NUL of a value a space, for values that are in a head already.
#[inline]
pub fn clean(value: &mut [u8]) {
    if nowait_message::scan::is_one_line(value) {
        return;
    }
    for byte in value.iter_mut().filter(|byte| matches!(byte, b'\r' | b'\n' | 0)) {
        *byte = b' ';
    }
}

#[inline]
fn put_clean(out: &mut impl BufMut, value: &[u8]) {
    if nowait_message::scan::is_one_line(value) {
        out.put_slice(value);
    } else {
        put_cleaned(out, value);
    }
}

#[inline(never)]
fn put_cleaned(out: &mut impl BufMut, value: &[u8]) {
    let mut rest = value;
    while let Some(at) = nowait_message::scan::find_line_end(rest, 0) {
        out.put_slice(&rest[..at]);
        out.put_u8(b' ');
        rest = &rest[at + 1..];
    }
    out.put_slice(rest);
}

#[inline]
fn put_unspaced(out: &mut impl BufMut, part: &[u8]) {
    if nowait_message::scan::is_visible(part) {
        out.put_slice(part);
    } else {
        put_encoded(out, part);
    }
}

#[inline(never)]
fn put_encoded(out: &mut impl BufMut, part: &[u8]) {
    let digits = b"0123456789ABCDEF";
    let mut rest = part;
    while let Some(at) = rest.iter().position(|&c| c <= b' ' || c == 0x7f) {
        let c = rest[at];
        out.put_slice(&rest[..at]);
        out.put_slice(&[b'%', digits[usize::from(c >> 4)], digits[usize::from(c & 15)]]);
        rest = &rest[at + 1..];
    }
    out.put_slice(rest);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What both of these make of a text.
    fn same(short: fn(&mut Vec<u8>, &[u8]), long: fn(&mut Vec<u8>, &[u8]), text: &[u8]) -> Vec<u8> {
        let mut outs = [Vec::new(), Vec::new()];
        short(&mut outs[0], text);
        long(&mut outs[1], text);
        let [out, other] = outs;
        assert_eq!(out, other);
        out
    }

    #[test]
    fn dates_are_written_as_any_field() {
        for date in [b"Sun, 06 Nov 1994 08:49:37 GMT", b"Sun, 06 Nov 1994\r\n08:49:37 GM"] {
            let [mut lines, mut fields] = [Vec::new(), Vec::new()];
            HeadWriter::resume(&mut lines).date(date).last_modified(date);
            HeadWriter::resume(&mut fields).field(b"Date", date).field(b"Last-Modified", date);
            assert_eq!(lines, fields);
        }
    }

    #[test]
    fn what_needs_no_change_is_copied() {
        for byte in 0..=255 {
            for at in 0..20 {
                let mut text = *b"a-value-of-20-bytes.";
                text[at] = byte;
                let changes = matches!(byte, b'\r' | b'\n' | 0);
                let cleaned = same(put_clean, put_cleaned, &text);
                assert_eq!(cleaned != text, changes, "{byte}");
                let mut in_place = text;
                clean(&mut in_place);
                assert_eq!(cleaned, in_place);
                let changes = byte <= b' ' || byte == 0x7f;
                assert_eq!(same(put_unspaced, put_encoded, &text) != text, changes, "{byte}");
            }
        }
    }
}
