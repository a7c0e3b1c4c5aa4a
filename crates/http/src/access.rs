//! The access phase: who may use a location. nginx: `ngx_http_core_access_phase`,
//! `ngx_http_access_module`.
//!
//! Called by the phases when the location of a request is final. [`check`] decides whatever needs no
//! file, and never waits; [`authenticate`] handles the rest: `auth_request`, and the delay of refusals.

pub use nowait_front::access::Verdict;
use nowait_front::access::by_address;
use nowait_runtime::sleep;

use crate::auth::{self, Authentication};
use crate::auth_request::{self, Asked};
use crate::conf::client::Satisfy;
use crate::log::Level;
use crate::outcome::Outcome;
use crate::request::Request;

/// Status of a request that is not allowed.
const FORBIDDEN: u16 = 403;

/// Status of a request that needs a name and a password.
const UNAUTHORIZED: u16 = 401;

/// Result of the access phase.
#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "made and taken once per request")]
pub enum Access {
    /// The request continues.
    Granted,
    /// This is the response.
    Denied(Outcome),
    /// [`authenticate`] decides.
    Wait,
}

/// Runs those checks of the location that need no file and no other location.
pub fn check(request: &Request) -> Access {
    let location = request.location();
    let asks = location.auth.auth_basic.is_some();
    let asks_another = location.auth_request.uri().is_some();
    if location.access.rules.is_empty() && !asks && !asks_another {
        return Access::Granted;
    }
    let address = by_address(&location.access.rules, request.peer());
    match (location.client.satisfy, address) {
        (Satisfy::All, Verdict::Refused) => return Access::Denied(forbidden(request)),
        (Satisfy::Any, Verdict::Allowed) => return Access::Granted,
        _ if asks_another => return Access::Wait,
        (Satisfy::Any, Verdict::Refused) if !asks => return Access::Denied(forbidden(request)),
        _ if !asks => return Access::Granted,
        _ => {}
    }
    match auth::begin(request) {
        // Only the address counts: with `satisfy any` it was not sufficient.
        Some(Authentication::Settled(_)) if address == Verdict::Refused => {
            Access::Denied(forbidden(request))
        }
        Some(Authentication::Settled(_)) => Access::Granted,
        Some(Authentication::Unauthorized(realm))
            if location.client.auth_delay.duration().is_zero() =>
        {
            Access::Denied(auth::unauthorized(&realm))
        }
        Some(Authentication::Failed(outcome)) => Access::Denied(outcome),
        // [`authenticate`] delays the response.
        Some(Authentication::Unauthorized(_)) | None => Access::Wait,
    }
}

/// Runs the checks that read files or send subrequests to other locations. At this point the
/// address was not refused (`satisfy all`), or it was not sufficient (`satisfy any`). `None`: the
/// request continues. nginx: `ngx_http_core_access_phase`, `ngx_http_core_post_access_phase`.
pub(crate) async fn authenticate(request: &mut Request) -> Option<Outcome> {
    let location = request.location();
    let any = location.client.satisfy == Satisfy::Any;
    let address = by_address(&location.access.rules, request.peer());
    let asks_another = location.auth_request.uri().is_some();
    // The refusal to send if no check succeeds: 401 rather than 403.
    let mut refusal = (any && address == Verdict::Refused).then_some(None);
    match auth::finish(request).await {
        Authentication::Settled(Verdict::None) => {}
        Authentication::Settled(Verdict::Allowed) => {
            if any || !asks_another {
                return None;
            }
        }
        Authentication::Settled(Verdict::Refused) => {
            if !any {
                return Some(Outcome::status(FORBIDDEN));
            }
            refusal.get_or_insert(None);
        }
        Authentication::Failed(outcome) => return Some(outcome),
        Authentication::Unauthorized(realm) => {
            let outcome = auth::unauthorized(&realm);
            if !any || !asks_another {
                return Some(delayed(request, outcome).await);
            }
            refusal = Some(Some(outcome));
        }
    }
    match auth_request::ask(request).await {
        Asked::Settled(Verdict::Allowed) => return None,
        Asked::Settled(Verdict::None | Verdict::Refused) => {}
        Asked::Failed(outcome) => return Some(outcome),
        Asked::Refused(special) if special.status == UNAUTHORIZED => {
            if !any {
                return Some(delayed(request, Outcome::Special(special)).await);
            }
            match &mut refusal {
                // The client may satisfy either check.
                Some(Some(Outcome::Special(basic))) => basic.headers.extend(special.headers),
                _ => refusal = Some(Some(Outcome::Special(special))),
            }
        }
        Asked::Refused(special) if !any => return Some(Outcome::Special(special)),
        Asked::Refused(_) => {
            refusal.get_or_insert(None);
        }
    }
    match refusal? {
        Some(outcome) => Some(delayed(request, outcome).await),
        None => Some(forbidden(request)),
    }
}

/// Returns 401 after the time of `auth_delay`.
async fn delayed(request: &Request, outcome: Outcome) -> Outcome {
    let delay = request.location().client.auth_delay.duration();
    if !delay.is_zero() {
        request.log(Level::Info, format_args!("delaying unauthorized request"));
        sleep(delay).await;
    }
    outcome
}

fn forbidden(request: &Request) -> Outcome {
    request.log(Level::Error, format_args!("access forbidden by rule"));
    Outcome::status(FORBIDDEN)
}
