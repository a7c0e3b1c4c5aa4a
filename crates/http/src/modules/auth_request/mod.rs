//! `auth_request`: another location authorises the request. nginx: `ngx_http_auth_request_module`.
//!
//! Called by the access phase, after all other checks. Sets the variables of `auth_request_set`. Never
//! reads the request body, and never uses the body of the subrequest's response.

pub mod conf;

use bytes::Bytes;
use nowait_conf::{Cx, Scope};

use self::conf::AuthRequestConf;
use crate::log::Level;
use crate::module::{Handler, Module, Parts, Phase, Step};
use crate::outcome::{Outcome, Special};
use crate::request::Request;
use crate::subrequest::{self, Subrequest};
use crate::variables::complex::Place;

/// This module.
pub static MODULE: Module =
    Module { rows: &[AuthRequestConf::ROWS], build: Some(build), ..Module::EMPTY };

/// Sends the authorisation subrequest.
struct Ask(AuthRequestConf);

fn build(cx: &mut Cx<'_>, chain: &[&Scope], parts: &mut Parts) {
    let conf = AuthRequestConf::resolve(cx, chain);
    if conf.uri().is_some() {
        parts.handler(Phase::Access, Ask(conf));
    }
}

impl Handler for Ask {
    fn handle<'r>(&'r self, request: &'r mut Request) -> Step<'r> {
        Step::wait(async move {
            match ask(request, &self.0).await {
                Ok(()) => Step::Granted(request),
                Err(outcome) => Step::Done(request, outcome),
            }
        })
    }
}

/// `Ok`: access is granted; otherwise the response.
async fn ask(request: &mut Request, conf: &AuthRequestConf) -> Result<(), Outcome> {
    let uri = conf.uri().unwrap_or_default();
    let wanted = Subrequest { header_only: true, with_body: false, ..Subrequest::get(uri, None) };
    let answer = match wanted.begin(request) {
        Ok(begun) => subrequest::run(begun).await,
        Err(refused) => Err(refused),
    };
    let answer = match answer {
        Ok(answer) => answer,
        Err(subrequest::Refused::Closed) => return Err(Outcome::Close),
        Err(_) => return Err(Outcome::status(500)),
    };
    for set in &conf.auth_request_set {
        let value = answer.request().evaluate(&set.value);
        match set.place {
            Place::Slot(slot) => request.set_slot(slot, Some(value)),
            Place::Builtin(setter) => setter(request, value),
        }
    }
    let head = &answer.request().out;
    match answer.status() {
        status @ (401 | 403) => {
            let asks =
                |name: &Bytes| status == 401 && name.eq_ignore_ascii_case(b"www-authenticate");
            let headers = head.headers.iter().filter(|header| asks(&header.name)).cloned();
            let headers = headers.collect();
            Err(Outcome::Special(Special { status, location: None, headers }))
        }
        200..=299 => Ok(()),
        status => {
            request.log(Level::Error, format_args!("auth request unexpected status: {status}"));
            Err(Outcome::status(500))
        }
    }
}
