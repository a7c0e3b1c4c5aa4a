//! A received datagram.

use std::net::{IpAddr, SocketAddr};

use bytes::Bytes;

/// A datagram that was received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packet {
    /// The contents; may be empty.
    pub data: Bytes,
    /// The sender, if it has an IP address.
    pub from: Option<SocketAddr>,
    /// The address that it was sent to, if the socket receives for several.
    pub local: Option<IpAddr>,
}
