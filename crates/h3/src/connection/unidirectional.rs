//! The peer's unidirectional streams (RFC 9114 section 6.2): their types, and what must not happen to them.

use super::{CONTROL, Connection, DECODER, ENCODER, Event, ReceiveStep, Role};
use crate::error::{ConnectionError, ErrorCode, Flood};
use crate::frame::{PartialIntegers, StreamId};
use crate::qpack::Refused;
use crate::stream::ReadState;

/// The type of a push stream.
const PUSH: u64 = 0x1;

/// The streams of the peer.
#[derive(Debug, Default)]
pub(super) struct Unidirectional {
    /// Those that last as long as the connection, by their type.
    control: Option<StreamId>,
    encoder: Option<StreamId>,
    decoder: Option<StreamId>,
    /// Those whose type has not come. The transport bounds their number.
    new: Vec<(StreamId, PartialIntegers)>,
}

/// What a unidirectional stream carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Content {
    Control,
    Encoder,
    Decoder,
    Unknown,
}

impl Unidirectional {
    /// A stream was opened.
    pub(super) fn open(&mut self, stream: StreamId) {
        self.new.push((stream, PartialIntegers::default()));
    }

    /// A stream was closed. "If either control stream is closed at any point, this MUST be treated as a connection error
    /// of type H3_CLOSED_CRITICAL_STREAM." RFC 9204 section 4.2 says the same of its streams.
    pub(super) fn closed(&mut self, stream: StreamId) -> Result<(), ConnectionError> {
        self.new.retain(|(new, _)| *new != stream);
        match self.content(stream) {
            Content::Unknown => Ok(()),
            _ => Err(ConnectionError::ClosedCriticalStream),
        }
    }

    /// All that are being read.
    pub(super) fn all(&self) -> Vec<StreamId> {
        let known = [self.control, self.encoder, self.decoder];
        known.into_iter().flatten().chain(self.new.iter().map(|(new, _)| *new)).collect()
    }

    fn content(&self, stream: StreamId) -> Content {
        match Some(stream) {
            stream if stream == self.control => Content::Control,
            stream if stream == self.encoder => Content::Encoder,
            stream if stream == self.decoder => Content::Decoder,
            _ => Content::Unknown,
        }
    }

    pub(super) fn heap(&self) -> usize {
        self.new.capacity() * size_of::<(StreamId, PartialIntegers)>()
    }
}

/// The state of the peer's control stream.
#[derive(Debug)]
pub(super) struct ControlReader {
    pub(super) reading: ReadState,
    pub(super) header: PartialIntegers,
    /// An incomplete payload.
    pub(super) kept: Vec<u8>,
    pub(super) has_settings: bool,
}

impl Default for ControlReader {
    fn default() -> Self {
        ControlReader {
            reading: ReadState::Header,
            header: PartialIntegers::default(),
            kept: Vec::new(),
            has_settings: false,
        }
    }
}

impl ControlReader {
    pub(super) fn heap(&self) -> usize {
        self.kept.capacity()
    }
}

impl<R: Role> Connection<R> {
    /// Takes input of a unidirectional stream.
    pub(super) fn unidirectional(
        &mut self,
        stream: StreamId,
        input: &[u8],
        end: bool,
    ) -> Result<ReceiveStep, ConnectionError> {
        let mut at = 0;
        if let Some(new) = self.unidirectional.new.iter().position(|(new, _)| *new == stream) {
            let (taken, kind) = self.unidirectional.new[new].1.integer(input);
            at = taken;
            let Some(kind) = kind else {
                if end {
                    self.unidirectional.closed(stream)?;
                }
                return Ok(ReceiveStep { consumed: at, event: Event::NeedMore });
            };
            self.unidirectional.new.swap_remove(new);
            if !self.begins(stream, kind)? {
                let code = ErrorCode::H3_STREAM_CREATION_ERROR;
                return Ok(ReceiveStep { consumed: input.len(), event: Event::Useless { code } });
            }
        }
        let rest = &input[at..];
        let step = match self.unidirectional.content(stream) {
            Content::Control => self.control(rest)?,
            Content::Encoder => {
                self.instructions(rest)?;
                ReceiveStep { consumed: rest.len(), event: Event::NeedMore }
            }
            Content::Decoder => {
                let count = self.encoder.receive(rest).map_err(ConnectionError::DecoderStream)?;
                // Sections that need none pay for them.
                for _ in 0..count {
                    self.budgets.spend(Flood::Insertions)?;
                }
                ReceiveStep { consumed: rest.len(), event: Event::NeedMore }
            }
            Content::Unknown => ReceiveStep { consumed: rest.len(), event: Event::NeedMore },
        };
        if end && step.event == Event::NeedMore {
            self.unidirectional.closed(stream)?;
        }
        Ok(ReceiveStep { consumed: at + step.consumed, event: step.event })
    }

    /// The type of a stream has come. False: it has none that is known.
    fn begins(&mut self, stream: StreamId, kind: u64) -> Result<bool, ConnectionError> {
        const CONTROL_TYPE: u64 = CONTROL as u64;
        const ENCODER_TYPE: u64 = ENCODER as u64;
        const DECODER_TYPE: u64 = DECODER as u64;
        let streams = &mut self.unidirectional;
        let place = match kind {
            CONTROL_TYPE => &mut streams.control,
            ENCODER_TYPE => &mut streams.encoder,
            DECODER_TYPE => &mut streams.decoder,
            // "Only servers can push; if a server receives a client-initiated push stream, this MUST be treated as a
            // connection error of type H3_STREAM_CREATION_ERROR." A client that has sent no MAX_PUSH_ID treats any as
            // one of H3_ID_ERROR.
            PUSH if R::CLIENT => {
                return Err(ConnectionError::Identifier(crate::FrameType::PushPromise));
            }
            PUSH => return Err(ConnectionError::UnexpectedStream),
            // "Recipients of unknown stream types MUST either abort reading of the stream or discard incoming data".
            _ => {
                self.budgets.spend(Flood::Frames)?;
                return Ok(false);
            }
        };
        // "Only one control stream per peer is permitted; receipt of a second stream claiming to be a control stream
        // MUST be treated as a connection error". RFC 9204 section 4.2 says the same of its streams.
        match place.replace(stream) {
            Some(_) => Err(ConnectionError::UnexpectedStream),
            None => Ok(true),
        }
    }

    /// Takes input of the peer's encoder stream.
    fn instructions(&mut self, input: &[u8]) -> Result<(), ConnectionError> {
        let mut allowed = self.budgets.insertions();
        let result = self.decoder.receive(input, &mut allowed);
        self.budgets.insertions_left(allowed);
        self.bound_output()?;
        result.map_err(|refused| match refused {
            Refused::Invalid(error) => ConnectionError::EncoderStream(error),
            Refused::TooMany => ConnectionError::Flood(Flood::Insertions),
        })
    }

    /// Whether the peer takes what we have to tell it.
    pub(super) fn bound_output(&mut self) -> Result<(), ConnectionError> {
        let longest = self.output.len().max(self.decoder.output.len());
        if longest > super::OUTPUT_MAX {
            return Err(ConnectionError::Flood(Flood::Unread));
        }
        Ok(())
    }
}
