//! What the cache has to know of a protocol towards origins: how it is asked, and how its responses
//! become ours. Implemented by protocol modules (the http proxy first); called by [`super::serve`].

use bytes::Bytes;

use super::validity::Ignored;
use crate::outcome::Outcome;
use crate::request::Request;
use crate::response::{Head, LocalFuture};
use crate::upstream::{Failed, Reply, UpstreamHead};

/// A protocol, for one request.
pub trait Origin {
    /// Appends the key where `cache_key` says nothing: scheme and name of the upstream, and the URI that
    /// is asked for.
    fn default_key(&self, request: &Request, out: &mut Vec<u8>);

    /// `ignore_headers`
    fn ignored(&self, request: &Request) -> Ignored;

    /// Asks the origin. Called again only after a failure, or for a request that was not sent.
    fn fetch<'a>(
        &'a mut self,
        request: &'a mut Request,
        wanted: Wanted,
    ) -> LocalFuture<'a, Result<Reply, Failed>>;

    /// Asks the origin once more, when `self` is gone: for a copy of the request.
    fn again(&self) -> Again;

    /// Our response for one of the origin, which came just now or was stored; its body is the
    /// caller's business.
    ///
    /// # Errors
    /// What answers in its place: `X-Accel-Redirect`, or an `error_page` for the status of an origin
    /// (`intercept_errors`).
    fn respond(
        &mut self,
        request: &mut Request,
        head: &UpstreamHead,
        source: Source,
    ) -> Result<Answer, Outcome>;
}

/// Asks the origin of a request's location.
pub type Again = for<'a> fn(&'a mut Request, Wanted) -> LocalFuture<'a, Result<Reply, Failed>>;

/// How an origin is asked.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Wanted {
    /// The response may be stored: conditions and ranges of the client's are not passed on.
    pub for_cache: bool,
    /// The method in place of the client's.
    pub method: Option<&'static str>,
    /// `If-Modified-Since`: the stored response is asked for again if it has changed.
    pub if_modified_since: Option<Bytes>,
    /// `If-None-Match`, likewise.
    pub if_none_match: Option<Bytes>,
    /// `Range` and `If-Range`: only the rest of a response is wanted, which is not stored.
    pub rest: Option<(Bytes, Bytes)>,
}

/// Where a response comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// The origin; `cacheable`: all of it was asked for, so that conditions and ranges of the client's
    /// are ours to answer.
    Origin {
        /// nginx: `u->cacheable`.
        cacheable: bool,
    },
    /// The cache, which has all of it.
    Cache,
}

/// Our response for one of the origin, but for the body.
#[derive(Debug)]
pub struct Answer {
    /// Its head.
    pub head: Box<Head>,
    /// The origin is read ahead of the client. What is not, is not stored.
    pub buffering: bool,
    /// It is the same for all requests of the location, and making it has changed nothing else.
    pub constant: bool,
}
