//! Errors, all of them the peer's fault. The type determines the consequence: a [`ConnectionError`] ends the
//! connection, a [`StreamError`] one stream.
//!
//! [`ConnectionError::code`] and [`StreamError::code`] are the only places that choose codes for the wire.

use std::fmt;

pub use nowait_fields::Malformed;

use crate::frame::FrameType;
use crate::qpack::QpackError;

/// A code on the wire (RFC 9114 section 8.1, RFC 9204 section 6). Unknown ones have no special meaning.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct ErrorCode(pub u64);

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
    H3_NO_ERROR = 0x100,
    H3_GENERAL_PROTOCOL_ERROR = 0x101,
    H3_INTERNAL_ERROR = 0x102,
    H3_STREAM_CREATION_ERROR = 0x103,
    H3_CLOSED_CRITICAL_STREAM = 0x104,
    H3_FRAME_UNEXPECTED = 0x105,
    H3_FRAME_ERROR = 0x106,
    H3_EXCESSIVE_LOAD = 0x107,
    H3_ID_ERROR = 0x108,
    H3_SETTINGS_ERROR = 0x109,
    H3_MISSING_SETTINGS = 0x10a,
    H3_REQUEST_REJECTED = 0x10b,
    H3_REQUEST_CANCELLED = 0x10c,
    H3_REQUEST_INCOMPLETE = 0x10d,
    H3_MESSAGE_ERROR = 0x10e,
    H3_CONNECT_ERROR = 0x10f,
    H3_VERSION_FALLBACK = 0x110,
    QPACK_DECOMPRESSION_FAILED = 0x200,
    QPACK_ENCODER_STREAM_ERROR = 0x201,
    QPACK_DECODER_STREAM_ERROR = 0x202,
}

/// A bound of [`crate::Limits`] that the peer has used up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Flood {
    /// Frames and streams without effect: priorities, empty DATA, frames and unidirectional streams of unknown types.
    /// [`crate::Limits::idle_frames_max`]; refilled by useful work.
    Frames,
    /// Streams that were opened to be reset, by the peer or by its errors (CVE-2023-44487, CVE-2025-8671).
    /// [`crate::Limits::resets_max`]; refilled by useful work.
    Resets,
    /// Insertions into the dynamic table: an octet can duplicate an entry of kilobytes.
    /// [`crate::Limits::insertions_max`]; refilled by useful work.
    Insertions,
    /// Field sections that are incomplete, or wait for insertions. [`crate::Limits::kept_bytes_max`].
    Sections,
    /// The peer does not read our unidirectional streams: [`crate::connection::OUTPUT_MAX`].
    Unread,
}

/// The peer has broken the rules in a way that ends the connection. The caller closes it with this error's code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ConnectionError {
    /// A stream that the peer must not open: a second control stream, a push, a bidirectional one of a server.
    UnexpectedStream,
    /// A control stream, or one of QPACK's, was closed.
    ClosedCriticalStream,
    /// The first frame of the control stream is not SETTINGS.
    MissingSettings,
    /// A frame that must not come at this place.
    UnexpectedFrame(FrameType),
    /// A length that the type of frame can't have.
    FrameLength(FrameType),
    /// A stream has ended within a frame.
    TruncatedFrame,
    /// A frame that would be kept, and is too large.
    FrameTooLarge(FrameType),
    /// A stream or push that the frame can't name.
    Identifier(FrameType),
    /// A setting of this number is reserved, repeated, or has an invalid value.
    InvalidSetting(u64),
    /// A field section can't be decoded.
    Decompression(QpackError),
    /// An invalid instruction of the peer's encoder.
    EncoderStream(QpackError),
    /// An invalid instruction of the peer's decoder.
    DecoderStream(QpackError),
    /// A bound is used up.
    Flood(Flood),
}

impl ConnectionError {
    /// The code for CONNECTION_CLOSE.
    pub const fn code(self) -> ErrorCode {
        match self {
            ConnectionError::UnexpectedStream => ErrorCode::H3_STREAM_CREATION_ERROR,
            ConnectionError::ClosedCriticalStream => ErrorCode::H3_CLOSED_CRITICAL_STREAM,
            ConnectionError::MissingSettings => ErrorCode::H3_MISSING_SETTINGS,
            ConnectionError::UnexpectedFrame(_) => ErrorCode::H3_FRAME_UNEXPECTED,
            ConnectionError::FrameLength(_) | ConnectionError::TruncatedFrame => {
                ErrorCode::H3_FRAME_ERROR
            }
            // As nginx.
            ConnectionError::EncoderStream(QpackError::StringTooLong)
            | ConnectionError::FrameTooLarge(_)
            | ConnectionError::Flood(_) => ErrorCode::H3_EXCESSIVE_LOAD,
            ConnectionError::Identifier(_) => ErrorCode::H3_ID_ERROR,
            ConnectionError::InvalidSetting(_) => ErrorCode::H3_SETTINGS_ERROR,
            ConnectionError::Decompression(_) => ErrorCode::QPACK_DECOMPRESSION_FAILED,
            ConnectionError::EncoderStream(_) => ErrorCode::QPACK_ENCODER_STREAM_ERROR,
            ConnectionError::DecoderStream(_) => ErrorCode::QPACK_DECODER_STREAM_ERROR,
        }
    }
}

impl ConnectionError {
    /// The reason that the peer is told.
    pub fn reason(self) -> String {
        match self {
            // In nginx's words.
            ConnectionError::EncoderStream(_) | ConnectionError::DecoderStream(_) => {
                "stream error".to_owned()
            }
            error => error.to_string(),
        }
    }
}

impl fmt::Display for ConnectionError {
    /// For a log, after "client sent " or "upstream sent ".
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ConnectionError::UnexpectedStream => f.write_str("unexpected stream"),
            ConnectionError::ClosedCriticalStream => f.write_str("end of a critical stream"),
            ConnectionError::MissingSettings => f.write_str("no SETTINGS frame"),
            ConnectionError::UnexpectedFrame(kind) => {
                write!(f, "unexpected {} frame", kind.as_str())
            }
            ConnectionError::FrameLength(kind) => {
                write!(f, "{} frame with incorrect length", kind.as_str())
            }
            ConnectionError::TruncatedFrame => f.write_str("incomplete frame"),
            ConnectionError::FrameTooLarge(kind) => write!(f, "too large {} frame", kind.as_str()),
            ConnectionError::Identifier(kind) => {
                write!(f, "{} frame with incorrect identifier", kind.as_str())
            }
            ConnectionError::InvalidSetting(number) => {
                write!(f, "SETTINGS frame with incorrect parameter {number:#x}")
            }
            ConnectionError::Decompression(error) => error.fmt(f),
            ConnectionError::EncoderStream(error) => write!(f, "{error} on the encoder stream"),
            ConnectionError::DecoderStream(error) => write!(f, "{error} on the decoder stream"),
            ConnectionError::Flood(flood) => f.write_str(match flood {
                Flood::Frames => "http3 flood",
                Flood::Resets => "too many reset streams",
                Flood::Insertions => "too many insertions into the dynamic table",
                Flood::Sections => "too many incomplete headers",
                Flood::Unread => "requests without reading our streams",
            }),
        }
    }
}

impl std::error::Error for ConnectionError {}

/// A violation by the peer that ends one stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum StreamError {
    /// The message is malformed (RFC 9114 section 4.1.2).
    Malformed(Malformed),
    /// The stream has ended before the head.
    Incomplete,
    /// More or larger fields than [`crate::Limits`] has.
    ListTooLarge,
}

impl StreamError {
    /// The code for RESET_STREAM and STOP_SENDING.
    pub const fn code(self) -> ErrorCode {
        match self {
            StreamError::Malformed(_) => ErrorCode::H3_MESSAGE_ERROR,
            StreamError::Incomplete => ErrorCode::H3_REQUEST_INCOMPLETE,
            StreamError::ListTooLarge => ErrorCode::H3_EXCESSIVE_LOAD,
        }
    }
}

impl fmt::Display for StreamError {
    /// For a log, after "client sent " or "upstream sent ".
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            StreamError::Malformed(malformed) => return malformed.fmt(f),
            StreamError::Incomplete => "incomplete request",
            StreamError::ListTooLarge => "too many or too large header lines",
        })
    }
}

impl std::error::Error for StreamError {}
