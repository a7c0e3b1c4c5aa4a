//! The peer's control stream: SETTINGS, GOAWAY, priorities.

use nowait_fields::Priority;

use super::{Connection, Event, ReceiveStep, Role};
use crate::error::{ConnectionError, Flood};
use crate::frame::{FrameType, StreamId, number, read_varint};
use crate::settings::Settings;
use crate::stream::ReadState;

/// The longest SETTINGS frame in bytes: 64 settings.
const SETTINGS_MAX: u64 = 1024;

/// The longest PRIORITY_UPDATE frame in bytes: known members take six.
const PRIORITY_UPDATE_MAX: u64 = 8 + 256;

/// The longest frame that consists of an integer.
const NUMBER_MAX: u64 = 8;

/// Priorities that are kept for requests that have not come; more are ignored.
const ANNOUNCED_MAX: usize = 32;

impl<R: Role> Connection<R> {
    /// Takes input of the control stream up to an event.
    pub(super) fn control(&mut self, input: &[u8]) -> Result<ReceiveStep, ConnectionError> {
        let mut at = 0;
        loop {
            let rest = &input[at..];
            if rest.is_empty() && !matches!(self.control.reading, ReadState::Payload(_, 0)) {
                return Ok(ReceiveStep { consumed: at, event: Event::NeedMore });
            }
            match self.control.reading {
                ReadState::Header => {
                    let (taken, header) = self.control.header.frame(rest);
                    at += taken;
                    if let Some((kind, length)) = header {
                        self.control.reading = self.control_begins(kind, length)?;
                    }
                }
                ReadState::Payload(kind, length) => {
                    let needed = length as usize - self.control.kept.len();
                    let Some(end) = rest.get(..needed) else {
                        self.control.kept.extend_from_slice(rest);
                        return Ok(ReceiveStep { consumed: input.len(), event: Event::NeedMore });
                    };
                    at += needed;
                    self.control.reading = ReadState::Header;
                    let mut payload = std::mem::take(&mut self.control.kept);
                    payload.extend_from_slice(end);
                    if let Some(event) = self.control_frame(kind, &payload)? {
                        return Ok(ReceiveStep { consumed: at, event });
                    }
                }
                ReadState::Skip(left) | ReadState::Data(left) => {
                    let length = left.min(rest.len() as u64);
                    at += length as usize;
                    self.control.reading = match left - length {
                        0 => ReadState::Header,
                        left => ReadState::Skip(left),
                    };
                }
            }
        }
    }

    /// Decides by the header alone whether the frame may come, before any of it is kept.
    fn control_begins(
        &mut self,
        kind: FrameType,
        length: u64,
    ) -> Result<ReadState, ConnectionError> {
        // "If the first frame of the control stream is any other frame type, this MUST be treated as a connection error
        // of type H3_MISSING_SETTINGS."
        if !self.control.has_settings && kind != FrameType::Settings {
            return Err(ConnectionError::MissingSettings);
        }
        let max = match kind {
            FrameType::Settings if self.control.has_settings => {
                return Err(ConnectionError::UnexpectedFrame(kind));
            }
            FrameType::Settings => {
                self.control.has_settings = true;
                SETTINGS_MAX
            }
            FrameType::GoAway | FrameType::CancelPush => NUMBER_MAX,
            // "A server MUST NOT send a MAX_PUSH_ID frame."
            FrameType::MaxPushId if !R::CLIENT => NUMBER_MAX,
            // "Only a client may send" them (RFC 9218 section 7.2).
            FrameType::PriorityUpdate if !R::CLIENT => PRIORITY_UPDATE_MAX,
            FrameType::PriorityUpdatePush if !R::CLIENT => PRIORITY_UPDATE_MAX,
            FrameType::Data
            | FrameType::Headers
            | FrameType::PushPromise
            | FrameType::MaxPushId
            | FrameType::PriorityUpdate
            | FrameType::PriorityUpdatePush
            | FrameType::Reserved => return Err(ConnectionError::UnexpectedFrame(kind)),
            FrameType::Unknown => {
                self.budgets.spend(Flood::Frames)?;
                return Ok(if length == 0 { ReadState::Header } else { ReadState::Skip(length) });
            }
        };
        match u32::try_from(length) {
            Ok(small) if length <= max => Ok(ReadState::Payload(kind, small)),
            _ if max == NUMBER_MAX => Err(ConnectionError::FrameLength(kind)),
            _ => Err(ConnectionError::FrameTooLarge(kind)),
        }
    }

    /// A frame is complete.
    fn control_frame(
        &mut self,
        kind: FrameType,
        payload: &[u8],
    ) -> Result<Option<Event>, ConnectionError> {
        if kind == FrameType::Settings {
            self.peer = Settings::parse(payload)?;
            self.encoder.allow(self.peer.table_capacity);
            return Ok(Some(Event::Settings));
        }
        self.budgets.spend(Flood::Frames)?;
        match kind {
            FrameType::GoAway => self.peer_goes_away(payload).map(Some),
            FrameType::MaxPushId => {
                let id = number(payload).ok_or(ConnectionError::FrameLength(kind))?;
                // "receipt of a MAX_PUSH_ID frame that contains a smaller value than previously received MUST be treated
                // as a connection error of type H3_ID_ERROR."
                if id < self.push_max {
                    return Err(ConnectionError::Identifier(kind));
                }
                self.push_max = id;
                Ok(None)
            }
            // Nothing is pushed: no push can be named.
            FrameType::CancelPush => match number(payload) {
                Some(_) => Err(ConnectionError::Identifier(kind)),
                None => Err(ConnectionError::FrameLength(kind)),
            },
            FrameType::PriorityUpdate => self.priority_update(payload),
            FrameType::PriorityUpdatePush => Err(ConnectionError::Identifier(kind)),
            _ => Ok(None),
        }
    }

    fn peer_goes_away(&mut self, payload: &[u8]) -> Result<Event, ConnectionError> {
        let kind = FrameType::GoAway;
        let id = number(payload).ok_or(ConnectionError::FrameLength(kind))?;
        let first = StreamId::new(id);
        // "A client that receives a GOAWAY frame containing a stream ID of any other type MUST treat it as a connection
        // error of type H3_ID_ERROR." A larger one than before is such an error, too.
        let is_larger = self.accepted.is_some_and(|accepted| first > accepted);
        if is_larger || (R::CLIENT && !first.is_request()) {
            return Err(ConnectionError::Identifier(kind));
        }
        self.accepted = Some(first);
        Ok(Event::GoAway { first })
    }

    /// A stream's priority, which may come before its request (RFC 9218 section 7.2).
    fn priority_update(&mut self, payload: &[u8]) -> Result<Option<Event>, ConnectionError> {
        let kind = FrameType::PriorityUpdate;
        let (id, length) = read_varint(payload).ok_or(ConnectionError::FrameLength(kind))?;
        let stream = StreamId::new(id);
        // "If a server receives a PRIORITY_UPDATE (type=0xF0700) that references [...] a non-request stream ID, this
        // MUST be treated as a connection error of type H3_ID_ERROR".
        if !stream.is_request() {
            return Err(ConnectionError::Identifier(kind));
        }
        let priority = Priority::parse(&payload[length..]);
        if let Some(open) = self.streams.get_mut(stream) {
            open.turn.update(priority);
            return Ok(Some(Event::Priority { stream }));
        }
        if stream.get() >= self.next_remote {
            self.announced.retain(|(other, _)| *other != stream);
            if self.announced.len() < ANNOUNCED_MAX {
                self.announced.push((stream, priority));
            }
        }
        Ok(None)
    }
}
