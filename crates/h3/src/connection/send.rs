//! Writing heads and the headers of DATA frames. Payloads are never copied: the caller sends them behind the header that
//! it gets here.

use bytes::BufMut;
use nowait_fields::write::{cleaned, decimal, is_clean};
use nowait_fields::{Priority, Token, is_connection_specific};
use nowait_message::scan;

use super::{Connection, Role};
use crate::frame::{StreamId, write_varint};
use crate::stream::{Local, Remote};

/// The type of DATA.
const DATA: u64 = 0x0;
/// The type of HEADERS.
const HEADERS: u64 = 0x1;

/// The reason why a frame can't be sent. No bytes were written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SendError {
    /// The stream is closed, or was never opened. The caller drops it.
    Closed,
    /// Not now: a second head, DATA before the head or after the end. A fault of the caller.
    OutOfOrder,
}

impl std::fmt::Display for SendError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            SendError::Closed => "the stream is closed",
            SendError::OutOfOrder => "frames of the stream are out of order",
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
    /// Writes what precedes `length` bytes of DATA, which the caller sends right behind it: a part of the body of any
    /// length, or all of it.
    pub fn data_header<B: BufMut>(
        &mut self,
        stream: StreamId,
        length: u64,
        out: &mut B,
    ) -> Result<(), SendError> {
        let open = self.streams.get(stream).ok_or(SendError::Closed)?;
        if open.local != Local::Open {
            return Err(SendError::OutOfOrder);
        }
        self.budgets.content(&self.limits, length);
        write_varint(out, DATA);
        write_varint(out, length);
        Ok(())
    }

    /// Our message ends here: the caller ends its half of the stream when everything was sent.
    pub fn end(&mut self, stream: StreamId) {
        let Some(open) = self.streams.get_mut(stream) else { return };
        open.local = Local::Ended;
        open.turn.ready = false;
        if open.remote == Remote::Ended {
            self.streams.remove(stream);
        }
        if !R::CLIENT {
            self.budgets.message(&self.limits);
        }
    }

    /// Puts a stream into the round, or takes it out, for [`Connection::next_ready`].
    pub fn set_ready(&mut self, stream: StreamId, ready: bool) {
        self.streams.set_ready(stream, ready);
    }

    /// Sets the priority that a request's `Priority` field states. A PRIORITY_UPDATE frame that has come already has
    /// precedence.
    pub fn set_priority(&mut self, stream: StreamId, priority: Priority) {
        self.streams.set_priority(stream, priority);
    }

    /// The priority of a stream.
    pub fn priority(&self, stream: StreamId) -> Priority {
        self.streams.get(stream).map(|open| open.turn.priority).unwrap_or_default()
    }

    /// The stream whose turn it is to send DATA: of the most urgent ones set ready, the next after the last one. Of those
    /// that are not incremental, only the first has turns.
    pub fn next_ready(&mut self) -> Option<StreamId> {
        self.streams.next_ready(|_| true)
    }

    /// Whether any stream is set ready.
    pub fn has_ready(&self) -> bool {
        self.streams.has_ready()
    }

    /// Begins trailers, which end the message.
    pub fn trailers_of<'a, B: BufMut>(
        &'a mut self,
        stream: StreamId,
        out: &'a mut B,
    ) -> Result<HeadWriter<'a, R, B>, SendError> {
        self.begin_section(stream, HeadKind::Trailers, out)
    }

    /// Begins a field section.
    pub(crate) fn begin_section<'a, B: BufMut>(
        &'a mut self,
        stream: StreamId,
        kind: HeadKind,
        out: &'a mut B,
    ) -> Result<HeadWriter<'a, R, B>, SendError> {
        let open = self.streams.get(stream).ok_or(SendError::Closed)?;
        let allowed = match kind {
            HeadKind::Head | HeadKind::Interim => open.local == Local::Waiting,
            HeadKind::Trailers => open.local == Local::Open,
        };
        if !allowed {
            return Err(SendError::OutOfOrder);
        }
        self.encoder.begin();
        Ok(HeadWriter { connection: self, out, stream, kind })
    }
}

/// Writes one head or trailer section.
///
/// Never emitted, for any input of the caller: CR, LF or NUL in a value (each becomes a space), white space at its ends,
/// names that are no tokens, and fields that HTTP/3 does not have (`Connection`, `Transfer-Encoding`, …).
#[derive(Debug)]
#[must_use = "nothing is written without `finish`"]
pub struct HeadWriter<'a, R, B> {
    connection: &'a mut Connection<R>,
    out: &'a mut B,
    stream: StreamId,
    kind: HeadKind,
}

impl<R: Role, B: BufMut> HeadWriter<'_, R, B> {
    /// The stream.
    pub fn stream(&self) -> StreamId {
        self.stream
    }

    /// Adds a field. Letters of the name are folded to lower case.
    pub fn field(&mut self, name: &[u8], value: &[u8]) -> &mut Self {
        self.checked_field(name, value, false)
    }

    /// Adds a field that no table may hold ("never indexed"), of no intermediary either. `Authorization`, `Set-Cookie` and
    /// short cookies never enter ours.
    pub fn sensitive_field(&mut self, name: &[u8], value: &[u8]) -> &mut Self {
        self.checked_field(name, value, true)
    }

    /// Adds a field whose name has a token: the name is not checked. The value may come from anywhere. Not for
    /// pseudo-fields and fields that HTTP/3 lacks.
    pub fn known(&mut self, token: Token, value: &[u8]) -> &mut Self {
        debug_assert!(scan::is_token(token.name()), "not a regular field: {token:?}");
        debug_assert!(!is_connection_specific(token.name(), value), "not in HTTP/3: {token:?}");
        let encoder = &mut self.connection.encoder;
        let value = scan::trim(value);
        if is_clean(value) {
            encoder.known(token, value, false);
        } else {
            encoder.known(token, &cleaned(value), false);
        }
        self
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
            encoder.field(name, value, sensitive);
        } else {
            encoder.field(name, &cleaned(value), sensitive);
        }
        self
    }

    /// Adds a pseudo-field. They come first.
    pub(crate) fn pseudo(&mut self, token: Token, value: &[u8]) {
        let encoder = &mut self.connection.encoder;
        if is_clean(value) {
            encoder.known(token, value, false);
        } else {
            encoder.known(token, &cleaned(value), false);
        }
    }

    /// Adds `:protocol`, which the static table lacks.
    pub(crate) fn protocol(&mut self, value: &[u8]) {
        self.connection.encoder.field(b":protocol", &cleaned(value), false);
    }

    /// Ends the section. `end` ends the message; trailers always do, interim responses never. Then the caller ends its
    /// half of the stream.
    pub fn finish(self, end: bool) -> StreamId {
        let end = match self.kind {
            HeadKind::Head => end,
            HeadKind::Interim => false,
            HeadKind::Trailers => true,
        };
        let HeadWriter { connection, out, stream, kind } = self;
        connection.encoder.finish(stream, |prefix, section| {
            write_varint(out, HEADERS);
            write_varint(out, (prefix.len() + section.len()) as u64);
            out.put_slice(prefix);
            out.put_slice(section);
        });
        if let Some(open) = connection.streams.get_mut(stream)
            && kind == HeadKind::Head
        {
            open.local = Local::Open;
        }
        if end {
            connection.end(stream);
        }
        stream
    }
}
