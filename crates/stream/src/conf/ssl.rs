//! TLS of servers: settings that only `stream` has, and what its listeners demand. nginx:
//! `ngx_stream_ssl_module`.

use std::time::Duration;

use nowait_conf::{Cx, Msec, Scope, Words};
use nowait_front::servers::Listen;
use nowait_front::tls::conf::{Added, ServerTls, SslConf};

use super::StreamServer;
use crate::variables::complex::StreamVariables;

nowait_conf::directives! {
    /// The properties specific to `stream`.
    #[derive(Debug)]
    module "stream_ssl";
    pub struct StreamSslConf with StreamSslLayer;

    /// Maximum time for a TLS handshake.
    ssl_handshake_timeout: Msec = "60s", in STREAM | STREAM_SERVER, args "time";
    /// Application protocols that are offered to clients (ALPN), by preference. A client that offers
    /// only others is refused.
    ssl_alpn: Option<Words>, in STREAM | STREAM_SERVER, args "protocol ...";
}

/// TLS of a server.
#[derive(Clone, Debug, Default)]
pub struct SessionTls {
    /// The server.
    pub server: ServerTls<StreamVariables>,
    /// Maximum time for a handshake.
    pub timeout: Duration,
}

/// TLS of the server that a chain of blocks describes.
pub fn resolve(cx: &mut Cx<'_>, chain: &[&Scope]) -> SessionTls {
    let conf = SslConf::resolve(cx, chain);
    let own = StreamSslConf::resolve(cx, chain);
    let protocols = own.ssl_alpn.iter().flat_map(|words| words.iter());
    let alpn = protocols.map(|word| word.text.clone()).collect();
    let resolving = super::core::resolving(cx, chain);
    let built = conf.build(cx, Added { alpn, resolving, ..Added::default() });
    let server = cx.accept(built).unwrap_or_default();
    SessionTls { server, timeout: own.ssl_handshake_timeout.duration() }
}

/// Reports addresses with `ssl` whose servers have no certificate.
pub fn check(cx: &mut Cx<'_>, listens: &[Listen], servers: &[StreamServer]) {
    nowait_front::tls::conf::check(cx, listens, |id| &servers[id.0 as usize].tls.server);
}
