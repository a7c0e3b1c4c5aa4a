//! The interface between the handler of backends and a protocol, for `proxy_pass` and similar directives.
//!
//! A protocol's module has the rows of its directives, from which it makes a [`Protocol`] for each
//! location that passes requests on, and a [`CodecFactory`]. [`ProxyHandler`](super::ProxyHandler), the cache,
//! health checks and the engine do the rest.

use std::sync::Arc;

use bytes::Bytes;
use nowait_front::tls::upstream::HandshakeParams;
use nowait_http::conf::Location;
use nowait_http::conf::upstream::{GroupId, Upstream};
use nowait_http::request::Request;
use nowait_http::upstream_state::LogUri;

use super::conf::Backend;
use super::response::Rewriter;
use crate::upstream::CodecFactory;

/// A protocol with the settings of a location.
pub trait Protocol: Rewriter + Send + Sync + Sized + 'static {
    /// The factory of its codecs.
    const CODECS: &'static dyn CodecFactory;

    /// Whether it is gRPC: see [`Probing::is_grpc`](crate::upstream::probe::Probing::is_grpc).
    const IS_GRPC: bool = false;

    /// Whether its requests are CONNECT; others never are.
    const TAKES_CONNECT: bool = false;

    /// That of a location, if its content passes requests on in this protocol.
    fn of_location(location: &Location) -> Option<&Arc<Self>>;

    /// The settings that all protocols have.
    fn backend(&self) -> &Backend;

    /// The status that refuses a request which the protocol has no words for.
    fn refusal(&self, _request: &Request) -> Option<u16> {
        None
    }

    /// The group of servers; `None`: each request has to evaluate it.
    fn group(&self) -> Option<GroupId>;

    /// Evaluates the destination of a request, if [`group`](Self::group) is `None`, and notes it.
    ///
    /// # Errors
    /// The status to respond with; the reason was logged.
    fn evaluate(&self, request: &mut Request) -> Result<Server, u16>;

    /// The parameters of connections for a request with a known destination.
    fn transport(&self, request: &Request) -> Transport;

    /// The URI to request.
    ///
    /// # Errors
    /// The status to respond with; the reason was logged.
    fn uri(&self, request: &Request) -> Result<LogUri, u16>;

    /// Whether the client's content may be passed on while it arrives: not if the request to the server
    /// depends on it.
    ///
    /// nginx differs: `$request_body` then has the content only if it arrived with the head, and never in
    /// an address.
    fn streams(&self, request: &Request) -> bool;

    /// Appends the default key of a cache, which identifies the response together with the settings.
    fn default_key(&self, request: &Request, out: &mut Vec<u8>);

    /// Hands over the fields or parameters of a request without content, for an explanation.
    fn fields(&self, _request: &Request, _put: &mut dyn FnMut(&[u8], &[u8])) {}

    /// Whether trailers of responses are passed on.
    fn passes_trailers(&self) -> bool {
        false
    }
}

/// The parameters of connections.
#[derive(Debug)]
pub struct Transport {
    /// The beginning of URLs in logs: `http://`.
    pub scheme: &'static str,
    /// The parameters of TLS connections, if they have TLS; then
    /// [`Settings::tls`](crate::upstream::Settings::tls) is there.
    pub tls: Option<Box<HandshakeParams>>,
}

/// The server to send a request to.
#[derive(Debug, Clone)]
pub enum Server {
    /// One of this group.
    Of(Upstream),
    /// A server named by a variable, whose addresses must be resolved.
    Named {
        /// Host and port, or `unix:` and a path.
        server: Bytes,
        /// A name or an address.
        host: Bytes,
        /// The port, if there is one.
        port: Option<u16>,
        /// The port of the protocol; `None`: one has to be given.
        default_port: Option<u16>,
    },
}
