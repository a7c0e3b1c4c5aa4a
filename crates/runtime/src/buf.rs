//! Buffers: memory lent for receives, buffers for building responses, and chains of both.
//!
//! Every buffer is exclusively owned by its holder; a per-thread pool only keeps the memory of
//! dropped buffers for reuse. A buffer may therefore outlive its connection, its task, and even its
//! worker; in that case the memory is simply freed.
//!
//! Called by: drivers (receive buffers), http (builds chains), `net` (sends them). Never: holds a
//! buffer on behalf of an idle connection.

mod large;

use std::cell::RefCell;
use std::collections::VecDeque;
use std::fmt;
use std::ops::{Deref, DerefMut};

use bytes::Bytes;

use crate::fs;

pub use large::{LARGE_BUF_BYTES, LargeBuf, Received};

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
    static POOL: RefCell<Pool> = const { RefCell::new(Pool::new()) };
}

/// Unused buffers of this thread, last in, first out, so that memory stays warm in the CPU's cache.
struct Pool {
    recv: Free<RecvMemory>,
    out: Free<Vec<u8>>,
    /// Output buffers that have grown.
    grown: Free<Vec<u8>>,
}

/// A free list that remembers its low-water mark since the last trim.
struct Free<T> {
    items: Vec<T>,
    /// Smallest length since the last trim: this many buffers were not needed at all.
    low: usize,
}

impl<T> Free<T> {
    const fn new() -> Free<T> {
        Free { items: Vec::new(), low: 0 }
    }

    fn take(&mut self) -> Option<T> {
        let item = self.items.pop();
        self.low = self.low.min(self.items.len());
        item
    }

    /// Takes the last item, if it fits.
    fn take_if(&mut self, is_fit: impl FnOnce(&T) -> bool) -> Option<T> {
        if self.items.last().is_some_and(is_fit) { self.take() } else { None }
    }

    /// Keeps `item`, or returns it to be freed when `max` are already kept.
    fn put(&mut self, item: T, max: usize) -> Option<T> {
        if self.items.len() >= max {
            return Some(item);
        }
        self.items.push(item);
        None
    }

    /// Frees half of the items that were not needed since the last call, but keeps at least `min`.
    fn trim(&mut self, min: usize) {
        let spare = self.low.saturating_sub(min).div_ceil(2);
        self.items.truncate(self.items.len() - spare);
        self.low = self.items.len();
    }
}

impl Pool {
    const fn new() -> Pool {
        Pool { recv: Free::new(), out: Free::new(), grown: Free::new() }
    }
}

/// Shrinks this thread's pool towards recent demand. The worker calls it once per second.
pub(crate) fn trim() {
    POOL.with_borrow_mut(|pool| {
        pool.recv.trim(POOL_FREE_MIN);
        pool.out.trim(POOL_FREE_MIN);
        pool.grown.trim(POOL_FREE_MIN);
    });
    large::trim();
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
    /// `None`: nothing was received.
    memory: Option<RecvMemory>,
    start: u32,
    end: u32,
}

impl RecvBuf {
    /// The buffer that signals the end of the stream.
    pub fn empty() -> RecvBuf {
        RecvBuf { memory: None, start: 0, end: 0 }
    }

    /// Wraps `memory`, of which the first `len` bytes were received.
    pub(crate) fn filled(memory: RecvMemory, len: usize) -> RecvBuf {
        debug_assert!(len <= memory.len());
        RecvBuf { memory: Some(memory), start: 0, end: len as u32 }
    }

    /// A buffer with these bytes, as if they had just been received; `None` if they do not fit
    /// ([`RECV_BUF_BYTES`]).
    pub fn of(bytes: &[u8]) -> Option<RecvBuf> {
        if bytes.is_empty() {
            return Some(RecvBuf::empty());
        }
        if bytes.len() > RECV_BUF_BYTES {
            return None;
        }
        let mut memory = take_recv_memory();
        memory[..bytes.len()].copy_from_slice(bytes);
        Some(RecvBuf::filled(memory, bytes.len()))
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
        self.memory.take().into_iter().for_each(put_recv_memory);
    }
}

impl Deref for RecvBuf {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        let range = self.start as usize..self.end as usize;
        self.memory.as_ref().map_or(&[], |memory| &memory[range])
    }
}

impl DerefMut for RecvBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        let range = self.start as usize..self.end as usize;
        self.memory.as_mut().map_or(&mut [], |memory| &mut memory[range])
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
    bytes: Vec<u8>,
}

impl OutBuf {
    /// An empty buffer, without memory.
    pub const fn new() -> OutBuf {
        OutBuf { bytes: Vec::new() }
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
        larger.extend_from_slice(&self.bytes);
        put_out_memory(std::mem::replace(&mut self.bytes, larger));
    }
}

/// Returns the memory of an output buffer to this thread's pool. Heads are never written into
/// memory that has grown: a client that is slow to receive one would hold all of it.
fn put_out_memory(mut bytes: Vec<u8>) {
    let capacity = bytes.capacity();
    if !(OUT_BUF_BYTES..=OUT_BUF_KEEP_BYTES).contains(&capacity) {
        return;
    }
    bytes.clear();
    let _ = POOL.try_with(|pool| {
        let mut pool = pool.borrow_mut();
        match capacity < 2 * OUT_BUF_BYTES {
            true => pool.out.put(bytes, POOL_FREE_MAX),
            false => pool.grown.put(bytes, POOL_GROWN_MAX),
        }
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
    fn deref_mut(&mut self) -> &mut Vec<u8> {
        if self.bytes.capacity() == 0 {
            let pooled = POOL.with_borrow_mut(|pool| pool.out.take());
            self.bytes = pooled.unwrap_or_else(|| Vec::with_capacity(OUT_BUF_BYTES));
        }
        &mut self.bytes
    }
}

impl fmt::Debug for OutBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OutBuf({} bytes)", self.len())
    }
}

/// One piece of output. Memory chunks are consumed from the front as the socket takes them.
#[derive(Debug)]
pub enum Chunk {
    /// Bytes compiled into the program.
    Static(&'static [u8]),
    /// Shared bytes.
    Bytes(Bytes),
    /// Received bytes that are sent on (proxying, echo).
    Lent(RecvBuf),
    /// A pooled buffer and how many of its bytes have already been sent.
    Out(OutBuf, usize),
    /// Bytes of a file, in memory or not.
    File(Box<FileRange>),
}

/// A range of a file to be sent.
#[derive(Clone, Debug)]
pub struct FileRange {
    /// The file.
    pub file: fs::File,
    /// I/O settings of the location that it is sent for.
    pub io: fs::Io,
    /// Where the range begins.
    pub offset: u64,
    /// Bytes left to send. If the file turns out shorter, sending fails with `UnexpectedEof`.
    pub len: u64,
}

impl Chunk {
    /// Bytes left to send.
    pub fn len(&self) -> u64 {
        match self {
            Chunk::File(range) => range.len,
            memory => memory.memory().len() as u64,
        }
    }

    /// Whether this chunk is bytes in memory.
    pub fn is_memory(&self) -> bool {
        !matches!(self, Chunk::File(_))
    }

    /// Whether nothing is left to send.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The bytes; none for a file range.
    pub fn memory(&self) -> &[u8] {
        match self {
            Chunk::Static(bytes) => bytes,
            Chunk::Bytes(bytes) => bytes,
            Chunk::Lent(buf) => buf,
            Chunk::Out(buf, sent) => &buf[*sent..],
            Chunk::File(_) => &[],
        }
    }

    /// Consumes `count` bytes from the front; `count` is at most [`len`](Chunk::len).
    fn advance(&mut self, bytes: u64) {
        let count = bytes as usize;
        match self {
            Chunk::File(range) => {
                range.offset += bytes;
                range.len -= bytes;
            }
            Chunk::Static(bytes) => *bytes = &bytes[count..],
            Chunk::Bytes(bytes) => bytes::Buf::advance(bytes, count),
            Chunk::Lent(buf) => buf.advance(count),
            Chunk::Out(_, sent) => *sent += count,
        }
    }
}

impl From<&'static [u8]> for Chunk {
    fn from(bytes: &'static [u8]) -> Chunk {
        Chunk::Static(bytes)
    }
}

impl From<Bytes> for Chunk {
    fn from(bytes: Bytes) -> Chunk {
        Chunk::Bytes(bytes)
    }
}

impl From<RecvBuf> for Chunk {
    fn from(buf: RecvBuf) -> Chunk {
        Chunk::Lent(buf)
    }
}

impl From<FileRange> for Chunk {
    fn from(range: FileRange) -> Chunk {
        Chunk::File(Box::new(range))
    }
}

impl From<OutBuf> for Chunk {
    fn from(buf: OutBuf) -> Chunk {
        Chunk::Out(buf, 0)
    }
}

/// Chunks to be sent in order. Never contains an empty chunk. Most chains hold a single chunk and
/// then need no allocation of their own.
#[derive(Debug, Default)]
pub struct Chain {
    /// `None` only if `rest` is empty.
    first: Option<Chunk>,
    rest: VecDeque<Chunk>,
}

impl Chain {
    /// An empty chain; allocates nothing.
    pub const fn new() -> Chain {
        Chain { first: None, rest: VecDeque::new() }
    }

    /// Appends a chunk; an empty one is dropped.
    pub fn push(&mut self, chunk: impl Into<Chunk>) {
        let chunk = chunk.into();
        if chunk.is_empty() {
            return;
        }
        match self.first {
            None => self.first = Some(chunk),
            Some(_) => self.rest.push_back(chunk),
        }
    }

    /// Puts a chunk before all others (a header before its body).
    pub fn push_front(&mut self, chunk: impl Into<Chunk>) {
        let chunk = chunk.into();
        if !chunk.is_empty()
            && let Some(second) = self.first.replace(chunk)
        {
            self.rest.push_front(second);
        }
    }

    /// Appends all chunks of `other`.
    pub fn append(&mut self, mut other: Chain) {
        if let Some(first) = other.first.take() {
            self.push(first);
            self.rest.append(&mut other.rest);
        }
    }

    /// Total bytes left.
    pub fn len(&self) -> u64 {
        self.iter().map(Chunk::len).sum()
    }

    /// Number of chunks.
    pub fn chunk_count(&self) -> usize {
        usize::from(self.first.is_some()) + self.rest.len()
    }

    /// Whether nothing is left.
    pub fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    /// The first chunk.
    pub fn front(&self) -> Option<&Chunk> {
        self.first.as_ref()
    }

    /// The first chunk.
    pub fn front_mut(&mut self) -> Option<&mut Chunk> {
        self.first.as_mut()
    }

    /// The first file range, with its index in the chain.
    pub(crate) fn first_file(&self) -> Option<(usize, &FileRange)> {
        self.iter().enumerate().find_map(|(index, chunk)| match chunk {
            Chunk::File(range) => Some((index, &**range)),
            _ => None,
        })
    }

    /// Replaces the beginning of the file range at `index` by memory of the same length.
    pub(crate) fn replace_file(&mut self, index: usize, memory: Chunk) {
        let len = memory.len();
        let file = match index.checked_sub(1) {
            None => self.first.as_mut(),
            Some(index) => self.rest.get_mut(index),
        };
        let Some(file) = file else { return };
        if file.len() == len {
            *file = memory;
            return;
        }
        file.advance(len);
        match index.checked_sub(1) {
            None => self.push_front(memory),
            Some(index) => self.rest.insert(index, memory),
        }
    }

    /// Removes and returns the first chunk.
    pub fn pop_front(&mut self) -> Option<Chunk> {
        std::mem::replace(&mut self.first, self.rest.pop_front())
    }

    /// Removes and returns the in-memory chunks that precede any file range.
    pub(crate) fn take_memory_prefix(&mut self) -> Chain {
        match self.first_file() {
            None => std::mem::take(self),
            Some((index, _)) => (0..index).map_while(|_| self.pop_front()).collect(),
        }
    }

    /// Puts all chunks of `front` before this chain's.
    pub(crate) fn prepend(&mut self, mut front: Chain) {
        front.append(std::mem::take(self));
        *self = front;
    }

    /// The in-memory chunks that precede any file range.
    pub(crate) fn memory_prefix(&self) -> impl Iterator<Item = &Chunk> {
        self.iter().take_while(|chunk| chunk.is_memory())
    }

    /// The chunks in order.
    pub fn iter(&self) -> impl Iterator<Item = &Chunk> {
        self.first.iter().chain(&self.rest)
    }

    /// Consumes `count` bytes from the front; dropped chunks release their memory at once.
    ///
    /// # Panics
    /// If the chain is shorter.
    pub fn advance(&mut self, mut count: u64) {
        while count > 0 {
            let first = self.first.as_mut().expect("advance beyond the end of the chain");
            let len = first.len();
            if count < len {
                first.advance(count);
                return;
            }
            count -= len;
            self.pop_front();
        }
    }

    /// Splits off the first `count` bytes (or everything) as a separate chain.
    pub fn split_to(&mut self, mut count: u64) -> Chain {
        let mut head = Chain::new();
        while count > 0 {
            let Some(first) = self.pop_front() else { break };
            let len = first.len();
            if len <= count {
                count -= len;
                head.push(first);
                continue;
            }
            let (left, right) = split(first, count);
            head.push(left);
            self.push_front(right);
            break;
        }
        head
    }
}

/// Splits a chunk at `at`, strictly inside it. Pooled memory becomes shared.
fn split(chunk: Chunk, at: u64) -> (Chunk, Chunk) {
    let cut = at as usize;
    let mut bytes = match chunk {
        Chunk::File(mut right) => {
            let left = FileRange { len: at, ..(*right).clone() };
            right.offset += at;
            right.len -= at;
            return (Chunk::from(left), Chunk::File(right));
        }
        Chunk::Static(bytes) => {
            let (left, right) = bytes.split_at(cut);
            return (Chunk::Static(left), Chunk::Static(right));
        }
        Chunk::Bytes(bytes) => bytes,
        Chunk::Lent(buf) => buf.into_bytes(),
        Chunk::Out(mut buf, sent) => {
            let mut bytes = Bytes::from(std::mem::take(&mut buf.bytes));
            bytes::Buf::advance(&mut bytes, sent);
            bytes
        }
    };
    let left = bytes.split_to(cut);
    (Chunk::Bytes(left), Chunk::Bytes(bytes))
}

impl<T: Into<Chunk>> From<T> for Chain {
    fn from(chunk: T) -> Chain {
        let mut chain = Chain::new();
        chain.push(chunk);
        chain
    }
}

impl FromIterator<Chunk> for Chain {
    fn from_iter<I: IntoIterator<Item = Chunk>>(chunks: I) -> Chain {
        let mut chain = Chain::new();
        for chunk in chunks {
            chain.push(chunk);
        }
        chain
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(chain: &Chain) -> Vec<u8> {
        chain.iter().flat_map(|c| c.memory().to_vec()).collect()
    }

    fn sample() -> Chain {
        let mut out = OutBuf::new();
        out.extend_from_slice(b"head ");
        let mut lent = RecvBuf::filled(take_recv_memory(), 10);
        lent.copy_from_slice(b"0123456789");
        let mut chain = Chain::from(out);
        chain.push(Bytes::from_static(b"body "));
        chain.push(&b""[..]);
        chain.push(lent);
        chain.push(&b" end"[..]);
        chain
    }

    #[test]
    fn advance_crosses_chunks_at_every_point() {
        let whole = text(&sample());
        for at in 0..=whole.len() {
            let mut chain = sample();
            chain.advance(at as u64);
            assert_eq!(text(&chain), whole[at..]);
            assert_eq!(chain.len(), (whole.len() - at) as u64);
        }
    }

    #[test]
    fn split_keeps_order_at_every_point() {
        let whole = text(&sample());
        for at in 0..=whole.len() + 1 {
            let mut chain = sample();
            let head = chain.split_to(at as u64);
            let at = at.min(whole.len());
            assert_eq!(text(&head), whole[..at]);
            assert_eq!(text(&chain), whole[at..]);
        }
    }

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
