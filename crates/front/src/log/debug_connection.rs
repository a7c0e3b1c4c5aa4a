//! The `debug_connection` directive: clients whose connections are logged at debug level.

use std::net::{IpAddr, Ipv6Addr};

use super::syslog::Resolve;

/// Clients by address, network or kind of socket.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DebugConnections {
    /// Network and prefix length.
    networks: Vec<(IpAddr, u8)>,
    unix: bool,
}

impl DebugConnections {
    /// Whether there are no addresses, so that accepting a connection need not check.
    pub fn is_empty(&self) -> bool {
        self.networks.is_empty() && !self.unix
    }

    /// Adds an address, a network, a host name, or `unix:`. The error is nginx's message; true
    /// warns that low address bits are meaningless.
    pub fn add(&mut self, text: &str, resolve: Resolve<'_>) -> Result<bool, String> {
        if text == "unix:" {
            self.unix = true;
            return Ok(false);
        }
        if let Some((address, length)) = network(text) {
            let masked = mask(address, length);
            self.networks.push((masked, length));
            return Ok(masked != address);
        }
        match resolve(text, 0) {
            Some(address) => {
                self.networks.push((address.ip(), bits(address.ip())));
                Ok(false)
            }
            None => Err(format!("host not found in debug_connection \"{text}\"")),
        }
    }

    /// Whether a client matches; `None` is a client on a Unix socket. A mapped IPv4 address counts as IPv4,
    /// as in nginx.
    pub fn contains(&self, client: Option<IpAddr>) -> bool {
        let Some(client) = client else { return self.unix };
        let client = client.to_canonical();
        self.networks.iter().any(|&(network, length)| {
            bits(network) == bits(client) && mask(client, length) == network
        })
    }
}

fn bits(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

/// `address` or `address/length`.
fn network(text: &str) -> Option<(IpAddr, u8)> {
    let Some((address, length)) = text.split_once('/') else {
        let address = text.parse().ok()?;
        return Some((address, bits(address)));
    };
    let (address, length) = (address.parse().ok()?, length.parse().ok()?);
    (length <= bits(address)).then_some((address, length))
}

fn mask(address: IpAddr, length: u8) -> IpAddr {
    match address {
        IpAddr::V4(v4) => {
            let mask = u32::MAX.checked_shl(32 - u32::from(length)).unwrap_or(0);
            IpAddr::V4((u32::from(v4) & mask).into())
        }
        IpAddr::V6(v6) => {
            let mask = u128::MAX.checked_shl(128 - u32::from(length)).unwrap_or(0);
            IpAddr::V6(Ipv6Addr::from(u128::from(v6) & mask))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(list: &[&str]) -> DebugConnections {
        let mut connections = DebugConnections::default();
        for text in list {
            connections.add(text, &|_, _| None).unwrap();
        }
        connections
    }

    #[test]
    fn networks() {
        let clients = of(&["192.0.2.0/24", "198.51.100.7", "2001:db8::/32"]);
        let check = |text: &str| clients.contains(Some(text.parse().unwrap()));
        assert!(check("192.0.2.200") && check("198.51.100.7") && check("2001:db8:1::1"));
        assert!(check("::ffff:192.0.2.1"));
        assert!(!check("192.0.3.1") && !check("198.51.100.8") && !check("2001:db9::"));
        assert!(!clients.contains(None));
        assert!(of(&["0.0.0.0/0"]).contains(Some("1.2.3.4".parse().unwrap())));
        assert!(!of(&["0.0.0.0/0"]).contains(Some("::1".parse().unwrap())));
        assert!(of(&["unix:"]).contains(None));
        assert!(of(&[]).is_empty() && !of(&["unix:"]).is_empty());
    }

    #[test]
    fn messages() {
        let mut clients = DebugConnections::default();
        assert_eq!(clients.add("192.0.2.1/24", &|_, _| None), Ok(true));
        assert_eq!(
            clients.add("192.0.2.1/33", &|_, _| None).unwrap_err(),
            "host not found in debug_connection \"192.0.2.1/33\""
        );
        let known = |_: &str, _| Some(([192, 0, 2, 9], 0).into());
        assert_eq!(clients.add("known", &known), Ok(false));
        assert!(clients.contains(Some("192.0.2.9".parse().unwrap())));
    }
}
