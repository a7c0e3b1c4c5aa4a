//! A backend as an origin of the cache.
//!
//! Built by the handler for a location with a cache; see [`crate::cache::begin`].

use nowait_caching::validity::Ignored;
use nowait_http::field_order::SeparateField;
use nowait_http::outcome::Outcome;
use nowait_http::request::Request;
use nowait_http::response::{AcceptRanges, Head, Header, LocalFuture};
use nowait_message::{Known, ResponseHead};

use super::conf::IgnoreHeaders;
use super::handler;
use super::protocol::{Protocol, Server};
use super::response::{self, Processed};
use crate::cache::origin::{Again, Answer, Origin, Source};
use crate::upstream::{Reply, RequestError, UpstreamVariation};

/// One request of a location that has a cache.
pub(super) struct BackendOrigin<'a, P> {
    pub(super) conf: &'a P,
    pub(super) server: Server,
}

impl<P: Protocol> Origin for BackendOrigin<'_, P> {
    fn default_key(&self, request: &Request, out: &mut Vec<u8>) {
        self.conf.default_key(request, out);
    }

    fn ignored(&self, _request: &Request) -> Ignored {
        let ignores = |header| self.conf.backend().ignore.contains(header);
        Ignored {
            accel_expires: ignores(IgnoreHeaders::ACCEL_EXPIRES),
            expires: ignores(IgnoreHeaders::EXPIRES),
            cache_control: ignores(IgnoreHeaders::CACHE_CONTROL),
            set_cookie: ignores(IgnoreHeaders::SET_COOKIE),
            vary: ignores(IgnoreHeaders::VARY),
        }
    }

    fn fetch<'a>(
        &'a mut self,
        request: &'a mut Request,
        wanted: UpstreamVariation,
    ) -> LocalFuture<'a, Result<Reply, RequestError>> {
        Box::pin(handler::fetch(request, self.conf, self.server.clone(), wanted))
    }

    fn again(&self) -> Again {
        |request, wanted| {
            Box::pin(async move {
                let current = request.current().clone();
                let conf = P::of_location(current.conf.location(request.location_id()));
                let failed = |status| RequestError { status, cause: None };
                let conf = &**conf.ok_or(failed(500))?;
                let server = handler::server(request, conf).map_err(failed)?;
                handler::fetch(request, conf, server, wanted).await
            })
        }
    }

    fn respond(
        &mut self,
        request: &mut Request,
        head: &ResponseHead,
        source: Source,
    ) -> Result<Answer, Outcome> {
        let (processed, wishes) = response::process(request, self.conf.backend(), self.conf, head);
        let mut head = match processed {
            Processed::Pass(head) => head,
            Processed::Instead(outcome) => return Err(outcome),
        };
        if source == (Source::Origin { cacheable: false }) {
            head.trailers_follow = self.conf.passes_trailers();
        } else {
            own(&mut head);
        }
        let buffering = wishes.buffering.unwrap_or(self.conf.backend().settings.buffering);
        Ok(Answer { head, buffering, constant: wishes.constant })
    }
}

/// Conditions and ranges are applied here: the whole response is available, or was requested.
/// nginx: `ngx_http_upstream_copy_allow_ranges`.
fn own(head: &mut Head) {
    head.is_upstreams = false;
    let mut allowed = head.accept_ranges == AcceptRanges::Upstream;
    let is_it = |header: &Header| Known::from_bytes(&header.name) == Some(Known::AcceptRanges);
    allowed |= head.headers.iter().any(|header| is_it(header) && header.value != "none");
    head.remove(is_it);
    head.order.forget(SeparateField::AcceptRanges);
    if allowed {
        head.accept_ranges = AcceptRanges::Bytes;
    }
}
