//! What an HTTP/2 connection is about to send: frames of all streams, in the order in which they were
//! made. For both sides.

use bytes::Bytes;
use nowait_runtime::buf::{Chain, Chunk, OutBuf};

/// Content up to this size is copied behind its frame header instead of becoming a separate chunk.
const COPY_BYTES_MAX: usize = 4 * 1024;

/// Frames that wait for the socket.
#[derive(Default)]
pub struct Output {
    chain: Chain,
    /// Bytes of the chain.
    chained: usize,
    /// What follows the chain, and is still being written.
    tail: OutBuf,
}

impl Output {
    /// Bytes that wait.
    pub fn len(&self) -> usize {
        self.chained + self.tail.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The end, for frames.
    pub fn tail(&mut self) -> &mut Vec<u8> {
        &mut self.tail
    }

    /// The end, with room for so many bytes read from a file.
    pub fn tail_for(&mut self, bytes: usize) -> &mut OutBuf {
        self.tail.make_room(bytes);
        &mut self.tail
    }

    /// Appends content behind its frame header.
    pub fn content(&mut self, bytes: &Bytes) {
        if bytes.len() <= COPY_BYTES_MAX {
            self.tail.extend_from_slice(bytes);
            return;
        }
        self.close_tail();
        self.chained += bytes.len();
        self.chain.push(Chunk::from(bytes.clone()));
    }

    /// All of it, if it is in one piece. The caller removes the bytes that it sends.
    pub fn piece(&mut self) -> Option<&mut OutBuf> {
        (self.chained == 0).then_some(&mut self.tail)
    }

    fn close_tail(&mut self) {
        self.chained += self.tail.len();
        self.chain.push(std::mem::take(&mut self.tail));
    }

    /// All of it, to be sent.
    pub fn take(&mut self) -> Chain {
        self.close_tail();
        self.chained = 0;
        std::mem::take(&mut self.chain)
    }
}
