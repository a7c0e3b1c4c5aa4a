//! Connections to upstreams: idle ones, and new ones.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use nowait_runtime::net::{Address, ConnectError, ConnectOptions, Stream};
use nowait_runtime::now;
use nowait_upstream::{IdleConnection, Peer, Picked, Tag, Times};

use super::settings::Settings;

/// A connection and its peer, both held for one request.
pub(super) struct Link {
    pub(super) stream: Rc<Stream>,
    /// Whether it has served requests before.
    pub(super) reused: bool,
    peer: Picked,
    tag: Tag,
    connection: IdleConnection,
}

/// Why there is no connection.
pub(super) enum Unconnected {
    /// The peer can't be reached.
    Failed(ConnectError),
    /// Our own end can't be set up (socket, option, bind): the request fails.
    Ours(ConnectError),
}

/// Takes an idle connection of this worker to the peer.
///
/// # Errors
/// Returns the peer if it has no idle connection.
pub(super) fn idle(peer: Picked, tag: Tag) -> Result<Link, Picked> {
    match peer.idle_take(tag) {
        Some(idle) => Ok(Link::new(idle, true, peer, tag)),
        None => Err(peer),
    }
}

/// Takes an idle connection to the peer, or opens one. `bind`: our own address, and whether it may be
/// one that this machine does not have.
///
/// # Errors
/// [`Unconnected`], with the peer.
pub(super) async fn connect(
    peer: Picked,
    bind: Option<&(Address, bool)>,
    settings: &Settings,
    tag: Tag,
) -> Result<Link, (Unconnected, Picked)> {
    let peer = match idle(peer, tag) {
        Ok(link) => return Ok(link),
        Err(peer) => peer,
    };
    if let Some(idle) = peer.idle_take_any(tag).await {
        return Ok(Link::new(idle, true, peer, tag));
    }
    let mut options = ConnectOptions::new(settings.connect_timeout);
    options.keepalive = settings.socket_keepalive;
    options.receive_buffer = settings.socket_rcvbuf;
    options.send_buffer = settings.socket_sndbuf;
    if let Some((address, transparent)) = bind {
        options.bind = Some(address);
        options.transparent = *transparent;
    }
    match Stream::connect_with(peer.address(), &options).await {
        Ok(stream) => Ok(Link::new(IdleConnection::new(stream, now()), false, peer, tag)),
        Err(
            error @ (ConnectError::Socket(_) | ConnectError::Option(..) | ConnectError::Bind(_)),
        ) => Err((Unconnected::Ours(error), peer)),
        Err(error) => Err((Unconnected::Failed(error), peer)),
    }
}

impl Link {
    pub(super) fn new(connection: IdleConnection, reused: bool, peer: Picked, tag: Tag) -> Self {
        Self { stream: connection.stream.clone(), reused, peer, tag, connection }
    }

    pub(super) fn peer(&self) -> &Arc<Peer> {
        self.peer.peer()
    }

    pub(super) fn header_received(&mut self, status: u16, time: Duration) {
        self.peer.count_response(status);
        self.peer.header_received(now(), time);
    }

    pub(super) fn count_bytes(&self, sent: u64, received: u64) {
        self.peer.count_bytes(sent, received);
    }

    /// Releases the connection after a response; it is kept if it is reusable. `times`: to the head
    /// and to the end of a complete response.
    pub(super) fn release(self, reusable: bool, times: Option<(Duration, Duration)>) {
        let Link { stream, peer, tag, connection, .. } = self;
        drop(stream);
        if reusable {
            peer.idle_put(connection, tag);
        }
        let times = times.map(|(header, response)| Times { header, response });
        peer.succeeded(now(), times);
    }

    /// Closes the connection; the caller counts the failure or success of the peer.
    pub(super) fn into_peer(self) -> Picked {
        self.peer
    }
}
