//! Addresses of this machine's network interfaces.
//!
//! Called by `nowait serve`, which shows where other devices find it. Nothing here is cached: interfaces
//! come and go.

use std::io;
use std::net::IpAddr;

use nix::ifaddrs::getifaddrs;
use nix::net::if_::InterfaceFlags;
use nix::sys::socket::SockaddrStorage;

/// An address of an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InterfaceAddress {
    /// The name of the interface, such as `eth0`.
    pub interface: String,
    /// The address.
    pub ip: IpAddr,
}

/// The addresses of all interfaces that are up, in the kernel's order.
///
/// # Errors
/// The kernel's.
pub fn addresses() -> io::Result<Vec<InterfaceAddress>> {
    let is_up = |flags: InterfaceFlags| flags.contains(InterfaceFlags::IFF_UP);
    let all = getifaddrs()?.filter(|found| is_up(found.flags));
    let all = all.filter_map(|found| {
        let ip = found.address.as_ref().and_then(ip)?;
        Some(InterfaceAddress { interface: found.interface_name, ip })
    });
    Ok(all.collect())
}

fn ip(address: &SockaddrStorage) -> Option<IpAddr> {
    match (address.as_sockaddr_in(), address.as_sockaddr_in6()) {
        (Some(v4), _) => Some(v4.ip().into()),
        (None, Some(v6)) => Some(v6.ip().into()),
        (None, None) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    #[test]
    fn the_loopback_interface_has_its_address() {
        let found = addresses().unwrap();
        assert!(found.iter().any(|found| found.ip == IpAddr::V4(Ipv4Addr::LOCALHOST)), "{found:?}");
    }
}
