//! The request streams of a connection (RFC 9114 section 4): both halves of each.

use nowait_fields::{MessageState, OpenStream, Turn};

use crate::error::ErrorCode;
use crate::frame::{FrameType, PartialIntegers, StreamId};

/// The peer's half.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Remote {
    /// The head has not come.
    Waiting,
    Open,
    /// Trailers have come: the end must follow.
    Trailed,
    Ended,
    /// The message is malformed, and the rest of it is ignored. A response may still be sent; the code tells the
    /// client afterwards.
    Faulty(ErrorCode),
}

/// Our half.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Local {
    /// The final head has not been sent.
    Waiting,
    Open,
    Ended,
}

/// What comes next on a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReadState {
    /// The header of a frame.
    Header,
    /// The payload of a frame that is kept, of this length.
    Payload(FrameType, u32),
    /// So much DATA.
    Data(u64),
    /// So many bytes without meaning.
    Skip(u64),
}

/// One stream.
#[derive(Debug)]
pub(crate) struct StreamState {
    pub(crate) id: StreamId,
    pub(crate) remote: Remote,
    pub(crate) local: Local,
    pub(crate) reading: ReadState,
    pub(crate) header: PartialIntegers,
    /// An incomplete field section, or one that waits for insertions.
    pub(crate) kept: Vec<u8>,
    /// The section waits until so many entries were inserted.
    pub(crate) blocked: Option<u64>,
    /// The peer's message.
    pub(crate) message: MessageState,
    pub(crate) turn: Turn,
}

impl StreamState {
    pub(crate) fn new(id: StreamId) -> Self {
        StreamState {
            id,
            remote: Remote::Waiting,
            local: Local::Waiting,
            reading: ReadState::Header,
            header: PartialIntegers::default(),
            kept: Vec::new(),
            blocked: None,
            message: MessageState::default(),
            turn: Turn::default(),
        }
    }
}

impl OpenStream for StreamState {
    type Id = StreamId;

    #[inline]
    fn id(&self) -> StreamId {
        self.id
    }

    #[inline]
    fn turn(&self) -> &Turn {
        &self.turn
    }

    #[inline]
    fn turn_mut(&mut self) -> &mut Turn {
        &mut self.turn
    }
}
