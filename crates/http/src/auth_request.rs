//! `auth_request`: another location authorises the request. nginx: `ngx_http_auth_request_module`.
//!
//! Called by the access phase, after all other checks. Sets the variables of `auth_request_set`. Never
//! reads the request body, and never uses the body of the subrequest's response.

use bytes::Bytes;

use crate::access::Verdict;
use crate::log::Level;
use crate::outcome::{Outcome, Special};
use crate::request::Request;
use crate::subrequest::{self, Subrequest};
use crate::variables::Place;

/// Result of the authorisation subrequest.
pub(crate) enum Asked {
    /// No subrequest is configured, or it allowed the request.
    Settled(Verdict),
    /// 401 or 403.
    Refused(Special),
    /// Another response, which no other check overrules.
    Failed(Outcome),
}

/// Sends the authorisation subrequest.
pub(crate) async fn ask(request: &mut Request) -> Asked {
    let current = request.current.clone();
    let conf = &current.conf.location(request.location).auth_request;
    let Some(uri) = conf.uri() else { return Asked::Settled(Verdict::None) };
    let wanted = Subrequest { header_only: true, with_body: false, ..Subrequest::get(uri, None) };
    let answer = match wanted.begin(request) {
        Ok(begun) => subrequest::run(begun).await,
        Err(refused) => Err(refused),
    };
    let answer = match answer {
        Ok(answer) => answer,
        Err(subrequest::Refused::Closed) => return Asked::Failed(Outcome::Close),
        Err(_) => return Asked::Failed(Outcome::status(500)),
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
            Asked::Refused(Special { status, location: None, headers: headers.collect() })
        }
        200..=299 => Asked::Settled(Verdict::Allowed),
        status => {
            request.log(Level::Error, format_args!("auth request unexpected status: {status}"));
            Asked::Failed(Outcome::status(500))
        }
    }
}
