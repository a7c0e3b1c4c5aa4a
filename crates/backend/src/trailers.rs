//! Trailers of a server's response, passed to clients (`proxy_pass_trailers` and its relatives). nginx:
//! `ngx_http_upstream_process_trailers`.

use std::sync::Arc;

use nowait_http::module::Filter;
use nowait_http::outcome::StatusResponse;
use nowait_http::request::Request;
use nowait_http::response::Response;
use nowait_http::upstream_state::UpstreamState;
use nowait_message::Known;

use super::protocol::Protocol;

/// Adds the trailers of the finished upstream response to the client's response, except hidden ones.
pub(super) struct Trailers<P>(pub(super) Arc<P>);

impl<P: Protocol> Filter for Trailers<P> {
    fn apply(&self, _: &mut Request, _: &mut Response) -> Result<(), Box<StatusResponse>> {
        Ok(())
    }

    fn trailers(&self, request: &mut Request) {
        let Some(state) = UpstreamState::get(request.state()) else { return };
        if !request.out().trailers_follow {
            return;
        }
        let hide = &self.0.backend().hide;
        let shown = |name: &[u8]| !hide.contains(name, Known::from_bytes(name));
        let trailers = state.trailers();
        let passed = trailers.iter().filter(|trailer| shown(&trailer.name)).cloned().collect();
        drop(trailers);
        request.out_mut().trailers = passed;
    }
}
