//! Records of a request.

use std::convert::Infallible;

use super::record::{HEADER_BYTES, REQUEST, RecordType, VERSION};
use crate::ParamForm;

/// Maximum size of the content of one record that is written, in bytes; the protocol allows 65,535. A multiple of
/// eight, to which records are padded.
pub const CONTENT_BYTES_MAX: usize = 32 * 1024;

/// Records are padded to a multiple of this.
const ALIGNED: usize = 8;

/// Lengths from here on have four bytes, smaller ones have one.
const LONG: usize = 128;

/// `FCGI_RESPONDER`
const RESPONDER: u8 = 1;

/// `FCGI_KEEP_CONN`
const KEEP_CONN: u8 = 1;

/// Begins a request. `keep`: the application shall not close the connection after its response.
pub fn begin(keep: bool, out: &mut Vec<u8>) {
    out.extend_from_slice(&header(RecordType::Begin, 8, 0));
    let flags = if keep { KEEP_CONN } else { 0 };
    out.extend_from_slice(&[0, RESPONDER, flags, 0, 0, 0, 0, 0]);
}

/// The parameters of a request: where their first record begins.
#[derive(Debug)]
pub struct Params(usize);

impl Params {
    /// Begins them.
    pub fn begin(out: &mut Vec<u8>) -> Self {
        let start = out.len();
        out.extend_from_slice(&header(RecordType::Params, 0, 0));
        Self(start)
    }

    /// Completes the records of what follows the beginning, and appends the end.
    ///
    /// nginx differs: it refuses requests whose parameters do not fit one record.
    pub fn end(self, out: &mut Vec<u8>) {
        let Self(start) = self;
        let content = start + HEADER_BYTES;
        let length = out.len() - content;
        match length {
            // The record without content is the end.
            0 => return,
            1..=CONTENT_BYTES_MAX => {
                out[start..content].copy_from_slice(&head(RecordType::Params, length));
                out.extend_from_slice(padding(length));
            }
            _ => {
                let all = out.split_off(content);
                out.truncate(start);
                write(RecordType::Params, &all, out);
            }
        }
        end(RecordType::Params, out);
    }
}

impl ParamForm for Params {
    type Error = Infallible;

    #[inline]
    fn open(list: &mut Vec<u8>, name_bytes: usize, name: impl FnOnce(&mut Vec<u8>)) {
        match name_bytes {
            0..LONG => list.extend_from_slice(&[name_bytes as u8, 0]),
            _ => {
                list.extend_from_slice(&long(name_bytes));
                list.push(0);
            }
        }
        name(list);
    }

    #[inline]
    fn close(list: &mut Vec<u8>, start: usize, value: usize) -> Result<(), Infallible> {
        let length = list.len() - value;
        // Behind the length of the name.
        let at = start + if usize::from(list[start]) < LONG { 1 } else { 4 };
        match length {
            0..LONG => list[at] = length as u8,
            _ => lengthen(list, at, length),
        }
        Ok(())
    }
}

/// Makes a length that has one byte, at `at`, one of four bytes.
#[cold]
fn lengthen(list: &mut Vec<u8>, at: usize, length: usize) {
    list.splice(at..=at, long(length));
}

/// The length of a name or a value, in four bytes.
fn long(bytes: usize) -> [u8; 4] {
    // No text has 2 GB.
    (u32::try_from(bytes).unwrap_or(u32::MAX) | 1 << 31).to_be_bytes()
}

/// Appends bytes of a stream in records.
pub fn write(kind: RecordType, bytes: &[u8], out: &mut Vec<u8>) {
    for piece in bytes.chunks(CONTENT_BYTES_MAX) {
        out.extend_from_slice(&head(kind, piece.len()));
        out.extend_from_slice(piece);
        out.extend_from_slice(padding(piece.len()));
    }
}

/// Appends the end of a stream.
pub fn end(kind: RecordType, out: &mut Vec<u8>) {
    out.extend_from_slice(&header(kind, 0, 0));
}

/// The header of a record with `length` bytes of content, at most [`CONTENT_BYTES_MAX`], which
/// [`padding`] follows.
pub fn head(kind: RecordType, length: usize) -> [u8; HEADER_BYTES] {
    let padding = padding(length).len() as u8;
    header(kind, u16::try_from(length).expect("the content of a record is limited"), padding)
}

/// The padding after `length` bytes of content.
pub fn padding(length: usize) -> &'static [u8] {
    &[0; ALIGNED][..length.next_multiple_of(ALIGNED) - length]
}

fn header(kind: RecordType, length: u16, padding: u8) -> [u8; HEADER_BYTES] {
    let ([id_high, id_low], [high, low]) = (REQUEST.to_be_bytes(), length.to_be_bytes());
    [VERSION, kind as u8, id_high, id_low, high, low, padding, 0]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request() {
        let mut out = Vec::new();
        begin(true, &mut out);
        let params = Params::begin(&mut out);
        let Ok(()) = Params::push(&mut out, b"A", b"bc");
        let Ok(()) = Params::push(&mut out, b"E", b"");
        params.end(&mut out);
        write(RecordType::Stdin, b"12345678", &mut out);
        end(RecordType::Stdin, &mut out);
        let expected = [
            &b"\x01\x01\0\x01\0\x08\0\0\0\x01\x01\0\0\0\0\0"[..],
            b"\x01\x04\0\x01\0\x08\0\0\x01\x02Abc\x01\0E",
            b"\x01\x04\0\x01\0\0\0\0",
            b"\x01\x05\0\x01\0\x08\0\x0012345678",
            b"\x01\x05\0\x01\0\0\0\0",
        ];
        assert_eq!(out, expected.concat());
    }

    #[test]
    fn no_parameters() {
        let mut out = Vec::new();
        Params::begin(&mut out).end(&mut out);
        assert_eq!(out, b"\x01\x04\0\x01\0\0\0\0");
    }

    #[test]
    fn lengths_have_one_byte_or_four() {
        for (name, value, lengths) in [
            (0, 0, &b"\0\0"[..]),
            (127, 127, b"\x7f\x7f"),
            (127, 128, b"\x7f\x80\0\0\x80"),
            (128, 127, b"\x80\0\0\x80\x7f"),
            (128, 70_000, b"\x80\0\0\x80\x80\x01\x11\x70"),
        ] {
            let mut list = b">".to_vec();
            let (name, value) = (vec![b'n'; name], vec![b'v'; value]);
            let Ok(()) = Params::push(&mut list, &name, &value);
            assert_eq!(list, [b">", lengths, &name, &value].concat());
        }
    }

    #[test]
    fn many_parameters_have_several_records() {
        let list = |bytes: usize| {
            let mut list = Vec::new();
            let Ok(()) = Params::push(&mut list, b"large", &vec![b'x'; bytes]);
            list
        };
        // The list has ten bytes more.
        for bytes in [CONTENT_BYTES_MAX - 10, CONTENT_BYTES_MAX - 9, 100_000] {
            let (list, mut expected) = (list(bytes), Vec::new());
            write(RecordType::Params, &list, &mut expected);
            end(RecordType::Params, &mut expected);
            let mut out = Vec::new();
            let params = Params::begin(&mut out);
            out.extend_from_slice(&list);
            params.end(&mut out);
            assert_eq!(out.len() % ALIGNED, 0);
            assert!(out == expected, "{bytes}");
        }
    }
}
