//! The tunnel module: `tunnel_pass`, a proxy for CONNECT (RFC 9110 section 9.3.6, RFC 9113 section
//! 8.5). nginx: `ngx_http_tunnel_module`.
//!
//! [`conf`] has the directives, [`protocol`] the codec, which sends nothing and responds as soon as
//! there is a connection. The engine is that of all backends, and moves the bytes as after a 101.

mod conf;
mod protocol;

use conf::{PASS_ROWS, TunnelConf};
use nowait_http::module::Module;

/// This module.
pub static MODULE: Module = Module { rows: &[PASS_ROWS, TunnelConf::ROWS], ..Module::EMPTY };
