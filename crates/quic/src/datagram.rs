//! A datagram on its way from a socket to its connection.

use std::net::{IpAddr, SocketAddr};

use bytes::BytesMut;

/// A datagram that was received.
#[derive(Clone, Debug)]
pub(crate) struct Datagram {
    pub(crate) data: BytesMut,
    pub(crate) from: SocketAddr,
    /// The address that it was sent to.
    pub(crate) local: Option<IpAddr>,
    pub(crate) ecn: u8,
}
