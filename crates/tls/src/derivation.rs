//! The derivation of keys in TLS 1.3 (RFC 5869; RFC 8446, 7.1), for servers.
//!
//! Used by [`transcript`](crate::transcript), which puts it into the suites of servers. HKDF is HMAC with a
//! few keys, from each of which several values are derived. AWS-LC's HKDF hashes the key for each of them, and
//! extracts it again if it was extracted. Here, each key is extracted and hashed once. That is a third of what a
//! server hashes in a handshake.

use std::sync::LazyLock;

use aws_lc_rs::hmac;
use rustls::crypto::hmac::Tag;
use rustls::crypto::tls13::{Hkdf, HkdfExpander, OkmBlock, OutputLengthError};

/// Blocks of output, at most (RFC 5869, 2.3).
const BLOCKS_MAX: usize = u8::MAX as usize;

/// HKDF with a hash function.
pub(crate) struct Derivation {
    algorithm: hmac::Algorithm,
    /// Extracted from zeroes with a salt of zeroes: where each handshake without a session begins.
    early: LazyLock<hmac::Key>,
}

pub(crate) static SHA256: Derivation = Derivation {
    algorithm: hmac::HMAC_SHA256,
    early: LazyLock::new(|| extracted(hmac::HMAC_SHA256, None, None)),
};
pub(crate) static SHA384: Derivation = Derivation {
    algorithm: hmac::HMAC_SHA384,
    early: LazyLock::new(|| extracted(hmac::HMAC_SHA384, None, None)),
};

/// HKDF-Extract; `None` stands for zeroes.
fn extracted(algorithm: hmac::Algorithm, salt: Option<&[u8]>, secret: Option<&[u8]>) -> hmac::Key {
    let zeroes = [0; OkmBlock::MAX_LEN];
    let zeroes = &zeroes[..algorithm.tag_len()];
    let salt = hmac::Key::new(algorithm, salt.unwrap_or(zeroes));
    let extracted = hmac::sign(&salt, secret.unwrap_or(zeroes));
    // Wiped on drop.
    let extracted = OkmBlock::new(extracted.as_ref());
    hmac::Key::new(algorithm, extracted.as_ref())
}

impl Hkdf for Derivation {
    fn extract_from_zero_ikm(&self, salt: Option<&[u8]>) -> Box<dyn HkdfExpander> {
        Box::new(Expander(match salt {
            None => self.early.clone(),
            Some(_) => extracted(self.algorithm, salt, None),
        }))
    }

    fn extract_from_secret(&self, salt: Option<&[u8]>, secret: &[u8]) -> Box<dyn HkdfExpander> {
        Box::new(Expander(extracted(self.algorithm, salt, Some(secret))))
    }

    fn expander_for_okm(&self, okm: &OkmBlock) -> Box<dyn HkdfExpander> {
        Box::new(Expander(hmac::Key::new(self.algorithm, okm.as_ref())))
    }

    fn hmac_sign(&self, key: &OkmBlock, message: &[u8]) -> Tag {
        let key = hmac::Key::new(self.algorithm, key.as_ref());
        Tag::new(hmac::sign(&key, message).as_ref())
    }
}

/// HKDF-Expand with one key.
struct Expander(hmac::Key);

impl Expander {
    fn expand(&self, info: &[&[u8]], output: &mut [u8]) {
        let mut block = Tag::new(&[]);
        for (number, part) in (1..=u8::MAX).zip(output.chunks_mut(self.hash_len())) {
            let mut context = hmac::Context::with_key(&self.0);
            context.update(block.as_ref());
            info.iter().for_each(|info| context.update(info));
            context.update(&[number]);
            block = Tag::new(context.sign().as_ref());
            part.copy_from_slice(&block.as_ref()[..part.len()]);
        }
    }
}

impl HkdfExpander for Expander {
    fn expand_slice(&self, info: &[&[u8]], output: &mut [u8]) -> Result<(), OutputLengthError> {
        if output.len() > BLOCKS_MAX * self.hash_len() {
            return Err(OutputLengthError);
        }
        self.expand(info, output);
        Ok(())
    }

    fn expand_block(&self, info: &[&[u8]]) -> OkmBlock {
        // The only block; as the first one, it depends on no other.
        let mut context = hmac::Context::with_key(&self.0);
        info.iter().for_each(|info| context.update(info));
        context.update(&[1]);
        OkmBlock::new(context.sign().as_ref())
    }

    fn hash_len(&self) -> usize {
        self.0.algorithm().tag_len()
    }
}

#[cfg(test)]
mod tests {
    use rustls::crypto::aws_lc_rs::cipher_suite;
    use rustls::{SupportedCipherSuite, Tls13CipherSuite};

    use super::*;

    fn tls13(suite: SupportedCipherSuite) -> &'static Tls13CipherSuite {
        match suite {
            SupportedCipherSuite::Tls13(suite) => suite,
            SupportedCipherSuite::Tls12(_) => panic!("a suite of TLS 1.3"),
        }
    }

    /// All that can be derived with an expander.
    fn all(expander: &dyn HkdfExpander) -> Vec<Vec<u8>> {
        let info: [&[u8]; 3] = [b"tls13 ", b"", b"key"];
        let slice = |len: usize| {
            let mut output = vec![0; len];
            expander.expand_slice(&info, &mut output).map(|()| output)
        };
        let len = expander.hash_len();
        let mut all: Vec<_> = [0, 1, 12, len - 1, len, len + 1, 3 * len, BLOCKS_MAX * len]
            .map(|len| slice(len).unwrap())
            .to_vec();
        all.push(expander.expand_block(&info).as_ref().to_vec());
        assert!(slice(BLOCKS_MAX * len + 1).is_err());
        all
    }

    #[test]
    fn the_same_is_derived_as_by_the_library() {
        let pairs = [
            (&SHA256, tls13(cipher_suite::TLS13_AES_128_GCM_SHA256)),
            (&SHA384, tls13(cipher_suite::TLS13_AES_256_GCM_SHA384)),
        ];
        for (own, suite) in pairs {
            let library = suite.hkdf_provider;
            for salt in [None, Some(&b"salt"[..]), Some(&[7; 48]), Some(&[7; 200])] {
                let (a, b) = (own.extract_from_zero_ikm(salt), library.extract_from_zero_ikm(salt));
                assert_eq!(all(&*a), all(&*b));
                for secret in [&b""[..], b"secret", &[9; 200]] {
                    let own = own.extract_from_secret(salt, secret);
                    let library = library.extract_from_secret(salt, secret);
                    assert_eq!(all(&*own), all(&*library));
                }
            }
            for len in [1, 32, 48, OkmBlock::MAX_LEN] {
                let key = OkmBlock::new(&vec![3; len]);
                assert_eq!(
                    all(&*own.expander_for_okm(&key)),
                    all(&*library.expander_for_okm(&key))
                );
                let (a, b) = (own.hmac_sign(&key, b"hash"), library.hmac_sign(&key, b"hash"));
                assert_eq!(a.as_ref(), b.as_ref());
            }
        }
    }
}
