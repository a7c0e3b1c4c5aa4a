//! Private keys of accounts and certificates, and what they sign: requests to the issuer (RFC 7515)
//! and requests for certificates.

use std::fmt;

use aws_lc_rs::digest::{SHA256, digest};
use aws_lc_rs::encoding::{AsDer, Pkcs8V1Der, PublicKeyX509Der};
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::{self, KeySize};
use aws_lc_rs::signature::{self, EcdsaKeyPair, EcdsaSigningAlgorithm, KeyPair, RsaKeyPair};
use zeroize::Zeroizing;

use crate::{base64, der};

/// Kinds of keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Algorithm {
    /// ECDSA on P-256.
    Ecdsa256,
    /// ECDSA on P-384.
    Ecdsa384,
    /// ECDSA on P-521.
    Ecdsa521,
    /// RSA with a modulus of 2048 bits.
    Rsa2048,
    /// RSA with a modulus of 3072 bits.
    Rsa3072,
    /// RSA with a modulus of 4096 bits.
    Rsa4096,
}

impl Algorithm {
    /// Reads `ecdsa`, `ecdsa:384`, `rsa:3072` and their like. `None`: there is no such kind.
    pub fn parse(text: &[u8]) -> Option<Self> {
        Some(match text {
            b"ecdsa" | b"ecdsa:256" => Self::Ecdsa256,
            b"ecdsa:384" => Self::Ecdsa384,
            b"ecdsa:521" => Self::Ecdsa521,
            b"rsa" | b"rsa:2048" => Self::Rsa2048,
            b"rsa:3072" => Self::Rsa3072,
            b"rsa:4096" => Self::Rsa4096,
            _ => return None,
        })
    }

    /// The text that [`parse`](Self::parse) reads.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ecdsa256 => "ecdsa:256",
            Self::Ecdsa384 => "ecdsa:384",
            Self::Ecdsa521 => "ecdsa:521",
            Self::Rsa2048 => "rsa:2048",
            Self::Rsa3072 => "rsa:3072",
            Self::Rsa4096 => "rsa:4096",
        }
    }
}

/// A key can't be made, read or used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyError;

impl fmt::Display for KeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("unusable private key: expected is ECDSA on P-256, P-384 or P-521, or RSA")
    }
}

impl std::error::Error for KeyError {}

impl From<aws_lc_rs::error::Unspecified> for KeyError {
    fn from(_: aws_lc_rs::error::Unspecified) -> Self {
        Self
    }
}

/// A curve: its name, the name of its signatures, and both forms of them.
struct Curve {
    name: &'static str,
    jws: &'static str,
    fixed: &'static EcdsaSigningAlgorithm,
    asn1: &'static EcdsaSigningAlgorithm,
    /// The `AlgorithmIdentifier` of signatures in DER.
    identifier: &'static [u8],
}

const CURVES: [Curve; 3] = [
    Curve {
        name: "P-256",
        jws: "ES256",
        fixed: &signature::ECDSA_P256_SHA256_FIXED_SIGNING,
        asn1: &signature::ECDSA_P256_SHA256_ASN1_SIGNING,
        identifier: &[0x30, 10, 6, 8, 0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, 2],
    },
    Curve {
        name: "P-384",
        jws: "ES384",
        fixed: &signature::ECDSA_P384_SHA384_FIXED_SIGNING,
        asn1: &signature::ECDSA_P384_SHA384_ASN1_SIGNING,
        identifier: &[0x30, 10, 6, 8, 0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, 3],
    },
    Curve {
        name: "P-521",
        jws: "ES512",
        fixed: &signature::ECDSA_P521_SHA512_FIXED_SIGNING,
        asn1: &signature::ECDSA_P521_SHA512_ASN1_SIGNING,
        identifier: &[0x30, 10, 6, 8, 0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, 4],
    },
];

/// `sha256WithRSAEncryption`
const RSA_SHA256: &[u8] = &[0x30, 13, 6, 9, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 11, 5, 0];

enum SigningKey {
    Ecdsa { curve: &'static Curve, fixed: EcdsaKeyPair, asn1: EcdsaKeyPair },
    Rsa(RsaKeyPair),
}

/// A private key.
pub struct PrivateKey {
    pair: SigningKey,
    /// In PKCS #8.
    der: Zeroizing<Vec<u8>>,
}

impl fmt::Debug for PrivateKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({})", self.jws_algorithm())
    }
}

impl PrivateKey {
    /// Makes a key. RSA takes up to seconds.
    ///
    /// # Errors
    /// The library fails.
    pub fn generate(algorithm: Algorithm) -> Result<Self, KeyError> {
        let rsa = |size| -> Result<Zeroizing<Vec<u8>>, KeyError> {
            let pair = rsa::KeyPair::generate(size)?;
            let der = AsDer::<Pkcs8V1Der<'_>>::as_der(&pair)?;
            Ok(Zeroizing::new(der.as_ref().to_vec()))
        };
        let ecdsa = |curve: usize| -> Result<Zeroizing<Vec<u8>>, KeyError> {
            let random = SystemRandom::new();
            let document = EcdsaKeyPair::generate_pkcs8(CURVES[curve].asn1, &random)?;
            Ok(Zeroizing::new(document.as_ref().to_vec()))
        };
        let der = match algorithm {
            Algorithm::Ecdsa256 => ecdsa(0)?,
            Algorithm::Ecdsa384 => ecdsa(1)?,
            Algorithm::Ecdsa521 => ecdsa(2)?,
            Algorithm::Rsa2048 => rsa(KeySize::Rsa2048)?,
            Algorithm::Rsa3072 => rsa(KeySize::Rsa3072)?,
            Algorithm::Rsa4096 => rsa(KeySize::Rsa4096)?,
        };
        Self::from_der(&der)
    }

    /// Reads a key in DER: PKCS #8, or the older forms of both kinds.
    ///
    /// # Errors
    /// It is malformed, or of another kind.
    pub fn from_der(der: &[u8]) -> Result<Self, KeyError> {
        let own = Zeroizing::new(der.to_vec());
        for curve in &CURVES {
            let read = |algorithm| {
                EcdsaKeyPair::from_pkcs8(algorithm, der)
                    .or_else(|_| EcdsaKeyPair::from_private_key_der(algorithm, der))
            };
            if let (Ok(fixed), Ok(asn1)) = (read(curve.fixed), read(curve.asn1)) {
                return Ok(Self { pair: SigningKey::Ecdsa { curve, fixed, asn1 }, der: own });
            }
        }
        let pair = RsaKeyPair::from_pkcs8(der).or_else(|_| RsaKeyPair::from_der(der));
        Ok(Self { pair: SigningKey::Rsa(pair.map_err(|_| KeyError)?), der: own })
    }

    /// The key as a section of a PEM file.
    pub fn to_pem(&self) -> Zeroizing<String> {
        Zeroizing::new(base64::pem("PRIVATE KEY", &self.der))
    }

    /// The name of its signatures in JWS (RFC 7518).
    pub(crate) fn jws_algorithm(&self) -> &'static str {
        match &self.pair {
            SigningKey::Ecdsa { curve, .. } => curve.jws,
            SigningKey::Rsa(_) => "RS256",
        }
    }

    /// The public key as a JWK, with its members in the order of RFC 7638.
    pub(crate) fn jwk(&self) -> String {
        match &self.pair {
            SigningKey::Ecdsa { curve, fixed, .. } => {
                // Uncompressed: a byte 4, then both coordinates.
                let point = fixed.public_key().as_ref().get(1..).unwrap_or_default();
                let (x, y) = point.split_at(point.len() / 2);
                let (x, y) = (base64::encode(x), base64::encode(y));
                let name = curve.name;
                format!("{{\"crv\":\"{name}\",\"kty\":\"EC\",\"x\":\"{x}\",\"y\":\"{y}\"}}")
            }
            SigningKey::Rsa(pair) => {
                // `RSAPublicKey` (RFC 8017, A.1.1): both numbers, perhaps with a zero in front.
                let mut rest = der::contents(pair.public_key().as_ref()).map_or(&[][..], |it| it.0);
                let mut number = || {
                    let (contents, after) = der::contents(rest).unwrap_or_default();
                    rest = after;
                    base64::encode(contents.strip_prefix(&[0]).unwrap_or(contents))
                };
                let (n, e) = (number(), number());
                format!("{{\"e\":\"{e}\",\"kty\":\"RSA\",\"n\":\"{n}\"}}")
            }
        }
    }

    /// The thumbprint of the public key (RFC 7638).
    pub(crate) fn thumbprint(&self) -> String {
        base64::encode(digest(&SHA256, self.jwk().as_bytes()).as_ref())
    }

    fn sign_rsa(pair: &RsaKeyPair, message: &[u8]) -> Result<Vec<u8>, KeyError> {
        let mut out = vec![0; pair.public_modulus_len()];
        pair.sign(&signature::RSA_PKCS1_SHA256, &SystemRandom::new(), message, &mut out)?;
        Ok(out)
    }

    /// A signature for a JWS.
    pub(crate) fn sign(&self, message: &[u8]) -> Result<Vec<u8>, KeyError> {
        match &self.pair {
            SigningKey::Ecdsa { fixed, .. } => {
                Ok(fixed.sign(&SystemRandom::new(), message)?.as_ref().to_vec())
            }
            SigningKey::Rsa(pair) => Self::sign_rsa(pair, message),
        }
    }

    /// The identifier of its signatures in DER.
    pub(crate) fn der_algorithm(&self) -> &'static [u8] {
        match &self.pair {
            SigningKey::Ecdsa { curve, .. } => curve.identifier,
            SigningKey::Rsa(_) => RSA_SHA256,
        }
    }

    /// A signature in DER, and the identifier of its algorithm.
    pub(crate) fn sign_der(&self, message: &[u8]) -> Result<(Vec<u8>, &'static [u8]), KeyError> {
        let signature = match &self.pair {
            SigningKey::Ecdsa { asn1, .. } => {
                asn1.sign(&SystemRandom::new(), message)?.as_ref().to_vec()
            }
            SigningKey::Rsa(pair) => Self::sign_rsa(pair, message)?,
        };
        Ok((signature, self.der_algorithm()))
    }

    /// The public key as a `SubjectPublicKeyInfo` in DER.
    pub(crate) fn public_der(&self) -> Result<Vec<u8>, KeyError> {
        let der = match &self.pair {
            SigningKey::Ecdsa { asn1, .. } => {
                AsDer::<PublicKeyX509Der<'_>>::as_der(asn1.public_key())?
            }
            SigningKey::Rsa(pair) => AsDer::<PublicKeyX509Der<'_>>::as_der(pair.public_key())?,
        };
        Ok(der.as_ref().to_vec())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_survive_their_file() {
        for algorithm in
            [Algorithm::Ecdsa256, Algorithm::Ecdsa384, Algorithm::Ecdsa521, Algorithm::Rsa2048]
        {
            assert_eq!(Algorithm::parse(algorithm.name().as_bytes()), Some(algorithm));
            let key = PrivateKey::generate(algorithm).unwrap();
            let again = PrivateKey::from_der(&key.der).unwrap();
            assert_eq!(key.thumbprint(), again.thumbprint());
            assert_eq!(key.jws_algorithm(), again.jws_algorithm());
            assert!(key.to_pem().starts_with("-----BEGIN PRIVATE KEY-----\n"));
        }
        assert!(PrivateKey::from_der(b"").is_err() && PrivateKey::from_der(&[0x30, 0x82]).is_err());
    }
}
