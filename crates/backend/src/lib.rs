//! Upstream servers: the engine that sends them requests, the cache in front of them, health checks, and
//! the common parts of modules that pass requests to servers: rows of directives, the handler of their
//! locations, and the conversion of a server's response to that for the client.
//!
//! A protocol is a [`Protocol`](protocol::Protocol) with its rows and a codec; the engine is [`upstream`], and
//! [`cache`] stands in front of any of them.
#![forbid(unsafe_code)]

pub mod accel;
mod backend_origin;
pub mod cache;
pub mod cgi;
pub mod collector;
pub mod conf;
mod content;
pub mod early_hints;
mod handler;
pub mod health;
pub mod http2;
pub mod pass;
mod probe;
pub mod protobuf;
pub mod protocol;
pub mod request_head;
pub mod response;
pub mod store;
mod trailers;
pub mod upstream;
pub mod url;

pub use handler::ProxyHandler;
