//! Settings of a resolver: the parameters of nginx's `resolver` directive.

use std::net::SocketAddr;
use std::time::Duration;

/// A name server to ask.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum NameServer {
    /// By address.
    Address(SocketAddr),
    /// By name, which the system's resolver knows; all of its addresses are asked.
    Name { host: Box<str>, port: u16 },
}

/// Parameters of `resolver`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Settings {
    /// Asked in turn; never empty.
    pub servers: Vec<NameServer>,
    /// Ask for IPv4 addresses (`ipv4=`). One of the two is on.
    pub ipv4: bool,
    /// Ask for IPv6 addresses (`ipv6=`).
    pub ipv6: bool,
    /// How long answers are used instead of their TTL (`valid=`).
    pub valid: Option<Duration>,
    /// Under which name statistics are shown (`status_zone=`).
    pub status_zone: Option<Box<str>>,
}

impl Settings {
    /// These servers, with nginx's defaults.
    pub fn new(servers: Vec<NameServer>) -> Settings {
        Settings { servers, ipv4: true, ipv6: true, valid: None, status_zone: None }
    }
}
