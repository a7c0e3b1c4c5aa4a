//! Decompression of gzip (RFC 1952) in bounded pieces: a short input can become a very long text.

use bytes::{Buf, Bytes};
use flate2::{Decompress, FlushDecompress, Status};

use crate::Error;

/// Maximum number of bytes of text produced in one step.
pub const PIECE_BYTES_MAX: usize = 32 * 1024;

/// The largest window of deflate, as a binary logarithm (RFC 1951).
const WINDOW_BITS: u8 = 15;

/// The state of one decompression, of any number of members.
#[derive(Debug)]
pub struct Gunzip {
    decoder: Decompress,
    /// The last step filled its output: the decoder holds more text.
    more: bool,
    /// The last member is complete.
    complete: bool,
}

impl Default for Gunzip {
    fn default() -> Self {
        Self { decoder: decoder(), more: false, complete: false }
    }
}

impl Gunzip {
    /// Whether there may be more text even without more input.
    #[inline]
    pub fn has_more(&self) -> bool {
        self.more
    }

    /// Whether the input may end here: the last member is complete.
    #[inline]
    pub fn is_complete(&self) -> bool {
        self.complete
    }

    /// Decompresses at most [`PIECE_BYTES_MAX`] bytes of text, which may be none, and takes what it has
    /// used from `input`. Called again while there is input or [`has_more`](Gunzip::has_more).
    ///
    /// # Errors
    /// [`Error::Malformed`]; the decompression cannot continue after that.
    pub fn step(&mut self, input: &mut Bytes) -> Result<Vec<u8>, Error> {
        if self.complete {
            // RFC 1952 section 2.2: "A gzip file consists of a series of "members"".
            self.decoder = decoder();
            self.complete = false;
        }
        let mut out = Vec::with_capacity(PIECE_BYTES_MAX);
        let before = self.decoder.total_in();
        let status = self
            .decoder
            .decompress_vec(input, &mut out, FlushDecompress::None)
            .map_err(|error| Error::Malformed(format!("inflate() failed: {error}")))?;
        let taken = self.decoder.total_in() - before;
        input.advance(usize::try_from(taken).unwrap_or(input.len()).min(input.len()));
        self.complete = status == Status::StreamEnd;
        self.more = !self.complete && out.len() == out.capacity();
        if taken == 0 && out.is_empty() && !self.complete && !input.is_empty() {
            return Err(Error::Malformed("inflate() made no progress".to_owned()));
        }
        Ok(out)
    }
}

fn decoder() -> Decompress {
    Decompress::new_gzip(WINDOW_BITS)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn gz(text: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::new(9));
        encoder.write_all(text).unwrap();
        encoder.finish().unwrap()
    }

    /// Decompresses input that arrives in pieces; also returns the length of the longest output.
    /// `None`: it is incomplete.
    fn decompress(input: &[u8], step: usize) -> Result<Option<(Vec<u8>, usize)>, Error> {
        let mut gunzip = Gunzip::default();
        let mut text = Vec::new();
        let mut longest = 0;
        for piece in input.chunks(step) {
            let mut rest = Bytes::copy_from_slice(piece);
            while !rest.is_empty() || gunzip.has_more() {
                let out = gunzip.step(&mut rest)?;
                longest = longest.max(out.len());
                text.extend_from_slice(&out);
            }
        }
        Ok(gunzip.is_complete().then_some((text, longest)))
    }

    #[test]
    fn members_in_pieces_of_any_size() {
        let text = b"some text ".repeat(1000);
        let both = [gz(&text), gz(b""), gz(&text)].concat();
        for step in [1, 7, 100, usize::MAX] {
            assert!(decompress(&both, step).unwrap().unwrap().0 == text.repeat(2), "{step}");
        }
    }

    #[test]
    fn a_bomb_is_decompressed_in_bounded_pieces() {
        let text = vec![0; 20_000_000];
        let (out, longest) = decompress(&gz(&text), usize::MAX).unwrap().unwrap();
        assert_eq!((out.len(), longest), (text.len(), PIECE_BYTES_MAX));
    }

    #[test]
    fn broken_streams_are_errors() {
        let whole = gz(b"text");
        assert_eq!(decompress(&whole[..whole.len() - 1], 100), Ok(None));
        let mut wrong = whole.clone();
        let at = wrong.len() - 6;
        wrong[at] ^= 1;
        for broken in [&b"not compressed"[..], &[&whole[..], b"garbage"].concat(), &wrong] {
            let error = decompress(broken, 100).unwrap_err();
            assert!(matches!(error, Error::Malformed(_)), "{error}");
        }
    }
}
