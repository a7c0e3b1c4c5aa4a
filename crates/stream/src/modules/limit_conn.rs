//! Limits on concurrent sessions, `limit_conn`: the preaccess phase. nginx:
//! `ngx_stream_limit_conn_module`.

use nowait_conf::{Cx, Diagnostic, Node, Scope};
use nowait_front::limit::connections::{
    self, ConnectionLimit, ConnectionLimits, ConnectionVerdict, CountError,
};
use nowait_front::limit::decisions::ZoneUse;
use nowait_front::limit::{Decision, LimitLevel, Parameters};
use std::sync::Arc;

use crate::conf::ZonesNamed;
use crate::module::{Handler, Module, Phase, Step};
use crate::session::Session;
use crate::status::Status;
use crate::variables::{Builtin, builtin_rows};

/// This module.
pub static MODULE: Module = Module {
    rows: &[LIMIT_CONN_ROWS, LimitConnConf::ROWS],
    handler: Some((Phase::PreAccess, handler)),
    variables: BUILTINS,
};

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

fn limit_conn_zone(cx: &mut Cx<'_>, node: &Node) -> Result<(), Diagnostic> {
    let parameters = Parameters::read(cx, node, false)?;
    let (name, size, word) = parameters.zone(node)?;
    let zones = cx.global::<ZonesNamed>();
    let at = zones.position(name, word.span);
    parameters.define(node, zones, at, connections::counts(size), ZoneUse::Sessions)
}

fn limit_conn(cx: &mut Cx<'_>, node: &Node) -> Result<(), Diagnostic> {
    let name = node.args.first().ok_or_else(|| node.arity_error())?;
    let zone = cx.global::<ZonesNamed>().position(&name.text, name.span);
    connections::limit_conn(cx, node, zone)
}

/// The limits of a server.
#[derive(Debug)]
struct ServerLimits {
    /// Maximum number of concurrent sessions.
    connections: Box<[ConnectionLimit]>,
    /// Related settings.
    conf: Arc<LimitConnConf>,
}

/// The limits of the innermost block that sets any.
fn handler(cx: &mut Cx<'_>, chain: &[&Scope]) -> Option<Box<dyn Handler>> {
    let connections = ConnectionLimits::resolve(chain);
    let conf = LimitConnConf::resolve(cx, chain);
    (!connections.is_empty()).then(|| Box::new(ServerLimits { connections, conf }) as _)
}

impl Handler for ServerLimits {
    fn handle<'s>(&'s self, session: &'s Session) -> Step<'s, Result<(), Status>> {
        let zones = &session.current.conf.limit_zones;
        let dry_run = self.conf.limit_conn_dry_run;
        let (decision, result) = match connections::ask(session, &self.connections, zones, dry_run)
        {
            ConnectionVerdict::Unlimited => return Step::Done(Ok(())),
            ConnectionVerdict::Counted(held) => {
                session.limits.hold(held);
                (Decision::Passed, Ok(()))
            }
            ConnectionVerdict::Refused { zone, why } => {
                if why == CountError::TooMany {
                    let text = connections::message(zone, dry_run);
                    session.log(self.conf.limit_conn_log_level.level(), format_args!("{text}"));
                }
                match dry_run {
                    true => (Decision::RejectedDryRun, Ok(())),
                    false => (Decision::Rejected, Err(Status::ServiceUnavailable)),
                }
            }
        };
        session.limits.decision.set(Some(decision));
        Step::Done(result)
    }
}

const BUILTINS: &[Builtin] = builtin_rows! {
    /// Result of `limit_conn`: `PASSED`, `REJECTED` or `REJECTED_DRY_RUN`.
    "limit_conn_status" => |s, out| {
        let Some(decision) = s.limits.decision.get() else { return false };
        out.extend_from_slice(decision.name().as_bytes());
        true
    };
};
