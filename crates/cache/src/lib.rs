//! A disk cache whose users never wait for a disk on the event loop.
//!
//! One cache is one directory of files on one disk, with everything that must be known without
//! touching that disk in memory. It knows nothing of HTTP: what it stores is a key, opaque
//! *meta* bytes with some times that it can read, the header bytes of a response and a body.
//!
//! Without I/O (no files, sockets, clocks or threads; `now` is an argument):
//! - [`key`]: keys, variants, and the names of files, which are nginx's.
//! - [`index`]: the keys zone: what is stored, in bounded memory, with its eviction order.
//! - [`format`](mod@format): the head of a cache file.
//! - [`snapshot`]: the index as a stream of blocks, to be saved and loaded again.
//! - [`memory`]: the memory tier: small hot objects, with admission that a scan can't flush.
//! - [`waiters`]: who fills which key, and who waits for it, across workers.
//! - [`policy`]: what goes to which tier.
//!
//! `unsafe` is forbidden.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod format;
pub mod index;
pub mod key;
pub mod time;

pub use index::Index;
pub use key::{Key, Levels};
pub use time::UnixMs;
