//! Trailers of a server's response, passed to clients (`proxy_pass_trailers`). nginx:
//! `ngx_http_upstream_process_trailers`.

use bytes::BufMut;
use nowait_h1::Known;
use nowait_h1::encode::HeadWriter;

use super::context;
use crate::request::Request;

/// Appends the trailers of the response whose body has just ended, but for hidden ones.
pub fn append<B: BufMut>(request: &Request, writer: &mut HeadWriter<'_, B>) {
    let (Some(conf), Some(state)) = (context::conf(request), &request.upstream) else { return };
    for trailer in state.trailers().iter() {
        if !conf.backend.hide.contains(&trailer.name, Known::from_bytes(&trailer.name)) {
            writer.field(&trailer.name, &trailer.value);
        }
    }
}
