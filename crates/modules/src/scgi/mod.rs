//! The SCGI module: `scgi_pass`. nginx: `ngx_http_scgi_module`.
//!
//! [`conf`] has the directives, [`protocol`] the encoding of requests. Parameters, responses and the engine
//! are shared by all backends.

mod conf;
mod protocol;

use conf::{
    CACHE_PATH_ROWS, PASS_ROWS, ScgiBackendConf, ScgiCacheConf, ScgiRequestConf, ScgiUpstreamConf,
};
use nowait_http::module::Module;

/// This module.
pub static MODULE: Module = Module {
    rows: &[
        CACHE_PATH_ROWS,
        ScgiCacheConf::ROWS,
        PASS_ROWS,
        ScgiUpstreamConf::ROWS,
        ScgiBackendConf::ROWS,
        ScgiRequestConf::ROWS,
    ],
    build: Some(conf::build),
    ..Module::EMPTY
};
