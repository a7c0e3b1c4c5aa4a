//! The peers that a request has tried: one bit per position in a tier.

use std::sync::Arc;

use crate::peer::Peer;

/// The peers of a tier that were tried.
#[derive(Debug, Default)]
pub(crate) struct Tried {
    first: u64,
    further: Vec<u64>,
}

impl Tried {
    pub(crate) fn has(&self, n: usize) -> bool {
        let word = match n / 64 {
            0 => self.first,
            at => self.further.get(at - 1).copied().unwrap_or(0),
        };
        word >> (n % 64) & 1 == 1
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.first == 0 && self.further.iter().all(|word| *word == 0)
    }

    pub(crate) fn set(&mut self, n: usize) {
        let word = match n / 64 {
            0 => &mut self.first,
            at => {
                if self.further.len() < at {
                    self.further.resize(at, 0);
                }
                &mut self.further[at - 1]
            }
        };
        *word |= 1 << (n % 64);
    }

    /// Removes those of `others`.
    pub(crate) fn remove(&mut self, others: &Tried) {
        self.first &= !others.first;
        for (word, other) in self.further.iter_mut().zip(&others.further) {
            *word &= !other;
        }
    }

    pub(crate) fn clear(&mut self) {
        self.first = 0;
        self.further.clear();
    }

    /// Marks exactly those whose states are among `asked`.
    pub(crate) fn renew(&mut self, peers: &[Arc<Peer>], asked: &[u64]) {
        self.clear();
        if asked.is_empty() {
            return;
        }
        for (n, peer) in peers.iter().enumerate() {
            if asked.contains(&peer.state.id) {
                self.set(n);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_peers_are_remembered() {
        let mut tried = Tried::default();
        assert!(tried.is_empty());
        for n in [0, 63, 64, 200] {
            assert!(!tried.has(n));
            tried.set(n);
            assert!(tried.has(n) && !tried.has(n + 1) && !tried.is_empty());
            let mut others = Tried::default();
            others.set(n);
            tried.remove(&others);
            assert!(!tried.has(n));
            tried.set(n);
        }
        tried.clear();
        assert!(!tried.has(0) && !tried.has(200));
    }
}
