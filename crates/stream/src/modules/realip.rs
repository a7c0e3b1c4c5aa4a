//! The real address of a client behind a trusted proxy with the PROXY protocol: the post-accept phase.
//! nginx: `ngx_stream_realip_module`.

use nowait_conf::{Cx, Scope};
use nowait_front::address;
use nowait_front::realip::{Trusted, trusts};
use nowait_runtime::net::Address;
use std::sync::Arc;

use crate::module::{Handler, Module, Phase, Step};
use crate::session::Session;
use crate::status::Status;
use crate::variables::{Builtin, builtin_rows, number};

/// This module.
pub static MODULE: Module = Module {
    rows: &[RealIpConf::ROWS],
    handler: Some((Phase::PostAccept, handler)),
    variables: BUILTINS,
};

nowait_conf::directives! {
    /// Addresses of clients behind trusted proxies.
    #[derive(Debug)]
    module "stream_realip";
    pub struct RealIpConf with RealIpLayer;

    /// Proxies that are trusted to state the client's address in the header of the PROXY protocol.
    set_real_ip_from: Vec<Trusted>, in STREAM | STREAM_SERVER, args "address | CIDR | unix: | hostname";
}

fn handler(cx: &mut Cx<'_>, chain: &[&Scope]) -> Option<Box<dyn Handler>> {
    let conf = RealIpConf::resolve(cx, chain);
    (!conf.set_real_ip_from.is_empty()).then(|| Box::new(RealIp(conf)) as _)
}

/// Replaces the client's address.
struct RealIp(Arc<RealIpConf>);

impl Handler for RealIp {
    /// Replaces the client's address if the peer is trusted and has stated another one.
    fn handle<'s>(&'s self, session: &'s Session) -> Step<'s, Result<(), Status>> {
        if let Some(header) = session.proxy_protocol.get()
            && trusts(&self.0.set_real_ip_from, &session.connection_peer)
        {
            // The cell is filled here only, once.
            let _ = session.real_peer.set(Box::new(Address::Inet(header.source)));
        }
        Step::Done(Ok(()))
    }
}

const BUILTINS: &[Builtin] = builtin_rows! {
    /// The connection's original client address, before `$remote_addr` was replaced.
    "realip_remote_addr" => |s, out| { address::append_ip(&s.connection_peer, out); true };
    /// The connection's original client port.
    "realip_remote_port" => |s, out| { if let Some(port) = address::port(&s.connection_peer) { number(u64::from(port), out); } true };
};
