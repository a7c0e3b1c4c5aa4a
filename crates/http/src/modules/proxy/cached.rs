//! The HTTP proxy as seen by the cache.
//!
//! Built by the handler for a location with a cache; see [`crate::cache::serve`].

use nowait_caching::validity::Ignored;
use nowait_message::{Known, ResponseHead};

use super::context::{self, Options};
use super::handler::{self, Server};
use super::target::{self, Form};
use crate::backend::conf::IgnoreHeaders;
use crate::backend::response::{self, Processed};
use crate::cache::origin::{Again, Answer, Origin, Source, Wanted};
use crate::modules::proxy::conf::ProxyConf;
use crate::order::Apart;
use crate::outcome::Outcome;
use crate::request::Request;
use crate::response::{AcceptRanges, Head, Header, LocalFuture};
use crate::upstream::{Failed, Reply};

/// One request of a location that has a cache.
pub(super) struct Cached<'a> {
    pub(super) conf: &'a ProxyConf,
    pub(super) server: Server,
}

impl Origin for Cached<'_> {
    fn default_key(&self, request: &Request, out: &mut Vec<u8>) {
        let Some(destination) = context::destination(request) else {
            return out.extend_from_slice(request.head.uri());
        };
        out.extend_from_slice(&destination.key_start);
        match target::append(request, &self.conf.pass, destination, out) {
            Some(Form::Text) => {}
            // Without a URI the request fails later, when it is sent.
            Some(Form::Unparsed) | None => out.extend_from_slice(request.head.uri()),
        }
    }

    fn ignored(&self, _request: &Request) -> Ignored {
        let ignores = |header| self.conf.backend.ignore.contains(header);
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
        wanted: Wanted,
    ) -> LocalFuture<'a, Result<Reply, Failed>> {
        Box::pin(handler::ask(request, self.conf, self.server.clone(), options(wanted)))
    }

    fn again(&self) -> Again {
        |request, wanted| {
            Box::pin(async move {
                let current = request.current.clone();
                let conf = context::of_location(current.conf.location(request.location));
                let failed = |status| Failed { status, cause: None };
                let conf = conf.ok_or(failed(500))?;
                let server = handler::begin(request, conf).map_err(failed)?;
                handler::ask(request, conf, server, options(wanted)).await
            })
        }
    }

    fn respond(
        &mut self,
        request: &mut Request,
        head: &ResponseHead,
        source: Source,
    ) -> Result<Answer, Outcome> {
        let (processed, wishes) = response::process(request, &self.conf.backend, self.conf, head);
        let mut head = match processed {
            Processed::Pass(head) => head,
            Processed::Instead(outcome) => return Err(outcome),
        };
        if source == (Source::Origin { cacheable: false }) {
            head.trailers_follow = self.conf.pass_trailers;
        } else {
            own(&mut head);
        }
        let buffering = wishes.buffering.unwrap_or(self.conf.backend.settings.buffering);
        Ok(Answer { head, buffering, constant: wishes.constant })
    }
}

fn options(wanted: Wanted) -> Options {
    let Wanted { for_cache, method, if_modified_since, if_none_match, rest } = wanted;
    let (range, if_range) = rest.unzip();
    let outlives_client = for_cache && range.is_none();
    Options {
        for_cache,
        outlives_client,
        method,
        if_modified_since,
        if_none_match,
        range,
        if_range,
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
    head.order.forget(Apart::AcceptRanges);
    if allowed {
        head.accept_ranges = AcceptRanges::Bytes;
    }
}
