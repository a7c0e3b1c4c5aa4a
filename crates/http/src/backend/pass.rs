//! `grpc_pass` and its relatives, whose address has no URI: where a location passes its requests to.

use std::marker::PhantomData;
use std::rc::Rc;
use std::sync::Arc;

use nowait_conf::{Cx, Diagnostic, Node, Span};

use super::conf::Backend;
use super::protocol::{Server, Transport};
use super::url::{self, Destination, Schemes, Url, UrlError};
use crate::conf::complex;
use crate::conf::upstream::{self, GroupId, Groups};
use crate::log::Level;
use crate::request::Request;
use crate::slots::Key;
use crate::variables::complex::Complex;

/// The destination of a location's requests.
#[derive(Clone, Debug)]
pub struct Pass {
    to: To,
    schemes: Schemes,
    /// Position in the configuration.
    pub span: Span,
}

#[derive(Clone, Debug)]
enum To {
    /// To one server or group.
    Static { group: GroupId, destination: Arc<Destination> },
    /// Each request evaluates its own.
    Variable(Complex),
}

/// Where a block has such a directive of the protocol `P`.
struct PassLayer<P> {
    given: Option<Span>,
    protocol: PhantomData<P>,
}

impl<P> Default for PassLayer<P> {
    fn default() -> Self {
        Self { given: None, protocol: PhantomData }
    }
}

/// The destination of a request whose location names it with variables; dropped at internal redirects.
static DESTINATION: Key<Option<Rc<Destination>>> = Key::reusing(|destination| {
    *destination = None;
    true
});

impl Pass {
    /// Reads the directive of the protocol `P`. nginx: `ngx_http_grpc_pass` and its relatives.
    ///
    /// # Errors
    /// A second one in the block; an address that is none.
    pub fn read<P: Send + 'static>(
        cx: &mut Cx<'_>,
        node: &Node,
        schemes: Schemes,
    ) -> Result<Self, Diagnostic> {
        let word = node.args.first().ok_or_else(|| node.arity_error())?;
        let span = word.span;
        if cx.layer::<PassLayer<P>>().given.replace(span).is_some() {
            return Err(node.directive_error("is duplicate"));
        }
        let text = complex(word, cx)?;
        let Some(url) = text.literal() else {
            return Ok(Self { to: To::Variable(text), schemes, span });
        };
        let parsed = Url::parse(url, schemes).map_err(|error| match error {
            UrlError::Prefix => word.error("invalid URL prefix"),
            UrlError::Server(problem) => {
                let server = String::from_utf8_lossy(url::after_scheme(&word.text)).into_owned();
                let server = if server.is_empty() { word.to_string() } else { server };
                word.error(format!("{problem} in upstream \"{server}\""))
            }
        })?;
        let server = upstream::Server {
            text: parsed.server,
            host: parsed.host,
            port: parsed.port,
            default_port: None,
            span,
        };
        let group = cx.global::<Groups>().implicit(server);
        let group = group.map_err(|text| word.error(text))?;
        let destination = Arc::new(parsed.destination);
        Ok(Self { to: To::Static { group, destination }, schemes, span })
    }

    /// Whether requests may need connections with TLS.
    pub fn may_need_tls(&self) -> bool {
        match &self.to {
            To::Static { destination, .. } => destination.tls,
            To::Variable(_) => self.schemes.tls.is_some(),
        }
    }

    /// The group of servers; `None`: each request has to evaluate it.
    pub fn group(&self) -> Option<GroupId> {
        match self.to {
            To::Static { group, .. } => Some(group),
            To::Variable(_) => None,
        }
    }

    /// The destination of a request, once it is known.
    pub fn destination<'a>(&'a self, request: &'a Request) -> Option<&'a Destination> {
        match &self.to {
            To::Static { destination, .. } => Some(destination),
            To::Variable(_) => request.round.get(&DESTINATION)?.as_deref(),
        }
    }

    /// Evaluates the destination of a request, and notes it.
    ///
    /// # Errors
    /// The status to respond with; the reason was logged.
    pub fn evaluate(&self, request: &mut Request) -> Result<Server, u16> {
        let To::Variable(text) = &self.to else { return Err(500) };
        let text = request.evaluate(text);
        let parsed = Url::parse(&text, self.schemes).map_err(|error| {
            let server = match url::after_scheme(&text) {
                [] => String::from_utf8_lossy(&text),
                server => String::from_utf8_lossy(server),
            };
            let problem = match error {
                UrlError::Server(problem) => problem,
                UrlError::Prefix => "invalid URL prefix",
            };
            request.log(Level::Error, format_args!("{problem} in upstream \"{server}\""));
            500u16
        })?;
        *request.round.of_mut(&DESTINATION) = Some(Rc::new(parsed.destination));
        let Url { server, host, port, .. } = parsed;
        Ok(Server::Named { server, host, port, default_port: None })
    }

    /// How connections for a request with a known destination are made.
    pub fn transport(&self, request: &Request, backend: &Backend) -> Transport {
        match (self.destination(request), &backend.settings.tls, self.schemes.tls) {
            (Some(destination), Some(tls), Some(scheme)) if destination.tls => {
                let wish = Box::new(tls.wish(request, &destination.host));
                Transport { scheme, tls: Some(wish) }
            }
            _ => Transport { scheme: self.schemes.plain, tls: None },
        }
    }
}
