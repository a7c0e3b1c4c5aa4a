//! Byte ranges (RFC 9110 section 14): the parts of a body selected by `Range`, and the framing of
//! `multipart/byteranges`.
//!
//! The range filter calls [`select`] for 200 responses of known length, then [`multipart`] when
//! several ranges are wanted. This module holds no body: it says where each part begins and ends.
//! Floods of small or overlapping ranges are limited as in nginx: ranges that add up to more than the
//! whole representation select the whole.

use std::ops::Range;

use bytes::{BufMut, Bytes, BytesMut};

/// `max_ranges` when it is not configured: no limit on the number, but the framing of the parts
/// counts towards the size of the response.
pub const MAX_RANGES_UNSET: u32 = i32::MAX as u32;

/// The cost of one part's head in [`select`] when `max_ranges` is not configured, and the amount by
/// which all parts may exceed the size of the representation; bytes.
const PART_COST: u64 = 256;
const PARTS_COST_FREE: u64 = 4096;

/// Numbers in a `Range` field above this are an error, as in nginx, where offsets are signed.
const OFFSET_MAX: u64 = i64::MAX as u64;

/// The selection of a `Range` field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Selection {
    /// Send the whole as 200.
    Whole,
    /// 206 with `Content-Range`.
    Single(Range<u64>),
    /// 206 with `multipart/byteranges`; two or more, in the order of the request.
    Multiple(Vec<Range<u64>>),
    /// 416 with [`unsatisfied`] as `Content-Range`.
    NotSatisfiable,
}

/// Reads the field `bytes=0-99,200-,-50` for a representation of `size` bytes. Fields of other
/// units, and more ranges than `max_ranges`, select the whole.
pub fn select(field: &[u8], size: u64, max_ranges: u32) -> Selection {
    // RFC 9110 section 14.2: "A server MAY ignore the Range header field."
    if max_ranges == 0 || field.len() < 7 || !field[..6].eq_ignore_ascii_case(b"bytes=") {
        return Selection::Whole;
    }
    let mut ranges: Vec<Range<u64>> = Vec::new();
    let mut total = 0u64;
    for spec in field[6..].split(|&b| b == b',') {
        let Some(range) = parse_spec(spec, size) else { return Selection::NotSatisfiable };
        if range.start < range.end {
            if ranges.len() as u64 >= u64::from(max_ranges) {
                return Selection::Whole;
            }
            total = match total.checked_add(range.end - range.start) {
                Some(total) if total <= OFFSET_MAX => total,
                _ => return Selection::NotSatisfiable,
            };
            ranges.push(range);
        } else if range.start == 0 {
            // Everything of an empty representation.
            return Selection::Whole;
        }
    }
    match ranges.len() {
        0 => Selection::NotSatisfiable,
        1 => Selection::Single(ranges.remove(0)),
        _ if total > size => Selection::Whole,
        count
            if max_ranges == MAX_RANGES_UNSET
                && total + count as u64 * PART_COST > size + PARTS_COST_FREE =>
        {
            Selection::Whole
        }
        _ => Selection::Multiple(ranges),
    }
}

/// One of `first-last`, `first-`, `-length`, clamped to `size`; empty if nothing of it exists.
/// `None` is a syntax error.
fn parse_spec(spec: &[u8], size: u64) -> Option<Range<u64>> {
    let spec = spaces(spec);
    if let Some(rest) = spec.strip_prefix(b"-") {
        let (length, rest) = number(rest)?;
        return spaces(rest).is_empty().then(|| size.saturating_sub(length)..size);
    }
    let (start, rest) = number(spec)?;
    let rest = spaces(spaces(rest).strip_prefix(b"-")?);
    if rest.is_empty() {
        return Some(start..size);
    }
    let (last, rest) = number(rest)?;
    spaces(rest).is_empty().then(|| start..last.saturating_add(1).min(size))
}

fn spaces(mut text: &[u8]) -> &[u8] {
    while let [b' ', rest @ ..] = text {
        text = rest;
    }
    text
}

/// One or more digits and what follows them.
fn number(text: &[u8]) -> Option<(u64, &[u8])> {
    let digits = text.iter().take_while(|b| b.is_ascii_digit()).count();
    if digits == 0 {
        return None;
    }
    let value = text[..digits].iter().try_fold(0u64, |value, digit| {
        value
            .checked_mul(10)?
            .checked_add(u64::from(digit - b'0'))
            .filter(|&value| value <= OFFSET_MAX)
    })?;
    Some((value, &text[digits..]))
}

/// `Content-Range` of a single part: `bytes 0-99/1000`. `range` is not empty.
pub fn content_range(range: &Range<u64>, size: u64) -> String {
    format!("bytes {}-{}/{}", range.start, range.end.saturating_sub(1), size)
}

/// Reads the `Content-Range` of a single part: the range, and the length of the whole, which is `None`
/// if it is not stated. `None` for anything else.
pub fn parse_content_range(field: &[u8]) -> Option<(Range<u64>, Option<u64>)> {
    let text = std::str::from_utf8(field).ok()?.strip_prefix("bytes ")?;
    let (range, whole) = text.split_once('/')?;
    let (first, last) = range.split_once('-')?;
    let whole = match whole.trim() {
        "*" => None,
        whole => Some(whole_number(whole)?),
    };
    Some((whole_number(first)?..whole_number(last)?.checked_add(1)?, whole))
}

fn whole_number(text: &str) -> Option<u64> {
    let (value, rest) = number(text.trim().as_bytes())?;
    rest.is_empty().then_some(value)
}

/// `Content-Range` of a 416: `bytes */1000`.
pub fn unsatisfied(size: u64) -> String {
    format!("bytes */{size}")
}

/// The frame of a `multipart/byteranges` body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Multipart {
    /// The response's `Content-Type`.
    pub content_type: String,
    /// The response's `Content-Length`.
    pub length: u64,
    /// Each part: the bytes before it and its place in the representation.
    pub parts: Vec<(Bytes, Range<u64>)>,
    /// The bytes after the last part.
    pub end: Bytes,
}

/// Frames `ranges` of a representation of `size` bytes.
///
/// `content_type` is the representation's whole field value (with charset), empty if it has none.
/// `boundary` should differ between responses; nginx counts, so do not take it for a secret.
pub fn multipart(
    ranges: Vec<Range<u64>>,
    size: u64,
    content_type: &[u8],
    boundary: u64,
) -> Multipart {
    let mut heads = BytesMut::new();
    let mut parts = Vec::with_capacity(ranges.len());
    let mut length = 0;
    for range in ranges {
        heads.put_slice(format!("\r\n--{boundary:020}\r\n").as_bytes());
        if !content_type.is_empty() {
            heads.put_slice(b"Content-Type: ");
            heads.put_slice(content_type);
            heads.put_slice(b"\r\n");
        }
        let line = format!("Content-Range: {}\r\n\r\n", content_range(&range, size));
        heads.put_slice(line.as_bytes());
        let head = heads.split().freeze();
        length += head.len() as u64 + (range.end - range.start);
        parts.push((head, range));
    }
    let end = Bytes::from(format!("\r\n--{boundary:020}--\r\n"));
    length += end.len() as u64;
    Multipart {
        content_type: format!("multipart/byteranges; boundary={boundary:020}"),
        length,
        parts,
        end,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Selection::{Multiple, NotSatisfiable, Single, Whole};

    fn of(field: &str, size: u64) -> Selection {
        select(field.as_bytes(), size, MAX_RANGES_UNSET)
    }

    #[test]
    fn content_ranges() {
        assert_eq!(parse_content_range(b"bytes 0-9/25"), Some((0..10, Some(25))));
        assert_eq!(parse_content_range(b"bytes 0-9/*"), Some((0..10, None)));
        for wrong in [
            &b"bytes */25"[..],
            b"0-9/25",
            b"bytes 0-9",
            b"bytes a-9/25",
            b"bytes 0-9/x",
            b"bytes 0-9x/25",
            b"bytes 0-+9/25",
            b"bytes 0-9223372036854775808/*",
        ] {
            assert_eq!(parse_content_range(wrong), None, "{}", wrong.escape_ascii());
        }
    }

    #[test]
    fn single() {
        for (field, expected) in [
            ("bytes=0-8", 0..9),
            ("BYTES=0-8", 0..9),
            ("bytes=-8", 992..1000),
            ("bytes=990-", 990..1000),
            ("bytes=990-5000", 990..1000),
            ("bytes=-5000", 0..1000),
            ("bytes= 0 - 8 ", 0..9),
            ("bytes=999-", 999..1000),
            ("bytes=0-9223372036854775807", 0..1000),
            ("bytes=0-1,5000-6000", 0..2),
        ] {
            assert_eq!(of(field, 1000), Single(expected), "{field}");
        }
    }

    #[test]
    fn refused() {
        for field in [
            "bytes=1000-",
            "bytes=-0",
            "bytes=5-3",
            "bytes=,0-1",
            "bytes=0-1,",
            "bytes=x-1",
            "bytes=1",
            "bytes=1-2x",
            "bytes=--1",
            "bytes=-1 2",
            "bytes=\t0-1",
            "bytes=0-99999999999999999999",
            "bytes=9223372036854775808-",
        ] {
            assert_eq!(of(field, 1000), NotSatisfiable, "{field}");
        }
    }

    #[test]
    fn ignored() {
        for field in ["", "bytes=", "lines=0-1", "bytes:0-1", "bytes 0-1"] {
            assert_eq!(of(field, 1000), Whole, "{field}");
        }
        assert_eq!(of("bytes=0-", 0), Whole);
        assert_eq!(of("bytes=-5", 0), Whole);
        assert_eq!(select(b"bytes=0-1", 1000, 0), Whole);
    }

    #[test]
    fn multiple_and_its_limits() {
        assert_eq!(of("bytes=0-1, -2,5-5", 1000), Multiple(vec![0..2, 998..1000, 5..6]));
        // Overlap is fine while the sum stays within the size.
        assert_eq!(of("bytes=0-1,0-1", 1000), Multiple(vec![0..2, 0..2]));
        assert_eq!(of("bytes=0-,0-0", 1000), Whole);
        assert_eq!(select(b"bytes=0-1,2-3", 1000, 1), Whole);
        assert_eq!(select(b"bytes=0-1,2-3", 1000, 2), Multiple(vec![0..2, 2..4]));
        assert_eq!(select(b"bytes=0-1,5000-,2-3", 1000, 2), Multiple(vec![0..2, 2..4]));
        assert_eq!(select(b"bytes=0-1", 1000, 1), Single(0..2));
        // Twenty heads cost more than the 4 KB allowed above the size of a small file, unless the
        // operator set a limit.
        let many = format!("bytes={}0-0", "0-0,".repeat(19));
        assert_eq!(of(&many, 1000), Whole);
        assert!(matches!(select(many.as_bytes(), 1000, 20), Multiple(_)));
        assert!(matches!(of(&many, 10_000), Multiple(_)));
    }

    #[test]
    fn content_range_values() {
        assert_eq!(content_range(&(0..9), 1000), "bytes 0-8/1000");
        assert_eq!(unsatisfied(1000), "bytes */1000");
    }

    #[test]
    fn multipart_frame() {
        let frame = multipart(vec![0..2, 8..10], 10, b"text/plain; charset=x", 7);
        assert_eq!(frame.content_type, "multipart/byteranges; boundary=00000000000000000007");
        let body = b"0123456789";
        let mut text = Vec::new();
        for (head, range) in &frame.parts {
            text.extend_from_slice(head);
            text.extend_from_slice(&body[range.start as usize..range.end as usize]);
        }
        text.extend_from_slice(&frame.end);
        assert_eq!(text.len() as u64, frame.length);
        assert_eq!(
            String::from_utf8(text).unwrap(),
            "\r\n--00000000000000000007\r\nContent-Type: text/plain; charset=x\r\n\
             Content-Range: bytes 0-1/10\r\n\r\n01\
             \r\n--00000000000000000007\r\nContent-Type: text/plain; charset=x\r\n\
             Content-Range: bytes 8-9/10\r\n\r\n89\r\n--00000000000000000007--\r\n"
        );
        let untyped = multipart([0..1, 1..2].to_vec(), 2, b"", 1);
        assert!(!String::from_utf8_lossy(&untyped.parts[0].0).contains("Content-Type"));
    }

    #[test]
    fn never_selects_outside_or_more_than_the_whole() {
        let mut seed = 3u64;
        let mut next = move |n: u64| {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (seed >> 33) % n
        };
        let alphabet = b"0123456789--,, ";
        for _ in 0..50_000 {
            let size = next(60);
            let mut field = b"bytes=".to_vec();
            field.extend((0..next(16)).map(|_| alphabet[next(15) as usize]));
            let ranges = match select(&field, size, MAX_RANGES_UNSET) {
                Single(range) => Vec::from([range]),
                Multiple(ranges) => ranges,
                _ => continue,
            };
            assert!(ranges.iter().all(|r| r.start < r.end && r.end <= size));
            assert!(
                ranges.len() == 1 || ranges.iter().map(|r| r.end - r.start).sum::<u64>() <= size
            );
        }
    }
}
