//! Socket addresses of the families that nginx's `listen` knows.

use std::fmt;
use std::net::SocketAddr;

use rustix::net::{SocketAddrAny, SocketAddrUnix};

/// An IPv4, IPv6 or Unix address.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Address {
    /// IPv4 or IPv6 with port.
    Inet(SocketAddr),
    /// Path of a Unix socket; empty for an unnamed one, which clients usually are.
    Unix(Box<[u8]>),
}

impl Address {
    /// From the kernel's form; other families are treated as unnamed Unix sockets.
    pub fn from_any(address: SocketAddrAny) -> Address {
        if let Ok(inet) = SocketAddr::try_from(address.clone()) {
            return Address::Inet(inet);
        }
        let unix = SocketAddrUnix::try_from(address).ok();
        let path = unix.as_ref().and_then(|unix| unix.path_bytes());
        Address::Unix(path.unwrap_or_default().into())
    }

    /// The IP address and port, if it has them.
    pub fn inet(&self) -> Option<SocketAddr> {
        match self {
            Address::Inet(address) => Some(*address),
            Address::Unix(_) => None,
        }
    }

    /// The kernel's form.
    ///
    /// # Errors
    /// When a Unix path is too long (108 bytes).
    pub fn to_any(&self) -> std::io::Result<SocketAddrAny> {
        match self {
            Address::Inet(address) => Ok((*address).into()),
            Address::Unix(path) => Ok(SocketAddrUnix::new(&path[..])?.into()),
        }
    }
}

impl From<SocketAddr> for Address {
    fn from(address: SocketAddr) -> Address {
        Address::Inet(address)
    }
}

/// Formats as nginx does: `192.0.2.1:80`, `[2001:db8::1]:80`, `unix:/run/x.sock`, `unix:`.
impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Inet(address) => address.fmt(f),
            Address::Unix(path) => write!(f, "unix:{}", path.escape_ascii()),
        }
    }
}
