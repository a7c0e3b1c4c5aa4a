//! Servers behind this one: the engine that sends them requests, the cache in front of them, health checks,
//! and what the modules that pass requests to servers have in common: rows of directives, the handler of
//! their locations, and the way from a server's response to ours.
//!
//! A protocol is a [`Protocol`](protocol::Protocol) with its rows and a codec; the engine is [`upstream`], and
//! [`cache`] stands in front of any of them.
#![forbid(unsafe_code)]

pub mod accel;
pub mod cache;
mod cached;
pub mod cgi;
pub mod conf;
mod content;
pub mod early_hints;
mod handler;
pub mod health;
pub mod http2;
pub mod pass;
mod probe;
pub mod protocol;
pub mod request_head;
pub mod response;
pub mod store;
mod trailers;
pub mod upstream;
pub mod url;

pub use handler::Passing;
