//! `allow` and `deny`: access to a location by client address. nginx: `ngx_http_access_module`.

use nowait_conf::{Cx, Scope};
use nowait_front::access::{self, AccessConf, AccessVerdict, by_address, deciding};
use nowait_http::conf::client::Satisfy;
use nowait_http::log::Level;
use nowait_http::module::{Handler, HandlerExplanation, LocationBuilder, Module, Phase, Step};
use nowait_http::outcome::Outcome;
use nowait_http::request::Request;
use nowait_http::response::LocalFuture;
use nowait_http::trace::{Trace, TraceSubject};

nowait_conf::rows! {
    pub static ACCESS_ROWS, module "access";

    /// Allows access from these addresses. Rules are tried in order, and the first match decides.
    /// If no rule matches, access is allowed.
    "allow" => access::rule, in HTTP | SERVER | LOCATION | LIMIT_EXCEPT, take exactly(1), inheritance List, args "address | CIDR | unix: | all";
    /// Denies access from these addresses.
    "deny" => access::rule, in HTTP | SERVER | LOCATION | LIMIT_EXCEPT, take exactly(1), inheritance List, args "address | CIDR | unix: | all";
}

/// This module.
pub static MODULE: Module = Module { rows: &[ACCESS_ROWS], build: Some(build), ..Module::EMPTY };

/// The rules of a location.
struct Rules(AccessConf);

fn build(_: &mut Cx<'_>, chain: &[&Scope], parts: &mut LocationBuilder) {
    let conf = AccessConf::resolve(chain);
    if !conf.rules.is_empty() {
        parts.handler(Phase::Access, Rules(conf));
    }
}

impl Handler for Rules {
    fn handle<'r>(&'r self, request: &'r mut Request) -> Step<'r> {
        match by_address(&self.0.rules, request.peer()) {
            AccessVerdict::Allowed => Step::Granted(request),
            AccessVerdict::None => Step::Next(request),
            AccessVerdict::Refused => {
                // With `satisfy any`, another handler may grant access.
                if request.location().client.satisfy == Satisfy::All {
                    request.log(Level::Error, format_args!("access forbidden by rule"));
                }
                Step::Done(request, Outcome::status(403))
            }
        }
    }

    fn explain<'a>(
        &'a self,
        request: &'a mut Request,
        trace: &'a mut Trace,
    ) -> LocalFuture<'a, HandlerExplanation> {
        trace.by = "allow deny";
        let client = request.peer().inet();
        let client = client.map_or_else(|| "unix:".to_owned(), |inet| inet.ip().to_string());
        match deciding(&self.0.rules, request.peer()) {
            Some(rule) => {
                let verb = if rule.allow { "allow" } else { "deny" };
                let text = format!("{verb}: this rule is the first that matches {client}");
                trace.add(TraceSubject::Access, Some(rule.span), text);
            }
            None => {
                let text = format!("no rule matches {client}: it is not refused");
                trace.add(TraceSubject::Access, None, text);
            }
        }
        HandlerExplanation::run()
    }
}
