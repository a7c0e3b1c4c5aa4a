//! The proxy: forwards sessions to upstream servers. nginx: `ngx_stream_proxy_module`.
//!
//! Servers are tried until one can be reached; then the runtime's [`relay`] forwards bytes in both
//! directions until one side ends.

pub mod conf;
pub mod server_name;
pub mod udp;

pub use conf::MODULE;

use std::cell::{Cell, RefCell};
use std::fmt;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::Poll;
use std::time::{Duration, Instant};

use bytes::Bytes;
use nowait_front::log::{Level, OsError};
use nowait_front::proxy_protocol;
use nowait_front::resolvers::{self, NamedServer};
use nowait_front::tls::Handshake;
use nowait_front::tls::upstream::{ConnectFailure, HandshakeParams, UpstreamTls};
use nowait_front::upstreams::{Upstream, connect_level};
use nowait_runtime::buf::Chain;
use nowait_runtime::fs::Io;
use nowait_runtime::net::{
    Address, AfterEnd, ConnectError, ConnectOptions, Observer, RelayEnd, RelayOptions, SendOptions,
    Side, Sides, Stream, relay,
};
use nowait_runtime::now;
use nowait_runtime::time::timeout;
use nowait_upstream::{Attempt, NextPeer, RemovedFuture, SelectedPeer, Times};
use nowait_variables::Subject;

use crate::conf::Complex;
use crate::module::{Content, Step};
use crate::session::{Session, SessionTransport, take_input};
use crate::status::Status;
use crate::tries::{PeerName, Try};
use crate::variables::complex::StreamVariables;
use conf::{Pass, Proxy, ProxyConf, ProxyVersion};
use server_name::ServerText;

impl Content for Proxy {
    fn serve<'s>(&'s self, session: &'s Session) -> Step<'s, Status> {
        match &session.transport {
            SessionTransport::Tcp(stream) => Step::Wait(Box::pin(tcp(session, stream, self))),
            SessionTransport::Udp(client) => Step::Wait(Box::pin(udp::udp(session, client, self))),
            SessionTransport::Gone => Step::Done(Status::InternalServerError),
        }
    }

    fn datagrams_max(&self) -> u32 {
        self.conf.requests
    }
}

/// Forwards a connection until it ends.
async fn tcp(session: &Session, client: &Stream, proxy: &Proxy) -> Status {
    let conf = &proxy.conf;
    let connected = match connect(session, proxy).await {
        Ok(connected) => connected,
        Err(status) => return status,
    };
    session.set_action(Some("proxying connection"));
    let Connected { stream, peer, began } = connected;
    let first = session_start(session, proxy);
    let mut options = RelayOptions::new(
        conf.timeout.duration(),
        if conf.half_close { AfterEnd::HalfClose } else { AfterEnd::Close },
    );
    if let Some(size) = conf.buffer_size {
        options.buffer_bytes = usize::try_from(size.0).unwrap_or(usize::MAX);
    }
    options.rate = Sides {
        client: rate(session, conf.upload_rate.as_deref()),
        upstream: rate(session, conf.download_rate.as_deref()),
    };
    let removed = pin!(conf.session_drop.then(|| peer.removed()));
    let meter = Meter { session, peer: RefCell::new(peer), began, first_byte: Cell::new(None) };
    let ends = Sides { client: client.into(), upstream: (&stream).into() };
    let first = Sides { client: Chain::new(), upstream: first };
    let end = until_removed(removed, pin!(relay(ends, first, &options, &meter))).await;
    meter.finish();
    let Some(end) = end else {
        log_removed(session);
        return Status::Ok;
    };
    match end {
        RelayEnd::Closed(side) => {
            let who = match side {
                Side::Client => "client",
                Side::Upstream => "upstream",
            };
            session.log_bare(Level::Info, format_args!("{who} disconnected, {}", session.totals()));
        }
        RelayEnd::Idle | RelayEnd::Stuck(_) => session
            .log(Level::Info, format_args!("connection timed out (110: Connection timed out)")),
        // Already logged when it happened.
        RelayEnd::Broken(_) => {}
    }
    Status::Ok
}

/// Runs a session until its server leaves the group; `None` if that happened first. The future is
/// borrowed: moved in, it would take up its space twice in every session.
pub(crate) async fn until_removed<T>(
    mut removed: Pin<&mut Option<RemovedFuture>>,
    mut run: Pin<&mut impl Future<Output = T>>,
) -> Option<T> {
    poll_fn(|cx| {
        if let Some(removed) = removed.as_mut().as_pin_mut()
            && removed.poll(cx).is_ready()
        {
            return Poll::Ready(None);
        }
        run.as_mut().poll(cx).map(Some)
    })
    .await
}

pub(crate) fn log_removed(session: &Session) {
    session.log(Level::Info, format_args!("upstream server was removed"));
}

/// The data that precedes the client's further input: the PROXY protocol header, unless it preceded
/// a handshake, and the data already read.
fn session_start(session: &Session, proxy: &Proxy) -> Chain {
    let mut first = Chain::new();
    if proxy.tls.is_none() || session.is_udp() {
        proxy_header(session, &proxy.conf, &mut first);
    }
    let input = take_input(session);
    session.count_received(input.len() as u64);
    first.push(input);
    first
}

/// The PROXY protocol header.
fn proxy_header(session: &Session, conf: &ProxyConf, first: &mut Chain) {
    let ends = || session.peer().inet().zip(session.local().inet());
    match conf.protocol {
        ProxyVersion::Off => {}
        ProxyVersion::One => first.push(Bytes::from(proxy_protocol::encode_1(ends()))),
        ProxyVersion::Two => {
            first.push(Bytes::from(proxy_protocol::encode_2(ends(), session.is_udp())));
        }
    }
}

/// Bytes per second; zero: no limit. An invalid size is logged and means no limit either.
pub(crate) fn rate(session: &Session, text: Option<&Complex>) -> u64 {
    let Some(text) = text else { return 0 };
    let value = session.evaluate(text);
    if value.is_empty() {
        return 0;
    }
    match <nowait_conf::Size as nowait_conf::Value>::from_word(&value) {
        Ok(size) => size.0,
        Err(_) => {
            let value = String::from_utf8_lossy(&value);
            session.log(Level::Error, format_args!("invalid size \"{value}\""));
            0
        }
    }
}

/// Counts the forwarded data.
struct Meter<'a> {
    session: &'a Session,
    peer: RefCell<SelectedPeer>,
    /// The time at which the peer was chosen.
    began: Instant,
    first_byte: Cell<Option<Duration>>,
}

impl Meter<'_> {
    /// Ends the session and releases the peer.
    fn finish(self) {
        let now = now();
        let response = now.saturating_duration_since(self.began);
        let (mut received, mut sent) = (0, 0);
        self.session.update_try(|last| {
            last.session = Some(response);
            (received, sent) = (last.received, last.sent);
        });
        let peer = self.peer.into_inner();
        peer.count_bytes(sent, received);
        let times = self.first_byte.get().map(|header| Times { header, response });
        peer.succeeded(now, times);
    }
}

impl Observer for Meter<'_> {
    fn received(&self, from: Side, bytes: usize) {
        let bytes = bytes as u64;
        match from {
            Side::Client => self.session.count_received(bytes),
            Side::Upstream => {
                if self.first_byte.get().is_none() {
                    let time = now().saturating_duration_since(self.began);
                    self.first_byte.set(Some(time));
                    self.session.update_try(|last| last.first_byte = Some(time));
                    self.peer.borrow_mut().header_received(now(), time);
                }
                self.session.update_try(|last| last.received += bytes);
            }
        }
    }

    fn sent(&self, to: Side, bytes: usize) {
        let bytes = bytes as u64;
        match to {
            Side::Client => self.session.count_sent(bytes),
            Side::Upstream => self.session.update_try(|last| last.sent += bytes),
        }
    }

    fn failed(&self, side: Side, call: &'static str, error: &io::Error) {
        let (level, action) = match (side, call) {
            (Side::Client, "recv()") => (Level::Info, "proxying and reading from client"),
            (Side::Client, _) => (Level::Info, "proxying and sending to client"),
            (Side::Upstream, "recv()") => (Level::Error, "proxying and reading from upstream"),
            (Side::Upstream, _) => (Level::Error, "proxying and sending to upstream"),
        };
        self.session.set_action(Some(action));
        self.session.log(level, format_args!("{call} failed{}", OsError(error)));
        self.session.set_action(Some("proxying connection"));
    }
}

/// A server to which a connection was established.
struct Connected {
    stream: Stream,
    peer: SelectedPeer,
    /// The time at which it was chosen.
    began: Instant,
}

/// Connects to a server.
///
/// # Errors
/// The status of the session. The failure has been logged.
async fn connect(session: &Session, proxy: &Proxy) -> Result<Connected, Status> {
    let mut search = Search::new(session, proxy).await?;
    loop {
        let peer = search.next().await?;
        let began = now();
        match search.try_tcp(&peer, proxy).await {
            Ok(stream) => {
                let peer = search.reached(peer, began);
                search.log_connected(|| stream.local_addr().ok(), &peer);
                return Ok(Connected { stream, peer, began });
            }
            Err(error) => search.missed(peer, began, error)?,
        }
    }
}

/// A session's search for a server.
pub(crate) struct Search<'a> {
    session: &'a Session,
    conf: &'a ProxyConf,
    attempt: Attempt,
    bind: Option<Address>,
    /// The parameters of connections with TLS.
    wish: Option<Box<HandshakeParams>>,
    /// The time at which the first server was tried.
    started: Instant,
    is_first: bool,
}

impl<'a> Search<'a> {
    /// Begins the search.
    ///
    /// # Errors
    /// The status of a session whose server is unknown.
    pub(crate) async fn new(session: &'a Session, proxy: &'a Proxy) -> Result<Search<'a>, Status> {
        let Proxy { pass, conf, tls } = proxy;
        let bind = conf.bind.as_ref().and_then(|bind| bind.0.as_ref());
        let bind = bind.and_then(|bind| bind.address(session)).map(Address::Inet);
        let (upstream, host) = match pass {
            Pass::Static(group) => (session.current.conf.upstreams.get(*group).clone(), None),
            Pass::Variable(text) => {
                let (upstream, host) = find(session, text).await?;
                (upstream, Some(host))
            }
        };
        let attempt = upstream.begin(session);
        let wish = tls.as_ref().map(|tls| {
            let host = host.as_ref().unwrap_or(&tls.host);
            Box::new(tls.settings.wish(session, host))
        });
        Ok(Search { session, conf, attempt, bind, wish, started: now(), is_first: true })
    }

    /// Chooses a server.
    ///
    /// # Errors
    /// No server is available.
    pub(crate) async fn next(&mut self) -> Result<SelectedPeer, Status> {
        self.session.set_action(Some("connecting to upstream"));
        let peer = loop {
            match self.attempt.next(now()) {
                NextPeer::Peer(peer) => break Some(peer),
                NextPeer::Unresolved => {
                    let group = self.attempt.group().clone();
                    let limit = group.conf().resolver_timeout;
                    let limit = limit.unwrap_or(self.session.current.conf.resolving.timeout);
                    if timeout(limit.duration(), group.resolved()).await.is_err() {
                        break None;
                    }
                }
                NextPeer::Busy | NextPeer::NoLive => break None,
            }
        };
        let Some(peer) = peer else {
            let name = String::from_utf8_lossy(self.attempt.group().name());
            let mut failed = Try::new(PeerName::Text(name.into()));
            failed.session = Some(Duration::ZERO);
            self.session.tries.borrow_mut().push(failed);
            self.session.log(Level::Error, format_args!("no live upstreams"));
            return Err(Status::BadGateway);
        };
        if std::mem::take(&mut self.is_first) && self.conf.next_upstream_tries > 0 {
            self.attempt.limit_tries(self.conf.next_upstream_tries as usize - 1);
        }
        let one = Try::new(PeerName::Peer(peer.peer().clone()));
        self.session.tries.borrow_mut().push(one);
        Ok(peer)
    }

    /// The options of upstream sockets.
    pub(crate) fn options(&self) -> ConnectOptions<'_> {
        let bytes = |size: nowait_conf::Size| u32::try_from(size.0).unwrap_or(u32::MAX);
        let bind = self.conf.bind.as_ref().and_then(|bind| bind.0.as_ref());
        ConnectOptions {
            bind: self.bind.as_ref(),
            transparent: self.bind.is_some() && bind.is_some_and(|bind| bind.transparent),
            keepalive: self.conf.socket_keepalive,
            nodelay: self.session.server().core.tcp_nodelay,
            receive_buffer: bytes(self.conf.socket_rcvbuf),
            send_buffer: bytes(self.conf.socket_sndbuf),
            ..ConnectOptions::new(self.conf.connect_timeout.duration())
        }
    }

    async fn try_tcp(&self, peer: &SelectedPeer, proxy: &Proxy) -> Result<Stream, NoConnection> {
        let stream = Stream::connect_with(peer.address(), &self.options()).await;
        let stream = stream.map_err(NoConnection::Tcp)?;
        if let (Some(tls), Some(wish)) = (&proxy.tls, &self.wish) {
            // Boxed: sessions without TLS don't need its memory.
            let made = Box::pin(self.handshake(&stream, peer, &tls.settings, wish)).await;
            made.map_err(NoConnection::Tls)?;
        }
        Ok(stream)
    }

    async fn handshake(
        &self,
        stream: &Stream,
        peer: &SelectedPeer,
        tls: &UpstreamTls<StreamVariables>,
        wish: &HandshakeParams,
    ) -> Result<(), ConnectFailure> {
        let session = self.session;
        let timeout = self.conf.connect_timeout.duration();
        let mut header = Chain::new();
        proxy_header(session, self.conf, &mut header);
        if !header.is_empty() {
            session.set_action(Some("sending PROXY protocol header to upstream"));
            let sent = stream.send(header, SendOptions::new(timeout)).await;
            sent.map_err(ConnectFailure::of_network)?;
        }
        session.set_action(Some("SSL handshaking to upstream"));
        let pool = session.current.compute_pool.clone();
        let handshake = Handshake { timeout, pool, client: session.number };
        let io = || Rc::new(Io::new(session.current.default_pool.clone()));
        tls.connect(stream, peer.address(), wish, &handshake, io).await
    }

    /// Notes that the connection was established.
    pub(crate) fn reached(&self, mut peer: SelectedPeer, began: Instant) -> SelectedPeer {
        let time = now().saturating_duration_since(began);
        self.session.update_try(|last| last.connect = Some(time));
        peer.connected(now(), time);
        peer
    }

    /// For diagnostics: which connections belong together. `local` is queried only then.
    pub(crate) fn log_connected(
        &self,
        local: impl FnOnce() -> Option<Address>,
        peer: &SelectedPeer,
    ) {
        if self.session.logs(Level::Info)
            && let Some(local) = local()
        {
            let (kind, name) = (self.session.kind(), peer.name());
            let text = format_args!("{kind}proxy {local} connected to {name}");
            self.session.log_bare(Level::Info, text);
        }
    }

    /// Notes that the connection failed.
    ///
    /// # Errors
    /// No other server may be tried.
    pub(crate) fn missed(
        &self,
        peer: SelectedPeer,
        began: Instant,
        error: impl Into<NoConnection>,
    ) -> Result<(), Status> {
        let time = now().saturating_duration_since(began);
        self.session.update_try(|last| last.session = Some(time));
        let log = |level, what: fmt::Arguments<'_>, error: &io::Error| {
            let name = peer.name();
            self.session.log(level, format_args!("{what} to {name} failed{}", OsError(error)));
        };
        let error = match error.into() {
            NoConnection::Tcp(error) => error,
            NoConnection::Tls(failure) if failure.is_timeout() => ConnectError::TimedOut,
            NoConnection::Tls(failure) => {
                self.session.log(Level::Error, format_args!("{failure}"));
                if failure.is_ours() {
                    return Err(Status::InternalServerError);
                }
                return self.next_or_end(peer);
            }
        };
        match error {
            ConnectError::TimedOut => self
                .session
                .log(Level::Error, format_args!("upstream timed out (110: Connection timed out)")),
            ConnectError::Connect(error) => self
                .session
                .log(connect_level(&error), format_args!("connect() failed{}", OsError(&error))),
            // Local errors: another try would make no difference.
            ConnectError::Bind(error) => {
                log(Level::Crit, format_args!("bind()"), &error);
                return Err(Status::InternalServerError);
            }
            ConnectError::Option(name, error) => {
                log(Level::Alert, format_args!("setsockopt({name})"), &error);
                return Err(Status::InternalServerError);
            }
            ConnectError::Socket(error) => {
                log(Level::Alert, format_args!("socket()"), &error);
                return Err(Status::InternalServerError);
            }
        }
        self.next_or_end(peer)
    }

    /// Counts the failure of a server; another one may be tried.
    ///
    /// # Errors
    /// No other server may be tried.
    fn next_or_end(&self, peer: SelectedPeer) -> Result<(), Status> {
        if peer.failed(now()) {
            self.session.log(Level::Warn, format_args!("upstream server temporarily disabled"));
        }
        let limit = self.conf.next_upstream_timeout.duration();
        let spent = now().saturating_duration_since(self.started);
        let may_go_on = self.attempt.tries_left() > 0
            && self.conf.next_upstream
            && (limit.is_zero() || spent < limit);
        if may_go_on { Ok(()) } else { Err(Status::BadGateway) }
    }
}

/// The reason why there is no connection.
pub(crate) enum NoConnection {
    /// The server can't be reached.
    Tcp(ConnectError),
    /// There is no session of TLS with it.
    Tls(ConnectFailure),
}

impl From<ConnectError> for NoConnection {
    fn from(error: ConnectError) -> Self {
        Self::Tcp(error)
    }
}

/// The servers that a text with variables names, and their host.
async fn find(
    session: &Session,
    text: &Complex,
) -> Result<(Upstream<StreamVariables>, Bytes), Status> {
    let text = session.evaluate(text);
    let parsed = ServerText::parse(&text).map_err(|problem| {
        let shown = String::from_utf8_lossy(&text);
        session.log(Level::Error, format_args!("{problem} in upstream \"{shown}\""));
        Status::InternalServerError
    })?;
    let current = &session.current;
    let named = NamedServer {
        text: &parsed.text,
        host: &parsed.host,
        port: parsed.port,
        default_port: None,
    };
    let resolving = session.server().resolving;
    let found =
        resolvers::find(named, &current.conf.upstreams, &current.resolvers, resolving).await;
    let host = parsed.host.clone();
    found.map(|upstream| (upstream, host)).map_err(|error| {
        session.log(Level::Error, format_args!("{error}"));
        Status::InternalServerError
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::phases;

    /// The size of a function's result.
    fn size<A, R>(_: impl FnOnce(A) -> R) -> usize {
        size_of::<R>()
    }

    #[test]
    fn an_idle_session_is_small() {
        // Two allocations of the worker, for as long as the session is idle: its task, and the
        // proxy's part.
        let session = size_of::<Session>();
        let task = size::<&'static Session, _>(phases::serve);
        let proxy = size::<(&'static Session, &'static Stream, &'static Proxy), _>(
            |(session, stream, proxy)| tcp(session, stream, proxy),
        );
        assert!(session + task + proxy <= 3 * 1024, "{session} + {task} + {proxy}");
    }
}
