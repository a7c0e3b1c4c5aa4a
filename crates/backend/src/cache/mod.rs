//! Caching of responses: nginx's rules, and with `proxy_cache_rfc9111 on;` RFC 9111 in full.
//!
//! The handler of backends calls [`begin`] and [`finish`] instead of the engine when a cache is configured. The
//! `nowait-caching` crate has the rules: which responses may be stored, how long they are valid, and
//! which requests they answer. The `nowait-cache` crate decides where objects are stored and how files
//! are reached. This module leads a request through both.
//!
//! | | |
//! |---|---|
//! | the steps of a request | `serve`, `find`, `fetch`, `filling`, `hit` |
//! | stored heads | `decoded`, `fields` |
//! | streaming growing objects, and continuing when the disk fails | `streaming_hit`, `object_reader`, `origin_resume` |
//! | protocols of origins | [`origin`] |
//! | purging, and who may | [`purge`] |
//! | `$upstream_cache_status` and related variables | [`state`] |
//! | counters for status pages | [`responses`] |

pub mod conf;
mod content;
mod decoded;
pub mod explain;
mod fetch;
mod fields;
mod filling;
mod find;
mod hit;
mod object_reader;
pub mod origin;
mod origin_resume;
pub mod path;
pub mod purge;
pub mod responses;
mod serve;
pub mod state;
mod streaming_hit;
pub mod zone;

pub use serve::{begin, finish};
pub use state::cache_status;

use nowait_http::module::Module;

/// This module.
pub static MODULE: Module = Module {
    variables: state::BUILTINS,
    finish: Some(path::finish),
    start: Some(zone::tend),
    ..Module::EMPTY
};
