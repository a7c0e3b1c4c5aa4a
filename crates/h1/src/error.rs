//! Errors of a peer, with the response status and nginx's log message for each.
//!
//! After any of these errors the byte stream has no known framing: the connection must be closed
//! after the error response has been sent and further input of the client drained.

use std::fmt;

use crate::server::ServerConnection;
use nowait_message::{Known, RequestHead};

/// nginx's internal status for a head that exceeds its buffers; the response is a page with 400
/// "Request Header Or Cookie Too Large".
pub const REQUEST_HEADER_TOO_LARGE: u16 = 494;

/// Maximum length of the part of a client's line quoted in the log, in bytes.
const QUOTE_MAX: usize = 1748;

/// What the connection was reading when the error occurred; nginx logs it as "while …".
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// "reading client request line"
    RequestLine,
    /// "reading client request headers"
    Headers,
    /// "reading client request body"
    Body,
}

impl Stage {
    /// nginx's words, without the leading "while ".
    pub const fn as_str(self) -> &'static str {
        match self {
            Stage::RequestLine => "reading client request line",
            Stage::Headers => "reading client request headers",
            Stage::Body => "reading client request body",
        }
    }
}

/// An error of the client. Every variant closes the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RequestError {
    /// The method is not made of `A`-`Z`, `_` and `-`. 400.
    InvalidMethod,
    /// The request line is malformed. 400.
    InvalidRequest,
    /// The major version is above 1. 505.
    InvalidVersion,
    /// An HTTP/0.9 request whose method is not GET. 400.
    InvalidMethodInHttp09,
    /// The request line does not fit in one large buffer. 414.
    UriTooLong,
    /// The host of an absolute-form or authority-form target is malformed. 400.
    InvalidHostInRequestLine,
    /// A field line is malformed; the head knows where. 400.
    InvalidHeaderLine,
    /// A field line does not fit, or no buffer is left for it. 494.
    HeaderLineTooLong,
    /// More fields than `max_headers`. 494.
    TooManyHeaders,
    /// A second `Host`. 400.
    DuplicateHost,
    /// A second field of a name that may occur once. 400.
    DuplicateHeader(Known),
    /// `Host` is malformed. 400.
    InvalidHost,
    /// HTTP/1.1 without `Host` (RFC 9112 section 3.2). 400.
    MissingHost,
    /// `Content-Length` is not a number. 400.
    InvalidContentLength,
    /// `Transfer-Encoding` in a request older than HTTP/1.1 (RFC 9112 section 6.1). 400.
    TransferEncodingInHttp10,
    /// Both framings at once: the classic of request smuggling (RFC 9112 section 6.1). 400.
    ContentLengthAndTransferEncoding,
    /// A transfer coding other than `chunked`. 501.
    UnknownTransferEncoding,
    /// Malformed chunk framing. 400.
    InvalidChunkedBody,
    /// A malformed trailer section. 400.
    InvalidTrailers,
    /// Trailers beyond the limits. 400.
    TrailersTooLarge,
}

impl RequestError {
    /// The response status; 494 is nginx's internal [`REQUEST_HEADER_TOO_LARGE`].
    pub const fn status(self) -> u16 {
        match self {
            RequestError::InvalidVersion => 505,
            RequestError::UriTooLong => 414,
            RequestError::HeaderLineTooLong | RequestError::TooManyHeaders => {
                REQUEST_HEADER_TOO_LARGE
            }
            RequestError::UnknownTransferEncoding => 501,
            _ => 400,
        }
    }

    /// The part that was being read.
    pub const fn stage(self) -> Stage {
        match self {
            RequestError::InvalidMethod
            | RequestError::InvalidRequest
            | RequestError::InvalidVersion
            | RequestError::InvalidMethodInHttp09
            | RequestError::UriTooLong
            | RequestError::InvalidHostInRequestLine => Stage::RequestLine,
            RequestError::InvalidChunkedBody
            | RequestError::InvalidTrailers
            | RequestError::TrailersTooLarge => Stage::Body,
            _ => Stage::Headers,
        }
    }

    /// The log line (level info) in nginx's words, with the offending line quoted where nginx
    /// quotes it. Bytes are the client's own: the log writer escapes them.
    pub fn describe(self, connection: &ServerConnection, head: &RequestHead) -> Vec<u8> {
        let (line, byte) = connection.error_line(head);
        let quoted = &line[..line.len().min(QUOTE_MAX)];
        let mut text = self.to_string().into_bytes();
        match self {
            RequestError::InvalidHeaderLine => {
                text.extend_from_slice(b": \"");
                text.extend_from_slice(quoted);
                if let Some(byte) = byte {
                    text.extend_from_slice(format!("\\x{byte:02x}...").as_bytes());
                }
                text.push(b'"');
            }
            RequestError::HeaderLineTooLong => {
                text.extend_from_slice(b": \"");
                text.extend_from_slice(quoted);
                text.extend_from_slice(b"...\"");
            }
            RequestError::DuplicateHost => append_both(&mut text, quoted, head, Known::Host),
            RequestError::DuplicateHeader(name) => append_both(&mut text, quoted, head, name),
            RequestError::UnknownTransferEncoding => {
                text.extend_from_slice(b": \"");
                text.extend_from_slice(head.header(Known::TransferEncoding).unwrap_or_default());
                text.push(b'"');
            }
            _ => {}
        }
        text
    }
}

/// Quotes a repeated field and the one before it.
fn append_both(text: &mut Vec<u8>, line: &[u8], head: &RequestHead, name: Known) {
    let previous = head.header(name).unwrap_or_default();
    let previous = &previous[..previous.len().min(QUOTE_MAX)];
    text.extend_from_slice(b": \"");
    text.extend_from_slice(line);
    text.extend_from_slice(b"\", previous value: \"");
    text.extend_from_slice(name.as_str().as_bytes());
    text.extend_from_slice(b": ");
    text.extend_from_slice(previous);
    text.push(b'"');
}

impl RequestError {
    /// The log line without the client's own bytes.
    pub const fn as_str(self) -> &'static str {
        match self {
            RequestError::InvalidMethod => "client sent invalid method",
            RequestError::InvalidRequest => "client sent invalid request",
            RequestError::InvalidVersion => "client sent invalid version",
            RequestError::InvalidMethodInHttp09 => "client sent invalid method in HTTP/0.9 request",
            RequestError::UriTooLong => "client sent too long URI",
            RequestError::InvalidHostInRequestLine => "client sent invalid host in request line",
            RequestError::InvalidHeaderLine => "client sent invalid header line",
            RequestError::HeaderLineTooLong => "client sent too long header line",
            RequestError::TooManyHeaders => "client sent too many header lines",
            RequestError::DuplicateHost => "client sent duplicate host header",
            RequestError::DuplicateHeader(_) => "client sent duplicate header line",
            RequestError::InvalidHost => "client sent invalid host header",
            RequestError::MissingHost => "client sent HTTP/1.1 request without \"Host\" header",
            RequestError::InvalidContentLength => "client sent invalid \"Content-Length\" header",
            RequestError::TransferEncodingInHttp10 => {
                "client sent HTTP/1.0 request with \"Transfer-Encoding\" header"
            }
            RequestError::ContentLengthAndTransferEncoding => {
                "client sent \"Content-Length\" and \"Transfer-Encoding\" headers at the same time"
            }
            RequestError::UnknownTransferEncoding => "client sent unknown \"Transfer-Encoding\"",
            RequestError::InvalidChunkedBody => "client sent invalid chunked body",
            RequestError::InvalidTrailers => "client sent invalid trailer",
            RequestError::TrailersTooLarge => "client sent too large trailers",
        }
    }
}

impl fmt::Display for RequestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl std::error::Error for RequestError {}

/// An error of the upstream. The connection is not reusable after any of these; whether to retry
/// the request on another upstream is up to the caller (no part of the response is passed on while
/// the head is incomplete).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ResponseError {
    /// No HTTP/1.x status line.
    InvalidStatusLine,
    /// The status that a field states is none (CGI).
    InvalidStatus,
    /// A field line is malformed.
    InvalidHeaderLine,
    /// The head does not fit its buffer.
    HeaderTooLarge,
    /// More fields than the limit.
    TooManyHeaders,
    /// `Content-Length` is not a number.
    InvalidContentLength,
    /// Two different or repeated framing fields.
    DuplicateHeader(Known),
    /// `Content-Length` together with `Transfer-Encoding`.
    ContentLengthAndTransferEncoding,
    /// A transfer coding other than `chunked`.
    UnknownTransferEncoding,
    /// More interim (1xx) responses than [`crate::client::INTERIM_MAX`].
    TooManyInterimResponses,
    /// An unsolicited 101, or a 1xx in HTTP/1.0.
    UnexpectedInterimResponse,
    /// Malformed chunk framing.
    InvalidChunkedBody,
    /// A malformed trailer section.
    InvalidTrailers,
    /// Trailers beyond the limits.
    TrailersTooLarge,
    /// The connection was closed inside a head or body.
    PrematureClose,
}

impl fmt::Display for ResponseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ResponseError::InvalidStatusLine => "upstream sent no valid HTTP/1.0 header",
            ResponseError::InvalidStatus => "upstream sent invalid status",
            ResponseError::InvalidHeaderLine => "upstream sent invalid header",
            ResponseError::HeaderTooLarge => "upstream sent too big header",
            ResponseError::TooManyHeaders => "upstream sent too many header lines",
            ResponseError::InvalidContentLength => "upstream sent invalid \"Content-Length\" header",
            ResponseError::DuplicateHeader(_) => "upstream sent duplicate header line",
            ResponseError::ContentLengthAndTransferEncoding => {
                "upstream sent \"Content-Length\" and \"Transfer-Encoding\" headers at the same time"
            }
            ResponseError::UnknownTransferEncoding => {
                "upstream sent unknown \"Transfer-Encoding\""
            }
            ResponseError::TooManyInterimResponses => "upstream sent too many interim responses",
            ResponseError::UnexpectedInterimResponse => "upstream sent unexpected interim response",
            ResponseError::InvalidChunkedBody => "upstream sent invalid chunked response",
            ResponseError::InvalidTrailers => "upstream sent invalid trailer",
            ResponseError::TrailersTooLarge => "upstream sent too large trailers",
            ResponseError::PrematureClose => "upstream prematurely closed connection",
        })
    }
}

impl std::error::Error for ResponseError {}
