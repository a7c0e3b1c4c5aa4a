//! Settings of the engine, as resolved from the directives of any protocol module.

use std::sync::Arc;
use std::time::Duration;

use nowait_front::tls::upstream::UpstreamTls;
use nowait_http::conf::body::TempPath;
use nowait_http::variables::complex::HttpVariables;

/// Number and size of buffers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Buffers {
    /// The number.
    pub count: u32,
    /// Size of each in bytes.
    pub size: u32,
}

impl Buffers {
    /// Bytes in all of them.
    pub fn total(self) -> u64 {
        u64::from(self.count) * u64::from(self.size)
    }
}

/// Settings of one location, named after the directives without the module's prefix.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Longest time to establish a connection.
    pub connect_timeout: Duration,
    /// Longest pause between two writes of a request.
    pub send_timeout: Duration,
    /// Longest time until a response's head is complete, and longest pause between two reads of its
    /// body.
    pub read_timeout: Duration,
    /// Largest size of a response's head in bytes.
    pub buffer_size: u32,
    /// Memory for reading ahead of a slow client.
    pub buffers: Buffers,
    /// Bytes of that memory that may be on their way to the client.
    pub busy_buffers_size: u64,
    /// Largest size of a temporary file in bytes; zero: none.
    pub max_temp_file_size: u64,
    /// Bytes written to a temporary file at once.
    pub temp_file_write_size: u64,
    /// Directory of temporary files.
    pub temp_path: TempPath,
    /// Whether responses are read ahead of the client. A response can override this.
    pub buffering: bool,
    /// Whether the whole request body is read before it is passed on.
    pub request_buffering: bool,
    /// Conditions for trying another upstream.
    pub next_upstream: RetryConditions,
    /// Tries at most; zero: as many as there are peers.
    pub next_upstream_tries: u32,
    /// Time in which another try may begin; zero: no limit.
    pub next_upstream_timeout: Duration,
    /// Whether the request continues after its client has left.
    pub ignore_client_abort: bool,
    /// SO_KEEPALIVE on connections.
    pub socket_keepalive: bool,
    /// SO_RCVBUF in bytes; zero: the kernel's choice.
    pub socket_rcvbuf: u32,
    /// SO_SNDBUF in bytes; zero: the kernel's choice.
    pub socket_sndbuf: u32,
    /// Whether requests share connections, over HTTP/2, instead of having one at a time.
    pub shares_connections: bool,
    /// TLS, for requests that need it.
    pub tls: Option<Arc<UpstreamTls<HttpVariables>>>,
}

impl Default for Settings {
    /// nginx's defaults.
    fn default() -> Self {
        Self {
            connect_timeout: Duration::from_secs(60),
            send_timeout: Duration::from_secs(60),
            read_timeout: Duration::from_secs(60),
            buffer_size: 4096,
            buffers: Buffers { count: 8, size: 4096 },
            busy_buffers_size: 8192,
            max_temp_file_size: 1 << 30,
            temp_file_write_size: 8192,
            temp_path: TempPath { path: b"proxy_temp".to_vec(), levels: [1, 2, 0] },
            buffering: true,
            request_buffering: true,
            next_upstream: RetryConditions::DEFAULT,
            next_upstream_tries: 0,
            next_upstream_timeout: Duration::ZERO,
            ignore_client_abort: false,
            socket_keepalive: false,
            socket_rcvbuf: 0,
            socket_sndbuf: 0,
            shares_connections: false,
            tls: None,
        }
    }
}

/// The reason why a try failed. nginx: `NGX_HTTP_UPSTREAM_FT_*`; the numbers are bits of [`RetryConditions`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u16)]
pub enum Cause {
    /// `error`: the connection could not be made or broke.
    Error = 1,
    /// `timeout`
    Timeout = 1 << 1,
    /// `invalid_header`: an empty or malformed response.
    InvalidHeader = 1 << 2,
    /// `http_500`
    Http500 = 1 << 3,
    /// `http_502`
    Http502 = 1 << 4,
    /// `http_503`
    Http503 = 1 << 5,
    /// `http_504`
    Http504 = 1 << 6,
    /// `http_403`
    Http403 = 1 << 7,
    /// `http_404`
    Http404 = 1 << 8,
    /// `http_429`
    Http429 = 1 << 9,
    /// There is no peer to try.
    NoLive = 1 << 10,
}

impl Cause {
    /// The cause of a status.
    pub fn of_status(status: u16) -> Option<Self> {
        Some(match status {
            500 => Self::Http500,
            502 => Self::Http502,
            503 => Self::Http503,
            504 => Self::Http504,
            403 => Self::Http403,
            404 => Self::Http404,
            429 => Self::Http429,
            _ => return None,
        })
    }

    /// The client's status when there is no further try.
    pub fn status(self) -> u16 {
        match self {
            Self::Timeout | Self::Http504 => 504,
            Self::Http500 => 500,
            Self::Http503 => 503,
            Self::Http403 => 403,
            Self::Http404 => 404,
            Self::Http429 => 429,
            Self::Error | Self::InvalidHeader | Self::Http502 | Self::NoLive => 502,
        }
    }
}

/// The conditions of `next_upstream`, a set of [`Cause`] and more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetryConditions(pub u16);

impl RetryConditions {
    /// `off`
    pub const OFF: Self = Self(0);
    /// `non_idempotent`: also non-idempotent requests, even after they were sent.
    pub const NON_IDEMPOTENT: u16 = 1 << 11;
    /// `error timeout`
    pub const DEFAULT: Self = Self(Cause::Error as u16 | Cause::Timeout as u16);

    /// Whether another try follows a failure for this reason.
    pub fn allows(self, cause: Cause, non_idempotent: bool) -> bool {
        let wanted = cause as u16 | if non_idempotent { Self::NON_IDEMPOTENT } else { 0 };
        // If no peer is left, there is no further try, regardless of the configuration.
        cause != Cause::NoLive && self.0 & wanted == wanted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_retries_only_idempotent_requests() {
        assert!(RetryConditions::DEFAULT.allows(Cause::Error, false));
        assert!(!RetryConditions::DEFAULT.allows(Cause::Error, true));
        assert!(!RetryConditions::DEFAULT.allows(Cause::Http502, false));
        let all = RetryConditions(u16::MAX);
        assert!(all.allows(Cause::Timeout, true));
        assert!(!all.allows(Cause::NoLive, false));
    }
}
