//! A coding with its settings, and the cost of compression.
//!
//! A complete text is compressed in one step, by the fastest
//! library for that; a text in pieces goes through a [`Coder`].

use std::sync::Arc;

use bytes::Bytes;
use libdeflater::{CompressionLvl, Compressor};
use nowait_brotli::{Encoder, Parameters, QUALITY_MAX};
use nowait_spare::SharedSpares;

use crate::Error;
use crate::coder::{Coder, Flush};

/// Longest text that is compressed in one step, in bytes.
pub const WHOLE_BYTES_MAX: usize = 256 * 1024;

/// A whole text is compressed in pieces of this size; before each the caller is asked whether it
/// is still wanted.
const STEP_BYTES: usize = 64 * 1024;

/// Size of Brotli's blocks, as a binary logarithm of bytes. Its own choice from level 9 on is four
/// times as large, which takes seconds at level 11. For 200 KB of C source this saves 0.5 % there,
/// and nothing at 9 and 10.
const BROTLI_BLOCK_BITS: u8 = 16;

/// Longest texts that libdeflate does not compress at all, but stores in its frame.
const TINY_BYTES_MAX: usize = 64;

/// The largest window of deflate, as a binary logarithm of its bytes (RFC 1951).
const GZIP_WINDOW_BITS_MAX: u8 = 15;

/// A coding and its settings.
#[derive(Debug, Clone)]
pub enum Recipe {
    /// RFC 1952, with a window of 2 to the power of `window` bytes.
    Gzip {
        /// 1 (fast) to 9 (small).
        level: u32,
        /// 9 to 15.
        window: u8,
    },
    /// RFC 7932, with a window as for gzip.
    Brotli {
        /// 0 (fast) to 11 (small).
        level: u32,
        /// 10 to 24.
        window: u8,
    },
    /// RFC 8878.
    Zstd {
        /// 1 (fast) to 22 (small).
        level: u32,
        /// Data known to the decoder.
        dictionary: Option<Dictionary>,
    },
}

/// A dictionary of Zstandard: the decoder needs the same one.
#[derive(Clone, PartialEq, Eq)]
pub struct Dictionary(pub Arc<[u8]>);

impl std::fmt::Debug for Dictionary {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} bytes", self.0.len())
    }
}

/// A compressor of whole texts. It has 400 to 700 KB, and room for the output.
struct Whole {
    level: i32,
    compressor: Compressor,
    out: Vec<u8>,
}

static WHOLE: SharedSpares<Whole> = SharedSpares::new(8);

impl Recipe {
    /// A number that only equal recipes have; `None`: none is known.
    pub fn number(&self) -> Option<u64> {
        let (coding, level, window) = match self {
            Self::Gzip { level, window } => (1, *level, *window),
            Self::Brotli { level, window } => (2, *level, *window),
            Self::Zstd { level, dictionary: None } => (3, *level, 0),
            Self::Zstd { dictionary: Some(_), .. } => return None,
        };
        Some(coding << 40 | u64::from(level) << 8 | u64::from(window))
    }

    /// Maximum number of bytes of a whole text that are compressed on the event loop; more go to the pool, which
    /// costs 3 to 33 µs. Such a step should keep the loop for about 0.2 ms. Measured for C source at
    /// about 3 GHz:
    ///
    /// | | 4 KB | 16 KB | 100 KB |
    /// |---|---|---|---|
    /// | gzip 1 | 19 µs | 37 µs | 430 µs |
    /// | gzip 2, 3 | 28 µs | 66 µs | 600 µs |
    /// | gzip 4 | 27 µs | 110 µs | 660 µs |
    /// | gzip 5, 6 | 24 µs | 150 µs | 1.6 ms |
    /// | gzip 7 | 27 µs | 295 µs | 3 ms |
    /// | gzip 8, 9 | 39 µs | 420 µs | 4.4 ms |
    /// | Brotli 0, 1 | 12 µs | 55 µs | 230 to 340 µs |
    /// | Brotli 2, 3 | 40 µs | 150 µs | 1 ms |
    /// | Brotli 4 | 46 µs | 220 µs | 1.1 ms |
    /// | Brotli 5, 6 | 48 µs | 400 µs | 1.9 ms |
    /// | Brotli 9 | 97 µs | 550 µs | 18 ms |
    /// | Zstandard 1 to 3 | 33 µs | 114 µs | |
    /// | Zstandard 4, 5 | 46 µs | 235 µs | |
    /// | Zstandard 6 to 10 | 230 µs | 500 µs | |
    #[inline]
    pub fn inline_whole_bytes(&self) -> usize {
        const KB: usize = 1024;
        match self {
            Self::Gzip { level, .. } => match level {
                ..=1 => 48 * KB,
                2..=4 => 32 * KB,
                5..=6 => 16 * KB,
                _ => 8 * KB,
            },
            Self::Brotli { level, .. } => match level {
                0..=1 => 48 * KB,
                2..=3 => 16 * KB,
                4..=6 => 8 * KB,
                7..=9 => 4 * KB,
                _ => 0,
            },
            Self::Zstd { .. } => self.inline_step_bytes(),
        }
    }

    /// The same for a step of a [`Coder`]. Per 32 KB gzip takes 125 µs at levels 1 and 2, 350 at 3
    /// to 5, 670 at 6, 1.2 to 2.7 ms above. The others take as long as for whole texts, and longer
    /// for the first step, which builds the tables: half a millisecond for Brotli from 7 on.
    #[inline]
    pub fn inline_step_bytes(&self) -> usize {
        const KB: usize = 1024;
        match self {
            Self::Gzip { level, .. } => match level {
                ..=2 => 32 * KB,
                3..=5 => 16 * KB,
                6 => 8 * KB,
                _ => 4 * KB,
            },
            Self::Brotli { level, .. } => match level {
                0..=1 => 48 * KB,
                2..=3 => 16 * KB,
                4..=6 => 8 * KB,
                _ => 0,
            },
            Self::Zstd { level, .. } => match level {
                0..=3 => 32 * KB,
                4..=5 => 16 * KB,
                6..=10 => 4 * KB,
                // Building their tables alone takes long.
                _ => 0,
            },
        }
    }

    /// Compresses a text.
    ///
    /// # Errors
    /// [`Error::Failed`]
    pub fn whole(&self, text: &[u8]) -> Result<Bytes, Error> {
        self.whole_while(text, || true)
    }

    /// Compresses a text while its output is wanted, which is checked before each step; for texts
    /// that take too long for the event loop.
    /// libdeflate has no steps; it takes 12 ms at most.
    ///
    /// # Errors
    /// [`Error::Failed`] or [`Error::Unwanted`]
    pub fn whole_while(&self, text: &[u8], is_wanted: impl Fn() -> bool) -> Result<Bytes, Error> {
        if let Self::Gzip { level, window } = self
            && text.len() > TINY_BYTES_MAX
            && fits(text.len(), *window)
        {
            return gzip_whole(libdeflate_level(*level), text);
        }
        let mut coder = self.begin(Some(text.len() as u64), None)?;
        let (mut rest, mut out) = (text, Vec::new());
        while is_wanted() {
            let (piece, left) = rest.split_at(rest.len().min(self.stop_bytes()));
            rest = left;
            let flush = if rest.is_empty() { Flush::Finish } else { Flush::None };
            let made = coder.step(piece, flush)?;
            if flush == Flush::Finish {
                coder.retire();
                if out.is_empty() {
                    return Ok(made);
                }
                out.extend_from_slice(&made);
                return Ok(out.into());
            }
            out.extend_from_slice(&made);
        }
        coder.retire();
        Err(Error::Unwanted)
    }

    /// Size of a step of [`whole_while`](Recipe::whole_while). The fastest levels of Brotli
    /// compress each piece independently, and need no steps.
    fn stop_bytes(&self) -> usize {
        match self {
            Self::Brotli { level: 0..=1, .. } => WHOLE_BYTES_MAX,
            Self::Gzip { .. } | Self::Brotli { .. } | Self::Zstd { .. } => STEP_BYTES,
        }
    }

    /// Starts to compress a text that arrives in pieces: of `len` bytes, or of about `expected`.
    ///
    /// # Errors
    /// [`Error::Failed`]: memory has run out.
    pub fn begin(&self, len: Option<u64>, expected: Option<u64>) -> Result<Coder, Error> {
        match self {
            Self::Gzip { level, window } => {
                Ok(Coder::gzip(*level, gzip_window(*window, len.or(expected))))
            }
            Self::Brotli { level, window } => {
                let len = len.or(expected);
                brotli(*level, brotli_window(*window, len), len)
                    .map(|encoder| Coder::brotli(encoder, *level))
            }
            Self::Zstd { level, dictionary } => {
                Coder::zstd(i32::try_from(*level).unwrap_or(1), len, dictionary.as_ref())
            }
        }
    }
}

fn brotli(level: u32, window_bits: u8, size: Option<u64>) -> Result<Encoder, Error> {
    let quality = u8::try_from(level).unwrap_or(QUALITY_MAX);
    // The lowest levels have no blocks.
    let block_bits = (level >= 2).then_some(BROTLI_BLOCK_BITS);
    let options = Parameters { quality, window_bits, size, block_bits };
    Encoder::new(options).map_err(|error| Error::Failed(error.to_string()))
}

/// Whether a window holds the whole text: the library for whole texts supports only the largest
/// one.
fn fits(len: usize, window: u8) -> bool {
    window >= GZIP_WINDOW_BITS_MAX || len <= 1 << window
}

/// The level of libdeflate whose output is about as short as zlib's: the same one at low levels, a
/// higher one above, where libdeflate's own level is a percent worse. It still takes only 0.3 to
/// 0.5 times as long.
fn libdeflate_level(level: u32) -> i32 {
    match level {
        ..=1 => 1,
        2 => 2,
        3 => 3,
        4 => 4,
        5 => 6,
        6 => 7,
        7 => 8,
        _ => 9,
    }
}

fn gzip_whole(level: i32, text: &[u8]) -> Result<Bytes, Error> {
    let spare = WHOLE.take_if(|whole| whole.level == level);
    let mut whole = match spare {
        Some(whole) => whole,
        None => {
            let own =
                CompressionLvl::new(level).map_err(|error| Error::Failed(format!("{error:?}")))?;
            Whole { level, compressor: Compressor::new(own), out: Vec::new() }
        }
    };
    let most = whole.compressor.gzip_compress_bound(text.len());
    if whole.out.len() < most {
        whole.out.resize(most, 0);
    }
    let made = whole.compressor.gzip_compress(text, &mut whole.out);
    let made = made.map_err(|error| Error::Failed(format!("gzip compression failed: {error}")))?;
    let out = Bytes::copy_from_slice(&whole.out[..made]);
    if text.len() <= WHOLE_BYTES_MAX {
        WHOLE.keep_newest(whole);
    }
    Ok(out)
}

/// The smallest window that holds a text of this length: it determines the compressor's memory.
fn gzip_window(wanted: u8, len: Option<u64>) -> u8 {
    /// zlib's MIN_LOOKAHEAD: this part of the window is not usable.
    const LOOKAHEAD: u64 = 262;
    let Some(len) = len else { return wanted };
    (9..wanted).find(|bits| len + LOOKAHEAD <= 1 << bits).unwrap_or(wanted)
}

/// The same for Brotli. Levels from 5 on have faster tables for windows of up to 64 KB, too.
fn brotli_window(wanted: u8, len: Option<u64>) -> u8 {
    /// RFC 7932 section 9.1: a window is smaller than its power of two by this much.
    const GAP: u64 = 16;
    let Some(len) = len else { return wanted };
    let min = nowait_brotli::WINDOW_BITS_MIN;
    (min..wanted).find(|bits| len.saturating_add(GAP) <= 1 << bits).unwrap_or(wanted)
}

#[cfg(test)]
pub(crate) mod tests;
