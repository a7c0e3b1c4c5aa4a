//! `mirror`: copies of requests, made in the background. nginx: `ngx_http_mirror_module`.
//!
//! Only main requests are copied. Responses to copies are discarded. A worker with too
//! many copies in flight makes no more, and logs that.
//!
//! nginx differs: there the client's next request waits for the responses to the copies.

pub mod conf;

use std::sync::Arc;

use nowait_conf::{Cx, Scope};
use nowait_http::module::{Handler, HandlerExplanation, LocationBuilder, Module, Phase, Step};
use nowait_http::outcome::Outcome;
use nowait_http::phases::explained;
use nowait_http::request::Request;
use nowait_http::request_body;
use nowait_http::response::LocalFuture;
use nowait_http::subrequest::{self, Subrequest, SubrequestError};
use nowait_http::trace::{Trace, quoted};

use self::conf::MirrorConf;

/// This module.
pub static MODULE: Module =
    Module { rows: &[MirrorConf::ROWS], build: Some(build), ..Module::EMPTY };

/// Sends the copies.
struct Mirror(Arc<MirrorConf>);

fn build(cx: &mut Cx<'_>, chain: &[&Scope], parts: &mut LocationBuilder) {
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

    fn explain<'a>(
        &'a self,
        request: &'a mut Request,
        trace: &'a mut Trace,
    ) -> LocalFuture<'a, HandlerExplanation> {
        Box::pin(async move {
            for uri in self.0.uris().iter().filter(|_| !request.is_nested()) {
                trace.by = "mirror";
                let Ok(mut begun) = copy(request, &self.0, uri).begin(request) else { continue };
                let text = format!("mirror: a copy goes to {} in the background", quoted(uri));
                explained::subrequest(&mut begun, trace, text).await;
            }
            HandlerExplanation::Next
        })
    }
}

/// A copy for a URI.
fn copy(request: &Request, conf: &MirrorConf, uri: &[u8]) -> Subrequest {
    Subrequest {
        method: request.method(),
        header_only: true,
        with_body: conf.mirror_request_body,
        background: true,
        ..Subrequest::get(uri, request.uri().args.clone())
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
        match copy(request, conf, uri).begin(request).and_then(subrequest::background) {
            Ok(()) | Err(SubrequestError::TooMany) => {}
            Err(SubrequestError::TooDeep | SubrequestError::Closed) => {
                return Some(Outcome::status(500));
            }
        }
    }
    None
}
