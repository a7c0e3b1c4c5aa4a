//! The handler of `proxy_pass`. nginx: `ngx_http_proxy_handler`.

use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use nowait_conf::{Cx, Scope, Size, Value};
use nowait_front::resolvers::{self, Named};
use nowait_runtime::net::Address;

use super::cached::Cached;
use super::codec::Http1;
use super::context::{self, Options, Where};
use super::probe::Probe;
use super::trailers::Trailers;
use super::url::{HTTP, HTTP_PORT, Url, UrlError};
use super::{cookies, redirect, target};
use crate::backend::response::{self, Processed, Rewriter};
use crate::backend::store;
use crate::cache::conf::CacheConf;
use crate::conf::upstream::{PASSES_TO, Upstream};
use crate::log::Level;
use crate::module::{Handler, Parts, Place, Step};
use crate::modules::proxy::conf::{CACHE, HttpVersion, Pass, ProxyConf};
use crate::outcome::Outcome;
use crate::request::{BodyLength, Request, RequestBody};
use crate::request_body;
use crate::response::Response;
use crate::upstream::probe::PROBING;
use crate::upstream::{self, BodyOptions, Cause, Failed, LogUri, Reply, Target, gate};

/// Passes requests on.
pub struct Proxy {
    conf: Arc<ProxyConf>,
    cache: Option<Arc<CacheConf>>,
}

impl Proxy {
    /// With the settings of the location that a chain of blocks describes.
    pub fn new(cx: &mut Cx<'_>, chain: &[&Scope], parts: &mut Parts, pass: Pass) -> Self {
        if let Pass::Static(pass) = &pass {
            parts.settings.set(&PASSES_TO, pass.group);
        }
        let conf = Arc::new(ProxyConf::resolve(cx, chain, pass));
        parts.settings.set(&PROBING, Box::new(Probe(conf.clone())));
        parts.settings.set(&context::CONF, conf.clone());
        if conf.pass_trailers {
            // Before those that other modules add.
            parts.filter(Place::Part, Trailers(conf.clone()));
        }
        Self { conf, cache: parts.settings.get(&CACHE).cloned() }
    }

    /// Produces the response from an upstream server's.
    async fn run(&self, request: &mut Request) -> Outcome {
        let conf = &*self.conf;
        let Pass::Static(pass) = &conf.pass else { return Box::pin(self.wait(request)).await };
        // What has to wait before it is sent is not kept in this future, which should be small.
        if matches!(request.body, RequestBody::Unread(_)) || gate::is_gated(request.location()) {
            return Box::pin(self.wait(request)).await;
        }
        context::of_mut(request).destination = Where::Location;
        let uri = match uri(request, conf) {
            Ok(uri) => uri,
            Err(status) => return Outcome::status(status),
        };
        let upstream = request.current.conf.upstreams.get(pass.group).clone();
        let mut run = asking(request, conf, upstream, uri, Options::default());
        run.begin(request);
        let received = match run.receive() {
            Some(receiving) => Some(receiving.await),
            None => None,
        };
        if let Some(received) = received
            && let Some(reply) = run.try_reply(request, received)
        {
            return answer(request, conf, limited(request, conf, reply));
        }
        // Boxed: a request that was sent at once rarely gets here.
        match Box::pin(run.reply(request)).await {
            Ok(reply) => answer(request, conf, limited(request, conf, reply)),
            Err(failed) => Outcome::status(failed.status),
        }
    }

    /// The same for requests that can't be sent at once.
    async fn wait(&self, request: &mut Request) -> Outcome {
        let conf = &*self.conf;
        let server = match begin(request, conf) {
            Ok(server) => server,
            Err(status) => return Outcome::status(status),
        };
        match ask(request, conf, server, Options::default()).await {
            Ok(reply) => answer(request, conf, reply),
            Err(failed) => Outcome::status(failed.status),
        }
    }

    /// Responds from a memory cache; `None`: the request has to wait for a disk or a server.
    fn try_cached(&self, request: &mut Request, cache: &CacheConf) -> Option<Outcome> {
        let conf = &*self.conf;
        let Pass::Static(_) = &conf.pass else { return None };
        let server = begin(request, conf).ok()?;
        crate::cache::try_serve(request, &mut Cached { conf, server }, cache)
    }

    /// Produces the response with a cache.
    async fn cached(&self, request: &mut Request, cache: &CacheConf) -> Outcome {
        let conf = &*self.conf;
        match begin(request, conf) {
            Ok(server) => crate::cache::serve(request, &mut Cached { conf, server }, cache).await,
            Err(status) => Outcome::status(status),
        }
    }
}

impl Handler for Proxy {
    fn handle<'r>(&'r self, request: &'r mut Request) -> Step<'r> {
        let Some(cache) = self.cache.as_deref() else {
            return Step::wait(async move {
                let outcome = self.run(request).await;
                Step::Done(request, outcome)
            });
        };
        match self.try_cached(request, cache) {
            Some(outcome) => Step::Done(request, outcome),
            None => Step::wait(async move {
                let outcome = self.cached(request, cache).await;
                Step::Done(request, outcome)
            }),
        }
    }
}

/// The server to send a request to.
#[derive(Debug, Clone)]
pub enum Server {
    /// One of this group.
    Of(Upstream),
    /// The one that a variable named: its addresses must be resolved.
    Named {
        /// Host and port, or `unix:` and a path.
        server: Bytes,
        /// A name or an address.
        host: Bytes,
        /// The port, if there is one.
        port: Option<u16>,
    },
}

impl Server {
    /// The group of servers; a name is resolved now.
    async fn upstream(self, request: &Request) -> Result<Upstream, u16> {
        let (server, host, port) = match self {
            Server::Of(upstream) => return Ok(upstream),
            Server::Named { server, host, port } => (server, host, port),
        };
        let named = Named { text: &server, host: &host, port, default_port: Some(HTTP_PORT) };
        let current = &request.current;
        let (upstreams, resolving) = (&current.conf.upstreams, request.location().resolving);
        let found = resolvers::find(named, upstreams, &current.resolvers, resolving);
        let found = Box::pin(found).await;
        found.map_err(|error| {
            request.log(Level::Error, format_args!("{error}"));
            502
        })
    }
}

/// Determines the destination of the request, for `$proxy_host` and for a cache's key.
///
/// # Errors
/// The status to respond with.
pub fn begin(request: &mut Request, conf: &ProxyConf) -> Result<Server, u16> {
    let url = match &conf.pass {
        Pass::Static(pass) => {
            context::of_mut(request).destination = Where::Location;
            return Ok(Server::Of(request.current.conf.upstreams.get(pass.group).clone()));
        }
        Pass::Variable { url, .. } => request.evaluate(url),
    };
    let parsed = Url::parse(&url).map_err(|error| {
        let shown = String::from_utf8_lossy(&url);
        match error {
            UrlError::Server(problem) => {
                let server = shown.get(HTTP.len()..).unwrap_or_default();
                let text = format_args!("{problem} in upstream \"{server}\"");
                request.log(Level::Error, text);
            }
            UrlError::Prefix | UrlError::Tls => {
                request.log(Level::Error, format_args!("invalid URL prefix in \"{shown}\""));
            }
        }
        500u16
    })?;
    context::of_mut(request).destination = Where::Variable(Rc::new(parsed.destination));
    Ok(Server::Named { server: parsed.server, host: parsed.host, port: parsed.port })
}

/// Sends the request to a server.
///
/// # Errors
/// [`Failed`]: the status to respond with. The failure has been logged.
pub async fn ask(
    request: &mut Request,
    conf: &ProxyConf,
    server: Server,
    options: Options,
) -> Result<Reply, Failed> {
    let failed = |status| Failed { status, cause: None };
    let backend = &conf.backend;
    if backend.settings.request_buffering || !streams(request, conf) {
        request_body::read(request).await.map_err(failed)?;
    }
    let uri = uri(request, conf).map_err(failed)?;
    let outlives_client = options.outlives_client;
    let held = gate::pass(request, outlives_client).await;
    let held = held.map_err(|status| Failed { status, cause: Cause::of_status(status) })?;
    let upstream = server.upstream(request).await.map_err(failed)?;
    let mut run = asking(request, conf, upstream, uri, options);
    let mut reply = Box::pin(run.reply(request)).await?;
    reply.body.hold(held);
    Ok(limited(request, conf, reply))
}

/// Prepares a request to a server of `upstream`.
fn asking(
    request: &mut Request,
    conf: &ProxyConf,
    upstream: Upstream,
    uri: LogUri,
    options: Options,
) -> upstream::Run {
    let backend = &conf.backend;
    let bind = backend.bind.as_ref();
    let bind = bind.and_then(|bind| Some((bind.address(request)?, bind.transparent)));
    let bind = bind.map(|(address, transparent)| (Address::Inet(address), transparent));
    let outlives_client = options.outlives_client;
    let codec = Http1::new(request, options, uri.clone());
    let attempt = upstream.begin(request);
    let target = Target { upstream, attempt, scheme: HTTP, uri, bind, outlives_client };
    upstream::Run::new(request, codec, &backend.settings, target)
}

/// Limits the receiving of a response to `proxy_limit_rate`.
fn limited(request: &Request, conf: &ProxyConf, mut reply: Reply) -> Reply {
    if let Some(rate) = &conf.backend.limit_rate {
        let rate = Size::from_word(&request.evaluate(rate)).map_or(0, |size| size.0);
        reply.body.set_limit_rate(rate);
    }
    reply
}

/// Whether the request body is passed on while it arrives. nginx: `r->request_body_no_buffering`.
fn streams(request: &Request, conf: &ProxyConf) -> bool {
    conf.set_body.is_none()
        && conf.backend.pass_request_body
        // HTTP/1.0 can't send a body of unknown length.
        && (request.body_length != BodyLength::Unknown || conf.http_version == HttpVersion::Http11)
}

/// The URI to request.
pub fn uri(request: &Request, conf: &ProxyConf) -> Result<LogUri, u16> {
    let destination = context::destination(request).ok_or(500u16)?;
    match target::uri(request, &conf.pass, destination) {
        Some(target::Target::Unparsed) => Ok(LogUri::Unparsed),
        Some(target::Target::Text(text)) => Ok(LogUri::Text(text)),
        None => {
            request.log(Level::Error, format_args!("zero length URI to proxy"));
            Err(500)
        }
    }
}

/// Makes the client's response from a server's.
fn answer(request: &mut Request, conf: &ProxyConf, mut reply: Reply) -> Outcome {
    let (processed, wishes) = response::process(request, &conf.backend, conf, &reply.head);
    let mut head = match processed {
        Processed::Pass(head) => head,
        Processed::Instead(outcome) => return outcome,
    };
    head.trailers_follow = conf.pass_trailers;
    let tee = match &conf.backend.store {
        Some(store) if reply.head.status == 200 && !reply.body.is_tunnel() => {
            store::begin(request, &conf.backend, store, &reply.head)
        }
        _ => None,
    };
    let body = reply.body.into_body(BodyOptions { buffering: wishes.buffering, tee });
    Response { head, body }.into()
}

impl Rewriter for ProxyConf {
    fn rewrites_redirects(&self) -> bool {
        !self.redirects.is_empty()
    }

    fn redirect(&self, request: &Request, value: &Bytes, skip: usize) -> Option<Bytes> {
        redirect::rewrite(request, &self.redirects, value, skip)
    }

    fn cookie(&self, request: &Request, value: &Bytes) -> Option<Bytes> {
        if self.rewrites_cookies() { cookies::rewrite(request, self, value) } else { None }
    }
}
