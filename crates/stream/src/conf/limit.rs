//! `limit_conn`. nginx: `ngx_stream_limit_conn_module`.

use nowait_conf::{Cx, Diagnostic, Node, Scope};
use nowait_front::limit::connections::{self, ConnectionLimit, ConnectionLimits};
use nowait_front::limit::{LimitLevel, LimitZone, Parameters, Slots};

use crate::session::Session;

nowait_conf::rows! {
    pub static LIMIT_CONN_ROWS, module "stream_limit_conn";

    /// A zone that counts sessions for each value of the key. An address takes 64 bytes, so `1m`
    /// holds 16384 addresses; when the zone is full, sessions with new keys are refused. Reloads
    /// keep the zone while its name, size and key stay the same. Sessions with an empty key are not
    /// limited.
    "limit_conn_zone" => limit_conn_zone, in STREAM, take exactly(2), args "key zone=name:size";
    /// Limits the number of concurrent sessions for each value of the zone's key. Several limits
    /// must all agree.
    "limit_conn" => limit_conn, in STREAM | STREAM_SERVER, take exactly(2), args "zone number";
}

nowait_conf::directives! {
    /// Settings related to `limit_conn`.
    #[derive(Debug)]
    module "stream_limit_conn";
    pub struct LimitConnConf with LimitConnLayer;

    /// Log level for refused sessions.
    limit_conn_log_level: LimitLevel = "error", in STREAM | STREAM_SERVER, args "info | notice | warn | error";
    /// Enables or disables the dry run: sessions are counted and logged, but not refused.
    limit_conn_dry_run: bool = "off", in STREAM | STREAM_SERVER, args "on | off";
}

/// The zones named so far.
pub type Zones = Slots<Session, ()>;

/// Zones and their keys.
pub type LimitZones = Box<[LimitZone<Session, ()>]>;

/// The limits of a server.
#[derive(Debug)]
pub struct Limits {
    /// Maximum number of concurrent sessions.
    pub connections: Box<[ConnectionLimit]>,
    /// Related settings.
    pub conf: LimitConnConf,
}

impl Limits {
    /// The limits of the innermost block that sets any.
    pub fn resolve(cx: &mut Cx<'_>, chain: &[&Scope]) -> Self {
        let connections = ConnectionLimits::resolve(chain);
        Self { connections, conf: LimitConnConf::resolve(cx, chain) }
    }
}

fn limit_conn_zone(cx: &mut Cx<'_>, node: &Node) -> Result<(), Diagnostic> {
    let parameters = Parameters::read(cx, node, false)?;
    let (name, size, word) = parameters.zone(node)?;
    let zones = cx.global::<Zones>();
    let at = zones.position(name, word.span);
    parameters.define(node, zones, at, connections::counts(size))
}

fn limit_conn(cx: &mut Cx<'_>, node: &Node) -> Result<(), Diagnostic> {
    let name = node.args.first().ok_or_else(|| node.arity_error())?;
    let zone = cx.global::<Zones>().position(&name.text, name.span);
    connections::limit_conn(cx, node, zone)
}
