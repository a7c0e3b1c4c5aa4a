//! Trailers of a server's response, passed to clients (`proxy_pass_trailers`). nginx:
//! `ngx_http_upstream_process_trailers`.

use nowait_message::Known;

use super::context;
use crate::request::Request;

/// Adds the trailers of the finished upstream response to ours, except hidden ones.
pub fn pass(request: &mut Request) {
    let (Some(conf), Some(state)) = (context::conf(request), &request.upstream) else { return };
    let hide = &conf.backend.hide;
    let shown = |name: &[u8]| !hide.contains(name, Known::from_bytes(name));
    let trailers = state.trailers();
    let passed = trailers.iter().filter(|trailer| shown(&trailer.name)).cloned().collect();
    drop(trailers);
    request.out.trailers = passed;
}
