//! Field blocks: HEADERS with its CONTINUATION frames is one block, decoded when it is complete, in any
//! state of its stream, because later blocks depend on it.

use nowait_fields::{Expected, HeadCheck, ResponseKind};

use super::{Connection, Event, OpenBlock, Role, Sink};
use crate::error::{ConnectionError, ErrorCode, Flood, StreamError};
use crate::frame::{Flags, FrameHeader, FrameType, StreamId, WINDOW_DEFAULT};
use crate::frames;
use crate::stream::{Remote, StreamState};
use crate::{Limits, Malformed};

/// Memory for fragments that is kept for the next block, in bytes.
const KEPT_MAX: usize = 4096;

/// The purpose of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Purpose {
    Request,
    Response,
    Trailers,
    /// The stream is beyond the limit.
    Refused,
    /// The stream has ended.
    HalfClosed,
    /// The stream is gone, or its fields are not wanted.
    Dropped,
}

impl<R: Role> Connection<R> {
    pub(super) fn headers(
        &mut self,
        header: FrameHeader,
        payload: &[u8],
        sink: &mut impl Sink,
    ) -> Result<Option<Event>, ConnectionError> {
        let fragment = frames::headers(&header, payload)?;
        let (stream, end) = (header.stream, header.flags.has(Flags::END_STREAM));
        if header.flags.has(Flags::END_HEADERS) {
            return self.field_block(stream, end, fragment, sink);
        }
        self.fragments.clear();
        self.fragments.extend_from_slice(fragment);
        self.block = Some(OpenBlock { stream, end, frames: 0 });
        Ok(None)
    }

    /// Bounds a block before the next part of it is kept.
    pub(super) fn continuation_begins(
        &mut self,
        header: &FrameHeader,
    ) -> Result<(), ConnectionError> {
        let Some(block) = &mut self.block else { return Ok(()) };
        block.frames += 1;
        let bytes = self.fragments.len() + header.length as usize;
        if block.frames > self.limits.continuations_max
            || bytes > self.limits.block_bytes_max as usize
        {
            return Err(ConnectionError::BlockTooLarge);
        }
        Ok(())
    }

    pub(super) fn continuation(
        &mut self,
        header: FrameHeader,
        payload: &[u8],
        sink: &mut impl Sink,
    ) -> Result<Option<Event>, ConnectionError> {
        self.fragments.extend_from_slice(payload);
        if !header.flags.has(Flags::END_HEADERS) {
            return Ok(None);
        }
        let Some(block) = self.block.take() else { return Ok(None) };
        let mut fragments = std::mem::take(&mut self.fragments);
        let event = self.field_block(block.stream, block.end, &fragments, sink)?;
        if fragments.capacity() <= KEPT_MAX {
            fragments.clear();
            self.fragments = fragments;
        }
        Ok(event)
    }

    fn field_block(
        &mut self,
        stream: StreamId,
        end: bool,
        block: &[u8],
        sink: &mut impl Sink,
    ) -> Result<Option<Event>, ConnectionError> {
        // "Streams initiated by a client MUST use odd-numbered stream identifiers", and pushing is off.
        if !stream.is_client() {
            return Err(ConnectionError::StreamIdentifier(FrameType::Headers));
        }
        let purpose =
            if R::CLIENT { self.of_response(stream)? } else { self.of_request(stream, end)? };
        let expected = match purpose {
            Purpose::Request => {
                Expected::Request { extended_connect: self.limits.extended_connect }
            }
            Purpose::Response => Expected::Response,
            Purpose::Trailers => Expected::Trailers { only_tokens: !R::CLIENT },
            Purpose::Refused | Purpose::HalfClosed | Purpose::Dropped => {
                self.decode(block, None, sink)?;
                return self.unwanted(stream, purpose);
            }
        };
        sink.begin(stream);
        sink.size(block.len());
        let mut check = HeadCheck::new(expected);
        let fits = self.decode(block, Some(&mut check), sink)?;
        let event = match purpose {
            Purpose::Request => self.request(stream, end, check, fits),
            Purpose::Response => self.response(stream, end, check, fits),
            _ => self.trailers(stream, end, check, fits),
        };
        event.map(Some)
    }

    /// The purpose of a block sent by a client.
    fn of_request(&mut self, stream: StreamId, end: bool) -> Result<Purpose, ConnectionError> {
        if stream > self.last_remote {
            self.last_remote = stream;
            // A client that has not seen our settings may send more content than they allow.
            let unaware = !self.acknowledged && !end && self.limits.stream_window < WINDOW_DEFAULT;
            let full = self.streams.len() >= self.limits.concurrent_streams as usize;
            if stream > self.admitted {
                self.budgets.spend(Flood::Frames)?;
                return Ok(Purpose::Dropped);
            }
            return Ok(if full || unaware { Purpose::Refused } else { Purpose::Request });
        }
        match self.streams.get(stream).map(|open| open.remote) {
            Some(Remote::Open | Remote::Waiting) => Ok(Purpose::Trailers),
            Some(Remote::Ended) => Ok(Purpose::HalfClosed),
            Some(Remote::Faulty(_)) => {
                self.budgets.spend(Flood::Frames)?;
                Ok(Purpose::Dropped)
            }
            None if stream > self.admitted => Ok(Purpose::Dropped),
            None if self.resets.contains(stream) => {
                self.budgets.spend(Flood::Frames)?;
                Ok(Purpose::Dropped)
            }
            // "An endpoint that receives an unexpected stream identifier MUST respond with a connection
            // error": a stream that is closed or was skipped is not opened again.
            None => Err(ConnectionError::StreamIdentifier(FrameType::Headers)),
        }
    }

    /// The purpose of a block sent by a server.
    fn of_response(&mut self, stream: StreamId) -> Result<Purpose, ConnectionError> {
        if stream > self.last_local {
            return Err(ConnectionError::IdleStream(FrameType::Headers));
        }
        match self.streams.get(stream).map(|open| open.remote) {
            Some(Remote::Waiting) => Ok(Purpose::Response),
            Some(Remote::Open) => Ok(Purpose::Trailers),
            Some(Remote::Ended) => Ok(Purpose::HalfClosed),
            Some(Remote::Faulty(_)) | None => {
                self.budgets.spend(Flood::Frames)?;
                Ok(Purpose::Dropped)
            }
        }
    }

    /// Decodes a whole block. Fields are passed on while the list is within its limits; returns whether
    /// it was to its end.
    fn decode(
        &mut self,
        block: &[u8],
        mut check: Option<&mut HeadCheck>,
        sink: &mut impl Sink,
    ) -> Result<bool, ConnectionError> {
        let limits = &self.limits;
        let list_max = limits.list_bytes_max as usize;
        let excess = if R::CLIENT { Limits::LIST_EXCESS as usize } else { 1 };
        let mut block = self.decoder.block(block, limits.string_bytes_max as usize);
        let (mut bytes, mut count) = (0, 0);
        while let Some(field) = block.next()? {
            if field.name.is_empty() {
                return Err(ConnectionError::EmptyName);
            }
            bytes += field.name.len() + field.value.len();
            count += 1;
            if bytes > list_max.saturating_mul(excess) {
                return Err(ConnectionError::ListTooLarge);
            }
            let fits = bytes <= list_max && count <= usize::from(limits.fields_max);
            if let Some(check) = &mut check
                && fits
                && check.field(&field)
            {
                sink.field(&field);
            }
        }
        Ok(bytes <= list_max && count <= usize::from(limits.fields_max))
    }

    /// A block has been decoded for no receiver.
    fn unwanted(
        &mut self,
        stream: StreamId,
        purpose: Purpose,
    ) -> Result<Option<Event>, ConnectionError> {
        match purpose {
            Purpose::HalfClosed => self.stream_error(stream, StreamError::HalfClosed).map(Some),
            Purpose::Refused => {
                self.budgets.spend(Flood::Refused)?;
                self.end_stream(stream, ErrorCode::REFUSED_STREAM);
                Ok(None)
            }
            _ => Ok(None),
        }
    }

    fn request(
        &mut self,
        stream: StreamId,
        end: bool,
        check: HeadCheck,
        fits: bool,
    ) -> Result<Event, ConnectionError> {
        let (window, room) = (self.peer.initial_window_size, self.limits.stream_window);
        let mut open = StreamState::new(stream, window, room);
        open.remote = if end { Remote::Ended } else { Remote::Open };
        if let Some(at) = self.announced.iter().position(|(announced, _)| *announced == stream) {
            open.turn.update(self.announced[at].1);
        }
        // No request will come for numbers that were left out.
        self.announced.retain(|(announced, _)| *announced > stream);
        let checked = check.finish().and_then(|head| {
            open.message.request(&head);
            if end { open.message.end() } else { Ok(()) }
        });
        self.streams.insert(open);
        let error = match checked {
            _ if !fits => StreamError::ListTooLarge,
            Err(malformed) => StreamError::Malformed(malformed),
            Ok(()) => return Ok(Event::Request { stream, end }),
        };
        self.stream_error(stream, error)
    }

    fn response(
        &mut self,
        stream: StreamId,
        end: bool,
        check: HeadCheck,
        fits: bool,
    ) -> Result<Event, ConnectionError> {
        let interim_max = self.limits.interim_max;
        let Some(open) = self.streams.get_mut(stream) else { return Ok(Event::NeedMore) };
        let checked = check
            .finish()
            .and_then(|head| Ok((head.status, open.message.response(&head, end, interim_max)?)));
        let error = match checked {
            _ if !fits => StreamError::ListTooLarge,
            Err(malformed) => StreamError::Malformed(malformed),
            Ok((status, ResponseKind::Interim)) => return Ok(Event::Interim { stream, status }),
            Ok((status, ResponseKind::Final)) => {
                open.remote = Remote::Open;
                if end {
                    self.remote_ends(stream);
                }
                return Ok(Event::Response { stream, status, end });
            }
        };
        self.stream_error(stream, error)
    }

    fn trailers(
        &mut self,
        stream: StreamId,
        end: bool,
        check: HeadCheck,
        fits: bool,
    ) -> Result<Event, ConnectionError> {
        let message = self.streams.get(stream).map(|open| open.message).unwrap_or_default();
        let error = match check.finish().and_then(|_| message.end()) {
            _ if !fits => StreamError::ListTooLarge,
            // Of a tunnel, "any other frame type MUST be treated as a stream error" (RFC 9113 section
            // 8.5).
            _ if !end || message.is_tunnel() => {
                StreamError::Malformed(Malformed::TrailersWithoutEnd)
            }
            Err(malformed) => StreamError::Malformed(malformed),
            Ok(()) => {
                self.remote_ends(stream);
                return Ok(Event::Trailers { stream });
            }
        };
        self.stream_error(stream, error)
    }
}
