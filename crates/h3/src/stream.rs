//! The request streams of a connection (RFC 9114 section 4): both halves of each.

use nowait_fields::Priority;

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
    /// DATA still to come, if the message says how much.
    pub(crate) left: Option<u64>,
    /// A caller has data to send.
    pub(crate) ready: bool,
    pub(crate) priority: Priority,
    /// By a PRIORITY_UPDATE frame.
    pub(crate) has_priority: bool,
    /// The request was HEAD: the response has no content.
    pub(crate) head_only: bool,
    /// The request was CONNECT.
    pub(crate) connect: bool,
    /// Interim responses so far.
    pub(crate) interim: u8,
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
            left: None,
            ready: false,
            priority: Priority::default(),
            has_priority: false,
            head_only: false,
            connect: false,
            interim: 0,
        }
    }
}

/// The open streams, in the order of their numbers. How many there are is bounded by the transport.
#[derive(Debug, Default)]
pub(crate) struct Streams {
    open: Vec<StreamState>,
    /// The stream that was served last.
    served: Option<StreamId>,
}

impl Streams {
    pub(crate) fn len(&self) -> usize {
        self.open.len()
    }

    #[inline]
    fn find(&self, id: StreamId) -> Result<usize, usize> {
        // The newest stream is the likeliest.
        if let Some(last) = self.open.last()
            && last.id == id
        {
            return Ok(self.open.len() - 1);
        }
        self.open.binary_search_by_key(&id, |stream| stream.id)
    }

    #[inline]
    pub(crate) fn get(&self, id: StreamId) -> Option<&StreamState> {
        self.find(id).ok().map(|at| &self.open[at])
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, id: StreamId) -> Option<&mut StreamState> {
        self.find(id).ok().map(|at| &mut self.open[at])
    }

    /// Adds a stream, unless it is there.
    pub(crate) fn insert(&mut self, stream: StreamState) {
        if let Err(at) = self.find(stream.id) {
            self.open.insert(at, stream);
        }
    }

    pub(crate) fn remove(&mut self, id: StreamId) -> Option<StreamState> {
        self.find(id).ok().map(|at| self.open.remove(at))
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &StreamState> {
        self.open.iter()
    }

    /// Of the most urgent streams that are ready, the next after the one served last.
    pub(crate) fn next_ready(&mut self) -> Option<StreamId> {
        let ready = self.open.iter().filter(|stream| stream.ready);
        let next = Priority::next(ready.map(|stream| (stream.id, stream.priority)), self.served)?;
        self.served = Some(next);
        Some(next)
    }

    /// Gives back memory that the open streams don't need.
    pub(crate) fn shrink(&mut self) {
        self.open.shrink_to_fit();
    }

    pub(crate) fn heap(&self) -> usize {
        let kept: usize = self.open.iter().map(|stream| stream.kept.capacity()).sum();
        self.open.capacity() * size_of::<StreamState>() + kept
    }
}
