//! The test kit: a server under test, a scripted client and origin, a slow disk, NFS.
//!
//! Used by the integration tests of the workspace (`tests/`, `crates/*/tests`), never by the
//! product. It interacts with a server only as an operator and a client would: configuration and
//! signals in, HTTP and log files out. The same tests therefore also run against nginx, which
//! validates the kit itself.
//!
//! * [`Server`] writes a configuration, starts a program with it, waits until it listens, reloads
//!   and stops it, and at the end refuses logs that tell of a fault.
//! * [`Client`] sends exactly the bytes a test says and parses what comes back; [`check()`] is the
//!   one-line form for "this request gets this response".
//! * [`http2::Http2`] is a client that speaks HTTP/2, [`http3::Http3`] one that speaks HTTP/3, over
//!   [`quic::Quic`], whose streams take any bytes.
//! * [`Origin`] plays an upstream server from a list of steps; [`Http2Origin`] is one that speaks HTTP/2.
//! * [`DnsServer`] plays a name server; [`client_hello`] is what a TLS client says first.
//! * [`movie`] writes and reads MP4 files.
//! * [`slow_disk`] is a file system whose every operation can be delayed, failed, or held until
//!   the test lets it go, directly or below an ordinary ext4.
//! * [`Cgroup`] limits the memory of processes, and takes back pages of files.
//! * [`NfsMount`] is a network file system whose server can be cut off.
//!
//! Everything here panics with a clear message when an expectation fails, like an assertion, and
//! every wait has a limit ([`wait::PATIENCE`]): no test can hang.

#![forbid(unsafe_code)]

mod cgroup;
pub mod check;
pub mod client;
mod client_hello;
pub mod dns;
pub mod http2;
pub mod http2_origin;
pub mod http3;
mod link;
pub mod mmdb;
pub mod movie;
mod nfs;
pub mod origin;
pub mod ports;
pub mod qpack;
pub mod quic;
pub mod response;
pub mod server;
pub mod skip;
pub mod slow_disk;
pub mod temp;
pub mod wait;

pub use cgroup::Cgroup;
pub use check::{check, check_on};
pub use client::Client;
pub use client_hello::client_hello;
pub use dns::DnsServer;
pub use http2_origin::{Http2Origin, Http2Peer};
pub use link::Link;
pub use nfs::NfsMount;
pub use origin::Origin;
pub use response::Response;
pub use server::{Binary, Driver, Server, ServerBuilder};
pub use skip::skip;
pub use temp::TempDir;
