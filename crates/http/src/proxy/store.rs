//! `proxy_store`: responses that are kept as files. nginx: `ngx_http_upstream_store`.

use crate::conf::backend::{Backend, Store};
use crate::request::Request;
use crate::upstream::{Tee, UpstreamHead};

/// The second destination of a response; `None` if it has no path.
pub fn begin(
    _request: &mut Request,
    _backend: &Backend,
    _store: &Store,
    _received: &UpstreamHead,
) -> Option<Box<dyn Tee>> {
    None
}
