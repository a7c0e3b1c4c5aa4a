//! A disk cache whose users never wait for a disk on the event loop.
//!
//! One cache is one directory of files on one disk. Everything needed without touching that disk is
//! in memory. The crate knows nothing of HTTP: it stores a key, opaque *meta* bytes with some times
//! that it can read, the header bytes of a response and a body.
//!
//! Without I/O (no files, sockets, clocks or threads; `now` is an argument):
//! - [`key`]: keys, variants, and the names of files, which are nginx's.
//! - [`index`]: the keys zone: the list of stored objects, in bounded memory, with its eviction
//!   order.
//! - [`format`](mod@format): the head of a cache file.
//! - [`snapshot`]: the index as a stream of blocks, to be saved and loaded again.
//! - [`memory`]: the memory tier: small hot objects, with scan-resistant admission.
//! - [`policy`]: decides which objects go to which tier.
//!
//! With I/O, all of it through `nowait_runtime::fs`:
//! - [`store`]: one cache as its users see it, and the results of a look-up.
//! - [`fill`]: the writer of an object, and its waiters; [`fill_reader`]: readers of an object that is
//!   still being filled.
//! - [`hot`]: the hottest objects of each worker.
//! - [`health`]: whether the disk can be relied on.
//! - [`purge`]: by key, tag, prefix. The manager and the loader run in the background, once
//!   [`Store::tend`](store::Store::tend) was called on the workers.
//!
//! `unsafe` is forbidden.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod background;
mod commits;
pub mod fill;
pub mod fill_reader;
mod fills;
pub mod format;
mod growth;
pub mod health;
mod hit;
pub mod hot;
mod in_memory;
pub mod index;
pub mod key;
mod lease;
mod leftovers;
mod loader;
mod lookup;
mod manager;
pub mod memory;
mod names;
mod object;
pub mod options;
mod pace;
pub mod policy;
pub mod purge;
mod recall;
mod revalidate;
mod saved_index;
pub mod snapshot;
pub mod statistics;
pub mod store;
mod target;
mod tier;
pub mod time;
mod waiters;
mod write_behind;

pub use fill::{
    Committing, Fill, FillEnded, FillOptions, FillResult, FillStart, Moment, WaitResult, Waiter,
};
pub use fill_reader::{FillInterrupted, FillPiece, FillReader};

pub use index::Index;
pub use key::{Key, Levels};
pub use lookup::Pending;
pub use options::{Steps, StoreOptions};
pub use purge::{Purged, Served};
pub use statistics::Statistics;
pub use store::{CacheKey, Hit, HitBody, Lookup, LookupOptions, Store, Why};
pub use time::UnixMs;
