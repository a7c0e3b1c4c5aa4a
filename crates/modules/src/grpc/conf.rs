//! Directives of the gRPC module.

use std::sync::Arc;

use nowait_backend::conf::{Backend, RequestHeaders, SetHeader};
use nowait_backend::pass::Pass;
use nowait_backend::url::Schemes;
use nowait_conf::{Cx, Scope};
use nowait_http::slots::Key;
use nowait_http::variables::complex::{Complex, HttpVariables};

/// The schemes of URLs.
pub(super) const SCHEMES: Schemes = Schemes { plain: "grpc://", tls: Some("grpcs://"), bare: true };

/// Response fields that are not passed on unless `grpc_pass_header` names them.
const HIDDEN: &[&str] = &[
    "Date",
    "Server",
    "X-Accel-Expires",
    "X-Accel-Redirect",
    "X-Accel-Limit-Rate",
    "X-Accel-Buffering",
    "X-Accel-Charset",
];

nowait_backend::upstream_rows! {
    module "grpc", prefix "grpc_";
    /// The directives that all modules with upstream servers have.
    pub struct GrpcUpstreamConf with GrpcUpstreamLayer;
}

nowait_front::upstream_tls_rows! {
    module "grpc", prefix "grpc_", variables HttpVariables, in HTTP | SERVER | LOCATION;
    /// TLS to servers whose URL begins with `grpcs://`.
    pub struct GrpcTlsConf with GrpcTlsLayer;
}

nowait_conf::directives! {
    /// Passing calls to gRPC servers.
    #[derive(Debug)]
    module "grpc", prefix "grpc_";
    pub struct GrpcRequestConf with GrpcRequestLayer;

    /// Sets a header field of the request to the upstream server, replacing the client's. An empty
    /// value removes it. By default `Content-Length` is the client's, and `TE` is `trailers` if the
    /// client accepts trailers. `Host` becomes `:authority`. Inherited unless the block has its own.
    set_header: Vec<SetHeader>, in HTTP | SERVER | LOCATION, args "field value";
}

/// A location's settings for passing calls to gRPC servers.
#[derive(Debug)]
pub(super) struct GrpcConf {
    /// The destination.
    pub(super) pass: Pass,
    /// Settings shared with other modules.
    pub(super) backend: Backend,
    /// Headers of requests.
    pub(super) headers: RequestHeaders,
}

/// The settings of locations that pass calls on, for codecs and variables.
pub(super) static CONF: Key<Arc<GrpcConf>> = Key::new();

impl GrpcConf {
    /// Resolves a chain of blocks for a location that passes calls on.
    pub(super) fn resolve(cx: &mut Cx<'_>, chain: &[&Scope], pass: Pass) -> Self {
        let mut backend = GrpcUpstreamConf::backend(cx, chain, HIDDEN).with_shared_connections();
        if pass.may_need_tls() {
            let alpn = vec![Complex::from_literal("h2")];
            let tls = Arc::unwrap_or_clone(GrpcTlsConf::resolve(cx, chain)).tls(cx, alpn);
            if let Some(tls) = cx.accept(tls) {
                backend = backend.with_tls(tls);
            }
        }
        let conf = GrpcRequestConf::resolve(cx, chain);
        let headers = RequestHeaders::new(&conf.set_header);
        Self { pass, backend, headers }
    }
}
