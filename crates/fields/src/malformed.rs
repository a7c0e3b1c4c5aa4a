//! The ways in which a message can be malformed. HTTP/2 and HTTP/3 have the same ones.

use std::fmt;

/// The reason why a message is malformed. nginx responds to most of these with 400.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Malformed {
    /// A name with upper-case letters, or with octets that no name has.
    InvalidName,
    /// A value with CR, LF or NUL, or with white space at its ends.
    InvalidValue,
    /// A pseudo-field after a regular field.
    PseudoOutOfOrder,
    /// A pseudo-field that requests (or responses) don't have.
    UnknownPseudo,
    /// A second pseudo-field of a name.
    DuplicatePseudo,
    /// A pseudo-field in trailers.
    PseudoInTrailers,
    /// No `:method`.
    MissingMethod,
    /// No `:scheme`.
    MissingScheme,
    /// No `:path`.
    MissingPath,
    /// No `:authority` in a CONNECT request.
    MissingAuthority,
    /// No `:status`.
    MissingStatus,
    /// A method that is no token.
    InvalidMethod,
    /// A scheme that is none.
    InvalidScheme,
    /// A path that is empty, does not begin with `/`, or has spaces or control characters.
    InvalidPath,
    /// An authority with spaces or control characters.
    InvalidAuthority,
    /// A status that is not of three digits.
    InvalidStatus,
    /// CONNECT with `:scheme` or `:path`.
    ConnectWithTarget,
    /// `:protocol` without CONNECT, or where it was not offered (RFC 8441).
    UnexpectedProtocol,
    /// `Connection` or another field that HTTP/2 doesn't have.
    ConnectionField,
    /// `Transfer-Encoding`.
    TransferEncoding,
    /// `TE` with another value than `trailers`.
    InvalidTe,
    /// `Content-Length` that is no number, or occurs twice.
    InvalidContentLength,
    /// More DATA than `Content-Length`, or any where there must be none.
    ContentTooLong,
    /// Less DATA than `Content-Length`.
    ContentTooShort,
    /// An interim response that ends the stream, or 101.
    InvalidInterim,
    /// More interim responses than a client takes.
    TooManyInterim,
    /// DATA before the response.
    DataBeforeHead,
    /// A second field block that does not end the stream.
    TrailersWithoutEnd,
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Malformed::InvalidName => "invalid header name",
            Malformed::InvalidValue => "header with invalid value",
            Malformed::PseudoOutOfOrder => "out of order pseudo-headers",
            Malformed::UnknownPseudo => "unknown pseudo-header",
            Malformed::DuplicatePseudo => "duplicate pseudo-header",
            Malformed::PseudoInTrailers => "pseudo-header in trailers",
            Malformed::MissingMethod => "no :method header",
            Malformed::MissingScheme => "no :scheme header",
            Malformed::MissingPath => "no :path header",
            Malformed::MissingAuthority => "no :authority header",
            Malformed::MissingStatus => "no :status header",
            Malformed::InvalidMethod => "invalid method",
            Malformed::InvalidScheme => "invalid :scheme header",
            Malformed::InvalidPath => "invalid :path header",
            Malformed::InvalidAuthority => "invalid :authority header",
            Malformed::InvalidStatus => "invalid :status header",
            Malformed::ConnectWithTarget => "CONNECT request with :scheme or :path header",
            Malformed::UnexpectedProtocol => "unexpected :protocol header",
            Malformed::ConnectionField => "connection-specific header",
            Malformed::TransferEncoding => "\"Transfer-Encoding\" header",
            Malformed::InvalidTe => "invalid \"TE\" header",
            Malformed::InvalidContentLength => "invalid \"Content-Length\" header",
            Malformed::ContentTooLong => "more data than \"Content-Length\"",
            Malformed::ContentTooShort => "less data than \"Content-Length\"",
            Malformed::InvalidInterim => "unexpected interim response",
            Malformed::TooManyInterim => "too many interim responses",
            Malformed::DataBeforeHead => "DATA frame before the response",
            Malformed::TrailersWithoutEnd => "trailers that do not end the stream",
        })
    }
}
