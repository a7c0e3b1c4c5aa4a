//! Large receive buffers, for bodies that arrive in bulk.
//!
//! Created by the drivers for [`Stream::recv_large`](crate::net::Stream::recv_large). As with
//! [`RecvBuf`], the holder owns the buffer; a per-thread pool keeps the memory of dropped ones.

use std::cell::RefCell;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::{Buf, Bytes, BytesMut};

use super::free::Free;
use super::small::{RECV_BUF_BYTES, RecvBuf};
use super::small_copies::join_briefly;

/// Size of the largest buffer in bytes. Measured for a proxied megabyte: receives and sends of this
/// size cost less per byte than smaller ones, and larger ones no longer stay in the CPU's cache.
pub const LARGE_BUF_BYTES: usize = 128 * 1024;

/// Available buffer sizes. Memory is held until its last byte has been sent, so a client that reads
/// slowly must not tie up more of it than its bytes need.
const CLASSES: [usize; 3] = [LARGE_BUF_BYTES / 4, LARGE_BUF_BYTES / 2, LARGE_BUF_BYTES];

/// Bytes of unused memory of each size that a thread keeps at most.
const POOL_FREE_BYTES_MAX: usize = 2 * 1024 * 1024;

/// Number of unused buffers of each size that survive a trim.
const POOL_FREE_MIN: usize = 2;

thread_local! {
    static POOL: RefCell<[Free<Box<[u8]>>; CLASSES.len()]> =
        const { RefCell::new([Free::new(), Free::new(), Free::new()]) };
}

/// Bytes of large memory in use. Not per thread: what is written to a file is dropped in a pool.
static IN_USE: AtomicUsize = AtomicUsize::new(0);

/// Bytes of large memory that hold received data, of all threads. For callers that receive less at a time
/// when much is held already.
pub fn large_bytes_in_use() -> usize {
    IN_USE.load(Ordering::Relaxed)
}

/// Index in [`CLASSES`] of the smallest size that holds `bytes`, or of the largest size.
fn class_of(bytes: usize) -> usize {
    CLASSES.iter().position(|size| bytes <= *size).unwrap_or(CLASSES.len() - 1)
}

/// Bytes received, in large memory that returns to a pool on drop.
pub struct LargeBuf {
    /// Empty only while it is being dropped.
    memory: Box<[u8]>,
    start: usize,
    end: usize,
}

impl LargeBuf {
    /// Memory with unspecified content: at least `bytes`, up to [`LARGE_BUF_BYTES`].
    pub(crate) fn take(bytes: usize) -> LargeBuf {
        let class = class_of(bytes);
        let pooled = POOL.with_borrow_mut(|pool| pool[class].take());
        let memory = pooled.unwrap_or_else(|| vec![0; CLASSES[class]].into_boxed_slice());
        debug_assert!(memory.len() >= bytes.min(LARGE_BUF_BYTES));
        IN_USE.fetch_add(memory.len(), Ordering::Relaxed);
        LargeBuf { memory, start: 0, end: 0 }
    }

    /// All of the memory, to be filled.
    pub(crate) fn memory(&mut self) -> &mut [u8] {
        &mut self.memory
    }

    /// Records that `len` bytes were filled.
    pub(crate) fn filled(&mut self, len: usize) {
        debug_assert!(len <= self.memory.len());
        (self.start, self.end) = (0, len);
    }
}

impl Drop for LargeBuf {
    fn drop(&mut self) {
        let memory = std::mem::take(&mut self.memory);
        IN_USE.fetch_sub(memory.len(), Ordering::Relaxed);
        let class = class_of(memory.len());
        let _ = POOL.try_with(|pool| {
            pool.borrow_mut()[class].put(memory, POOL_FREE_BYTES_MAX / CLASSES[class])
        });
    }
}

impl Deref for LargeBuf {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.memory[self.start..self.end]
    }
}

impl DerefMut for LargeBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..self.end]
    }
}

impl AsRef<[u8]> for LargeBuf {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

/// The result of [`Stream::recv_large`](crate::net::Stream::recv_large).
pub enum ReceivedBuf {
    /// In a regular buffer.
    Lent(RecvBuf),
    /// In a large buffer.
    Large(LargeBuf),
    /// In separate memory: assembled from several receives.
    Joined(BytesMut),
}

/// Up to this many bytes, a copy is cheaper than to share memory.
const COPY_BYTES_MAX: usize = 2 * 1024;

impl ReceivedBuf {
    /// Nothing.
    pub fn empty() -> ReceivedBuf {
        ReceivedBuf::Lent(RecvBuf::empty())
    }

    /// Whether more may be available at once, because the buffer was filled. Call it before
    /// truncating.
    pub fn is_full(&self) -> bool {
        match self {
            ReceivedBuf::Lent(buf) => buf.end as usize == RECV_BUF_BYTES,
            ReceivedBuf::Large(buf) => buf.end == buf.memory.len(),
            ReceivedBuf::Joined(_) => false,
        }
    }

    /// Discards all but the first `len` bytes.
    pub fn truncate(&mut self, len: usize) {
        match self {
            ReceivedBuf::Lent(buf) => buf.truncate(len),
            ReceivedBuf::Large(buf) => buf.end = buf.end.min(buf.start.saturating_add(len)),
            ReceivedBuf::Joined(buf) => buf.truncate(len),
        }
    }

    /// Consumes `count` bytes from the front.
    ///
    /// # Panics
    /// If fewer bytes are left.
    pub fn advance(&mut self, count: usize) {
        match self {
            ReceivedBuf::Lent(buf) => buf.advance(count),
            ReceivedBuf::Large(buf) => {
                assert!(count <= buf.end - buf.start, "advance beyond the received bytes");
                buf.start += count;
            }
            ReceivedBuf::Joined(buf) => buf.advance(count),
        }
    }

    /// Like [`into_bytes`](Self::into_bytes), for bytes that may be kept for long: if they fill
    /// less than half of their memory, they are copied into an allocation of the exact size.
    pub fn into_compact_bytes(self) -> Bytes {
        let memory = match &self {
            ReceivedBuf::Lent(buf) => buf.memory_bytes(),
            ReceivedBuf::Large(buf) => buf.memory.len(),
            ReceivedBuf::Joined(buf) => buf.capacity(),
        };
        if self.len() <= memory / 2 { Bytes::copy_from_slice(&self) } else { self.into_bytes() }
    }

    /// Like [`into_bytes`](Self::into_bytes), for bytes that are passed on soon: few of them share memory with
    /// others, and may keep 1 KB in use.
    pub fn into_brief_bytes(self) -> Bytes {
        if self.len() <= COPY_BYTES_MAX { join_briefly(&[&self]) } else { self.into_bytes() }
    }

    /// The bytes, shared. A small number of bytes is copied, so that they do not pin large memory.
    pub fn into_bytes(self) -> Bytes {
        if self.len() <= COPY_BYTES_MAX {
            return Bytes::copy_from_slice(&self);
        }
        match self {
            ReceivedBuf::Lent(buf) => buf.into_bytes(),
            ReceivedBuf::Large(buf) => Bytes::from_owner(buf),
            ReceivedBuf::Joined(buf) => buf.freeze(),
        }
    }
}

impl Deref for ReceivedBuf {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        match self {
            ReceivedBuf::Lent(buf) => buf,
            ReceivedBuf::Large(buf) => buf,
            ReceivedBuf::Joined(buf) => buf,
        }
    }
}

impl DerefMut for ReceivedBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        match self {
            ReceivedBuf::Lent(buf) => buf,
            ReceivedBuf::Large(buf) => buf,
            ReceivedBuf::Joined(buf) => buf,
        }
    }
}

/// Shrinks this thread's pool towards recent demand.
pub(super) fn trim() {
    POOL.with_borrow_mut(|pool| pool.iter_mut().for_each(|free| free.trim(POOL_FREE_MIN)));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_memory_is_reused_and_trimmed() {
        let kept =
            || POOL.with_borrow(|pool| pool.iter().map(|free| free.items.len()).sum::<usize>());
        let bufs: Vec<_> = (0..10).map(|_| LargeBuf::take(LARGE_BUF_BYTES)).collect();
        drop(bufs);
        assert_eq!(kept(), 10);
        for _ in 0..20 {
            trim();
        }
        assert!(kept() <= POOL_FREE_MIN + 1);
    }

    #[test]
    fn memory_has_the_smallest_size_that_holds_what_is_asked_for() {
        let sizes = [1, 32 * 1024, 32 * 1024 + 1, 128 * 1024, usize::MAX]
            .map(|bytes| LargeBuf::take(bytes).memory().len());
        assert_eq!(sizes, [32, 32, 64, 128, 128].map(|kb| kb * 1024));
    }

    #[test]
    fn bytes_that_are_kept_do_not_hold_on_to_unused_memory() {
        let compact = |len| {
            let mut buf = LargeBuf::take(LARGE_BUF_BYTES);
            let memory = buf.memory().as_ptr();
            buf.filled(len);
            ReceivedBuf::Large(buf).into_compact_bytes().as_ptr() != memory
        };
        assert!(compact(LARGE_BUF_BYTES / 2));
        assert!(!compact(LARGE_BUF_BYTES / 2 + 1));
    }

    #[test]
    fn few_bytes_do_not_hold_on_to_the_memory() {
        let mut buf = LargeBuf::take(LARGE_BUF_BYTES);
        buf.memory()[..4].copy_from_slice(b"text");
        buf.filled(4);
        let mut received = ReceivedBuf::Large(buf);
        received.truncate(3);
        let bytes = received.into_bytes();
        assert_eq!(bytes, "tex");
        assert_eq!(POOL.with_borrow(|pool| pool[CLASSES.len() - 1].items.len()), 1);
    }
}
