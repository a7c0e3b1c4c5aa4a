//! `stub_status`: counters of connections and requests in the text format that many tools read, and
//! `$connections_active` and related variables. nginx: `ngx_http_stub_status_module`.

use bytes::Bytes;
use nowait_conf::{Cx, Diagnostic, Node};
use nowait_http::counts;
use nowait_http::module::{Handler, Module, Step, set_content};
use nowait_http::outcome::Outcome;
use nowait_http::request::Request;
use nowait_http::response::{Body, Head, Response};
use nowait_http::variables::Builtin;
use nowait_http::variables::core::{builtins, number};
use nowait_message::Method;

/// This module.
pub static MODULE: Module =
    Module { rows: &[STUB_STATUS_ROWS], variables: BUILTINS, ..Module::EMPTY };

nowait_conf::rows! {
    static STUB_STATUS_ROWS, module "stub_status";

    /// Responds with counters of connections and requests: active connections; accepted and handled
    /// connections, and requests so far; connections that are reading a request, writing a
    /// response, or idle. An argument is accepted for compatibility.
    "stub_status" => stub_status, in SERVER | LOCATION, take between(0, 1), inheritance Own, args "";
}

fn stub_status(cx: &mut Cx<'_>, node: &Node) -> Result<(), Diagnostic> {
    set_content(cx, node, |_, _, _| StubStatus);
    Ok(())
}

/// The variables of this module.
const BUILTINS: &[Builtin] = builtins! {
    /// Number of open client connections, including idle ones.
    "connections_active" => |_, out| number(counts::totals().active, out);
    /// Number of connections that are reading a request.
    "connections_reading" => |_, out| number(counts::totals().reading, out);
    /// Number of connections that are writing a response.
    "connections_writing" => |_, out| number(counts::totals().writing, out);
    /// Number of idle connections that wait for a request.
    "connections_waiting" => |_, out| number(counts::totals().waiting(), out);
};

/// Responds with the counters.
struct StubStatus;

impl Handler for StubStatus {
    fn handle<'r>(&'r self, request: &'r mut Request) -> Step<'r> {
        let outcome = run(request);
        Step::Done(request, outcome)
    }
}

fn run(request: &Request) -> Outcome {
    if !matches!(request.method(), Method::Get | Method::Head) {
        return Outcome::status(405);
    }
    let totals = counts::totals();
    // Every accepted connection is handled: those beyond worker_connections are not accepted.
    let text = format!(
        "Active connections: {} \nserver accepts handled requests\n {} {} {} \n\
         Reading: {} Writing: {} Waiting: {} \n",
        totals.active,
        totals.accepted,
        totals.accepted,
        totals.requests,
        totals.reading,
        totals.writing,
        totals.waiting(),
    );
    let mut head = Head::new(200);
    head.content_type = Some(Bytes::from_static(b"text/plain"));
    head.content_length = Some(text.len() as u64);
    Response { head, body: Body::Bytes(text.into()) }.into()
}
