//! The real address of a client behind trusted proxies. nginx: `ngx_http_realip_module`.
//!
//! Runs in two phases: first with the server's settings, and again when the location is final. The first
//! address found applies. It is a property of the request; the connection keeps its peer address.

pub mod conf;

use std::net::SocketAddr;
use std::sync::Arc;

use nowait_conf::{Cx, Scope};
use nowait_front::realip::{Trusted, trusts};
use nowait_http::address;
use nowait_http::forwarded;
use nowait_http::module::{Handler, HandlerExplanation, LocationBuilder, Module, Phase, Step};
use nowait_http::request::Request;
use nowait_http::response::LocalFuture;
use nowait_http::trace::Trace;
use nowait_http::variables::Builtin;
use nowait_http::variables::core::{builtins, number};
use nowait_runtime::net::Address;

use self::conf::{RealIpConf, Source};

/// This module.
pub static MODULE: Module =
    Module { rows: &[RealIpConf::ROWS], build: Some(build), variables: BUILTINS, ..Module::EMPTY };

/// Replaces the client's address if the peer is trusted and states another one.
struct RealIp(Arc<RealIpConf>);

fn build(cx: &mut Cx<'_>, chain: &[&Scope], parts: &mut LocationBuilder) {
    let conf = RealIpConf::resolve(cx, chain);
    if !conf.set_real_ip_from.is_empty() {
        parts.handler(Phase::PostRead, RealIp(conf.clone()));
        parts.handler(Phase::Preaccess, RealIp(conf));
    }
}

impl Handler for RealIp {
    fn handle<'r>(&'r self, request: &'r mut Request) -> Step<'r> {
        if request.real_peer().is_none()
            && !request.is_nested()
            && let Some(client) = find(request, &self.0)
        {
            request.set_real_peer(Address::Inet(client));
        }
        Step::Next(request)
    }

    fn explain<'a>(
        &'a self,
        _: &'a mut Request,
        _: &'a mut Trace,
    ) -> LocalFuture<'a, HandlerExplanation> {
        HandlerExplanation::run()
    }
}

fn find(request: &Request, conf: &RealIpConf) -> Option<SocketAddr> {
    if !trusts(&conf.set_real_ip_from, &request.client().peer) {
        return None;
    }
    let lines = |name: &[u8]| {
        let fields = request.head().fields().iter();
        fields
            .filter(|field| field.name.eq_ignore_ascii_case(name))
            .map(|field| field.value)
            .collect::<Vec<_>>()
    };
    let values = match &conf.real_ip_header {
        Source::ProxyProtocol => return Some(request.client().proxy_protocol.get()?.source),
        Source::ForwardedFor => lines(b"x-forwarded-for"),
        Source::Field(name) => lines(name).into_iter().take(1).collect(),
    };
    let mut networks = Vec::new();
    for trusted in &conf.set_real_ip_from {
        if let Trusted::Networks(more) = trusted {
            networks.extend_from_slice(more);
        }
    }
    forwarded::client_address(values.into_iter(), &networks, conf.real_ip_recursive)
}

/// The variables of this module.
const BUILTINS: &[Builtin] = builtins! {
    /// The connection's original client address, before `$remote_addr` was replaced.
    "realip_remote_addr" => |r, out| { address::append_ip(&r.client().peer, out); true };
    /// The connection's original client port.
    "realip_remote_port" => |r, out| { if let Some(port) = address::port(&r.client().peer) { number(u64::from(port), out); } true };
};
