//! Smooth weighted round robin: each peer gains its weight; the first one with the greatest value
//! is chosen and loses the sum. Peers of weights 5, 1, 1 are chosen as `a a b a c a a`, not in
//! blocks.

use std::cmp::Ordering;
use std::sync::atomic::Ordering::Relaxed;

use super::TierView;
use crate::peer::{Peer, WEIGHT_SCALE};

impl TierView<'_> {
    /// The next peer; `sticky` is one already chosen, whose turn is counted.
    pub(super) fn round_robin(&self, sticky: Option<usize>) -> Option<usize> {
        if let Some(n) = sticky {
            // A peer with many bound requests must not fall so far behind that it would get no others for a
            // long time.
            let peer = &self.tier.peers[n];
            let others = self.tier.total_weight.saturating_sub(u64::from(peer.weight));
            let limit = -(i64::try_from(others).unwrap_or(i64::MAX / WEIGHT_SCALE) * WEIGHT_SCALE);
            if peer.state.current.load(Relaxed) <= limit {
                return Some(n);
            }
        }
        let (best, total) = self.turn(0, None, |_| true);
        let best = sticky.or(best)?;
        self.tier.peers[best].state.current.fetch_sub(total, Relaxed);
        Some(best)
    }

    /// Gives each peer from `first` on that may be chosen and is among `wanted` its weight. Returns the
    /// greatest and the sum of what was given. `best`: the best peer so far, which is `first`.
    pub(super) fn turn(
        &self,
        first: usize,
        mut best: Option<usize>,
        wanted: impl Fn(usize) -> bool,
    ) -> (Option<usize>, i64) {
        let mut total = 0;
        let none_tried = self.tried.is_empty();
        // The value of a peer that is the best so far counts when its turn comes: it is the first.
        let mut greatest = i64::MIN;
        // There may be thousands: an instruction here is one for each of them and request.
        for (n, peer) in self.tier.peers.iter().enumerate().skip(first) {
            if (!none_tried && self.tried.has(n)) || !wanted(n) {
                continue;
            }
            let gain = match peer.is_settled() {
                true => peer.state.effective.load(Relaxed) * WEIGHT_SCALE,
                false => match self.gain(peer) {
                    Some(gain) => gain,
                    None => continue,
                },
            };
            let current = peer.state.current.load(Relaxed) + gain;
            peer.state.current.store(current, Relaxed);
            total += gain;
            if current > greatest {
                (best, greatest) = (Some(n), current);
            }
        }
        (best, total)
    }

    /// What a turn gives to a peer that may not be as it should; `None`: it may not be chosen now.
    #[inline(never)]
    fn gain(&self, peer: &Peer) -> Option<i64> {
        if !peer.is_available(self.now, false) {
            return None;
        }
        let effective = peer.state.effective.load(Relaxed);
        let gain = peer.scaled(effective, self.now);
        // A request of an older configuration may know another weight: the state belongs to the newest.
        let weight = i64::from(peer.state.weight.load(Relaxed));
        match effective.cmp(&weight) {
            Ordering::Less => peer.state.effective.store(effective + 1, Relaxed),
            Ordering::Greater => peer.state.effective.store(weight, Relaxed),
            Ordering::Equal => {}
        }
        peer.settle();
        Some(gain)
    }
}
