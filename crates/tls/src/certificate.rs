//! Properties of a certificate, for variables and access rules.
//!
//! Read from the DER of a presented certificate, independent of its verification (`verify.rs`).

use std::fmt::Write as _;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use aws_lc_rs::digest;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use data_encoding::{HEXLOWER, HEXUPPER};
use rustls::pki_types::{CertificateDer, SubjectPublicKeyInfoDer};

use crate::der::{BIT_STRING, BOOLEAN, DerReader, DerValue, INTEGER, OCTET_STRING, OID, SEQUENCE};
use crate::name;

/// Characters per line of PEM.
const PEM_LINE: usize = 64;

const DAY_S: u64 = 86_400;

/// `id-ce-keyUsage`
const KEY_USAGE: &[u8] = &[0x55, 0x1d, 0x0f];

/// `keyCertSign`, in the first octet of the bits.
const KEY_CERT_SIGN: u8 = 0x04;

/// `id-ce-basicConstraints`
const BASIC_CONSTRAINTS: &[u8] = &[0x55, 0x1d, 0x13];

/// `cRLSign`
const CRL_SIGN: u8 = 0x02;

/// `digitalSignature`, `keyEncipherment` and `keyAgreement`.
const HANDSHAKE_USES: u8 = 0x80 | 0x20 | 0x08;

/// `id-ce-extKeyUsage`
const EXTENDED_KEY_USAGE: &[u8] = &[0x55, 0x1d, 0x25];

/// `id-ce-subjectAltName`
const SUBJECT_ALT_NAME: &[u8] = &[0x55, 0x1d, 0x11];

/// `id-ce-authorityKeyIdentifier`
const AUTHORITY_KEY_IDENTIFIER: &[u8] = &[0x55, 0x1d, 0x23];

/// `keyIdentifier` of an `AuthorityKeyIdentifier`.
const KEY_IDENTIFIER: u8 = 0x80;

/// `id-ce-nameConstraints`
const NAME_CONSTRAINTS: &[u8] = &[0x55, 0x1d, 0x1e];

/// The purposes of a certificate (RFC 5280, 4.2.1.12).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Usage {
    Server = 1,
    Client = 2,
    OcspSigning = 9,
}

/// An extension.
struct Extension<'a> {
    id: &'a [u8],
    is_critical: bool,
    value: &'a [u8],
}

/// A certificate, opened where its facts are.
#[derive(Clone, Debug)]
pub struct Certificate<'a> {
    der: &'a [u8],
    is_version_1: bool,
    serial: &'a [u8],
    issuer: &'a [u8],
    subject: &'a [u8],
    not_before: DerValue<'a>,
    not_after: DerValue<'a>,
    spki: DerValue<'a>,
    extensions: Option<&'a [u8]>,
}

impl<'a> Certificate<'a> {
    /// `None`: it is not a certificate.
    pub fn parse(der: &'a CertificateDer<'_>) -> Option<Certificate<'a>> {
        let der = der.as_ref();
        let mut signed = DerReader::new(der).enter(SEQUENCE)?.enter(SEQUENCE)?;
        let is_version_1 = signed.optional(0xa0).is_none();
        let serial = signed.expect(INTEGER)?;
        signed.expect(SEQUENCE)?;
        let issuer = signed.expect(SEQUENCE)?;
        let mut validity = signed.enter(SEQUENCE)?;
        let (not_before, not_after) = (validity.next()?, validity.next()?);
        let subject = signed.expect(SEQUENCE)?;
        let spki = signed.next().filter(|spki| spki.tag == SEQUENCE)?;
        signed.optional(0x81);
        signed.optional(0x82);
        let extensions = signed.optional(0xa3);
        Some(Certificate {
            der,
            is_version_1,
            serial,
            issuer,
            subject,
            not_before,
            not_after,
            spki,
            extensions,
        })
    }

    /// Of the `$ssl_client_raw_cert` form: PEM with a final newline.
    pub fn pem(&self) -> String {
        let text = STANDARD.encode(self.der);
        let mut pem = String::with_capacity(text.len() + text.len() / PEM_LINE + 64);
        pem.push_str("-----BEGIN CERTIFICATE-----\n");
        for line in text.as_bytes().chunks(PEM_LINE) {
            pem.extend(line.iter().copied().map(char::from));
            pem.push('\n');
        }
        pem.push_str("-----END CERTIFICATE-----\n");
        pem
    }

    /// Of the `$ssl_client_cert` form: each line but the first begins with a tab, so that it can be
    /// the value of a header field.
    pub fn folded_pem(&self) -> String {
        self.pem().trim_end().replace('\n', "\n\t")
    }

    /// Of the `$ssl_client_escaped_cert` form: PEM, escaped for use in a URI.
    pub fn escaped_pem(&self) -> String {
        let pem = self.pem();
        let mut text = String::with_capacity(pem.len() * 5 / 4);
        for byte in pem.bytes() {
            match byte {
                b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                    text.push(char::from(byte));
                }
                _ => {
                    let _ = write!(text, "%{byte:02X}");
                }
            }
        }
        text
    }

    /// The subject in the form of RFC 2253. Empty if it is malformed, as all names here.
    pub fn subject(&self) -> String {
        name::rfc2253(self.subject).unwrap_or_default()
    }

    /// The issuer in the form of RFC 2253.
    pub fn issuer(&self) -> String {
        name::rfc2253(self.issuer).unwrap_or_default()
    }

    /// The subject in OpenSSL's old form.
    pub fn legacy_subject(&self) -> String {
        name::oneline(self.subject).unwrap_or_default()
    }

    /// The issuer in OpenSSL's old form.
    pub fn legacy_issuer(&self) -> String {
        name::oneline(self.issuer).unwrap_or_default()
    }

    /// The contents of the issuer's name.
    pub(crate) fn issuer_der(&self) -> &[u8] {
        self.issuer
    }

    /// The subject, as it is encoded.
    pub(crate) fn subject_der(&self) -> &[u8] {
        self.subject
    }

    /// The parts of the subject.
    pub(crate) fn subject_parts(&self) -> DerReader<'a> {
        DerReader::new(self.subject)
    }

    /// The key identifier of its issuer (RFC 5280, 4.2.1.1), if it has one.
    pub fn authority_key_der(&self) -> Option<&'a [u8]> {
        let contents = self.extension(AUTHORITY_KEY_IDENTIFIER)?;
        DerReader::new(contents).enter(SEQUENCE)?.optional(KEY_IDENTIFIER)
    }

    /// The contents of the serial number.
    pub fn serial_der(&self) -> &[u8] {
        self.serial
    }

    /// The value of an extension; `None` if it is missing, or the extensions are malformed.
    pub(crate) fn extension(&self, id: &[u8]) -> Option<&'a [u8]> {
        let all = self.all_extensions()?;
        all.into_iter().find(|extension| extension.id == id).map(|extension| extension.value)
    }

    /// `None`: they are malformed.
    fn all_extensions(&self) -> Option<Vec<Extension<'a>>> {
        let Some(extensions) = self.extensions else { return Some(Vec::new()) };
        let mut rest = DerReader::new(extensions).enter(SEQUENCE)?;
        let mut all = Vec::new();
        while !rest.is_empty() {
            let mut extension = rest.enter(SEQUENCE)?;
            let id = extension.expect(OID)?;
            let is_critical = extension.optional(BOOLEAN).is_some_and(|value| value != [0]);
            let value = extension.expect(OCTET_STRING)?;
            all.push(Extension { id, is_critical, value });
        }
        Some(all)
    }

    /// Whether it demands what only webpki can judge: by constraints of names, by critical
    /// extensions of other kinds than those read here, or because they are malformed.
    pub(crate) fn has_unknown_demands(&self) -> bool {
        const KNOWN: &[&[u8]] =
            &[KEY_USAGE, BASIC_CONSTRAINTS, EXTENDED_KEY_USAGE, SUBJECT_ALT_NAME];
        let Some(all) = self.all_extensions() else { return true };
        all.iter().any(|extension| {
            extension.is_critical && !KNOWN.contains(&extension.id)
                || extension.id == NAME_CONSTRAINTS
        })
    }

    /// The DNS names that it is for (RFC 5280, 4.2.1.6), as far as they are ASCII.
    pub fn dns_names(&self) -> Vec<&'a str> {
        /// `dNSName`
        const DNS_NAME: u8 = 0x82;
        let names = self.extension(SUBJECT_ALT_NAME);
        let Some(mut names) = names.and_then(|value| DerReader::new(value).enter(SEQUENCE)) else {
            return Vec::new();
        };
        let mut all = Vec::new();
        while let Some(name) = names.next() {
            if name.tag == DNS_NAME && name.contents.is_ascii() {
                all.extend(std::str::from_utf8(name.contents));
            }
        }
        all
    }

    /// Whether it may be used for this, as far as `extKeyUsage` says.
    pub(crate) fn allows(&self, usage: Usage) -> bool {
        let Some(value) = self.extension(EXTENDED_KEY_USAGE) else {
            return usage != Usage::OcspSigning;
        };
        // `id-kp`, and the number of the purpose.
        let wanted = [0x2b, 6, 1, 5, 5, 7, 3, usage as u8];
        let Some(mut all) = DerReader::new(value).enter(SEQUENCE) else { return false };
        while let Some(value) = all.next() {
            if value.tag == OID && value.contents == wanted {
                return true;
            }
        }
        false
    }

    /// The first octet of `keyUsage`; `None`: there is none.
    fn key_usage(&self) -> Option<u8> {
        let value = self.extension(KEY_USAGE)?;
        let bits = DerReader::new(value).expect(BIT_STRING);
        // Malformed: no use is allowed.
        Some(bits.and_then(|bits| bits.get(1).copied()).unwrap_or_default())
    }

    /// Whether its key may be used in handshakes.
    pub(crate) fn is_for_handshakes(&self) -> bool {
        self.key_usage().is_none_or(|usage| usage & HANDSHAKE_USES != 0)
    }

    /// Whether it may sign revocation lists.
    pub(crate) fn may_sign_lists(&self) -> bool {
        self.key_usage().is_none_or(|usage| usage & CRL_SIGN != 0)
    }

    /// Maximum number of certificates of authorities below it; `None`: no limit.
    pub(crate) fn path_len(&self) -> Option<usize> {
        let mut constraints = DerReader::new(self.extension(BASIC_CONSTRAINTS)?).enter(SEQUENCE)?;
        constraints.optional(BOOLEAN);
        match constraints.is_empty() {
            true => None,
            // Malformed: none.
            false => Some(constraints.number().map_or(0, |max| max as usize)),
        }
    }

    /// Whether it has no version, and so no extensions.
    pub(crate) fn is_version_1(&self) -> bool {
        self.is_version_1
    }

    /// The certificate.
    pub(crate) fn der(&self) -> &'a [u8] {
        self.der
    }

    /// Whether it may sign other certificates. OpenSSL: `X509_check_ca`.
    pub(crate) fn may_sign(&self) -> bool {
        let usage = self.key_usage();
        let constraints = self.extension(BASIC_CONSTRAINTS).map(|constraints| {
            let mut constraints = DerReader::new(constraints).enter(SEQUENCE)?;
            constraints.optional(BOOLEAN)
        });
        match constraints {
            _ if usage.is_some_and(|usage| usage & KEY_CERT_SIGN == 0) => false,
            Some(is_authority) => is_authority.is_some_and(|value| value != [0]),
            // Older than the extension.
            None => usage.is_some() || self.is_version_1 && self.is_self_issued(),
        }
    }

    /// Whether it names itself as its issuer.
    pub fn is_self_issued(&self) -> bool {
        self.subject == self.issuer
    }

    /// The serial number in hexadecimal, as OpenSSL prints it.
    pub fn serial(&self) -> String {
        let mut bytes = self.serial;
        while bytes.len() > 1 && bytes[0] == 0 {
            bytes = &bytes[1..];
        }
        HEXUPPER.encode(bytes)
    }

    /// SHA-1 of the certificate, in hexadecimal.
    pub fn fingerprint(&self) -> String {
        let hash = digest::digest(&digest::SHA1_FOR_LEGACY_USE_ONLY, self.der);
        HEXLOWER.encode(hash.as_ref())
    }

    /// The start of its validity, as printed by OpenSSL: `Nov 23 03:04:17 2026 GMT`.
    pub fn valid_from(&self) -> String {
        Date::parse(self.not_before).map_or_else(String::new, |date| date.to_text())
    }

    /// The end of its validity.
    pub fn valid_to(&self) -> String {
        Date::parse(self.not_after).map_or_else(String::new, |date| date.to_text())
    }

    /// Days until it ceases to be valid; zero if it has. `None`: its date is malformed.
    pub fn remaining_days(&self, now: SystemTime) -> Option<u64> {
        let end = Date::parse(self.not_after)?.to_system_time()?;
        Some(end.duration_since(now).map_or(0, |left| left.as_secs() / DAY_S))
    }

    /// The period of its validity; `None` if a date is malformed.
    pub fn dates(&self) -> Option<(SystemTime, SystemTime)> {
        let begin = Date::parse(self.not_before)?.to_system_time()?;
        Some((begin, Date::parse(self.not_after)?.to_system_time()?))
    }

    /// Whether it is valid now, as far as its dates are concerned.
    pub(crate) fn validity(&self, now: SystemTime) -> Validity {
        match self.dates() {
            Some((begin, _)) if now < begin => Validity::NotYet,
            Some((_, end)) if now <= end => Validity::Now,
            _ => Validity::Expired,
        }
    }

    /// The public key with its algorithm (`SubjectPublicKeyInfo`).
    pub(crate) fn public_key(&self) -> SubjectPublicKeyInfoDer<'a> {
        SubjectPublicKeyInfoDer::from(self.spki.whole)
    }

    /// The algorithm and the size of the public key.
    pub(crate) fn key_kind(&self) -> KeyKind {
        Self::kind_of(DerReader::new(self.spki.contents)).unwrap_or(KeyKind::Other)
    }

    fn kind_of(mut spki: DerReader<'_>) -> Option<KeyKind> {
        const RSA: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 1];
        const EC: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 2, 1];
        const P256: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 3, 1, 7];
        const ED25519: &[u8] = &[0x2b, 0x65, 0x70];
        let mut algorithm = spki.enter(SEQUENCE)?;
        match algorithm.expect(OID)? {
            ED25519 => Some(KeyKind::Ed25519),
            EC if algorithm.expect(OID)? == P256 => Some(KeyKind::EcdsaP256),
            RSA => {
                let key = spki.expect(BIT_STRING)?.get(1..)?;
                let modulus = DerReader::new(key).enter(SEQUENCE)?.expect(INTEGER)?;
                let bytes = modulus.iter().skip_while(|byte| **byte == 0).count();
                Some(KeyKind::Rsa { bits: bytes * 8 })
            }
            _ => None,
        }
    }
}

/// The relation of a time to a certificate's dates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Validity {
    NotYet,
    Now,
    Expired,
}

/// The type of a public key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyKind {
    /// ECDSA on P-256.
    EcdsaP256,
    /// Ed25519.
    Ed25519,
    /// RSA with a modulus of this size.
    Rsa {
        /// In bits.
        bits: usize,
    },
    /// Other types, such as ECDSA on P-384 or P-521.
    Other,
}

/// The value of a time in a certificate or a revocation list.
pub(crate) fn time(value: DerValue<'_>) -> Option<SystemTime> {
    Date::parse(value)?.to_system_time()
}

/// A UTCTime or GeneralizedTime, in UTC as RFC 5280 demands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Date {
    year: u64,
    month: u64,
    day: u64,
    hour: u64,
    minute: u64,
    second: u64,
}

impl Date {
    fn parse(value: DerValue<'_>) -> Option<Date> {
        let digits = value.contents.strip_suffix(b"Z")?;
        if !digits.iter().all(u8::is_ascii_digit) {
            return None;
        }
        let two = |at: usize| -> Option<u64> {
            let pair = digits.get(at..at + 2)?;
            Some(u64::from(pair[0] - b'0') * 10 + u64::from(pair[1] - b'0'))
        };
        let (year, at) = match (value.tag, digits.len()) {
            // RFC 5280, 4.1.2.5.1: "Where YY is greater than or equal to 50, the year SHALL be
            // interpreted as 19YY".
            (0x17, 12) => (two(0)? + if two(0)? >= 50 { 1900 } else { 2000 }, 2),
            (0x18, 14) => (two(0)? * 100 + two(2)?, 4),
            _ => return None,
        };
        let date = Date {
            year,
            month: two(at)?,
            day: two(at + 2)?,
            hour: two(at + 4)?,
            minute: two(at + 6)?,
            second: two(at + 8)?,
        };
        let sane = (1..=12).contains(&date.month)
            && (1..=31).contains(&date.day)
            && date.hour < 24
            && date.minute < 60
            && date.second < 61;
        sane.then_some(date)
    }

    /// As `ASN1_TIME_print`.
    fn to_text(self) -> String {
        const MONTHS: [&str; 12] =
            ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
        let Date { year, day, hour, minute, second, .. } = self;
        let month = MONTHS[self.month as usize - 1];
        format!("{month} {day:2} {hour:02}:{minute:02}:{second:02} {year} GMT")
    }

    /// `None`: before 1970.
    fn to_system_time(self) -> Option<SystemTime> {
        // Days since 1 March of the year 0, in a year that begins in March.
        let (year, month) = match self.month {
            0..=2 => (self.year.checked_sub(1)?, self.month + 9),
            month => (self.year, month - 3),
        };
        let days = year * 365 + year / 4 - year / 100 + year / 400 + (month * 153 + 2) / 5;
        let days = (days + self.day - 1).checked_sub(719_468)?;
        let seconds = days * DAY_S + self.hour * 3600 + self.minute * 60 + self.second;
        UNIX_EPOCH.checked_add(Duration::from_secs(seconds))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn date(tag: u8, text: &str) -> Option<Date> {
        Date::parse(DerValue { tag, contents: text.as_bytes(), whole: &[] })
    }

    #[test]
    fn dates_are_read_and_printed() {
        let at = |tag, text| {
            let date = date(tag, text).unwrap();
            let since = date.to_system_time().unwrap().duration_since(UNIX_EPOCH).unwrap();
            (date.to_text(), since.as_secs())
        };
        assert_eq!(at(0x17, "261123030417Z"), ("Nov 23 03:04:17 2026 GMT".into(), 1_795_403_057));
        assert_eq!(at(0x18, "20000229000000Z"), ("Feb 29 00:00:00 2000 GMT".into(), 951_782_400));
        assert_eq!(at(0x17, "700101000000Z").1, 0);
        assert!(date(0x17, "500101000000Z").unwrap().to_system_time().is_none());
        for odd in ["2611230304Z", "261323030417Z", "26112303041xZ", "261123030417", "Z"] {
            assert_eq!(date(0x17, odd), None, "{odd}");
        }
    }
}
