//! `grpc_pass` and its relatives, whose address has no URI: where a location passes its requests to.

use std::marker::PhantomData;
use std::rc::Rc;
use std::sync::Arc;

use nowait_conf::{Cx, Diagnostic, Node, Scope, Span, Word};
use nowait_http::conf::upstream::{self, GroupId, Groups};
use nowait_http::conf::{Location, complex};
use nowait_http::log::Level;
use nowait_http::module::{set_auto_redirect, set_content};
use nowait_http::request::Request;
use nowait_http::slots::Key;
use nowait_http::upstream_state::LogUri;
use nowait_http::variables::complex::Complex;
use nowait_upstream::conf::target_error;

use super::conf::Backend;
use super::protocol::{Protocol, Server, Transport};
use super::response::Rewriter;
use super::url::{self, Destination, Schemes, Url, UrlError};
use super::{ProxyHandler, cgi};
use crate::cache::conf::CacheConf;
use crate::upstream::CodecFactory;

/// The destination of a location's requests.
#[derive(Clone, Debug)]
pub struct Pass {
    to: PassTarget,
    schemes: Schemes,
    /// Position in the configuration.
    pub span: Span,
}

#[derive(Clone, Debug)]
enum PassTarget {
    /// To one server or group.
    Static { group: GroupId, destination: Arc<Destination> },
    /// Each request evaluates its own.
    Variable(Complex),
}

/// A protocol whose destinations are addresses without a URI. The rest of [`Protocol`] follows from its
/// [`Pass`].
pub trait Addressed: Rewriter + Send + Sync + Sized + 'static {
    /// The factory of its codecs.
    const CODECS: &'static dyn CodecFactory;

    /// As in [`Protocol`].
    const IS_GRPC: bool = false;

    /// As in [`Protocol`].
    const TAKES_CONNECT: bool = false;

    /// The settings of a location whose content passes requests on in this protocol.
    const SETTINGS: &'static Key<Arc<Self>>;

    /// The destination.
    fn pass(&self) -> &Pass;

    /// The settings that all protocols have.
    fn backend(&self) -> &Backend;

    /// As in [`Protocol`].
    fn refusal(&self, _request: &Request) -> Option<u16> {
        None
    }

    /// The URI to request; empty for protocols with parameters.
    ///
    /// # Errors
    /// The status to respond with; the reason was logged.
    fn uri(&self, _request: &Request) -> Result<LogUri, u16> {
        Ok(cgi::no_uri())
    }

    /// Whether the client's content may be passed on while it arrives.
    fn streams(&self, request: &Request) -> bool;

    /// Appends the default key of a cache.
    fn default_key(&self, request: &Request, out: &mut Vec<u8>) {
        cgi::append_key(request, self.pass().destination(request), out);
    }

    /// As in [`Protocol`].
    fn fields(&self, _request: &Request, _put: &mut dyn FnMut(&[u8], &[u8])) {}

    /// Whether trailers of responses are passed on.
    fn passes_trailers(&self) -> bool {
        false
    }
}

impl<P: Addressed> Protocol for P {
    const CODECS: &'static dyn CodecFactory = P::CODECS;
    const IS_GRPC: bool = P::IS_GRPC;
    const TAKES_CONNECT: bool = P::TAKES_CONNECT;

    fn of_location(location: &Location) -> Option<&Arc<Self>> {
        location.settings.get(P::SETTINGS)
    }

    fn backend(&self) -> &Backend {
        Addressed::backend(self)
    }

    fn refusal(&self, request: &Request) -> Option<u16> {
        Addressed::refusal(self, request)
    }

    fn group(&self) -> Option<GroupId> {
        self.pass().group()
    }

    fn evaluate(&self, request: &mut Request) -> Result<Server, u16> {
        self.pass().evaluate(request)
    }

    fn transport(&self, request: &Request) -> Transport {
        self.pass().transport(request, Addressed::backend(self))
    }

    fn uri(&self, request: &Request) -> Result<LogUri, u16> {
        Addressed::uri(self, request)
    }

    fn fields(&self, request: &Request, put: &mut dyn FnMut(&[u8], &[u8])) {
        Addressed::fields(self, request, put);
    }

    fn streams(&self, request: &Request) -> bool {
        Addressed::streams(self, request)
    }

    fn default_key(&self, request: &Request, out: &mut Vec<u8>) {
        Addressed::default_key(self, request, out);
    }

    fn passes_trailers(&self) -> bool {
        Addressed::passes_trailers(self)
    }
}

/// Makes a protocol the content of the block being read: the directive `*_pass`. `resolve` reads the
/// settings of a location; its cache, if the protocol has one, is in `cache`.
///
/// # Errors
/// Like [`Pass::read`].
pub fn set_pass<P: Addressed>(
    cx: &mut Cx<'_>,
    node: &Node,
    schemes: Schemes,
    cache: Option<&'static Key<Arc<CacheConf>>>,
    resolve: impl Fn(&mut Cx<'_>, &[&Scope], Pass) -> P + 'static,
) -> Result<(), Diagnostic> {
    let address = node.args.first().ok_or_else(|| node.arity_error())?;
    set_pass_to(cx, node, address, schemes, cache, resolve)
}

/// The same with an address that need not be the directive's argument.
///
/// # Errors
/// Like [`Pass::read`].
pub fn set_pass_to<P: Addressed>(
    cx: &mut Cx<'_>,
    node: &Node,
    address: &Word,
    schemes: Schemes,
    cache: Option<&'static Key<Arc<CacheConf>>>,
    resolve: impl Fn(&mut Cx<'_>, &[&Scope], Pass) -> P + 'static,
) -> Result<(), Diagnostic> {
    let pass = Pass::read::<P>(cx, node, address, schemes)?;
    set_content(cx, node, move |cx, chain, parts| {
        let conf = Arc::new(resolve(cx, chain, pass.clone()));
        parts.settings.set(P::SETTINGS, conf.clone());
        let cache = cache.and_then(|cache| parts.settings.get(cache).cloned());
        ProxyHandler::new(conf, cache, parts)
    });
    set_auto_redirect(cx);
    Ok(())
}

/// The position of the directive of the protocol `P` in a block.
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
    /// A second directive in the block, or an invalid address.
    fn read<P: Send + 'static>(
        cx: &mut Cx<'_>,
        node: &Node,
        word: &Word,
        schemes: Schemes,
    ) -> Result<Self, Diagnostic> {
        let span = word.span;
        if cx.layer::<PassLayer<P>>().given.replace(span).is_some() {
            return Err(node.directive_error("is duplicate"));
        }
        let text = complex(word, cx)?;
        let Some(url) = text.literal() else {
            return Ok(Self { to: PassTarget::Variable(text), schemes, span });
        };
        let parsed = Url::parse(url, schemes).map_err(|error| match error {
            UrlError::Prefix => word.error("invalid URL prefix"),
            UrlError::Server(problem) => {
                let server = String::from_utf8_lossy(url::after_scheme(&word.text)).into_owned();
                let server = if server.is_empty() { word.to_string() } else { server };
                let error = target_error(problem, word, &server);
                match schemes.advice(&word.text) {
                    Some(expected) => error.expected(expected),
                    None => error,
                }
            }
        })?;
        let server = upstream::UpstreamServer {
            text: parsed.server,
            host: parsed.host,
            port: parsed.port,
            default_port: None,
            span,
        };
        let group = cx.global::<Groups>().implicit(server);
        let group = group.map_err(|text| word.error(text))?;
        let destination = Arc::new(parsed.destination);
        Ok(Self { to: PassTarget::Static { group, destination }, schemes, span })
    }

    /// Whether requests may need connections with TLS.
    pub fn may_need_tls(&self) -> bool {
        match &self.to {
            PassTarget::Static { destination, .. } => destination.tls,
            PassTarget::Variable(_) => self.schemes.tls.is_some(),
        }
    }

    /// Whether it depends on the content of the request.
    pub fn depends_on_content(&self, request: &Request) -> bool {
        match &self.to {
            PassTarget::Static { .. } => false,
            PassTarget::Variable(text) => request.depends_on_content(text),
        }
    }

    /// The group of servers; `None`: each request has to evaluate it.
    pub fn group(&self) -> Option<GroupId> {
        match self.to {
            PassTarget::Static { group, .. } => Some(group),
            PassTarget::Variable(_) => None,
        }
    }

    /// The destination of a request, once it is known.
    pub fn destination<'a>(&'a self, request: &'a Request) -> Option<&'a Destination> {
        match &self.to {
            PassTarget::Static { destination, .. } => Some(destination),
            PassTarget::Variable(_) => request.round().get(&DESTINATION)?.as_deref(),
        }
    }

    /// Evaluates the destination of a request, and notes it.
    ///
    /// # Errors
    /// The status to respond with; the reason was logged.
    pub fn evaluate(&self, request: &mut Request) -> Result<Server, u16> {
        let PassTarget::Variable(text) = &self.to else { return Err(500) };
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
        *request.round_mut().of_mut(&DESTINATION) = Some(Rc::new(parsed.destination));
        let Url { server, host, port, .. } = parsed;
        Ok(Server::Named { server, host, port, default_port: None })
    }

    /// The parameters of connections for a request with a known destination.
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
