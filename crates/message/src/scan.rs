//! Byte classes and word-at-a-time searches. No policy.

const ONES: u64 = 0x0101_0101_0101_0101;
const HIGHS: u64 = 0x8080_8080_8080_8080;

/// The position of the first CR, LF or NUL at or after `from`.
#[inline]
pub fn find_line_end(bytes: &[u8], from: usize) -> Option<usize> {
    let mut at = from;
    while let Some(chunk) = bytes.get(at..).and_then(|rest| rest.first_chunk::<8>()) {
        let flags = low_bytes(u64::from_le_bytes(*chunk));
        if flags == 0 {
            at += 8;
            continue;
        }
        at += (flags.trailing_zeros() / 8) as usize;
        if matches!(bytes[at], b'\r' | b'\n' | 0) {
            return Some(at);
        }
        at += 1; // a tab or another control character: allowed in values
    }
    // Most tails are clean, which one look at the last eight bytes tells.
    if let Some((before, chunk)) = bytes.split_last_chunk::<8>()
        && from <= before.len()
        && low_bytes(u64::from_le_bytes(*chunk)) == 0
    {
        return None;
    }
    let tail = bytes.get(at..)?;
    tail.iter().position(|&c| matches!(c, b'\r' | b'\n' | 0)).map(|i| at + i)
}

/// The position of the first control character other than a tab, at or after `from`.
#[inline]
pub fn find_control(bytes: &[u8], from: usize) -> Option<usize> {
    let mut at = from;
    while let Some(chunk) = bytes.get(at..).and_then(|rest| rest.first_chunk::<8>()) {
        let flags = controls(u64::from_le_bytes(*chunk));
        if flags == 0 {
            at += 8;
            continue;
        }
        at += (flags.trailing_zeros() / 8) as usize;
        if is_control(bytes[at]) {
            return Some(at);
        }
        at += 1; // a tab
    }
    // Most tails are clean, which one look at the last eight bytes tells.
    if let Some((before, chunk)) = bytes.split_last_chunk::<8>()
        && from <= before.len()
        && controls(u64::from_le_bytes(*chunk)) == 0
    {
        return None;
    }
    let tail = bytes.get(at..)?;
    tail.iter().position(|&c| is_control(c)).map(|i| at + i)
}

/// The position of the first control character, even a tab.
#[inline(always)]
pub fn find_unusual(bytes: &[u8]) -> Option<usize> {
    let (words, tail) = bytes.as_chunks::<8>();
    let mut at = 0;
    for word in words {
        let flags = controls(u64::from_le_bytes(*word));
        if flags != 0 {
            return Some(at + (flags.trailing_zeros() / 8) as usize);
        }
        at += 8;
    }
    tail.iter().position(|&c| c.is_ascii_control()).map(|i| at + i)
}

/// The position of the first space, control character or `#`: the end of a query, or of what counts of it.
#[inline]
pub fn find_query_break(bytes: &[u8]) -> Option<usize> {
    let (words, tail) = bytes.as_chunks::<8>();
    let mut at = 0;
    for word in words {
        let word = u64::from_le_bytes(*word);
        let zeros = |word: u64| word.wrapping_sub(ONES) & !word;
        let below = word.wrapping_sub(ONES * 0x21) & !word;
        // The lowest flag is exact, those above it may be borrows.
        let flags =
            (below | zeros(word ^ (ONES * 0x7f)) | zeros(word ^ (ONES * u64::from(b'#')))) & HIGHS;
        if flags != 0 {
            return Some(at + (flags.trailing_zeros() / 8) as usize);
        }
        at += 8;
    }
    tail.iter().position(|&c| c <= b' ' || matches!(c, 0x7f | b'#')).map(|i| at + i)
}

/// A control character that no field value may contain.
#[inline]
fn is_control(c: u8) -> bool {
    c.is_ascii_control() && c != b'\t'
}

/// Whether a byte is among these.
#[inline]
pub fn has_byte(bytes: &[u8], wanted: u8) -> bool {
    let pattern = ONES * u64::from(wanted);
    has_any(bytes, !wanted, |word| {
        (word ^ pattern).wrapping_sub(ONES) & !(word ^ pattern) & HIGHS != 0
    })
}

/// Whether none of these bytes is below 0x0e: then no line ends in them, and there is no NUL.
#[inline]
pub fn is_one_line(bytes: &[u8]) -> bool {
    !has_any(bytes, b' ', |word| low_bytes(word) != 0)
}

/// Whether none of these bytes is a space or a control character.
#[inline]
pub fn is_visible(bytes: &[u8]) -> bool {
    !has_any(bytes, b'a', |word| {
        let deletes = word ^ (ONES * 0x7f);
        let below = word.wrapping_sub(ONES * 0x21) & !word;
        (below | (deletes.wrapping_sub(ONES) & !deletes)) & HIGHS != 0
    })
}

/// Whether `has` is true for any eight bytes. If there are fewer, `filler` stands for the others.
#[inline(always)]
fn has_any(bytes: &[u8], filler: u8, has: impl Fn(u64) -> bool) -> bool {
    let has = |chunk: &[u8; 8]| has(u64::from_le_bytes(*chunk));
    match bytes.last_chunk::<8>() {
        // The last eight bytes overlap with those before, unless these are a multiple of eight.
        Some(last) => bytes.as_chunks::<8>().0.iter().any(has) || has(last),
        None => {
            let mut few = [filler; 8];
            few[..bytes.len()].copy_from_slice(bytes);
            has(&few)
        }
    }
}

/// Flags for control characters; the lowest flag is exact, those above it may be borrows.
#[inline]
fn controls(word: u64) -> u64 {
    let deletes = word ^ (ONES * 0x7f);
    let below = word.wrapping_sub(ONES * 0x20) & !word;
    (below | (deletes.wrapping_sub(ONES) & !deletes)) & HIGHS
}

/// Flags for the bytes below 0x0e; the lowest flag is exact, those above it may be borrows.
#[inline]
fn low_bytes(word: u64) -> u64 {
    word.wrapping_sub(ONES * 0x0e) & !word & HIGHS
}

/// Trims optional white space (RFC 9110 section 5.6.3) from the end of `bytes[start..end]`.
#[inline]
pub fn trim_end(bytes: &[u8], start: usize, mut end: usize) -> usize {
    while end > start && matches!(bytes[end - 1], b' ' | b'\t') {
        end -= 1;
    }
    end
}

/// `bytes` without optional white space at its ends.
pub fn trim(bytes: &[u8]) -> &[u8] {
    let start = bytes.iter().position(|c| !matches!(c, b' ' | b'\t')).unwrap_or(bytes.len());
    &bytes[start..trim_end(bytes, start, bytes.len())]
}

/// The elements of a comma-separated list (RFC 9110 section 5.6.1), trimmed, empty ones left out.
pub fn list(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|&c| c == b',').map(trim).filter(|element| !element.is_empty())
}

/// The value of a hexadecimal digit.
#[inline]
pub const fn hex(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        b'A'..=b'F' => Some(digit - b'A' + 10),
        _ => None,
    }
}

/// A `Content-Length` (RFC 9110 section 8.6): digits only, at most `i64::MAX` as file sizes are.
pub fn decimal(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    let mut value = 0u64;
    for &digit in digits {
        if !digit.is_ascii_digit() {
            return None;
        }
        value = value.checked_mul(10)?.checked_add(u64::from(digit - b'0'))?;
    }
    (value <= i64::MAX as u64).then_some(value)
}

const TOKEN: [bool; 256] = {
    let mut token = [false; 256];
    let mut c = 0u8;
    while c < 0x80 {
        token[c as usize] = c.is_ascii_alphanumeric()
            || matches!(
                c,
                b'!' | b'#' | b'$' | b'%' | b'&' | b'\'' | b'*' | b'+' | b'-' | b'.' | b'^' | b'_'
            )
            || matches!(c, b'`' | b'|' | b'~');
        c += 1;
    }
    token
};

/// Whether `name` is a token (RFC 9110 section 5.6.2): what a field name or method may be.
#[inline]
pub fn is_token(name: &[u8]) -> bool {
    !name.is_empty() && name.iter().all(|&c| TOKEN[c as usize])
}

/// Whether a field of this name may be passed on in HTTP/1.1: visible ASCII without a colon. Servers send,
/// and nginx passes, names such as `X@User`, which are no tokens.
///
/// nginx differs: it passes octets from 0x80 on, too, which some peers take for white space or letters.
#[inline]
pub fn is_passable_name(name: &[u8]) -> bool {
    is_token(name)
        || !name.is_empty() && name.iter().all(|c| matches!(c, 0x21..=0x7e) && *c != b':')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_end_agrees_with_the_plain_search() {
        for len in 0..40 {
            for at in 0..len {
                for end in [b'\r', b'\n', 0] {
                    for filler in [b'a', b'\t', 0x0e, 0x80, 0xff, b' ', 0x0c] {
                        let mut bytes = vec![filler; len];
                        bytes[at] = end;
                        for from in 0..=at {
                            assert_eq!(find_line_end(&bytes, from), Some(at));
                        }
                        assert_eq!(find_line_end(&bytes, at + 1), None);
                    }
                }
            }
        }
    }

    #[test]
    fn control_agrees_with_the_plain_search() {
        for len in 0..40 {
            for at in 0..len {
                for found in [b'\r', b'\n', 0, 1, 0x0b, 0x1f, 0x7f] {
                    for filler in [b'a', b'\t', b' ', b'~', 0x80, 0xff] {
                        let mut bytes = vec![filler; len];
                        bytes[at] = found;
                        for from in 0..=at {
                            assert_eq!(find_control(&bytes, from), Some(at));
                        }
                        assert_eq!(find_control(&bytes, at + 1), None);
                    }
                }
            }
        }
    }

    #[test]
    fn the_first_control_character_is_unusual() {
        for len in 0..40 {
            for at in 0..len {
                for found in (0..0x20).chain([0x7f]) {
                    for filler in [b'a', b' ', b'~', 0x80, 0xff] {
                        let mut bytes = vec![filler; len];
                        bytes[at] = found;
                        assert_eq!(find_unusual(&bytes), Some(at));
                        assert_eq!(find_unusual(&bytes[at + 1..]), None);
                    }
                }
            }
        }
    }

    #[test]
    fn the_first_break_of_a_query_is_found() {
        for len in 0..40 {
            for at in 0..len {
                for found in (0..=0x20).chain([0x7f, b'#']) {
                    for filler in [b'a', b'"', b'$', b'!', b'~', 0x80, 0xa3, 0xff] {
                        let mut bytes = vec![filler; len];
                        bytes[at] = found;
                        assert_eq!(find_query_break(&bytes), Some(at));
                        assert_eq!(find_query_break(&bytes[at + 1..]), None);
                    }
                }
            }
        }
    }

    #[test]
    fn bytes_are_found_anywhere() {
        for len in 0..40 {
            for other in [b'a', b'%' - 1, b'%' + 1, b'%' | 0x80, 0x0e, 0xff] {
                let mut bytes = vec![other; len];
                assert!(!has_byte(&bytes, b'%') && is_one_line(&bytes));
                assert_eq!(is_visible(&bytes), len == 0 || other > b' ');
                for at in 0..len {
                    bytes[at] = b'%';
                    assert!(has_byte(&bytes, b'%'), "{at} of {len}");
                    for end in [b'\r', b'\n', 0] {
                        bytes[at] = end;
                        assert!(!is_one_line(&bytes), "{at} of {len}");
                    }
                    for bad in [b' ', 0x7f, 0x1f] {
                        bytes[at] = bad;
                        assert!(!is_visible(&bytes), "{at} of {len}");
                    }
                    bytes[at] = other;
                }
            }
        }
    }

    #[test]
    fn whole_runs_agree_with_the_plain_search() {
        for len in 0..26 {
            for filler in [b'a', b'~', 0x80, 0xff] {
                for at in 0..len {
                    for byte in 0..=255 {
                        let mut bytes = vec![filler; len];
                        bytes[at] = byte;
                        let plain = |found: fn(u8) -> bool| bytes.iter().any(|&c| found(c));
                        assert_eq!(is_one_line(&bytes), !plain(|c| c < 0x0e), "{bytes:?}");
                        assert_eq!(
                            is_visible(&bytes),
                            !plain(|c| c <= b' ' || c == 0x7f),
                            "{bytes:?}"
                        );
                        for wanted in [b'%', b'?', b';', 0, 0x80, 0xff] {
                            assert_eq!(
                                has_byte(&bytes, wanted),
                                bytes.contains(&wanted),
                                "{bytes:?}"
                            );
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn decimals() {
        assert_eq!(decimal(b"0"), Some(0));
        assert_eq!(decimal(b"9223372036854775807"), Some(i64::MAX as u64));
        for bad in
            ["", "9223372036854775808", "18446744073709551616", "+1", "-1", "1 ", "1,1", "0x1"]
        {
            assert_eq!(decimal(bad.as_bytes()), None, "{bad}");
        }
    }
}
