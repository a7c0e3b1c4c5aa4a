//! `allow` and `deny`: the access phase. nginx: `ngx_stream_access_module`.

use nowait_conf::{Cx, Scope};
use nowait_front::access::{self, AccessConf, AccessVerdict, by_address};
use nowait_front::log::Level;

use crate::module::{Handler, Module, Phase, Step};
use crate::session::Session;
use crate::status::Status;

/// This module.
pub static MODULE: Module =
    Module { rows: &[ACCESS_ROWS], handler: Some((Phase::Access, handler)), variables: &[] };

nowait_conf::rows! {
    pub static ACCESS_ROWS, module "stream_access";

    /// Allows access from these addresses. Rules are tried in order, and the first match decides.
    /// If no rule matches, access is allowed.
    "allow" => access::rule, in STREAM | STREAM_SERVER, take exactly(1), args "address | CIDR | unix: | all";
    /// Denies access from these addresses.
    "deny" => access::rule, in STREAM | STREAM_SERVER, take exactly(1), args "address | CIDR | unix: | all";
}

/// The rules of a server.
struct Access(AccessConf);

fn handler(_cx: &mut Cx<'_>, chain: &[&Scope]) -> Option<Box<dyn Handler>> {
    let conf = AccessConf::resolve(chain);
    (!conf.rules.is_empty()).then(|| Box::new(Access(conf)) as _)
}

impl Handler for Access {
    fn handle<'s>(&'s self, session: &'s Session) -> Step<'s, Result<(), Status>> {
        let refused = by_address(&self.0.rules, session.peer()) == AccessVerdict::Refused;
        if refused {
            session.log(Level::Error, format_args!("access forbidden by rule"));
        }
        Step::Done(if refused { Err(Status::Forbidden) } else { Ok(()) })
    }
}
