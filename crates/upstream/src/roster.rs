//! The peers of a group at one time: primary servers and backups.
//!
//! A roster never changes; a new result of the resolver makes a new one. An attempt keeps the roster that
//! it began with.

use std::sync::{Arc, OnceLock};

use crate::balance::points::Points;
use crate::conf::ServerMode;
use crate::peer::Peer;

/// All peers.
#[derive(Debug, Default)]
pub(crate) struct Roster {
    pub(crate) primary: Tier,
    pub(crate) backup: Tier,
}

/// Peers of the same rank.
#[derive(Debug, Default)]
pub(crate) struct Tier {
    pub(crate) peers: Vec<Arc<Peer>>,
    pub(crate) total_weight: u64,
    /// Peers that are not `down`.
    usable: usize,
    /// There is no other peer in the group: its failures are ignored.
    pub(crate) single: bool,
    /// The ring of `hash … consistent`; built at first use.
    points: OnceLock<Points>,
}

impl Tier {
    fn new(peers: Vec<Arc<Peer>>) -> Tier {
        Tier {
            total_weight: peers.iter().map(|peer| u64::from(peer.weight)).sum(),
            usable: peers.iter().filter(|peer| peer.down == ServerMode::Up).count(),
            peers,
            ..Tier::default()
        }
    }

    /// The ring of `hash … consistent`.
    pub(crate) fn points(&self) -> &Points {
        self.points.get_or_init(|| Points::of(&self.peers))
    }
}

impl Roster {
    pub(crate) fn new(peers: Vec<Arc<Peer>>) -> Roster {
        let (backup, primary): (Vec<_>, Vec<_>) = peers.into_iter().partition(|peer| peer.backup);
        let mut roster = Roster { primary: Tier::new(primary), backup: Tier::new(backup) };
        roster.primary.single = roster.primary.peers.len() == 1 && roster.backup.peers.is_empty();
        roster
    }

    /// Maximum number of peers that a request may try. nginx: `ngx_http_upstream_tries`.
    pub(crate) fn tries(&self) -> usize {
        self.primary.usable + self.backup.usable
    }

    pub(crate) fn peers(&self) -> impl Iterator<Item = &Arc<Peer>> {
        self.primary.peers.iter().chain(&self.backup.peers)
    }
}
