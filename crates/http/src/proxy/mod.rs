//! The proxy module: passes requests to HTTP servers. nginx: `ngx_http_proxy_module`.
//!
//! Called by the content phase ([`run`]). Builds the request's head ([`request_head`]) and makes our
//! response of the server's ([`response`]); connections, times, buffers and retries are the engine's
//! ([`crate::upstream`]), which knows the protocol through [`codec`]. Never touches a socket.

pub mod accel;
mod cached;
pub mod codec;
pub mod context;
pub mod cookies;
pub mod early_hints;
mod handler;
pub mod redirect;
pub mod request_head;
pub mod response;
pub mod store;
pub mod target;
pub mod trailers;
pub mod url;
pub mod variables;

pub use context::Context;
pub use handler::{run, try_answer, try_run};
