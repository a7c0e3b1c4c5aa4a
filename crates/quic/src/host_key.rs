//! The secret of a host, from which the keys of tokens, stateless resets and connection IDs are derived
//! (`quic_host_key`).
//!
//! Workers and generations share it; so do the processes of an upgrade, whose masters hand a random one on, and with a
//! file, machines: a token or a reset of one is understood by all.

use std::fmt;

use aws_lc_rs::hkdf::{HKDF_SHA256, KeyType, Prk, Salt};
use aws_lc_rs::hmac;

use crate::tokens::TokenKey;

/// Bytes of a key that `quic_host_key` names, at least; further ones are used as well.
pub const HOST_KEY_BYTES_MIN: usize = 32;

/// Separates these keys from others that might be derived from the same secret.
const SALT: &[u8] = b"nowait quic host key";

/// The secret.
#[derive(Clone, PartialEq, Eq)]
pub struct HostKey {
    secret: Vec<u8>,
}

/// The length of a derived key.
struct Bytes(usize);

impl KeyType for Bytes {
    fn len(&self) -> usize {
        self.0
    }
}

impl HostKey {
    /// The content of the file that `quic_host_key` names. `None`: shorter than [`HOST_KEY_BYTES_MIN`].
    pub fn new(secret: &[u8]) -> Option<HostKey> {
        (secret.len() >= HOST_KEY_BYTES_MIN).then(|| HostKey { secret: secret.to_vec() })
    }

    /// A random secret, for tests: that of a server is made by its master.
    ///
    /// # Panics
    /// When the system has no random numbers.
    pub fn random() -> HostKey {
        let mut secret = vec![0; HOST_KEY_BYTES_MIN];
        aws_lc_rs::rand::fill(&mut secret).expect("the system has random numbers");
        HostKey { secret }
    }

    /// A key for one purpose.
    pub(crate) fn derive(&self, purpose: &str, key: &mut [u8]) {
        let purpose = [purpose.as_bytes()];
        let prk = Salt::new(HKDF_SHA256, SALT).extract(&self.secret);
        let filled = prk.expand(&purpose, Bytes(key.len())).and_then(|okm| okm.fill(key));
        filled.expect("keys are shorter than 255 hashes");
    }

    /// The key of tokens that prove addresses: of Retry packets, and for later connections.
    pub(crate) fn token_key(&self) -> TokenKey {
        let mut key = [0; 32];
        self.derive("token", &mut key);
        TokenKey::new(Prk::new_less_safe(HKDF_SHA256, &key))
    }

    /// The key of stateless resets.
    pub(crate) fn reset_key(&self) -> hmac::Key {
        let mut key = [0; 32];
        self.derive("stateless reset", &mut key);
        hmac::Key::new(hmac::HMAC_SHA256, &key)
    }
}

impl fmt::Debug for HostKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HostKey")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_depend_on_the_secret_and_the_purpose() {
        let derived = |key: &HostKey, purpose| {
            let mut bytes = [0; 16];
            key.derive(purpose, &mut bytes);
            bytes
        };
        let (one, same) = (HostKey::new(&[1; 32]).unwrap(), HostKey::new(&[1; 32]).unwrap());
        assert_eq!(derived(&one, "a"), derived(&same, "a"));
        assert_ne!(derived(&one, "a"), derived(&one, "b"));
        assert_ne!(derived(&one, "a"), derived(&HostKey::random(), "a"));
        assert_eq!(HostKey::new(&[1; 31]), None);
        assert_eq!(format!("{one:?}"), "HostKey");
    }
}
