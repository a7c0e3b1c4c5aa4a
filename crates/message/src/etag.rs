//! Entity tags of files: `"mtime-size"` in hexadecimal, as in nginx, so that a cache in front of a
//! fleet sees one tag whichever server responds. RFC 9110 section 8.8.3.

use std::cell::RefCell;

use bytes::Bytes;

/// The strong entity tag of a file: modification time in Unix seconds and size in bytes.
pub fn of_file(mtime: i64, size: u64) -> Bytes {
    KNOWN.with_borrow_mut(|known| {
        let at = (mtime as u64 ^ size) as usize % KNOWN_MAX;
        if known.is_empty() {
            known.resize_with(KNOWN_MAX, || (0, 0, Bytes::new()));
        }
        let (known_mtime, known_size, tag) = &mut known[at];
        if (*known_mtime, *known_size) != (mtime, size) || tag.is_empty() {
            (*known_mtime, *known_size, *tag) = (mtime, size, of_file_anew(mtime, size));
        }
        tag.clone()
    })
}

/// Tags that a thread remembers: those of hot files are wanted again and again.
const KNOWN_MAX: usize = 64;

thread_local! {
    /// Times, sizes and their tags, each at the place that the last bits of both say.
    static KNOWN: RefCell<Vec<(i64, u64, Bytes)>> = const { RefCell::new(Vec::new()) };
}

fn of_file_anew(mtime: i64, size: u64) -> Bytes {
    // Two quotes, a dash and twice sixteen digits.
    let mut text = Vec::with_capacity(35);
    text.push(b'"');
    push_hex(&mut text, mtime as u64);
    text.push(b'-');
    push_hex(&mut text, size);
    text.push(b'"');
    text.into()
}

/// Lowercase hexadecimal without leading zeros.
fn push_hex(out: &mut Vec<u8>, value: u64) {
    let digits = (64 - value.leading_zeros()).div_ceil(4).max(1);
    for digit in (0..digits).rev() {
        out.push(b"0123456789abcdef"[(value >> (4 * digit)) as usize & 0xf]);
    }
}

/// The tag of a representation that a filter changed (by compression, for example): weak, because
/// the bytes differ from those that the tag was made for. `None` if `tag` is no tag and the field
/// must be removed.
pub fn weaken(tag: &Bytes) -> Option<Bytes> {
    if tag.len() > 2 && tag.starts_with(b"W/") {
        return Some(tag.clone());
    }
    tag.starts_with(b"\"").then(|| [b"W/", &tag[..]].concat().into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nginx_form() {
        assert_eq!(of_file(0x5e5e, 0x264), "\"5e5e-264\"");
        assert_eq!(of_file(0, 0), "\"0-0\"");
        assert_eq!(of_file(-1, u64::MAX), "\"ffffffffffffffff-ffffffffffffffff\"");
        assert_eq!(of_file(0x10, 0x100), "\"10-100\"");
        assert_eq!(of_file(0x5e5e, 0x264), "\"5e5e-264\"");
        assert_eq!(of_file(0x264, 0x5e5e), "\"264-5e5e\"", "at the same place");
    }

    #[test]
    fn weak() {
        assert_eq!(weaken(&Bytes::from_static(b"\"a\"")).unwrap(), "W/\"a\"");
        assert_eq!(weaken(&Bytes::from_static(b"W/\"a\"")).unwrap(), "W/\"a\"");
        assert_eq!(weaken(&Bytes::from_static(b"a")), None);
    }
}
