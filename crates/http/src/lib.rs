//! The HTTP server: servers, locations, phases, variables, handlers, filters, logs.
#![forbid(unsafe_code)]

pub mod autoindex;
pub mod conditional;
pub mod escape;
pub mod etag;
pub mod http_date;
pub mod location_tree;
pub mod log;
pub mod mime;
pub mod range;
pub mod server_name;
pub mod special_pages;
