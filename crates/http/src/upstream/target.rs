//! Where a request is sent.

use std::sync::Arc;

use bytes::Bytes;
use nowait_runtime::net::Address;

/// Where a request is sent, and what logs say of it.
#[derive(Debug, Clone)]
pub struct Target {
    /// The server's address.
    pub address: Address,
    /// Its name for logs and variables: `127.0.0.1:8080`.
    pub name: Arc<str>,
    /// `http://`, for logs.
    pub scheme: &'static str,
    /// The URI that is asked for, for logs.
    pub uri: LogUri,
    /// `proxy_bind`: our own address, and whether it may be one that this machine has not got.
    pub bind: Option<(Address, bool)>,
    /// Bytes per second that are read from the upstream; zero: no limit.
    pub limit_rate: u64,
}

/// The URI in log lines.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum LogUri {
    /// As the client sent it.
    #[default]
    Unparsed,
    /// This one.
    Text(Bytes),
}
