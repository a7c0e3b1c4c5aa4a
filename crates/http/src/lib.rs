//! The HTTP server: servers, locations, phases, variables, handlers, filters, logs.
//!
//! The flow of a request is one way: [`connection`] receives a head, [`phases`] let the location's
//! handler make a [`response::Response`], [`filter`]s change it, [`sender`] sends it. The program
//! makes a [`conf::HttpConf`] per generation and one [`worker::Worker`] per worker thread.
#![forbid(unsafe_code)]

pub use nowait_front::{address, log, proxy_protocol, resolvers};
pub use nowait_variables::{cidr, names as server_name};

mod base64;
pub mod blocks;
pub mod body;
pub mod body_reader;
pub mod cache;
pub mod charset;
pub mod codings;
pub mod conf;
pub mod connection;
pub mod counts;
mod credentials;
pub mod directories;
pub mod error_page;
pub mod files;
pub mod filter;
pub mod forwarded;
pub mod generation;
pub mod gzip;
pub mod health;
pub mod location_tree;
pub mod logs;
pub mod mime;
pub mod module;
pub mod modules;
pub mod nested;
pub mod open_file_cache;
pub mod order;
pub mod outcome;
pub mod path;
pub mod phases;
mod post_action;
mod proxied;
pub mod proxy;
pub mod random;
pub mod request;
pub mod request_body;
pub mod response;
pub mod response_head;
pub mod rewrite;
pub mod sender;
pub mod slice;
pub mod slots;
pub mod special_pages;
pub mod ssi;
pub mod subrequest;
pub mod temp_file;
pub mod upstream;
pub mod variables;
pub mod worker;
