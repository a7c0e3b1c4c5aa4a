//! The gRPC module: `grpc_pass`. nginx: `ngx_http_grpc_module`.
//!
//! A call is a request over HTTP/2 whose content and response are streamed in both directions at once,
//! and whose result is in trailers. [`protocol`] names the destination and writes the head of the
//! request; the codec of HTTP/2 ([`nowait_backend::http2`]) and the engine do the rest. Never buffers,
//! and looks at no message.

mod conf;
mod pass;
mod protocol;

use conf::{GrpcRequestConf, GrpcTlsConf, GrpcUpstreamConf};
use nowait_http::module::Module;
use nowait_http::request::Request;
use nowait_http::variables::Builtin;
use nowait_message::Known;
use pass::PASS_ROWS;

/// This module.
pub static MODULE: Module = Module {
    rows: &[PASS_ROWS, GrpcUpstreamConf::ROWS, GrpcRequestConf::ROWS, GrpcTlsConf::ROWS],
    variables: BUILTINS,
    ..Module::EMPTY
};

/// The variables of this module.
const BUILTINS: &[Builtin] = &[Builtin {
    name: "grpc_internal_trailers",
    doc: "`trailers` if the client accepts trailers (`TE`).",
    get: |request, out| {
        let accepts = accepts_trailers(request);
        if accepts {
            out.extend_from_slice(b"trailers");
        }
        accepts
    },
}];

/// Whether the client accepts trailers, in the way that nginx looks at `TE`.
fn accepts_trailers(request: &Request) -> bool {
    let is_it = |value: &[u8]| value.windows(8).any(|part| part.eq_ignore_ascii_case(b"trailers"));
    request.head().fields().all(Known::Te).any(is_it)
}
