//! The output of a connection: events, and fields through a sink.

use std::ops::Range;

use nowait_fields::FieldLine;

use crate::error::{ErrorCode, StreamError};
use crate::frame::StreamId;

/// Takes the fields of heads and trailers, in their order.
pub trait Sink {
    /// A head of this stream begins, or its trailers. It counts once its event is reported; if
    /// [`Event::StreamError`] is reported instead, it is malformed or incomplete.
    fn begin(&mut self, stream: StreamId, trailers: bool);

    /// The size of the section that begins, as it was sent, in bytes.
    fn size(&mut self, _bytes: usize) {}

    /// A field; the valid pseudo-fields come first. Each has been checked by itself.
    fn field(&mut self, field: &FieldLine<'_>);
}

/// The result of [`super::Connection::receive`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReceiveStep {
    /// Number of consumed bytes of the input.
    pub consumed: usize,
    /// The event.
    pub event: Event,
}

/// An event of a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// The input is consumed.
    NeedMore,
    /// A section refers to entries that have not been inserted yet. The rest of the input is passed in again when
    /// [`super::Connection::next_unblocked`] names the stream.
    Blocked,
    /// Nothing of the stream is of use: the caller stops it, with this code.
    Useless {
        /// The code for STOP_SENDING.
        code: ErrorCode,
    },
    /// A request's head is complete. To servers only.
    Request {
        /// There is no body.
        end: bool,
    },
    /// The head of a final response is complete. To clients only.
    Response {
        /// `:status`
        status: u16,
        /// There is no body.
        end: bool,
    },
    /// The head of an interim response is complete. To clients only.
    Interim {
        /// `:status`, which is 1xx.
        status: u16,
    },
    /// A part of a body.
    Data {
        /// The range in the input; may be empty at the end of the body.
        range: Range<usize>,
        /// The body ends.
        end: bool,
    },
    /// Trailers, which end the message.
    Trailers,
    /// The peer has violated the rules of the stream.
    StreamError {
        /// The violation.
        error: StreamError,
        /// The stream still takes a response, or the rest of it if it has begun (RFC 9114 section 4.1.2). The caller
        /// sends one, and stops the stream with the error's code. Otherwise the core has forgotten the stream, and
        /// the caller resets and stops it with that code.
        answerable: bool,
    },
    /// The peer's settings have come.
    Settings,
    /// The priority of a stream has changed.
    Priority {
        /// The stream.
        stream: StreamId,
    },
    /// The peer takes no more requests. To clients: those on streams from `first` on were not and will not be
    /// processed.
    GoAway {
        /// The first stream that is not processed; of a server, a push.
        first: StreamId,
    },
}
