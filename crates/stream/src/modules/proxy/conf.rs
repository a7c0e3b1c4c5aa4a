//! `proxy_pass` and related directives. nginx: `ngx_stream_proxy_module`.

use std::sync::Arc;

use bytes::Bytes;
use nowait_conf::{Arity, Cx, Diagnostic, Field, Msec, Node, Scope, Setting, Size, arity};
use nowait_front::bind::BindOrOff;
use nowait_front::tls::upstream::UpstreamTls;
use nowait_front::upstreams::{GroupId, Groups};
use nowait_upstream::conf::target_error;

use super::server_name::ServerText;
use crate::conf::Complex;
use crate::module::{ContentLayer, Module};
use crate::variables::complex::StreamVariables;

/// This module.
pub static MODULE: Module = Module {
    rows: &[PASS_ROWS, ProxyConf::ROWS, TlsConf::ROWS, DEPRECATED_ROWS],
    handler: None,
    variables: &[],
};

nowait_conf::rows! {
    pub static PASS_ROWS, module "stream_proxy";

    /// Passes sessions to a server: an address or name with a port, a Unix-domain socket
    /// (`unix:/run/db.sock`) or an `upstream`. With variables, the server is looked up among the
    /// `upstream`s and then resolved.
    ///
    /// nginx differs: it resolves names when it reads the configuration; Nowait does so at run
    /// time.
    "proxy_pass" => proxy_pass, in STREAM_SERVER, take exactly(1), args "address";
}

nowait_conf::directives! {
    /// Settings of the proxy.
    #[derive(Debug)]
    module "stream_proxy", prefix "proxy_";
    pub struct ProxyConf with ProxyLayer;

    /// Local address of upstream connections. With `transparent` it may be a non-local address,
    /// such as `$remote_addr`. Variables are allowed; an empty value means `off`.
    bind: Option<BindOrOff<StreamVariables>>, in STREAM | STREAM_SERVER, args "address [transparent] | off";
    /// Enables or disables TCP keepalive probes on upstream connections (`SO_KEEPALIVE`).
    socket_keepalive: bool = "off", in STREAM | STREAM_SERVER, args "on | off";
    /// Receive buffer of upstream connections (`SO_RCVBUF`); zero leaves the choice to the kernel.
    socket_rcvbuf: Size = "0", in STREAM | STREAM_SERVER, args "size";
    /// Send buffer of upstream connections (`SO_SNDBUF`); zero leaves the choice to the kernel.
    socket_sndbuf: Size = "0", in STREAM | STREAM_SERVER, args "size";
    /// Maximum time for connecting to a server.
    connect_timeout: Msec = "60s", in STREAM | STREAM_SERVER, args "time";
    /// Ends a session if nothing was read or written on either side for this time.
    timeout: Msec = "10m", in STREAM | STREAM_SERVER, args "time";
    /// Maximum amount of data read at once from a client or server. An idle session holds no
    /// buffer; one with a slow receiver holds one per direction.
    ///
    /// nginx differs: it has exactly this buffer. In Nowait less than 16k counts as 16k; without
    /// the directive, or from 128k on, bulk data passes through a pipe in the kernel and is never
    /// read into the server.
    buffer_size: Option<Size>, in STREAM | STREAM_SERVER, args "size";
    /// Limits the rate at which data is read from a client, in bytes per second; zero means no
    /// limit. Variables are allowed.
    upload_rate: Option<Rate>, in STREAM | STREAM_SERVER, args "rate";
    /// Limits the rate at which data is read from a server, in bytes per second; zero means no
    /// limit. Variables are allowed.
    download_rate: Option<Rate>, in STREAM | STREAM_SERVER, args "rate";
    /// UDP: ends a client's session after this many datagrams were forwarded and their responses
    /// received; the next datagram starts a new session. Zero: a session lasts until it is idle.
    requests: u32 = "0", in STREAM | STREAM_SERVER, args "number";
    /// UDP: number of datagrams expected from the server for each datagram of the client. The
    /// session ends once they have arrived; a server that sends fewer within `proxy_timeout` has
    /// failed. By default the number is not limited.
    responses: Option<u32>, in STREAM | STREAM_SERVER, args "number";
    /// Controls whether another server is tried if a connection cannot be established.
    next_upstream: bool = "on", in STREAM | STREAM_SERVER, args "on | off";
    /// Maximum number of servers to try per session; zero means all of them.
    next_upstream_tries: u32 = "0", in STREAM | STREAM_SERVER, args "number";
    /// Maximum time for trying servers per session; zero means no limit.
    next_upstream_timeout: Msec = "0", in STREAM | STREAM_SERVER, args "time";
    /// Controls whether upstream connections start with the PROXY protocol: version 1 (`on`) or 2
    /// (`v2`, with a checksum).
    protocol: ProxyVersion = "off", in STREAM | STREAM_SERVER, args "on | v2 | off";
    /// Controls whether the end of one direction is passed on while the other continues. Otherwise
    /// the end of either direction ends the session.
    half_close: bool = "off", in STREAM | STREAM_SERVER, args "on | off";
    /// Controls whether a session ends at once when its server leaves the group because the name of
    /// a `server` with `resolve` has new addresses.
    session_drop: bool = "off", in STREAM | STREAM_SERVER, args "on | off";
    /// Controls whether upstream connections have TLS. The other directives `proxy_ssl_…` only apply
    /// then.
    ssl: bool = "off", in STREAM | STREAM_SERVER, args "on | off";
    /// Application protocols that are offered to the server (ALPN). Variables are allowed; empty
    /// names are left out.
    ssl_alpn: Option<Alpn>, in STREAM | STREAM_SERVER, args "protocol ...";
}

nowait_front::upstream_tls_rows! {
    module "stream_proxy", prefix "proxy_", variables StreamVariables, in STREAM | STREAM_SERVER;
    /// TLS to servers.
    pub struct TlsConf with TlsLayer;
}

/// `proxy_ssl_alpn`
#[derive(Clone, Debug)]
pub struct Alpn(Vec<Complex>);

impl Setting for Alpn {
    const ARITY: Arity = arity::at_least(1);

    fn parse(node: &Node, cx: &mut Cx<'_>) -> Result<Self, Diagnostic> {
        let texts = node.args.iter().map(|word| nowait_variables::text(word, cx));
        texts.collect::<Result<_, _>>().map(Self)
    }
}

nowait_conf::rows! {
    pub static DEPRECATED_ROWS, module "stream_proxy";

    /// Former name of `proxy_buffer_size`.
    "proxy_downstream_buffer" => old_buffer, in STREAM | STREAM_SERVER, take exactly(1), args "size";
    /// Former name of `proxy_buffer_size`.
    "proxy_upstream_buffer" => old_buffer, in STREAM | STREAM_SERVER, take exactly(1), args "size";
}

nowait_conf::setting_enum! {
    /// Version of the PROXY protocol that is sent to upstream servers.
    pub enum ProxyVersion {
        /// None.
        Off = "off",
        /// Version 1.
        One = "on",
        /// Version 2.
        Two = "v2",
    }
}

/// The destination of `proxy_pass`.
#[derive(Clone, Debug)]
pub enum Pass {
    /// To one server or group.
    Static(GroupId),
    /// Text with variables, evaluated per session.
    Variable(Complex),
}

/// The proxy of a server.
#[derive(Debug)]
pub struct Proxy {
    /// The destination.
    pub pass: Pass,
    /// The settings.
    pub conf: Arc<ProxyConf>,
    /// TLS to the server.
    pub tls: Option<ProxyTls>,
}

/// TLS to the server of a proxy.
#[derive(Debug)]
pub struct ProxyTls {
    /// The settings.
    pub settings: Arc<UpstreamTls<StreamVariables>>,
    /// The host of `proxy_pass` without variables.
    pub host: Bytes,
}

impl Proxy {
    /// Resolves a chain of blocks. `host`: that of `proxy_pass`, if it has no variables.
    fn resolve(cx: &mut Cx<'_>, chain: &[&Scope], pass: Pass, host: Bytes) -> Self {
        let conf = ProxyConf::resolve(cx, chain);
        let tls = conf.ssl.then(|| {
            let alpn = conf.ssl_alpn.clone().map_or_else(Vec::new, |alpn| alpn.0);
            let settings = Arc::unwrap_or_clone(TlsConf::resolve(cx, chain)).tls(cx, alpn);
            cx.accept(settings).map(|settings| ProxyTls { settings, host })
        });
        Self { pass, conf, tls: tls.flatten() }
    }
}

/// A rate that may contain variables; without any it is checked at once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rate(Complex);

impl std::ops::Deref for Rate {
    type Target = Complex;

    fn deref(&self) -> &Complex {
        &self.0
    }
}

impl Setting for Rate {
    const ARITY: Arity = arity::exactly(1);

    fn parse(node: &Node, cx: &mut Cx<'_>) -> Result<Self, Diagnostic> {
        let text = Complex::parse(node, cx)?;
        if text.literal().is_some() {
            <Size as Setting>::parse(node, cx)?;
        }
        Ok(Self(text))
    }
}

/// nginx: `ngx_stream_proxy_pass`.
fn proxy_pass(cx: &mut Cx<'_>, node: &Node) -> Result<(), Diagnostic> {
    let word = node.args.first().ok_or_else(|| node.arity_error())?;
    cx.once(node)?;
    let text = nowait_variables::text::<StreamVariables>(word, cx)?;
    let mut host = Bytes::new();
    let pass = match text.literal() {
        None => Pass::Variable(text),
        Some(server) => {
            let parsed = ServerText::parse(server)
                .map_err(|problem| target_error(problem, word, &word.to_string()))?;
            host.clone_from(&parsed.host);
            let group = cx.global::<Groups<StreamVariables>>().implicit(parsed.server(word.span));
            Pass::Static(group.map_err(|text| word.error(text))?)
        }
    };
    let make = |cx: &mut Cx<'_>, chain: &[&Scope]| Proxy::resolve(cx, chain, pass, host);
    cx.layer::<ContentLayer>().set(make);
    Ok(())
}

fn old_buffer(cx: &mut Cx<'_>, node: &Node) -> Result<(), Diagnostic> {
    let warning = format!(
        "the \"{}\" directive is deprecated, use the \"proxy_buffer_size\" directive instead",
        node.name
    );
    cx.report(Diagnostic::warn(warning).at(node.name.span));
    <Option<Size> as Field>::apply::<ProxyLayer>(cx, node, |layer| &mut layer.buffer_size)
}
