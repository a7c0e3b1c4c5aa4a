//! Certificates that prove control of a name: `tls-alpn-01` (RFC 8737, RFC 8738).

use std::fmt::Write as _;
use std::net::IpAddr;

use aws_lc_rs::digest::{SHA256, digest};

use crate::base64;
use crate::der::{self, BOOLEAN, CONTEXT_0, OCTETS, OID, SEQUENCE, SET, UTF8, value};
use crate::key::{Algorithm, KeyError, PrivateKey};
use crate::order::Challenge;
use crate::request::{COMMON_NAME, Identifier, SUBJECT_ALT_NAME, general_name};

/// The application protocol of validations.
pub const ALPN: &[u8] = b"acme-tls/1";

/// `id-pe-acmeIdentifier`, 1.3.6.1.5.5.7.1.31
const ACME_IDENTIFIER: &[u8] = &[0x2b, 6, 1, 5, 5, 7, 1, 31];

/// `[3]` with contents: the extensions of a certificate.
const CONTEXT_3: u8 = 0xa3;

const INTEGER: u8 = 0x02;

/// Validity in ASN.1, from 2000 to the time that stands for no end (RFC 5280, 4.1.2.5): the issuer looks
/// at the names and at one extension.
const FROM: &[u8] = b"\x17\x0d000101000000Z";
const UNTIL: &[u8] = b"\x18\x0f99991231235959Z";

/// The certificate that a server presents to an issuer that validates a name.
#[derive(Debug)]
pub struct Validation {
    /// The server name (SNI) that the issuer sends, in lower case.
    pub server_name: String,
    /// The certificate and its key, in PEM.
    pub pem: zeroize::Zeroizing<String>,
}

impl Validation {
    /// The certificate for a challenge, with a new key.
    ///
    /// # Errors
    /// The library fails.
    pub fn new(challenge: &Challenge) -> Result<Self, KeyError> {
        let key = PrivateKey::generate(Algorithm::Ecdsa256)?;
        let digest = digest(&SHA256, challenge.authorization.as_bytes());
        let extension = |id: &[u8], is_critical: bool, contents: &[u8]| {
            let flag = if is_critical { value(BOOLEAN, &[&[0xff]]) } else { Vec::new() };
            value(SEQUENCE, &[&value(OID, &[id]), &flag, &value(OCTETS, &[contents])])
        };
        // RFC 8737, 3: "The subjectAltName extension MUST contain a single dNSName entry"; "The
        // acmeIdentifier extension MUST be critical".
        let names = value(SEQUENCE, &[&general_name(&challenge.identifier)]);
        let proof = value(OCTETS, &[digest.as_ref()]);
        let extensions = value(
            SEQUENCE,
            &[
                &extension(SUBJECT_ALT_NAME, false, &names),
                &extension(ACME_IDENTIFIER, true, &proof),
            ],
        );
        let text = value(UTF8, &[b"ACME challenge"]);
        let name = value(SEQUENCE, &[&value(OID, &[COMMON_NAME]), &text]);
        let name = value(SEQUENCE, &[&value(SET, &[&name])]);
        let version_3 = value(CONTEXT_0, &[&[INTEGER, 1, 2]]);
        let serial = value(INTEGER, &[&[1], &digest.as_ref()[..15]]);
        let algorithm = key.der_algorithm();
        let signed = value(
            SEQUENCE,
            &[
                &version_3,
                &serial,
                algorithm,
                &name,
                &value(SEQUENCE, &[FROM, UNTIL]),
                &name,
                &key.public_der()?,
                &value(CONTEXT_3, &[&extensions]),
            ],
        );
        let (signature, algorithm) = key.sign_der(&signed)?;
        let certificate = value(SEQUENCE, &[&signed, algorithm, &der::bits(&signature)]);
        let mut pem = key.to_pem();
        pem.push_str(&base64::pem("CERTIFICATE", &certificate));
        Ok(Self { server_name: server_name(&challenge.identifier), pem })
    }
}

/// The server name in an issuer's handshake: an address in its reverse form (RFC 8738, 6).
fn server_name(identifier: &Identifier) -> String {
    let mut name = String::new();
    match identifier {
        Identifier::Dns(dns) => return dns.clone(),
        Identifier::Ip(IpAddr::V4(ip)) => {
            for byte in ip.octets().iter().rev() {
                // Writing to a string can't fail.
                let _ = write!(name, "{byte}.");
            }
            name.push_str("in-addr.arpa");
        }
        Identifier::Ip(IpAddr::V6(ip)) => {
            for byte in ip.octets().iter().rev() {
                let _ = write!(name, "{:x}.{:x}.", byte & 15, byte >> 4);
            }
            name.push_str("ip6.arpa");
        }
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_asked_for_in_reverse() {
        let name = |ip: &str| server_name(&Identifier::Ip(ip.parse().unwrap()));
        assert_eq!(name("192.0.2.1"), "1.2.0.192.in-addr.arpa");
        let zeros = "0.".repeat(20);
        assert_eq!(name("2001:db8::abcd"), format!("d.c.b.a.{zeros}8.b.d.0.1.0.0.2.ip6.arpa"));
    }

    #[test]
    fn a_certificate_carries_the_proof() {
        let challenge = Challenge {
            token: "tok".to_owned(),
            authorization: "tok.thumb".to_owned(),
            identifier: Identifier::Dns("a.test".to_owned()),
        };
        let validation = Validation::new(&challenge).unwrap();
        assert_eq!(validation.server_name, "a.test");
        let text = validation.pem.split("-----").nth(6).unwrap().replace('\n', "");
        let der = crate::from_base64url(&text.replace('+', "-").replace('/', "_")).unwrap();
        let mut proof = vec![OID, 8];
        proof.extend_from_slice(ACME_IDENTIFIER);
        proof.extend_from_slice(&[BOOLEAN, 1, 0xff, OCTETS, 34, OCTETS, 32]);
        proof.extend_from_slice(digest(&SHA256, b"tok.thumb").as_ref());
        assert!(der.windows(proof.len()).any(|part| part == proof));
        assert!(der.windows(8).any(|part| part == b"\x82\x06a.test"));
    }
}
