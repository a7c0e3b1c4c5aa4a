//! Connection IDs of this side: one encrypted block, which names the server process, the worker and the place of its
//! connection.
//!
//! ```text
//! AES-128( process (2) | worker (2) | place (3) | zeros (3) | random (6) )
//! ```
//!
//! The random bytes make each of them unlike the others (RFC 9000, 5.1); the zeros tell ours from a client's own, which
//! the first packets carry. Who guesses one gains nothing: a packet that was not made by its peer fails to decrypt.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use aws_lc_rs::cipher::{
    AES_128, DecryptingKey, DecryptionContext, EncryptingKey, UnboundCipherKey,
};
use quinn_proto::{ConnectionId, ConnectionIdGenerator, InvalidCid};

use crate::HostKey;

/// Bytes of a connection ID: one block of the cipher.
pub(crate) const ID_BYTES: usize = 16;

/// Bytes that name the place.
const PLACE_BYTES: usize = 7;

/// The first of the random bytes; those between the place and them are zero.
const RANDOM_AT: usize = 10;

/// Connections of a worker, at most.
pub(crate) const PLACES_MAX: usize = (1 << 24) - 1;

/// Where a connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Place {
    /// The number of the server process.
    pub(crate) process: u16,
    /// The number of the worker.
    pub(crate) worker: u16,
    /// The connection's place there; [`Place::NONE`]: none, for IDs of Retry packets.
    pub(crate) slot: u32,
}

impl Place {
    /// The slot of an ID without a connection.
    pub(crate) const NONE: u32 = PLACES_MAX as u32;

    fn packed(self) -> u64 {
        u64::from(self.process) << 48 | u64::from(self.worker) << 32 | u64::from(self.slot)
    }

    fn unpacked(packed: u64) -> Place {
        Place { process: (packed >> 48) as u16, worker: (packed >> 32) as u16, slot: packed as u32 }
    }

    fn to_bytes(self) -> [u8; PLACE_BYTES] {
        let ([a, b], [c, d]) = (self.process.to_be_bytes(), self.worker.to_be_bytes());
        let [_, e, f, g] = self.slot.to_be_bytes();
        [a, b, c, d, e, f, g]
    }

    fn from_bytes([a, b, c, d, e, f, g]: [u8; PLACE_BYTES]) -> Place {
        let (process, worker) = (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]));
        Place { process, worker, slot: u32::from_be_bytes([0, e, f, g]) }
    }
}

/// The key of connection IDs, of all server processes that serve one after another.
pub(crate) struct IdKey {
    encrypts: EncryptingKey,
    decrypts: DecryptingKey,
}

impl IdKey {
    pub(crate) fn new(host: &HostKey) -> IdKey {
        let mut key = [0; 16];
        host.derive("connection ids", &mut key);
        let unbound = || UnboundCipherKey::new(&AES_128, &key);
        let encrypts = unbound().and_then(EncryptingKey::ecb);
        let decrypts = unbound().and_then(DecryptingKey::ecb);
        let valid = "the key has the length of the algorithm";
        IdKey { encrypts: encrypts.expect(valid), decrypts: decrypts.expect(valid) }
    }

    /// An ID for a connection at this place.
    fn encode(&self, place: Place, random: [u8; ID_BYTES - RANDOM_AT]) -> ConnectionId {
        let mut block = [0; ID_BYTES];
        block[..PLACE_BYTES].copy_from_slice(&place.to_bytes());
        block[RANDOM_AT..].copy_from_slice(&random);
        self.encrypts.encrypt(&mut block).expect("the length is that of a block");
        ConnectionId::new(&block)
    }

    /// The place of a connection, by its ID. `None`: not one of ours.
    pub(crate) fn place(&self, id: &[u8]) -> Option<Place> {
        let mut block: [u8; ID_BYTES] = id.try_into().ok()?;
        self.decrypts.decrypt(&mut block, DecryptionContext::None).ok()?;
        let (place, rest) = block.split_first_chunk()?;
        let is_ours = rest[..RANDOM_AT - PLACE_BYTES].iter().all(|byte| *byte == 0);
        is_ours.then(|| Place::from_bytes(*place))
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
        let mut random = [0; ID_BYTES - RANDOM_AT];
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
            Place { process: 0, worker: 0, slot: 0 },
            Place { process: 9, worker: 3, slot: 70_000 },
            Place { process: u16::MAX, worker: u16::MAX, slot: Place::NONE },
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
        // One of 16 million passes.
        assert!(forged.count() < 2);
    }

    #[test]
    fn a_connection_that_moves_takes_its_next_ids_along() {
        let key = Arc::new(IdKey::new(&HostKey::random()));
        let home = Home::new(Place { process: 7, worker: 1, slot: 2 });
        let mut generator = IdGenerator { key: key.clone(), home: home.clone() };
        home.set(Place { process: 7, worker: 5, slot: 6 });
        assert_eq!(
            key.place(&generator.generate_cid()),
            Some(Place { process: 7, worker: 5, slot: 6 })
        );
    }
}
