//! `gzip`: compression of what is sent. nginx: `ngx_http_gzip_filter_module`.
//!
//! Two steps: before ranges are cut it is decided whether the response is compressed; after charsets
//! were converted its body is. A small body that is in memory is compressed at once; any other is
//! pulled, compressed and sent piece by piece. Work that would hold up the event loop goes to the
//! location's thread pool.

use std::future::{Future as _, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;

use bytes::Bytes;
use flate2::{Compress, CompressError, Compression, FlushCompress, Status};
use nowait_runtime::fs::Io;
use nowait_runtime::pool::{Class, Op};
use nowait_runtime::yield_now;

use super::pull::Pull;
use crate::conf::gzip::GzipConf;
use crate::etag;
use crate::gzip::{Counts, is_accepted};
use crate::outcome::Special;
use crate::request::Request;
use crate::response::{AcceptRanges, Body, BodyError, BodySource, LocalFuture, Part, Response};

/// Most bytes that are compressed in one step, here or in the pool.
const STEP_BYTES_MAX: usize = 32 * 1024;

/// Least room for output, in bytes.
const OUT_BYTES_MIN: usize = 4 * 1024;

/// Bytes that are compressed on the event loop in one step; more go to the pool, which costs about
/// 33 µs. Measured for C source at 3 GHz, per 32 KB: 80 µs at level 1, 125 at 2, 350 at 3 to 5,
/// 670 at 6, 1.2 to 2.7 ms above. So a step keeps the loop for about 0.2 ms.
fn inline_bytes_max(level: u32) -> usize {
    match level {
        ..=2 => STEP_BYTES_MAX,
        3..=5 => 16 * 1024,
        6 => 8 * 1024,
        _ => 4 * 1024,
    }
}

/// Decides whether the response is compressed, and says so in its head.
pub(super) fn decide(request: &mut Request, response: &mut Response) -> Result<(), Box<Special>> {
    let on = request.location().gzip.gzip;
    if on {
        request.gzip.counts = None;
        if is_compressible(&request.location().gzip, response) {
            request.gzip.vary = true;
            if is_accepted(request, &response.head) {
                request.gzip.counts = Some(Rc::default());
                response.head.content_encoding = Some(Bytes::from_static(b"gzip"));
                recode(response);
            }
        }
    }
    if request.gzip.vary && request.location().gzip.gzip_vary {
        response.head.add("Vary", Bytes::from_static(b"Accept-Encoding"));
    }
    Ok(())
}

fn is_compressible(conf: &GzipConf, response: &Response) -> bool {
    let head = &response.head;
    matches!(head.status, 200 | 403 | 404)
        && head.content_encoding.as_ref().is_none_or(Bytes::is_empty)
        && head.content_length.is_none_or(|length| length >= conf.gzip_min_length.0)
        && head.content_type.as_ref().is_some_and(|kind| conf.gzip_types.contains(kind))
}

/// Takes back what a head says of the bytes of its content.
pub(super) fn recode(response: &mut Response) {
    let head = &mut response.head;
    head.content_length = None;
    head.accept_ranges = AcceptRanges::No;
    head.etag = head.etag.as_ref().and_then(etag::weaken);
}

/// Compresses the body.
pub(super) fn compress(request: &mut Request, response: &mut Response) -> Result<(), Box<Special>> {
    let Some(counts) = request.gzip.counts.clone() else { return Ok(()) };
    if request.header_only {
        return Ok(());
    }
    let conf = &request.location().gzip;
    let level = u32::try_from(conf.gzip_comp_level.get()).unwrap_or(1);
    let window = window_bits(conf.gzip_window.0, response.body.len());
    let encoder = Encoder(Box::new(Compress::new_gzip(Compression::new(level), window)));
    let inline = inline_bytes_max(level);
    let body = match in_memory(std::mem::take(&mut response.body), inline) {
        Ok(bytes) => match compress_at_once(encoder, &bytes, &counts) {
            Ok(compressed) => Body::Bytes(compressed),
            // Cannot be: the state is fresh and there is room.
            Err(_) => return Err(Box::new(Special { status: 500, ..Special::default() })),
        },
        Err(body) => Body::Stream(Box::new(Compressed {
            pull: Pull::new(body),
            rest: Bytes::new(),
            encoder: Some(encoder),
            io: request.io(),
            client: request.connection.number,
            inline,
            steps: 0,
            held: false,
            counts,
        })),
    };
    response.body = body;
    Ok(())
}

/// The smallest window that a text of this length fills: memory of the compression follows it.
fn window_bits(wanted: u8, len: Option<u64>) -> u8 {
    /// zlib: MIN_LOOKAHEAD, which is lost for the window.
    const LOOKAHEAD: u64 = 262;
    let Some(len) = len else { return wanted };
    (9..wanted).find(|bits| len + LOOKAHEAD <= 1 << bits).unwrap_or(wanted)
}

/// A body of at most `max` bytes that can be had without waiting, else the body.
fn in_memory(body: Body, max: usize) -> Result<Bytes, Body> {
    match body {
        Body::Bytes(bytes) if bytes.len() <= max => Ok(bytes),
        Body::Empty => Ok(Bytes::new()),
        Body::File(file) if file.len <= max as u64 && !file.file.is_direct() => {
            let len = usize::try_from(file.len).unwrap_or(max);
            let mut bytes = Vec::with_capacity(len);
            // What goes wrong goes wrong again, and is told, when the body is pulled.
            match file.file.try_read(&file.io, file.offset, len, &mut bytes) {
                Ok(Some(read)) if read == len => Ok(bytes.into()),
                _ => Err(Body::File(file)),
            }
        }
        body => Err(body),
    }
}

fn compress_at_once(
    mut encoder: Encoder,
    bytes: &[u8],
    counts: &Counts,
) -> Result<Bytes, CompressError> {
    let out = encoder.step(bytes, FlushCompress::Finish)?;
    encoder.count(counts);
    Ok(out)
}

/// The state of one compression.
struct Encoder(Box<Compress>);

impl Encoder {
    /// Takes all of the input, and yields what that led to; with `Finish` all there is.
    fn step(&mut self, mut input: &[u8], flush: FlushCompress) -> Result<Bytes, CompressError> {
        let mut out = Vec::with_capacity((input.len() / 3).max(OUT_BYTES_MIN));
        loop {
            let before = self.0.total_in();
            let status = self.0.compress_vec(input, &mut out, flush)?;
            let taken = usize::try_from(self.0.total_in() - before).unwrap_or(input.len());
            input = &input[taken..];
            let full = out.len() == out.capacity();
            let done = match flush {
                FlushCompress::Finish => status == Status::StreamEnd,
                _ => input.is_empty() && !full,
            };
            if done {
                return Ok(out.into());
            }
            out.reserve(OUT_BYTES_MIN);
        }
    }

    fn count(&self, counts: &Counts) {
        counts.taken.set(self.0.total_in());
        counts.made.set(self.0.total_out());
    }
}

/// A body that is compressed while it is sent.
struct Compressed {
    pull: Pull,
    /// What is left of the last piece.
    rest: Bytes,
    /// `None` when the end was reached.
    encoder: Option<Encoder>,
    io: Rc<Io>,
    /// Who the pool works for.
    client: u64,
    /// See [`inline_bytes_max`].
    inline: usize,
    /// Steps on the event loop so far.
    steps: u64,
    /// Something was compressed that may not have come out yet.
    held: bool,
    counts: Rc<Counts>,
}

impl BodySource for Compressed {
    fn next(&mut self) -> LocalFuture<'_, Result<Option<Part>, BodyError>> {
        Box::pin(async move {
            while let Some(encoder) = self.encoder.take() {
                if self.rest.is_empty() {
                    match self.take().await? {
                        Some(piece) => self.rest = piece,
                        None => return self.flush(encoder).map(Some),
                    }
                }
                let input = self.rest.split_to(self.rest.len().min(STEP_BYTES_MAX));
                let out = if input.is_empty() {
                    let mut encoder = encoder;
                    let out = encoder.step(&[], FlushCompress::Finish).map_err(failed)?;
                    encoder.count(&self.counts);
                    out
                } else {
                    self.step(encoder, input).await?
                };
                if !out.is_empty() {
                    return Ok(Some(Part::Bytes(out)));
                }
            }
            Ok(None)
        })
    }
}

impl Compressed {
    /// The next piece, empty at the end; `None`: it is not there yet, and what is held back has to
    /// be passed on first.
    async fn take(&mut self) -> Result<Option<Bytes>, BodyError> {
        let urgent = self.held && self.pull.is_urgent();
        let mut next = pin!(self.pull.next());
        let piece = match poll_fn(|cx| Poll::Ready(next.as_mut().poll(cx))).await {
            Poll::Ready(piece) => piece?,
            Poll::Pending if urgent => return Ok(None),
            Poll::Pending => next.await?,
        };
        Ok(Some(piece.unwrap_or_default()))
    }

    /// What is held back, so that the client can decompress all that came so far.
    fn flush(&mut self, mut encoder: Encoder) -> Result<Part, BodyError> {
        let out = encoder.step(&[], FlushCompress::Sync).map_err(failed)?;
        self.encoder = Some(encoder);
        self.held = false;
        Ok(Part::Bytes(out))
    }

    /// Compresses a piece, here or in the pool.
    async fn step(&mut self, mut encoder: Encoder, input: Bytes) -> Result<Bytes, BodyError> {
        let (encoder, out) = if input.len() <= self.inline {
            if self.steps > 0 {
                // A fast client and a fast disk must not keep the loop.
                yield_now().await;
            }
            self.steps += 1;
            let out = encoder.step(&input, FlushCompress::None);
            (encoder, out)
        } else {
            let work = move || {
                let out = encoder.step(&input, FlushCompress::None);
                (encoder, out)
            };
            let running = self.io.pool.run(Class::Bulk, self.client, Op::Blocking, work);
            running.await.map_err(|error| BodyError::Overflow(error.to_string()))?
        };
        self.encoder = Some(encoder);
        self.held = true;
        out.map_err(failed)
    }
}

fn failed(error: CompressError) -> BodyError {
    BodyError::Coding(format!("deflate() failed: {error}"))
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    fn inflate(compressed: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        flate2::read::GzDecoder::new(compressed).read_to_end(&mut out).unwrap();
        out
    }

    /// Text that compresses hardly at all.
    fn noise(len: usize) -> Vec<u8> {
        let mut state = 1u32;
        let next = || {
            state ^= state << 13;
            state ^= state >> 17;
            state ^= state << 5;
            state.to_le_bytes()[0]
        };
        std::iter::repeat_with(next).take(len).collect()
    }

    #[test]
    fn steps_make_one_stream() {
        for level in 1..=9 {
            for text in [vec![b'x'; 300_000], noise(100_000), Vec::new()] {
                let compress = Compress::new_gzip(Compression::new(level), 15);
                let mut encoder = Encoder(Box::new(compress));
                let mut out = Vec::new();
                for piece in text.chunks(STEP_BYTES_MAX) {
                    out.extend_from_slice(&encoder.step(piece, FlushCompress::None).unwrap());
                }
                out.extend_from_slice(&encoder.step(&[], FlushCompress::Finish).unwrap());
                let counts = Counts::default();
                encoder.count(&counts);
                let lengths = (counts.taken.get(), counts.made.get());
                assert_eq!(lengths, (text.len() as u64, out.len() as u64));
                assert!(inflate(&out) == text, "level {level}, {} bytes", text.len());
            }
        }
    }

    #[test]
    fn windows_fit_the_text() {
        for (len, bits) in [(0, 9), (250, 9), (251, 10), (20_000, 15), (1 << 40, 15)] {
            assert_eq!(window_bits(15, Some(len)), bits, "{len}");
        }
        assert_eq!((window_bits(12, None), window_bits(12, Some(1 << 20))), (12, 12));
        let text = noise(5_000).repeat(3);
        for window in 9..=15 {
            let encoder = Encoder(Box::new(Compress::new_gzip(Compression::new(1), window)));
            let out = compress_at_once(encoder, &text, &Counts::default()).unwrap();
            assert!(inflate(&out) == text, "{window}");
        }
    }
}
