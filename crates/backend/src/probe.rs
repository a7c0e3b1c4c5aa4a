//! Probes of servers, for health checks.

use std::net::SocketAddr;
use std::sync::Arc;

use nowait_front::tls::upstream::HandshakeParams;
use nowait_http::request::Request;

use super::protocol::Protocol;
use crate::upstream::probe::Probing;
use crate::upstream::{CodecFactory, Settings};

/// Probes the servers of a location.
pub(super) struct Probe<P>(pub(super) Arc<P>);

impl<P: Protocol> Probing for Probe<P> {
    fn settings(&self) -> &Arc<Settings> {
        &self.0.backend().settings
    }

    fn bind(&self, request: &Request) -> Option<(SocketAddr, bool)> {
        let bind = self.0.backend().bind.as_ref()?;
        Some((bind.address(request)?, bind.transparent))
    }

    fn tls(&self, request: &Request) -> Option<Box<HandshakeParams>> {
        self.0.transport(request).tls
    }

    fn is_grpc(&self) -> bool {
        P::IS_GRPC
    }

    fn codecs(&self) -> &'static dyn CodecFactory {
        P::CODECS
    }
}
