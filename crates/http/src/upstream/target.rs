//! Where a request is sent.

use std::hash::{BuildHasher, BuildHasherDefault};
use std::sync::Arc;

use bytes::Bytes;
use nowait_runtime::net::Address;
use nowait_upstream::{Ask, Group, Tag};
use rustc_hash::FxHasher;

use crate::request::Request;

/// Where a request is sent, and what logs say of it.
#[derive(Clone)]
pub struct Target {
    /// The servers.
    pub group: Arc<Group>,
    /// The value of [`GroupConf::hash_key`](nowait_upstream::GroupConf::hash_key).
    pub hash_key: Bytes,
    /// The first of [`Sticky::lookup`](nowait_upstream::Sticky::lookup) that is not empty.
    pub sticky: Option<Bytes>,
    /// `http://`, for logs.
    pub scheme: &'static str,
    /// The URI that is asked for, for logs.
    pub uri: LogUri,
    /// `proxy_bind`: our own address, and whether it may be one that this machine has not got.
    pub bind: Option<(Address, bool)>,
    /// Bytes per second that are read from the upstream; zero: no limit.
    pub limit_rate: u64,
}

impl Target {
    /// A group that is asked without further ado.
    pub fn new(group: Arc<Group>, scheme: &'static str, uri: LogUri) -> Self {
        let hash_key = Bytes::new();
        Self { group, hash_key, sticky: None, scheme, uri, bind: None, limit_rate: 0 }
    }

    /// What the group is asked.
    pub(super) fn ask(&self, request: &Request) -> Ask<'_> {
        let client = request.peer().inet().map(|inet| inet.ip());
        Ask { client, hash_key: &self.hash_key, sticky: self.sticky.as_deref() }
    }

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
