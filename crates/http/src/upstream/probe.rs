//! How servers are probed: what health checks need to know about the backend of a location.
//!
//! A backend leaves its [`Probing`] in the settings of its locations.

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;

use super::{Codec, Settings};
use crate::request::Request;
use crate::slots::Key;

/// Makes probes in a backend's protocol.
pub trait Probing: Send + Sync {
    /// The engine's settings.
    fn settings(&self) -> &Arc<Settings>;

    /// Local address of connections, and whether this machine may lack it.
    fn bind(&self, request: &Request) -> Option<(SocketAddr, bool)>;

    /// Prepares a request, which no client has sent, for the variables of probes.
    fn prepare(&self, request: &mut Request);

    /// A codec for one probe: GET for this URI.
    fn codec(&self, request: &Request, uri: Bytes) -> Box<dyn Codec>;
}

/// That of a location whose content passes requests to servers.
pub static PROBING: Key<Box<dyn Probing>> = Key::new();
