//! Limits on requests to upstream servers: `limit_req ... fetches`, `limit_conn ... fetches`.
//!
//! Called by backends, once per fetch, when everything else is ready. Cache hits never come here.

use std::sync::Arc;

use nowait_backend::upstream::gate::Gate;
use nowait_http::exchange::OnHangup;
use nowait_http::request::Request;
use nowait_http::response::LocalFuture;
use nowait_http::trace::Trace;
use nowait_runtime::sleep;

use super::conf::Limits;
use super::explain::{self, What};
use super::{CountGuard, OWN, Turn, ask, hold};

/// The limits of a location's fetches.
pub(super) struct Fetches(pub(super) Arc<Limits>);

impl Gate for Fetches {
    fn pass<'a>(
        &'a self,
        request: &'a mut Request,
        outlives_client: bool,
    ) -> LocalFuture<'a, Result<Vec<CountGuard>, u16>> {
        Box::pin(self.fetch(request, outlives_client))
    }

    fn explain(&self, request: &Request, trace: &mut Trace) {
        let limits = &*self.0;
        explain::rates(request, limits, &limits.fetches, What::Fetches, trace);
        explain::concurrent(request, limits, &limits.fetches_at_once, What::Fetches, trace);
    }
}

impl Fetches {
    async fn fetch(
        &self,
        request: &mut Request,
        outlives_client: bool,
    ) -> Result<Vec<CountGuard>, u16> {
        let limits = &*self.0;
        let (decision, turn) = ask(request, limits, &limits.fetches);
        request.state.of_mut(&OWN).fetches = decision;
        match turn {
            Turn::Go => {}
            Turn::Wait(time) => {
                // Nothing was started for the client yet.
                let on_hangup =
                    if outlives_client { OnHangup::Ignore } else { OnHangup::EndAtOnce };
                let _watch = request.watch(on_hangup);
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
}
