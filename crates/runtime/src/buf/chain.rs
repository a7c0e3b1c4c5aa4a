//! Output as it is sent: chunks of memory and ranges of files, in chains.

use std::collections::VecDeque;

use bytes::Bytes;

use super::large::ReceivedBuf;
use super::small::{OutBuf, RecvBuf};
use crate::fs;

/// A chain that is used again keeps room for this many chunks besides the first.
const KEPT_CHUNKS_MAX: usize = 8;

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
        debug_assert!(bytes <= self.len(), "{bytes} bytes of {}", self.len());
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

impl From<ReceivedBuf> for Chunk {
    fn from(received: ReceivedBuf) -> Chunk {
        match received {
            ReceivedBuf::Lent(buf) => Chunk::Lent(buf),
            ReceivedBuf::Large(buf) => Chunk::Bytes(Bytes::from_owner(buf)),
            ReceivedBuf::Joined(buf) => Chunk::Bytes(buf.freeze()),
        }
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
            None => {
                debug_assert!(self.rest.is_empty(), "a chain begins with its first chunk");
                self.first = Some(chunk);
            }
            Some(_) => self.rest.push_back(chunk),
        }
    }

    /// Drops all chunks, and keeps the memory of the chain itself if it is little.
    pub(crate) fn clear(&mut self) {
        self.first = None;
        match self.rest.capacity() <= KEPT_CHUNKS_MAX {
            true => self.rest.clear(),
            false => self.rest = VecDeque::new(),
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
        debug_assert!(!file.is_memory() && (1..=file.len()).contains(&len), "{len} bytes");
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
    use super::super::small::take_recv_memory;
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
}
