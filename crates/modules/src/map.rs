//! Blocks that define variables: `map`, `geo` and `split_clients`. `nowait_variables` implements them,
//! for requests and sessions alike; here are their rows for the `http` block.

use nowait_conf::{Cx, Diagnostic, Node};
use nowait_http::conf::value;
use nowait_http::module::Module;
use nowait_http::variables::complex::HttpVariables;

/// This module.
pub static MODULE: Module =
    Module { rows: &[MAP_ROWS, GEO_ROWS, SPLIT_CLIENTS_ROWS], ..Module::EMPTY };

nowait_conf::rows! {
    pub static MAP_ROWS, module "map";

    /// Defines a variable by a table in which the value of the string is looked up. Keys are
    /// case-insensitive strings, regular expressions (`~`, `~*`) or, after `hostnames`, host names
    /// with a wildcard. `default` is the value if nothing matches. With `volatile`, the variable is
    /// computed at every use. A backslash before a key removes its special meaning.
    block "map" => map, in HTTP, take exactly(2), args "string $variable { ... }";
    /// Accepted for compatibility: the table needs no tuning.
    "map_hash_max_size" => accepted, in HTTP, take exactly(1), default "2048", args "size";
    /// Accepted for compatibility: the table needs no tuning.
    "map_hash_bucket_size" => accepted, in HTTP, take exactly(1), default "64", args "size";
}

nowait_conf::rows! {
    pub static GEO_ROWS, module "geo";

    /// Defines a variable by the client's address, or by the address in another variable: the most
    /// specific network matches or, after `ranges`, the containing range. `default` applies to all
    /// other addresses, `delete` removes an entry, `proxy` trusts addresses to state the client's
    /// in `X-Forwarded-For`, `proxy_recursive` through several of them. With `volatile`, the
    /// variable is computed at every use.
    block "geo" => geo, in HTTP, take between(1, 2), args "[$address] $variable { ... }";
}

nowait_conf::rows! {
    pub static SPLIT_CLIENTS_ROWS, module "split_clients";

    /// Defines a variable by the hash of a string: each value receives its share of all strings,
    /// `*` the rest.
    block "split_clients" => split_clients, in HTTP, take exactly(2), args "string $variable { ... }";
}

fn accepted(cx: &mut Cx<'_>, node: &Node) -> Result<(), Diagnostic> {
    cx.once(node)?;
    value::<u32>(node, 0).map(drop)
}

fn map(cx: &mut Cx<'_>, node: &Node) -> Result<(), Diagnostic> {
    nowait_variables::map::map::<HttpVariables>(cx, node)
}

fn geo(cx: &mut Cx<'_>, node: &Node) -> Result<(), Diagnostic> {
    nowait_variables::geo::geo::<HttpVariables>(cx, node)
}

fn split_clients(cx: &mut Cx<'_>, node: &Node) -> Result<(), Diagnostic> {
    nowait_variables::split_clients::split_clients::<HttpVariables>(cx, node)
}
