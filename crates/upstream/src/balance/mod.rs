//! The balancing methods. Each chooses a peer of a tier under the group's lock; none changes
//! anything but weights and times of peers, and its own [`Cursor`] in the attempt.
//!
//! All of them make the same choices as nginx for the same peers and the same history
//! (`ngx_http_upstream_round_robin.c` and the modules `ngx_http_upstream_*`).

mod hash;
mod least;
pub(crate) mod points;
mod random;
mod round_robin;
mod tried_peers;

use std::net::IpAddr;

use crate::balance_input::BalanceInput;
use crate::conf::Balancer;
use crate::roster::Tier;

pub(crate) use least::{average, counts_inflight};
pub(crate) use tried_peers::Tried;

/// Maximum number of choices by hash or at random; then round robin finds a peer.
const TRIES_MAX: u32 = 20;

/// The state of a method within an attempt.
#[derive(Debug)]
pub(crate) enum Cursor {
    /// The method considers only the peers.
    None,
    /// `ip_hash`: the bytes of the address that count, the hash so far.
    IpHash { address: [u8; 16], len: usize, hash: u32, tries: u32 },
    /// `hash`: the key, the sum of hashes so far, how many there were.
    Hash { key: Box<[u8]>, hash: u32, rehash: u32, tries: u32 },
    /// `hash … consistent`: the key's hash, and the steps taken from its place.
    Consistent { empty: bool, hash: u32, steps: u32 },
    /// `random`
    Random { tries: u32 },
}

impl Cursor {
    pub(crate) fn new(balancer: &Balancer, ask: &BalanceInput<'_>) -> Cursor {
        match balancer {
            Balancer::RoundRobin | Balancer::LeastConn | Balancer::LeastTime { .. } => Cursor::None,
            Balancer::IpHash => Cursor::ip(ask.client),
            Balancer::Hash { .. } => {
                Cursor::Hash { key: ask.hash_key.into(), hash: 0, rehash: 0, tries: 0 }
            }
            Balancer::ConsistentHash { .. } => Cursor::Consistent {
                empty: ask.hash_key.is_empty(),
                hash: crc32fast::hash(ask.hash_key),
                steps: 0,
            },
            Balancer::Random | Balancer::RandomTwo(_) => Cursor::Random { tries: 0 },
        }
    }

    /// Of an IPv4 address, the first three bytes count; other addresses count as three zeros.
    fn ip(client: Option<IpAddr>) -> Cursor {
        let mut address = [0; 16];
        let len = match client {
            Some(IpAddr::V4(ip)) => {
                address[..3].copy_from_slice(&ip.octets()[..3]);
                3
            }
            Some(IpAddr::V6(ip)) => {
                address = ip.octets();
                16
            }
            None => 3,
        };
        Cursor::IpHash { address, len, hash: hash::IP_HASH_START, tries: 0 }
    }
}

/// Chooses a peer that was not tried yet; `bound`: the ID of the one that `sticky` selects.
pub(crate) fn pick(
    balancer: &Balancer,
    tier: &Tier,
    tried: &Tried,
    cursor: &mut Cursor,
    bound: Option<&[u8]>,
    now: u64,
) -> Option<usize> {
    if tier.peers.is_empty() {
        return None;
    }
    if tier.single {
        // Its failures don't matter: there is no other peer.
        let peer = &tier.peers[0];
        let draining = bound == Some(&*peer.sid) && !tried.has(0);
        return peer.is_usable_alone(draining).then_some(0);
    }
    let view = TierView { tier, tried, now };
    let sticky = bound.and_then(|sid| view.bound(sid));
    match (balancer, cursor) {
        (Balancer::RoundRobin, _) => view.round_robin(sticky),
        _ if sticky.is_some() && !matches!(balancer, Balancer::RoundRobin) => sticky,
        (Balancer::LeastConn, _) => view.least_conn(),
        (Balancer::LeastTime { time, .. }, _) => view.least_time(*time),
        (Balancer::IpHash, Cursor::IpHash { address, len, hash, tries }) => {
            view.ip_hash(&address[..*len], hash, tries)
        }
        (Balancer::Hash { .. }, Cursor::Hash { key, hash, rehash, tries }) => {
            view.hash(key, hash, rehash, tries)
        }
        (Balancer::ConsistentHash { .. }, Cursor::Consistent { empty: false, hash, steps }) => {
            view.consistent(*hash, steps)
        }
        (Balancer::Random, Cursor::Random { tries }) => view.random(tries),
        (Balancer::RandomTwo(by), Cursor::Random { tries }) => view.random_two(*by, tries),
        // As in nginx, an empty key means round robin.
        _ => view.round_robin(None),
    }
}

/// An attempt's view of a tier.
struct TierView<'a> {
    tier: &'a Tier,
    tried: &'a Tried,
    now: u64,
}

impl TierView<'_> {
    /// Whether a peer may be chosen.
    fn may(&self, n: usize) -> bool {
        !self.tried.has(n) && self.tier.peers[n].is_available(self.now, false)
    }

    /// The peer with this id, if it may be used.
    fn bound(&self, sid: &[u8]) -> Option<usize> {
        let n = self.tier.peers.iter().position(|peer| *peer.sid == *sid)?;
        let usable = !self.tried.has(n) && self.tier.peers[n].is_available(self.now, true);
        usable.then_some(n)
    }

    /// The peer at a position among the weights of all.
    fn at_weight(&self, mut position: u64) -> usize {
        for (n, peer) in self.tier.peers.iter().enumerate() {
            let weight = u64::from(peer.weight);
            if position < weight {
                return n;
            }
            position -= weight;
        }
        self.tier.peers.len() - 1
    }
}
