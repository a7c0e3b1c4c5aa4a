//! The stream server: forwards connections and datagrams without interpreting their content.
//!
//! A connection is one [`session::Session`]. It goes through [`phases`] named and ordered as nginx's
//! (post-accept, preaccess, access, preread, content, log); the content phase is mostly the proxy
//! ([`proxy`]). The program makes a [`conf::StreamConf`] per generation and one [`worker::Worker`]
//! per worker thread. nginx: `src/stream`.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod client_hello;
pub mod conf;
pub mod counts;
pub mod generation;
pub mod limit;
pub mod logs;
pub mod pass;
pub mod phases;
pub mod preread;
pub mod proxy;
pub mod realip;
pub mod session;
pub mod status;
pub mod udp;
pub mod variables;
pub mod worker;
