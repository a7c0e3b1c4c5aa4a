//! Settings of connections, and of names. nginx: `ngx_stream_core_module`.

use nowait_conf::{Cx, Msec, Scope, Size};
use nowait_front::resolving::Resolving;
use nowait_upstream::conf::ResolverSetting;

nowait_conf::directives! {
    /// Connections, and what is read of them before they are served.
    #[derive(Debug)]
    module "stream_core";
    pub struct CoreConf with CoreLayer;

    /// Whether small pieces are sent at once (`TCP_NODELAY`), to clients and to upstream servers.
    tcp_nodelay: bool = "on", in STREAM | STREAM_SERVER, args "on | off";
    /// How much is read of what a client sends before it is known where its session goes
    /// (`ssl_preread`). What does not fit ends the session with status 400.
    preread_buffer_size: Size = "16k", in STREAM | STREAM_SERVER, args "size";
    /// How long that may take.
    preread_timeout: Msec = "30s", in STREAM | STREAM_SERVER, args "time";
    /// How long the header of the PROXY protocol may take to come (`listen … proxy_protocol`).
    proxy_protocol_timeout: Msec = "30s", in STREAM | STREAM_SERVER, args "time";
}

nowait_conf::directives! {
    /// How names are resolved.
    #[derive(Debug)]
    module "stream_core";
    pub struct ResolverConf with ResolverLayer;

    /// Name servers for names in variables (`proxy_pass $host:443`) and for servers of groups with
    /// `resolve`, as `resolver` in `http`. Equal directives share one cache, in both blocks.
    ///
    /// nginx differs: where no directive is set, names are resolved as the system does it.
    resolver: Option<ResolverSetting>, in STREAM | STREAM_SERVER, args "address ... [valid=time] [ipv4=on|off] [ipv6=on|off] [status_zone=zone]";
    /// How long a name may take to be resolved; then the session ends with status 500.
    resolver_timeout: Msec = "30s", in STREAM | STREAM_SERVER, args "time";
}

/// How names are resolved, as the innermost of the blocks says.
pub fn resolving(cx: &mut Cx<'_>, chain: &[&Scope]) -> Resolving {
    let conf = ResolverConf::resolve(cx, chain);
    Resolving::new(cx, conf.resolver.as_ref(), conf.resolver_timeout)
}
