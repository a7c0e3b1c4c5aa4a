//! The properties of a request that the choice of a peer may depend on.

use std::net::IpAddr;

/// Properties of a request that the choice of its peer may depend on.
#[derive(Clone, Copy, Debug, Default)]
pub struct BalanceInput<'a> {
    /// The client's address, for `ip_hash`; `None`: not an IP address.
    pub client: Option<IpAddr>,
    /// The value of [`GroupConf::hash_key`](crate::GroupConf::hash_key).
    pub hash_key: &'a [u8],
    /// The first of [`Sticky::lookup`](crate::Sticky::lookup) that is not empty.
    pub sticky: Option<&'a [u8]>,
}
