//! Results of a resolver: addresses, services, or the reason for a failure.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Instant;

use crate::name::DomainName;

/// The addresses of a name. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Addresses {
    /// IPv4 first, in the order of the response. Never empty.
    pub list: Arc<[IpAddr]>,
    /// Until when they may be used: the end of the TTL, or of `valid=`. Resolve again after that.
    pub valid: Instant,
}

impl Addresses {
    /// The addresses, each with `port`.
    pub fn sockets(&self, port: u16) -> impl Iterator<Item = SocketAddr> + '_ {
        self.list.iter().map(move |ip| SocketAddr::new(*ip, port))
    }
}

/// One record of a service (RFC 2782) with the addresses of its target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Service {
    /// The lowest is used first; nginx treats the others as backup servers.
    pub priority: u16,
    /// Share among services of the same priority; 0: a small one.
    pub weight: u16,
    pub port: u16,
    pub target: DomainName,
    /// The target's addresses, or why there are none: nginx logs that, and skips the target.
    pub addresses: Result<Arc<[IpAddr]>, ResolveError>,
}

/// The servers of a service, in order of priority. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Services {
    /// At least one of them has addresses.
    pub list: Arc<[Service]>,
    /// Until when they may be used.
    pub valid: Instant,
}

/// The reason why a look-up failed. The texts and numbers are nginx's (ngx_resolver_strerror).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ResolveError {
    /// The server did not understand the query (RFC 1035: 1).
    Format,
    /// The server failed; a later attempt may succeed (2).
    ServerFailure,
    /// There is no such name, or it has no addresses, or it is not a valid name (3).
    NotFound,
    /// The server does not support such queries (4).
    NotImplemented,
    /// The server refuses to answer (5).
    Refused,
    /// No response within the time limit.
    TimedOut,
    /// Too many names are being resolved, or too many tasks wait: a limit of ours.
    Overloaded,
    /// No name server is known: neither from the configuration nor from `/etc/resolv.conf`.
    NoServers,
}

impl ResolveError {
    /// nginx's number: the RCODE, or that of the system error.
    pub fn code(self) -> u32 {
        match self {
            ResolveError::Format => 1,
            ResolveError::ServerFailure => 2,
            ResolveError::NotFound => 3,
            ResolveError::NotImplemented => 4,
            ResolveError::Refused => 5,
            ResolveError::TimedOut => 110,
            ResolveError::Overloaded => 105,
            ResolveError::NoServers => 99,
        }
    }

    /// nginx's text.
    pub fn text(self) -> &'static str {
        match self {
            ResolveError::Format => "Format error",
            ResolveError::ServerFailure => "Server failure",
            ResolveError::NotFound => "Host not found",
            ResolveError::NotImplemented => "Unimplemented",
            ResolveError::Refused => "Operation refused",
            ResolveError::TimedOut => "Operation timed out",
            ResolveError::Overloaded => "Too many names are being resolved",
            ResolveError::NoServers => "No name servers",
        }
    }
}

/// `3: Host not found`: the text in parentheses in nginx's log lines.
impl fmt::Display for ResolveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code(), self.text())
    }
}

impl std::error::Error for ResolveError {}
