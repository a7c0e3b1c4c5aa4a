//! The handler of `proxy_pass`, `grpc_pass` and the other pass directives, for all protocols. nginx:
//! `ngx_http_proxy_handler` and the other modules' handlers, `ngx_http_upstream_init`.

use std::sync::Arc;

use nowait_conf::{Size, Value};
use nowait_front::resolvers::{self, NamedServer};
use nowait_http::conf::upstream::{PASSES_TO, Upstream};
use nowait_http::log::Level;
use nowait_http::module::{FilterStage, Handler, HandlerExplanation, LocationBuilder, Step};
use nowait_http::outcome::Outcome;
use nowait_http::request::{BodyLength, Request, RequestBody};
use nowait_http::request_body;
use nowait_http::response::{LocalFuture, Response};
use nowait_http::trace::{Trace, TraceSubject};
use nowait_http::upstream_state::{LogUri, UpstreamState};
use nowait_message::Method;
use nowait_runtime::net::Address;
use nowait_variables::Subject;

use super::backend_origin::BackendOrigin;
use super::content;
use super::probe::Probe;
use super::protocol::{Protocol, Server, Transport};
use super::response::{self, Processed};
use super::store;
use super::trailers::Trailers;
use crate::cache::conf::CacheConf;
use crate::upstream::probe::PROBING;
use crate::upstream::{
    BodyOptions, Cause, Reply, RequestError, Tries, UpstreamBody, UpstreamRequest, UpstreamTarget,
    UpstreamVariation, gate,
};

/// The directives that name this handler.
const PASSES: &str =
    "proxy_pass fastcgi_pass uwsgi_pass scgi_pass grpc_pass memcached_pass tunnel_pass";

/// Servers of a group that an explanation names.
const PEERS_SHOWN_MAX: usize = 8;

/// Passes requests on.
pub struct ProxyHandler<P> {
    conf: Arc<P>,
    cache: Option<Arc<CacheConf>>,
}

impl<P: Protocol> ProxyHandler<P> {
    /// The content of a location with these settings. Adds the other handlers and filters.
    pub fn new(conf: Arc<P>, cache: Option<Arc<CacheConf>>, parts: &mut LocationBuilder) -> Self {
        if let Some(group) = conf.group() {
            parts.settings.set(&PASSES_TO, group);
        }
        parts.takes_connect = P::TAKES_CONNECT;
        parts.settings.set(&PROBING, Box::new(Probe(conf.clone())));
        if conf.passes_trailers() {
            // Before the filters that other modules add.
            parts.filter(FilterStage::Part, Trailers(conf.clone()));
        }
        Self { conf, cache }
    }

    /// The status for a request that is not passed on.
    fn refusal(&self, request: &Request) -> Option<u16> {
        // nginx differs: it sends CONNECT to any server, whose 2xx would not be the tunnel that the
        // client makes of it.
        if (request.method() == Method::Connect) != P::TAKES_CONNECT {
            return Some(405);
        }
        self.conf.refusal(request)
    }

    /// Whether content that was not read is read before anything is evaluated: the destination, the fields,
    /// the key of a cache.
    fn reads_first(&self, request: &Request) -> bool {
        request.awaits_content()
            && (self.conf.backend().settings.request_buffering
                || !self.conf.streams(request)
                || self.cache.as_ref().is_some_and(|cache| cache.awaits_content(request)))
    }

    /// Begins with a request whose content was read, if it has to be.
    fn begin<'r>(&'r self, request: &'r mut Request) -> Step<'r> {
        let conf = &*self.conf;
        let Some(cache) = self.cache.as_deref() else { return Step::wait(self.run(request)) };
        let server = match server(request, conf) {
            Ok(server) => server,
            Err(status) => return Step::Done(request, Outcome::status(status)),
        };
        let mut origin = BackendOrigin { conf, server };
        match crate::cache::begin(request, &mut origin, cache) {
            Ok(outcome) => Step::Done(request, outcome),
            Err(rest) => Step::wait(async move {
                let outcome = crate::cache::finish(request, &mut origin, cache, rest).await;
                Step::Done(request, outcome)
            }),
        }
    }

    /// Produces the response from an upstream server's.
    async fn run<'r>(&'r self, request: &'r mut Request) -> Step<'r> {
        let conf = &*self.conf;
        let waits =
            matches!(request.body(), RequestBody::Unread(_)) || gate::is_gated(request.location());
        let upstream = match server(request, conf) {
            Ok(Server::Of(upstream)) if !waits => upstream,
            // The state of requests that wait before they are sent is boxed, to keep this future small.
            Ok(server) => return Box::pin(self.wait(request, server)).await,
            Err(status) => return Step::Done(request, Outcome::status(status)),
        };
        let uri = match conf.uri(request) {
            Ok(uri) => uri,
            Err(status) => return Step::Done(request, Outcome::status(status)),
        };
        let mut tries = prepare(request, conf, upstream, uri, UpstreamVariation::default());
        tries.begin(request);
        let received = match tries.receive() {
            Some(receiving) => Some(receiving.await),
            None => None,
        };
        if let Some(received) = received
            && let Some(mut reply) = tries.try_reply(request, received)
        {
            limit(request, conf, &mut reply.body);
            let outcome = answer(request, conf, reply);
            return Step::Done(request, outcome);
        }
        // Boxed: a request that was sent at once rarely gets here.
        let outcome = match Box::pin(tries.reply(request)).await {
            Ok(mut reply) => {
                limit(request, conf, &mut reply.body);
                answer(request, conf, reply)
            }
            Err(failed) => Outcome::status(failed.status),
        };
        Step::Done(request, outcome)
    }

    /// The same for requests that can't be sent at once.
    async fn wait<'r>(&'r self, request: &'r mut Request, server: Server) -> Step<'r> {
        let conf = &*self.conf;
        let outcome = match fetch(request, conf, server, UpstreamVariation::default()).await {
            Ok(reply) => answer(request, conf, reply),
            Err(failed) => Outcome::status(failed.status),
        };
        Step::Done(request, outcome)
    }
}

impl<P: Protocol> Handler for ProxyHandler<P> {
    fn handle<'r>(&'r self, request: &'r mut Request) -> Step<'r> {
        if let Some(status) = self.refusal(request) {
            return Step::Done(request, Outcome::status(status));
        }
        if self.reads_first(request) {
            return Step::wait(async move {
                match request_body::read(request).await {
                    Ok(()) => self.begin(request),
                    Err(status) => Step::Done(request, Outcome::status(status)),
                }
            });
        }
        self.begin(request)
    }

    fn explain<'a>(
        &'a self,
        request: &'a mut Request,
        trace: &'a mut Trace,
    ) -> LocalFuture<'a, HandlerExplanation> {
        Box::pin(async move {
            trace.by = PASSES;
            if let Some(status) = self.refusal(request) {
                return HandlerExplanation::Done(Outcome::status(status));
            }
            let conf = &*self.conf;
            let server = match server(request, conf) {
                Ok(server) => server,
                Err(status) => {
                    let text = format!("the destination is unusable: {status}");
                    trace.add(TraceSubject::Upstream, None, text);
                    return HandlerExplanation::Done(Outcome::status(status));
                }
            };
            if let Some(cache) = self.cache.as_deref() {
                let origin = BackendOrigin { conf, server: server.clone() };
                let ended = crate::cache::explain::explain(request, &origin, cache, trace);
                trace.by = PASSES;
                if let Some(ended) = ended {
                    return ended;
                }
            }
            match describe(request, conf, &server, trace) {
                Ok(()) => HandlerExplanation::Elsewhere,
                Err(status) => HandlerExplanation::Done(Outcome::status(status)),
            }
        })
    }
}

/// Describes the request to an upstream server, without resolving or sending.
///
/// # Errors
/// The status to respond with.
fn describe<P: Protocol>(
    request: &Request,
    conf: &P,
    server: &Server,
    trace: &mut Trace,
) -> Result<(), u16> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let mut add = |line: String| trace.add(TraceSubject::Upstream, None, line);
    let to = match server {
        Server::Of(upstream) => {
            let group = upstream.group.conf();
            let servers = group.servers.iter().take(PEERS_SHOWN_MAX);
            let servers: Vec<String> = servers.map(|server| text(&server.text)).collect();
            match upstream.explicit {
                true => format!("{} (servers {})", text(&group.name), servers.join(", ")),
                false => servers.join(", "),
            }
        }
        Server::Named { server, .. } => format!("{}, which is resolved", text(server)),
    };
    let scheme = conf.transport(request).scheme;
    add(format!("passes the request to {scheme}{to}"));
    match conf.uri(request) {
        Ok(LogUri::Unparsed) => {
            add(format!("URI {}, as the client sent it", text(request.head().uri())))
        }
        // Sent as a parameter.
        Ok(LogUri::Text(uri)) if uri.is_empty() => {}
        Ok(LogUri::Text(uri)) => add(format!("URI {}", text(&uri))),
        Err(status) => {
            add(format!("the URI is unusable: {status}"));
            return Err(status);
        }
    }
    conf.fields(request, &mut |name, value| add(format!("{}: {}", text(name), text(value))));
    let current = request.current().clone();
    if let Some(gate) = current.conf.location(request.location_id()).settings.get(&gate::GATE) {
        gate.explain(request, trace);
    }
    Ok(())
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
            Ok(Server::Of(request.current().conf.upstreams.get(group).clone()))
        }
        None => conf.evaluate(request),
    }
}

/// Resolves the name of a server: the group of its addresses.
async fn resolve(request: &Request, named: NamedServer<'_>) -> Result<Upstream, u16> {
    let current = request.current();
    let (upstreams, resolving) = (&current.conf.upstreams, request.location().resolving);
    let found = resolvers::find(named, upstreams, &current.resolvers, resolving).await;
    found.map_err(|error| {
        request.log(Level::Error, format_args!("{error}"));
        502
    })
}

/// Sends the request to a server. Futures that few requests wait for are boxed, to keep this one small.
///
/// # Errors
/// [`RequestError`]: the status to respond with. The failure has been logged.
pub(super) async fn fetch<P: Protocol>(
    request: &mut Request,
    conf: &P,
    server: Server,
    wanted: UpstreamVariation,
) -> Result<Reply, RequestError> {
    let failed = |status| RequestError { status, cause: None };
    // Content beyond "Content-Length: 0" would be detected too late: the server takes the head for the
    // whole request.
    if request.body_length() == BodyLength::Known(0) {
        request_body::read(request).await.map_err(failed)?;
    }
    let uri = conf.uri(request).map_err(failed)?;
    let held = match gate::is_gated(request.location()) {
        false => Vec::new(),
        true => {
            let held = Box::pin(gate::pass(request, wanted.outlives_client())).await;
            held.map_err(|status| RequestError { status, cause: Cause::of_status(status) })?
        }
    };
    let upstream = match server {
        Server::Of(upstream) => upstream,
        Server::Named { server, host, port, default_port } => {
            let named = NamedServer { text: &server, host: &host, port, default_port };
            Box::pin(resolve(request, named)).await.map_err(failed)?
        }
    };
    // The content of a call or a tunnel may have no end before the response has one.
    if !P::IS_GRPC
        && !P::TAKES_CONNECT
        && request.awaits_content()
        && content::is_needed(request, conf.backend(), &upstream)
    {
        request_body::read(request).await.map_err(failed)?;
    }
    let mut tries = prepare(request, conf, upstream, uri, wanted);
    let mut reply = Box::pin(tries.reply(request)).await?;
    reply.body.hold(held);
    limit(request, conf, &mut reply.body);
    Ok(reply)
}

/// Prepares a request to a server of `upstream`. Inlined for the reason that [`Tries::new`] has.
#[inline(always)]
fn prepare<P: Protocol>(
    request: &mut Request,
    conf: &P,
    upstream: Upstream,
    uri: LogUri,
    wanted: UpstreamVariation,
) -> Tries {
    let backend = conf.backend();
    let bind = backend.bind.as_ref();
    let bind = bind.and_then(|bind| Some((bind.address(request)?, bind.transparent)));
    let bind = bind.map(|(address, transparent)| (Address::Inet(address), transparent));
    let attempt = upstream.begin(request);
    let order = UpstreamRequest { uri, wanted };
    let Transport { scheme, tls } = conf.transport(request);
    let target = UpstreamTarget { upstream, attempt, scheme, order, bind, tls };
    Tries::new(request, P::CODECS, &backend.settings, target)
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
            || UpstreamState::get(request.state()).is_some_and(|state| state.has_trailers()));
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
