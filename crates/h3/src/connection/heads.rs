//! Field sections: HEADERS frames are decoded when they are complete, and what they refer to has been inserted.

use nowait_fields::{Expected, HeadCheck, ResponseKind};

use super::{Connection, Event, Role, Sink};
use crate::error::{ConnectionError, Flood, StreamError};
use crate::frame::StreamId;
use crate::qpack::{FieldError, QpackError};
use crate::stream::{ReadState, Remote};

/// The purpose of a section.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Purpose {
    Request,
    Response,
    Trailers,
}

impl<R: Role> Connection<R> {
    /// Takes a part of a HEADERS frame, which is decoded when it is complete. Returns the number of bytes taken.
    pub(super) fn headers_payload(
        &mut self,
        stream: StreamId,
        length: u32,
        input: &[u8],
        end: bool,
        sink: &mut impl Sink,
    ) -> Result<(usize, Option<Event>), ConnectionError> {
        let Some(open) = self.streams.get_mut(stream) else { return Ok((input.len(), None)) };
        let needed = length as usize - open.kept.len();
        let Some(rest) = input.get(..needed) else {
            open.kept.extend_from_slice(input);
            self.kept_bytes += input.len();
            self.bound_kept()?;
            return Ok((input.len(), None));
        };
        open.reading = ReadState::Header;
        let ends = end && needed == input.len();
        if open.kept.is_empty() {
            return Ok((needed, Some(self.section(stream, rest, ends, None, sink)?)));
        }
        let mut section = std::mem::take(&mut open.kept);
        self.kept_bytes -= section.len();
        section.extend_from_slice(rest);
        Ok((needed, Some(self.section(stream, &section, ends, None, sink)?)))
    }

    /// Continues a stream that waits for insertions. Returns an event if it has one.
    pub(super) fn continue_blocked(
        &mut self,
        stream: StreamId,
        input: &[u8],
        end: bool,
        sink: &mut impl Sink,
    ) -> Result<Option<Event>, ConnectionError> {
        let inserted = self.decoder.inserted();
        let Some(open) = self.streams.get_mut(stream) else { return Ok(None) };
        match open.blocked {
            None => return Ok(None),
            Some(needed) if needed > inserted => return Ok(Some(Event::Blocked)),
            Some(_) => {}
        }
        let waited = open.blocked.take();
        let section = std::mem::take(&mut open.kept);
        self.blocked -= 1;
        self.kept_bytes -= section.len();
        self.section(stream, &section, end && input.is_empty(), waited, sink).map(Some)
    }

    fn bound_kept(&self) -> Result<(), ConnectionError> {
        match self.kept_bytes > self.limits.kept_bytes_max as usize {
            true => Err(ConnectionError::Flood(Flood::Sections)),
            false => Ok(()),
        }
    }

    /// Decodes a section, or keeps it until it can be. `end`: the stream ends with it. `waited`: until so many entries were
    /// inserted.
    fn section(
        &mut self,
        stream: StreamId,
        section: &[u8],
        end: bool,
        waited: Option<u64>,
        sink: &mut impl Sink,
    ) -> Result<Event, ConnectionError> {
        let remote = self.streams.get(stream).map(|open| open.remote);
        let purpose = match remote {
            Some(Remote::Waiting) if R::CLIENT => Purpose::Response,
            Some(Remote::Waiting) => Purpose::Request,
            _ => Purpose::Trailers,
        };
        let expected = match purpose {
            Purpose::Request => {
                Expected::Request { extended_connect: self.limits.extended_connect }
            }
            Purpose::Response => Expected::Response,
            Purpose::Trailers => Expected::Trailers { only_tokens: !R::CLIENT },
        };
        let begun = self.decoder.section(section, 0).map_err(ConnectionError::Decompression)?;
        let required = begun.required();
        if waited.is_some_and(|waited| waited != required) {
            // By so many insertions that the count means another one, which evict what it refers to.
            return Err(ConnectionError::Decompression(QpackError::InvalidIndex));
        }
        if begun.is_blocked() {
            self.block(stream, section, required)?;
            return Ok(Event::Blocked);
        }
        sink.begin(stream, purpose == Purpose::Trailers);
        sink.size(section.len());
        let mut check = HeadCheck::new(expected);
        let fits = self.decode(section, &mut check, sink)?;
        self.decoder.acknowledge(stream, required);
        self.bound_output()?;
        match purpose {
            Purpose::Request => self.request(stream, end, check, fits),
            Purpose::Response => self.response(stream, end, check, fits),
            Purpose::Trailers => self.trailers(stream, end, check, fits),
        }
    }

    /// Keeps a section that waits for insertions. "If a decoder encounters more blocked streams than it promised to
    /// support, it MUST treat this as a connection error of type QPACK_DECOMPRESSION_FAILED" (RFC 9204 section 2.1.2).
    fn block(
        &mut self,
        stream: StreamId,
        section: &[u8],
        required: u64,
    ) -> Result<(), ConnectionError> {
        if self.blocked >= self.limits.blocked_streams {
            return Err(ConnectionError::Decompression(QpackError::TooManyBlocked));
        }
        self.blocked += 1;
        self.kept_bytes += section.len();
        self.bound_kept()?;
        if let Some(open) = self.streams.get_mut(stream) {
            open.kept = section.to_vec();
            open.blocked = Some(required);
        }
        Ok(())
    }

    /// Decodes a section, and passes its fields on. Returns whether they are within their limits: unlike in HPACK, later
    /// sections don't depend on the rest.
    fn decode(
        &mut self,
        section: &[u8],
        check: &mut HeadCheck,
        sink: &mut impl Sink,
    ) -> Result<bool, ConnectionError> {
        let limits = &self.limits;
        let string_max = limits.string_bytes_max as usize;
        let mut section =
            self.decoder.section(section, string_max).map_err(ConnectionError::Decompression)?;
        let (mut bytes, mut count) = (0, 0);
        loop {
            let field = match section.next() {
                Ok(Some(field)) => field,
                Ok(None) => return Ok(true),
                Err(FieldError::TooLong) => return Ok(false),
                Err(FieldError::Invalid(error)) => {
                    return Err(ConnectionError::Decompression(error));
                }
            };
            bytes += field.name.len() + field.value.len();
            count += 1;
            if bytes > limits.list_bytes_max as usize || count > limits.fields_max {
                return Ok(false);
            }
            if check.field(&field) {
                sink.field(&field);
            }
        }
    }

    fn request(
        &mut self,
        stream: StreamId,
        end: bool,
        check: HeadCheck,
        fits: bool,
    ) -> Result<Event, ConnectionError> {
        let Some(open) = self.streams.get_mut(stream) else { return Ok(Event::NeedMore) };
        open.remote = if end { Remote::Ended } else { Remote::Open };
        let checked = check.finish().and_then(|head| {
            open.message.request(&head);
            if end { open.message.end() } else { Ok(()) }
        });
        let error = match checked {
            _ if !fits => StreamError::ListTooLarge,
            Err(malformed) => StreamError::Malformed(malformed),
            Ok(()) => return Ok(Event::Request { end }),
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
            Ok((status, ResponseKind::Interim)) => return Ok(Event::Interim { status }),
            Ok((status, ResponseKind::Final)) => {
                open.remote = Remote::Open;
                if end {
                    self.remote_ends(stream);
                }
                return Ok(Event::Response { status, end });
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
        let error = match check.finish().and_then(|_| self.message_ends(stream)) {
            _ if !fits => StreamError::ListTooLarge,
            Err(malformed) => StreamError::Malformed(malformed),
            Ok(()) => {
                if end {
                    self.remote_ends(stream);
                } else if let Some(open) = self.streams.get_mut(stream) {
                    open.remote = Remote::Trailed;
                }
                return Ok(Event::Trailers);
            }
        };
        self.stream_error(stream, error)
    }
}
