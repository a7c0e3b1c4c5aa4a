//! Brotli compression (RFC 7932): a safe interface to the encoder of Google's C library.
//!
//! Used for compressing responses. No crate offers the current library's encoder with its window
//! size and size hint; the encoder in Rust takes 2.3 times as long. Does not decompress, knows
//! nothing of HTTP, and starts no threads.
//!
//! # Ownership
//!
//! An [`Encoder`] is the only owner of its state: created by `BrotliEncoderCreateInstance` in
//! [`Encoder::new`], freed once by `BrotliEncoderDestroyInstance` on drop, and never exposed. The
//! library keeps no pointer to input or output beyond a call: it copies what it needs. The state
//! allocates from the encoder's own [`Memory`], which is dropped after it, refers only to constant
//! tables, and is not tied to a thread, so an encoder may move to another one; every operation that
//! changes it takes `&mut`.

mod memory;

use std::ptr::{self, NonNull};

use compu_brotli_sys as c;

use memory::Memory;

/// Highest quality: the smallest output, by far the slowest.
pub const QUALITY_MAX: u8 = 11;

/// Smallest window, as a binary logarithm of its bytes.
pub const WINDOW_BITS_MIN: u8 = 10;

/// Largest window of RFC 7932, as a binary logarithm of its bytes.
pub const WINDOW_BITS_MAX: u8 = 24;

/// Minimum room reserved for output at a time, in bytes.
const ROOM_BYTES_MIN: usize = 4 * 1024;

/// Compression parameters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Parameters {
    /// 0 to [`QUALITY_MAX`]; higher values are clamped.
    pub quality: u8,
    /// [`WINDOW_BITS_MIN`] to [`WINDOW_BITS_MAX`]; other values are clamped.
    pub window_bits: u8,
    /// Length of the input in bytes, if known: tables are sized for it. A hint, not a promise.
    pub size: Option<u64>,
    /// The most text that is compressed at once, as a binary logarithm of its bytes: 16 to 24. `None`:
    /// the encoder's choice, which is up to 18.
    pub block_bits: Option<u8>,
}

/// How far the input so far is to be compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// The encoder may buffer as much as it likes.
    Process,
    /// All input so far can be decompressed from the output so far.
    Flush,
    /// The end of the input. No other operation may follow.
    Finish,
}

/// The library failed: it is out of memory, or an operation followed the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Failed;

impl std::fmt::Display for Failed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("brotli compression failed: no memory, or text after its end")
    }
}

impl std::error::Error for Failed {}

/// The state of one compression.
#[derive(Debug)]
pub struct Encoder {
    state: NonNull<c::BrotliEncoderState>,
    /// Dropped after the state has been freed.
    _memory: Memory,
}

// SAFETY: see "Ownership": nothing in the state is tied to a thread.
unsafe impl Send for Encoder {}

impl Encoder {
    /// A new compression.
    ///
    /// # Errors
    /// Out of memory.
    pub fn new(options: Parameters) -> Result<Self, Failed> {
        let memory = Memory::new();
        // SAFETY: the functions are made for the store of this memory, which outlives the state and
        // has no other user.
        let state = unsafe {
            c::BrotliEncoderCreateInstance(
                Some(memory::allocate),
                Some(memory::release),
                memory.as_ptr(),
            )
        };
        let encoder = Self { state: NonNull::new(state).ok_or(Failed)?, _memory: memory };
        let window = options.window_bits.clamp(WINDOW_BITS_MIN, WINDOW_BITS_MAX);
        encoder.set(
            c::BrotliEncoderParameter_BROTLI_PARAM_QUALITY,
            options.quality.min(QUALITY_MAX).into(),
        )?;
        encoder.set(c::BrotliEncoderParameter_BROTLI_PARAM_LGWIN, window.into())?;
        if let Some(size) = options.size {
            let hint = u32::try_from(size).unwrap_or(u32::MAX);
            encoder.set(c::BrotliEncoderParameter_BROTLI_PARAM_SIZE_HINT, hint)?;
        }
        if let Some(bits) = options.block_bits {
            encoder.set(c::BrotliEncoderParameter_BROTLI_PARAM_LGBLOCK, bits.into())?;
        }
        Ok(encoder)
    }

    fn set(&self, parameter: c::BrotliEncoderParameter, value: u32) -> Result<(), Failed> {
        // SAFETY: the state is alive, and parameters are set before anything was compressed.
        let set = unsafe { c::BrotliEncoderSetParameter(self.state.as_ptr(), parameter, value) };
        if set == 0 { Err(Failed) } else { Ok(()) }
    }

    /// Consumes all of `input`, and appends the resulting output to `out`.
    ///
    /// # Errors
    /// [`Failed`]; the compression cannot continue after that.
    pub fn encode(
        &mut self,
        input: &[u8],
        operation: Operation,
        out: &mut Vec<u8>,
    ) -> Result<(), Failed> {
        let operation = match operation {
            Operation::Process => c::BrotliEncoderOperation_BROTLI_OPERATION_PROCESS,
            Operation::Flush => c::BrotliEncoderOperation_BROTLI_OPERATION_FLUSH,
            Operation::Finish => c::BrotliEncoderOperation_BROTLI_OPERATION_FINISH,
        };
        let state = self.state.as_ptr();
        let mut left = input.len();
        let mut next = input.as_ptr();
        loop {
            if out.len() == out.capacity() {
                out.reserve(ROOM_BYTES_MIN);
            }
            let room = out.spare_capacity_mut();
            let had = room.len();
            let (mut free, mut to) = (had, room.as_mut_ptr().cast::<u8>());
            // SAFETY: the state is alive and has no other user; `left` bytes can be read at `next`,
            // which the library advances within `input`; `free` bytes can be written at `to`.
            let went = unsafe {
                c::BrotliEncoderCompressStream(
                    state,
                    operation,
                    &mut left,
                    &mut next,
                    &mut free,
                    &mut to,
                    ptr::null_mut(),
                )
            };
            // SAFETY: the library has written the first `had - free` bytes of the room.
            unsafe { out.set_len(out.len() + (had - free)) };
            if went == 0 {
                return Err(Failed);
            }
            // SAFETY: the state is alive; the query changes nothing.
            let more = unsafe { c::BrotliEncoderHasMoreOutput(state) } != 0;
            if left == 0 && !more {
                return Ok(());
            }
        }
    }
}

impl Drop for Encoder {
    fn drop(&mut self) {
        // SAFETY: the state was created by the library and is freed only here.
        unsafe { c::BrotliEncoderDestroyInstance(self.state.as_ptr()) };
    }
}

#[cfg(test)]
mod tests;
