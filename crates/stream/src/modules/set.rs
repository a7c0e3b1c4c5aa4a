//! Directives that define variables: `map`, `geo`, `split_clients` and `set`. The blocks are
//! implemented in `nowait_variables`, for requests and sessions alike. nginx:
//! `ngx_stream_map_module`, `ngx_stream_geo_module`, `ngx_stream_split_clients_module`,
//! `ngx_stream_set_module`.

use nowait_conf::{Cx, Diagnostic, Node};
use nowait_variables::{Place, Slot, Table, variable_name};

use crate::blocks::accepted;
use crate::conf::Complex;
use crate::session::Session;

nowait_conf::rows! {
    pub static MAP_ROWS, module "stream_map";

    /// Defines a session variable by a table, as `map` in `http` does for requests.
    block "map" => nowait_variables::map::map::<Session>, in STREAM, take exactly(2), args "string $variable { ... }";
    /// Accepted for compatibility: the table needs no tuning.
    "map_hash_max_size" => accepted, in STREAM, take exactly(1), default "2048", args "size";
    /// Accepted for compatibility: the table needs no tuning.
    "map_hash_bucket_size" => accepted, in STREAM, take exactly(1), default "64", args "size";
}

nowait_conf::rows! {
    pub static GEO_ROWS, module "stream_geo";

    /// Defines a variable by the client's address, or by the address in another variable, as `geo`
    /// in `http` does, except for `proxy`.
    block "geo" => nowait_variables::geo::geo::<Session>, in STREAM, take between(1, 2), args "[$address] $variable { ... }";
}

nowait_conf::rows! {
    pub static SPLIT_CLIENTS_ROWS, module "stream_split_clients";

    /// Defines a variable by the hash of a string: each value receives its share of all strings,
    /// `*` the rest.
    block "split_clients" => nowait_variables::split_clients::split_clients::<Session>, in STREAM, take exactly(2), args "string $variable { ... }";
}

nowait_conf::rows! {
    pub static SET_ROWS, module "stream_set";

    /// Sets a variable when a session of the server begins, before limits and access rules are
    /// evaluated.
    "set" => set, in STREAM_SERVER, take exactly(2), args "$variable value";
}

/// One `set`.
#[derive(Clone, Debug)]
pub struct Set {
    /// The variable.
    pub slot: Slot,
    /// Its value.
    pub value: Complex,
}

/// The `set` directives of a server, in order.
#[derive(Default)]
pub(crate) struct SetLayer(pub(crate) Vec<Set>);

fn set(cx: &mut Cx<'_>, node: &Node) -> Result<(), Diagnostic> {
    let [name, value] = &node.args[..] else { return Err(node.arity_error()) };
    let variable = variable_name(name)?;
    let place = cx.global::<Table<Session>>().define_set(variable);
    let slot = match place.map_err(|error| name.error(error.to_string()))? {
        Place::Slot(slot) => slot,
        Place::Builtin(_) => unreachable!("no built-in variable of sessions can be changed"),
    };
    let value = nowait_variables::text(value, cx)?;
    cx.layer::<SetLayer>().0.push(Set { slot, value });
    Ok(())
}
