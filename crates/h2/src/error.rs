//! Errors, all of them the peer's fault. The type determines the consequence: a [`ConnectionError`] ends
//! the connection, a [`StreamError`] one stream.
//!
//! [`ConnectionError::code`] and [`StreamError::code`] are the only places that choose codes for the
//! wire. Where RFC 9113 leaves a choice (section 5.4: "an endpoint MAY use any applicable error
//! code"), it is nginx's.

use std::fmt;

use nowait_fields::Malformed;

use crate::frame::FrameType;
use crate::hpack;

/// A code on the wire (RFC 9113 section 7). Unknown ones have no special meaning.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct ErrorCode(pub u32);

macro_rules! codes {
    ($($name:ident = $code:literal),+ $(,)?) => {
        #[allow(missing_docs, reason = "each is the code of that name")]
        impl ErrorCode {
            $(pub const $name: ErrorCode = ErrorCode($code);)+
        }

        impl fmt::Debug for ErrorCode {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self.0 {
                    $($code => f.write_str(stringify!($name)),)+
                    code => write!(f, "{code:#x}"),
                }
            }
        }
    };
}

codes! {
    NO_ERROR = 0x0,
    PROTOCOL_ERROR = 0x1,
    INTERNAL_ERROR = 0x2,
    FLOW_CONTROL_ERROR = 0x3,
    SETTINGS_TIMEOUT = 0x4,
    STREAM_CLOSED = 0x5,
    FRAME_SIZE_ERROR = 0x6,
    REFUSED_STREAM = 0x7,
    CANCEL = 0x8,
    COMPRESSION_ERROR = 0x9,
    CONNECT_ERROR = 0xa,
    ENHANCE_YOUR_CALM = 0xb,
    INADEQUATE_SECURITY = 0xc,
    HTTP_1_1_REQUIRED = 0xd,
}

/// A budget of [`crate::Limits`] that the peer has used up. All of them are refilled by useful work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Flood {
    /// Frames without effect: PING, SETTINGS, PRIORITY, empty DATA, small window updates, frames of unknown
    /// types or of closed streams. [`crate::Limits::idle_frames_max`].
    Frames,
    /// Streams that were opened to be reset, by the peer or by its errors (CVE-2023-44487,
    /// CVE-2025-8671). [`crate::Limits::resets_max`].
    Resets,
    /// Streams beyond the announced number. [`crate::Limits::refused_max`].
    Refused,
}

/// The peer has broken the rules in a way that ends the connection. GOAWAY is already in the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ConnectionError {
    /// The first octets are not those of an HTTP/2 client.
    InvalidPreface,
    /// The first frame is not SETTINGS.
    MissingSettings,
    /// A frame larger than we allow.
    FrameTooLarge(FrameType),
    /// A length that the type of frame can't have.
    FrameLength(FrameType),
    /// More padding than payload.
    Padding(FrameType),
    /// A stream that the type of frame can't have, or that can't be opened.
    StreamIdentifier(FrameType),
    /// A frame on a stream that has not been opened.
    IdleStream(FrameType),
    /// A stream that depends on itself.
    SelfDependency(FrameType),
    /// Another frame inside a field block.
    ExpectedContinuation,
    /// CONTINUATION outside of a field block.
    UnexpectedContinuation,
    /// HEADERS or DATA on a stream that the peer had ended or reset.
    ClosedStream(FrameType),
    /// PUSH_PROMISE: pushing is off, and no client may.
    PushPromise,
    /// A value that the setting of this number can't have.
    InvalidSetting(u16),
    /// A setting makes a window too large.
    InitialWindow,
    /// WINDOW_UPDATE of 0 for the connection.
    ZeroIncrement,
    /// The connection's window exceeds 2^31-1.
    WindowOverflow,
    /// More DATA than the connection's window.
    FlowControl,
    /// A field block that can't be decoded.
    Compression(hpack::HpackError),
    /// A field without a name.
    EmptyName,
    /// A field block larger than [`crate::Limits::block_bytes_max`], or of more frames than
    /// [`crate::Limits::continuations_max`].
    BlockTooLarge,
    /// Fields larger than [`crate::Limits::list_bytes_max`].
    ListTooLarge,
    /// A budget is used up.
    Flood(Flood),
}

impl ConnectionError {
    /// The code for GOAWAY.
    pub const fn code(self) -> ErrorCode {
        match self {
            ConnectionError::FrameTooLarge(_) | ConnectionError::FrameLength(_) => {
                ErrorCode::FRAME_SIZE_ERROR
            }
            ConnectionError::InitialWindow
            | ConnectionError::WindowOverflow
            | ConnectionError::FlowControl => ErrorCode::FLOW_CONTROL_ERROR,
            ConnectionError::ClosedStream(FrameType::Data) => ErrorCode::STREAM_CLOSED,
            // As nginx: the frames are too small for what the block announces.
            ConnectionError::Compression(hpack::HpackError::Truncated) => {
                ErrorCode::FRAME_SIZE_ERROR
            }
            ConnectionError::Compression(hpack::HpackError::StringTooLong)
            | ConnectionError::BlockTooLarge
            | ConnectionError::ListTooLarge
            | ConnectionError::Flood(_) => ErrorCode::ENHANCE_YOUR_CALM,
            ConnectionError::Compression(_) => ErrorCode::COMPRESSION_ERROR,
            _ => ErrorCode::PROTOCOL_ERROR,
        }
    }
}

impl fmt::Display for ConnectionError {
    /// For a log, after "client sent " or "upstream sent ".
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ConnectionError::InvalidPreface => f.write_str("invalid connection preface"),
            ConnectionError::MissingSettings => f.write_str("no SETTINGS frame after the preface"),
            ConnectionError::FrameTooLarge(kind) => write!(f, "too large {} frame", kind.as_str()),
            ConnectionError::FrameLength(kind) => {
                write!(f, "{} frame with incorrect length", kind.as_str())
            }
            ConnectionError::Padding(kind) => {
                write!(f, "padded {} frame with incorrect length", kind.as_str())
            }
            ConnectionError::StreamIdentifier(kind) => {
                write!(f, "{} frame with incorrect identifier", kind.as_str())
            }
            ConnectionError::IdleStream(kind) => {
                write!(f, "{} frame for an idle stream", kind.as_str())
            }
            ConnectionError::SelfDependency(kind) => {
                write!(f, "{} frame with incorrect dependency", kind.as_str())
            }
            ConnectionError::ExpectedContinuation => {
                f.write_str("inappropriate frame while CONTINUATION was expected")
            }
            ConnectionError::UnexpectedContinuation => f.write_str("unexpected CONTINUATION frame"),
            ConnectionError::ClosedStream(kind) => {
                write!(f, "{} frame for a closed stream", kind.as_str())
            }
            ConnectionError::PushPromise => f.write_str("PUSH_PROMISE frame"),
            ConnectionError::InvalidSetting(number) => {
                write!(f, "SETTINGS frame with incorrect value of parameter {number}")
            }
            ConnectionError::InitialWindow => {
                f.write_str("SETTINGS frame with incorrect INITIAL_WINDOW_SIZE")
            }
            ConnectionError::ZeroIncrement => {
                f.write_str("WINDOW_UPDATE frame with incorrect window increment 0")
            }
            ConnectionError::WindowOverflow => f.write_str("too large WINDOW_UPDATE frame"),
            ConnectionError::FlowControl => {
                f.write_str("DATA frame beyond the connection's window")
            }
            ConnectionError::Compression(error) => error.fmt(f),
            ConnectionError::EmptyName => f.write_str("zero header name length"),
            ConnectionError::BlockTooLarge => f.write_str("too large header block"),
            ConnectionError::ListTooLarge => f.write_str("too large header"),
            ConnectionError::Flood(Flood::Frames) => f.write_str("http2 flood"),
            ConnectionError::Flood(Flood::Resets) => f.write_str("too many reset streams"),
            ConnectionError::Flood(Flood::Refused) => f.write_str("too many refused streams"),
        }
    }
}

impl std::error::Error for ConnectionError {}

impl From<hpack::HpackError> for ConnectionError {
    fn from(error: hpack::HpackError) -> Self {
        ConnectionError::Compression(error)
    }
}

/// A violation by the peer that ends one stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum StreamError {
    /// The message is malformed (RFC 9113 section 8.1.1).
    Malformed(Malformed),
    /// More DATA than the stream's window.
    FlowControl,
    /// The stream's window exceeds 2^31-1.
    WindowOverflow,
    /// WINDOW_UPDATE of 0.
    ZeroIncrement,
    /// DATA or HEADERS after the end of the message.
    HalfClosed,
    /// More or larger fields than [`crate::Limits`] has.
    ListTooLarge,
}

impl StreamError {
    /// The code for RST_STREAM.
    pub const fn code(self) -> ErrorCode {
        match self {
            StreamError::Malformed(_) | StreamError::ZeroIncrement => ErrorCode::PROTOCOL_ERROR,
            StreamError::FlowControl | StreamError::WindowOverflow => ErrorCode::FLOW_CONTROL_ERROR,
            StreamError::HalfClosed => ErrorCode::STREAM_CLOSED,
            StreamError::ListTooLarge => ErrorCode::ENHANCE_YOUR_CALM,
        }
    }
}

impl fmt::Display for StreamError {
    /// For a log, after "client sent " or "upstream sent ".
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            StreamError::Malformed(malformed) => return malformed.fmt(f),
            StreamError::FlowControl => "DATA frame beyond the stream's window",
            StreamError::WindowOverflow => "too large WINDOW_UPDATE frame",
            StreamError::ZeroIncrement => "WINDOW_UPDATE frame with incorrect window increment 0",
            StreamError::HalfClosed => "frame for half-closed stream",
            StreamError::ListTooLarge => "too many or too large header lines",
        })
    }
}

impl std::error::Error for StreamError {}
