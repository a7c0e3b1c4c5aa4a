//! The HTTP server: servers, locations, phases, variables, handlers, filters, logs.
//!
//! The flow of a request is one way: a front end (`http1`, `http2`) receives a head, [`phases`] let the
//! location's handler make a [`response::Response`], [`filter`]s change it, and the front end sends it.
//! The program makes a [`conf::HttpConf`] per generation and one [`worker::Worker`] per worker thread.
#![forbid(unsafe_code)]

pub use nowait_front::{address, log, proxy_protocol, resolvers};
pub use nowait_variables::{cidr, names as server_name};

pub mod accept_encoding;
pub mod accepted;
mod backend;
mod base64;
pub mod blocks;
pub mod body;
pub mod cache;
pub mod client;
pub mod conf;
pub mod connections;
pub mod counts;
mod credentials;
pub mod directories;
pub mod error_page;
pub mod exchange;
pub mod explain;
pub mod files;
pub mod filter;
pub mod forwarded;
pub mod generation;
pub mod health;
mod http1;
mod http2;
pub mod interpret;
pub mod limit_rate;
pub mod location_tree;
pub mod logs;
pub mod look;
pub mod mime;
pub mod module;
pub mod modules;
pub mod nested;
pub mod open_file_cache;
pub mod order;
mod out;
pub mod outcome;
pub mod partial;
pub mod path;
pub mod phases;
mod post_action;
pub mod progress;
pub mod random;
pub mod readable_pages;
pub mod request;
pub mod request_body;
pub mod response;
pub mod response_head;
mod secured;
pub mod sending;
pub mod services;
pub mod slots;
pub mod special_pages;
mod subject;
pub mod subrequest;
pub mod temp_file;
pub mod trace;
pub mod upstream;
pub mod upstream_state;
pub mod variables;
pub mod worker;
