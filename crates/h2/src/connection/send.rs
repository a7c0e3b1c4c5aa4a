//! Writing heads and DATA, as far as windows and frame sizes allow. Payloads are never copied: the
//! caller sends them behind the header that it gets here.

use bytes::BufMut;
use nowait_fields::is_connection_specific;
use nowait_fields::write::{cleaned, decimal, is_clean};
use nowait_message::scan;

use super::{Connection, Role};
use crate::Priority;
use crate::error::ErrorCode;
use crate::frame::{Flags, FrameHeader, FrameType, HEADER_LEN, StreamId};
use crate::frames;
use crate::hpack::Token;
use crate::stream::{Local, Remote, StreamState};

/// The reason why a frame can't be sent. No bytes were written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SendError {
    /// The stream is closed: reset by the peer, or never opened. The caller drops it.
    Closed,
    /// Not now: a second head, DATA before the head or after the end. A fault of the caller.
    OutOfOrder,
    /// More DATA than [`Connection::reserve`] allows. A fault of the caller.
    BeyondWindow,
}

impl std::fmt::Display for SendError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            SendError::Closed => "the stream is closed",
            SendError::OutOfOrder => "frames of the stream are out of order",
            SendError::BeyondWindow => "more data than the window allows",
        })
    }
}

impl std::error::Error for SendError {}

/// The kind of a head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HeadKind {
    Head,
    Interim,
    Trailers,
}

impl<R: Role> Connection<R> {
    /// How many of `wanted` bytes the next DATA frame may have. If none, [`crate::Event::Window`] or
    /// [`crate::Event::Settings`] tells when to ask again; for a stream that is gone, never.
    pub fn reserve(&mut self, stream: StreamId, wanted: usize) -> usize {
        let Some(open) = self.streams.get_mut(stream) else { return 0 };
        if open.local != Local::Open || wanted == 0 {
            return 0;
        }
        let frame = self.peer.max_frame_size as usize;
        let (own, shared) = (open.send.open(), self.send.open());
        open.stalled = own == 0;
        self.stalled |= shared == 0;
        wanted.min(frame).min(own).min(shared)
    }

    /// Writes what precedes `length` bytes of DATA, which the caller sends right behind it. `end`
    /// ends the message.
    pub fn data_header<B: BufMut>(
        &mut self,
        stream: StreamId,
        length: usize,
        end: bool,
        out: &mut B,
    ) -> Result<(), SendError> {
        let open = self.streams.get_mut(stream).ok_or(SendError::Closed)?;
        if open.local != Local::Open {
            return Err(SendError::OutOfOrder);
        }
        let frame = self.peer.max_frame_size as usize;
        if length > open.send.open().min(self.send.open()).min(frame) {
            return Err(SendError::BeyondWindow);
        }
        open.send.send(length);
        self.send.send(length);
        self.sent += length as u64;
        self.budgets.sent(&self.limits, length);
        self.poll_output(out);
        frames::data_header(out, stream, length, end);
        if end {
            self.local_ends(stream);
        }
        Ok(())
    }

    /// Resets a stream. A server that has responded before the request's end does so with
    /// [`ErrorCode::NO_ERROR`]. No effect if the stream is closed.
    pub fn reset(&mut self, stream: StreamId, code: ErrorCode) {
        if self.streams.get(stream).is_some() {
            self.end_stream(stream, code);
        }
    }

    /// Puts a stream into the round, or takes it out, for [`Connection::next_ready`].
    pub fn set_ready(&mut self, stream: StreamId, ready: bool) {
        self.streams.set_ready(stream, ready);
    }

    /// Sets the priority that a request's `Priority` field states. A PRIORITY_UPDATE frame that has come
    /// already has precedence.
    pub fn set_priority(&mut self, stream: StreamId, priority: Priority) {
        self.streams.set_priority(stream, priority);
    }

    /// The stream whose turn it is to send DATA: of the most urgent ones set ready that have window, the
    /// next after the last one. Of those that are not incremental, only the first has turns. Small frames
    /// in turn keep large responses from starving small ones.
    pub fn next_ready(&mut self) -> Option<StreamId> {
        if self.send.open() == 0 {
            return None;
        }
        self.streams.next_ready(|stream| stream.send.open() > 0)
    }

    /// Whether [`next_ready`](Self::next_ready) would find a stream.
    pub fn has_next(&self) -> bool {
        let sends = |stream: &StreamState| stream.turn.ready && stream.send.open() > 0;
        self.send.open() > 0 && self.streams.iter().any(sends)
    }

    /// Whether any stream is set ready.
    pub fn has_ready(&self) -> bool {
        self.streams.has_ready()
    }

    /// Our message is complete.
    pub(super) fn local_ends(&mut self, stream: StreamId) {
        let Some(open) = self.streams.get_mut(stream) else { return };
        open.local = Local::Ended;
        open.turn.ready = false;
        match open.remote {
            Remote::Ended => self.forget(stream),
            Remote::Faulty(code) => return self.end_stream(stream, code),
            _ => {}
        }
        if !R::CLIENT {
            self.budgets.message(&self.limits);
        }
    }

    /// Begins a field block in the caller's buffer.
    pub(crate) fn begin_block<'a, B: BufMut + AsMut<[u8]>>(
        &'a mut self,
        stream: StreamId,
        block: HeadKind,
        out: &'a mut B,
    ) -> Result<HeadWriter<'a, R, B>, SendError> {
        let open = self.streams.get(stream).ok_or(SendError::Closed)?;
        let allowed = match block {
            HeadKind::Head | HeadKind::Interim => open.local == Local::Waiting,
            HeadKind::Trailers => open.local == Local::Open,
        };
        if !allowed {
            return Err(SendError::OutOfOrder);
        }
        self.poll_output(out);
        let start = out.as_mut().len();
        out.put_slice(&[0; HEADER_LEN]);
        self.encoder.begin(out);
        Ok(HeadWriter { connection: self, out, start, stream, block })
    }
}

/// Writes one head or trailer section.
///
/// Never emitted, for any input of the caller: CR, LF or NUL in a value (each becomes a space), white
/// space at its ends, names that are no tokens, and fields that HTTP/2 does not have (`Connection`,
/// `Transfer-Encoding`, …).
#[derive(Debug)]
#[must_use = "a head ends with `finish`; without it the connection is unusable"]
pub struct HeadWriter<'a, R, B> {
    connection: &'a mut Connection<R>,
    out: &'a mut B,
    /// Where the frame header will be.
    start: usize,
    stream: StreamId,
    block: HeadKind,
}

impl<R: Role, B: BufMut + AsMut<[u8]>> HeadWriter<'_, R, B> {
    /// The stream.
    pub fn stream(&self) -> StreamId {
        self.stream
    }

    /// Adds a field. Letters of the name are folded to lower case.
    pub fn field(&mut self, name: &[u8], value: &[u8]) -> &mut Self {
        self.checked_field(name, value, false)
    }

    /// Adds a field that no HPACK table may hold ("never indexed"). `Authorization`, `Set-Cookie` and short
    /// cookies are always sent like this.
    pub fn sensitive_field(&mut self, name: &[u8], value: &[u8]) -> &mut Self {
        self.checked_field(name, value, true)
    }

    /// Adds a field whose name has a token: neither a check of the name nor a look-up is needed. The
    /// value may come from anywhere. Not for pseudo-fields and fields that HTTP/2 lacks.
    pub fn known(&mut self, token: Token, value: &[u8]) -> &mut Self {
        debug_assert!(scan::is_token(token.name()), "not a regular field: {token:?}");
        debug_assert!(!is_connection_specific(token.name(), value), "not in HTTP/2: {token:?}");
        // A value in the table was cleaned before it got there.
        if !self.connection.encoder.repeat(self.out, token, value) {
            self.known_anew(token, value);
        }
        self
    }

    #[inline(never)]
    fn known_anew(&mut self, token: Token, value: &[u8]) {
        let encoder = &mut self.connection.encoder;
        let value = scan::trim(value);
        if is_clean(value) {
            encoder.known(self.out, token, value, false);
        } else {
            encoder.known(self.out, token, &cleaned(value), false);
        }
    }

    /// Adds a field with a number.
    pub fn field_number(&mut self, name: &[u8], number: u64) -> &mut Self {
        let (digits, at) = decimal(number);
        self.field(name, &digits[at..])
    }

    /// Adds a field with a number, as [`known`](Self::known) does.
    pub fn known_number(&mut self, token: Token, number: u64) -> &mut Self {
        let (digits, at) = decimal(number);
        self.known(token, &digits[at..])
    }

    fn checked_field(&mut self, name: &[u8], value: &[u8], sensitive: bool) -> &mut Self {
        let value = scan::trim(value);
        if !scan::is_token(name) || is_connection_specific(name, value) {
            return self;
        }
        let encoder = &mut self.connection.encoder;
        if is_clean(value) {
            encoder.field(self.out, name, value, sensitive);
        } else {
            encoder.field(self.out, name, &cleaned(value), sensitive);
        }
        self
    }

    /// Adds a pseudo-field. They come first.
    pub(crate) fn pseudo(&mut self, token: Token, value: &[u8]) {
        let encoder = &mut self.connection.encoder;
        if is_clean(value) {
            encoder.known(self.out, token, value, false);
        } else {
            encoder.known(self.out, token, &cleaned(value), false);
        }
    }

    /// Adds `:protocol`, which the static table lacks.
    pub(crate) fn protocol(&mut self, value: &[u8]) {
        self.connection.encoder.field(self.out, b":protocol", &cleaned(value), false);
    }

    /// Ends the block. `end` ends the message; trailers always do, interim responses never.
    pub fn finish(self, end: bool) -> StreamId {
        let end = match self.block {
            HeadKind::Head => end,
            HeadKind::Interim => false,
            HeadKind::Trailers => true,
        };
        let frame_max = self.connection.peer.max_frame_size as usize;
        write_headers(self.out, self.start, self.stream, end, frame_max);
        if let Some(open) = self.connection.streams.get_mut(self.stream)
            && self.block == HeadKind::Head
        {
            open.local = Local::Open;
        }
        if end {
            self.connection.local_ends(self.stream);
        }
        self.stream
    }
}

/// Writes the frame header in front of a block, and those of CONTINUATION frames into it if it is
/// larger than a frame.
fn write_headers<B: BufMut + AsMut<[u8]>>(
    out: &mut B,
    start: usize,
    stream: StreamId,
    end: bool,
    frame_max: usize,
) {
    let block = start + HEADER_LEN;
    let length = out.as_mut().len() - block;
    let more = length.div_ceil(frame_max).saturating_sub(1);
    for _ in 0..more {
        out.put_slice(&[0; HEADER_LEN]);
    }
    let octets = out.as_mut();
    // From the last: each part moves behind the header in front of it.
    for part in (0..=more).rev() {
        let from = block + part * frame_max;
        let length = (length - part * frame_max).min(frame_max);
        let to = from + part * HEADER_LEN;
        octets.copy_within(from..from + length, to);
        let kind = if part == 0 { FrameType::Headers } else { FrameType::Continuation };
        let flags = Flags::NONE
            .with(Flags::END_STREAM, end && part == 0)
            .with(Flags::END_HEADERS, part == more);
        let header = FrameHeader { length: length as u32, kind, flags, stream };
        octets[to - HEADER_LEN..to].copy_from_slice(&header.octets());
    }
}
