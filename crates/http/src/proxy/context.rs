//! The proxy's state of a request in flight: for `$proxy_host` and related variables, for the cache, and
//! for each try.

use std::cell::Cell;
use std::rc::Rc;

use bytes::Bytes;

use super::request_head::Framing;
use super::url::Destination;
use crate::conf::proxy::{Pass, ProxyConf};
use crate::request::Request;

/// What is known of a request that is passed on.
#[derive(Debug, Default, Clone)]
pub struct Context {
    /// Where it goes.
    pub(super) destination: Where,
    /// What follows the head of the request, for `$proxy_internal_body_length` and
    /// `$proxy_internal_chunked`.
    pub(super) framing: Cell<Framing>,
}

/// Where a request goes.
#[derive(Debug, Default, Clone)]
pub(super) enum Where {
    /// It is not passed on, or not yet.
    #[default]
    Nowhere,
    /// As `proxy_pass` of the location says.
    Location,
    /// As its variables say.
    Variable(Rc<Destination>),
}

impl Context {
    /// It goes where `proxy_pass` of the location says.
    pub(crate) fn set_location(&mut self) {
        self.destination = Where::Location;
    }

    /// What requests say of where they go.
    pub fn destination<'a>(&'a self, request: &'a Request) -> Option<&'a Destination> {
        match &self.destination {
            Where::Nowhere => None,
            Where::Location => match &conf(request)?.pass {
                Pass::Static(pass) => Some(&pass.destination),
                Pass::Variable { .. } => None,
            },
            Where::Variable(destination) => Some(destination),
        }
    }
}

/// What differs from one request to a server to the next, when the cache makes them.
#[derive(Debug, Default, Clone)]
pub struct Options {
    /// The response is for the cache: conditions and ranges of the client's are not passed on.
    pub for_cache: bool,
    /// The cache wants the response also when the client has left.
    pub outlives_client: bool,
    /// `GET` in place of `HEAD`, whose response would have nothing to keep.
    pub method: Option<&'static str>,
    /// `If-Modified-Since`: what is kept is asked for again if it has changed.
    pub if_modified_since: Option<Bytes>,
    /// `If-None-Match`, likewise.
    pub if_none_match: Option<Bytes>,
    /// `Range`: what is missing of a response of which the beginning was sent.
    pub range: Option<Bytes>,
    /// `If-Range`: unless there is another one now.
    pub if_range: Option<Bytes>,
}

/// The settings of the request's location, if it passes requests on.
pub(crate) fn conf(request: &Request) -> Option<&ProxyConf> {
    request.location().proxy.as_deref()
}
