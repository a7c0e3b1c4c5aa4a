//! The proxy's state of a request in flight: for `$proxy_host` and related variables, for the cache, and
//! for each try.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

use nowait_backend::url::Destination;
use nowait_http::conf::Location;
use nowait_http::request::Request;
use nowait_http::slots::Key;

use super::request_head::Framing;
use crate::proxy::conf::{Pass, ProxyConf};

/// State of a proxied request.
#[derive(Debug, Default, Clone)]
pub struct Context {
    /// The destination, if it was evaluated.
    pub(super) destination: Option<Rc<Destination>>,
    /// The framing of the content in the request to the upstream, for `$proxy_internal_body_length`
    /// and `$proxy_internal_chunked`.
    pub(super) framing: Cell<Framing>,
}

static CONTEXT: Key<Context> = Key::reusing(|context| {
    *context = Context::default();
    true
});

/// The state of a request, made at its first use; dropped at internal redirects.
pub fn of(request: &Request) -> &Context {
    request.round().of(&CONTEXT)
}

/// The same, to change it.
pub fn of_mut(request: &mut Request) -> &mut Context {
    request.round_mut().of_mut(&CONTEXT)
}

/// Notes the framing of the content.
pub fn set_framing(request: &Request, framing: Framing) {
    // The default is no content, as in most requests.
    if framing != Framing::default() || request.round().get(&CONTEXT).is_some() {
        of(request).framing.set(framing);
    }
}

/// The same of a request that is passed on with these settings, the ones of its location.
#[inline]
pub fn destination_of<'a>(request: &'a Request, conf: &'a ProxyConf) -> Option<&'a Destination> {
    match &conf.pass {
        Pass::Static(pass) => Some(&pass.destination),
        Pass::Variable { .. } => destination(request),
    }
}

/// The values of a request's destination; `None`: it is not passed on, or not yet.
pub fn destination(request: &Request) -> Option<&Destination> {
    match &conf(request)?.pass {
        Pass::Static(pass) => request.is_at_content().then_some(&pass.destination),
        Pass::Variable { .. } => request.round().get(&CONTEXT)?.destination.as_deref(),
    }
}

/// The settings of locations that pass requests on, for what outlives the handler's call or is not
/// called by it: codecs, variables.
pub(super) static CONF: Key<Arc<ProxyConf>> = Key::new();

/// The proxy settings of the request's location, if it has any.
pub(super) fn conf(request: &Request) -> Option<&ProxyConf> {
    of_location(request.location()).map(|conf| &**conf)
}

/// The same of a location.
pub(super) fn of_location(location: &Location) -> Option<&Arc<ProxyConf>> {
    location.settings.get(&CONF)
}
