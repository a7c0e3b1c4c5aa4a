//! Settings of a resolver: the parameters of nginx's `resolver` directive.

use std::net::SocketAddr;
use std::time::Duration;

/// A name server.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum NameServer {
    /// By address.
    Address(SocketAddr),
    /// By name, looked up by the system's resolver; all of its addresses are queried.
    Name { host: Box<str>, port: u16 },
}

/// Parameters of `resolver`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ResolverSettings {
    /// Queried in turn; never empty.
    pub servers: Vec<NameServer>,
    /// Query IPv4 addresses (`ipv4=`). At least one of the two is on.
    pub ipv4: bool,
    /// Query IPv6 addresses (`ipv6=`).
    pub ipv6: bool,
    /// How long results are cached, instead of their TTL (`valid=`).
    pub valid: Option<Duration>,
    /// Name under which statistics are published (`status_zone=`).
    pub status_zone: Option<Box<str>>,
}

impl ResolverSettings {
    /// With these servers, and nginx's defaults otherwise.
    pub fn new(servers: Vec<NameServer>) -> ResolverSettings {
        ResolverSettings { servers, ipv4: true, ipv6: true, valid: None, status_zone: None }
    }
}
