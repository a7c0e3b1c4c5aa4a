//! The interface between the cache and an upstream protocol: how requests are sent to the origin,
//! and how its responses become ours. Implemented by protocol modules (the http proxy first);
//! called by [`super::serve`].

use nowait_caching::validity::Ignored;
use nowait_http::outcome::Outcome;
use nowait_http::request::Request;
use nowait_http::response::{Head, LocalFuture};
use nowait_message::ResponseHead;

use crate::upstream::{Reply, RequestError, UpstreamVariation};

/// A protocol, for one request.
pub trait Origin {
    /// Appends the default key, without `cache_key`: scheme and name of the upstream, and the URI
    /// of the request to it.
    fn default_key(&self, request: &Request, out: &mut Vec<u8>);

    /// `ignore_headers`
    fn ignored(&self, request: &Request) -> Ignored;

    /// Sends the request to the origin. Called again only after a failure, or for a request that
    /// was not sent.
    fn fetch<'a>(
        &'a mut self,
        request: &'a mut Request,
        wanted: UpstreamVariation,
    ) -> LocalFuture<'a, Result<Reply, RequestError>>;

    /// Sends a copy of the request to the origin once more, after `self` was dropped.
    fn again(&self) -> Again;

    /// Our response for one of the origin, which was just received or stored; its body is added by
    /// the caller.
    ///
    /// # Errors
    /// The result in its place: `X-Accel-Redirect`, or an `error_page` for the status of an origin
    /// (`intercept_errors`).
    fn respond(
        &mut self,
        request: &mut Request,
        head: &ResponseHead,
        source: Source,
    ) -> Result<Answer, Outcome>;
}

/// Sends requests to the origin of a request's location.
pub type Again =
    for<'a> fn(&'a mut Request, UpstreamVariation) -> LocalFuture<'a, Result<Reply, RequestError>>;

/// The source of a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// The origin; `cacheable`: the whole response was requested, so that the client's conditions
    /// and ranges are evaluated here.
    Origin {
        /// nginx: `u->cacheable`.
        cacheable: bool,
    },
    /// The cache, which has the whole response.
    Cache,
}

/// Our response for one of the origin, without the body.
#[derive(Debug)]
pub struct Answer {
    /// The head.
    pub head: Box<Head>,
    /// The origin is read ahead of the client. Otherwise the response is not stored.
    pub buffering: bool,
    /// It is the same for all requests of the location, and making it had no other effect.
    pub constant: bool,
}
