//! The tries of a session: for `$upstream_…` and log lines. nginx: `ngx_stream_upstream_state_t`.

use std::sync::Arc;
use std::time::Duration;

use nowait_upstream::Peer;

/// The target of a try.
#[derive(Clone, Debug)]
pub enum PeerName {
    /// A server.
    Peer(Arc<Peer>),
    /// A group of which no server could be used.
    Text(Box<str>),
}

/// A try of an upstream server.
#[derive(Clone, Debug)]
pub struct Try {
    peer: PeerName,
    /// Time to connect; `None`: no connection.
    pub connect: Option<Duration>,
    /// Time to the first byte; `None`: none was received.
    pub first_byte: Option<Duration>,
    /// Total time; `None`: in progress.
    pub session: Option<Duration>,
    /// Bytes received from it.
    pub received: u64,
    /// Bytes sent to it.
    pub sent: u64,
}

impl Try {
    /// A try that begins.
    pub fn new(peer: PeerName) -> Self {
        Self { peer, connect: None, first_byte: None, session: None, received: 0, sent: 0 }
    }

    /// The server, if one was chosen.
    pub fn peer(&self) -> Option<&Peer> {
        match &self.peer {
            PeerName::Peer(peer) => Some(peer),
            PeerName::Text(_) => None,
        }
    }

    /// The address, or the name of the group.
    pub fn name(&self) -> &str {
        match &self.peer {
            PeerName::Peer(peer) => peer.name(),
            PeerName::Text(text) => text,
        }
    }
}
