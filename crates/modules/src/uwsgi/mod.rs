//! The uwsgi module: `uwsgi_pass`. nginx: `ngx_http_uwsgi_module`.
//!
//! [`conf`] has the directives, [`protocol`] the encoding of requests. Parameters, responses and the engine
//! are shared by all backends.

mod conf;
mod protocol;

use conf::{
    CACHE_PATH_ROWS, PASS_ROWS, UwsgiBackendConf, UwsgiCacheConf, UwsgiRequestConf, UwsgiTlsConf,
    UwsgiUpstreamConf,
};
use nowait_http::module::Module;

/// This module.
pub static MODULE: Module = Module {
    rows: &[
        CACHE_PATH_ROWS,
        UwsgiCacheConf::ROWS,
        PASS_ROWS,
        UwsgiUpstreamConf::ROWS,
        UwsgiBackendConf::ROWS,
        UwsgiRequestConf::ROWS,
        UwsgiTlsConf::ROWS,
    ],
    build: Some(conf::build),
    ..Module::EMPTY
};
