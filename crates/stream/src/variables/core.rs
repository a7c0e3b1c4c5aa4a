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
    /// Bytes that came from the client.
    "bytes_received" => |s, out| number(s.received.get(), out);
    /// Bytes that went to the client.
    "bytes_sent" => |s, out| number(s.sent.get(), out);
    /// Number of the session in this process.
    "connection" => |s, out| number(s.number, out);
    /// Name of the host.
    "hostname" => |_, out| text(nowait_sys::process::hostname(), out);
    /// Current time in seconds with milliseconds.
    "msec" => |_, out| { let ms = clock().unix_ms(); text(format!("{}.{:03}", ms / 1000, ms % 1000), out) };
    /// Version of nginx whose behaviour is followed.
    "nginx_version" => |_, out| text(nowait_front::NGINX_VERSION, out);
    /// Number of the process that serves the session.
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
    /// The client's port.
    "remote_port" => |s, out| { if let Some(port) = address::port(s.peer()) { number(u64::from(port), out); } true };
    /// Address of the server's side.
    "server_addr" => |s, out| { address::append_local(s.local(), out); true };
    /// The first name of the server.
    "server_name" => |s, out| { out.extend_from_slice(&s.server().name); true };
    /// Port of the server's side.
    "server_port" => |s, out| { if let Some(port) = address::port(s.local()) { number(u64::from(port), out); } true };
    /// How long the session has taken so far, in seconds with milliseconds.
    "session_time" => |s, out| seconds(now().saturating_duration_since(s.started), out);
    /// What the session came to: 200 when it was served, 400 when what the client sent at first can't
    /// be understood, 403 when it may not come in, 500 for an error of the server's, 502 when no
    /// upstream server could be reached, 503 when a limit was reached; 000 while it goes on.
    "status" => |s, out| text(format!("{:03}", s.status().map_or(0, |status| status.code())), out);
    /// Current time as in ISO 8601, local.
    "time_iso8601" => |_, out| { out.extend_from_slice(&clock().iso_time()); true };
    /// Current time as in the common log format, local.
    "time_local" => |_, out| { out.extend_from_slice(&clock().log_time()); true };
};

/// The families of this module.
pub const FAMILIES: &[Family] = &[Family {
    prefix: "proxy_protocol_tlv_",
    doc: "A record of the PROXY protocol header: `alpn`, `authority`, `unique_id`, `ssl`, `netns` or \
          a number such as `0xae`; of the proxy's TLS connection `ssl_version`, `ssl_cn`, \
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
