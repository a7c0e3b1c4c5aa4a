//! The output of a connection: events, and fields through a sink.

use std::ops::Range;

use crate::error::{ErrorCode, StreamError};
use crate::frame::StreamId;
use crate::hpack::HpackField;

/// Takes the fields of heads and trailers, in their order.
pub trait Sink {
    /// A head or a trailer section of this stream begins. It counts once its event is reported; if
    /// [`Event::StreamError`] is reported instead, it is malformed or incomplete.
    fn begin(&mut self, stream: StreamId);

    /// The size of the block that begins, as it was sent, in bytes.
    fn size(&mut self, _bytes: usize) {}

    /// A field; the valid pseudo-fields come first. Each has been checked by itself.
    fn field(&mut self, field: &HpackField<'_>);
}

/// The result of [`super::Connection::receive`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReceiveStep {
    /// Number of consumed bytes of the input.
    pub consumed: usize,
    /// The event.
    pub event: Event,
}

/// An event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// The input is consumed.
    NeedMore,
    /// Call [`super::Connection::poll_output`] first.
    OutputFull,
    /// A request's head is complete. To servers only.
    Request {
        /// A new stream.
        stream: StreamId,
        /// There is no body.
        end: bool,
    },
    /// The head of a final response is complete. To clients only.
    Response {
        /// The stream.
        stream: StreamId,
        /// `:status`
        status: u16,
        /// There is no body.
        end: bool,
    },
    /// The head of an interim response is complete. To clients only.
    Interim {
        /// The stream.
        stream: StreamId,
        /// `:status`, which is 1xx.
        status: u16,
    },
    /// A part of a body: report it with [`super::Connection::taken`] once it is out of the way.
    Data {
        /// The stream.
        stream: StreamId,
        /// The range in the input; may be empty at the end of the body.
        range: Range<usize>,
        /// The body ends.
        end: bool,
    },
    /// Trailers, which end the message.
    Trailers {
        /// The stream.
        stream: StreamId,
    },
    /// The peer has violated the rules of one stream.
    StreamError {
        /// The stream.
        stream: StreamId,
        /// The violation.
        error: StreamError,
        /// The stream still takes a response, or the rest of it if it has begun, after which it is reset with the error's code (RFC 9113 section
        /// 8.1.1); the caller responds or calls [`super::Connection::reset`]. Otherwise the stream has been reset and is closed.
        answerable: bool,
    },
    /// The peer has reset the stream, which is closed. [`ErrorCode::REFUSED_STREAM`] guarantees that the
    /// peer has not acted on the request; GOAWAY leads to it, too.
    Reset {
        /// The stream.
        stream: StreamId,
        /// The reason.
        code: ErrorCode,
    },
    /// A window for which [`super::Connection::reserve`] had no byte left is open again.
    Window {
        /// The stream; [`StreamId::CONNECTION`] if any may go on.
        stream: StreamId,
    },
    /// The peer's settings have changed, and windows with them.
    Settings,
    /// The peer takes no more streams. Those above `last` follow as [`Event::Reset`].
    GoAway {
        /// The last stream that it may have acted on.
        last: StreamId,
        /// The reason.
        code: ErrorCode,
    },
    /// The answer to [`super::Connection::ping`].
    Pong {
        /// The payload.
        payload: [u8; 8],
    },
}
