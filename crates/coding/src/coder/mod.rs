//! Compression of texts that arrive in pieces: one interface for gzip, Brotli and Zstandard.
//!
//! Built by a [`Recipe`](crate::Recipe). A step consumes all of its input, on whichever thread calls it.

use bytes::Bytes;
use flate2::{Compress, CompressError, Compression, FlushCompress, Status};
use nowait_brotli::{Encoder, Operation};
use nowait_spare::SharedSpares;
use zstd_safe::zstd_sys::ZSTD_EndDirective;
use zstd_safe::{CCtx, CParameter, InBuffer, OutBuffer, ResetDirective};

use crate::Error;
use crate::recipe::Dictionary;

/// Smallest output buffer in bytes.
const OUT_BYTES_MIN: usize = 4 * 1024;

/// The largest window that clients accept for zstd, as a binary logarithm (RFC 9659: 8 MB).
const ZSTD_WINDOW_BITS_MAX: u32 = 23;

/// Brotli collects at least this much text before it compresses, except at the lowest levels.
const BROTLI_BLOCK_BYTES: usize = 64 * 1024;

/// The same for Zstandard.
const ZSTD_BLOCK_BYTES: usize = 128 * 1024;

/// Largest state that is kept, in bytes; states of high levels have up to 100 MB.
const ZSTD_SPARE_BYTES_MAX: usize = 4 << 20;

/// Level, window and state; a state has about 300 KB.
type Gzip = ((u32, u8), Box<Compress>);

static GZIP: SharedSpares<Gzip> = SharedSpares::new(8);
static ZSTD: SharedSpares<CCtx<'static>> = SharedSpares::new(4);

/// The output that must be complete at the end of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flush {
    /// The compressor may hold data back.
    None,
    /// All text until now can be decompressed from the output.
    Sync,
    /// The end of the text.
    Finish,
}

/// The state of one compression.
pub struct Coder {
    kind: CoderKind,
    /// Text is collected up to this size; 0: it is compressed as it arrives.
    block_bytes: usize,
    /// Bytes of collected text that are not compressed yet.
    collected: usize,
    /// Bytes of text taken until now.
    taken: u64,
    /// Bytes of output until now.
    made: u64,
}

enum CoderKind {
    Gzip((u32, u8), Box<Compress>),
    Brotli(Encoder),
    Zstd(CCtx<'static>),
}

impl Coder {
    /// gzip (RFC 1952) with a window of 2 to the power of `window` bytes.
    pub(crate) fn gzip(level: u32, window: u8) -> Self {
        // zlib's level 1 corresponds to level 2 of this library, which is faster still; the
        // library's own level 1 produces a fifth more bytes.
        let level = level.max(2);
        let spare = GZIP.take_if(|(kind, _)| *kind == (level, window)).map(|(_, spare)| spare);
        let compress =
            spare.unwrap_or_else(|| Box::new(Compress::new_gzip(Compression::new(level), window)));
        Self::of(CoderKind::Gzip((level, window), compress), 0)
    }

    /// The compression is complete: its state may be reused.
    pub fn retire(self) {
        match self.kind {
            CoderKind::Gzip(kind, mut compress) => {
                compress.reset();
                GZIP.keep_newest((kind, compress));
            }
            CoderKind::Zstd(mut context) => {
                let reset = context.reset(ResetDirective::SessionAndParameters).is_ok();
                if reset && context.sizeof() <= ZSTD_SPARE_BYTES_MAX {
                    ZSTD.keep_newest(context);
                }
            }
            CoderKind::Brotli(_) => {}
        }
    }

    /// Brotli (RFC 7932) at a level.
    pub(crate) fn brotli(encoder: Encoder, level: u32) -> Self {
        Self::of(CoderKind::Brotli(encoder), if level < 2 { 0 } else { BROTLI_BLOCK_BYTES })
    }

    /// Zstandard (RFC 8878).
    ///
    /// # Errors
    /// [`Error::Failed`]: memory has run out.
    pub(crate) fn zstd(
        level: i32,
        len: Option<u64>,
        dictionary: Option<&Dictionary>,
    ) -> Result<Self, Error> {
        let mut context = match ZSTD.take() {
            Some(context) => context,
            None => CCtx::try_create()
                .ok_or_else(|| Error::Failed("ZSTD_createCCtx() failed".to_owned()))?,
        };
        let set = |context: &mut CCtx<'_>, parameter| context.set_parameter(parameter);
        set(&mut context, CParameter::CompressionLevel(level)).map_err(zstd_failed)?;
        // Lower levels have smaller windows anyway.
        if level >= 17 {
            set(&mut context, CParameter::WindowLog(ZSTD_WINDOW_BITS_MAX)).map_err(zstd_failed)?;
        }
        if let Some(dictionary) = dictionary {
            context.load_dictionary(&dictionary.0).map_err(zstd_failed)?;
        }
        context.set_pledged_src_size(len).map_err(zstd_failed)?;
        Ok(Self::of(CoderKind::Zstd(context), ZSTD_BLOCK_BYTES))
    }

    /// Bytes of text taken until now.
    #[inline]
    pub fn taken(&self) -> u64 {
        self.taken
    }

    /// Bytes of output until now.
    #[inline]
    pub fn made(&self) -> u64 {
        self.made
    }

    fn of(kind: CoderKind, block_bytes: usize) -> Self {
        Self { kind, block_bytes, collected: 0, taken: 0, made: 0 }
    }

    /// Bytes of text that a step with this much more input would compress; they determine its
    /// duration.
    #[inline]
    pub fn work(&self, len: usize, flush: Flush) -> usize {
        let all = self.collected + len;
        if flush == Flush::None && all < self.block_bytes { 0 } else { all }
    }

    /// Takes all of the input and returns the output.
    ///
    /// # Errors
    /// [`Error::Failed`]; the compression cannot continue after that.
    pub fn step(&mut self, input: &[u8], flush: Flush) -> Result<Bytes, Error> {
        let mut out = Vec::with_capacity((input.len() / 3).max(OUT_BYTES_MIN));
        match &mut self.kind {
            CoderKind::Gzip(_, compress) => gzip_step(compress, input, flush, &mut out)
                .map_err(|error| Error::Failed(format!("deflate() failed: {error}")))?,
            CoderKind::Brotli(encoder) => {
                let operation = match flush {
                    Flush::None => Operation::Process,
                    Flush::Sync => Operation::Flush,
                    Flush::Finish => Operation::Finish,
                };
                encoder
                    .encode(input, operation, &mut out)
                    .map_err(|error| Error::Failed(error.to_string()))?;
            }
            CoderKind::Zstd(context) => {
                zstd_step(context, input, flush, &mut out).map_err(zstd_failed)?;
            }
        }
        let collects = self.work(input.len(), flush) == 0;
        self.collected = if collects { self.collected + input.len() } else { 0 };
        self.taken += input.len() as u64;
        self.made += out.len() as u64;
        Ok(out.into())
    }
}

fn gzip_step(
    compress: &mut Compress,
    mut input: &[u8],
    flush: Flush,
    out: &mut Vec<u8>,
) -> Result<(), CompressError> {
    let how = match flush {
        Flush::None => FlushCompress::None,
        Flush::Sync => FlushCompress::Sync,
        Flush::Finish => FlushCompress::Finish,
    };
    loop {
        let before = compress.total_in();
        let status = compress.compress_vec(input, out, how)?;
        let taken = usize::try_from(compress.total_in() - before).unwrap_or(input.len());
        input = &input[taken..];
        let full = out.len() == out.capacity();
        let done = match flush {
            Flush::Finish => status == Status::StreamEnd,
            Flush::None | Flush::Sync => input.is_empty() && !full,
        };
        if done {
            return Ok(());
        }
        out.reserve(OUT_BYTES_MIN);
    }
}

fn zstd_step(
    context: &mut CCtx<'_>,
    input: &[u8],
    flush: Flush,
    out: &mut Vec<u8>,
) -> Result<(), usize> {
    let how = || match flush {
        Flush::None => ZSTD_EndDirective::ZSTD_e_continue,
        Flush::Sync => ZSTD_EndDirective::ZSTD_e_flush,
        Flush::Finish => ZSTD_EndDirective::ZSTD_e_end,
    };
    let mut input = InBuffer::around(input);
    loop {
        let at = out.len();
        let left = {
            let mut room = OutBuffer::around_pos(out, at);
            context.compress_stream2(&mut room, &mut input, how())?
        };
        let taken = input.pos() == input.src.len();
        let done = match flush {
            Flush::None => taken && out.len() < out.capacity(),
            Flush::Sync | Flush::Finish => taken && left == 0,
        };
        if done {
            return Ok(());
        }
        out.reserve(OUT_BYTES_MIN);
    }
}

fn zstd_failed(code: usize) -> Error {
    Error::Failed(format!("zstd compression failed: {}", zstd_safe::get_error_name(code)))
}

#[cfg(test)]
mod tests;
