//! Asynchronous DNS client: what `resolver` of nginx's configuration promises.
//!
//! A [`Resolver`] is shared by all workers of the process: one cache, one query under way per name,
//! whoever asks. [`Resolver::new`] makes one for a `resolver` directive; [`Resolver::system`] makes
//! the one that serves where no directive is set, from `/etc/hosts` and `/etc/resolv.conf`.
//!
//! Called by upstream (names of peers), http (names in variables) and later stream. Messages are
//! those of the `domain` crate; sockets those of `nowait_runtime::net`; files are read in a pool.
//!
//! What never happens here: a thread or an event loop of its own; a wait without a bound; an answer
//! taken that doesn't match its question.

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
pub use name::Name;
pub use resolver::{Log, Resolver, limit};
pub use settings::{NameServer, Settings};
