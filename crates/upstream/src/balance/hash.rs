//! `ip_hash`, `hash`, `hash … consistent`.

use super::{TRIES_MAX, TierView};
use crc32fast::Hasher;

/// Initial value of the hash of an address.
pub(super) const IP_HASH_START: u32 = 89;

impl TierView<'_> {
    /// nginx: `ngx_http_upstream_get_ip_hash_peer`.
    pub(super) fn ip_hash(&self, address: &[u8], hash: &mut u32, tries: &mut u32) -> Option<usize> {
        let mut at = *hash;
        while *tries <= TRIES_MAX {
            for byte in address {
                at = (at * 113 + u32::from(*byte)) % 6271;
            }
            let n = self.at_weight(u64::from(at) % self.tier.total_weight);
            if self.may(n) {
                *hash = at;
                return Some(n);
            }
            *tries += 1;
        }
        self.round_robin(None)
    }

    /// The hash is that of Cache::Memcached: 15 bits of the CRC of the key, added to the sum of
    /// those before, of the number of the try and the key.
    pub(super) fn hash(
        &self,
        key: &[u8],
        hash: &mut u32,
        rehash: &mut u32,
        tries: &mut u32,
    ) -> Option<usize> {
        if key.is_empty() {
            return self.round_robin(None);
        }
        while *tries <= TRIES_MAX {
            let mut crc = Hasher::new();
            if *rehash > 0 {
                crc.update(rehash.to_string().as_bytes());
            }
            crc.update(key);
            *hash = hash.wrapping_add((crc.finalize() >> 16) & 0x7fff);
            *rehash += 1;
            let n = self.at_weight(u64::from(*hash) % self.tier.total_weight);
            if self.may(n) {
                return Some(n);
            }
            *tries += 1;
        }
        self.round_robin(None)
    }

    /// The servers along the ring, from the position of the key on; the peers of one server
    /// (addresses of a name) take turns.
    pub(super) fn consistent(&self, hash: u32, steps: &mut u32) -> Option<usize> {
        let points = self.tier.points();
        while *steps <= TRIES_MAX {
            let server = points.server(hash, *steps);
            let (best, total) = self.turn(0, None, |n| *self.tier.peers[n].server_name == *server);
            if let Some(best) = best {
                let state = &self.tier.peers[best].state;
                state.current.fetch_sub(total, std::sync::atomic::Ordering::Relaxed);
                return Some(best);
            }
            *steps += 1;
        }
        self.round_robin(None)
    }
}
