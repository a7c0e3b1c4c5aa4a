//! The destination of a request.

use std::hash::{BuildHasher, BuildHasherDefault};

use nowait_front::tls::upstream::HandshakeParams;
use nowait_http::conf::upstream::Upstream;
use nowait_http::request::Request;
use nowait_runtime::net::Address;
use nowait_upstream::{Attempt, Tag};
use rustc_hash::FxHasher;

use super::{Settings, UpstreamRequest};

/// Destination of a request, and its name in logs.
pub struct UpstreamTarget {
    /// The group of candidate servers.
    pub upstream: Upstream,
    /// The search for a server, just begun.
    pub attempt: Attempt,
    /// `http://`, for logs.
    pub scheme: &'static str,
    /// The request.
    pub order: UpstreamRequest,
    /// `proxy_bind`: our own address, and whether it may be an address that this machine does not
    /// have.
    pub bind: Option<(Address, bool)>,
    /// The TLS parameters of connections, if any.
    pub tls: Option<Box<HandshakeParams>>,
}

impl UpstreamTarget {
    /// Identifies connections that this request can reuse.
    pub(super) fn tag(&self, request: &Request, settings: &Settings) -> Tag {
        let kind = match (&self.tls, &settings.tls, &self.bind) {
            (Some(wish), Some(tls), bind) => tls.kind(wish, (bind, self.scheme)),
            (_, _, None) if self.scheme == "http://" => 0,
            (_, _, bind) => BuildHasherDefault::<FxHasher>::default().hash_one((bind, self.scheme)),
        };
        let owner = request.current().number << 32 | u64::from(request.location_id().0);
        Tag { kind, owner }
    }
}
