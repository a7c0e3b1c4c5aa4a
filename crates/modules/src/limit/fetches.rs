//! Limits on requests to upstream servers: `limit_req ... fetches`, `limit_conn ... fetches`.
//!
//! Called by backends once per fetch, right before it starts. Never called for cache hits.

use std::sync::Arc;

use nowait_backend::upstream::gate::Gate;
use nowait_http::exchange::OnHangup;
use nowait_http::request::Request;
use nowait_http::response::LocalFuture;
use nowait_http::trace::Trace;
use nowait_runtime::sleep;

use super::conf::Limits;
use super::explain::{self, LimitKind};
use super::{CountGuard, LimitEffect, OWN, ask, hold};

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
        explain::rates(request, limits, &limits.fetches, LimitKind::Fetches, trace);
        explain::concurrent(request, limits, &limits.fetches_at_once, LimitKind::Fetches, trace);
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
        request.state_mut().of_mut(&OWN).fetches = decision;
        match turn {
            LimitEffect::Go => {}
            LimitEffect::Wait(time) => {
                // The response has not begun.
                let on_hangup =
                    if outlives_client { OnHangup::Ignore } else { OnHangup::EndAtOnce };
                let _watch = request.watch(on_hangup);
                sleep(time).await;
            }
            LimitEffect::Refuse(status) => return Err(status),
        }
        let (held, decision, turn) = hold(request, limits, &limits.fetches_at_once);
        request.state_mut().of_mut(&OWN).fetches_at_once = decision;
        match turn {
            LimitEffect::Refuse(status) => Err(status),
            LimitEffect::Go | LimitEffect::Wait(_) => Ok(held),
        }
    }
}
