//! Certificate revocation lists of version 1, which webpki does not read: `openssl ca -gencrl` makes
//! such ones unless its configuration names extensions.

use std::collections::HashSet;
use std::fmt;
use std::time::SystemTime;

use crate::certificate;
use crate::der::{BIT_STRING, INTEGER, Reader, SEQUENCE};

/// Tags of times.
const TIMES: [u8; 2] = [0x17, 0x18];

/// A list.
pub(crate) struct OldList {
    der: Vec<u8>,
    issuer: Vec<u8>,
    /// When a newer one should exist.
    until: Option<SystemTime>,
    serials: HashSet<Vec<u8>>,
}

impl fmt::Debug for OldList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OldList({} revoked)", self.serials.len())
    }
}

impl OldList {
    /// `None`: it is not a list of version 1.
    pub(crate) fn parse(der: &[u8]) -> Option<OldList> {
        let mut list = Reader::new(der).enter(SEQUENCE)?;
        let mut signed = list.enter(SEQUENCE)?;
        list.expect(SEQUENCE)?;
        list.expect(BIT_STRING)?;
        // A version would come first.
        signed.expect(SEQUENCE)?;
        let issuer = signed.expect(SEQUENCE)?.to_vec();
        signed.next().filter(|time| TIMES.contains(&time.tag))?;
        let until = match signed.peek() {
            Some(tag) if TIMES.contains(&tag) => Some(certificate::time(signed.next()?)?),
            _ => None,
        };
        let mut serials = HashSet::new();
        let mut entries = Reader::new(signed.optional(SEQUENCE).unwrap_or_default());
        while !entries.is_empty() {
            let serial = entries.enter(SEQUENCE)?.expect(INTEGER)?;
            serials.insert(serial.to_vec());
        }
        signed.is_empty().then(|| OldList { der: der.to_vec(), issuer, until, serials })
    }

    /// The list, as it was signed.
    pub(crate) fn der(&self) -> &[u8] {
        &self.der
    }

    /// The contents of its issuer's name.
    pub(crate) fn issuer(&self) -> &[u8] {
        &self.issuer
    }

    /// Whether the certificate of this serial number is in it.
    pub(crate) fn has(&self, serial: &[u8]) -> bool {
        self.serials.contains(serial)
    }

    /// Whether a newer one should exist.
    pub(crate) fn has_expired(&self, now: SystemTime) -> bool {
        self.until.is_some_and(|until| until < now)
    }
}
