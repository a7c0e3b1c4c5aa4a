//! Addresses in the form of variables and header fields.

use std::net::{IpAddr, Ipv4Addr};

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

/// Appends an address as it is written in logs and parameters, with every request.
fn append_ipv4(ip: Ipv4Addr, out: &mut Vec<u8>) {
    let [first, rest @ ..] = ip.octets();
    let mut digits = itoa::Buffer::new();
    out.extend_from_slice(digits.format(first).as_bytes());
    for octet in rest {
        out.push(b'.');
        out.extend_from_slice(digits.format(octet).as_bytes());
    }
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
