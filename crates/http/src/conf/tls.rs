//! TLS of virtual servers: settings that only HTTP has, and what its listeners demand. nginx:
//! `ngx_http_ssl_module`.

use nowait_conf::{Arity, Cx, Diagnostic, Node, Scope, Setting, Size};
use nowait_front::servers::Listen;
use nowait_front::tls::conf::{Added, ServerTls, SslConf};

use super::Server;
use super::http3::Http3Conf;
use crate::variables::complex::HttpVariables;

nowait_conf::directives! {
    /// TLS settings specific to HTTP.
    #[derive(Debug)]
    module "ssl";
    pub struct HttpSslConf with HttpSslConfLayer;

    /// Obsolete: makes all `listen` directives of the server those of TLS, as nginx did before 1.25.1. Use the parameter
    /// `ssl` of `listen`.
    ssl: Option<ObsoleteSsl>, in HTTP | SERVER, args "on | off";
    /// Maximum of data in a record, up to 16k. Smaller records reach slow clients sooner; larger
    /// ones cost less.
    ssl_buffer_size: Size = "16k", in HTTP | SERVER, args "size";
    /// Accepts data that clients of TLS 1.3 send along with their first message when they resume a
    /// session. A session is used once, so such data cannot be replayed. `$ssl_early_data` tells
    /// backends.
    ssl_early_data: bool = "off", in HTTP | SERVER, args "on | off";
}

/// `ssl`
#[derive(Debug, Clone, Copy)]
pub struct ObsoleteSsl(pub bool);

impl Setting for ObsoleteSsl {
    const ARITY: Arity = bool::ARITY;

    fn parse(node: &Node, cx: &mut Cx<'_>) -> Result<Self, Diagnostic> {
        let text =
            "the \"ssl\" directive is deprecated, use the \"listen ... ssl\" directive instead";
        cx.report(Diagnostic::warn(text).at(node.span));
        bool::parse(node, cx).map(ObsoleteSsl)
    }
}

/// The application protocols that are offered, by preference; the first if HTTP/2 is enabled. The
/// connection's task uses the result of the negotiation after the handshake.
const PROTOCOLS: &[&[u8]] = &[b"h2", b"http/1.1", b"http/1.0", b"http/0.9"];

/// Those over QUIC: of `http3` and `http3_hq`.
const QUIC_PROTOCOLS: [&[u8]; 2] = [b"h3", b"hq-interop"];

/// TLS of the server that a chain of blocks describes.
pub fn resolve(
    cx: &mut Cx<'_>,
    chain: &[&Scope],
    http2: bool,
    http3: &Http3Conf,
) -> ServerTls<HttpVariables> {
    let protocols = if http2 { PROTOCOLS } else { &PROTOCOLS[1..] };
    let quic = QUIC_PROTOCOLS.iter().zip([http3.http3, http3.http3_hq]);
    let quic = quic.filter(|(_, enabled)| *enabled).map(|(name, _)| name.to_vec());
    let conf = SslConf::resolve(cx, chain);
    let own = HttpSslConf::resolve(cx, chain);
    let added = Added {
        record_bytes: usize::try_from(own.ssl_buffer_size.0).unwrap_or(usize::MAX),
        early_data: own.ssl_early_data,
        alpn: protocols.iter().map(|name| name.to_vec()).collect(),
        quic_alpn: quic.collect(),
        resolving: super::resolver::resolve(cx, chain),
    };
    let built = conf.build(cx, added);
    cx.accept(built).unwrap_or_default()
}

/// Reports addresses with `ssl` whose servers have no certificate.
pub fn check(cx: &mut Cx<'_>, listens: &[Listen], servers: &[Server]) {
    nowait_front::tls::conf::check(cx, listens, |id| &servers[id.0 as usize].tls);
}
