//! What modules that pass requests to servers have in common: the rows of their directives, the handler
//! of their locations, and the way from a server's response to ours. The engine ([`crate::upstream`])
//! does the rest.
//!
//! A protocol is a [`Protocol`](protocol::Protocol) with its rows and a codec; a cache stands in front
//! of any of them.

pub mod accel;
mod cached;
pub mod cgi;
pub mod conf;
pub mod early_hints;
mod handler;
pub mod http2;
pub mod pass;
mod probe;
pub mod protocol;
pub mod request_head;
pub mod response;
pub mod store;
mod trailers;
pub mod url;

pub use handler::Passing;
