//! `grpc_pass`: reads the destination of calls, and makes this module the content of a location.

use nowait_backend::pass::set_pass;
use nowait_conf::{Cx, Diagnostic, Node};

use super::conf::{GrpcConf, SCHEMES};

nowait_conf::rows! {
    pub static PASS_ROWS, module "grpc";

    /// Passes calls to a gRPC server: an address with a port, a name, a Unix-domain socket
    /// (`unix:/run/app.sock`) or an `upstream`, with or without `grpc://` in front of it; `grpcs://`
    /// stands for TLS. With variables, the server is looked up among the `upstream`s and then
    /// resolved. Calls share HTTP/2 connections, and are streamed in both directions.
    "grpc_pass" => grpc_pass, in LOCATION | LOCATION_IF, take exactly(1), inheritance Own, args "address";
}

/// nginx: `ngx_http_grpc_pass`.
fn grpc_pass(cx: &mut Cx<'_>, node: &Node) -> Result<(), Diagnostic> {
    set_pass(cx, node, SCHEMES, None, GrpcConf::resolve)
}
