//! What a session has tried: for `$upstream_…` and log lines. nginx: `ngx_stream_upstream_state_t`.

use std::sync::Arc;
use std::time::Duration;

use nowait_upstream::Peer;

/// Who was tried.
#[derive(Clone, Debug)]
pub enum PeerName {
    /// A server.
    Peer(Arc<Peer>),
    /// A group of which no server could be used.
    Text(Box<str>),
}

/// An upstream server that was tried.
#[derive(Clone, Debug)]
pub struct Try {
    peer: PeerName,
    /// How long it took to connect; `None`: it was not reached.
    pub connect: Option<Duration>,
    /// How long its first byte took; `None`: it has sent nothing.
    pub first_byte: Option<Duration>,
    /// How long all of it took; `None`: it goes on.
    pub session: Option<Duration>,
    /// Bytes that came from it.
    pub received: u64,
    /// Bytes that went to it.
    pub sent: u64,
}

impl Try {
    /// One that begins.
    pub fn new(peer: PeerName) -> Self {
        Self { peer, connect: None, first_byte: None, session: None, received: 0, sent: 0 }
    }

    /// The address, or the name of the group.
    pub fn name(&self) -> &str {
        match &self.peer {
            PeerName::Peer(peer) => peer.name(),
            PeerName::Text(text) => text,
        }
    }
}
