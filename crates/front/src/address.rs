//! Addresses in the form of variables and header fields.

use std::io::Write as _;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use nowait_runtime::net::Address;

/// Appends the IP address; `unix:` for a Unix socket.
pub fn append_ip(address: &Address, out: &mut Vec<u8>) {
    match address.inet() {
        Some(inet) => match inet.ip().to_canonical() {
            IpAddr::V4(ip) => append_ipv4(ip, out),
            IpAddr::V6(ip) => out.extend_from_slice(ip.to_string().as_bytes()),
        },
        None => out.extend_from_slice(b"unix:"),
    }
}

/// How many bits of an address name a network of one customer, as providers assign them: an IPv4 network of 256
/// addresses, and the smallest IPv6 network that a site is given (RFC 6177, 2).
const IPV4_NETWORK_BITS: u32 = 24;
const IPV6_NETWORK_BITS: u32 = 56;

/// Appends the network of the address, such as `192.0.2.0/24` or `2001:db8:0:100::/56`; `unix:` for a Unix socket.
pub fn append_network(address: &Address, out: &mut Vec<u8>) {
    // Writing to memory does not fail.
    let _ = match address.inet().map(|inet| inet.ip().to_canonical()) {
        Some(IpAddr::V4(ip)) => {
            let network = ip.to_bits() & (u32::MAX << (u32::BITS - IPV4_NETWORK_BITS));
            write!(out, "{}/{IPV4_NETWORK_BITS}", Ipv4Addr::from_bits(network))
        }
        Some(IpAddr::V6(ip)) => {
            let network = ip.to_bits() & (u128::MAX << (u128::BITS - IPV6_NETWORK_BITS));
            write!(out, "{}/{IPV6_NETWORK_BITS}", Ipv6Addr::from_bits(network))
        }
        None => out.write_all(b"unix:"),
    };
}

/// An octet and the dot after it, and how many bytes these are.
const OCTETS: [([u8; 4], u8); 256] = {
    let mut all = [([b'.'; 4], 0); 256];
    let mut octet = 0;
    while octet < all.len() {
        let (text, length) = &mut all[octet];
        let mut left = octet;
        let mut at = 1 + (octet >= 10) as usize + (octet >= 100) as usize;
        *length = at as u8 + 1;
        while at > 0 {
            at -= 1;
            text[at] = b'0' + (left % 10) as u8;
            left /= 10;
        }
        octet += 1;
    }
    all
};

/// Appends an address as it is written in logs and parameters, with every request.
fn append_ipv4(ip: Ipv4Addr, out: &mut Vec<u8>) {
    let mut text = [0; 16];
    let mut end = 0;
    for octet in ip.octets() {
        let (digits, length) = OCTETS[usize::from(octet)];
        text[end..end + 4].copy_from_slice(&digits);
        end += usize::from(length);
    }
    // The last dot is too much.
    out.extend_from_slice(&text[..end - 1]);
}

/// Appends the local address; for a Unix socket, with its path.
pub fn append_local(address: &Address, out: &mut Vec<u8>) {
    append_ip(address, out);
    if let Address::Unix(path) = address {
        out.extend_from_slice(path);
    }
}

/// Appends the IP address in URL form.
pub fn append_host(address: &Address, out: &mut Vec<u8>) {
    match address.inet().map(|inet| inet.ip()) {
        Some(IpAddr::V6(ip)) => out.extend_from_slice(format!("[{ip}]").as_bytes()),
        Some(IpAddr::V4(ip)) => append_ipv4(ip, out),
        None => out.extend_from_slice(b"localhost"),
    }
}

/// Appends the IP address in binary form; for Unix clients, just `unix:`.
pub fn append_binary(address: &Address, out: &mut Vec<u8>) {
    match address.inet().map(|inet| inet.ip()) {
        Some(IpAddr::V4(ip)) => out.extend_from_slice(&ip.octets()),
        Some(IpAddr::V6(ip)) => out.extend_from_slice(&ip.octets()),
        None => out.extend_from_slice(b"unix:"),
    }
}

/// The port, if it has one.
pub fn port(address: &Address) -> Option<u16> {
    address.inet().map(|inet| inet.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_written_as_usual() {
        for n in 0..=255u8 {
            for ip in
                [Ipv4Addr::new(n, 0, 9, 255), Ipv4Addr::new(10, n, 99, n), Ipv4Addr::from([n; 4])]
            {
                let mut out = b">".to_vec();
                append_ipv4(ip, &mut out);
                assert_eq!(out, format!(">{ip}").into_bytes());
            }
        }
    }

    #[test]
    fn networks_are_those_of_sites() {
        for (address, network) in [
            ("192.0.2.77:80", "192.0.2.0/24"),
            ("0.0.0.0:1", "0.0.0.0/24"),
            ("[2001:db8:1:2ff::5]:80", "2001:db8:1:200::/56"),
            ("[::ffff:10.1.2.3]:80", "10.1.2.0/24"),
            ("[::1]:80", "::/56"),
        ] {
            let mut out = Vec::new();
            let socket: std::net::SocketAddr = address.parse().unwrap();
            append_network(&Address::from(socket), &mut out);
            assert_eq!(out, network.as_bytes(), "{address}");
        }
        let mut out = Vec::new();
        append_network(&Address::Unix((*b"/run/x.sock").into()), &mut out);
        assert_eq!(out, b"unix:");
    }
}
