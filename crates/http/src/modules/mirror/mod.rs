//! `mirror`: copies of requests, made in the background. nginx: `ngx_http_mirror_module`.
//!
//! Only main requests are copied. Responses to copies are discarded. A worker with too
//! many copies in flight makes no more, and logs that.
//!
//! nginx differs: there the client's next request waits for the responses to the copies.

pub mod conf;

use nowait_conf::{Cx, Scope};

use self::conf::MirrorConf;
use crate::module::{Handler, Module, Parts, Phase, Step};
use crate::outcome::Outcome;
use crate::request::Request;
use crate::request_body;
use crate::subrequest::{self, Refused, Subrequest};

/// This module.
pub static MODULE: Module =
    Module { rows: &[MirrorConf::ROWS], build: Some(build), ..Module::EMPTY };

/// Sends the copies.
struct Mirror(MirrorConf);

fn build(cx: &mut Cx<'_>, chain: &[&Scope], parts: &mut Parts) {
    let conf = MirrorConf::resolve(cx, chain);
    if !conf.uris().is_empty() {
        parts.handler(Phase::Precontent, Mirror(conf));
    }
}

impl Handler for Mirror {
    fn handle<'r>(&'r self, request: &'r mut Request) -> Step<'r> {
        if request.is_nested() {
            return Step::Next(request);
        }
        Step::wait(async move {
            let outcome = run(request, &self.0).await;
            Step::of(request, outcome)
        })
    }
}

/// Starts the mirror subrequests. `Some`: the request body could not be read.
async fn run(request: &mut Request, conf: &MirrorConf) -> Option<Outcome> {
    if conf.mirror_request_body
        && let Err(status) = request_body::read(request).await
    {
        return Some(Outcome::status(status));
    }
    for uri in conf.uris() {
        let copy = Subrequest {
            method: request.method,
            header_only: true,
            with_body: conf.mirror_request_body,
            background: true,
            ..Subrequest::get(&uri[..], request.uri.args.clone())
        };
        match copy.begin(request).and_then(subrequest::background) {
            Ok(()) | Err(Refused::TooMany) => {}
            Err(Refused::TooDeep | Refused::Closed) => return Some(Outcome::status(500)),
        }
    }
    None
}
