//! Versions of HTTP.

/// The version of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Version {
    /// The "simple request" of HTTP/0.9: no version in the request line.
    Http09,
    /// HTTP/1.0.
    Http10,
    /// HTTP/1.1. A higher minor version is treated as 1.1 (RFC 9110 section 2.5).
    #[default]
    Http11,
    /// HTTP/2.
    Http2,
    /// HTTP/3.
    Http3,
}

impl Version {
    /// As in `$server_protocol`; empty for HTTP/0.9.
    pub const fn as_str(self) -> &'static str {
        match self {
            Version::Http09 => "",
            Version::Http10 => "HTTP/1.0",
            Version::Http11 => "HTTP/1.1",
            Version::Http2 => "HTTP/2.0",
            Version::Http3 => "HTTP/3.0",
        }
    }
}
