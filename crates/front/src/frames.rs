//! Pending output of an HTTP/2 connection: frames of all streams, in the order of their creation. For both
//! sides.

use bytes::Bytes;
use nowait_runtime::buf::{Chain, Chunk, OutBuf};

/// Content up to this size is copied behind its frame header instead of becoming a separate chunk.
const COPY_BYTES_MAX: usize = 4 * 1024;

/// Frames that wait for the socket.
#[derive(Default)]
pub struct PendingFrames {
    chain: Chain,
    /// Bytes of the chain.
    chained: usize,
    /// The frames after the chain, still being written.
    tail: OutBuf,
}

impl PendingFrames {
    /// Bytes that wait.
    pub fn len(&self) -> usize {
        self.chained + self.tail.len()
    }

    /// Whether there is no pending output.
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

    /// The whole output, if it is in one piece. The caller removes the bytes that it sends.
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

/// Limits the input of a peer that a connection processes before other tasks run. Counted by work, since
/// small frames and small requests cost far more than their bytes.
#[derive(Debug, Default)]
pub struct Turn {
    spent: usize,
}

impl Turn {
    /// The cost of a frame, independent of its content.
    pub const FRAME: usize = 1;

    /// The additional cost of a message's head: a request may be served at once.
    pub const MESSAGE: usize = 15;

    /// The work of a turn: 32 requests, or 512 other frames.
    const WORK_MAX: usize = 512;

    /// Work was done.
    pub fn spend(&mut self, work: usize) {
        self.spent += work;
    }

    /// Whether the rest has to wait.
    pub fn is_over(&self) -> bool {
        self.spent >= Self::WORK_MAX
    }
}
