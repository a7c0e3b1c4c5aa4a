//! Bodies: where their bytes are in the input and when they end (RFC 9112 sections 6 and 7).
//!
//! Used by both connections. Body bytes are never copied: an event names a range of the caller's
//! input. Chunk framing is strict, as nginx's is since 1.31: CRLF only, since a lenient reader
//! behind a strict one (or the other way round) is how requests get smuggled.

use std::ops::Range;

use crate::Limits;
use crate::error::{RequestError, ResponseError};
use crate::line::ParsedLine;
use crate::reader::{FieldSpans, HeadLines, HeadProgress};
use nowait_message::scan::{hex, is_token};
use nowait_message::{FieldTable, Fields, Span};

/// Maximum number of bytes between the size of a chunk and the end of its line: white space and
/// extensions. nginx has no limit.
pub const CHUNK_EXTENSION_MAX: u16 = 1024;

/// Maximum number of digits of a chunk size: `i64::MAX` has 16, and leading zeros count.
const CHUNK_DIGITS_MAX: u8 = 16;

/// How the end of a body is determined.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BodyLength {
    /// There is no body.
    Empty,
    /// `Content-Length`, in bytes, not 0.
    Known(u64),
    /// `Transfer-Encoding: chunked`.
    Chunked,
    /// The closing of the connection; responses only.
    UntilClose,
}

/// One step through a body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BodyStep {
    /// Number of consumed bytes of the input: framing and, in [`BodyEvent::Data`], the data.
    pub consumed: usize,
    /// The event found.
    pub event: BodyEvent,
}

/// An event in a body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BodyEvent {
    /// All input is consumed and the body continues.
    NeedMore,
    /// Body bytes: this range of the input, never empty.
    Data(Range<usize>),
    /// The body has ended. Repeated calls return this again.
    End,
}

/// An error in a body, from either peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BodyError {
    /// Malformed chunk framing.
    InvalidChunk,
    /// Malformed trailer section.
    InvalidTrailers,
    /// Trailers beyond the limits.
    TrailersTooLarge,
}

impl From<BodyError> for RequestError {
    fn from(error: BodyError) -> Self {
        match error {
            BodyError::InvalidChunk => RequestError::InvalidChunkedBody,
            BodyError::InvalidTrailers => RequestError::InvalidTrailers,
            BodyError::TrailersTooLarge => RequestError::TrailersTooLarge,
        }
    }
}

impl From<BodyError> for ResponseError {
    fn from(error: BodyError) -> Self {
        match error {
            BodyError::InvalidChunk => ResponseError::InvalidChunkedBody,
            BodyError::InvalidTrailers => ResponseError::InvalidTrailers,
            BodyError::TrailersTooLarge => ResponseError::TrailersTooLarge,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BodyState {
    End,
    Known { left: u64 },
    UntilClose,
    Size { size: u64, digits: u8 },
    AfterSize { size: u64, length: u16 },
    Extension { size: u64, length: u16 },
    SizeLf { size: u64 },
    Chunk { left: u64 },
    ChunkCr,
    ChunkLf,
    TrailersStart,
    Trailers,
    LastLf,
}

/// Finds body bytes and the end of a body. Allocates only for trailers.
#[derive(Debug)]
pub struct BodyDecoder {
    state: BodyState,
    received: u64,
    limits: Limits,
    /// Names in trailers have to be tokens.
    only_tokens: bool,
    trailers: Option<Box<Trailers>>,
}

impl BodyDecoder {
    /// A decoder for one body. The limits bound the trailers: they must fit in one large buffer.
    pub fn new(length: BodyLength, limits: &Limits) -> Self {
        let state = match length {
            BodyLength::Empty | BodyLength::Known(0) => BodyState::End,
            BodyLength::Known(left) => BodyState::Known { left },
            BodyLength::Chunked => BodyState::Size { size: 0, digits: 0 },
            BodyLength::UntilClose => BodyState::UntilClose,
        };
        BodyDecoder { state, received: 0, limits: *limits, only_tokens: false, trailers: None }
    }

    /// The same for a request: as in heads, names that are no tokens are refused. Those of responses pass.
    pub fn of_request(length: BodyLength, limits: &Limits) -> Self {
        BodyDecoder { only_tokens: true, ..Self::new(length, limits) }
    }

    /// Body bytes reported so far, without framing.
    pub fn received(&self) -> u64 {
        self.received
    }

    /// Bytes still to come, if known: of the whole body with `Content-Length`, of the current chunk
    /// with chunked (nginx's estimate for prereading).
    pub fn remaining(&self) -> Option<u64> {
        match self.state {
            BodyState::End => Some(0),
            BodyState::Known { left } | BodyState::Chunk { left } => Some(left),
            _ => None,
        }
    }

    /// Bytes still to come if nothing but them follows: the body has a `Content-Length`.
    pub fn unframed(&self) -> Option<u64> {
        match self.state {
            BodyState::Known { left } => Some(left),
            _ => None,
        }
    }

    /// Counts body bytes that have passed without [`receive`](Self::receive): at most
    /// [`unframed`](Self::unframed).
    pub fn skip(&mut self, bytes: u64) {
        debug_assert!(self.unframed().is_some_and(|left| bytes <= left));
        if let BodyState::Known { left } = self.state {
            self.received = self.received.saturating_add(bytes);
            self.state = match left.saturating_sub(bytes) {
                0 => BodyState::End,
                left => BodyState::Known { left },
            };
        }
    }

    /// Whether the body has been read to its end.
    pub fn is_complete(&self) -> bool {
        self.state == BodyState::End
    }

    /// Whether the body ends when the peer closes the connection.
    pub fn is_until_close(&self) -> bool {
        self.state == BodyState::UntilClose
    }

    /// The trailers, if there were any and the body has ended. They are never merged with the
    /// head (RFC 9110 section 6.5.1).
    pub fn trailers(&self) -> Option<&Trailers> {
        self.trailers.as_deref().filter(|_| self.is_complete())
    }

    /// Returns the next event in `input`.
    pub fn receive(&mut self, input: &[u8]) -> Result<BodyStep, BodyError> {
        let mut at = 0;
        loop {
            match self.state {
                BodyState::End => return Ok(BodyStep { consumed: at, event: BodyEvent::End }),
                _ if at == input.len() => {
                    return Ok(BodyStep { consumed: at, event: BodyEvent::NeedMore });
                }
                BodyState::Known { left } => {
                    return Ok(self.data(at, input.len(), left, |left| match left {
                        0 => BodyState::End,
                        left => BodyState::Known { left },
                    }));
                }
                BodyState::Chunk { left } => {
                    return Ok(self.data(at, input.len(), left, |left| match left {
                        0 => BodyState::ChunkCr,
                        left => BodyState::Chunk { left },
                    }));
                }
                BodyState::UntilClose => {
                    return Ok(self.data(at, input.len(), u64::MAX, |_| BodyState::UntilClose));
                }
                BodyState::Trailers | BodyState::TrailersStart
                    if input[at] != b'\r' || self.in_trailers() =>
                {
                    at += self.receive_trailers(&input[at..])?;
                }
                _ => {
                    self.state = self.framing(input[at])?;
                    at += 1;
                }
            }
        }
    }

    /// Reports the rest of the input, at most `left` bytes of it.
    fn data(&mut self, at: usize, end: usize, left: u64, next: fn(u64) -> BodyState) -> BodyStep {
        let length = usize::try_from(left).unwrap_or(usize::MAX).min(end - at);
        self.received = self.received.saturating_add(length as u64);
        self.state = next(left - length as u64);
        BodyStep { consumed: at + length, event: BodyEvent::Data(at..at + length) }
    }

    /// One byte of chunk framing (RFC 9112 section 7.1).
    fn framing(&self, c: u8) -> Result<BodyState, BodyError> {
        let after_size = |size, length| match c {
            b'\r' => Ok(BodyState::SizeLf { size }),
            b';' => Ok(BodyState::Extension { size, length }),
            // White space before an extension is "bad" but grammatical; nothing else may follow.
            b' ' | b'\t' if length < CHUNK_EXTENSION_MAX => {
                Ok(BodyState::AfterSize { size, length: length + 1 })
            }
            _ => Err(BodyError::InvalidChunk),
        };
        match self.state {
            BodyState::Size { size, digits } => match hex(c) {
                // "recipients MUST anticipate potentially large hexadecimal numerals and prevent
                // parsing errors due to integer conversion overflows" (RFC 9112 section 7.1).
                Some(_) if digits == CHUNK_DIGITS_MAX => Err(BodyError::InvalidChunk),
                Some(digit) => {
                    let size = size << 4 | u64::from(digit);
                    if size > i64::MAX as u64 {
                        return Err(BodyError::InvalidChunk);
                    }
                    Ok(BodyState::Size { size, digits: digits + 1 })
                }
                None if digits == 0 => Err(BodyError::InvalidChunk),
                None => after_size(size, 0),
            },
            BodyState::AfterSize { size, length } => after_size(size, length),
            BodyState::Extension { size, length } => match c {
                b'\r' => Ok(BodyState::SizeLf { size }),
                b'\n' | 0 => Err(BodyError::InvalidChunk),
                _ if length == CHUNK_EXTENSION_MAX => Err(BodyError::InvalidChunk),
                _ => Ok(BodyState::Extension { size, length: length + 1 }),
            },
            BodyState::SizeLf { size } if c == b'\n' => Ok(match size {
                0 => BodyState::TrailersStart,
                left => BodyState::Chunk { left },
            }),
            BodyState::ChunkCr if c == b'\r' => Ok(BodyState::ChunkLf),
            BodyState::ChunkLf if c == b'\n' => Ok(BodyState::Size { size: 0, digits: 0 }),
            BodyState::TrailersStart if c == b'\r' => Ok(BodyState::LastLf),
            BodyState::LastLf if c == b'\n' => Ok(BodyState::End),
            _ => Err(BodyError::InvalidChunk),
        }
    }

    fn in_trailers(&self) -> bool {
        self.state == BodyState::Trailers
    }

    fn receive_trailers(&mut self, input: &[u8]) -> Result<usize, BodyError> {
        if input.first() == Some(&b'\n') && !self.in_trailers() {
            return Err(BodyError::InvalidChunk);
        }
        self.state = BodyState::Trailers;
        let limits =
            Limits { header_buffer: self.limits.large_buffer, large_buffers: 0, ..self.limits };
        let only_tokens = self.only_tokens;
        let trailers = self.trailers.get_or_insert_with(|| {
            let reader = HeadProgress::fields_only(&limits);
            Box::new(Trailers { reader, only_tokens, ..Trailers::default() })
        });
        let mut reader = trailers.reader;
        let (consumed, complete) = reader.receive(trailers.as_mut(), &limits, input)?;
        trailers.reader = reader;
        if complete {
            self.state = BodyState::End;
        }
        Ok(consumed)
    }
}

/// The fields after a chunked body (RFC 9112 section 7.1.2).
#[derive(Debug, Default)]
pub struct Trailers {
    bytes: Vec<u8>,
    fields: FieldTable,
    reader: HeadProgress,
    only_tokens: bool,
}

impl Trailers {
    /// The fields in the order received.
    pub fn fields(&self) -> Fields<'_> {
        self.fields.view(&self.bytes)
    }
}

impl HeadLines for Trailers {
    type Error = BodyError;

    fn first_line(&mut self, _: &[u8]) -> Result<ParsedLine<()>, BodyError> {
        Err(BodyError::InvalidTrailers) // a section of fields only never asks
    }

    fn is_simple(&self) -> bool {
        false
    }

    fn field(&mut self, bytes: &[u8], limits: &Limits, field: FieldSpans) -> Result<(), BodyError> {
        if field.odd && self.only_tokens && !is_token(field.name.of(bytes)) {
            return Err(BodyError::InvalidTrailers);
        }
        if field.odd && limits.ignore_invalid_headers {
            return Ok(());
        }
        if self.fields.len() >= usize::from(limits.headers_max) {
            return Err(BodyError::TrailersTooLarge);
        }
        self.fields.push(field.name, field.value, field.known);
        Ok(())
    }

    fn bad_field(&mut self, _: Span, _: u8) -> BodyError {
        BodyError::InvalidTrailers
    }

    fn too_long(&mut self, _: bool, _: Span) -> BodyError {
        BodyError::TrailersTooLarge
    }

    fn finish(&mut self, _: usize) -> Result<(), BodyError> {
        // A head may end its lines with a bare LF; chunked framing may not.
        let mut last = 0;
        for &c in &self.bytes {
            if c == b'\n' && last != b'\r' {
                return Err(BodyError::InvalidTrailers);
            }
            last = c;
        }
        Ok(())
    }

    fn bytes(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }
}
