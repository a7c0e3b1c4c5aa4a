//! `gunzip`: decompression for clients that do not accept gzip. nginx: `ngx_http_gunzip_filter_module`.
//!
//! A short response can become a very long text. The client pulls it piece by piece, so no more than one
//! piece is ever in memory.

use bytes::{Buf, Bytes};
use flate2::{Decompress, FlushDecompress, Status};
use nowait_runtime::yield_now;

use super::compress::recode;
use super::pull::Pull;
use crate::gzip::is_accepted;
use crate::outcome::Special;
use crate::request::Request;
use crate::response::{Body, BodyError, BodySource, LocalFuture, Part, Response};

/// Most bytes of text produced in one step.
const PIECE_BYTES_MAX: usize = 32 * 1024;

/// The largest window of deflate, as a binary logarithm (RFC 1951).
const WINDOW_BITS: u8 = 15;

pub(super) fn apply(request: &mut Request, response: &mut Response) -> Result<(), Box<Special>> {
    if !request.location().gunzip.gunzip {
        return Ok(());
    }
    let coding = response.head.content_encoding.as_deref();
    if !coding.is_some_and(|coding| coding.eq_ignore_ascii_case(b"gzip")) {
        return Ok(());
    }
    request.gzip.vary = true;
    if is_accepted(request, &response.head) {
        return Ok(());
    }
    response.head.content_encoding = None;
    recode(response);
    if !response.body.is_empty() && !request.header_only {
        let pull = Pull::new(std::mem::take(&mut response.body).safe(request));
        response.body = Body::Stream(Box::new(Decompressed::new(pull)));
    }
    Ok(())
}

/// A body that is decompressed while it is sent.
struct Decompressed {
    pull: Pull,
    /// The rest of the last piece.
    rest: Bytes,
    decoder: Decompress,
    /// The last step filled its output: the decoder holds more text.
    more: bool,
    /// The last member is complete.
    complete: bool,
}

impl Decompressed {
    fn new(pull: Pull) -> Self {
        Self { pull, rest: Bytes::new(), decoder: decoder(), more: false, complete: false }
    }

    /// Decompresses at most one piece of text from the available input.
    fn step(&mut self) -> Result<Vec<u8>, BodyError> {
        let mut out = Vec::with_capacity(PIECE_BYTES_MAX);
        let before = self.decoder.total_in();
        let status = self
            .decoder
            .decompress_vec(&self.rest, &mut out, FlushDecompress::None)
            .map_err(|error| BodyError::Coding(format!("inflate() failed: {error}")))?;
        let taken = self.decoder.total_in() - before;
        self.rest.advance(usize::try_from(taken).unwrap_or(self.rest.len()).min(self.rest.len()));
        self.complete = status == Status::StreamEnd;
        self.more = !self.complete && out.len() == out.capacity();
        if taken == 0 && out.is_empty() && !self.complete && !self.rest.is_empty() {
            return Err(BodyError::Coding("inflate() made no progress".into()));
        }
        Ok(out)
    }
}

fn decoder() -> Decompress {
    Decompress::new_gzip(WINDOW_BITS)
}

impl BodySource for Decompressed {
    fn next(&mut self) -> LocalFuture<'_, Result<Option<Part>, BodyError>> {
        Box::pin(async move {
            loop {
                if self.rest.is_empty() && !self.more {
                    match self.pull.next().await? {
                        Some(piece) => self.rest = piece,
                        None if self.complete => return Ok(None),
                        None => {
                            let text = "inflate() found no end of the stream at the response's end";
                            return Err(BodyError::Coding(text.into()));
                        }
                    }
                }
                if self.complete {
                    // RFC 1952 section 2.2: "A gzip file consists of a series of "members"".
                    self.decoder = decoder();
                    self.complete = false;
                }
                let out = self.step()?;
                // Neither a long text nor many empty members may monopolise the loop.
                yield_now().await;
                if !out.is_empty() {
                    return Ok(Some(Part::Bytes(out.into())));
                }
            }
        })
    }

    fn is_urgent(&self) -> bool {
        self.pull.is_urgent()
    }
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

    /// Decompresses in pieces without an event loop; also returns the length of the longest piece.
    fn decompress(input: &[u8], step: usize) -> Result<(Vec<u8>, usize), BodyError> {
        let mut source = Decompressed::new(Pull::new(Body::Empty));
        let mut text = Vec::new();
        let mut longest = 0;
        for piece in input.chunks(step) {
            source.rest = Bytes::copy_from_slice(piece);
            while !source.rest.is_empty() || source.more {
                if source.complete {
                    source.decoder = decoder();
                    source.complete = false;
                }
                let out = source.step()?;
                longest = longest.max(out.len());
                text.extend_from_slice(&out);
            }
        }
        if source.complete { Ok((text, longest)) } else { Err(BodyError::Truncated) }
    }

    #[test]
    fn members_in_pieces_of_any_size() {
        let text = b"some text ".repeat(1000);
        let both = [gz(&text), gz(b""), gz(&text)].concat();
        for step in [1, 7, 100, usize::MAX] {
            assert!(decompress(&both, step).unwrap().0 == text.repeat(2), "{step}");
        }
    }

    #[test]
    fn a_bomb_is_decompressed_in_bounded_pieces() {
        let text = vec![0; 20_000_000];
        let (out, longest) = decompress(&gz(&text), usize::MAX).unwrap();
        assert_eq!((out.len(), longest), (text.len(), PIECE_BYTES_MAX));
    }

    #[test]
    fn broken_streams_are_errors() {
        let whole = gz(b"text");
        assert!(decompress(&whole[..whole.len() - 1], 100).is_err());
        assert!(decompress(b"not compressed", 100).is_err());
        assert!(decompress(&[&whole[..], b"garbage"].concat(), 100).is_err());
        let mut wrong = whole.clone();
        let at = wrong.len() - 6;
        wrong[at] ^= 1;
        assert!(decompress(&wrong, 100).is_err());
    }
}
