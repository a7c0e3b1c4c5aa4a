//! The handler of `proxy_pass`. nginx: `ngx_http_proxy_handler`.

use std::io;
use std::rc::Rc;

use bytes::Bytes;
use nowait_conf::{Size, Value};
use nowait_front::resolvers::{self, Named};
use nowait_runtime::buf::RecvBuf;
use nowait_runtime::net::Address;

use super::cached::Cached;
use super::codec::Http1;
use super::context::{self, Options, Where};
use super::response::{self, Processed, Rewriter};
use super::url::{HTTP, HTTP_PORT, Url, UrlError};
use super::{cookies, redirect, store, target};
use crate::conf::proxy::{
    HttpVersion, PASS_ROWS, Pass, ProxyBackendConf, ProxyConf, ProxyRequestConf,
};
use crate::conf::upstream::Upstream;
use crate::log::Level;
use crate::module::{Handler, Module, Step};
use crate::modules::limit;
use crate::outcome::Outcome;
use crate::request::{BodyLength, Request, RequestBody};
use crate::request_body;
use crate::response::Response;
use crate::upstream::{self, BodyOptions, Cause, Failed, LogUri, Reply, Run, Target};

/// This module.
pub static MODULE: Module = Module {
    rows: &[PASS_ROWS, ProxyBackendConf::ROWS, ProxyRequestConf::ROWS],
    variables: super::variables::BUILTINS,
    ..Module::EMPTY
};

/// Passes requests on, as the location's [`ProxyConf`] says.
pub struct Proxy;

impl Handler for Proxy {
    fn handle<'r>(&'r self, request: &'r mut Request) -> Step<'r> {
        if let Some(outcome) = try_run(request) {
            return Step::Done(request, outcome);
        }
        Step::wait(async move {
            let outcome = match answered(request).await {
                Some(outcome) => outcome,
                // Boxed: a request that was sent at once rarely gets here.
                None => Box::pin(run(request)).await,
            };
            Step::Done(request, outcome)
        })
    }
}

/// The response to a request that [`try_run`] has sent, if its first bytes suffice; `None`: [`run`]
/// has to continue.
async fn answered(request: &mut Request) -> Option<Outcome> {
    let received = request.asked.run().and_then(Run::receive)?.await;
    try_answer(request, received)
}

/// Produces the response from an upstream server's.
async fn run(request: &mut Request) -> Outcome {
    let current = request.current.clone();
    let Some(conf) = current.conf.location(request.location).proxy.as_deref() else {
        request.log(Level::Alert, format_args!("no upstream configuration"));
        return Outcome::status(500);
    };
    if request.asked.run().is_some() {
        let mut asked = std::mem::take(&mut request.asked);
        if let Some(run) = asked.run_mut() {
            return match Box::pin(run.reply(request)).await {
                Ok(reply) => answer(request, conf, limited(request, conf, reply)),
                Err(failed) => Outcome::status(failed.status),
            };
        }
    }
    let server = match begin(request, conf) {
        Ok(server) => server,
        Err(status) => return Outcome::status(status),
    };
    if request.location().cache.is_some() {
        return Box::pin(crate::cache::serve(request, &mut Cached { conf, server })).await;
    }
    match Box::pin(ask(request, conf, server, Options::default())).await {
        Ok(reply) => answer(request, conf, reply),
        Err(failed) => Outcome::status(failed.status),
    }
}

/// Responds from a memory cache, or sends the request to a server; `None`: [`run`] has to continue.
/// If `request.asked` then waits for a response, [`try_answer`] may make `run` unnecessary.
fn try_run(request: &mut Request) -> Option<Outcome> {
    let current = request.current.clone();
    let location = current.conf.location(request.location);
    let conf = location.proxy.as_deref()?;
    let Pass::Static(pass) = &conf.pass else { return None };
    if location.cache.is_some() {
        let server = begin(request, conf).ok()?;
        return crate::cache::try_serve(request, &mut Cached { conf, server });
    }
    if matches!(request.body, RequestBody::Unread(_)) || limit::limits_fetches(location) {
        return None;
    }
    context::of_mut(request).destination = Where::Location;
    let uri = match uri(request, conf) {
        Ok(uri) => uri,
        Err(status) => return Some(Outcome::status(status)),
    };
    let upstream = current.conf.upstreams.get(pass.group).clone();
    let mut asked = std::mem::take(&mut request.asked);
    asked.put(asking(request, conf, upstream, uri, Options::default())).begin(request);
    request.asked = asked;
    None
}

/// Responds with the bytes received for a request that [`try_run`] has sent; `None`: [`run`] has to
/// continue.
fn try_answer(request: &mut Request, received: io::Result<RecvBuf>) -> Option<Outcome> {
    let mut asked = std::mem::take(&mut request.asked);
    let reply = asked.run_mut().and_then(|run| run.try_reply(request, received));
    if reply.is_some() {
        asked.clear();
    }
    request.asked = asked;
    let reply = reply?;
    let current = request.current.clone();
    let conf = current.conf.location(request.location).proxy.as_deref()?;
    let reply = limited(request, conf, reply);
    Some(answer(request, conf, reply))
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
    let held = limit::fetch(request, outlives_client).await;
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
