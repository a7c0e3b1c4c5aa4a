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

use super::http2::{self, Found, Held, Key, Opening, Unfound, Usage};
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

/// What is held.
enum Hold {
    /// A connection.
    Connection(Box<IdleConnection>),
    /// A stream of a shared one, which is left when this is dropped.
    Lane(#[expect(dead_code, reason = "it acts when it is dropped")] Held),
}

/// Who holds a connection, and gets it back.
enum Holder {
    /// A client's request: its peer.
    Request(SelectedPeer, Tag),
    /// A probe, which counts nowhere.
    Probe(Slot),
}

/// Where a probe finds its connection again.
pub(super) type Slot = Rc<Cell<Option<Box<IdleConnection>>>>;

/// Why there is no connection.
pub(super) enum Unconnected {
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

/// Which kept connections serve a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reuse {
    /// Any: if the server has closed it meanwhile, the request is repeated.
    Any,
    /// For a request that can't be repeated: those on which nothing has arrived, not even their end,
    /// which costs a system call.
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

/// How a connection is opened.
pub(super) struct How<'a> {
    /// Our own address, and whether it may be one that this machine does not have.
    pub(super) bind: Option<&'a (Address, bool)>,
    /// What it needs, if it has TLS.
    pub(super) tls: Option<&'a HandshakeParams>,
    pub(super) settings: &'a Settings,
    /// Whether a stream becomes a tunnel.
    pub(super) tunnels: bool,
    /// Which kept connections serve.
    pub(super) reuse: Reuse,
    /// Shows what is being done.
    pub(super) state: &'a UpstreamState,
}

/// Takes an idle connection to the peer, or opens one.
///
/// # Errors
/// [`Unconnected`], with the peer.
pub(super) async fn connect(
    request: &Request,
    peer: SelectedPeer,
    how: How<'_>,
    tag: Tag,
) -> Result<Link, (Unconnected, SelectedPeer)> {
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
/// [`Unconnected`]
async fn lane(
    request: &Request,
    peer: &SelectedPeer,
    how: &How<'_>,
    tag: Tag,
) -> Result<Held, Unconnected> {
    let key = Key::new(peer, tag);
    loop {
        match http2::find(key, how.settings.connect_timeout).await {
            Ok(Found::Lane(lane)) => {
                if how.reuse == Reuse::Any || lane.is_fit().await {
                    return Ok(lane);
                }
                // The connection takes no more requests: the next one found is another.
            }
            Ok(Found::Open(opening)) => {
                let connection = open(request, peer.address(), how).await?;
                let keepalive = peer.group().conf().keepalive;
                let usage = Usage { keepalive, send_timeout: how.settings.send_timeout };
                return Ok(opening.opened(&connection, usage));
            }
            Err(Unfound::TimedOut) => return Err(Unconnected::Failed(ConnectError::TimedOut)),
            Err(Unfound::Overflow) => return Err(Unconnected::Overflow),
        }
    }
}

/// Waits until it is known that the server takes extended CONNECT.
///
/// # Errors
/// [`Unconnected`]
async fn offers_tunnels(lane: &Held, how: &How<'_>) -> Result<(), Unconnected> {
    match lane.takes_tunnels(how.settings.connect_timeout).await {
        Ok(true) => Ok(()),
        Ok(false) => Err(Unconnected::NoTunnels),
        Err(_) => Err(Unconnected::Failed(ConnectError::TimedOut)),
    }
}

/// Opens a connection.
///
/// # Errors
/// [`Unconnected`]
pub(super) async fn open(
    request: &Request,
    address: &Address,
    how: &How<'_>,
) -> Result<Box<IdleConnection>, Unconnected> {
    let &How { bind, tls, settings, state, .. } = how;
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
            Unconnected::Ours(error)
        }
        error => Unconnected::Failed(error),
    })?;
    if let (Some(wish), Some(tls)) = (tls, &settings.tls) {
        state.set_action(Some("SSL handshaking to upstream"));
        let handshake = Handshake {
            timeout: settings.connect_timeout,
            pool: request.current.compute_pool().clone(),
            client: request.client().number,
        };
        // Boxed: plain connections don't need its memory.
        let made = Box::pin(tls.connect(&stream, address, wish, &handshake, || request.io()));
        made.await.map_err(Unconnected::Tls)?;
        if settings.shares_connections
            && stream.with_layer(|tls: &Tls| tls.session().alpn() == Some(b"h2")) != Some(true)
        {
            return Err(Unconnected::NoHttp2);
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

    /// The only stream of a connection for a probe, and the place where nothing is left.
    pub(super) fn of_probe_alone(connection: &IdleConnection, settings: &Settings) -> (Self, Slot) {
        let keepalive = Keepalive { connections: 0, ..Keepalive::default() };
        let usage = Usage { keepalive, send_timeout: settings.send_timeout };
        let lane = Opening::alone().opened(connection, usage);
        let slot = Slot::default();
        (Self::of_lane(lane, Holder::Probe(slot.clone())), slot)
    }

    fn of(connection: Box<IdleConnection>, reused: bool, holder: Holder) -> Self {
        let pipe = Pipe::Own(connection.stream.clone());
        Self { pipe, reused, holder, hold: Hold::Connection(connection) }
    }

    fn of_lane(lane: Held, holder: Holder) -> Self {
        let pipe = Pipe::Lane(lane.lane().clone());
        Self { pipe, reused: lane.is_reused(), holder, hold: Hold::Lane(lane) }
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
            Hold::Lane(_) => None,
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
