//! Limits on requests to upstream servers: `limit_req ... fetches`, `limit_conn ... fetches`.
//!
//! Called by the handlers of upstream protocols, once per fetch, when everything else is ready. Cache
//! hits never come here.

use nowait_runtime::sleep;

use super::{Held, LIMITS, OWN, Turn, ask, hold};
use crate::conf::Location;
use crate::connection::OnHangup;
use crate::request::Request;

/// Whether a location limits its fetches.
pub fn limits_fetches(location: &Location) -> bool {
    let limits = location.settings.get(&LIMITS);
    limits.is_some_and(|limits| !limits.fetches.is_empty() || !limits.fetches_at_once.is_empty())
}

/// Waits for the turn of a fetch. The fetch counts until the returned values are dropped.
///
/// `outlives_client`: it continues after the client has left.
///
/// # Errors
/// The status to respond with: the limit is exceeded, which was logged.
pub async fn fetch(request: &mut Request, outlives_client: bool) -> Result<Vec<Held>, u16> {
    let current = request.current.clone();
    let Some(limits) = current.conf.location(request.location).settings.get(&LIMITS) else {
        return Ok(Vec::new());
    };
    let (decision, turn) = ask(request, limits, &limits.fetches);
    request.state.of_mut(&OWN).fetches = decision;
    match turn {
        Turn::Go => {}
        Turn::Wait(time) => {
            // Nothing was started for the client yet.
            let on_hangup = if outlives_client { OnHangup::Ignore } else { OnHangup::EndAtOnce };
            let _watch = request.connection.clone().watch(on_hangup);
            sleep(time).await;
        }
        Turn::Refuse(status) => return Err(status),
    }
    let (held, decision, turn) = hold(request, limits, &limits.fetches_at_once);
    request.state.of_mut(&OWN).fetches_at_once = decision;
    match turn {
        Turn::Refuse(status) => Err(status),
        Turn::Go | Turn::Wait(_) => Ok(held),
    }
}
