//! Variables of the PROXY protocol header. nginx: `ngx_http_core_variables`.

use super::core::{builtins, number};
use super::{Builtin, Family};
use crate::proxy_protocol::ProxyProtocol;
use crate::request::Request;

/// The table of this module.
pub const BUILTINS: &[Builtin] = builtins! {
    /// Client address from the PROXY protocol header.
    "proxy_protocol_addr" => |r, out| of(r, out, |p, out| text(p.source.ip(), out));
    /// Client port from the PROXY protocol header.
    "proxy_protocol_port" => |r, out| of(r, out, |p, out| number(u64::from(p.source.port()), out));
    /// Server address from the PROXY protocol header.
    "proxy_protocol_server_addr" => |r, out| of(r, out, |p, out| text(p.destination.ip(), out));
    /// Server port from the PROXY protocol header.
    "proxy_protocol_server_port" => |r, out| of(r, out, |p, out| number(u64::from(p.destination.port()), out));
};

/// The families of this module.
pub const FAMILIES: &[Family] = &[Family {
    prefix: "proxy_protocol_tlv_",
    doc: "A TLV record of the PROXY protocol header: `alpn`, `authority`, `unique_id`, `ssl`, `netns` or \
          a number such as `0xae`; for the proxy's TLS connection `ssl_version`, `ssl_cn`, \
          `ssl_cipher`, `ssl_sig_alg`, `ssl_key_alg`, `ssl_verify` or `ssl_` and a number.",
    get: |r, name, out| {
        let value = r.client().proxy_protocol.get().and_then(|header| header.tlv(name));
        value.map(|value| out.extend_from_slice(&value)).is_some()
    },
}];

fn of(r: &Request, out: &mut Vec<u8>, part: fn(&ProxyProtocol, &mut Vec<u8>) -> bool) -> bool {
    r.client().proxy_protocol.get().is_some_and(|header| part(header, out))
}

fn text(ip: std::net::IpAddr, out: &mut Vec<u8>) -> bool {
    out.extend_from_slice(ip.to_string().as_bytes());
    true
}
