//! Cutting the input of request streams into frames, and the rules of their order. Payloads other than DATA are handled
//! when they are complete; they are only kept if the input ends inside of them.

use super::{Connection, Event, ReceiveStep, Role, Sink};
use crate::error::{ConnectionError, Flood, Malformed, StreamError};
use crate::frame::{FrameType, StreamId};
use crate::stream::{Local, ReadState, Remote};

impl<R: Role> Connection<R> {
    /// Takes input of a stream up to the next event; `end`: the stream ends with it. The rest is passed in again, until
    /// the event is [`Event::NeedMore`] or [`Event::Blocked`]. The ranges of [`Event::Data`] count from the start of
    /// this `input`.
    ///
    /// # Errors
    /// The connection can only be closed, with the error's code.
    pub fn receive(
        &mut self,
        stream: StreamId,
        input: &[u8],
        end: bool,
        sink: &mut impl Sink,
    ) -> Result<ReceiveStep, ConnectionError> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        let result = match stream.is_bidirectional() {
            true => self.request_stream(stream, input, end, sink),
            false => self.unidirectional(stream, input, end),
        };
        self.checked(result)
    }

    fn request_stream(
        &mut self,
        stream: StreamId,
        input: &[u8],
        end: bool,
        sink: &mut impl Sink,
    ) -> Result<ReceiveStep, ConnectionError> {
        let mut at = 0;
        if let Some(waiting) = self.continue_blocked(stream, input, end, sink)? {
            return Ok(ReceiveStep { consumed: 0, event: waiting });
        }
        loop {
            let Some(open) = self.streams.get_mut(stream) else {
                return Ok(ReceiveStep { consumed: input.len(), event: Event::NeedMore });
            };
            if matches!(open.remote, Remote::Faulty(_)) {
                if end {
                    self.remote_ends(stream);
                }
                return Ok(ReceiveStep { consumed: input.len(), event: Event::NeedMore });
            }
            let rest = &input[at..];
            if rest.is_empty() && !matches!(open.reading, ReadState::Payload(_, 0)) {
                let event = if end { self.stream_ends(stream, at)? } else { Event::NeedMore };
                return Ok(ReceiveStep { consumed: at, event });
            }
            let event = match open.reading {
                ReadState::Header => {
                    let (taken, header) = open.header.frame(rest);
                    at += taken;
                    match header {
                        Some((kind, length)) => self.frame_begins(stream, kind, length)?,
                        None => None,
                    }
                }
                ReadState::Payload(_, length) => {
                    let (taken, event) = self.headers_payload(stream, length, rest, end, sink)?;
                    at += taken;
                    event
                }
                ReadState::Data(left) => {
                    let length = left.min(rest.len() as u64);
                    let start = at;
                    at += length as usize;
                    let is_last = end && at == input.len() && left == length;
                    open.reading = match left - length {
                        0 => ReadState::Header,
                        left => ReadState::Data(left),
                    };
                    Some(self.data(stream, start, at, is_last)?)
                }
                ReadState::Skip(left) => {
                    let length = left.min(rest.len() as u64);
                    at += length as usize;
                    open.reading = match left - length {
                        0 => ReadState::Header,
                        left => ReadState::Skip(left),
                    };
                    None
                }
            };
            if let Some(event) = event {
                return Ok(ReceiveStep { consumed: at, event });
            }
        }
    }

    /// Decides by the header alone whether the frame may come, before any of it is kept.
    fn frame_begins(
        &mut self,
        stream: StreamId,
        kind: FrameType,
        length: u64,
    ) -> Result<Option<Event>, ConnectionError> {
        let section_max = u64::from(self.limits.section_bytes_max);
        let Some(open) = self.streams.get_mut(stream) else { return Ok(None) };
        match (kind, open.remote) {
            (FrameType::Data, Remote::Open) => {
                if length == 0 {
                    self.budgets.spend(Flood::Frames)?;
                    return Ok(None);
                }
                if let Err(malformed) = open.message.content(length) {
                    return self.stream_error(stream, StreamError::Malformed(malformed)).map(Some);
                }
                open.reading = ReadState::Data(length);
                Ok(None)
            }
            (FrameType::Headers, Remote::Waiting) => {
                if length > section_max {
                    return self.too_large(stream);
                }
                open.reading = ReadState::Payload(kind, length as u32);
                Ok(None)
            }
            // "Once this process is completed, only DATA frames are permitted to be sent on the stream [...] receipt of any
            // other known frame type MUST be treated as a connection error of type H3_FRAME_UNEXPECTED" (section 4.4).
            (FrameType::Headers, Remote::Open) if !open.message.is_tunnel() => {
                if length > section_max {
                    return self.too_large(stream);
                }
                open.reading = ReadState::Payload(kind, length as u32);
                Ok(None)
            }
            // A client that has sent no MAX_PUSH_ID "MUST treat receipt of a PUSH_PROMISE frame [...] as a connection error
            // of H3_ID_ERROR."
            (FrameType::PushPromise, _) if R::CLIENT => Err(ConnectionError::Identifier(kind)),
            (FrameType::Unknown, _) => {
                self.budgets.spend(Flood::Frames)?;
                open.reading =
                    if length == 0 { ReadState::Header } else { ReadState::Skip(length) };
                Ok(None)
            }
            _ => Err(ConnectionError::UnexpectedFrame(kind)),
        }
    }

    /// A section is larger than we allow. It is not decoded.
    fn too_large(&mut self, stream: StreamId) -> Result<Option<Event>, ConnectionError> {
        self.decoder.cancel(stream);
        self.stream_error(stream, StreamError::ListTooLarge).map(Some)
    }

    fn data(
        &mut self,
        stream: StreamId,
        start: usize,
        end: usize,
        is_last: bool,
    ) -> Result<Event, ConnectionError> {
        self.budgets.content(&self.limits, (end - start) as u64);
        if is_last {
            if let Err(malformed) = self.message_ends(stream) {
                return self.stream_error(stream, StreamError::Malformed(malformed));
            }
            self.remote_ends(stream);
        }
        Ok(Event::Data { range: start..end, end: is_last })
    }

    /// Whether the message of a stream may end here.
    pub(super) fn message_ends(&self, stream: StreamId) -> Result<(), Malformed> {
        self.streams.get(stream).map_or(Ok(()), |open| open.message.end())
    }

    /// The stream ends here.
    fn stream_ends(&mut self, stream: StreamId, at: usize) -> Result<Event, ConnectionError> {
        let Some(open) = self.streams.get_mut(stream) else { return Ok(Event::NeedMore) };
        // "When a stream terminates cleanly, if the last frame on the stream was truncated, this MUST be treated as a
        // connection error of type H3_FRAME_ERROR."
        if open.reading != ReadState::Header || !open.header.is_empty() {
            return Err(ConnectionError::TruncatedFrame);
        }
        match open.remote {
            Remote::Waiting => self.stream_error(stream, StreamError::Incomplete),
            Remote::Open => match open.message.end() {
                Ok(()) => {
                    self.remote_ends(stream);
                    Ok(Event::Data { range: at..at, end: true })
                }
                Err(malformed) => self.stream_error(stream, StreamError::Malformed(malformed)),
            },
            Remote::Trailed => {
                self.remote_ends(stream);
                Ok(Event::NeedMore)
            }
            Remote::Ended | Remote::Faulty(_) => Ok(Event::NeedMore),
        }
    }

    /// The peer's message is complete.
    pub(super) fn remote_ends(&mut self, stream: StreamId) {
        let Some(open) = self.streams.get_mut(stream) else { return };
        open.remote = Remote::Ended;
        if open.local == Local::Ended {
            self.streams.remove(stream);
        }
        if R::CLIENT {
            self.budgets.message(&self.limits);
        }
    }
}
