//! Probes of HTTP servers, for health checks.

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;

use super::codec::Http1;
use super::conf::ProxyConf;
use super::context::{self, Options};
use crate::request::Request;
use crate::upstream::probe::Probing;
use crate::upstream::{Codec, LogUri, Settings};

/// Probes the servers of a location.
pub(super) struct Probe(pub(super) Arc<ProxyConf>);

impl Probing for Probe {
    fn settings(&self) -> &Arc<Settings> {
        &self.0.backend.settings
    }

    fn bind(&self, request: &Request) -> Option<(SocketAddr, bool)> {
        let bind = self.0.backend.bind.as_ref()?;
        Some((bind.address(request)?, bind.transparent))
    }

    fn prepare(&self, request: &mut Request) {
        context::of_mut(request).set_location();
    }

    fn codec(&self, request: &Request, uri: Bytes) -> Box<dyn Codec> {
        let options = Options { method: Some("GET"), ..Options::default() };
        Http1::new(request, options, LogUri::Text(uri))
    }
}
