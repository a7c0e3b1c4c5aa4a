//! Types for drivers and their callers: a socket's identity, its role, and its waits.

use std::net::{IpAddr, SocketAddr};

/// Identifies a socket within its driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SocketKey(pub(super) u32);

/// The role of a socket, which decides how it is watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// A connection of any origin.
    Stream,
    /// A connection that is being established: no data can have arrived yet.
    Connecting,
    /// A connection accepted by a driver of this kind, and already set up the way it needs.
    Accepted,
    /// A UDP socket.
    Datagram,
    /// A listening socket; `shared` with other workers or processes.
    Listener { shared: bool },
}

/// The output after a send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AfterSend {
    /// More data, at once: the kernel may hold back a partial segment.
    AtOnce,
    /// More data, fetched when this has been sent.
    Later,
    /// None for now: the driver may report a small chain as sent when it submits it.
    Nothing,
}

/// The kinds of waits that a socket can have at the same time, one future each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    /// Receive, accept.
    Read,
    /// Send, connect, writability.
    Write,
    /// The peer has disconnected.
    Hangup,
}

/// Destination and source of a datagram.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct DatagramAddresses {
    /// `None`: the peer that the socket is connected to.
    pub(crate) to: Option<SocketAddr>,
    /// `None`: the kernel chooses.
    pub(crate) local: Option<IpAddr>,
}
