//! The HTTP server: servers, locations, phases, variables, handlers, filters, logs.
#![forbid(unsafe_code)]

pub mod conditional;
pub mod etag;
pub mod http_date;
pub mod location_tree;
pub mod range;
pub mod server_name;
