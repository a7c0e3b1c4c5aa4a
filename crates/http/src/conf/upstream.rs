//! The row of `upstream` blocks, which `nowait_front::upstreams` interprets.

use nowait_conf::{Context, Cx, Diagnostic, Node};

use crate::slots::Key;
use crate::variables::complex::HttpVariables;

pub use nowait_front::upstreams::{GroupId, UpstreamServer};

/// The groups of upstream servers.
pub type Upstreams = nowait_front::upstreams::Upstreams<HttpVariables>;

/// A group of upstream servers.
pub type Upstream = nowait_front::upstreams::Upstream<HttpVariables>;

/// The groups named until now.
pub type Groups = nowait_front::upstreams::Groups<HttpVariables>;

/// The group that the content of a location passes requests to; only if no variable decides that.
pub static PASSES_TO: Key<GroupId> = Key::new();

nowait_conf::rows! {
    pub static UPSTREAM_ROWS, module "upstream";

    /// A group of servers that `proxy_pass` and similar directives refer to by name.
    block "upstream" => upstream, in HTTP, take exactly(1), args "name { ... }";
}

fn upstream(cx: &mut Cx<'_>, node: &Node) -> Result<(), Diagnostic> {
    Groups::read(cx, node, Context::UPSTREAM)
}
