//! The parts shared by all protocols: listening sockets, the PROXY protocol, client addresses,
//! access rules, limits, resolvers, groups of servers, logs.
//!
//! `http` and `stream` are built on these. Anything that needs variables is generic over the
//! [`Subject`](nowait_variables::Subject) that has them. Nothing here knows a protocol, or serves
//! anything.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod access;
pub mod address;
pub mod bind;
pub mod frames;
pub mod handover;
pub mod keyval;
pub mod limit;
pub mod listen;
pub mod log;
pub mod logs;
pub mod proxy_protocol;
pub mod realip;
pub mod resolver_directives;
pub mod resolvers;
#[cfg(test)]
mod sample;
pub mod servers;
pub mod sessions;
pub mod state_file;
pub mod tally;
pub mod tls;
pub mod upstreams;
pub mod zones;

/// Version of nginx that Nowait follows.
pub const NGINX_VERSION: &str = "1.31.4";
