//! `mirror`: copies of requests, made in the background. nginx: `ngx_http_mirror_module`.
//!
//! Called by the precontent phase of main requests. Responses to copies are discarded. A worker with too
//! many copies in flight makes no more, and logs that.
//!
//! nginx differs: there the client's next request waits for the responses to the copies.

use crate::outcome::Outcome;
use crate::request::Request;
use crate::request_body;
use crate::subrequest::{self, Refused, Subrequest};

/// Starts the mirror subrequests. `Some`: the request body could not be read.
pub(crate) async fn run(request: &mut Request) -> Option<Outcome> {
    let current = request.current.clone();
    let conf = &current.conf.location(request.location).mirror;
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
