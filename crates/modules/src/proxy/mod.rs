//! The proxy module: passes requests to HTTP servers. nginx: `ngx_http_proxy_module`.
//!
//! The content of locations with `proxy_pass` is the handler of backends ([`nowait_backend`]), for which
//! `handler.rs` describes the protocol. Builds the head of the request ([`request_head`]). The engine
//! ([`nowait_backend::upstream`]), which knows the protocol through [`codec`], handles connections, times, buffers
//! and retries. Never touches a socket.

pub mod codec;
pub mod conf;
pub mod context;
pub mod cookies;
mod handler;
mod hops;
mod pass;
pub mod redirect;
pub mod request_head;
pub mod target;
pub mod variables;

pub use context::Context;

use conf::{
    CACHE_PATH_ROWS, ProxyBackendConf, ProxyCacheConf, ProxyRequestConf, ProxyTlsConf,
    ProxyUpstreamConf,
};
use nowait_http::module::Module;
use pass::PASS_ROWS;

/// This module.
pub static MODULE: Module = Module {
    rows: &[
        CACHE_PATH_ROWS,
        ProxyCacheConf::ROWS,
        PASS_ROWS,
        ProxyUpstreamConf::ROWS,
        ProxyBackendConf::ROWS,
        ProxyRequestConf::ROWS,
        ProxyTlsConf::ROWS,
    ],
    build: Some(conf::build),
    variables: variables::BUILTINS,
    replaceable: |name| matches!(name, "proxy_host" | "proxy_port"),
    finish: Some(pass::warn_of_schemes),
    ..Module::EMPTY
};
