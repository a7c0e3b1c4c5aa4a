//! Addresses in the form of variables and header fields.

use std::net::IpAddr;

use nowait_runtime::net::Address;

/// Appends the IP address; `unix:` for a Unix socket.
pub fn append_ip(address: &Address, out: &mut Vec<u8>) {
    match address.inet() {
        Some(inet) => out.extend_from_slice(inet.ip().to_canonical().to_string().as_bytes()),
        None => out.extend_from_slice(b"unix:"),
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
        Some(IpAddr::V4(ip)) => out.extend_from_slice(ip.to_string().as_bytes()),
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
