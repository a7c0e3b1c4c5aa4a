//! Connection IDs of this side: they carry, encrypted, the worker and the place of their connection.
//!
//! ```text
//! 8 bytes: random   2 bytes: check   5 bytes: number of the worker (2), place (3), encrypted
//! ```
//!
//! The random bytes make each of them unlike the others (RFC 9000, 5.1); the check tells ours from a client's own,
//! which the first packets carry. Neither is a secret: what is routed by a forged ID fails to decrypt.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use aws_lc_rs::aead::quic::{AES_128, HeaderProtectionKey};
use quinn_proto::{ConnectionId, ConnectionIdGenerator, InvalidCid};

use crate::HostKey;

/// Bytes of a connection ID.
pub(crate) const ID_BYTES: usize = 15;

const RANDOM_BYTES: usize = 8;
const CHECK_BYTES: usize = 2;
const PLACE_BYTES: usize = 5;

/// Connections of a worker, at most.
pub(crate) const PLACES_MAX: usize = (1 << 24) - 1;

/// Where a connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Place {
    /// The number of the worker.
    pub(crate) worker: u16,
    /// The connection's place there; [`Place::NONE`]: none, for IDs of Retry packets.
    pub(crate) slot: u32,
}

impl Place {
    /// The slot of an ID without a connection.
    pub(crate) const NONE: u32 = PLACES_MAX as u32;

    fn packed(self) -> u64 {
        u64::from(self.worker) << 32 | u64::from(self.slot)
    }

    fn unpacked(packed: u64) -> Place {
        Place { worker: (packed >> 32) as u16, slot: packed as u32 }
    }

    fn to_bytes(self) -> [u8; PLACE_BYTES] {
        let ([high, low], [_, a, b, c]) = (self.worker.to_be_bytes(), self.slot.to_be_bytes());
        [high, low, a, b, c]
    }

    fn from_bytes([high, low, a, b, c]: [u8; PLACE_BYTES]) -> Place {
        let worker = u16::from_be_bytes([high, low]);
        Place { worker, slot: u32::from_be_bytes([0, a, b, c]) }
    }
}

/// The key of connection IDs, of all workers of a process.
pub(crate) struct IdKey {
    places: HeaderProtectionKey,
    checks: HeaderProtectionKey,
}

impl IdKey {
    pub(crate) fn new(host: &HostKey) -> IdKey {
        let key = |purpose| {
            let mut key = [0; 16];
            host.derive(purpose, &mut key);
            let key = HeaderProtectionKey::new(&AES_128, &key);
            key.expect("the key has the length of the algorithm")
        };
        IdKey { places: key("connection id places"), checks: key("connection id checks") }
    }

    fn mask(key: &HeaderProtectionKey, bytes: &[u8]) -> [u8; PLACE_BYTES] {
        let mut sample = [0; 16];
        sample[..bytes.len()].copy_from_slice(bytes);
        key.new_mask(&sample).unwrap_or_default()
    }

    fn check(&self, random: &[u8], place: [u8; PLACE_BYTES]) -> [u8; CHECK_BYTES] {
        let mut bytes = [0; RANDOM_BYTES + PLACE_BYTES];
        bytes[..RANDOM_BYTES].copy_from_slice(random);
        bytes[RANDOM_BYTES..].copy_from_slice(&place);
        let [a, b, ..] = Self::mask(&self.checks, &bytes);
        [a, b]
    }

    /// An ID for a connection at this place.
    fn encode(&self, place: Place, random: [u8; RANDOM_BYTES]) -> ConnectionId {
        let place = place.to_bytes();
        let mut bytes = [0; ID_BYTES];
        bytes[..RANDOM_BYTES].copy_from_slice(&random);
        bytes[RANDOM_BYTES..][..CHECK_BYTES].copy_from_slice(&self.check(&random, place));
        let mask = Self::mask(&self.places, &bytes[..RANDOM_BYTES + CHECK_BYTES]);
        for (n, byte) in place.iter().enumerate() {
            bytes[RANDOM_BYTES + CHECK_BYTES + n] = byte ^ mask[n];
        }
        ConnectionId::new(&bytes)
    }

    /// The place of a connection, by its ID. `None`: not one of ours.
    pub(crate) fn place(&self, id: &[u8]) -> Option<Place> {
        let id: &[u8; ID_BYTES] = id.try_into().ok()?;
        let (head, covered) = id.split_at(RANDOM_BYTES + CHECK_BYTES);
        let mask = Self::mask(&self.places, head);
        let mut place = [0; PLACE_BYTES];
        for (n, byte) in covered.iter().enumerate() {
            place[n] = byte ^ mask[n];
        }
        let (random, check) = head.split_at(RANDOM_BYTES);
        (self.check(random, place) == *check).then(|| Place::from_bytes(place))
    }
}

/// Where a connection is now: its next IDs lead there.
#[derive(Clone)]
pub(crate) struct Home(Arc<AtomicU64>);

impl Home {
    pub(crate) fn new(place: Place) -> Home {
        Home(Arc::new(AtomicU64::new(place.packed())))
    }

    pub(crate) fn get(&self) -> Place {
        Place::unpacked(self.0.load(Ordering::Relaxed))
    }

    pub(crate) fn set(&self, place: Place) {
        self.0.store(place.packed(), Ordering::Relaxed);
    }
}

impl fmt::Debug for Home {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.get().fmt(f)
    }
}

/// Makes the IDs of a connection.
pub(crate) struct IdGenerator {
    pub(crate) key: Arc<IdKey>,
    pub(crate) home: Home,
}

impl ConnectionIdGenerator for IdGenerator {
    fn generate_cid(&mut self) -> ConnectionId {
        let mut random = [0; RANDOM_BYTES];
        // The random numbers of a thread do not fail once they were prepared.
        let _ = aws_lc_rs::rand::fill(&mut random);
        self.key.encode(self.home.get(), random)
    }

    fn validate(&self, id: &ConnectionId) -> Result<(), InvalidCid> {
        self.key.place(id).map(drop).ok_or(InvalidCid)
    }

    fn cid_len(&self) -> usize {
        ID_BYTES
    }

    fn cid_lifetime(&self) -> Option<Duration> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_found_again_and_others_are_not() {
        let key = Arc::new(IdKey::new(&HostKey::random()));
        for place in [
            Place { worker: 0, slot: 0 },
            Place { worker: 3, slot: 70_000 },
            Place { worker: u16::MAX, slot: Place::NONE },
        ] {
            let mut generator = IdGenerator { key: key.clone(), home: Home::new(place) };
            let (one, two) = (generator.generate_cid(), generator.generate_cid());
            assert_ne!(one, two);
            assert_eq!(key.place(&one), Some(place));
            assert_eq!(key.place(&two), Some(place));
            assert!(generator.validate(&one).is_ok());
            // Another process, with another key.
            assert_eq!(IdKey::new(&HostKey::random()).place(&one), None);
            assert_eq!(key.place(&one[1..]), None);
        }
        let forged = (0..10_000u32).filter(|n| {
            let mut id = [7; ID_BYTES];
            id[..4].copy_from_slice(&n.to_be_bytes());
            key.place(&id).is_some()
        });
        // One of 65,536 passes.
        assert!(forged.count() < 5);
    }

    #[test]
    fn a_connection_that_moves_takes_its_next_ids_along() {
        let key = Arc::new(IdKey::new(&HostKey::random()));
        let home = Home::new(Place { worker: 1, slot: 2 });
        let mut generator = IdGenerator { key: key.clone(), home: home.clone() };
        home.set(Place { worker: 5, slot: 6 });
        assert_eq!(key.place(&generator.generate_cid()), Some(Place { worker: 5, slot: 6 }));
    }
}
