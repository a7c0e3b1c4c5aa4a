//! The real address of a client behind a trusted proxy that speaks the PROXY protocol. nginx:
//! `ngx_stream_realip_module`.
//!
//! Called once per session, in the post-accept phase.

use nowait_front::address;
use nowait_front::realip::trusts;
use nowait_runtime::net::Address;

use crate::session::Session;
use crate::variables::{Builtin, builtin_rows, number};

/// Replaces the client's address if the peer is trusted and has stated another one.
pub(crate) fn apply(session: &Session) {
    let Some(header) = session.proxy_protocol.get() else { return };
    if trusts(&session.server().realip.set_real_ip_from, &session.connection_peer) {
        // The cell is filled here only, once.
        let _ = session.real_peer.set(Box::new(Address::Inet(header.source)));
    }
}

/// The variables of this module.
pub const BUILTINS: &[Builtin] = builtin_rows! {
    /// The connection's original client address, before `$remote_addr` was replaced.
    "realip_remote_addr" => |s, out| { address::append_ip(&s.connection_peer, out); true };
    /// The connection's original client port.
    "realip_remote_port" => |s, out| { if let Some(port) = address::port(&s.connection_peer) { number(u64::from(port), out); } true };
};
