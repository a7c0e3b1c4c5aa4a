//! Destinations of requests: `proxy_pass`, as [`crate::proxy::pass`] reads it.

use std::sync::Arc;

use bytes::Bytes;
use nowait_backend::url::Destination;
use nowait_conf::Span;
use nowait_http::conf::upstream::GroupId;
use nowait_http::request::Request;
use nowait_http::variables::complex::Complex;

/// Destination of requests.
#[derive(Clone, Debug)]
pub enum Pass {
    /// To one server or group.
    Static(Arc<StaticPass>),
    /// Each request evaluates its own.
    Variable {
        /// The URL.
        url: Complex,
        /// Position in the configuration.
        span: Span,
    },
}

impl Pass {
    /// Whether it depends on the content of the request.
    pub fn depends_on_content(&self, request: &Request) -> bool {
        match self {
            Pass::Static(_) => false,
            Pass::Variable { url, .. } => request.depends_on_content(url),
        }
    }
}

/// A URL without variables.
#[derive(Clone, Debug)]
pub struct StaticPass {
    /// The URL as it is written.
    pub url: Bytes,
    /// The group of servers.
    pub group: GroupId,
    /// The values for requests.
    pub destination: Destination,
    /// The part of URIs that the URL's own URI replaces; empty: none.
    pub location: Bytes,
    /// Position in the configuration.
    pub span: Span,
}

impl Pass {
    /// Whether requests may need connections with TLS.
    pub fn may_need_tls(&self) -> bool {
        match self {
            Self::Static(pass) => pass.destination.tls,
            Self::Variable { .. } => true,
        }
    }

    /// The `Host` of the server, unless each request evaluates it.
    pub fn host(&self) -> Option<&Bytes> {
        match self {
            Self::Static(pass) => Some(&pass.destination.host_header),
            Self::Variable { .. } => None,
        }
    }

    /// Position of the directive.
    pub fn span(&self) -> Span {
        match self {
            Self::Static(pass) => pass.span,
            Self::Variable { span, .. } => *span,
        }
    }
}

/// The `proxy_pass` of a block.
#[derive(Default)]
pub struct PassLayer {
    /// The destination.
    pub pass: Option<Pass>,
}
