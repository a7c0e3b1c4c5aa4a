//! Requests for certificates (PKCS #10, RFC 2986).

use std::net::IpAddr;

use crate::der::{self, CONTEXT_0, OCTETS, OID, SEQUENCE, SET, UTF8, value};
use crate::key::{KeyError, PrivateKey};

/// An identifier of a certificate (RFC 8555, 9.7.7; RFC 8738).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Identifier {
    /// A host name in lower case.
    Dns(String),
    /// An address.
    Ip(IpAddr),
}

impl Identifier {
    /// The type in the protocol.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Dns(_) => "dns",
            Self::Ip(_) => "ip",
        }
    }

    /// The value in the protocol.
    pub fn value(&self) -> String {
        match self {
            Self::Dns(name) => name.clone(),
            Self::Ip(ip) => ip.to_string(),
        }
    }
}

/// A request for a certificate, in DER.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateRequest(pub(crate) Vec<u8>);

pub(crate) const COMMON_NAME: &[u8] = &[0x55, 4, 3];
pub(crate) const SUBJECT_ALT_NAME: &[u8] = &[0x55, 0x1d, 17];
const EXTENSION_REQUEST: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 9, 14];

impl CertificateRequest {
    /// A request for these identifiers, signed by the certificate's key. `common_name`: the first
    /// identifier is the subject's name, too.
    ///
    /// # Errors
    /// The key can't sign.
    pub fn new(key: &PrivateKey, all: &[Identifier], common_name: bool) -> Result<Self, KeyError> {
        let names: Vec<u8> = all.iter().flat_map(general_name).collect();
        let names = value(OCTETS, &[&value(SEQUENCE, &[&names])]);
        let extension = value(SEQUENCE, &[&value(OID, &[SUBJECT_ALT_NAME]), &names]);
        let extensions = value(SET, &[&value(SEQUENCE, &[&extension])]);
        let attribute = value(SEQUENCE, &[&value(OID, &[EXTENSION_REQUEST]), &extensions]);
        let subject = match all.first().filter(|_| common_name) {
            None => value(SEQUENCE, &[]),
            Some(first) => {
                let text = value(UTF8, &[first.value().as_bytes()]);
                let pair = value(SEQUENCE, &[&value(OID, &[COMMON_NAME]), &text]);
                value(SEQUENCE, &[&value(SET, &[&pair])])
            }
        };
        // Version 1 is written as 0.
        let version = [2, 1, 0];
        let public = key.public_der()?;
        let attributes = value(CONTEXT_0, &[&attribute]);
        let info = value(SEQUENCE, &[&version, &subject, &public, &attributes]);
        let (signature, algorithm) = key.sign_der(&info)?;
        Ok(Self(value(SEQUENCE, &[&info, algorithm, &der::bits(&signature)])))
    }
}

pub(crate) fn general_name(identifier: &Identifier) -> Vec<u8> {
    match identifier {
        Identifier::Dns(name) => value(0x82, &[name.as_bytes()]),
        Identifier::Ip(IpAddr::V4(ip)) => value(0x87, &[&ip.octets()]),
        Identifier::Ip(IpAddr::V6(ip)) => value(0x87, &[&ip.octets()]),
    }
}
