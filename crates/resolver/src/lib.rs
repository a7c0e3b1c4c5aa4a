//! Asynchronous DNS client: implements nginx's `resolver` directive.
//!
//! A [`Resolver`] is shared by all workers of the process: one cache, and one query in flight per
//! name, however many tasks ask. [`Resolver::new`] creates one for a `resolver` directive;
//! [`Resolver::system`] creates the default one, from `/etc/hosts` and `/etc/resolv.conf`.
//!
//! Called by upstream (names of peers), http (names in variables) and later stream. Messages are
//! those of the `domain` crate, sockets those of `nowait_runtime::net`; files are read in a pool.
//!
//! What never happens here: starting a thread or an event loop; an unbounded wait; accepting a
//! response that does not match its query.

#![forbid(unsafe_code)]

mod answer;
mod counters;
mod exchange;
pub mod message;
mod name;
mod query;
mod resolver;
mod settings;
mod table;

pub mod system;

pub use answer::{Addresses, ResolveError, Service, Services};
pub use counters::Statistics;
pub use name::DomainName;
pub use resolver::{Resolver, ResolverLog, limit};
pub use settings::{NameServer, ResolverSettings};
