//! Certificate revocation lists, for certificates that webpki does not read, and those of version 1,
//! which it does not read itself: `openssl ca -gencrl` makes such ones unless its configuration names
//! extensions.

use std::collections::HashSet;
use std::fmt;
use std::time::SystemTime;

use crate::certificate;
use crate::der::{BIT_STRING, BOOLEAN, DerReader, INTEGER, OCTET_STRING, OID, SEQUENCE};

/// Tags of times.
const TIMES: [u8; 2] = [0x17, 0x18];

/// Tag of the extensions of a list.
const EXTENSIONS: u8 = 0xa0;

/// `None`: one of the extensions is critical, or they are malformed.
fn has_no_demands(extensions: &[u8]) -> Option<()> {
    let mut all = DerReader::new(extensions);
    while !all.is_empty() {
        let mut extension = all.enter(SEQUENCE)?;
        extension.expect(OID)?;
        let is_critical = extension.optional(BOOLEAN).is_some_and(|value| value != [0]);
        extension.expect(OCTET_STRING)?;
        (!is_critical).then_some(())?;
    }
    Some(())
}

/// A list.
#[derive(Clone)]
pub(crate) struct List {
    der: Vec<u8>,
    issuer: Vec<u8>,
    /// The time of the next update.
    until: Option<SystemTime>,
    is_version_1: bool,
    serials: HashSet<Vec<u8>>,
}

impl fmt::Debug for List {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "List({} revoked)", self.serials.len())
    }
}

impl List {
    /// `None` if it is malformed, or if critical extensions show that it is not a plain list of all
    /// certificates revoked by its issuer.
    pub(crate) fn parse(der: &[u8]) -> Option<List> {
        let mut list = DerReader::new(der).enter(SEQUENCE)?;
        let mut signed = list.enter(SEQUENCE)?;
        list.expect(SEQUENCE)?;
        list.expect(BIT_STRING)?;
        let version = signed.optional(INTEGER);
        let is_version_1 = version.is_none();
        version.is_none_or(|version| version == [1]).then_some(())?;
        signed.expect(SEQUENCE)?;
        let issuer = signed.expect(SEQUENCE)?.to_vec();
        signed.next().filter(|time| TIMES.contains(&time.tag))?;
        let until = match signed.peek() {
            Some(tag) if TIMES.contains(&tag) => Some(certificate::time(signed.next()?)?),
            _ => None,
        };
        let mut serials = HashSet::new();
        let mut entries = DerReader::new(signed.optional(SEQUENCE).unwrap_or_default());
        while !entries.is_empty() {
            let mut entry = entries.enter(SEQUENCE)?;
            serials.insert(entry.expect(INTEGER)?.to_vec());
            entry.next().filter(|time| TIMES.contains(&time.tag))?;
            if !entry.is_empty() {
                has_no_demands(entry.expect(SEQUENCE)?)?;
            }
        }
        if let Some(extensions) = signed.optional(EXTENSIONS) {
            has_no_demands(DerReader::new(extensions).expect(SEQUENCE)?)?;
        }
        let list = List { der: der.to_vec(), issuer, until, is_version_1, serials };
        signed.is_empty().then_some(list)
    }

    /// Whether webpki does not read it.
    pub(crate) fn is_version_1(&self) -> bool {
        self.is_version_1
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

    /// Whether the time of the next update has passed.
    pub(crate) fn has_expired(&self, now: SystemTime) -> bool {
        self.until.is_some_and(|until| until < now)
    }
}
