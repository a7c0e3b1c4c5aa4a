//! The streams of a connection (RFC 9113 section 5.1): both halves of each, and its windows.

use std::collections::VecDeque;

use crate::Priority;
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
    /// DATA still to come, if the message says how much.
    pub(crate) left: Option<u64>,
    /// A caller waits for window.
    pub(crate) stalled: bool,
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
    pub(crate) fn new(id: StreamId, send: u32, receive: u32) -> Self {
        StreamState {
            id,
            remote: Remote::Waiting,
            local: Local::Waiting,
            send: SendWindow::new(send),
            receive: ReceiveWindow::new(receive),
            held: 0,
            left: None,
            stalled: false,
            ready: false,
            priority: Priority::default(),
            has_priority: false,
            head_only: false,
            connect: false,
            interim: 0,
        }
    }
}

/// The open streams, in the order of their numbers, and the last ones that we reset. A stream costs no
/// allocation once there have been as many. The number of streams is bounded by the settings of
/// the side that opens them.
#[derive(Debug, Default)]
pub(crate) struct Streams {
    open: Vec<StreamState>,
    reset: VecDeque<StreamId>,
    /// The stream that was served last.
    served: StreamId,
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

    /// Adds a stream, whose number is above all others'.
    pub(crate) fn push(&mut self, stream: StreamState) {
        debug_assert!(self.open.last().is_none_or(|last| last.id < stream.id));
        self.open.push(stream);
    }

    pub(crate) fn remove(&mut self, id: StreamId) -> Option<StreamState> {
        self.find(id).ok().map(|at| self.open.remove(at))
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &StreamState> {
        self.open.iter()
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut StreamState> {
        self.open.iter_mut()
    }

    /// The open stream with the largest number.
    pub(crate) fn last(&self) -> Option<StreamId> {
        self.open.last().map(|stream| stream.id)
    }

    /// Remembers that we have reset a stream.
    pub(crate) fn note_reset(&mut self, id: StreamId) {
        if self.reset.len() == RESET_MEMORY {
            self.reset.pop_front();
        }
        self.reset.push_back(id);
    }

    pub(crate) fn was_reset(&self, id: StreamId) -> bool {
        self.reset.contains(&id)
    }

    /// Of the most urgent streams that are ready and have window, the next after the one served last. Those
    /// that are not incremental have one turn together, which the first of them takes.
    pub(crate) fn next_ready(&mut self) -> Option<StreamId> {
        let ready = self.open.iter().filter(|stream| stream.ready && stream.send.open() > 0);
        let streams = ready.map(|stream| (stream.id, stream.priority));
        let next = Priority::next(streams, Some(self.served))?;
        self.served = next;
        Some(next)
    }

    /// Gives back memory that the open streams don't need.
    pub(crate) fn shrink(&mut self) {
        self.open.shrink_to_fit();
        if self.open.is_empty() {
            self.reset = VecDeque::new();
        }
    }

    pub(crate) fn heap(&self) -> usize {
        self.open.capacity() * size_of::<StreamState>()
            + self.reset.capacity() * size_of::<StreamId>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ready_streams_take_turns() {
        let mut streams = Streams::default();
        for number in [1, 3, 5, 7] {
            let mut stream = StreamState::new(StreamId::new(number), 10, 10);
            stream.ready = number != 3;
            streams.push(stream);
        }
        let turn = |streams: &mut Streams| streams.next_ready().map_or(0, StreamId::get);
        assert_eq!([1, 5, 7, 1].map(|_| turn(&mut streams)), [1, 5, 7, 1]);
        streams.remove(StreamId::new(5));
        assert_eq!([(); 2].map(|()| turn(&mut streams)), [7, 1]);
        streams.get_mut(StreamId::new(7)).unwrap().send.send(10);
        assert_eq!([(); 2].map(|()| turn(&mut streams)), [1, 1]);
    }

    #[test]
    fn the_most_urgent_streams_come_first() {
        let mut streams = Streams::default();
        for (number, urgency) in [(1, 3), (3, 1), (5, 7), (7, 1)] {
            let mut stream = StreamState::new(StreamId::new(number), 10, 10);
            (stream.ready, stream.priority.urgency) = (true, urgency);
            streams.push(stream);
        }
        let turn = |streams: &mut Streams| streams.next_ready().map_or(0, StreamId::get);
        assert_eq!([(); 3].map(|()| turn(&mut streams)), [3, 7, 3]);
        streams.get_mut(StreamId::new(3)).unwrap().ready = false;
        streams.get_mut(StreamId::new(7)).unwrap().send.send(10);
        assert_eq!([(); 2].map(|()| turn(&mut streams)), [1, 1]);
        streams.remove(StreamId::new(1));
        assert_eq!(turn(&mut streams), 5);
    }

    #[test]
    fn streams_that_are_not_incremental_come_one_after_the_other() {
        let mut streams = Streams::default();
        for (number, incremental) in [(1, true), (3, false), (5, false), (7, true)] {
            let mut stream = StreamState::new(StreamId::new(number), 10, 10);
            (stream.ready, stream.priority.incremental) = (true, incremental);
            streams.push(stream);
        }
        let turn = |streams: &mut Streams| streams.next_ready().map_or(0, StreamId::get);
        assert_eq!([(); 6].map(|()| turn(&mut streams)), [1, 3, 7, 1, 3, 7]);
        // While it has nothing to send, the next one does.
        streams.get_mut(StreamId::new(3)).unwrap().ready = false;
        assert_eq!([(); 3].map(|()| turn(&mut streams)), [1, 5, 7]);
        streams.get_mut(StreamId::new(3)).unwrap().ready = true;
        assert_eq!([(); 3].map(|()| turn(&mut streams)), [1, 3, 7]);
    }

    /// By the definition, in several passes.
    fn next_by_definition(streams: &Streams) -> Option<StreamId> {
        let sends: Vec<&StreamState> =
            streams.open.iter().filter(|stream| stream.ready && stream.send.open() > 0).collect();
        let urgency = sends.iter().map(|stream| stream.priority.urgency).min()?;
        let urgent = sends.iter().filter(|stream| stream.priority.urgency == urgency);
        let whole = urgent.clone().find(|stream| !stream.priority.incremental);
        let mut turns: Vec<StreamId> = urgent
            .filter(|stream| stream.priority.incremental)
            .chain(whole)
            .map(|stream| stream.id)
            .collect();
        turns.sort();
        turns.iter().find(|id| **id > streams.served).or(turns.first()).copied()
    }

    #[test]
    fn one_pass_finds_what_is_defined() {
        let mut state = 1u32;
        for _ in 0..2000 {
            let mut random = |below: u32| {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                (state >> 16) % below
            };
            let mut streams = Streams::default();
            for number in 0..random(7) {
                let mut stream = StreamState::new(StreamId::new(2 * number + 1), random(3), 10);
                stream.ready = random(4) > 0;
                stream.priority.urgency = random(3) as u8;
                stream.priority.incremental = random(2) > 0;
                streams.push(stream);
            }
            streams.served = StreamId::new(2 * random(7) + 1);
            let expected = next_by_definition(&streams);
            assert_eq!(streams.next_ready(), expected, "{streams:?}");
        }
    }

    #[test]
    fn resets_are_remembered_for_a_while() {
        let mut streams = Streams::default();
        for number in 0..RESET_MEMORY as u32 + 1 {
            streams.note_reset(StreamId::new(2 * number + 1));
        }
        assert!(!streams.was_reset(StreamId::new(1)));
        assert!(streams.was_reset(StreamId::new(3)));
    }
}
