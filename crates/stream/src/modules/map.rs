//! Directives that define variables: `map`, `num_map`, `geo`, `geoip2`, `split_clients` and `keyval`. They are implemented in
//! `nowait_variables` and `nowait_front`, for requests and sessions alike. nginx: `ngx_stream_map_module`,
//! `ngx_stream_geo_module`, `ngx_stream_split_clients_module`.

use nowait_front::keyval;

use crate::conf::core::accepted;
use crate::module::Module;
use crate::variables::complex::StreamVariables;

/// This module.
pub static MODULE: Module = Module {
    rows: &[
        MAP_ROWS,
        NUM_MAP_ROWS,
        GEO_ROWS,
        #[cfg(feature = "geoip2")]
        GEOIP2_ROWS,
        SPLIT_CLIENTS_ROWS,
        KEYVAL_ROWS,
    ],
    handler: None,
    variables: &[],
};

nowait_conf::rows! {
    pub static MAP_ROWS, module "stream_map";

    /// Defines a session variable by a table, as `map` in `http` does for requests.
    block "map" => nowait_variables::map::map::<StreamVariables>, in STREAM, take exactly(2), args "string $variable { ... }";
    /// Accepted for compatibility: the table needs no tuning.
    "map_hash_max_size" => accepted, in STREAM, take exactly(1), default "2048", args "size";
    /// Accepted for compatibility: the table needs no tuning.
    "map_hash_bucket_size" => accepted, in STREAM, take exactly(1), default "64", args "size";
}

nowait_conf::rows! {
    pub static NUM_MAP_ROWS, module "stream_num_map";

    /// Defines a session variable by numbers and ranges of numbers, as `num_map` in `http` does for requests.
    block "num_map" => nowait_variables::num_map::num_map::<StreamVariables>, in STREAM, take exactly(2), args "$number $variable { ... }";
}

nowait_conf::rows! {
    pub static GEO_ROWS, module "stream_geo";

    /// Defines a variable by the client's address, or by the address in another variable, as `geo`
    /// in `http` does, except for `proxy`.
    block "geo" => nowait_variables::geo::geo::<StreamVariables>, in STREAM, take between(1, 2), args "[$address] $variable { ... }";
}

#[cfg(feature = "geoip2")]
nowait_conf::rows! {
    pub static GEOIP2_ROWS, module "stream_geoip2";

    /// Defines variables from a MaxMind database by the client's address, or by the address in another
    /// variable, as `geoip2` in `http` does.
    block "geoip2" => nowait_variables::geoip2::geoip2::<StreamVariables>, in STREAM, take exactly(1), args "file { [auto_reload time;] $variable [default=value] [source=$variable] [path ...]; $variable metadata parameter; }";
}

nowait_conf::rows! {
    pub static SPLIT_CLIENTS_ROWS, module "stream_split_clients";

    /// Defines a variable by the hash of a string: each value receives its share of all strings,
    /// `*` the rest.
    block "split_clients" => nowait_variables::split_clients::split_clients::<StreamVariables>, in STREAM, take exactly(2), args "string $variable { ... }";
}

nowait_conf::rows! {
    pub static KEYVAL_ROWS, module "stream_keyval";

    /// Defines a zone of pairs for `keyval`, as `keyval_zone` in `http` does.
    "keyval_zone" => |cx, node| keyval::keyval_zone::<StreamVariables>(cx, node, "stream"), in STREAM, take at_least(1), inheritance Own, args "zone=name:size [state=file] [timeout=time] [type=string | ip | prefix] [sync]";
    /// Defines a session variable whose value the API sets for a key, as `keyval` in `http` does for requests.
    "keyval" => keyval::keyval::<StreamVariables>, in STREAM, take exactly(3), inheritance Own, args "key $variable zone=name";
}
