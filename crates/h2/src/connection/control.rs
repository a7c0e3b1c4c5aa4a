//! Frames about streams and the connection: SETTINGS, WINDOW_UPDATE, RST_STREAM, PING, GOAWAY,
//! PRIORITY.

use super::{Connection, Event, Role};
use crate::Priority;
use crate::error::{ConnectionError, ErrorCode, Flood, StreamError};
use crate::frame::{Flags, FrameHeader, FrameType, StreamId};
use crate::frames::{self, Setting};
use crate::stream::Local;

/// Priorities that are kept for requests that have not come; more are ignored.
const ANNOUNCED_MAX: usize = 32;

impl<R: Role> Connection<R> {
    /// PRIORITY has no effect (RFC 9113 section 5.3.2) but may come for any stream.
    pub(super) fn priority(
        &mut self,
        header: FrameHeader,
        payload: &[u8],
    ) -> Result<Option<Event>, ConnectionError> {
        frames::dependency(&header, payload)?;
        self.budgets.spend(Flood::Frames)?;
        Ok(None)
    }

    /// A stream's priority, which may come before its request (RFC 9218 section 7.1).
    pub(super) fn priority_update(
        &mut self,
        payload: &[u8],
    ) -> Result<Option<Event>, ConnectionError> {
        self.budgets.spend(Flood::Frames)?;
        let Some((number, value)) = payload.split_first_chunk() else { return Ok(None) };
        let stream = StreamId::new(u32::from_be_bytes(*number));
        // "Servers MUST NOT send PRIORITY_UPDATE frames", and nothing pushes.
        if R::CLIENT || !stream.is_client() {
            return Err(ConnectionError::StreamIdentifier(FrameType::PriorityUpdate));
        }
        let priority = Priority::parse(value);
        if let Some(open) = self.streams.get_mut(stream) {
            open.turn.update(priority);
        } else if self.is_idle(stream) {
            self.announced.retain(|(other, _)| *other != stream);
            if self.announced.len() < ANNOUNCED_MAX {
                self.announced.push((stream, priority));
            }
        }
        Ok(None)
    }

    pub(super) fn rst_stream(
        &mut self,
        header: FrameHeader,
        payload: &[u8],
    ) -> Result<Option<Event>, ConnectionError> {
        let stream = header.stream;
        if self.is_idle(stream) {
            return Err(ConnectionError::IdleStream(FrameType::RstStream));
        }
        let Some(open) = self.streams.get(stream) else {
            self.budgets.spend(Flood::Frames)?;
            return Ok(None);
        };
        // A request that is withdrawn before its response has cost us everything and the client
        // nothing (CVE-2023-44487).
        if !R::CLIENT && open.local != Local::Ended {
            self.budgets.spend(Flood::Resets)?;
        }
        self.forget(stream);
        Ok(Some(Event::Reset { stream, code: frames::code(payload) }))
    }

    pub(super) fn settings(
        &mut self,
        header: FrameHeader,
        payload: &[u8],
    ) -> Result<Option<Event>, ConnectionError> {
        if header.flags.has(Flags::ACK) {
            if self.acknowledged {
                self.budgets.spend(Flood::Frames)?;
            } else {
                self.acknowledged = true;
                self.decoder.allow(self.limits.header_table_size);
            }
            return Ok(None);
        }
        if std::mem::replace(&mut self.has_settings, true) {
            self.budgets.spend(Flood::Frames)?;
        }
        let before = self.peer.initial_window_size;
        for setting in Setting::all(payload) {
            self.peer.apply(setting)?;
            match setting {
                // The smallest of several sizes matters, too.
                Setting { id: Setting::HEADER_TABLE_SIZE, value } => self.encoder.allow(value),
                // "A server MUST NOT explicitly set this value to 1."
                Setting { id: Setting::ENABLE_PUSH, value: 1 } if R::CLIENT => {
                    return Err(ConnectionError::InvalidSetting(Setting::ENABLE_PUSH));
                }
                _ => {}
            }
        }
        // "a receiver MUST adjust the size of all stream flow-control windows that it maintains by the
        // difference between the new value and the old value."
        let change = i64::from(self.peer.initial_window_size) - i64::from(before);
        if change != 0 {
            for stream in self.streams.iter_mut() {
                if !stream.send.change(change) {
                    return Err(ConnectionError::InitialWindow);
                }
                stream.stalled &= stream.send.open() == 0;
            }
        }
        frames::settings_ack(&mut self.output);
        Ok(Some(Event::Settings))
    }

    pub(super) fn pinged(
        &mut self,
        header: FrameHeader,
        payload: &[u8],
    ) -> Result<Option<Event>, ConnectionError> {
        let payload =
            *payload.first_chunk().ok_or(ConnectionError::FrameLength(FrameType::Ping))?;
        self.budgets.spend(Flood::Frames)?;
        if header.flags.has(Flags::ACK) {
            return Ok(Some(Event::Pong { payload }));
        }
        frames::ping(&mut self.output, payload, true);
        Ok(None)
    }

    pub(super) fn peer_goes_away(
        &mut self,
        payload: &[u8],
    ) -> Result<Option<Event>, ConnectionError> {
        self.budgets.spend(Flood::Frames)?;
        let (last, code) = frames::last_and_code(payload);
        // "Endpoints MUST NOT increase the value they send in the last stream identifier".
        self.accepted = Some(self.accepted.map_or(last, |accepted| accepted.min(last)));
        Ok(Some(Event::GoAway { last, code }))
    }

    /// The next stream that the peer's GOAWAY has left unprocessed.
    pub(super) fn unprocessed(&mut self) -> Option<Event> {
        let accepted = self.accepted.filter(|_| R::CLIENT)?;
        let stream = self.streams.last().filter(|&last| last > accepted)?;
        self.forget(stream);
        Some(Event::Reset { stream, code: ErrorCode::REFUSED_STREAM })
    }

    pub(super) fn window_update(
        &mut self,
        header: FrameHeader,
        payload: &[u8],
    ) -> Result<Option<Event>, ConnectionError> {
        let increment = frames::increment(payload);
        self.budgets.window(increment)?;
        if header.stream == StreamId::CONNECTION {
            return self.connection_window_update(increment);
        }
        let stream = header.stream;
        if self.is_idle(stream) {
            return Err(ConnectionError::IdleStream(FrameType::WindowUpdate));
        }
        // "A receiver MUST NOT treat this as an error": the stream has just been closed.
        let Some(open) = self.streams.get_mut(stream) else { return Ok(None) };
        if increment == 0 {
            return self.stream_error(stream, StreamError::ZeroIncrement).map(Some);
        }
        if !open.send.change(increment.into()) {
            return self.stream_error(stream, StreamError::WindowOverflow).map(Some);
        }
        let open_now = open.stalled && open.send.open() > 0;
        open.stalled &= !open_now;
        Ok(open_now.then_some(Event::Window { stream }))
    }

    fn connection_window_update(
        &mut self,
        increment: u32,
    ) -> Result<Option<Event>, ConnectionError> {
        if increment == 0 {
            return Err(ConnectionError::ZeroIncrement);
        }
        if !self.send.change(increment.into()) {
            return Err(ConnectionError::WindowOverflow);
        }
        let stalled = std::mem::replace(&mut self.stalled, false);
        Ok(stalled.then_some(Event::Window { stream: StreamId::CONNECTION }))
    }
}
