//! The FastCGI module: `fastcgi_pass`. nginx: `ngx_http_fastcgi_module`.
//!
//! [`conf`] has the directives, [`codec`] the records, [`split`] the script's name and what follows it.
//! Parameters and the engine are those of all backends. Never touches a socket, and starts no
//! application.

mod codec;
mod conf;
mod pass;
mod protocol;
mod split;

use conf::{
    CACHE_PATH_ROWS, FastcgiBackendConf, FastcgiCacheConf, FastcgiRequestConf, FastcgiUpstreamConf,
};
use nowait_http::module::Module;
use pass::PASS_ROWS;
use split::SplitConf;

/// This module.
pub static MODULE: Module = Module {
    rows: &[
        CACHE_PATH_ROWS,
        FastcgiCacheConf::ROWS,
        PASS_ROWS,
        FastcgiUpstreamConf::ROWS,
        FastcgiBackendConf::ROWS,
        FastcgiRequestConf::ROWS,
        SplitConf::ROWS,
    ],
    build: Some(conf::build),
    variables: split::BUILTINS,
    ..Module::EMPTY
};
