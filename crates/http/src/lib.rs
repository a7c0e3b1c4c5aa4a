//! The HTTP server: servers, locations, phases, variables, handlers, filters, logs.
#![forbid(unsafe_code)]

pub mod location_tree;
pub mod server_name;
