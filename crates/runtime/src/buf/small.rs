//! The usual buffers: for one receive, and for building heads and small bodies.

use std::cell::RefCell;
use std::fmt;
use std::ops::{Deref, DerefMut};

use bytes::Bytes;

use super::free::Free;

/// Size of one receive buffer in bytes: a response of 16 KB, a common size for blocks and whole
/// objects, arrives in one piece together with a head of up to 4 KB.
pub const RECV_BUF_BYTES: usize = 20 * 1024;

/// Memory for one receive.
pub(crate) type RecvMemory = Box<[u8; RECV_BUF_BYTES]>;

/// Capacity in bytes with which an [`OutBuf`] starts.
pub const OUT_BUF_BYTES: usize = 4 * 1024;

/// An [`OutBuf`] that has grown beyond this capacity (bytes) is freed rather than pooled.
const OUT_BUF_KEEP_BYTES: usize = 66 * 1024;

/// Maximum number of unused buffers of each kind kept per thread: 5 MB of receive memory, and more
/// than are in use at once within a turn.
const POOL_FREE_MAX: usize = 256;

/// Maximum number of grown, unused output buffers kept per thread.
const POOL_GROWN_MAX: usize = 64;

/// Number of unused buffers of each kind that survive a trim, however quiet the worker is.
const POOL_FREE_MIN: usize = 16;

thread_local! {
    static POOL: RefCell<BufferPool> = const { RefCell::new(BufferPool::new()) };
}

/// Unused buffers of this thread, last in, first out, so that memory stays warm in the CPU's cache.
struct BufferPool {
    recv: Free<RecvMemory>,
    out: Free<Vec<u8>>,
    /// Output buffers that have grown.
    grown: Free<Vec<u8>>,
}

impl BufferPool {
    const fn new() -> BufferPool {
        BufferPool { recv: Free::new(), out: Free::new(), grown: Free::new() }
    }
}

/// Shrinks this thread's pool towards recent demand.
pub(super) fn trim() {
    POOL.with_borrow_mut(|pool| {
        pool.recv.trim(POOL_FREE_MIN);
        pool.out.trim(POOL_FREE_MIN);
        pool.grown.trim(POOL_FREE_MIN);
    });
}

/// Takes memory for one receive: pooled, or freshly allocated.
pub(crate) fn take_recv_memory() -> RecvMemory {
    POOL.with_borrow_mut(|pool| pool.recv.take()).unwrap_or_else(|| {
        // Not `Box::new`: that would first build the array on the stack.
        vec![0; RECV_BUF_BYTES].into_boxed_slice().try_into().expect("made with this length")
    })
}

/// Gives receive memory back to this thread's pool.
pub(crate) fn put_recv_memory(memory: RecvMemory) {
    // A thread that is shutting down no longer has a pool: the memory is then freed here.
    let _ = POOL.try_with(|pool| pool.borrow_mut().recv.put(memory, POOL_FREE_MAX));
}

/// Bytes received, in a buffer lent by the runtime; it returns to the pool on drop.
///
/// Dereferences to the bytes not yet consumed by [`advance`](RecvBuf::advance).
pub struct RecvBuf {
    memory: Memory,
    start: u32,
    pub(super) end: u32,
}

/// The memory of a [`RecvBuf`].
enum Memory {
    /// Nothing was received.
    Nothing,
    /// Lent by this thread's pool.
    Lent(RecvMemory),
    /// Separate memory: more than one receive can bring.
    #[expect(
        clippy::box_collection,
        reason = "rare, and the buffer of each connection is to be small"
    )]
    Own(Box<Vec<u8>>),
}

impl RecvBuf {
    /// The buffer that signals the end of the stream.
    pub fn empty() -> RecvBuf {
        RecvBuf { memory: Memory::Nothing, start: 0, end: 0 }
    }

    /// Wraps `memory`, of which the first `len` bytes were received.
    pub(crate) fn filled(memory: RecvMemory, len: usize) -> RecvBuf {
        debug_assert!(len <= memory.len());
        RecvBuf { memory: Memory::Lent(memory), start: 0, end: len as u32 }
    }

    /// A buffer with these bytes, as if they had just been received. More than [`RECV_BUF_BYTES`] are
    /// stored in separate memory, so no bytes are left out.
    ///
    /// # Panics
    /// If there are 4 GB or more.
    pub fn of(bytes: &[u8]) -> RecvBuf {
        if bytes.is_empty() {
            return RecvBuf::empty();
        }
        if bytes.len() > RECV_BUF_BYTES {
            let end = u32::try_from(bytes.len()).expect("no more is in memory of one connection");
            return RecvBuf { memory: Memory::Own(Box::new(bytes.to_vec())), start: 0, end };
        }
        let mut memory = take_recv_memory();
        memory[..bytes.len()].copy_from_slice(bytes);
        RecvBuf::filled(memory, bytes.len())
    }

    /// Bytes of memory that it keeps.
    pub(super) fn memory_bytes(&self) -> usize {
        match &self.memory {
            Memory::Nothing => 0,
            Memory::Lent(memory) => memory.len(),
            Memory::Own(memory) => memory.len(),
        }
    }

    /// Consumes `count` bytes from the front.
    ///
    /// # Panics
    /// If fewer bytes are left.
    pub fn advance(&mut self, count: usize) {
        assert!(count <= (self.end - self.start) as usize, "advance beyond the received bytes");
        self.start += count as u32;
    }

    /// Discards all but the first `len` of the remaining bytes.
    pub fn truncate(&mut self, len: usize) {
        self.end = self.end.min(self.start.saturating_add(u32::try_from(len).unwrap_or(u32::MAX)));
    }

    /// The remaining bytes as shared [`Bytes`], without a copy. The memory returns to a pool when
    /// the last clone is dropped. For a short remainder a copy is cheaper:
    /// `Bytes::copy_from_slice(&buf)` frees the receive buffer at once.
    pub fn into_bytes(self) -> Bytes {
        if self.is_empty() { Bytes::new() } else { Bytes::from_owner(self) }
    }
}

impl Drop for RecvBuf {
    fn drop(&mut self) {
        if let Memory::Lent(memory) = std::mem::replace(&mut self.memory, Memory::Nothing) {
            put_recv_memory(memory);
        }
    }
}

impl Deref for RecvBuf {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        let range = self.start as usize..self.end as usize;
        match &self.memory {
            Memory::Nothing => &[],
            Memory::Lent(memory) => &memory[range],
            Memory::Own(memory) => &memory[range],
        }
    }
}

impl DerefMut for RecvBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        let range = self.start as usize..self.end as usize;
        match &mut self.memory {
            Memory::Nothing => &mut [],
            Memory::Lent(memory) => &mut memory[range],
            Memory::Own(memory) => &mut memory[range],
        }
    }
}

impl AsRef<[u8]> for RecvBuf {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl fmt::Debug for RecvBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RecvBuf({} bytes)", self.len())
    }
}

/// A growable output buffer whose memory returns to the thread's pool on drop. Otherwise it behaves
/// like a `Vec<u8>`: it allocates on the first write, so an empty one costs nothing. Use it for
/// response heads and small bodies.
#[derive(Default)]
pub struct OutBuf {
    pub(super) bytes: Vec<u8>,
}

impl OutBuf {
    /// An empty buffer, without memory.
    pub const fn new() -> OutBuf {
        OutBuf { bytes: Vec::new() }
    }

    /// A buffer with room for `count` bytes, which may begin with bytes of an earlier use: for those who write
    /// over them, and then cut what they have not written. Growing it instead would fill it with zeroes first.
    pub fn used(count: usize) -> OutBuf {
        if count <= OUT_BUF_BYTES {
            return OutBuf::new();
        }
        let pooled =
            POOL.with_borrow_mut(|pool| pool.grown.take_if(|free| free.capacity() >= count));
        OutBuf { bytes: pooled.unwrap_or_else(|| Vec::with_capacity(count)) }
    }

    /// Makes room for `count` more bytes, from the pool if that is a lot: for a body that follows
    /// its head.
    pub fn make_room(&mut self, count: usize) {
        let wanted = self.bytes.len() + count;
        if wanted <= self.bytes.capacity().max(OUT_BUF_BYTES) {
            return;
        }
        let pooled =
            POOL.with_borrow_mut(|pool| pool.grown.take_if(|free| free.capacity() >= wanted));
        let mut larger = pooled.unwrap_or_else(|| Vec::with_capacity(wanted));
        larger.clear();
        larger.extend_from_slice(&self.bytes);
        put_out_memory(std::mem::replace(&mut self.bytes, larger));
    }
}

/// Takes memory for an output buffer: pooled, or freshly allocated.
#[inline(never)]
fn take_out_memory() -> Vec<u8> {
    let pooled = POOL.with_borrow_mut(|pool| pool.out.take());
    pooled.unwrap_or_else(|| Vec::with_capacity(OUT_BUF_BYTES))
}

/// Returns the memory of an output buffer to this thread's pool. Grown memory is never reused for heads: a
/// client that receives slowly would hold all of it.
fn put_out_memory(mut bytes: Vec<u8>) {
    let capacity = bytes.capacity();
    if !(OUT_BUF_BYTES..=OUT_BUF_KEEP_BYTES).contains(&capacity) {
        return;
    }
    let _ = POOL.try_with(|pool| {
        let mut pool = pool.borrow_mut();
        if capacity >= 2 * OUT_BUF_BYTES {
            // With what it holds: see `OutBuf::used`.
            return pool.grown.put(bytes, POOL_GROWN_MAX);
        }
        bytes.clear();
        pool.out.put(bytes, POOL_FREE_MAX)
    });
}

impl Drop for OutBuf {
    fn drop(&mut self) {
        put_out_memory(std::mem::take(&mut self.bytes));
    }
}

impl Deref for OutBuf {
    type Target = Vec<u8>;
    fn deref(&self) -> &Vec<u8> {
        &self.bytes
    }
}

impl DerefMut for OutBuf {
    #[inline]
    fn deref_mut(&mut self) -> &mut Vec<u8> {
        if self.bytes.capacity() == 0 {
            self.bytes = take_out_memory();
        }
        &mut self.bytes
    }
}

impl fmt::Debug for OutBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OutBuf({} bytes)", self.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn receive_memory_is_reused_and_trimmed() {
        let bufs: Vec<_> = (0..100).map(|_| RecvBuf::filled(take_recv_memory(), 1)).collect();
        drop(bufs);
        let kept = || POOL.with_borrow(|p| p.recv.items.len());
        assert_eq!(kept(), 100);
        for _ in 0..20 {
            trim();
        }
        assert!(kept() <= POOL_FREE_MIN + 1, "{}", kept());
    }

    #[test]
    fn an_empty_output_buffer_has_no_memory_and_a_head_little() {
        assert_eq!(OutBuf::new().capacity(), 0);
        let mut body = OutBuf::new();
        body.push(b'x');
        body.make_room(32 * 1024);
        assert_eq!((&body[..], body.capacity()), (&b"x"[..], 32 * 1024 + 1));
        drop(body);
        let mut head = OutBuf::new();
        head.push(b'x');
        assert!(head.capacity() < 2 * OUT_BUF_BYTES, "{}", head.capacity());
        head.make_room(32 * 1024);
        assert_eq!(POOL.with_borrow(|pool| pool.grown.items.len()), 0, "it is used again");
    }

    #[test]
    fn shared_bytes_outlive_the_pool() {
        let mut buf = RecvBuf::filled(take_recv_memory(), 4);
        buf.copy_from_slice(b"keep");
        buf.advance(1);
        let bytes = buf.into_bytes();
        std::thread::spawn(move || assert_eq!(&bytes[..], b"eep")).join().unwrap();
    }
}
