//! The blocks `stream`, `server` and `upstream`, and the configuration made of their scopes.
//!
//! While the tree is read, every block only keeps its scope, since directives of `stream` may
//! follow a `server`. Afterwards the chains of scopes are resolved. nginx: `ngx_stream_block`.

use nowait_conf::{Context, Cx, Diagnostic, Node, Row, Scope, Span};
use nowait_front::listen::{self, ListenDirective, ListenRules};
use nowait_front::servers::{self, ConfiguredName, ServerId, ServerListens};
use nowait_front::upstreams::Groups;

use crate::conf::core::{CoreConf, ResolverConf, accepted, resolving};
use crate::conf::log::{LOG_ROWS, LogConf};
use crate::conf::{StreamConf, StreamServer, ZonesNamed};
use crate::module::ContentLayer;
use crate::modules;
use crate::variables::complex::{Mentions, StreamVariables, Table};
use crate::zone::{self, ZoneConf};

nowait_conf::rows! {
    pub static STREAM_ROWS, module "stream_core";

    /// The TCP and UDP proxy: its settings and servers.
    block "stream" => stream, in MAIN, take none(), args "{ ... }";
    /// A server: handles the sessions of certain addresses (`listen`).
    block "server" => server, in STREAM, take none(), args "{ ... }";
    /// The address and port, or Unix-domain socket path, on which the server accepts connections:
    /// `12345`, `127.0.0.1:12345`, `[::1]:12345`, `unix:/run/db.sock`. A range of ports
    /// (`12345-12399`) stands for one address per port. Host names are resolved when the
    /// configuration is read. A server needs at least one.
    ///
    /// With `udp` the server receives datagrams instead; those of one client form a session.
    /// `reuseport` gives each worker its own socket; without it, one worker receives all datagrams
    /// of the address. `proxy_protocol` expects the PROXY protocol, version 1 or 2, before anything
    /// else. `ssl`: connections speak TLS, with the server's `ssl_certificate`, or that of the server
    /// that the name in the handshake selects. Sizes, times and numbers set the kernel's socket options of these names. If several
    /// servers have the same address, the first one, or the one marked `default_server`, receives
    /// the sessions, unless the name in the client's TLS handshake selects another (`ssl_preread`,
    /// `server_name`).
    "listen" => listen, in STREAM_SERVER, take at_least(1), args "address:port [default_server] [ssl] [udp] [proxy_protocol] [bind] [backlog=number] [rcvbuf=size] [sndbuf=size] [deferred] [fastopen=number] [reuseport] [ipv6only=on|off] [multipath] [so_keepalive=on|off|[idle]:[interval]:[count]]";
    /// Names of the server: exact, with a wildcard at one end, or regular expressions.
    "server_name" => server_name, in STREAM_SERVER, take at_least(1), default "\"\"", args "name ...";
    /// A group of servers that `proxy_pass` refers to by name.
    block "upstream" => upstream, in STREAM, take exactly(1), args "name { ... }";
    /// Accepted for compatibility: the table needs no tuning.
    "server_names_hash_max_size" => accepted, in STREAM, take exactly(1), default "512", args "size";
    /// Accepted for compatibility: the table needs no tuning.
    "server_names_hash_bucket_size" => accepted, in STREAM, take exactly(1), default "64", args "size";
    /// Accepted for compatibility: the table needs no tuning.
    "variables_hash_max_size" => accepted, in STREAM, take exactly(1), default "1024", args "size";
    /// Accepted for compatibility: the table needs no tuning.
    "variables_hash_bucket_size" => accepted, in STREAM, take exactly(1), default "64", args "size";
}

/// The content of `stream` besides its settings.
#[derive(Default)]
struct StreamLayer {
    servers: Vec<(Scope, Span)>,
}

/// The content of `server` besides its settings.
#[derive(Default)]
struct ServerLayer {
    listens: Vec<ListenDirective>,
    names: Vec<ConfiguredName>,
}

/// The `stream` block as it was read, until it is resolved.
#[derive(Default)]
struct PendingBlock(Option<Scope>);

fn stream(cx: &mut Cx<'_>, node: &Node) -> Result<(), Diagnostic> {
    cx.once(node)?;
    let scope = cx.block(Context::STREAM, node.children());
    cx.global::<PendingBlock>().0 = Some(scope);
    Ok(())
}

fn server(cx: &mut Cx<'_>, node: &Node) -> Result<(), Diagnostic> {
    let mut scope = cx.block(Context::STREAM_SERVER, node.children());
    if scope.layer::<ServerLayer>().listens.is_empty() && scope.seen("listen").is_none() {
        let error = node.error("no \"listen\" is defined for server");
        return Err(error.hint("add an address or port: listen 12345;"));
    }
    cx.layer::<StreamLayer>().servers.push((scope, node.span));
    Ok(())
}

fn listen(cx: &mut Cx<'_>, node: &Node) -> Result<(), Diagnostic> {
    let read = listen::read(
        cx,
        node,
        ListenRules { default_port: None, udp: true, ssl: true, http2: false, quic: false },
    )?;
    cx.layer::<ServerLayer>().listens.extend(read);
    Ok(())
}

fn server_name(cx: &mut Cx<'_>, node: &Node) -> Result<(), Diagnostic> {
    let names = servers::read_names::<StreamVariables>(cx, node)?;
    cx.layer::<ServerLayer>().names.extend(names);
    Ok(())
}

fn upstream(cx: &mut Cx<'_>, node: &Node) -> Result<(), Diagnostic> {
    Groups::<StreamVariables>::read(cx, node, Context::STREAM_UPSTREAM)
}

/// Resolves the `stream` block, if there is one.
///
/// Errors are reported to `cx`; the result is usable only if there were none.
pub fn build(cx: &mut Cx<'_>, main: &Scope) -> Option<StreamConf> {
    let mut stream = cx.global::<PendingBlock>().0.take()?;
    let scopes = std::mem::take(&mut stream.layer::<StreamLayer>().servers);
    let mut listens = Vec::with_capacity(scopes.len());
    let mut servers = Vec::with_capacity(scopes.len());
    for (n, (mut scope, span)) in scopes.into_iter().enumerate() {
        let id = ServerId(u32::try_from(n).unwrap_or(u32::MAX));
        let ServerLayer { listens: directives, names } = scope.take::<ServerLayer>();
        let name = names.first().map(|name| name.shown.clone()).unwrap_or_default();
        let mut names = names;
        if names.is_empty() {
            names.push(ConfiguredName::none(span));
        }
        listens.push(ServerListens { id, listens: directives, names });
        let content = scope.take::<ContentLayer>();
        let chain = [main, &stream, &scope];
        let content = content.make(cx, &chain);
        if content.is_none() {
            let warning = Diagnostic::warn("no handler for server: its sessions end at once");
            cx.report(warning.at(span).hint("add a destination: proxy_pass 127.0.0.1:12345;"));
        }
        let log = LogConf::resolve(cx, &chain);
        servers.push(StreamServer {
            name,
            core: CoreConf::resolve(cx, &chain),
            tls: crate::conf::ssl::resolve(cx, &chain),
            resolving: resolving(cx, &chain),
            handlers: modules::handlers(cx, &chain),
            content,
            zone: zone::of(cx, &chain),
            access_logs: log.access_logs(cx),
            log,
        });
    }
    let mut listens = servers::build(cx, &listens);
    crate::conf::ssl::check(cx, &listens, &servers);
    for listen in &mut listens {
        // Accepted connections inherit it, which saves a call for each.
        let default = listen.only().map(|only| only.default_server);
        let nodelay = default.is_none_or(|id| servers[id.0 as usize].core.tcp_nodelay);
        listen.spec.nodelay = listen.spec.address.is_stream() && nodelay;
    }
    let limit_zones = cx.take_global::<ZonesNamed>().resolve(cx, "limit_conn_zone");
    let keyvals = nowait_front::keyval::finish::<StreamVariables>(cx);
    let upstreams = cx.take_global::<Groups<StreamVariables>>().resolve(cx);
    let resolving = resolving(cx, &[main, &stream]);
    let resolvers =
        cx.global::<nowait_front::resolver_directives::NamedResolvers>().settings().to_vec();
    let access_logs = LogConf::resolve(cx, &[main, &stream]).access_logs(cx);
    let variables = match cx.global::<Table>().resolve() {
        Ok(variables) => variables,
        Err(unknown) => {
            report_unknown(cx, &unknown);
            nowait_variables::Resolved::default()
        }
    };
    let offers = nowait_front::tls::variables::OFFERS;
    let wants_offers = offers.iter().any(|name| cx.global::<Table>().mentions(name));
    Some(StreamConf {
        wants_offers,
        tls_sessions: cx.take_global::<nowait_front::tls::conf::SharedTls>(),
        servers: servers.into(),
        listens: listens.into(),
        variables,
        upstreams,
        resolvers,
        limit_zones,
        keyvals,
        access_logs,
        resolving,
    })
}

fn report_unknown(cx: &mut Cx<'_>, unknown: &[String]) {
    let mentions = std::mem::take(&mut cx.global::<Mentions>().names);
    for name in unknown {
        let span =
            mentions.iter().find(|(mentioned, _)| mentioned.eq_ignore_ascii_case(name.as_bytes()));
        let mut error = Diagnostic::emerg(format!("unknown \"{name}\" variable"));
        if let Some((_, span)) = span {
            error = error.at(*span);
        }
        if let Some(near) = cx.global::<Table>().nearest(name) {
            error = error.hint(format!("did you mean \"${near}\"?"));
        } else {
            error = error.hint("nothing defines it: \"set\", \"map\" and the like do");
        }
        cx.report(error);
    }
}

/// Registers the variables of sessions. Called before the directives are read.
pub fn prepare(cx: &mut Cx<'_>) {
    cx.set_global(Table::new(modules::vocabulary()));
}

/// Rows of all tables of this crate, for the registry and the reference.
pub fn rows() -> Vec<&'static [Row]> {
    let core =
        [STREAM_ROWS, CoreConf::ROWS, ResolverConf::ROWS, ZoneConf::ROWS, LogConf::ROWS, LOG_ROWS];
    core.into_iter().chain(modules::rows()).chain([nowait_upstream::conf::STREAM_ROWS]).collect()
}
