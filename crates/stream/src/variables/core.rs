//! Variables of the session itself, of the program and of time.

use std::net::IpAddr;

use nowait_front::address;
use nowait_front::proxy_protocol::ProxyProtocol;
use nowait_runtime::{clock, now};

use super::{Builtin, Family, builtin_rows, number, seconds};
use crate::session::Session;

/// The table of this module.
pub const BUILTINS: &[Builtin] = builtin_rows! {
    /// The client's address in binary form.
    "binary_remote_addr" => |s, out| { address::append_binary(s.peer(), out); true };
    /// Bytes received from the client.
    "bytes_received" => |s, out| number(s.received.get(), out);
    /// Bytes sent to the client.
    "bytes_sent" => |s, out| number(s.sent.get(), out);
    /// Serial number of the session in this process.
    "connection" => |s, out| number(s.number, out);
    /// Name of the host.
    "hostname" => |_, out| text(nowait_sys::process::hostname(), out);
    /// Current time in seconds with millisecond resolution.
    "msec" => |_, out| { let ms = clock().unix_ms(); text(format!("{}.{:03}", ms / 1000, ms % 1000), out) };
    /// Version of nginx that Nowait follows.
    "nginx_version" => |_, out| text(nowait_front::NGINX_VERSION, out);
    /// Process ID of the server process.
    "pid" => |_, out| number(u64::from(std::process::id()), out);
    /// `TCP` or `UDP`.
    "protocol" => |s, out| text(if s.is_udp() { "UDP" } else { "TCP" }, out);
    /// Client address from the PROXY protocol header.
    "proxy_protocol_addr" => |s, out| header(s, out, |p, out| ip(p.source.ip(), out));
    /// Client port from the PROXY protocol header.
    "proxy_protocol_port" => |s, out| header(s, out, |p, out| number(u64::from(p.source.port()), out));
    /// Server address from the PROXY protocol header.
    "proxy_protocol_server_addr" => |s, out| header(s, out, |p, out| ip(p.destination.ip(), out));
    /// Server port from the PROXY protocol header.
    "proxy_protocol_server_port" => |s, out| header(s, out, |p, out| number(u64::from(p.destination.port()), out));
    /// The client's address.
    "remote_addr" => |s, out| { address::append_ip(s.peer(), out); true };
    /// The network of the client's address: 24 bits of IPv4, 56 bits of IPv6, such as `192.0.2.0/24`. For limits that a
    /// client cannot evade by another address of its own. Not in nginx.
    "remote_network" => |s, out| { address::append_network(s.peer(), out); true };
    /// The client's port.
    "remote_port" => |s, out| { if let Some(port) = address::port(s.peer()) { number(u64::from(port), out); } true };
    /// Local address that accepted the session.
    "server_addr" => |s, out| { address::append_local(s.local(), out); true };
    /// The first name of the server.
    "server_name" => |s, out| { out.extend_from_slice(&s.server().name); true };
    /// Local port that accepted the session.
    "server_port" => |s, out| { if let Some(port) = address::port(s.local()) { number(u64::from(port), out); } true };
    /// Duration of the session so far, in seconds with millisecond resolution.
    "session_time" => |s, out| seconds(now().saturating_duration_since(s.started), out);
    /// Status of the session: 200 if it succeeded, 400 if the client's first data was invalid, 403
    /// if access was denied, 500 for an internal error, 502 if no upstream server could be
    /// reached, 503 if a limit was reached; 000 while it is in progress.
    "status" => |s, out| text(format!("{:03}", s.status().map_or(0, |status| status.code())), out);
    /// Local time in ISO 8601 format.
    "time_iso8601" => |_, out| { out.extend_from_slice(&clock().iso_time()); true };
    /// Local time in the common log format.
    "time_local" => |_, out| { out.extend_from_slice(&clock().log_time()); true };
};

/// The families of this module.
pub const FAMILIES: &[Family] = &[Family {
    prefix: "proxy_protocol_tlv_",
    doc: "A TLV record of the PROXY protocol header: `alpn`, `authority`, `unique_id`, `ssl`, `netns` or \
          a number such as `0xae`; for the proxy's TLS connection `ssl_version`, `ssl_cn`, \
          `ssl_cipher`, `ssl_sig_alg`, `ssl_key_alg`, `ssl_verify` or `ssl_` and a number.",
    get: |s, name, out| {
        let value = s.proxy_protocol.get().and_then(|header| header.tlv(name));
        value.map(|value| out.extend_from_slice(&value)).is_some()
    },
}];

fn text(value: impl AsRef<str>, out: &mut Vec<u8>) -> bool {
    out.extend_from_slice(value.as_ref().as_bytes());
    true
}

fn header(s: &Session, out: &mut Vec<u8>, part: fn(&ProxyProtocol, &mut Vec<u8>) -> bool) -> bool {
    s.proxy_protocol.get().is_some_and(|header| part(header, out))
}

fn ip(ip: IpAddr, out: &mut Vec<u8>) -> bool {
    text(ip.to_string(), out)
}
