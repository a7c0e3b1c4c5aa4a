//! Sends a request and receives the head of its response: peers are tried until one responds.
//!
//! Called by protocol modules. [`UpstreamBody`] takes over after the head.

use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nowait_front::upstreams::connect_level;
use nowait_http::exchange::{OnHangup, Watch};
use nowait_http::log::{Level, OsError};
use nowait_http::logs::debug;
use nowait_http::request::{ReadError, Request, RequestBody};
use nowait_http::request_body;
use nowait_http::upstream_state::PeerName;
use nowait_http::upstream_state::UpstreamState;
use nowait_message::{Method, ResponseHead};
use nowait_runtime::buf::RecvBuf;
use nowait_runtime::net::{ConnectError, Recv};
use nowait_runtime::now;
use nowait_runtime::time::timeout;
use nowait_upstream::{NextPeer, SelectedPeer, Tag};

use super::body::UpstreamBody;
use super::connect::{self, ConnectParams, ConnectionError, Link, Reuse};
use super::exchange::{Connecting, ExchangeSlot, ReceiveFault};
use super::receive::{self, HeadFault};
use super::send::{self, SendFault};
use super::sticky_cookie;
use super::{Cause, CodecFactory, Fault, HeadEvent, Settings, UpstreamTarget};

/// Tries that upstreams have not acted on, and which therefore don't count.
const UNPROCESSED_MAX: u8 = 3;

/// The response of an upstream.
pub struct Reply {
    /// The head; [`UpstreamState::head`] has it, too.
    pub head: Rc<ResponseHead>,
    /// The body.
    pub body: UpstreamBody,
}

/// The reason why there is no response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestError {
    /// The client's status.
    pub status: u16,
    /// The failure of the last try; `None` if no upstream is at fault.
    pub cause: Option<Cause>,
}

/// A request on its way to an upstream, or to several in turn, until the head of a response
/// arrives. Failures are logged.
///
/// [`reply`](Self::reply) does all steps. Most requests find an idle connection and a response
/// whose head arrives in one piece, and need no future: [`begin`](Self::begin) sends the request,
/// [`receive`](Self::receive) is awaited, and [`try_reply`](Self::try_reply) returns the response.
/// Where this path ends, `reply` takes over.
pub struct Tries {
    factory: &'static dyn CodecFactory,
    settings: Arc<Settings>,
    target: UpstreamTarget,
    tag: Tag,
    state: Rc<UpstreamState>,
    /// The client's content is passed on while it arrives.
    streamed: bool,
    /// A peer was chosen before: this is a retry.
    is_again: bool,
    started: Instant,
    /// The meaning of a hang-up of the client; `None` before the first try and after the last.
    watch: Option<Watch>,
    /// The try in progress.
    begun: Option<Begun>,
    /// Tries that upstreams have not acted on.
    unprocessed: u8,
}

/// Progress of a try.
enum Begun {
    /// A peer was chosen.
    Picked(SelectedPeer, Opened),
    /// The request was sent, or is sent while the head is received; or sending has failed.
    Sent(ExchangeSlot, Result<(), SendFault>),
}

/// Number of a try, and when it began.
type Opened = (usize, Instant);

/// The failure of a try.
enum TryError {
    /// The upstream's fault.
    Upstream(Cause),
    /// Not processed by the upstream; a retry is safe.
    Unprocessed,
    /// Our fault or the client's: another try would not help.
    Final(u16),
}

/// A try that failed after it had a connection.
struct FailedTry {
    miss: TryError,
    /// Part of the request was sent.
    sent: bool,
    /// The connection had served requests before, and no byte of a response has arrived.
    stale: bool,
}

impl Tries {
    /// A request for `target`. It is large: inlined, it is made where it stays.
    #[inline(always)]
    pub fn new(
        request: &mut Request,
        factory: &'static dyn CodecFactory,
        settings: &Arc<Settings>,
        target: UpstreamTarget,
    ) -> Self {
        let state = UpstreamState::of(request.state_mut()).clone();
        state.set_url(target.scheme, target.order.uri.clone());
        let tag = target.tag(request, settings);
        Self {
            factory,
            settings: settings.clone(),
            target,
            tag,
            state,
            streamed: false,
            is_again: false,
            started: now(),
            watch: None,
            begun: None,
            unprocessed: 0,
        }
    }

    /// Sends the request as far as possible without waiting: its content must be available, and the
    /// next peer in turn must have an idle connection.
    pub fn begin(&mut self, request: &mut Request) {
        let queues = self.target.attempt.group().conf().queue.is_some();
        let shares = self.settings.shares_connections;
        if queues || shares || matches!(request.body(), RequestBody::Unread(_)) {
            return;
        }
        self.start(request);
        self.state.set_action(Some("connecting to upstream"));
        let NextPeer::Peer(peer) = self.target.attempt.next(now()) else { return };
        let opened = self.open(request, &peer, None);
        let begun = match connect::idle(peer, self.tag, self.reuse(request)) {
            Ok(link) => Begun::Sent(self.exchange(request, link, opened), Ok(())),
            Err(peer) => Begun::Picked(peer, opened),
        };
        if let Begun::Sent(exchange, sent) = self.begun.insert(begun) {
            *sent = send::at_once(request, &self.target.order, exchange);
        }
    }

    /// Receives the head, for [`try_reply`](Self::try_reply). `None`: another step is needed first.
    pub fn receive(&self) -> Option<Recv<'_>> {
        let Some(Begun::Sent(exchange, Ok(()))) = &self.begun else { return None };
        if exchange.upload.is_some() {
            return None;
        }
        self.state.set_action(Some("reading response header from upstream"));
        Some(exchange.pipe().own()?.recv(exchange.read_timeout()))
    }

    /// The response, if the received bytes complete its head, and it does not call for another try.
    pub fn try_reply(
        &mut self,
        request: &mut Request,
        received: io::Result<RecvBuf>,
    ) -> Option<Reply> {
        let Some(Begun::Sent(exchange, Ok(()))) = &mut self.begun else { return None };
        let head = receive::at_once(exchange, received)?;
        match (self.judge(request, &head), self.begun.take()) {
            (None, Some(Begun::Sent(exchange, _))) => Some(self.accept(request, exchange, head)),
            (_, mut begun) => {
                if let Some(Begun::Sent(exchange, _)) = &mut begun {
                    exchange.early = Some(Box::new(Ok(HeadEvent::Final(head))));
                }
                self.begun = begun;
                None
            }
        }
    }

    /// Sends the request, or continues a begun try, until the head of a response has arrived.
    ///
    /// # Errors
    /// [`RequestError`]: the status to respond with.
    pub async fn reply(&mut self, request: &mut Request) -> Result<Reply, RequestError> {
        if self.watch.is_none() {
            let read = match self.settings.request_buffering {
                true => request_body::read(request).await,
                false => request_body::read_ready(request).await,
            };
            read.map_err(|status| RequestError { status, cause: None })?;
            self.start(request);
        }
        let reply = self.tries(request).await;
        if reply.is_err() {
            self.state.set_action(None);
        }
        reply
    }

    /// The content is available, or is sent while it arrives, so that tries can begin.
    fn start(&mut self, request: &Request) {
        let on_hangup =
            if self.settings.ignore_client_abort || self.target.order.wanted.outlives_client() {
                OnHangup::Ignore
            } else {
                OnHangup::EndAtOnce
            };
        self.watch = Some(request.watch(on_hangup));
        self.started = now();
        self.streamed = matches!(request.body(), RequestBody::Unread(_));
    }

    async fn tries(&mut self, request: &mut Request) -> Result<Reply, RequestError> {
        loop {
            let begun = match self.begun.take() {
                Some(begun) => begun,
                None => {
                    self.state.set_action(Some("connecting to upstream"));
                    let (peer, queued) = self.pick(request).await?;
                    let opened = self.open(request, &peer, queued);
                    Begun::Picked(peer, opened)
                }
            };
            let FailedTry { miss, sent, stale } = match self.attempt(request, begun).await {
                Ok(reply) => return Ok(reply),
                Err(missed) => missed,
            };
            let cause = match miss {
                TryError::Upstream(cause) => cause,
                TryError::Unprocessed => Cause::Error,
                TryError::Final(status) => return Err(RequestError { status, cause: None }),
            };
            if stale {
                self.target.attempt.add_try();
            }
            if !self.may_try_again(request, cause, sent) {
                return Err(RequestError { status: cause.status(), cause: Some(cause) });
            }
        }
    }

    /// Chooses a peer, or waits for one if the group has a queue. Also returns the time spent
    /// there.
    async fn pick(
        &mut self,
        request: &Request,
    ) -> Result<(SelectedPeer, Option<Duration>), RequestError> {
        let mut queued = None;
        let reason = loop {
            match self.target.attempt.next(now()) {
                NextPeer::Peer(peer) => return Ok((peer, queued)),
                NextPeer::Busy => {
                    let since = now();
                    let waited = self.target.attempt.queue(since).await;
                    queued = Some(now().saturating_duration_since(since));
                    match waited {
                        Ok(peer) => return Ok((peer, queued)),
                        Err(error) => break error.to_string(),
                    }
                }
                NextPeer::Unresolved => {
                    let group = self.target.attempt.group().clone();
                    let limit = group.conf().resolver_timeout;
                    let limit = limit.unwrap_or(request.current().conf.resolving.timeout);
                    let limit = nowait_resolver::limit(limit.duration());
                    if timeout(limit, group.resolved()).await.is_err() {
                        break "no live upstreams".to_owned();
                    }
                }
                NextPeer::NoLive => break "no live upstreams".to_owned(),
            }
        };
        let name = String::from_utf8_lossy(self.target.attempt.group().name());
        let number = self.state.begin_try(Some(PeerName::Text(name.into())));
        self.state.update(number, |one| {
            one.status = Cause::NoLive.status();
            one.response = Some(Duration::ZERO);
            one.queue = queued;
        });
        let why = self.target.attempt.group().reasons(now());
        let why = if why.is_empty() { "it has no servers at present" } else { &why };
        let action = self.state.action();
        // The words of nginx stay together.
        self.state.set_action(None);
        request.log(Level::Error, format_args!("{reason} while connecting to upstream ({why})"));
        self.state.set_action(action);
        Err(RequestError { status: Cause::NoLive.status(), cause: Some(Cause::NoLive) })
    }

    /// Whether another peer may be tried. nginx: `ngx_http_upstream_next`.
    fn may_try_again(&self, request: &Request, cause: Cause, sent: bool) -> bool {
        let non_idempotent = sent && is_non_idempotent(request.method());
        let limit = self.settings.next_upstream_timeout;
        self.target.attempt.tries_left() > 0
            && self.settings.next_upstream.allows(cause, non_idempotent)
            && !self.was_streamed(request)
            && (limit.is_zero() || now().saturating_duration_since(self.started) < limit)
    }

    /// The kept connections that may serve. If the server has closed one meanwhile, most requests are sent
    /// again, except those that could take effect twice, or whose content was not kept.
    fn reuse(&self, request: &Request) -> Reuse {
        let non_idempotent = is_non_idempotent(request.method());
        match self.streamed || !self.settings.next_upstream.allows(Cause::Error, non_idempotent) {
            true => Reuse::Silent,
            false => Reuse::Any,
        }
    }

    /// Whether the read part of the client's content was not kept.
    fn was_streamed(&self, request: &Request) -> bool {
        self.streamed && matches!(request.body(), RequestBody::None)
    }

    /// Opens a try of a peer that was just chosen; `queued`: the time that the request has waited
    /// for it.
    fn open(&mut self, request: &Request, peer: &SelectedPeer, queued: Option<Duration>) -> Opened {
        if !std::mem::replace(&mut self.is_again, true) && self.settings.next_upstream_tries > 0 {
            self.target.attempt.limit_tries(self.settings.next_upstream_tries as usize - 1);
        }
        let number = self.state.begin_try(Some(PeerName::Peer(peer.peer().clone())));
        if queued.is_some() {
            self.state.update(number, |one| one.queue = queued);
        }
        debug!(request, "connect to {}", peer.name());
        let cookie = sticky_cookie::set_cookie(&self.target.upstream, request, peer.peer());
        if let Some(cookie) = cookie {
            self.state.set_cookie(cookie);
        }
        (number, now())
    }

    /// Starts the exchange of a try that has a connection.
    fn exchange(&mut self, request: &Request, link: Link, opened: Opened) -> ExchangeSlot {
        let kind = if link.reused { "a kept one" } else { "a new one" };
        debug!(request, "upstream connection is {kind}");
        let codec = self.factory.codec(request, link.pipe.lane());
        let (settings, state) = (self.settings.clone(), self.state.clone());
        let exchange = ExchangeSlot::new(link, codec, settings, state, opened);
        exchange.connected();
        self.state.set_action(Some("sending request to upstream"));
        exchange
    }

    /// Tries one peer.
    async fn attempt(&mut self, request: &mut Request, begun: Begun) -> Result<Reply, FailedTry> {
        let (mut exchange, sent) = match begun {
            Begun::Picked(peer, opened) => {
                let mut exchange = self.connect(request, peer, opened).await?;
                let sent = send::request(request, &self.target.order, &mut exchange).await;
                (exchange, sent)
            }
            Begun::Sent(exchange, sent) => (exchange, sent),
        };
        let miss = match sent {
            Ok(()) => {
                if exchange.upload.is_none() {
                    self.state.set_action(Some("reading response header from upstream"));
                }
                match receive::head(request, &mut exchange).await {
                    Ok(head) => match self.judge(request, &head) {
                        None => return Ok(self.accept(request, exchange, head)),
                        Some(cause) => {
                            exchange.head_received(head.status);
                            TryError::Upstream(cause)
                        }
                    },
                    Err(fault) => self.head_miss(request, fault),
                }
            }
            Err(fault) => self.send_miss(request, fault),
        };
        Err(self.missed(request, exchange, miss))
    }

    /// Takes or opens a connection to a peer.
    async fn connect(
        &mut self,
        request: &Request,
        peer: SelectedPeer,
        opened: Opened,
    ) -> Result<ExchangeSlot, FailedTry> {
        let how = ConnectParams {
            tunnels: self.factory.tunnels(request),
            reuse: self.reuse(request),
            bind: self.target.bind.as_ref(),
            tls: self.target.tls.as_deref(),
            settings: &self.settings,
            state: &self.state,
        };
        let connecting = Connecting::new(&self.state, opened);
        let connected = connect::connect(request, peer, how, self.tag).await;
        connecting.done();
        match connected {
            Ok(link) => Ok(self.exchange(request, link, opened)),
            Err((error, peer)) => {
                let miss = self.connect_miss(request, error, peer);
                let status = match miss {
                    TryError::Upstream(cause) => cause.status(),
                    TryError::Unprocessed => Cause::Error.status(),
                    TryError::Final(status) => status,
                };
                let (number, began) = opened;
                self.state.update(number, |one| {
                    one.status = status;
                    one.response = Some(now().saturating_duration_since(began));
                });
                Err(FailedTry { miss, sent: false, stale: false })
            }
        }
    }

    /// Accepts the head as that of the response.
    fn accept(
        &mut self,
        request: &Request,
        mut exchange: ExchangeSlot,
        head: Rc<ResponseHead>,
    ) -> Reply {
        self.state.set_head(Some(head.clone()));
        exchange.head_received(head.status);
        let UpstreamTarget { upstream, attempt, .. } = &self.target;
        let learning = exchange.peer().and_then(|peer| upstream.learning(request, attempt, peer));
        let mut body = UpstreamBody::new(exchange, request);
        if let Some(watch) = self.watch.take() {
            body.keep(watch);
        }
        match learning {
            Some((learning, true)) => learning.note(now()),
            Some((learning, false)) => body.at_end(learning),
            None => {}
        }
        Reply { head, body }
    }

    /// Ends a try that has failed.
    fn missed(
        &mut self,
        request: &mut Request,
        mut exchange: ExchangeSlot,
        miss: TryError,
    ) -> FailedTry {
        let unprocessed = matches!(miss, TryError::Unprocessed);
        if unprocessed
            && self.was_streamed(request)
            && let Some(content) = exchange.take_content()
        {
            request.set_body(RequestBody::Unread(Box::new(content)));
        }
        let sent = exchange.bytes_sent() > 0 && !unprocessed;
        let mut stale = exchange.is_reused()
            && matches!(miss, TryError::Upstream(Cause::Error))
            && exchange.bytes_received() == 0;
        if unprocessed && self.unprocessed < UNPROCESSED_MAX {
            self.unprocessed += 1;
            stale = true;
        }
        match miss {
            TryError::Upstream(cause) => exchange.failed(cause),
            TryError::Unprocessed => exchange.failed(Cause::Error),
            TryError::Final(_) => {}
        }
        let peer = exchange.into_inner().into_link().and_then(Link::into_peer);
        if let (Some(peer), TryError::Upstream(cause)) = (peer, &miss) {
            match cause {
                // The idle connection had ended; that is no fault of the peer.
                Cause::Error if stale => drop(peer),
                Cause::Http403 | Cause::Http404 => peer.passed_on(now()),
                _ => self.peer_failed(request, peer),
            }
        }
        FailedTry { miss, sent, stale }
    }

    fn peer_failed(&self, request: &Request, peer: SelectedPeer) {
        if peer.failed(now()) {
            request.log(Level::Warn, format_args!("upstream server temporarily disabled"));
        }
    }

    /// Whether a response calls for another try. nginx: `ngx_http_upstream_test_next`.
    fn judge(&self, request: &Request, head: &ResponseHead) -> Option<Cause> {
        let cause = Cause::of_status(head.status)?;
        self.may_try_again(request, cause, true).then_some(cause)
    }

    fn connect_miss(
        &self,
        request: &Request,
        error: ConnectionError,
        peer: SelectedPeer,
    ) -> TryError {
        let log = |level, what: &str, error: &io::Error| {
            let name = peer.name();
            request.log(level, format_args!("{what} to {name} failed{}", OsError(error)));
        };
        match error {
            ConnectionError::Failed(ConnectError::TimedOut) => {
                self.timed_out(request);
                self.peer_failed(request, peer);
                TryError::Upstream(Cause::Timeout)
            }
            ConnectionError::Failed(error)
            | ConnectionError::Ours(error @ ConnectError::Connect(_)) => {
                let error = io::Error::from(error);
                request.log(
                    connect_level(&error),
                    format_args!("connect() failed{}", OsError(&error)),
                );
                self.peer_failed(request, peer);
                TryError::Upstream(Cause::Error)
            }
            ConnectionError::Tls(failure) if failure.is_timeout() => {
                self.timed_out(request);
                self.peer_failed(request, peer);
                TryError::Upstream(Cause::Timeout)
            }
            ConnectionError::Tls(failure) => {
                let hint = match failure.is_no_tls() {
                    true => ", the server sent no TLS record, perhaps it speaks plain HTTP",
                    false => "",
                };
                request.log(Level::Error, format_args!("{failure}{hint}"));
                if failure.is_ours() {
                    return TryError::Final(500);
                }
                self.peer_failed(request, peer);
                TryError::Upstream(Cause::Error)
            }
            ConnectionError::NoHttp2 => {
                let text = format_args!("upstream did not select \"h2\" by ALPN");
                request.log(Level::Error, text);
                self.peer_failed(request, peer);
                TryError::Upstream(Cause::Error)
            }
            ConnectionError::NoTunnels => {
                // The server is not at fault: it may serve all other requests.
                let text = format_args!(
                    "upstream offers no WebSocket over HTTP/2 (SETTINGS_ENABLE_CONNECT_PROTOCOL)"
                );
                request.log(Level::Error, text);
                TryError::Upstream(Cause::Error)
            }
            ConnectionError::Overflow => {
                let text = format_args!("too many requests wait for a stream to {}", peer.name());
                request.log(Level::Error, text);
                TryError::Upstream(Cause::Error)
            }
            ConnectionError::Ours(ConnectError::Bind(error)) => {
                log(Level::Crit, "bind()", &error);
                TryError::Final(500)
            }
            ConnectionError::Ours(ConnectError::Option(name, error)) => {
                let text = format!("setsockopt({name})");
                log(Level::Alert, &text, &error);
                TryError::Final(500)
            }
            ConnectionError::Ours(error) => {
                log(Level::Alert, "socket()", &io::Error::from(error));
                TryError::Final(500)
            }
        }
    }

    fn send_miss(&self, request: &Request, error: SendFault) -> TryError {
        match error {
            SendFault::Upstream(error) => {
                TryError::Upstream(self.network_error(request, "send()", &error))
            }
            SendFault::Ours(status) => TryError::Final(status),
        }
    }

    fn head_miss(&self, request: &Request, fault: HeadFault) -> TryError {
        match fault {
            HeadFault::Receive(ReceiveFault::Network(error)) => {
                TryError::Upstream(self.network_error(request, "recv()", &error))
            }
            HeadFault::Receive(ReceiveFault::Client(error)) => self.client_miss(request, &error),
            HeadFault::Receive(ReceiveFault::Ours(error)) => {
                request.log(Level::Crit, format_args!("{error}"));
                TryError::Final(500)
            }
            HeadFault::Closed | HeadFault::Protocol(Fault::PrematureClose) => {
                request.log(Level::Error, format_args!("upstream prematurely closed connection"));
                TryError::Upstream(Cause::Error)
            }
            HeadFault::Protocol(fault @ Fault::Unprocessed(_)) => {
                request.log(Level::Error, format_args!("{fault}"));
                TryError::Unprocessed
            }
            HeadFault::Protocol(fault) => {
                request.log(Level::Error, format_args!("{fault}"));
                TryError::Upstream(Cause::InvalidHeader)
            }
        }
    }

    fn client_miss(&self, request: &Request, error: &ReadError) -> TryError {
        if let ReadError::TooLarge = error {
            let text = format_args!("client intended to send too large chunked body");
            request.log(Level::Error, text);
        }
        TryError::Final(request_body::answer(request, error))
    }

    fn timed_out(&self, request: &Request) {
        let text = format_args!("upstream timed out (110: Connection timed out)");
        request.log(Level::Error, text);
    }

    /// Logs a network error.
    fn network_error(&self, request: &Request, what: &str, error: &io::Error) -> Cause {
        if error.kind() == io::ErrorKind::TimedOut && error.raw_os_error().is_none() {
            self.timed_out(request);
            return Cause::Timeout;
        }
        request.log(Level::Error, format_args!("{what} failed{}", OsError(error)));
        Cause::Error
    }
}

/// Whether sending the request twice may have its effect twice (RFC 9110 section 9.2.2, as nginx
/// interprets it).
fn is_non_idempotent(method: Method) -> bool {
    matches!(method, Method::Post | Method::Lock | Method::Patch)
}
