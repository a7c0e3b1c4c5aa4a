//! The streams of a connection (RFC 9113 section 5.1): both halves of each, and its windows.

use std::collections::VecDeque;

use nowait_fields::{MessageState, OpenStream, Turn};

use crate::error::ErrorCode;
use crate::frame::StreamId;
use crate::window::{ReceiveWindow, SendWindow};

/// Streams that we have reset are remembered until this many more were: what the peer sent before it
/// knew is no error.
const RESET_MEMORY: usize = 64;

/// The peer's half.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Remote {
    /// The head has not come (of a response).
    Waiting,
    Open,
    Ended,
    /// The message is malformed, and the rest of it is ignored. The stream remains for a response, and ends
    /// with this code.
    Faulty(ErrorCode),
}

/// Our half.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Local {
    /// The final head has not been sent (of a response).
    Waiting,
    Open,
    Ended,
}

/// One stream.
#[derive(Debug)]
pub(crate) struct StreamState {
    pub(crate) id: StreamId,
    pub(crate) remote: Remote,
    pub(crate) local: Local,
    pub(crate) send: SendWindow,
    pub(crate) receive: ReceiveWindow,
    /// Bytes reported and not yet taken.
    pub(crate) held: u32,
    /// The peer's message.
    pub(crate) message: MessageState,
    /// A caller waits for window.
    pub(crate) stalled: bool,
    pub(crate) turn: Turn,
}

impl StreamState {
    pub(crate) fn new(id: StreamId, send: u32, receive: u32) -> Self {
        StreamState {
            id,
            remote: Remote::Waiting,
            local: Local::Waiting,
            send: SendWindow::new(send),
            receive: ReceiveWindow::new(receive),
            held: 0,
            message: MessageState::default(),
            stalled: false,
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

/// The last streams that we have reset.
#[derive(Debug, Default)]
pub(crate) struct RecentResets(VecDeque<StreamId>);

impl RecentResets {
    /// Remembers that we have reset a stream.
    pub(crate) fn note(&mut self, id: StreamId) {
        if self.0.len() == RESET_MEMORY {
            self.0.pop_front();
        }
        self.0.push_back(id);
    }

    pub(crate) fn contains(&self, id: StreamId) -> bool {
        self.0.contains(&id)
    }

    /// Forgets them.
    pub(crate) fn clear(&mut self) {
        self.0 = VecDeque::new();
    }

    pub(crate) fn heap(&self) -> usize {
        self.0.capacity() * size_of::<StreamId>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resets_are_remembered_for_a_while() {
        let mut resets = RecentResets::default();
        for number in 0..RESET_MEMORY as u32 + 1 {
            resets.note(StreamId::new(2 * number + 1));
        }
        assert!(!resets.contains(StreamId::new(1)));
        assert!(resets.contains(StreamId::new(3)));
    }
}
