//! Networks in CIDR notation: `192.0.2.0/24`, `2001:db8::/32`, or a single address.
//! nginx: `ngx_ptocidr`. Used by `allow` and `deny`, `geo` and other code that compares addresses.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A network. The bits behind the prefix are zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cidr {
    /// IPv4.
    V4 {
        /// The address.
        address: u32,
        /// Ones where addresses must agree.
        mask: u32,
    },
    /// IPv6.
    V6 {
        /// The address.
        address: u128,
        /// Ones where addresses must agree.
        mask: u128,
    },
}

impl Cidr {
    /// Reads a network; the second value tells whether the address had bits beyond the prefix,
    /// which are ignored. `None` if the text is no network.
    pub fn parse(text: &[u8]) -> Option<(Self, bool)> {
        let text = std::str::from_utf8(text).ok()?;
        let (address, prefix) = match text.split_once('/') {
            Some((address, prefix)) if prefix.bytes().all(|b| b.is_ascii_digit()) => {
                (address, Some(prefix.parse::<u32>().ok()?))
            }
            Some(_) => return None,
            None => (text, None),
        };
        Some(match address.parse().ok()? {
            IpAddr::V4(ip) => {
                let prefix = prefix.unwrap_or(u32::BITS);
                let mask = u32::MAX.checked_shl(u32::BITS.checked_sub(prefix)?).unwrap_or(0);
                let bits = u32::from(ip);
                (Self::V4 { address: bits & mask, mask }, bits & !mask != 0)
            }
            IpAddr::V6(ip) => {
                let prefix = prefix.unwrap_or(u128::BITS);
                let mask = u128::MAX.checked_shl(u128::BITS.checked_sub(prefix)?).unwrap_or(0);
                let bits = u128::from(ip);
                (Self::V6 { address: bits & mask, mask }, bits & !mask != 0)
            }
        })
    }

    /// Whether an IPv4 address belongs to the network; never to one of IPv6.
    pub fn contains_v4(&self, ip: Ipv4Addr) -> bool {
        matches!(self, Self::V4 { address, mask } if u32::from(ip) & mask == *address)
    }

    /// Whether an IPv6 address belongs to the network; never to one of IPv4.
    pub fn contains_v6(&self, ip: Ipv6Addr) -> bool {
        matches!(self, Self::V6 { address, mask } if u128::from(ip) & mask == *address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> (Cidr, bool) {
        Cidr::parse(text.as_bytes()).expect("a network")
    }

    #[test]
    fn networks() {
        let (net, surplus) = parse("192.0.2.0/24");
        assert!(!surplus);
        assert!(net.contains_v4("192.0.2.255".parse().unwrap()));
        assert!(!net.contains_v4("192.0.3.0".parse().unwrap()));
        let (all, _) = parse("0.0.0.0/0");
        assert!(all.contains_v4("255.1.2.3".parse().unwrap()));
        assert!(!all.contains_v6("::1".parse().unwrap()));
        let (one, _) = parse("2001:db8::1");
        assert!(one.contains_v6("2001:db8::1".parse().unwrap()));
        assert!(!one.contains_v6("2001:db8::2".parse().unwrap()));
        let (net, surplus) = parse("2001:db8::1/32");
        assert!(surplus && net.contains_v6("2001:db8:ffff::".parse().unwrap()));
        let (all, _) = parse("::/0");
        assert!(all.contains_v6("2001:db8::1".parse().unwrap()));
    }

    #[test]
    fn what_is_none() {
        for text in ["", "x", "192.0.2.0/33", "::/129", "192.0.2.0/", "192.0.2.0/+8", "1.2.3/8"] {
            assert_eq!(Cidr::parse(text.as_bytes()), None, "{text}");
        }
    }
}
