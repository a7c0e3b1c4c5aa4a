//! The row of `upstream` blocks, which `nowait_front::upstreams` interprets.

use nowait_conf::{Context, Cx, Diagnostic, Node};

use crate::request::Request;

pub use nowait_front::upstreams::{GroupId, Server};

/// The groups of upstream servers.
pub type Upstreams = nowait_front::upstreams::Upstreams<Request>;

/// A group of upstream servers.
pub type Upstream = nowait_front::upstreams::Upstream<Request>;

/// The groups named until now.
pub type Groups = nowait_front::upstreams::Groups<Request>;

nowait_conf::rows! {
    pub static UPSTREAM_ROWS, module "upstream";

    /// A group of servers that `proxy_pass` and similar directives refer to by name.
    block "upstream" => upstream, in HTTP, take exactly(1), args "name { ... }";
}

fn upstream(cx: &mut Cx<'_>, node: &Node) -> Result<(), Diagnostic> {
    Groups::read(cx, node, Context::UPSTREAM)
}
