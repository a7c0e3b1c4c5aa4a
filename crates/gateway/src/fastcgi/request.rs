//! Records of a request.

use super::record::{HEADER_BYTES, Kind, REQUEST, VERSION};
use crate::ParamList;

/// Most content of one record that is written, in bytes; the protocol allows 65,535. A multiple of
/// eight, to which records are padded.
pub const CONTENT_BYTES_MAX: usize = 32 * 1024;

/// Records are padded to a multiple of this.
const ALIGNED: usize = 8;

/// Memory that [`Params::clear`] keeps, in bytes: most requests need less.
const KEPT_BYTES_MAX: usize = 4096;

/// Lengths from here on have four bytes, smaller ones have one.
const LONG: usize = 128;

/// `FCGI_RESPONDER`
const RESPONDER: u8 = 1;

/// `FCGI_KEEP_CONN`
const KEEP_CONN: u8 = 1;

/// Begins a request. `keep`: the application shall not close the connection after its response.
pub fn begin(keep: bool, out: &mut Vec<u8>) {
    out.extend_from_slice(&header(Kind::Begin, 8, 0));
    let flags = if keep { KEEP_CONN } else { 0 };
    out.extend_from_slice(&[0, RESPONDER, flags, 0, 0, 0, 0, 0]);
}

/// The parameters of a request.
#[derive(Debug, Default)]
pub struct Params(Vec<u8>);

impl Params {
    /// None yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Forgets all, and keeps a little memory.
    pub fn clear(&mut self) {
        self.0.clear();
        self.0.shrink_to(KEPT_BYTES_MAX);
    }

    /// Appends them, and their end.
    ///
    /// nginx differs: it refuses requests whose parameters do not fit one record.
    pub fn write(&self, out: &mut Vec<u8>) {
        out.reserve(self.0.len() + 4 * HEADER_BYTES);
        write(Kind::Params, &self.0, out);
        end(Kind::Params, out);
    }
}

impl ParamList for Params {
    #[inline]
    fn add(
        &mut self,
        if_not_empty: bool,
        name: impl FnOnce(&mut Vec<u8>),
        value: impl FnOnce(&mut Vec<u8>),
    ) {
        let list = &mut self.0;
        let start = list.len();
        list.extend_from_slice(&[0; 2]);
        name(list);
        let middle = list.len();
        value(list);
        let lengths = (middle - start - 2, list.len() - middle);
        if if_not_empty && lengths.1 == 0 {
            list.truncate(start);
        } else if lengths.0 < LONG && lengths.1 < LONG {
            list[start..start + 2].copy_from_slice(&[lengths.0 as u8, lengths.1 as u8]);
        } else {
            let lengths = [lengths.0, lengths.1].into_iter().flat_map(length);
            list.splice(start..start + 2, lengths);
        }
    }
}

/// The length of a name or a value, as it stands in the list.
fn length(bytes: usize) -> impl Iterator<Item = u8> {
    // No text has 2 GB.
    let long = (u32::try_from(bytes).unwrap_or(u32::MAX) | 1 << 31).to_be_bytes();
    let (skipped, short) = if bytes < LONG { (4, Some(bytes as u8)) } else { (0, None) };
    long.into_iter().skip(skipped).chain(short)
}

/// Appends bytes of a stream in records.
pub fn write(kind: Kind, bytes: &[u8], out: &mut Vec<u8>) {
    for piece in bytes.chunks(CONTENT_BYTES_MAX) {
        out.extend_from_slice(&head(kind, piece.len()));
        out.extend_from_slice(piece);
        out.extend_from_slice(padding(piece.len()));
    }
}

/// Appends the end of a stream.
pub fn end(kind: Kind, out: &mut Vec<u8>) {
    out.extend_from_slice(&header(kind, 0, 0));
}

/// The header of a record with `length` bytes of content, at most [`CONTENT_BYTES_MAX`], which
/// [`padding`] follows.
pub fn head(kind: Kind, length: usize) -> [u8; HEADER_BYTES] {
    let padding = padding(length).len() as u8;
    header(kind, u16::try_from(length).expect("the content of a record is limited"), padding)
}

/// The padding after `length` bytes of content.
pub fn padding(length: usize) -> &'static [u8] {
    &[0; ALIGNED][..length.next_multiple_of(ALIGNED) - length]
}

fn header(kind: Kind, length: u16, padding: u8) -> [u8; HEADER_BYTES] {
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
        let mut params = Params::new();
        params.push(b"A", b"bc");
        params.push(b"E", b"");
        params.add(true, |out| out.extend_from_slice(b"NONE"), |_| ());
        params.write(&mut out);
        write(Kind::Stdin, b"12345678", &mut out);
        end(Kind::Stdin, &mut out);
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
    fn long_parameters() {
        let mut params = Params::new();
        params.push(&[b'n'; 127], &[b'v'; 128]);
        assert_eq!(params.0[..7], [127, 0x80, 0, 0, 128, b'n', b'n']);
        assert_eq!(params.0.len(), 5 + 127 + 128);
        params.push(b"large", &vec![b'x'; 100_000]);
        let mut out = Vec::new();
        params.write(&mut out);
        // Three full records, one that is padded, the end.
        let rest = params.0.len() - 3 * CONTENT_BYTES_MAX;
        assert_eq!(out.len(), params.0.len() + 5 * HEADER_BYTES + padding(rest).len());
        assert_eq!(out.len() % ALIGNED, 0);
    }
}
