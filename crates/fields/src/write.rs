//! Parts of writers of heads.

use bytes::BufMut;
use nowait_message::scan;

use crate::{huffman, integer};

/// Writes a string behind 7 bits of its length, Huffman-coded if that is shorter.
#[inline]
pub fn string(out: &mut impl BufMut, octets: &[u8]) {
    string_after(out, 0, 7, octets);
}

/// Writes a string behind `prefix` bits of its length, and the bits of `pattern` above them. The bit between
/// tells whether it is Huffman-coded, which it is if that is shorter.
#[inline]
pub fn string_after(out: &mut impl BufMut, pattern: u8, prefix: u32, octets: &[u8]) {
    let length = huffman::encoded_len(octets);
    if length < octets.len() {
        integer::write(out, pattern | 1 << prefix, prefix, length);
        huffman::encode(octets, out);
    } else {
        integer::write(out, pattern, prefix, octets.len());
        out.put_slice(octets);
    }
}

/// The three digits of a status.
pub fn status_digits(status: u16) -> [u8; 3] {
    let digit = |number: u16| b'0' + (number % 10) as u8;
    [digit(status / 100), digit(status / 10), digit(status)]
}

/// The digits of a number, at the end of an array, and where they begin.
pub fn decimal(mut number: u64) -> ([u8; 20], usize) {
    let mut digits = [0; 20];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            return (digits, at);
        }
    }
}

/// Whether a value has neither CR nor LF nor NUL.
#[inline]
pub fn is_clean(value: &[u8]) -> bool {
    scan::is_one_line(value) || scan::find_line_end(value, 0).is_none()
}

/// CR, LF and NUL as spaces.
pub fn cleaned(value: &[u8]) -> Vec<u8> {
    let clean = |&octet: &u8| if matches!(octet, b'\r' | b'\n' | 0) { b' ' } else { octet };
    scan::trim(&value.iter().map(clean).collect::<Vec<u8>>()).to_vec()
}
