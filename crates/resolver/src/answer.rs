//! What a resolver answers: addresses, services, or why not.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Instant;

use crate::name::Name;

/// The addresses of a name. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Addresses {
    /// IPv4 first, in the order of the answer. Never empty.
    pub list: Arc<[IpAddr]>,
    /// Until when they may be used: the TTL's end, or that of `valid=`. Ask again then.
    pub valid: Instant,
}

impl Addresses {
    /// With a port.
    pub fn sockets(&self, port: u16) -> impl Iterator<Item = SocketAddr> + '_ {
        self.list.iter().map(move |ip| SocketAddr::new(*ip, port))
    }
}

/// One record of a service (RFC 2782) with the addresses of its target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Service {
    /// The least is used first; nginx takes the others as backup servers.
    pub priority: u16,
    /// Share among those of the same priority; 0: little.
    pub weight: u16,
    pub port: u16,
    pub target: Name,
    /// The target's addresses, or why there are none: nginx logs that, and leaves the target out.
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

/// Why there is no answer. The texts and numbers are nginx's (ngx_resolver_strerror).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ResolveError {
    /// The server did not understand the question (RFC 1035: 1).
    Format,
    /// The server failed: later it may do (2).
    ServerFailure,
    /// There is no such name, or it has no addresses, or it can't be a name (3).
    NotFound,
    /// The server does not know such questions (4).
    NotImplemented,
    /// The server does not want to answer (5).
    Refused,
    /// No answer within the time given.
    TimedOut,
    /// Too many names are being resolved, or wait: a limit of ours.
    Overloaded,
    /// There is no name server to ask: neither in the configuration nor in `/etc/resolv.conf`.
    NoServers,
}

impl ResolveError {
    /// nginx's number: the RCODE, or that of the system's error.
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

/// `3: Host not found`: what stands in parentheses in nginx's log lines.
impl fmt::Display for ResolveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code(), self.text())
    }
}

impl std::error::Error for ResolveError {}
