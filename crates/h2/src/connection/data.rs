//! DATA: flow control first, then the rules of the stream. Data is reported where it stands in the
//! input; padding counts for the windows and is given back at once.

use std::ops::Range;

use super::receive::ReadState;
use super::{Connection, Event, Role};
use crate::Malformed;
use crate::error::{ConnectionError, ErrorCode, Flood, StreamError};
use crate::frame::{Flags, FrameHeader, FrameType, StreamId};
use crate::frames;
use crate::stream::{Local, Remote};

impl<R: Role> Connection<R> {
    /// The header of a DATA frame, and the length of its padding, have come.
    pub(super) fn data_begins(
        &mut self,
        header: FrameHeader,
        padding: Option<u8>,
    ) -> Result<Option<Event>, ConnectionError> {
        let FrameHeader { length, stream, flags, .. } = header;
        // "If the length of the padding is the length of the frame payload or greater, the recipient
        // MUST treat this as a connection error".
        let overhead = padding.map_or(0, |padding| 1 + u32::from(padding));
        let Some(left) = length.checked_sub(overhead) else {
            return Err(ConnectionError::Padding(FrameType::Data));
        };
        let padding = padding.unwrap_or_default();
        if self.is_idle(stream) {
            return Err(ConnectionError::IdleStream(FrameType::Data));
        }
        if !self.receive.receive(length) {
            return Err(ConnectionError::FlowControl);
        }
        self.give_back(overhead);
        let end = flags.has(Flags::END_STREAM);
        if left == 0 && !end {
            self.budgets.spend(Flood::Frames)?;
        }
        let error = match self.streams.get_mut(stream) {
            None => return self.data_of_closed(stream, left, padding),
            Some(open) => match open.remote {
                Remote::Faulty(_) => {
                    self.drop_data(left, padding);
                    return Ok(None);
                }
                Remote::Ended => Some(StreamError::HalfClosed),
                Remote::Waiting => Some(StreamError::Malformed(Malformed::DataBeforeHead)),
                Remote::Open if !open.receive.receive(length) => Some(StreamError::FlowControl),
                Remote::Open => {
                    let content = open.message.content(left.into());
                    let content = if end { content.and(open.message.end()) } else { content };
                    content.err().map(StreamError::Malformed)
                }
            },
        };
        if let Some(error) = error {
            self.drop_data(left, padding);
            return self.stream_error(stream, error).map(Some);
        }
        if overhead > 0
            && let Some(open) = self.streams.get_mut(stream)
        {
            let increment = open.receive.give_back(overhead).filter(|_| !end);
            self.announce(stream, increment);
        }
        if left == 0 {
            self.skip(padding.into());
            return Ok(end.then(|| self.data_ends(stream, 0..0)));
        }
        self.reading = ReadState::Data { stream, left, padding, end };
        Ok(None)
    }

    /// The next piece of a DATA frame stands at `range`.
    pub(super) fn data(
        &mut self,
        stream: StreamId,
        range: Range<usize>,
        left: u32,
        padding: u8,
        end: bool,
    ) -> Option<Event> {
        let length = range.len() as u32;
        let left = left - length;
        let open = self.streams.get_mut(stream).filter(|open| open.remote == Remote::Open);
        let Some(open) = open else {
            // The stream has ended within the frame.
            self.give_back(left + length);
            self.skip(left + u32::from(padding));
            return None;
        };
        open.held += length;
        self.budgets.content(&self.limits, range.len());
        if left > 0 {
            self.reading = ReadState::Data { stream, left, padding, end };
            return Some(Event::Data { stream, range, end: false });
        }
        self.skip(padding.into());
        if end {
            Some(self.data_ends(stream, range))
        } else {
            Some(Event::Data { stream, range, end })
        }
    }

    fn data_ends(&mut self, stream: StreamId, range: Range<usize>) -> Event {
        self.remote_ends(stream);
        Event::Data { stream, range, end: true }
    }

    /// The peer's message is complete.
    pub(super) fn remote_ends(&mut self, stream: StreamId) {
        let Some(open) = self.streams.get_mut(stream) else { return };
        open.remote = Remote::Ended;
        if open.local == Local::Ended {
            self.forget(stream);
        }
        if R::CLIENT {
            self.budgets.message(&self.limits);
        }
    }

    /// DATA after this side has reset the stream is no error; for other closed streams, it is.
    fn data_of_closed(
        &mut self,
        stream: StreamId,
        left: u32,
        padding: u8,
    ) -> Result<Option<Event>, ConnectionError> {
        self.drop_data(left, padding);
        if self.admitted < stream && stream.is_client() != R::CLIENT {
            return Ok(None);
        }
        self.budgets.spend(Flood::Frames)?;
        if !self.resets.contains(stream) {
            frames::rst_stream(&mut self.output, stream, ErrorCode::STREAM_CLOSED);
            self.resets.note(stream);
        }
        Ok(None)
    }

    fn drop_data(&mut self, left: u32, padding: u8) {
        self.give_back(left);
        self.skip(left + u32::from(padding));
    }
}
