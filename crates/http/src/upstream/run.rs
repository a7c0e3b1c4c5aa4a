//! From a request to the head of its response: peers are asked until one answers.
//!
//! Called by protocol modules. What follows the head is [`UpstreamBody`]'s matter.

use std::future::Future;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nowait_front::upstreams::connect_level;
use nowait_h1::Method;
use nowait_runtime::net::ConnectError;
use nowait_runtime::now;
use nowait_runtime::time::timeout;
use nowait_upstream::{Next, Peer, Picked, Tag};

use super::body::UpstreamBody;
use super::connect::{self, Unconnected};
use super::exchange::{Exchange, ReceiveFault};
use super::receive::{self, HeadFault};
use super::send::{self, SendFault};
use super::state::PeerName;
use super::sticky_cookie;
use super::{Cause, Codec, Fault, Settings, State, Target, UpstreamHead};
use crate::connection::OnHangup;
use crate::log::{Level, OsError};
use crate::logs::debug;
use crate::request::{ReadError, Request, RequestBody};
use crate::request_body;

/// The response of an upstream.
pub struct Reply {
    /// Its head; [`State::head`] has it, too.
    pub head: Rc<UpstreamHead>,
    /// What follows.
    pub body: UpstreamBody,
}

/// Why there is no response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Failed {
    /// What the client gets.
    pub status: u16,
    /// What the last try came to; `None`: it is not an upstream's fault.
    pub cause: Option<Cause>,
}

/// Sends a request to an upstream, perhaps to one after the other, and receives the head of a
/// response. What went wrong has been logged.
///
/// # Errors
/// [`Failed`]: the status to answer with.
pub fn run<'a>(
    request: &'a mut Request,
    codec: Box<dyn Codec>,
    settings: &'a Arc<Settings>,
    target: Target,
) -> impl Future<Output = Result<Reply, Failed>> {
    let state = State::of(request);
    state.set_url(target.scheme, target.uri.clone());
    let tag = target.tag(request);
    let started = now();
    let mut run =
        Run { request, settings, streamed: false, target, tag, state, codec: Some(codec), started };
    // No `async fn`, whose future would hold all of this twice.
    async move { run.reply().await }
}

impl State {
    /// The state of a request, made when it is first needed.
    pub fn of(request: &mut Request) -> Rc<State> {
        request.upstream.get_or_insert_default().clone()
    }
}

/// A request on its way to upstreams.
struct Run<'a> {
    request: &'a mut Request,
    settings: &'a Arc<Settings>,
    target: Target,
    tag: Tag,
    state: Rc<State>,
    /// The client's content is sent on while it comes.
    streamed: bool,
    /// Not there while a try has it.
    codec: Option<Box<dyn Codec>>,
    started: Instant,
}

/// How a try failed.
enum Miss {
    /// The upstream's fault.
    Upstream(Cause),
    /// Ours or the client's: there is no sense in another try.
    Final(u16),
}

/// A try that failed after a connection was there.
struct Missed {
    miss: Miss,
    /// Something was sent.
    sent: bool,
    /// The connection had served requests before, and nothing has come of this one.
    stale: bool,
}

type Answer = (Rc<UpstreamHead>, UpstreamBody, Arc<Peer>);

impl Run<'_> {
    async fn reply(&mut self) -> Result<Reply, Failed> {
        let settings = self.settings;
        let read = match settings.request_buffering {
            true => request_body::read(self.request).await,
            false => request_body::read_ready(self.request).await,
        };
        read.map_err(|status| Failed { status, cause: None })?;
        let on_hangup = if settings.ignore_client_abort || self.target.outlives_client {
            OnHangup::Ignore
        } else {
            OnHangup::EndAtOnce
        };
        let watch = self.request.connection.clone().watch(on_hangup);
        self.started = now();
        self.streamed = matches!(self.request.body, RequestBody::Unread(_));
        let (head, mut body, peer) = match self.tries().await {
            Ok(reply) => reply,
            Err(failed) => {
                self.state.set_action(None);
                return Err(failed);
            }
        };
        body.keep(watch);
        let Target { upstream, attempt, .. } = &self.target;
        match upstream.learning(self.request, attempt, &peer) {
            Some((learning, true)) => learning.note(now()),
            Some((learning, false)) => body.at_end(learning),
            None => {}
        }
        Ok(Reply { head, body })
    }

    async fn tries(&mut self) -> Result<Answer, Failed> {
        let mut first = true;
        loop {
            self.state.set_action(Some("connecting to upstream"));
            let (peer, queued) = self.pick().await?;
            if std::mem::take(&mut first) && self.settings.next_upstream_tries > 0 {
                self.target.attempt.limit_tries(self.settings.next_upstream_tries as usize - 1);
            }
            let Missed { miss, sent, stale } = match self.attempt(peer, queued).await {
                Ok(answer) => return Ok(answer),
                Err(missed) => missed,
            };
            let cause = match miss {
                Miss::Upstream(cause) => cause,
                Miss::Final(status) => return Err(Failed { status, cause: None }),
            };
            if stale {
                self.target.attempt.add_try();
            }
            if !self.may_try_again(cause, sent) {
                return Err(Failed { status: cause.status(), cause: Some(cause) });
            }
        }
    }

    /// Chooses a peer; waits for one where the group has a queue. Also how long it has waited there.
    async fn pick(&mut self) -> Result<(Picked, Option<Duration>), Failed> {
        let mut queued = None;
        let nobody = loop {
            match self.target.attempt.next(now()) {
                Next::Peer(peer) => return Ok((peer, queued)),
                Next::Busy => {
                    let since = now();
                    let waited = self.target.attempt.queue(since).await;
                    queued = Some(now().saturating_duration_since(since));
                    match waited {
                        Ok(peer) => return Ok((peer, queued)),
                        Err(error) => break error.to_string(),
                    }
                }
                Next::Unresolved => {
                    let group = self.target.attempt.group().clone();
                    let limit = group.conf().resolver_timeout;
                    let limit = limit.unwrap_or(self.request.current.conf.resolving.timeout);
                    let limit = nowait_resolver::limit(limit.duration());
                    if timeout(limit, group.resolved()).await.is_err() {
                        break "no live upstreams".to_owned();
                    }
                }
                Next::NoLive => break "no live upstreams".to_owned(),
            }
        };
        let name = String::from_utf8_lossy(self.target.attempt.group().name());
        let number = self.state.begin_try(Some(PeerName::Text(name.into())));
        self.state.update(number, |one| {
            one.status = Cause::NoLive.status();
            one.response = Some(Duration::ZERO);
            one.queue = queued;
        });
        self.request.log(Level::Error, format_args!("{nobody}"));
        Err(Failed { status: Cause::NoLive.status(), cause: Some(Cause::NoLive) })
    }

    /// Whether another peer may be asked. nginx: `ngx_http_upstream_next`.
    fn may_try_again(&self, cause: Cause, sent: bool) -> bool {
        let non_idempotent = sent && is_non_idempotent(self.request.method);
        let limit = self.settings.next_upstream_timeout;
        self.target.attempt.tries_left() > 0
            && self.settings.next_upstream.allows(cause, non_idempotent)
            && !self.was_streamed()
            && (limit.is_zero() || now().saturating_duration_since(self.started) < limit)
    }

    /// What was read of the client's content is gone.
    fn was_streamed(&self) -> bool {
        self.streamed && matches!(self.request.body, RequestBody::None)
    }

    /// Asks a peer.
    async fn attempt(&mut self, peer: Picked, queued: Option<Duration>) -> Result<Answer, Missed> {
        let codec = self.codec.take().expect("given back after each failed try");
        let number = self.state.begin_try(Some(PeerName::Peer(peer.peer().clone())));
        if queued.is_some() {
            self.state.update(number, |one| one.queue = queued);
        }
        let began = now();
        let who = peer.peer().clone();
        debug!(self.request, "connect to {}", who.name());
        if let Some(cookie) = sticky_cookie::set_cookie(&self.target.upstream, self.request, &who) {
            self.state.set_cookie(cookie);
        }
        let link = match connect::connect(peer, &self.target, self.settings, self.tag).await {
            Ok(link) => link,
            Err((error, peer)) => {
                self.codec = Some(codec);
                let miss = self.connect_miss(error, peer);
                let status = match miss {
                    Miss::Upstream(cause) => cause.status(),
                    Miss::Final(status) => status,
                };
                self.state.update(number, |one| {
                    one.status = status;
                    one.response = Some(now().saturating_duration_since(began));
                });
                return Err(Missed { miss, sent: false, stale: false });
            }
        };
        let reused = link.reused;
        let kind = if reused { "a kept one" } else { "a new one" };
        debug!(self.request, "upstream connection is {kind}");
        let settings = self.settings.clone();
        let mut exchange =
            Exchange::new(link, codec, settings, self.state.clone(), (number, began));
        exchange.connected();
        let miss = match self.exchange(&mut exchange).await {
            Ok(head) => match self.judge(&head) {
                None => {
                    let head = Rc::new(head);
                    self.state.set_head(Some(head.clone()));
                    exchange.head_received(head.status);
                    let io = self.request.temp_io();
                    let body = UpstreamBody::new(exchange, io);
                    return Ok((head, body, who));
                }
                Some(cause) => {
                    exchange.head_received(head.status);
                    Miss::Upstream(cause)
                }
            },
            Err(miss) => miss,
        };
        let sent = exchange.bytes_sent() > 0;
        let stale = reused
            && matches!(miss, Miss::Upstream(Cause::Error))
            && exchange.bytes_received() == 0;
        if let Miss::Upstream(cause) = miss {
            exchange.failed(cause);
        }
        let (codec, link) = exchange.into_parts();
        self.codec = Some(codec);
        if let (Some(link), Miss::Upstream(cause)) = (link, &miss) {
            let peer = link.into_peer();
            match cause {
                // It was an idle connection that had ended, not the peer.
                Cause::Error if stale => drop(peer),
                Cause::Http403 | Cause::Http404 => peer.passed_on(now()),
                _ => self.peer_failed(peer),
            }
        }
        Err(Missed { miss, sent, stale })
    }

    fn peer_failed(&self, peer: Picked) {
        if peer.failed(now()) {
            self.request.log(Level::Warn, format_args!("upstream server temporarily disabled"));
        }
    }

    /// Sends the request and receives a head.
    async fn exchange(&mut self, exchange: &mut Exchange) -> Result<UpstreamHead, Miss> {
        self.state.set_action(Some("sending request to upstream"));
        let sent = send::request(self.request, exchange).await;
        sent.map_err(|error| self.send_miss(error))?;
        if exchange.upload.is_none() {
            self.state.set_action(Some("reading response header from upstream"));
        }
        let received = receive::head(self.request, exchange).await;
        received.map_err(|fault| self.head_miss(fault))
    }

    /// Whether a response is as good as none. nginx: `ngx_http_upstream_test_next`.
    fn judge(&self, head: &UpstreamHead) -> Option<Cause> {
        let cause = Cause::of_status(head.status)?;
        self.may_try_again(cause, true).then_some(cause)
    }

    fn connect_miss(&self, error: Unconnected, peer: Picked) -> Miss {
        let log = |level, what: &str, error: &io::Error| {
            let name = peer.name();
            self.request.log(level, format_args!("{what} to {name} failed{}", OsError(error)));
        };
        match error {
            Unconnected::Failed(ConnectError::TimedOut) => {
                self.timed_out();
                self.peer_failed(peer);
                Miss::Upstream(Cause::Timeout)
            }
            Unconnected::Failed(error) | Unconnected::Ours(error @ ConnectError::Connect(_)) => {
                let error = io::Error::from(error);
                self.request.log(
                    connect_level(&error),
                    format_args!("connect() failed{}", OsError(&error)),
                );
                self.peer_failed(peer);
                Miss::Upstream(Cause::Error)
            }
            Unconnected::Ours(ConnectError::Bind(error)) => {
                log(Level::Crit, "bind()", &error);
                Miss::Final(500)
            }
            Unconnected::Ours(ConnectError::Option(name, error)) => {
                let text = format!("setsockopt({name})");
                log(Level::Alert, &text, &error);
                Miss::Final(500)
            }
            Unconnected::Ours(error) => {
                log(Level::Alert, "socket()", &io::Error::from(error));
                Miss::Final(500)
            }
        }
    }

    fn send_miss(&self, error: SendFault) -> Miss {
        match error {
            SendFault::Upstream(error) => Miss::Upstream(self.network_error("send()", &error)),
            SendFault::Ours(status) => Miss::Final(status),
        }
    }

    fn head_miss(&self, fault: HeadFault) -> Miss {
        match fault {
            HeadFault::Receive(ReceiveFault::Network(error)) => {
                Miss::Upstream(self.network_error("recv()", &error))
            }
            HeadFault::Receive(ReceiveFault::Client(error)) => self.client_miss(&error),
            HeadFault::Receive(ReceiveFault::Ours(error)) => {
                self.request.log(Level::Crit, format_args!("{error}"));
                Miss::Final(500)
            }
            HeadFault::Closed | HeadFault::Protocol(Fault::PrematureClose) => {
                self.request
                    .log(Level::Error, format_args!("upstream prematurely closed connection"));
                Miss::Upstream(Cause::Error)
            }
            HeadFault::Protocol(fault) => {
                self.request.log(Level::Error, format_args!("{fault}"));
                Miss::Upstream(Cause::InvalidHeader)
            }
        }
    }

    fn client_miss(&self, error: &ReadError) -> Miss {
        if let ReadError::TooLarge = error {
            let text = format_args!("client intended to send too large chunked body");
            self.request.log(Level::Error, text);
        }
        Miss::Final(request_body::answer(self.request, error))
    }

    fn timed_out(&self) {
        let text = format_args!("upstream timed out (110: Connection timed out)");
        self.request.log(Level::Error, text);
    }

    /// Logs an error of the network.
    fn network_error(&self, what: &str, error: &io::Error) -> Cause {
        if error.kind() == io::ErrorKind::TimedOut && error.raw_os_error().is_none() {
            self.timed_out();
            return Cause::Timeout;
        }
        self.request.log(Level::Error, format_args!("{what} failed{}", OsError(error)));
        Cause::Error
    }
}

/// Whether asking twice may do twice what was asked for (RFC 9110 section 9.2.2, as nginx reads
/// it).
fn is_non_idempotent(method: Method) -> bool {
    matches!(method, Method::Post | Method::Lock | Method::Patch)
}
