//! Whether the way of a request to its server depends on the client's content, so that it has to be read
//! first: the choice of the server, the connection, the processing of the response. The parts of the
//! request itself are known to [`Protocol::streams`](crate::protocol::Protocol::streams).
//!
//! Asked by the handler before it sends a request whose content has not been read.

use nowait_http::conf::upstream::Upstream;
use nowait_http::request::Request;

use crate::conf::Backend;

/// Whether a setting has a variable that needs the content.
pub fn is_needed(request: &Request, backend: &Backend, upstream: &Upstream) -> bool {
    let depends = |text| request.depends_on_content(text);
    let bind = backend.bind.as_ref().and_then(|bind| bind.text());
    let tls = backend.settings.tls.iter().flat_map(|tls| tls.texts());
    let store = backend.store.as_ref().and_then(|store| store.path.as_ref());
    let rate = backend.limit_rate.as_deref();
    upstream.chosen_by().any(depends)
        || tls.chain(bind).chain(store).chain(rate).chain(&backend.via).any(depends)
}
