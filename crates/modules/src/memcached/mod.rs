//! The memcached module: `memcached_pass`. nginx: `ngx_http_memcached_module`.
//!
//! [`conf`] has the directives, [`protocol`] the codec. The engine is that of all backends.

mod conf;
mod protocol;

use conf::{MemcachedConf, PASS_ROWS};
use nowait_http::module::Module;

/// This module.
pub static MODULE: Module = Module { rows: &[PASS_ROWS, MemcachedConf::ROWS], ..Module::EMPTY };
