//! Limits on concurrent sessions: `limit_conn`. nginx: `ngx_stream_limit_conn_module`.
//!
//! Called once per session, in the preaccess phase. Never waits.

use nowait_front::limit::Decision;
use nowait_front::limit::connections::{self, Answer, Held, Refused};

use crate::session::Session;
use crate::status::Status;
use crate::variables::{Builtin, builtin_rows};

/// The verdict of the limits on a session, which counts as long as this exists.
#[derive(Debug, Default)]
pub struct Limited {
    decision: Option<Decision>,
    _held: Vec<Held>,
}

/// Applies the limits of the server.
///
/// # Errors
/// The status of a refused session.
pub(crate) fn ask(session: &Session) -> Result<(), Status> {
    let server = session.server();
    let conf = &server.limits.conf;
    let zones = &session.current.conf.limit_zones;
    let (decision, result) = match connections::ask(session, &server.limits.connections, zones) {
        Answer::Unlimited => return Ok(()),
        Answer::Counted(held) => {
            session.limited.replace(Limited { decision: Some(Decision::Passed), _held: held });
            return Ok(());
        }
        Answer::Refused { zone, why } => {
            let dry_run = conf.limit_conn_dry_run;
            if why == Refused::TooMany {
                let text = connections::message(zone, dry_run);
                session.log(conf.limit_conn_log_level.level(), format_args!("{text}"));
            }
            match dry_run {
                true => (Decision::RejectedDryRun, Ok(())),
                false => (Decision::Rejected, Err(Status::ServiceUnavailable)),
            }
        }
    };
    session.limited.replace(Limited { decision: Some(decision), _held: Vec::new() });
    result
}

/// The variables of this module.
pub const BUILTINS: &[Builtin] = builtin_rows! {
    /// Result of `limit_conn`: `PASSED`, `REJECTED` or `REJECTED_DRY_RUN`.
    "limit_conn_status" => |s, out| {
        let Some(decision) = s.limited.borrow().decision else { return false };
        out.extend_from_slice(decision.name().as_bytes());
        true
    };
};
