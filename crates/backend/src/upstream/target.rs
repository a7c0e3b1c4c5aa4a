//! The destination of a request.

use std::hash::{BuildHasher, BuildHasherDefault};

use nowait_front::tls::upstream::HandshakeParams;
use nowait_http::conf::upstream::Upstream;
use nowait_http::request::Request;
use nowait_runtime::net::Address;
use nowait_upstream::{Attempt, Tag};
use rustc_hash::FxHasher;

use super::{Order, Settings};

/// Destination of a request, and its name in logs.
pub struct Target {
    /// The group of candidate servers.
    pub upstream: Upstream,
    /// The search for a server, just begun.
    pub attempt: Attempt,
    /// `http://`, for logs.
    pub scheme: &'static str,
    /// What is requested.
    pub order: Order,
    /// `proxy_bind`: our own address, and whether it may be an address that this machine does not
    /// have.
    pub bind: Option<(Address, bool)>,
    /// What connections need, if they have TLS.
    pub tls: Option<Box<HandshakeParams>>,
}

impl Target {
    /// Identifies connections that this request can reuse.
    pub(super) fn tag(&self, request: &Request, settings: &Settings) -> Tag {
        let kind = match (&self.tls, &settings.tls, &self.bind) {
            (Some(wish), Some(tls), bind) => tls.kind(wish, (bind, self.scheme)),
            (_, _, None) if self.scheme == "http://" => 0,
            (_, _, bind) => BuildHasherDefault::<FxHasher>::default().hash_one((bind, self.scheme)),
        };
        let owner = request.current.number << 32 | u64::from(request.location.0);
        Tag { kind, owner }
    }
}
