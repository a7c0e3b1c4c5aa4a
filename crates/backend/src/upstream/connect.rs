//! Connections to upstreams: idle ones, and new ones.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use nowait_front::tls::upstream::{ConnectFailure, HandshakeParams};
use nowait_front::tls::{Handshake, Tls};
use nowait_http::request::Request;
use nowait_http::upstream_state::UpstreamState;
use nowait_runtime::net::{Address, ConnectError, ConnectOptions, Stream, Unread};
use nowait_runtime::now;
use nowait_upstream::{IdleConnection, Keepalive, Peer, SelectedPeer, Tag, Times};

use super::http2::{self, HeldStream, Key, Opening, QueueError, StreamChoice, Usage};
use super::pipe::Pipe;
use super::settings::Settings;

/// A connection, held for one request.
pub(super) struct Link {
    pub(super) pipe: Pipe,
    /// Whether it has served requests before.
    pub(super) reused: bool,
    holder: Holder,
    hold: Hold,
}

/// The connection or stream.
enum Hold {
    /// A connection.
    Connection(Box<IdleConnection>),
    /// A stream of a shared connection, released on drop.
    Stream(#[expect(dead_code, reason = "it acts when it is dropped")] HeldStream),
}

/// The owner of a connection, to which it is returned.
enum Holder {
    /// A client's request: its peer.
    Request(SelectedPeer, Tag),
    /// A probe, which counts nowhere.
    Probe(Slot),
}

/// The place of a probe's connection.
pub(super) type Slot = Rc<Cell<Option<Box<IdleConnection>>>>;

/// The reason why there is no connection.
pub(super) enum ConnectionError {
    /// The peer can't be reached.
    Failed(ConnectError),
    /// Our own end can't be set up (socket, option, bind): the request fails.
    Ours(ConnectError),
    /// There is no session with the peer.
    Tls(ConnectFailure),
    /// The server offers no HTTP/2.
    NoHttp2,
    /// The server offers no tunnels over HTTP/2.
    NoTunnels,
    /// Too many requests wait for a stream.
    Overflow,
}

/// The kept connections that may serve a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reuse {
    /// Any: if the server has closed the connection meanwhile, the request is repeated.
    Any,
    /// For a request that can't be repeated: connections without received data or end, whose check costs a
    /// system call.
    Silent,
}

impl Reuse {
    /// Whether a connection that was kept for one request at a time may serve.
    fn allows(self, connection: &IdleConnection) -> bool {
        self == Self::Any || connection.stream.unread() == Unread::Nothing
    }
}

/// Takes an idle connection of this worker to the peer; those that may not serve are closed.
///
/// # Errors
/// Returns the peer if it has no idle connection.
pub(super) fn idle(peer: SelectedPeer, tag: Tag, reuse: Reuse) -> Result<Link, SelectedPeer> {
    while let Some(idle) = peer.idle_take(tag) {
        if reuse.allows(&idle) {
            return Ok(Link::new(idle, true, peer, tag));
        }
    }
    Err(peer)
}

/// The parameters of opening a connection.
pub(super) struct ConnectParams<'a> {
    /// The local address, and whether it may be non-local (`transparent`).
    pub(super) bind: Option<&'a (Address, bool)>,
    /// The TLS parameters, if any.
    pub(super) tls: Option<&'a HandshakeParams>,
    pub(super) settings: &'a Settings,
    /// Whether a stream becomes a tunnel.
    pub(super) tunnels: bool,
    /// The kept connections that may serve.
    pub(super) reuse: Reuse,
    /// Shows the current action.
    pub(super) state: &'a UpstreamState,
}

/// Takes an idle connection to the peer, or opens one.
///
/// # Errors
/// [`ConnectionError`], with the peer.
pub(super) async fn connect(
    request: &Request,
    peer: SelectedPeer,
    how: ConnectParams<'_>,
    tag: Tag,
) -> Result<Link, (ConnectionError, SelectedPeer)> {
    if how.settings.shares_connections {
        return match lane(request, &peer, &how, tag).await {
            Ok(lane) if how.tunnels => match offers_tunnels(&lane, &how).await {
                Ok(()) => Ok(Link::of_lane(lane, Holder::Request(peer, tag))),
                Err(error) => Err((error, peer)),
            },
            Ok(lane) => Ok(Link::of_lane(lane, Holder::Request(peer, tag))),
            Err(error) => Err((error, peer)),
        };
    }
    let peer = match idle(peer, tag, how.reuse) {
        Ok(link) => return Ok(link),
        Err(peer) => peer,
    };
    if let Some(idle) = peer.idle_take_any(tag).await.filter(|idle| how.reuse.allows(idle)) {
        return Ok(Link::new(idle, true, peer, tag));
    }
    match open(request, peer.address(), &how).await {
        Ok(connection) => Ok(Link::new(connection, false, peer, tag)),
        Err(error) => Err((error, peer)),
    }
}

/// A stream to the peer, for which a connection may have to be opened.
///
/// # Errors
/// [`ConnectionError`]
async fn lane(
    request: &Request,
    peer: &SelectedPeer,
    how: &ConnectParams<'_>,
    tag: Tag,
) -> Result<HeldStream, ConnectionError> {
    let key = Key::new(peer, tag);
    loop {
        match http2::find(key, how.settings.connect_timeout).await {
            Ok(StreamChoice::Stream(lane)) => {
                if how.reuse == Reuse::Any || lane.is_fit().await {
                    return Ok(lane);
                }
                // The connection accepts no more requests, so the next look-up finds another one.
            }
            Ok(StreamChoice::Open(opening)) => {
                let connection = open(request, peer.address(), how).await?;
                let keepalive = peer.group().conf().keepalive;
                let send_timeout = how.settings.send_timeout;
                let usage = Usage { keepalive, send_timeout, is_owned: false };
                return Ok(opening.opened(&connection, usage));
            }
            Err(QueueError::TimedOut) => {
                return Err(ConnectionError::Failed(ConnectError::TimedOut));
            }
            Err(QueueError::Overflow) => return Err(ConnectionError::Overflow),
        }
    }
}

/// Waits until it is known that the server takes extended CONNECT.
///
/// # Errors
/// [`ConnectionError`]
async fn offers_tunnels(lane: &HeldStream, how: &ConnectParams<'_>) -> Result<(), ConnectionError> {
    match lane.takes_tunnels(how.settings.connect_timeout).await {
        Ok(true) => Ok(()),
        Ok(false) => Err(ConnectionError::NoTunnels),
        Err(_) => Err(ConnectionError::Failed(ConnectError::TimedOut)),
    }
}

/// Opens a connection.
///
/// # Errors
/// [`ConnectionError`]
pub(super) async fn open(
    request: &Request,
    address: &Address,
    how: &ConnectParams<'_>,
) -> Result<Box<IdleConnection>, ConnectionError> {
    let &ConnectParams { bind, tls, settings, state, .. } = how;
    let mut options = ConnectOptions::new(settings.connect_timeout);
    options.keepalive = settings.socket_keepalive;
    options.receive_buffer = settings.socket_rcvbuf;
    options.send_buffer = settings.socket_sndbuf;
    if let Some((address, transparent)) = bind {
        options.bind = Some(address);
        options.transparent = *transparent;
    }
    let stream = Stream::connect_with(address, &options).await.map_err(|error| match error {
        ConnectError::Socket(_) | ConnectError::Option(..) | ConnectError::Bind(_) => {
            ConnectionError::Ours(error)
        }
        error => ConnectionError::Failed(error),
    })?;
    if let (Some(wish), Some(tls)) = (tls, &settings.tls) {
        state.set_action(Some("SSL handshaking to upstream"));
        let handshake = Handshake {
            timeout: settings.connect_timeout,
            pool: request.current().compute_pool().clone(),
            client: request.client().number,
        };
        // Boxed: plain connections don't need its memory.
        let made = Box::pin(tls.connect(&stream, address, wish, &handshake, || request.io()));
        made.await.map_err(ConnectionError::Tls)?;
        if settings.shares_connections
            && stream.with_layer(|tls: &Tls| tls.session().alpn() == Some(b"h2")) != Some(true)
        {
            return Err(ConnectionError::NoHttp2);
        }
    }
    Ok(IdleConnection::new(stream, now()))
}

impl Link {
    /// A connection to a peer.
    pub(super) fn new(
        connection: Box<IdleConnection>,
        reused: bool,
        peer: SelectedPeer,
        tag: Tag,
    ) -> Self {
        Self::of(connection, reused, Holder::Request(peer, tag))
    }

    /// A connection for a probe, and the place where it is left if it can be reused.
    pub(super) fn of_probe(connection: Box<IdleConnection>, reused: bool) -> (Self, Slot) {
        let slot = Slot::default();
        (Self::of(connection, reused, Holder::Probe(slot.clone())), slot)
    }

    /// The only stream of a connection for a probe, which leaves no connection behind.
    pub(super) fn of_probe_alone(connection: &IdleConnection, settings: &Settings) -> (Self, Slot) {
        let keepalive = Keepalive { connections: 0, ..Keepalive::default() };
        let usage = Usage { keepalive, send_timeout: settings.send_timeout, is_owned: false };
        let lane = Opening::alone().opened(connection, usage);
        let slot = Slot::default();
        (Self::of_lane(lane, Holder::Probe(slot.clone())), slot)
    }

    fn of(connection: Box<IdleConnection>, reused: bool, holder: Holder) -> Self {
        let pipe = Pipe::Own(connection.stream.clone());
        Self { pipe, reused, holder, hold: Hold::Connection(connection) }
    }

    fn of_lane(lane: HeldStream, holder: Holder) -> Self {
        let pipe = Pipe::Stream(lane.lane().clone());
        Self { pipe, reused: lane.is_reused(), holder, hold: Hold::Stream(lane) }
    }

    /// The peer; a probe has none.
    pub(super) fn peer(&self) -> Option<&Arc<Peer>> {
        match &self.holder {
            Holder::Request(peer, _) => Some(peer.peer()),
            Holder::Probe(_) => None,
        }
    }

    pub(super) fn header_received(&mut self, status: u16, time: Duration) {
        if let Holder::Request(peer, _) = &mut self.holder {
            peer.count_response(status);
            peer.header_received(now(), time);
        }
    }

    pub(super) fn count_bytes(&self, sent: u64, received: u64) {
        if let Holder::Request(peer, _) = &self.holder {
            peer.count_bytes(sent, received);
        }
    }

    /// Releases the connection after a response; it is kept if it is reusable. `times`: to the head
    /// and to the end of a complete response.
    pub(super) fn release(self, reusable: bool, times: Option<(Duration, Duration)>) {
        let Link { pipe, holder, hold, .. } = self;
        drop(pipe);
        let connection = match hold {
            Hold::Connection(connection) => Some(connection),
            Hold::Stream(_) => None,
        };
        let connection = connection.filter(|_| reusable);
        match holder {
            Holder::Request(peer, tag) => {
                if let Some(connection) = connection {
                    peer.idle_put(connection, tag);
                }
                let times = times.map(|(header, response)| Times { header, response });
                peer.succeeded(now(), times);
            }
            Holder::Probe(slot) => slot.set(connection),
        }
    }

    /// Closes the connection; the caller counts the failure or success of the peer.
    pub(super) fn into_peer(self) -> Option<SelectedPeer> {
        match self.holder {
            Holder::Request(peer, _) => Some(peer),
            Holder::Probe(_) => None,
        }
    }
}
