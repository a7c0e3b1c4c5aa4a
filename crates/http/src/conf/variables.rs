//! Blocks that define variables by others: `map`, `geo` and `split_clients`. What they do stands in
//! `nowait_variables`, for requests and sessions alike; here are their rows for the `http` block.

use nowait_conf::{Cx, Diagnostic, Node};

use crate::request::Request;

nowait_conf::rows! {
    pub static MAP_ROWS, module "map";

    /// Defines a variable by a table: the value of the first text is looked up there. Keys are
    /// texts in any case, regular expressions (`~`, `~*`) or, after `hostnames`, host names with a
    /// wildcard. `default` gives the value for everything else; with `volatile` the variable is
    /// computed at every use. A backslash before a key takes the special meaning from it.
    block "map" => map, in HTTP, take exactly(2), args "string $variable { ... }";
    /// Accepted for compatibility: the table needs no tuning.
    "map_hash_max_size" => accepted, in HTTP, take exactly(1), default "2048", args "size";
    /// Accepted for compatibility: the table needs no tuning.
    "map_hash_bucket_size" => accepted, in HTTP, take exactly(1), default "64", args "size";
}

nowait_conf::rows! {
    pub static GEO_ROWS, module "geo";

    /// Defines a variable by the address of the client, or by an address in another variable: the
    /// most specific network decides, after `ranges` the range it is in. `default` is for all other
    /// addresses, `delete` takes an entry out, `proxy` trusts addresses to tell the client's in
    /// `X-Forwarded-For`, `proxy_recursive` through several of them, and with `volatile` the
    /// variable is computed at every use.
    block "geo" => geo, in HTTP, take between(1, 2), args "[$address] $variable { ... }";
}

nowait_conf::rows! {
    pub static SPLIT_CLIENTS_ROWS, module "split_clients";

    /// Defines a variable whose value depends on the hash of a text: each value gets its share of
    /// all texts, `*` the rest.
    block "split_clients" => split_clients, in HTTP, take exactly(2), args "string $variable { ... }";
}

fn accepted(cx: &mut Cx<'_>, node: &Node) -> Result<(), Diagnostic> {
    cx.once(node)?;
    super::value::<u32>(node, 0).map(drop)
}

fn map(cx: &mut Cx<'_>, node: &Node) -> Result<(), Diagnostic> {
    nowait_variables::map::map::<Request>(cx, node)
}

fn geo(cx: &mut Cx<'_>, node: &Node) -> Result<(), Diagnostic> {
    nowait_variables::geo::geo::<Request>(cx, node)
}

fn split_clients(cx: &mut Cx<'_>, node: &Node) -> Result<(), Diagnostic> {
    nowait_variables::split_clients::split_clients::<Request>(cx, node)
}
