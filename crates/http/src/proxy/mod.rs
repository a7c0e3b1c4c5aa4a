//! The proxy module: passes requests to HTTP servers. nginx: `ngx_http_proxy_module`.
//!
//! The content of locations with `proxy_pass` ([`Proxy`]). Builds the head of the request ([`request_head`]) and turns the
//! server's response into ours ([`response`]). The engine ([`crate::upstream`]), which knows the protocol
//! through [`codec`], handles connections, times, buffers and retries. Never touches a socket.

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
pub use handler::{MODULE, Proxy};
