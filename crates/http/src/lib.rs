//! The core of the HTTP server: requests, servers, locations, phases, filters, variables, logs.
//!
//! A request flows in one direction: a front end receives a head, [`phases`] let the location's handler
//! make a [`response::Response`], [`filter`]s change it, and the front end sends it. The core depends on no
//! module and no protocol: modules are in `nowait-modules`, what they need to reach servers behind this one
//! in `nowait-backend`, front ends in `nowait-connections`. The program makes a [`conf::HttpConf`] for each
//! generation from the list of modules.
#![forbid(unsafe_code)]

pub use nowait_front::{address, log, proxy_protocol, resolvers};
pub use nowait_variables::{cidr, names as server_name};

pub mod accept_encoding;
pub mod base64;
pub mod blocks;
pub mod body;
mod body_writer;
pub mod client;
pub mod clients;
pub mod conf;
pub mod counts;
pub mod credentials;
pub mod directories;
pub mod error_page;
pub mod exchange;
pub mod explain;
pub mod field_order;
pub mod files;
pub mod filter;
pub mod forwarded;
pub mod generation;
pub mod interpret;
pub mod keyvals;
pub mod limit_rate;
pub mod location_tree;
pub mod logs;
pub mod mime;
pub mod module;
pub mod nested;
pub mod open_file_cache;
pub mod outcome;
pub mod page_style;
pub mod path;
pub mod phases;
pub mod post_action;
pub mod progress;
pub mod random;
pub mod readable_pages;
pub mod request;
pub mod request_body;
pub mod response;
pub mod response_head;
mod sent_head;
pub mod services;
pub mod slice;
pub mod slots;
pub mod special_pages;
pub mod subject;
pub mod subrequest;
pub mod temp_file;
pub mod timeline;
pub mod trace;
pub mod upstream_state;
pub mod variables;
