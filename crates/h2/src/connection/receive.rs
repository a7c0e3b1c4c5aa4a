//! Cutting the input into frames. Payloads other than DATA are handled when they are complete; they
//! are only kept if the input ends inside of them.

use super::{Connection, Event, KEPT_MAX, OUTPUT_MAX, ReceiveStep, Role, Sink};
use crate::error::{ConnectionError, Flood};
use crate::frame::{Flags, FrameHeader, FrameType, HEADER_LEN, PREFACE, StreamId};

/// Parameters of one SETTINGS frame; there are ten different ones.
const SETTINGS_MAX: u32 = 64;

/// The longest GOAWAY frame, debug data included, in bytes.
const GOAWAY_MAX: u32 = 16 * 1024;

/// The longest PRIORITY_UPDATE frame in bytes: known members take six.
const PRIORITY_UPDATE_MAX: u32 = 256;

/// What comes next.
#[derive(Debug, Clone, Copy)]
pub(super) enum ReadState {
    /// The rest of the client's preface.
    Preface(u8),
    Header,
    /// The payload of a frame other than DATA.
    Payload(FrameHeader),
    /// The length of a DATA frame's padding.
    PadLength(FrameHeader),
    /// DATA of an open stream, then padding.
    Data {
        stream: StreamId,
        left: u32,
        padding: u8,
        end: bool,
    },
    /// Bytes without meaning.
    Skip(u32),
}

impl<R: Role> Connection<R> {
    /// Takes input up to the next event. The rest is passed in again; the ranges of
    /// [`Event::Data`] count from the start of this `input`.
    ///
    /// After an error the connection can only be closed, once its output (with GOAWAY) is sent.
    pub fn receive(
        &mut self,
        input: &[u8],
        sink: &mut impl Sink,
    ) -> Result<ReceiveStep, ConnectionError> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        let result = self.advance(input, sink);
        if let Err(error) = result {
            self.failed = Some(error);
            self.go_away(error.code());
        }
        result
    }

    fn advance(
        &mut self,
        input: &[u8],
        sink: &mut impl Sink,
    ) -> Result<ReceiveStep, ConnectionError> {
        if let Some(event) = self.unprocessed() {
            return Ok(ReceiveStep { consumed: 0, event });
        }
        let mut at = 0;
        loop {
            if self.output.len() >= OUTPUT_MAX {
                return Ok(ReceiveStep { consumed: at, event: Event::OutputFull });
            }
            let rest = &input[at..];
            if rest.is_empty() {
                return Ok(ReceiveStep { consumed: at, event: Event::NeedMore });
            }
            let event = match self.reading {
                ReadState::Preface(matched) => {
                    at += self.preface(matched, rest)?;
                    None
                }
                ReadState::Header => {
                    let (taken, header) = self.take_header(rest);
                    at += taken;
                    match header {
                        Some(header) => self.frame_begins(header, sink)?,
                        None => None,
                    }
                }
                ReadState::Payload(header) => {
                    let (taken, event) = self.payload(header, rest, sink)?;
                    at += taken;
                    event
                }
                ReadState::PadLength(header) => {
                    at += 1;
                    self.data_begins(header, Some(rest[0]))?
                }
                ReadState::Data { stream, left, padding, end } => {
                    let length = rest.len().min(left as usize);
                    at += length;
                    self.data(stream, at - length..at, left, padding, end)
                }
                ReadState::Skip(left) => {
                    let length = rest.len().min(left as usize);
                    at += length;
                    self.skip(left - length as u32);
                    None
                }
            };
            if let Some(event) = event {
                return Ok(ReceiveStep { consumed: at, event });
            }
        }
    }

    fn preface(&mut self, matched: u8, input: &[u8]) -> Result<usize, ConnectionError> {
        let expected = &PREFACE[usize::from(matched)..];
        let length = expected.len().min(input.len());
        if input[..length] != expected[..length] {
            return Err(ConnectionError::InvalidPreface);
        }
        self.reading = match expected.len() - length {
            0 => ReadState::Header,
            _ => ReadState::Preface(matched + length as u8),
        };
        Ok(length)
    }

    /// Takes a frame header, or what there is of it.
    #[inline]
    fn take_header(&mut self, input: &[u8]) -> (usize, Option<FrameHeader>) {
        let kept = usize::from(self.header_len);
        if kept == 0
            && let Some(octets) = input.first_chunk()
        {
            return (HEADER_LEN, Some(FrameHeader::parse(octets)));
        }
        let length = input.len().min(HEADER_LEN - kept);
        self.header[kept..kept + length].copy_from_slice(&input[..length]);
        if kept + length < HEADER_LEN {
            self.header_len += length as u8;
            return (length, None);
        }
        self.header_len = 0;
        (length, Some(FrameHeader::parse(&self.header)))
    }

    /// Decides by the header alone whether the frame may come, before any of it is kept.
    fn frame_begins(
        &mut self,
        header: FrameHeader,
        sink: &mut impl Sink,
    ) -> Result<Option<Event>, ConnectionError> {
        // "This sequence MUST be followed by a SETTINGS frame" (RFC 9113 section 3.4). As nginx, a server
        // does not insist: the defaults hold.
        if R::CLIENT
            && !self.has_settings
            && (header.kind != FrameType::Settings || header.flags.has(Flags::ACK))
        {
            return Err(ConnectionError::MissingSettings);
        }
        header.check(self.limits.frame_size)?;
        if let Some(block) = self.block {
            if header.kind != FrameType::Continuation || header.stream != block.stream {
                return Err(ConnectionError::ExpectedContinuation);
            }
            self.continuation_begins(&header)?;
        }
        match header.kind {
            FrameType::Data if header.flags.has(Flags::PADDED) => {
                self.reading = ReadState::PadLength(header);
                return Ok(None);
            }
            FrameType::Data => return self.data_begins(header, None),
            FrameType::Headers if header.length > self.limits.block_bytes_max => {
                return Err(ConnectionError::BlockTooLarge);
            }
            FrameType::Headers => {}
            FrameType::Continuation if self.block.is_none() => {
                return Err(ConnectionError::UnexpectedContinuation);
            }
            FrameType::Settings if header.length > 6 * SETTINGS_MAX => {
                return Err(ConnectionError::FrameLength(FrameType::Settings));
            }
            FrameType::GoAway if header.length > GOAWAY_MAX => {
                return Err(ConnectionError::FrameLength(FrameType::GoAway));
            }
            FrameType::PriorityUpdate if header.length > PRIORITY_UPDATE_MAX => {
                return Err(ConnectionError::FrameLength(FrameType::PriorityUpdate));
            }
            FrameType::PushPromise => return Err(ConnectionError::PushPromise),
            FrameType::Unknown(_) => {
                self.budgets.spend(Flood::Frames)?;
                self.skip(header.length);
                return Ok(None);
            }
            _ => {}
        }
        if header.length == 0 {
            return self.frame(header, &[], sink);
        }
        self.reading = ReadState::Payload(header);
        Ok(None)
    }

    /// Handles a payload that is complete in the input; otherwise keeps what there is of it.
    fn payload(
        &mut self,
        header: FrameHeader,
        input: &[u8],
        sink: &mut impl Sink,
    ) -> Result<(usize, Option<Event>), ConnectionError> {
        let length = header.length as usize - self.partial.len();
        let Some(end) = input.get(..length) else {
            self.partial.extend_from_slice(input);
            return Ok((input.len(), None));
        };
        self.reading = ReadState::Header;
        if self.partial.is_empty() {
            return Ok((length, self.frame(header, end, sink)?));
        }
        let mut payload = std::mem::take(&mut self.partial);
        payload.extend_from_slice(end);
        let event = self.frame(header, &payload, sink)?;
        if payload.capacity() <= KEPT_MAX {
            payload.clear();
            self.partial = payload;
        }
        Ok((length, event))
    }

    /// A frame other than DATA is complete.
    fn frame(
        &mut self,
        header: FrameHeader,
        payload: &[u8],
        sink: &mut impl Sink,
    ) -> Result<Option<Event>, ConnectionError> {
        match header.kind {
            FrameType::Headers => self.headers(header, payload, sink),
            FrameType::Continuation => self.continuation(header, payload, sink),
            FrameType::Priority => self.priority(header, payload),
            FrameType::RstStream => self.rst_stream(header, payload),
            FrameType::Settings => self.settings(header, payload),
            FrameType::Ping => self.pinged(header, payload),
            FrameType::GoAway => self.peer_goes_away(payload),
            FrameType::WindowUpdate => self.window_update(header, payload),
            FrameType::PriorityUpdate => self.priority_update(payload),
            // Handled by its header.
            FrameType::Data | FrameType::PushPromise | FrameType::Unknown(_) => Ok(None),
        }
    }

    /// Skips this many bytes.
    pub(super) fn skip(&mut self, bytes: u32) {
        self.reading = if bytes == 0 { ReadState::Header } else { ReadState::Skip(bytes) };
    }
}
