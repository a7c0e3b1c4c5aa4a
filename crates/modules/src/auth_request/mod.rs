//! `auth_request`: another location authorises the request. nginx: `ngx_http_auth_request_module`.
//!
//! Called by the access phase, after all other checks. Sets the variables of `auth_request_set`. Never
//! reads the request body, and never uses the body of the subrequest's response.

pub mod conf;

use std::sync::Arc;

use bytes::Bytes;
use nowait_conf::{Cx, Scope};
use nowait_http::log::Level;
use nowait_http::module::{Handler, HandlerExplanation, LocationBuilder, Module, Phase, Step};
use nowait_http::outcome::{Outcome, StatusResponse};
use nowait_http::phases::explained::{self, Ended};
use nowait_http::request::Request;
use nowait_http::response::LocalFuture;
use nowait_http::response_head;
use nowait_http::subrequest::{self, Subrequest};
use nowait_http::trace::{Trace, TraceSubject, quoted};
use nowait_http::variables::complex::SetTarget;

use self::conf::AuthRequestConf;

/// This module.
pub static MODULE: Module =
    Module { rows: &[AuthRequestConf::ROWS], build: Some(build), ..Module::EMPTY };

/// Sends the authorisation subrequest.
struct AuthRequest(Arc<AuthRequestConf>);

fn build(cx: &mut Cx<'_>, chain: &[&Scope], parts: &mut LocationBuilder) {
    let conf = AuthRequestConf::resolve(cx, chain);
    if conf.uri().is_some() {
        parts.handler(Phase::Access, AuthRequest(conf));
    }
}

impl Handler for AuthRequest {
    fn handle<'r>(&'r self, request: &'r mut Request) -> Step<'r> {
        Step::wait(async move {
            match ask(request, &self.0).await {
                Ok(()) => Step::Granted(request),
                Err(outcome) => Step::Done(request, outcome),
            }
        })
    }

    fn explain<'a>(
        &'a self,
        request: &'a mut Request,
        trace: &'a mut Trace,
    ) -> LocalFuture<'a, HandlerExplanation> {
        Box::pin(async move {
            trace.by = "auth_request";
            let uri = self.0.uri().unwrap_or_default();
            let Ok(mut begun) = wanted(&self.0).begin(request) else {
                return HandlerExplanation::Done(Outcome::status(500));
            };
            let text = format!("auth_request: asks {}", quoted(uri));
            match explained::subrequest(&mut begun, trace, text).await {
                Ended::Response(None) => HandlerExplanation::Done(Outcome::Close),
                Ended::Response(Some(mut head)) => {
                    response_head::complete(&begun, &mut head);
                    begun.set_out(head);
                    match judge(request, &self.0, &begun) {
                        Ok(()) => HandlerExplanation::Granted,
                        Err(outcome) => HandlerExplanation::Done(outcome),
                    }
                }
                Ended::Elsewhere(_) | Ended::Unknown => {
                    let text = "auth_request: the response is not known; 2xx grants access, which \
                                is assumed here; 401 and 403 refuse it, all else is 500";
                    trace.add(TraceSubject::Access, None, text);
                    trace.conditions.push(format!(
                        "only if auth_request {} gets 2xx, which is not known",
                        quoted(uri)
                    ));
                    HandlerExplanation::Granted
                }
            }
        })
    }
}

/// The subrequest to send.
fn wanted(conf: &AuthRequestConf) -> Subrequest {
    let uri = conf.uri().unwrap_or_default();
    Subrequest { header_only: true, with_body: false, ..Subrequest::get(uri, None) }
}

/// `Ok`: access is granted; otherwise the response.
async fn ask(request: &mut Request, conf: &AuthRequestConf) -> Result<(), Outcome> {
    let answer = match wanted(conf).begin(request) {
        Ok(begun) => subrequest::run(begun).await,
        Err(refused) => Err(refused),
    };
    let answer = match answer {
        Ok(answer) => answer,
        Err(subrequest::SubrequestError::Closed) => return Err(Outcome::Close),
        Err(_) => return Err(Outcome::status(500)),
    };
    judge(request, conf, answer.request())
}

/// Judges by the subrequest with its response.
fn judge(request: &mut Request, conf: &AuthRequestConf, asked: &Request) -> Result<(), Outcome> {
    for set in &conf.auth_request_set {
        let value = asked.evaluate(&set.value);
        match set.place {
            SetTarget::Slot(slot) => request.set_slot(slot, Some(value)),
            SetTarget::Builtin(setter) => setter(request, value),
        }
    }
    let head = asked.out();
    match head.status {
        status @ (401 | 403) => {
            let asks =
                |name: &Bytes| status == 401 && name.eq_ignore_ascii_case(b"www-authenticate");
            let headers = head.headers.iter().filter(|header| asks(&header.name)).cloned();
            let headers = headers.collect();
            Err(Outcome::Status(StatusResponse { status, location: None, headers }))
        }
        200..=299 => Ok(()),
        status => {
            request.log(Level::Error, format_args!("auth request unexpected status: {status}"));
            Err(Outcome::status(500))
        }
    }
}
