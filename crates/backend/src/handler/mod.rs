//! The handler of `proxy_pass` and its relatives, for any protocol. nginx: `ngx_http_proxy_handler`
//! and its relatives, `ngx_http_upstream_init`.

use std::sync::Arc;

use nowait_conf::{Size, Value};
use nowait_front::resolvers::{self, NamedServer};
use nowait_http::conf::upstream::{PASSES_TO, Upstream};
use nowait_http::log::Level;
use nowait_http::module::{Explained, Handler, Parts, Place, Step};
use nowait_http::outcome::Outcome;
use nowait_http::request::{BodyLength, Request, RequestBody};
use nowait_http::request_body;
use nowait_http::response::{LocalFuture, Response};
use nowait_http::trace::{About, Trace};
use nowait_http::upstream_state::{LogUri, UpstreamState};
use nowait_message::Method;
use nowait_runtime::net::Address;
use nowait_variables::Subject;

use super::cached::Cached;
use super::content;
use super::probe::Probe;
use super::protocol::{Protocol, Server, Transport};
use super::response::{self, Processed};
use super::store;
use super::trailers::Trailers;
use crate::cache::conf::CacheConf;
use crate::upstream::probe::PROBING;
use crate::upstream::{
    BodyOptions, Cause, Failed, Order, Reply, Run, Target, UpstreamBody, Wanted, gate,
};

/// The directives that name this handler.
const PASSES: &str =
    "proxy_pass fastcgi_pass uwsgi_pass scgi_pass grpc_pass memcached_pass tunnel_pass";

/// Servers of a group that an explanation names.
const PEERS_SHOWN_MAX: usize = 8;

/// Passes requests on.
pub struct Passing<P> {
    conf: Arc<P>,
    cache: Option<Arc<CacheConf>>,
}

impl<P: Protocol> Passing<P> {
    /// The content of a location with these settings. Adds what else takes part there.
    pub fn new(conf: Arc<P>, cache: Option<Arc<CacheConf>>, parts: &mut Parts) -> Self {
        if let Some(group) = conf.group() {
            parts.settings.set(&PASSES_TO, group);
        }
        parts.takes_connect = P::TAKES_CONNECT;
        parts.settings.set(&PROBING, Box::new(Probe(conf.clone())));
        if conf.passes_trailers() {
            // Before those that other modules add.
            parts.filter(Place::Part, Trailers(conf.clone()));
        }
        Self { conf, cache }
    }

    /// Produces the response from an upstream server's.
    async fn run<'r>(&'r self, request: &'r mut Request) -> Step<'r> {
        let conf = &*self.conf;
        let Some(group) = conf.group() else { return Box::pin(self.wait(request)).await };
        // What has to wait before it is sent is not kept in this future, which should be small.
        if matches!(request.body, RequestBody::Unread(_)) || gate::is_gated(request.location()) {
            return Box::pin(self.wait(request)).await;
        }
        let uri = match conf.uri(request) {
            Ok(uri) => uri,
            Err(status) => return Step::Done(request, Outcome::status(status)),
        };
        let upstream = request.current.conf.upstreams.get(group).clone();
        let mut run = prepare(request, conf, upstream, uri, Wanted::default());
        run.begin(request);
        let received = match run.receive() {
            Some(receiving) => Some(receiving.await),
            None => None,
        };
        if let Some(received) = received
            && let Some(mut reply) = run.try_reply(request, received)
        {
            limit(request, conf, &mut reply.body);
            let outcome = answer(request, conf, reply);
            return Step::Done(request, outcome);
        }
        // Boxed: a request that was sent at once rarely gets here.
        let outcome = match Box::pin(run.reply(request)).await {
            Ok(mut reply) => {
                limit(request, conf, &mut reply.body);
                answer(request, conf, reply)
            }
            Err(failed) => Outcome::status(failed.status),
        };
        Step::Done(request, outcome)
    }

    /// Whether content that was not read is read before anything is evaluated: the destination, the fields,
    /// the key of a cache.
    fn reads_first(&self, request: &Request) -> bool {
        request.awaits_content()
            && (self.conf.backend().settings.request_buffering || !self.conf.streams(request))
    }

    /// The same for requests that can't be sent at once.
    async fn wait<'r>(&'r self, request: &'r mut Request) -> Step<'r> {
        let conf = &*self.conf;
        if self.reads_first(request)
            && let Err(status) = request_body::read(request).await
        {
            return Step::Done(request, Outcome::status(status));
        }
        let server = match server(request, conf) {
            Ok(server) => server,
            Err(status) => return Step::Done(request, Outcome::status(status)),
        };
        let outcome = match fetch(request, conf, server, Wanted::default()).await {
            Ok(reply) => answer(request, conf, reply),
            Err(failed) => Outcome::status(failed.status),
        };
        Step::Done(request, outcome)
    }

    /// Responds from a memory cache; `None`: the request has to wait for a disk or a server.
    fn try_cached(&self, request: &mut Request, cache: &CacheConf) -> Option<Outcome> {
        let conf = &*self.conf;
        conf.group()?;
        let server = server(request, conf).ok()?;
        crate::cache::try_serve(request, &mut Cached { conf, server }, cache)
    }

    /// Produces the response with a cache.
    async fn cached(&self, request: &mut Request, cache: &CacheConf) -> Outcome {
        let conf = &*self.conf;
        if (self.reads_first(request) || cache.awaits_content(request))
            && let Err(status) = request_body::read(request).await
        {
            return Outcome::status(status);
        }
        match server(request, conf) {
            Ok(server) => crate::cache::serve(request, &mut Cached { conf, server }, cache).await,
            Err(status) => Outcome::status(status),
        }
    }
}

impl<P: Protocol> Handler for Passing<P> {
    fn handle<'r>(&'r self, request: &'r mut Request) -> Step<'r> {
        // nginx differs: it sends CONNECT to any server, whose 2xx would not be the tunnel that the
        // client makes of it.
        if (request.method == Method::Connect) != P::TAKES_CONNECT {
            return Step::Done(request, Outcome::status(405));
        }
        if let Some(status) = self.conf.refusal(request) {
            return Step::Done(request, Outcome::status(status));
        }
        let Some(cache) = self.cache.as_deref() else {
            return Step::wait(self.run(request));
        };
        match self.try_cached(request, cache) {
            Some(outcome) => Step::Done(request, outcome),
            None => Step::wait(async move {
                let outcome = self.cached(request, cache).await;
                Step::Done(request, outcome)
            }),
        }
    }

    fn explain<'a>(
        &'a self,
        request: &'a mut Request,
        trace: &'a mut Trace,
    ) -> LocalFuture<'a, Explained> {
        Box::pin(async move {
            trace.by = PASSES;
            if (request.method == Method::Connect) != P::TAKES_CONNECT {
                return Explained::Done(Outcome::status(405));
            }
            if let Some(status) = self.conf.refusal(request) {
                return Explained::Done(Outcome::status(status));
            }
            if let Some(cache) = self.cache.as_deref()
                && let Ok(server) = server(request, &*self.conf)
            {
                let conf = &*self.conf;
                crate::cache::explain::explain(request, &Cached { conf, server }, cache, trace);
                trace.by = PASSES;
            }
            describe(request, &*self.conf, trace);
            Explained::Elsewhere
        })
    }
}

/// Describes the request to an upstream server. Nothing is resolved or sent.
fn describe<P: Protocol>(request: &mut Request, conf: &P, trace: &mut Trace) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let mut add = |line: String| trace.add(About::Upstream, None, line);
    let to = match server(request, conf) {
        Ok(Server::Of(upstream)) => {
            let group = upstream.group.conf();
            let servers = group.servers.iter().take(PEERS_SHOWN_MAX);
            let servers: Vec<String> = servers.map(|server| text(&server.text)).collect();
            match upstream.explicit {
                true => format!("{} (servers {})", text(&group.name), servers.join(", ")),
                false => servers.join(", "),
            }
        }
        Ok(Server::Named { server, .. }) => format!("{}, which is resolved", text(&server)),
        Err(status) => return add(format!("the destination is unusable: {status}")),
    };
    let scheme = conf.transport(request).scheme;
    add(format!("passes the request to {scheme}{to}"));
    match conf.uri(request) {
        Ok(LogUri::Unparsed) => {
            add(format!("URI {}, as the client sent it", text(request.head.uri())))
        }
        // Parameters say it.
        Ok(LogUri::Text(uri)) if uri.is_empty() => {}
        Ok(LogUri::Text(uri)) => add(format!("URI {}", text(&uri))),
        Err(status) => add(format!("the URI is unusable: {status}")),
    }
    conf.fields(request, &mut |name, value| add(format!("{}: {}", text(name), text(value))));
    let current = request.current.clone();
    if let Some(gate) = current.conf.location(request.location).settings.get(&gate::GATE) {
        gate.explain(request, trace);
    }
}

/// Determines the destination of the request, for variables and for a cache's key.
///
/// # Errors
/// The status to respond with.
pub(super) fn server<P: Protocol>(request: &mut Request, conf: &P) -> Result<Server, u16> {
    match conf.group() {
        Some(group) => {
            // A request in the background gets here without phases.
            request.enter_content();
            Ok(Server::Of(request.current.conf.upstreams.get(group).clone()))
        }
        None => conf.evaluate(request),
    }
}

/// The group of servers; a name is resolved now.
async fn upstream(request: &Request, server: Server) -> Result<Upstream, u16> {
    let (server, host, port, default_port) = match server {
        Server::Of(upstream) => return Ok(upstream),
        Server::Named { server, host, port, default_port } => (server, host, port, default_port),
    };
    let named = NamedServer { text: &server, host: &host, port, default_port };
    let current = &request.current;
    let (upstreams, resolving) = (&current.conf.upstreams, request.location().resolving);
    let found = resolvers::find(named, upstreams, &current.resolvers, resolving);
    let found = Box::pin(found).await;
    found.map_err(|error| {
        request.log(Level::Error, format_args!("{error}"));
        502
    })
}

/// Sends the request to a server.
///
/// # Errors
/// [`Failed`]: the status to respond with. The failure has been logged.
pub(super) async fn fetch<P: Protocol>(
    request: &mut Request,
    conf: &P,
    server: Server,
    wanted: Wanted,
) -> Result<Reply, Failed> {
    let failed = |status| Failed { status, cause: None };
    // Content beyond "Content-Length: 0" would be seen too late: the server takes the head for all of the
    // request.
    let says_empty = request.body_length == BodyLength::Known(0);
    if says_empty || conf.backend().settings.request_buffering || !conf.streams(request) {
        request_body::read(request).await.map_err(failed)?;
    }
    let uri = conf.uri(request).map_err(failed)?;
    let held = gate::pass(request, wanted.outlives_client()).await;
    let held = held.map_err(|status| Failed { status, cause: Cause::of_status(status) })?;
    let upstream = upstream(request, server).await.map_err(failed)?;
    // The content of a call or a tunnel may have no end before the response has one.
    if !P::IS_GRPC
        && !P::TAKES_CONNECT
        && request.awaits_content()
        && content::is_needed(request, conf.backend(), &upstream)
    {
        request_body::read(request).await.map_err(failed)?;
    }
    let mut run = prepare(request, conf, upstream, uri, wanted);
    let mut reply = Box::pin(run.reply(request)).await?;
    reply.body.hold(held);
    limit(request, conf, &mut reply.body);
    Ok(reply)
}

/// Prepares a request to a server of `upstream`. Inlined for the reason that [`Run::new`] has.
#[inline(always)]
fn prepare<P: Protocol>(
    request: &mut Request,
    conf: &P,
    upstream: Upstream,
    uri: LogUri,
    wanted: Wanted,
) -> Run {
    let backend = conf.backend();
    let bind = backend.bind.as_ref();
    let bind = bind.and_then(|bind| Some((bind.address(request)?, bind.transparent)));
    let bind = bind.map(|(address, transparent)| (Address::Inet(address), transparent));
    let attempt = upstream.begin(request);
    let order = Order { uri, wanted };
    let Transport { scheme, tls } = conf.transport(request);
    let target = Target { upstream, attempt, scheme, order, bind, tls };
    Run::new(request, P::CODECS, &backend.settings, target)
}

/// Limits the receiving of a response to `limit_rate`.
fn limit<P: Protocol>(request: &Request, conf: &P, body: &mut UpstreamBody) {
    if let Some(rate) = &conf.backend().limit_rate {
        let rate = Size::from_word(&request.evaluate(rate)).map_or(0, |size| size.0);
        body.set_limit_rate(rate);
    }
}

/// Makes the client's response from a server's.
fn answer<P: Protocol>(request: &mut Request, conf: &P, reply: Reply) -> Outcome {
    let backend = conf.backend();
    let (processed, wishes) = response::process(request, backend, conf, &reply.head);
    let mut head = match processed {
        Processed::Pass(head) => head,
        Processed::Instead(outcome) => return outcome,
    };
    // A complete response has its trailers already, or none.
    head.trailers_follow = conf.passes_trailers()
        && (!reply.body.is_complete()
            || UpstreamState::get(&request.state).is_some_and(|state| state.has_trailers()));
    let tee = match &backend.store {
        Some(store) if reply.head.status == 200 && !reply.body.is_tunnel() => {
            store::begin(request, backend, store, &reply.head)
        }
        _ => None,
    };
    let body = reply.body.into_body(BodyOptions { buffering: wishes.buffering, tee });
    Response { head, body }.into()
}

#[cfg(test)]
mod tests;
