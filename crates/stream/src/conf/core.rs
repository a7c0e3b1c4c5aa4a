//! Settings of connections and of name resolution. nginx: `ngx_stream_core_module`.

use nowait_conf::{Cx, Diagnostic, Msec, Node, Scope, Size};
use nowait_front::resolver_directives::Resolving;
use nowait_upstream::conf::ResolverSetting;

nowait_conf::directives! {
    /// Settings of connections, up to the content phase.
    #[derive(Debug)]
    module "stream_core";
    pub struct CoreConf with CoreLayer;

    /// Controls whether small pieces are sent immediately (`TCP_NODELAY`), to clients and to
    /// upstream servers.
    tcp_nodelay: bool = "on", in STREAM | STREAM_SERVER, args "on | off";
    /// Maximum amount of client data that is read before the destination of a session is known
    /// (`ssl_preread`). A session that needs more ends with status 400.
    preread_buffer_size: Size = "16k", in STREAM | STREAM_SERVER, args "size";
    /// Maximum time for that.
    preread_timeout: Msec = "30s", in STREAM | STREAM_SERVER, args "time";
    /// Maximum time for receiving the header of the PROXY protocol (`listen … proxy_protocol`).
    proxy_protocol_timeout: Msec = "30s", in STREAM | STREAM_SERVER, args "time";
}

nowait_conf::directives! {
    /// Settings of name resolution.
    #[derive(Debug)]
    module "stream_core";
    pub struct ResolverConf with ResolverLayer;

    /// Name servers for names in variables (`proxy_pass $host:443`) and for servers with `resolve`,
    /// as `resolver` in `http`. Equal directives share one cache, across both blocks.
    ///
    /// nginx differs: it requires this directive for such names. Without it, Nowait uses the system
    /// configuration.
    resolver: Option<ResolverSetting>, in STREAM | STREAM_SERVER, args "address ... [valid=time] [ipv4=on|off] [ipv6=on|off] [status_zone=zone]";
    /// Maximum time for resolving a name; after that the session ends with status 500.
    resolver_timeout: Msec = "30s", in STREAM | STREAM_SERVER, args "time";
}

/// Name resolution settings, as inherited from the innermost block.
pub fn resolving(cx: &mut Cx<'_>, chain: &[&Scope]) -> Resolving {
    let conf = ResolverConf::resolve(cx, chain);
    Resolving::new(cx, conf.resolver.as_ref(), conf.resolver_timeout)
}

/// A number that is checked and has no effect: for directives that tune nginx's tables.
///
/// # Errors
/// It is not a number.
pub(crate) fn accepted(cx: &mut Cx<'_>, node: &Node) -> Result<(), Diagnostic> {
    cx.once(node)?;
    let word = node.args.first().ok_or_else(|| node.arity_error())?;
    <u32 as nowait_conf::Value>::from_word(&word.text)
        .map(drop)
        .map_err(|invalid| invalid.in_node(node, word))
}
