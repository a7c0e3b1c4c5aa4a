//! Events of peers that get no more requests, or get them again.
//!
//! Called by [`super::selected_peer`] and health checks when that changes; never for a request that changes nothing.

use nowait_runtime::events::{self, EventKind};

use crate::peer::Peer;

/// A peer gets no requests, and why.
#[cold]
pub(crate) fn is_down(group: &[u8], peer: &Peer, why: &str) {
    let (subject, group) = names(group, peer);
    let text =
        format_args!("peer {} of upstream \"{group}\" {why}: it gets no requests", peer.name());
    events::record(EventKind::PeerDown, &subject, text);
}

/// It gets requests again, because health checks pass.
#[cold]
pub(crate) fn is_healthy(group: &[u8], peer: &Peer) {
    let (subject, group) = names(group, peer);
    let text =
        format_args!("peer {} of upstream \"{group}\" has passed health checks", peer.name());
    events::record(EventKind::PeerUp, &subject, text);
}

/// It gets requests again, because one has succeeded.
#[cold]
pub(crate) fn is_up(group: &[u8], peer: &Peer) {
    let (subject, group) = names(group, peer);
    let text = format_args!("peer {} of upstream \"{group}\" is in use again", peer.name());
    events::announce(EventKind::PeerUp, &subject, text);
}

/// The subject of an event, and the name of the group.
fn names(group: &[u8], peer: &Peer) -> (String, String) {
    let group = String::from_utf8_lossy(group).into_owned();
    (format!("{group} {}", peer.name()), group)
}
