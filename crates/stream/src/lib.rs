//! The stream server: forwards connections and datagrams without interpreting their content.
//!
//! A connection is one [`session::Session`]. It goes through [`phases`] named and ordered as nginx's
//! (post-accept, preaccess, access, preread, content, log). What happens in a phase is up to
//! [`modules`]; the content phase is mostly the proxy ([`modules::proxy`]).
//!
//! The core is the session, the configuration that it is served with, and what a module may add to
//! them ([`module`]). A module knows the core and no other module; one list ([`modules`]) names all
//! of them. [`blocks`] makes a [`conf::StreamConf`] per generation, and the program one
//! [`worker::Worker`] per worker thread. nginx: `src/stream`.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod blocks;
pub mod client_hello;
pub mod conf;
pub mod counts;
pub mod generation;
pub mod logs;
pub mod module;
pub mod modules;
pub mod phases;
pub mod session;
pub mod status;
pub mod tries;
pub mod udp;
pub mod variables;
pub mod worker;
pub mod zone;
