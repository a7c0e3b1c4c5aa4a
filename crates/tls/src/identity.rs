//! Certificates with their keys, and the choice for a client.

use std::sync::{Arc, PoisonError, RwLock};
use std::time::SystemTime;

use rustls::crypto::aws_lc_rs::sign::any_supported_type;
use rustls::pki_types::CertificateDer;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{CipherSuite, SignatureAlgorithm, SignatureScheme};

use crate::certificate::{Certificate, KeyKind};
use crate::error::Error;
use crate::pem::PrivateKey;

/// Maximum size in bits of RSA keys whose operations run on the loop: none in practical use. One
/// handshake takes 351 µs with 2,048 bits, and 1,694 µs with 4,096, against 94 µs with ECDSA on
/// P-256; moved to a pool, 33 and 66 µs remain on the loop, which is more than moving saves for
/// P-256.
const INLINE_RSA_BITS_MAX: usize = 1024;

impl KeyKind {
    /// Whether an operation with such a private key is too long for the loop. Kinds that were not
    /// measured count as long.
    pub fn is_slow(self) -> bool {
        match self {
            KeyKind::EcdsaP256 | KeyKind::Ed25519 => false,
            KeyKind::Rsa { bits } => bits > INLINE_RSA_BITS_MAX,
            KeyKind::Other => true,
        }
    }
}

/// A certificate with its chain and its private key.
#[derive(Clone, Debug)]
pub struct Identity {
    pub(crate) key: Arc<CertifiedKey>,
    pub(crate) kind: KeyKind,
    staple: Arc<Staple>,
}

/// The OCSP response that is stapled, while there is one.
#[derive(Debug, Default)]
struct Staple(RwLock<Option<StapledKey>>);

#[derive(Debug)]
struct StapledKey {
    key: Arc<CertifiedKey>,
    until: Option<SystemTime>,
}

impl Identity {
    /// A chain that begins with the certificate of `key`, and perhaps an OCSP response to be
    /// stapled.
    ///
    /// # Errors
    /// The key is malformed, of an unknown type, or belongs to another certificate.
    pub fn new(
        chain: Vec<CertificateDer<'static>>,
        key: &PrivateKey,
        ocsp: Option<Vec<u8>>,
    ) -> Result<Identity, Error> {
        let own = chain.first().and_then(Certificate::parse);
        let own = own.ok_or_else(|| Error::Settings("no certificate".to_owned()))?;
        let kind = own.key_kind();
        // Borrowed: a copy of the key would stay in memory, because rustls does not wipe it.
        let signer = any_supported_type(&key.as_der()).map_err(|_| {
            Error::Pem("PEM_read_bio_PrivateKey()", "error:1E08010C:DECODER routines::unsupported")
        })?;
        // rustls cannot compare it with a certificate of version 1.
        if signer.public_key().is_some_and(|public| *public != *own.public_key()) {
            return Err(Error::KeyMismatch);
        }
        let mut key = CertifiedKey::new(chain, signer);
        key.ocsp = ocsp;
        Ok(Identity { key: Arc::new(key), kind, staple: Arc::default() })
    }

    /// The type of its key.
    pub fn kind(&self) -> KeyKind {
        self.kind
    }

    /// The certificate, followed by the rest of the chain.
    pub fn chain(&self) -> &[CertificateDer<'static>] {
        &self.key.cert
    }

    /// Staples an OCSP response until then, for all clones of this identity.
    pub fn staple(&self, response: Vec<u8>, until: Option<SystemTime>) {
        let mut key = CertifiedKey::clone(&self.key);
        key.ocsp = Some(response);
        let stapled = StapledKey { key: Arc::new(key), until };
        *self.staple.0.write().unwrap_or_else(PoisonError::into_inner) = Some(stapled);
    }

    /// The key with the response that is valid now.
    fn current(&self) -> Arc<CertifiedKey> {
        let staple = self.staple.0.read().unwrap_or_else(PoisonError::into_inner);
        match &*staple {
            Some(StapledKey { key, until })
                if until.is_none_or(|until| SystemTime::now() < until) =>
            {
                key.clone()
            }
            _ => self.key.clone(),
        }
    }

    fn algorithm(&self) -> SignatureAlgorithm {
        self.key.key.algorithm()
    }
}

/// The parts of a ClientHello that decide between identities.
pub(crate) struct Offer<'a> {
    pub(crate) schemes: &'a [SignatureScheme],
    pub(crate) suites: &'a [CipherSuite],
}

/// The identities of a server.
#[derive(Clone, Debug)]
pub(crate) struct Identities {
    pub(crate) all: Vec<Identity>,
    /// The server supports TLS 1.3.
    pub(crate) tls13: bool,
}

/// Of identities whose keys have the same type, OpenSSL uses the last.
pub(crate) fn last_of_each_type(all: Vec<Identity>) -> Vec<Identity> {
    let mut kept: Vec<Identity> = Vec::with_capacity(all.len());
    for identity in all {
        match kept.iter_mut().find(|other| other.algorithm() == identity.algorithm()) {
            Some(other) => *other = identity,
            None => kept.push(identity),
        }
    }
    kept
}

impl Identities {
    /// The identity for a client: by its preference among signatures, as in OpenSSL. `None`: it supports
    /// none.
    pub(crate) fn choose(&self, offer: &Offer<'_>) -> Option<&Identity> {
        let fits = |identity: &&Identity, scheme| {
            allows(offer.suites, identity.algorithm(), self.tls13)
                && identity.key.key.choose_scheme(&[scheme]).is_some()
        };
        offer
            .schemes
            .iter()
            .find_map(|scheme| self.all.iter().find(|identity| fits(identity, *scheme)))
    }
}

/// Whether one of the suites permits signatures of this kind: those of TLS 1.3 permit all.
fn allows(suites: &[CipherSuite], algorithm: SignatureAlgorithm, tls13: bool) -> bool {
    use CipherSuite as C;
    let permits = |suite: &CipherSuite| match suite {
        C::TLS13_AES_128_GCM_SHA256
        | C::TLS13_AES_256_GCM_SHA384
        | C::TLS13_CHACHA20_POLY1305_SHA256 => tls13,
        C::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256
        | C::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384
        | C::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256 => algorithm == SignatureAlgorithm::RSA,
        C::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256
        | C::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384
        | C::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256 => algorithm != SignatureAlgorithm::RSA,
        _ => false,
    };
    suites.iter().any(permits)
}

impl ResolvesServerCert for Identities {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let offer = Offer { schemes: hello.signature_schemes(), suites: hello.cipher_suites() };
        self.choose(&offer).map(Identity::current)
    }
}
