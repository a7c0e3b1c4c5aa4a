//! Errors of applications.

use std::fmt;

use nowait_h1::ResponseError;

/// A mistake of an application, after which its connection can't be used. The texts are nginx's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Error {
    /// The head of a response is malformed or too large.
    Head(ResponseError),
    /// `Status` has this invalid value.
    Status(Vec<u8>),
    /// A FastCGI record of this version.
    Version(u8),
    /// A FastCGI record of this type, which applications don't send.
    Kind(u8),
    /// A FastCGI record of a request that was not sent.
    RequestId(u16),
    /// A FastCGI record of this type where the head of a response is due.
    Unexpected(u8),
    /// The end of FastCGI's stdout before the response is complete.
    StdoutEnded,
    /// The end of a FastCGI request before the response is complete.
    RequestEnded,
    /// The application takes no requests: FastCGI's protocol status.
    Refused(u8),
    /// More than [`STDERR_BYTES_MAX`](crate::fastcgi::STDERR_BYTES_MAX) bytes of FastCGI's stderr.
    EndlessStderr,
    /// Too many FastCGI records without content.
    EmptyRecords,
    /// The line is not a response of memcached.
    Line(Vec<u8>),
    /// The response is for another key.
    Key(Vec<u8>),
    /// The flags are no number.
    Flags(Vec<u8>),
    /// The length is no number.
    Length(Vec<u8>),
    /// The connection was closed before the response was complete.
    Closed,
}

impl From<ResponseError> for Error {
    fn from(error: ResponseError) -> Self {
        match error {
            ResponseError::PrematureClose => Self::Closed,
            other => Self::Head(other),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |bytes| String::from_utf8_lossy(bytes);
        match self {
            Self::Head(error) => error.fmt(f),
            Self::Status(value) => write!(f, "upstream sent invalid status \"{}\"", text(value)),
            Self::Version(version) => {
                write!(f, "upstream sent unsupported FastCGI protocol version: {version}")
            }
            Self::Kind(kind) => write!(f, "upstream sent invalid FastCGI record type: {kind}"),
            Self::RequestId(id) => write!(f, "upstream sent unexpected FastCGI request id: {id}"),
            Self::Unexpected(kind) => write!(f, "upstream sent unexpected FastCGI record: {kind}"),
            Self::StdoutEnded => f.write_str("upstream prematurely closed FastCGI stdout"),
            Self::RequestEnded => f.write_str("upstream prematurely closed FastCGI request"),
            Self::Refused(status) => {
                let why = match status {
                    1 => "it can't multiplex connections",
                    2 => "it is overloaded",
                    3 => "it does not know the role of a responder",
                    _ => "for an unknown reason",
                };
                write!(f, "upstream refused the FastCGI request: {why} (protocol status {status})")
            }
            Self::EmptyRecords => f.write_str("upstream sent too many empty FastCGI records"),
            Self::EndlessStderr => f.write_str("upstream sent too much in FastCGI stderr"),
            Self::Line(line) => {
                write!(f, "memcached sent invalid response: \"{}\"", text(line))
            }
            Self::Key(line) => {
                write!(f, "memcached sent invalid key in response \"{}\"", text(line))
            }
            Self::Flags(line) => {
                write!(f, "memcached sent invalid flags in response \"{}\"", text(line))
            }
            Self::Length(line) => {
                write!(f, "memcached sent invalid length in response \"{}\"", text(line))
            }
            Self::Closed => f.write_str("upstream prematurely closed connection"),
        }
    }
}

impl std::error::Error for Error {}
