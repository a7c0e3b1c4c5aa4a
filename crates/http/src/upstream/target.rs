//! The destination of a request.

use bytes::Bytes;
use nowait_runtime::net::Address;
use nowait_upstream::{Attempt, Tag};
use rustc_hash::FxHasher;
use std::hash::{BuildHasher, BuildHasherDefault};

use crate::conf::upstream::Upstream;
use crate::request::Request;

/// Where a request is sent, and what logs say of it.
pub struct Target {
    /// Who can answer.
    pub upstream: Upstream,
    /// The search for a server, just begun.
    pub attempt: Attempt,
    /// `http://`, for logs.
    pub scheme: &'static str,
    /// The URI that is asked for, for logs.
    pub uri: LogUri,
    /// `proxy_bind`: our own address, and whether it may be one that this machine has not got.
    pub bind: Option<(Address, bool)>,
    /// The request goes on when its client has left, whatever the settings say: somebody else wants
    /// the response, too.
    pub outlives_client: bool,
}

impl Target {
    /// Which connections can be used again.
    pub(super) fn tag(&self, request: &Request) -> Tag {
        let kind = match (&self.bind, self.scheme) {
            (None, "http://") => 0,
            both => BuildHasherDefault::<FxHasher>::default().hash_one(both),
        };
        let owner = request.current.number << 32 | u64::from(request.location.0);
        Tag { kind, owner }
    }
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
