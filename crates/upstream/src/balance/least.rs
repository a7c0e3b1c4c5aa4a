//! `least_conn` and `least_time`. Equal peers take turns as in round robin.

use std::sync::atomic::Ordering::Relaxed;

use super::TierView;
use crate::conf::{BalanceCriterion, Balancer, Time};
use crate::peer::Peer;

/// Longer times all count as equally bad: connections decide.
const TIME_MAX_MS: u64 = 5000;

/// Times are rounded to this unit, so that peers with similar times take turns.
const TIME_STEP_MS: u64 = 20;

/// Whether the method counts requests without a response.
pub(crate) fn counts_inflight(balancer: &Balancer) -> bool {
    matches!(balancer, Balancer::LeastTime { inflight: true, .. })
}

impl TierView<'_> {
    pub(super) fn least_conn(&self) -> Option<usize> {
        self.least(|peer| u64::from(peer.state.conns.load(Relaxed)))
    }

    pub(super) fn least_time(&self, time: Time) -> Option<usize> {
        for (n, peer) in self.tier.peers.iter().enumerate() {
            if self.may(n) {
                peer.note_inflight(self.now);
            }
        }
        self.least(|peer| estimate(peer, time, self.now))
    }

    /// The peer with the lowest load per weight.
    fn least(&self, load: impl Fn(&Peer) -> u64) -> Option<usize> {
        // Loads are compared by cross-multiplication with the weights, to avoid divisions.
        let weight = |n: usize| {
            let peer = &self.tier.peers[n];
            peer.scaled(i64::from(peer.weight), self.now).max(1) as u128
        };
        let load = |n: usize| u128::from(load(&self.tier.peers[n]));
        let mut best: Option<usize> = None;
        let mut many = false;
        for n in 0..self.tier.peers.len() {
            if !self.may(n) {
                continue;
            }
            let Some(least) = best else {
                best = Some(n);
                continue;
            };
            match (load(n) * weight(least)).cmp(&(load(least) * weight(n))) {
                std::cmp::Ordering::Less => {
                    best = Some(n);
                    many = false;
                }
                std::cmp::Ordering::Equal => many = true,
                std::cmp::Ordering::Greater => {}
            }
        }
        let least = best?;
        if !many {
            return Some(least);
        }
        let equal = |n: usize| load(n) * weight(least) == load(least) * weight(n);
        let (chosen, total) = self.turn(least, Some(least), equal);
        let chosen = chosen.unwrap_or(least);
        self.tier.peers[chosen].state.current.fetch_sub(total, Relaxed);
        Some(chosen)
    }

    /// Whether `one` is worse than `other`.
    pub(super) fn is_worse(&self, one: usize, other: usize, by: BalanceCriterion) -> bool {
        let load = |n: usize| {
            let peer = &self.tier.peers[n];
            match by {
                BalanceCriterion::Connections => u128::from(peer.state.conns.load(Relaxed)),
                BalanceCriterion::Time(time) => u128::from(estimate(peer, time, self.now)),
            }
        };
        let weight = |n: usize| u128::from(self.tier.peers[n].weight);
        load(one) * weight(other) > load(other) * weight(one)
    }
}

/// The estimated time of a peer for its present requests and one more.
fn estimate(peer: &Peer, time: Time, now: u64) -> u64 {
    let state = &peer.state;
    let mut ms = match time {
        Time::Header | Time::FirstByte => state.header_time.load(Relaxed),
        Time::Connect => state.connect_time.load(Relaxed),
        Time::LastByte => state.response_time.load(Relaxed),
    };
    // A slow peer that is no longer chosen gets another chance: its time is halved once per
    // `fail_timeout`.
    let since = now.saturating_sub(state.checked.load(Relaxed));
    if since > peer.fail_timeout_ms {
        let halvings = since / (peer.fail_timeout_ms + 1000);
        ms = ms.checked_shr(u32::try_from(halvings).unwrap_or(u32::MAX)).unwrap_or(0);
    }
    if state.inflight.load(Relaxed) > 0 {
        ms = ms.max(state.inflight_time.load(Relaxed));
    }
    let ms = if ms > TIME_MAX_MS { TIME_MAX_MS } else { ms + TIME_STEP_MS - ms % TIME_STEP_MS };
    ms * (1 + u64::from(state.conns.load(Relaxed)))
}

impl Peer {
    /// Adds the time that requests in flight have taken so far to its average.
    fn note_inflight(&self, now: u64) {
        let state = &self.state;
        let count = u64::from(state.inflight.load(Relaxed));
        if let Some(each) = state.inflight_last.load(Relaxed).checked_div(count) {
            let changed = state.inflight_changed.load(Relaxed);
            average(&state.inflight_time, each + now.saturating_sub(changed));
        }
    }

    /// Adds a request without a response.
    pub(crate) fn inflight_begun(&self, now: u64) {
        let state = &self.state;
        let count = u64::from(state.inflight.fetch_add(1, Relaxed));
        let changed = state.inflight_changed.swap(now, Relaxed);
        if count > 0 {
            let spent = now.saturating_sub(changed) * count;
            state.inflight_last.fetch_add(spent, Relaxed);
        }
    }

    /// Removes a request, which took `last` ms.
    pub(crate) fn inflight_ended(&self, now: u64, last: u64) {
        let state = &self.state;
        let count = u64::from(state.inflight.fetch_sub(1, Relaxed));
        debug_assert!(count > 0, "more requests ended than began");
        if count <= 1 {
            state.inflight_last.store(0, Relaxed);
            return;
        }
        let changed = state.inflight_changed.swap(now, Relaxed);
        let spent = now.saturating_sub(changed) * count;
        let sum = state.inflight_last.load(Relaxed).saturating_add(spent);
        state.inflight_last.store(sum.saturating_sub(last), Relaxed);
    }
}

/// Moves an average towards a value by a twentieth of the difference, rounded.
pub(crate) fn average(place: &std::sync::atomic::AtomicU64, value: u64) {
    let old = place.load(Relaxed);
    let new = if old == 0 { value } else { (value + 19 * old + 10) / 20 };
    place.store(new, Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU64;

    #[test]
    fn averages_move_slowly() {
        let place = AtomicU64::new(0);
        average(&place, 100);
        assert_eq!(place.load(Relaxed), 100);
        average(&place, 300);
        assert_eq!(place.load(Relaxed), 110);
        average(&place, 0);
        assert_eq!(place.load(Relaxed), 105);
    }
}
