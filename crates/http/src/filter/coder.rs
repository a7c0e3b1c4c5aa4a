//! Compressions: gzip, brotli and zstd behind one form.
//!
//! Sans-IO; the frame is [`super::compress`]. A step takes all of its input, here or on a thread of a
//! pool.

use std::cell::RefCell;

use brotli::enc::StandardAlloc;
use brotli::enc::encode::{
    BrotliEncoderOperation, BrotliEncoderParameter, BrotliEncoderStateStruct,
};
use bytes::Bytes;
use flate2::{Compress, CompressError, Compression, FlushCompress, Status};
use zstd_safe::zstd_sys::ZSTD_EndDirective;
use zstd_safe::{CCtx, CParameter, InBuffer, OutBuffer, ResetDirective};

use crate::conf::codings::Dictionary;

/// Least room for output, in bytes.
const OUT_BYTES_MIN: usize = 4 * 1024;

/// The largest window that clients accept for zstd, as a binary logarithm (RFC 9659: 8 MB).
const ZSTD_WINDOW_BITS_MAX: u32 = 23;

/// Brotli collects at least so much text before it compresses, except at the lowest levels.
const BROTLI_BLOCK_BYTES: usize = 64 * 1024;

/// Zstandard collects so much.
const ZSTD_BLOCK_BYTES: usize = 128 * 1024;

/// States of compressions that a worker keeps for the next one, of each kind: to make one anew takes
/// longer than to compress a short text. One has some 300 KB.
const SPARE_MAX: usize = 4;

thread_local! {
    static SPARE: RefCell<Spare> = const { RefCell::new(Spare { gzip: Vec::new(), zstd: Vec::new() }) };
}

/// States for the next compressions of this worker.
struct Spare {
    /// With level and window.
    gzip: Vec<((u32, u8), Box<Compress>)>,
    zstd: Vec<CCtx<'static>>,
}

/// How a step ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Flush {
    /// The compression may keep what it likes.
    None,
    /// Everything so far can be decompressed from what has come out.
    Sync,
    /// The end of the text.
    Finish,
}

/// The state of one compression.
pub(super) struct Coder {
    kind: Kind,
    /// Text is collected up to this size; 0: it is compressed as it comes.
    block_bytes: usize,
    /// Bytes of text that were collected and are not compressed yet.
    collected: usize,
    /// Bytes of text so far.
    pub(super) taken: u64,
    /// Bytes that came out.
    pub(super) made: u64,
}

enum Kind {
    Gzip((u32, u8), Box<Compress>),
    Brotli(Box<BrotliEncoderStateStruct<StandardAlloc>>),
    Zstd(CCtx<'static>),
}

impl Coder {
    /// gzip (RFC 1952) with a window of 2 to the power of `window` bytes.
    pub(super) fn gzip(level: u32, window: u8) -> Self {
        // What is level 1 to zlib is level 2 to this library, which is faster still, and whose own
        // level 1 leaves a fifth more to be sent.
        let level = level.max(2);
        let spare = SPARE.with_borrow_mut(|spare| {
            let at = spare.gzip.iter().position(|(kind, _)| *kind == (level, window))?;
            Some(spare.gzip.swap_remove(at).1)
        });
        let compress =
            spare.unwrap_or_else(|| Box::new(Compress::new_gzip(Compression::new(level), window)));
        Self::of(Kind::Gzip((level, window), compress), 0)
    }

    /// The compression is complete: its state may serve another one of this worker.
    pub(super) fn retire(self) {
        SPARE.with_borrow_mut(|spare| match self.kind {
            Kind::Gzip(kind, mut compress) => {
                compress.reset();
                if spare.gzip.len() >= SPARE_MAX {
                    spare.gzip.remove(0);
                }
                spare.gzip.push((kind, compress));
            }
            Kind::Zstd(mut context) => {
                let reset = context.reset(ResetDirective::SessionAndParameters).is_ok();
                if reset && spare.zstd.len() < SPARE_MAX {
                    spare.zstd.push(context);
                }
            }
            Kind::Brotli(_) => {}
        });
    }

    /// Brotli (RFC 7932); `len` is the length of the text if it is known.
    pub(super) fn brotli(level: u32, window: u8, len: Option<u64>) -> Self {
        let mut state = BrotliEncoderStateStruct::new(StandardAlloc::default());
        state.set_parameter(BrotliEncoderParameter::BROTLI_PARAM_QUALITY, level);
        state.set_parameter(BrotliEncoderParameter::BROTLI_PARAM_LGWIN, window.into());
        if let Some(len) = len.and_then(|len| u32::try_from(len).ok()) {
            state.set_parameter(BrotliEncoderParameter::BROTLI_PARAM_SIZE_HINT, len);
        }
        Self::of(Kind::Brotli(Box::new(state)), if level < 2 { 0 } else { BROTLI_BLOCK_BYTES })
    }

    /// Zstandard (RFC 8878).
    ///
    /// # Errors
    /// There is no memory for it.
    pub(super) fn zstd(
        level: i32,
        len: Option<u64>,
        dictionary: Option<&Dictionary>,
    ) -> Result<Self, String> {
        let spare = SPARE.with_borrow_mut(|spare| spare.zstd.pop());
        let mut context = match spare {
            Some(context) => context,
            None => CCtx::try_create().ok_or("ZSTD_createCCtx() failed")?,
        };
        let set = |context: &mut CCtx<'_>, parameter| context.set_parameter(parameter);
        set(&mut context, CParameter::CompressionLevel(level)).map_err(zstd_failed)?;
        // Lower levels have smaller windows by themselves.
        if level >= 17 {
            set(&mut context, CParameter::WindowLog(ZSTD_WINDOW_BITS_MAX)).map_err(zstd_failed)?;
        }
        if let Some(dictionary) = dictionary {
            context.load_dictionary(&dictionary.0).map_err(zstd_failed)?;
        }
        context.set_pledged_src_size(len).map_err(zstd_failed)?;
        Ok(Self::of(Kind::Zstd(context), ZSTD_BLOCK_BYTES))
    }

    fn of(kind: Kind, block_bytes: usize) -> Self {
        Self { kind, block_bytes, collected: 0, taken: 0, made: 0 }
    }

    /// How many bytes of text a step with so many more would compress: they cost the time.
    pub(super) fn work(&self, len: usize, flush: Flush) -> usize {
        let all = self.collected + len;
        if flush == Flush::None && all < self.block_bytes { 0 } else { all }
    }

    /// Takes all of the input, and yields what that led to.
    ///
    /// # Errors
    /// The library's, for the log.
    pub(super) fn step(&mut self, input: &[u8], flush: Flush) -> Result<Bytes, String> {
        let mut out = Vec::with_capacity((input.len() / 3).max(OUT_BYTES_MIN));
        match &mut self.kind {
            Kind::Gzip(_, compress) => gzip_step(compress, input, flush, &mut out)
                .map_err(|error| format!("deflate() failed: {error}"))?,
            Kind::Brotli(state) => brotli_step(state, input, flush, &mut out)?,
            Kind::Zstd(context) => {
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

fn brotli_step(
    state: &mut BrotliEncoderStateStruct<StandardAlloc>,
    input: &[u8],
    flush: Flush,
    out: &mut Vec<u8>,
) -> Result<(), String> {
    let operation = || match flush {
        Flush::None => BrotliEncoderOperation::BROTLI_OPERATION_PROCESS,
        Flush::Sync => BrotliEncoderOperation::BROTLI_OPERATION_FLUSH,
        Flush::Finish => BrotliEncoderOperation::BROTLI_OPERATION_FINISH,
    };
    let (mut left, mut at) = (input.len(), 0);
    let mut end = out.len();
    loop {
        out.resize(end + OUT_BYTES_MIN, 0);
        let mut room = OUT_BYTES_MIN;
        let went = state.compress_stream(
            operation(),
            &mut left,
            input,
            &mut at,
            &mut room,
            out,
            &mut end,
            &mut None,
            &mut |_, _, _, _| (),
        );
        if !went {
            return Err("brotli compression failed".to_owned());
        }
        let done = match flush {
            Flush::Finish => state.is_finished(),
            Flush::None | Flush::Sync => left == 0 && !state.has_more_output(),
        };
        if done {
            out.truncate(end);
            return Ok(());
        }
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

fn zstd_failed(code: usize) -> String {
    format!("zstd compression failed: {}", zstd_safe::get_error_name(code))
}

#[cfg(test)]
pub(super) mod tests {
    use std::io::Read;

    use super::*;

    fn plain(coder: &Coder, compressed: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        match coder.kind {
            Kind::Gzip(..) => {
                flate2::read::GzDecoder::new(compressed).read_to_end(&mut out).unwrap();
            }
            Kind::Brotli(_) => {
                brotli::Decompressor::new(compressed, 4096).read_to_end(&mut out).unwrap();
            }
            Kind::Zstd(_) => {
                let mut context = zstd_safe::DCtx::create();
                let mut input = InBuffer::around(compressed);
                while input.pos() < compressed.len() {
                    let at = out.len();
                    out.reserve(1 << 16);
                    let mut room = OutBuffer::around_pos(&mut out, at);
                    context.decompress_stream(&mut room, &mut input).unwrap();
                }
            }
        }
        out
    }

    /// Text that compresses hardly at all.
    pub(crate) fn noise(len: usize) -> Vec<u8> {
        let mut state = 1u32;
        let next = || {
            state ^= state << 13;
            state ^= state >> 17;
            state ^= state << 5;
            state.to_le_bytes()[0]
        };
        std::iter::repeat_with(next).take(len).collect()
    }

    fn coders(len: Option<u64>) -> Vec<Coder> {
        let mut all: Vec<Coder> = (1..=9).map(|level| Coder::gzip(level, 15)).collect();
        all.extend([0, 1, 4, 5, 9, 11].map(|level| Coder::brotli(level, 19, len)));
        all.extend([1, 3, 9, 19, 22].map(|level| Coder::zstd(level, len, None).unwrap()));
        all
    }

    #[test]
    fn steps_make_one_stream() {
        for text in [vec![b'x'; 100_000], noise(70_000), Vec::new()] {
            for known in [Some(text.len() as u64), None] {
                for mut coder in coders(known) {
                    let mut out = Vec::new();
                    for piece in text.chunks(32 * 1024) {
                        out.extend_from_slice(&coder.step(piece, Flush::None).unwrap());
                    }
                    out.extend_from_slice(&coder.step(&[], Flush::Finish).unwrap());
                    let lengths = (coder.taken, coder.made);
                    assert_eq!(lengths, (text.len() as u64, out.len() as u64));
                    assert!(plain(&coder, &out) == text, "{} bytes", text.len());
                }
            }
        }
    }

    #[test]
    fn states_serve_again() {
        let text = noise(20_000);
        let mut first = Vec::new();
        for round in 0..3 {
            let gzip = [1, 3, 6, 9].map(|level| Coder::gzip(level, 15));
            let zstd = [1, 3, 6, 9].map(|level| Coder::zstd(level, None, None).unwrap());
            for (n, mut coder) in gzip.into_iter().chain(zstd).enumerate() {
                let out = coder.step(&text, Flush::Finish).unwrap();
                assert!(plain(&coder, &out) == text);
                match round {
                    0 => first.push(out),
                    _ => assert!(first[n] == out, "{n}"),
                }
                coder.retire();
            }
        }
        SPARE.with_borrow(|spare| {
            assert_eq!((spare.gzip.len(), spare.zstd.len()), (SPARE_MAX, SPARE_MAX));
        });
        // One that has ended in the middle is not used again.
        let mut broken = Coder::gzip(9, 15);
        broken.step(&text, Flush::None).unwrap();
        drop(broken);
        let mut coder = Coder::gzip(9, 15);
        let out = coder.step(&text, Flush::Finish).unwrap();
        assert!(plain(&coder, &out) == text);
    }

    #[test]
    fn a_dictionary_is_used() {
        let text = noise(2000);
        let dictionary = Dictionary(text.clone().into());
        let with = |dictionary| {
            let mut coder = Coder::zstd(3, None, dictionary).unwrap();
            let out = coder.step(&text, Flush::Finish).unwrap();
            coder.retire();
            out
        };
        let short = with(Some(&dictionary));
        assert!(short.len() < 100, "{}", short.len());
        let mut context = zstd_safe::DCtx::create();
        context.load_dictionary(&text).unwrap();
        let mut out = Vec::with_capacity(4000);
        context.decompress(&mut out, &short).unwrap();
        assert!(out == text);
        // The next one without knows nothing of it.
        assert!(with(None).len() > 1500);
    }

    #[test]
    fn what_was_flushed_can_be_read() {
        for mut coder in coders(None) {
            let first = coder.step(b"first ", Flush::Sync).unwrap();
            assert!(!first.is_empty());
            let second = coder.step(b"second", Flush::Finish).unwrap();
            let whole = [&first[..], &second[..]].concat();
            assert_eq!(plain(&coder, &whole), b"first second");
        }
    }

    #[test]
    fn what_is_collected_is_compressed_later() {
        let text = noise(40 * 1024);
        for mut coder in [Coder::brotli(5, 19, None), Coder::zstd(3, None, None).unwrap()] {
            let block = coder.block_bytes;
            assert_eq!((coder.work(100, Flush::None), coder.work(100, Flush::Sync)), (0, 100));
            while coder.work(text.len(), Flush::None) == 0 {
                coder.step(&text, Flush::None).unwrap();
            }
            assert!(coder.work(text.len(), Flush::None) >= block);
            assert!(coder.work(0, Flush::Finish) >= block - text.len());
            coder.step(&[], Flush::Sync).unwrap();
            assert_eq!(coder.work(0, Flush::Finish), 0);
        }
        assert_eq!(Coder::gzip(1, 15).work(100, Flush::None), 100);
    }

    #[test]
    fn small_windows_are_enough() {
        let text = noise(5_000).repeat(3);
        for window in 9..=15 {
            let mut coder = Coder::gzip(1, window);
            let out = coder.step(&text, Flush::Finish).unwrap();
            assert!(plain(&coder, &out) == text, "{window}");
        }
        for window in 10..=24 {
            let mut coder = Coder::brotli(5, window, None);
            let out = coder.step(&text, Flush::Finish).unwrap();
            assert!(plain(&coder, &out) == text, "{window}");
        }
    }
}
