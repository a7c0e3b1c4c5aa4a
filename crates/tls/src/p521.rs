//! Key exchange with the curve P-521 (`secp521r1`), which rustls has no group for.

use std::fmt;

use aws_lc_rs::agreement::{
    ECDH_P521, EphemeralPrivateKey, PublicKey, UnparsedPublicKey, agree_ephemeral,
};
use aws_lc_rs::rand::SystemRandom;
use rustls::crypto::{ActiveKeyExchange, GetRandomFailed, SharedSecret, SupportedKxGroup};
use rustls::ffdhe_groups::FfdheGroup;
use rustls::{Error, NamedGroup, PeerMisbehaved};

/// Bytes of a point: "uncompressed" (4), and two coordinates of 66 bytes each (RFC 8446, 4.2.8.2).
const POINT_BYTES: usize = 1 + 2 * 66;

/// The group.
pub(crate) struct P521;

impl fmt::Debug for P521 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.name().fmt(f)
    }
}

impl SupportedKxGroup for P521 {
    fn start(&self) -> Result<Box<dyn ActiveKeyExchange>, Error> {
        let private = EphemeralPrivateKey::generate(&ECDH_P521, &SystemRandom::new());
        let private = private.map_err(|_| GetRandomFailed)?;
        let public = private.compute_public_key().map_err(|_| GetRandomFailed)?;
        Ok(Box::new(Exchange { private, public }))
    }

    fn name(&self) -> NamedGroup {
        NamedGroup::secp521r1
    }

    fn ffdhe_group(&self) -> Option<FfdheGroup<'static>> {
        None
    }
}

/// An exchange whose other half is missing.
struct Exchange {
    private: EphemeralPrivateKey,
    public: PublicKey,
}

impl ActiveKeyExchange for Exchange {
    fn complete(self: Box<Self>, peer: &[u8]) -> Result<SharedSecret, Error> {
        let invalid = || Error::from(PeerMisbehaved::InvalidKeyShare);
        // The library would take compressed points, too. It checks that the point is on the curve.
        if peer.len() != POINT_BYTES || peer.first() != Some(&4) {
            return Err(invalid());
        }
        let peer = UnparsedPublicKey::new(&ECDH_P521, peer);
        agree_ephemeral(self.private, peer, invalid(), |secret| Ok(SharedSecret::from(secret)))
    }

    fn ffdhe_group(&self) -> Option<FfdheGroup<'static>> {
        None
    }

    fn group(&self) -> NamedGroup {
        NamedGroup::secp521r1
    }

    fn pub_key(&self) -> &[u8] {
        self.public.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_sides_find_the_same_secret() {
        let (one, other) = (P521.start().unwrap(), P521.start().unwrap());
        let (of_one, of_other) = (one.pub_key().to_vec(), other.pub_key().to_vec());
        assert_eq!(of_one.len(), POINT_BYTES);
        let (a, b) = (one.complete(&of_other).unwrap(), other.complete(&of_one).unwrap());
        assert_eq!(a.secret_bytes(), b.secret_bytes());
        assert_eq!(a.secret_bytes().len(), 66);
    }

    #[test]
    fn other_forms_of_points_are_refused() {
        let good = P521.start().unwrap().pub_key().to_vec();
        let mut off = good.clone();
        off[POINT_BYTES - 1] ^= 1;
        let compressed = [&[2 | good[POINT_BYTES - 1] & 1], &good[1..67]].concat();
        for bad in [off, compressed, good[..66].to_vec(), Vec::new(), vec![4; POINT_BYTES]] {
            assert!(P521.start().unwrap().complete(&bad).is_err());
        }
    }
}
