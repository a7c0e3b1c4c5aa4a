//! The address of a client behind trusted proxies: `X-Forwarded-For`. nginx:
//! `ngx_http_get_forwarded_addr`.
//!
//! Every proxy appends the address of its client, so the last entries are those of trusted proxies. All
//! entries before the first untrusted address may be forged by the client.

use std::net::{IpAddr, SocketAddr};

use nowait_front::realip::is_trusted;

use crate::cidr::Cidr;

/// Walks back through the entries while the address is that of a trusted proxy: one entry, or with
/// `recursive` any number. `values` are the header's values in their order.
pub fn client_of<'a>(
    peer: IpAddr,
    values: impl DoubleEndedIterator<Item = &'a [u8]>,
    trusted: &[Cidr],
    recursive: bool,
) -> IpAddr {
    if !is_trusted(peer, trusted) {
        return peer;
    }
    client_address(values, trusted, recursive).map_or(peer, |address| address.ip())
}

/// The address that a trusted peer stated, with its port, or zero without one. With `recursive`,
/// the search continues backwards while the addresses are those of trusted proxies.
pub fn client_address<'a>(
    values: impl DoubleEndedIterator<Item = &'a [u8]>,
    trusted: &[Cidr],
    recursive: bool,
) -> Option<SocketAddr> {
    let mut address = None;
    let entries = values.rev().flat_map(|value| value.rsplit(|&b| b == b' ' || b == b','));
    for entry in entries.filter(|entry| !entry.is_empty()) {
        let Some(next) = parse(entry) else { break };
        address = Some(next);
        if !recursive || !is_trusted(next.ip(), trusted) {
            break;
        }
    }
    address
}

/// Parses an address with an optional port.
fn parse(entry: &[u8]) -> Option<SocketAddr> {
    let text = std::str::from_utf8(entry).ok()?;
    let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
    let ip = bare.parse::<IpAddr>().map(|ip| SocketAddr::new(ip, 0));
    ip.or_else(|_| text.parse()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(values: &[&str], recursive: bool) -> String {
        let trusted: Vec<Cidr> = [&b"127.0.0.0/8"[..], b"10.0.0.0/8", b"2001:db8::/32"]
            .iter()
            .map(|text| Cidr::parse(text).expect("a network").0)
            .collect();
        let peer = "127.0.0.1".parse().expect("an address");
        let values = values.iter().map(|value| value.as_bytes());
        client_of(peer, values, &trusted, recursive).to_string()
    }

    #[test]
    fn one_step_or_all() {
        assert_eq!(client(&["192.0.2.1"], false), "192.0.2.1");
        assert_eq!(client(&["192.0.2.1, 10.0.0.1"], false), "10.0.0.1");
        assert_eq!(client(&["192.0.2.9, 192.0.2.1, 10.0.0.1"], true), "192.0.2.1");
        assert_eq!(client(&["192.0.2.9, 192.0.2.1", "10.0.0.1"], true), "192.0.2.1");
        assert_eq!(client(&["10.0.0.2, 10.0.0.1"], true), "10.0.0.2");
        assert_eq!(client(&[], true), "127.0.0.1");
    }

    #[test]
    fn forms_of_addresses() {
        assert_eq!(client(&["192.0.2.1:8080"], false), "192.0.2.1");
        assert_eq!(client(&["[2001:db9::1]:80"], false), "2001:db9::1");
        assert_eq!(client(&["[2001:db9::1]"], false), "2001:db9::1");
        assert_eq!(client(&["2001:db9::1"], false), "2001:db9::1");
        assert_eq!(client(&["192.0.2.1,unknown"], true), "127.0.0.1");
        assert_eq!(client(&["192.0.2.1, "], true), "192.0.2.1");
    }
}
