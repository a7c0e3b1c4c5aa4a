//! Directives that define variables: `map`, `num_map`, `geo`, `split_clients`, `keyval` and `json_set`. `nowait_variables` and
//! `nowait_front` implement them, for requests and sessions alike; here are their rows for the `http` block.

use nowait_conf::{Cx, Diagnostic, Node};
use nowait_front::keyval;
use nowait_http::conf::{HttpConf, value};
use nowait_http::keyvals::KEYVALS;
use nowait_http::module::Module;
use nowait_http::variables::complex::HttpVariables;

/// This module.
pub static MODULE: Module = Module {
    rows: &[MAP_ROWS, NUM_MAP_ROWS, GEO_ROWS, SPLIT_CLIENTS_ROWS, KEYVAL_ROWS, JSON_ROWS],
    finish: Some(finish),
    ..Module::EMPTY
};

fn finish(cx: &mut Cx<'_>, conf: &mut HttpConf) {
    let zones = keyval::finish::<HttpVariables>(cx);
    conf.settings.set(&KEYVALS, zones);
}

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
    pub static NUM_MAP_ROWS, module "num_map";

    /// Defines a variable by a table in which a number is looked up. Keys are numbers (`443`), ranges with both ends
    /// (`8080-8090`) and limits (`<1024`, `<=1023`, `>8092`, `>=8093`), all without a sign. A single number counts before
    /// ranges; of several ranges that contain the number, the first in the configuration counts. `default` is the
    /// value if none does, or if the text is not a number; otherwise the value is empty. With `volatile`, the
    /// variable is computed at every use.
    block "num_map" => nowait_variables::num_map::num_map::<HttpVariables>, in HTTP, take exactly(2), args "$number $variable { ... }";
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

nowait_conf::rows! {
    pub static KEYVAL_ROWS, module "keyval";

    /// Defines a zone of pairs for `keyval`. The API (`api write=on`) adds, changes and removes pairs; reloads keep
    /// them.
    ///
    /// * `zone=name:size`: a pair takes 128 bytes besides its key and value, both as JSON writes them; one for which
    ///   there is no room is refused. A key has at most 4096 bytes.
    /// * `state=file`: a file with the pairs in JSON, which is read at the start and replaced after each change, so
    ///   that restarts keep them. Its directory has to be writable for the `user` of the server. The pairs of such a
    ///   zone take at most 16 MB.
    /// * `timeout=time`: after this time a pair is removed; the API can set another time for each.
    /// * `type=string`: the key of `keyval` has to equal the key of the pair. `type=ip`: it is an address within the
    ///   network that the pair has as its key; of several networks, the smallest counts. IPv4-mapped IPv6 addresses
    ///   count as IPv4. `type=prefix`: it begins with the key of the pair; of several, the longest counts.
    /// * `sync`: accepted with a warning; zones are not synchronised between machines.
    "keyval_zone" => |cx, node| keyval::keyval_zone::<HttpVariables>(cx, node, "http"), in HTTP, take at_least(1), inheritance Own, args "zone=name:size [state=file] [timeout=time] [type=string | ip | prefix] [sync]";
    /// Defines a variable: the value that the zone has for the key, a text with variables. Without a value, the
    /// variable is not found.
    "keyval" => keyval::keyval::<HttpVariables>, in HTTP, take exactly(3), inheritance Own, args "key $variable zone=name";
}

nowait_conf::rows! {
    pub static JSON_ROWS, module "json";

    /// Defines a variable: the value at a path of the JSON document that the source variable has, such as `$arg_data` or
    /// `$request_body` (see `client_body_early_read`).
    ///
    /// In a path, dots stand between the names of members, and brackets around the positions of elements, from 0:
    /// `user.tags[0]`. A name with other characters is quoted in brackets, with the escapes of JSON:
    /// `data["a.b"].c`. Strings are without their quotes and escapes; other values are as in the document, objects and
    /// arrays included. Of members with the same name, the last counts. If there is no such value, or the document is
    /// invalid, the variable is not found. A document is read once per request, at the first use of one of its
    /// variables.
    "json_set" => nowait_variables::json_set::json_set::<HttpVariables>, in HTTP, take exactly(3), inheritance Own, args "$variable $source path";
    /// Sets the maximum nesting of JSON documents, from 1 to 256. A document that is nested deeper is invalid.
    "json_max_depth" => nowait_variables::json_set::json_max_depth::<HttpVariables>, in HTTP, take exactly(1), default "32", args "number";
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
