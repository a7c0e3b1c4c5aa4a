//! OCSP (RFC 6960): requests, and what responses are worth.
//!
//! Called for certificates of clients (`ssl_ocsp`) and for responses to be stapled (`ssl_stapling`).
//! How a responder is reached is the caller's matter. Checking a response takes one or two signature
//! checks: do it in a pool.
//!
//! The messages are read with the reader of certificates. A library of its own would bring a second
//! reader of DER, and would have to give back the signed bytes as they were.

use std::fmt::Write as _;
use std::time::{Duration, SystemTime};

use aws_lc_rs::digest;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rustls::pki_types::{CertificateDer, SubjectPublicKeyInfoDer};

use crate::certificate::{self, Certificate, Usage, Validity};
use crate::der::{BIT_STRING, DerReader, INTEGER, OCTET_STRING, OID, SEQUENCE};
use crate::verify::is_signed_by;

/// Maximum size of a response.
pub const RESPONSE_BYTES_MAX: usize = 64 * 1024;

/// The tolerance for differences of clocks, as in nginx.
const CLOCK_SKEW: Duration = Duration::from_secs(300);

/// Certificates of a response that are tried for its signature, at most.
const SIGNERS_MAX: usize = 8;

const ENUMERATED: u8 = 0x0a;
const GENERALIZED_TIME: u8 = 0x18;

/// `id-sha1`, and the parameters.
const SHA1: &[u8] = &[0x06, 5, 0x2b, 0x0e, 3, 2, 0x1a, 0x05, 0];
const SHA1_ID: &[u8] = &[0x2b, 0x0e, 3, 2, 0x1a];
const SHA256_ID: &[u8] = &[0x60, 0x86, 0x48, 1, 0x65, 3, 4, 2, 1];
/// `id-pkix-ocsp-basic`
const BASIC: &[u8] = &[0x2b, 6, 1, 5, 5, 7, 0x30, 1, 1];
/// `id-ad-ocsp`
const ACCESS_BY_OCSP: &[u8] = &[0x2b, 6, 1, 5, 5, 7, 0x30, 1];
/// `id-pe-authorityInfoAccess`
const AUTHORITY_INFO_ACCESS: &[u8] = &[0x2b, 6, 1, 5, 5, 7, 1, 1];
/// `uniformResourceIdentifier` of a `GeneralName`.
const URI: u8 = 0x86;

/// A certificate and its issuer, the subject of a request.
#[derive(Clone, Debug)]
pub struct Question {
    issuer: CertificateDer<'static>,
    /// The issuer's name, as it is encoded.
    name: Vec<u8>,
    /// The issuer's public key, without its algorithm.
    key: Vec<u8>,
    serial: Vec<u8>,
    /// Certificates that a response may be signed with, unless only the issuer may do that.
    others: Vec<CertificateDer<'static>>,
}

/// The status of a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// Not revoked.
    Good,
    /// Revoked.
    Revoked,
    /// Unknown to the responder.
    Unknown,
}

impl Status {
    /// OpenSSL's word (`OCSP_cert_status_str`).
    pub fn name(self) -> &'static str {
        match self {
            Status::Good => "good",
            Status::Revoked => "revoked",
            Status::Unknown => "unknown",
        }
    }
}

/// The content of a valid response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OcspResult {
    /// The status.
    pub status: Status,
    /// The time of the next update; `None`: at any time.
    pub until: Option<SystemTime>,
}

/// The accepted signers of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signer {
    /// The issuer of the certificate, or a responder authorized by it (RFC 6960, 4.2.2.2).
    Authorized,
    /// Any certificate in the response (`ssl_stapling_verify off`).
    Any,
}

/// The address of the responder that a certificate names.
pub fn responder(certificate: &CertificateDer<'_>) -> Option<String> {
    let certificate = Certificate::parse(certificate)?;
    let mut all = DerReader::new(certificate.extension(AUTHORITY_INFO_ACCESS)?).enter(SEQUENCE)?;
    while !all.is_empty() {
        let mut access = all.enter(SEQUENCE)?;
        let method = access.expect(OID)?;
        let location = access.next()?;
        if method == ACCESS_BY_OCSP && location.tag == URI {
            return String::from_utf8(location.contents.to_vec()).ok();
        }
    }
    None
}

/// Whether one certificate names the other as its issuer, which has signed it.
pub fn is_issuer(issuer: &CertificateDer<'_>, certificate: &CertificateDer<'_>) -> bool {
    let (Some(parsed), Some(by)) = (Certificate::parse(certificate), Certificate::parse(issuer))
    else {
        return false;
    };
    parsed.issuer_der() == by.subject_der() && is_signed_by(certificate, &by.public_key())
}

impl Question {
    /// For a certificate of this issuer. `others` are further certificates whose keys may sign responses.
    /// `None`: the certificates are malformed.
    pub fn new(
        certificate: &CertificateDer<'_>,
        issuer: &CertificateDer<'_>,
        others: Vec<CertificateDer<'static>>,
    ) -> Option<Question> {
        let serial = Certificate::parse(certificate)?.serial_der().to_vec();
        let parsed = Certificate::parse(issuer)?;
        let name = tagged(SEQUENCE, parsed.subject_der());
        let key = key_of(&parsed.public_key())?.to_vec();
        Some(Question { issuer: issuer.clone().into_owned(), name, key, serial, others })
    }

    /// The request, in DER.
    pub fn request(&self) -> Vec<u8> {
        let id = [
            tagged(SEQUENCE, SHA1),
            tagged(OCTET_STRING, &sha1(&self.name)),
            tagged(OCTET_STRING, &sha1(&self.key)),
            tagged(INTEGER, &self.serial),
        ];
        // OCSPRequest, its TBSRequest, `requestList`, the only Request, `reqCert`.
        (0..5).fold(id.concat(), |inner, _| tagged(SEQUENCE, &inner))
    }

    /// The request as the last part of a path (RFC 6960, A.1).
    pub fn path(&self) -> String {
        let mut path = String::new();
        for byte in STANDARD.encode(self.request()).bytes() {
            match byte {
                b'+' | b'/' | b'=' => {
                    let _ = write!(path, "%{byte:02X}");
                }
                _ => path.push(char::from(byte)),
            }
        }
        path
    }

    /// Identifies it among all questions.
    pub fn id(&self) -> Vec<u8> {
        [&sha1(&self.name)[..], &sha1(&self.key), &self.serial].concat()
    }

    /// The status of the certificate in a response.
    ///
    /// # Errors
    /// The response is invalid; the text is for the log.
    pub fn check(
        &self,
        response: &[u8],
        signer: Signer,
        now: SystemTime,
    ) -> Result<OcspResult, String> {
        const MALFORMED: &str = "d2i_OCSP_RESPONSE() failed";
        let open = |bytes| {
            let mut response = DerReader::new(bytes).enter(SEQUENCE)?;
            let status = *response.expect(ENUMERATED)?.first()?;
            Some((status, response.optional(0xa0)))
        };
        let (status, contents) = open(response).ok_or(MALFORMED)?;
        if status != 0 {
            let name = match status {
                1 => "malformedrequest",
                2 => "internalerror",
                3 => "trylater",
                5 => "sigrequired",
                6 => "unauthorized",
                _ => "(UNKNOWN)",
            };
            return Err(format!("OCSP response not successful ({status}: {name})"));
        }
        let basic = || {
            let mut typed = DerReader::new(contents?).enter(SEQUENCE)?;
            (typed.expect(OID)? == BASIC).then_some(())?;
            typed.expect(OCTET_STRING)
        };
        let basic = basic().ok_or("OCSP_response_get1_basic() failed")?;
        let data = self.signed(basic, signer, now)?;
        let found = self.find(data).ok_or(MALFORMED)?;
        let SingleResponse { status, this_update, next_update } =
            found.ok_or("certificate status not found in the OCSP response")?;
        let is_early = this_update > now + CLOCK_SKEW;
        let is_late = next_update.is_some_and(|next| next + CLOCK_SKEW < now);
        let why = match (is_early, is_late) {
            (true, _) => "status not yet valid",
            (_, true) => "status expired",
            (false, false) => return Ok(OcspResult { status, until: next_update }),
        };
        Err(format!("OCSP_check_validity() failed (SSL: {why})"))
    }

    /// The data of a basic response, if the signature is good.
    fn signed<'a>(
        &self,
        basic: &'a [u8],
        signer: Signer,
        now: SystemTime,
    ) -> Result<&'a [u8], String> {
        let failed = |why| format!("OCSP_basic_verify() failed (SSL: {why})");
        let open = || {
            let mut basic = DerReader::new(basic).enter(SEQUENCE)?;
            let data = basic.expect(SEQUENCE)?;
            basic.expect(SEQUENCE)?;
            basic.expect(BIT_STRING)?;
            let mut certificates = Vec::new();
            if let Some(all) = basic.optional(0xa0) {
                let mut all = DerReader::new(all).enter(SEQUENCE)?;
                while let Some(certificate) = all.next() {
                    certificates.push(CertificateDer::from(certificate.whole));
                }
            }
            Some((data, certificates))
        };
        let (data, certificates) = open().ok_or_else(|| failed("malformed response"))?;
        let issuer = Certificate::parse(&self.issuer).ok_or_else(|| failed("malformed issuer"))?;
        if is_signed_by(basic, &issuer.public_key()) {
            return Ok(data);
        }
        let sent = certificates.iter().take(SIGNERS_MAX);
        let others = self.others.iter().take(SIGNERS_MAX).filter(|_| signer == Signer::Any);
        let mut why = "signer certificate not found";
        for certificate in sent.chain(others) {
            let Some(parsed) = Certificate::parse(certificate) else { continue };
            if !is_signed_by(basic, &parsed.public_key()) {
                continue;
            }
            // "MUST be authorized by … a designated responder's certificate, issued directly by
            // the CA that is identified in the request" (RFC 6960, 4.2.2.2).
            let is_authorized = parsed.allows(Usage::OcspSigning)
                && parsed.issuer_der() == issuer.subject_der()
                && parsed.validity(now) == Validity::Now
                && !parsed.has_unknown_demands()
                && is_signed_by(certificate, &issuer.public_key());
            if is_authorized || signer == Signer::Any {
                return Ok(data);
            }
            why = "root ca not trusted";
        }
        Err(failed(why))
    }

    /// The part about this certificate: the last `None` of two means that there is none.
    #[expect(clippy::option_option, reason = "malformed, or without the certificate")]
    fn find(&self, data: &[u8]) -> Option<Option<SingleResponse>> {
        let mut data = DerReader::new(data);
        data.optional(0xa0);
        // `responderID` and `producedAt`.
        data.next()?;
        data.expect(GENERALIZED_TIME)?;
        let mut all = data.enter(SEQUENCE)?;
        while !all.is_empty() {
            let mut single = all.enter(SEQUENCE)?;
            let is_it = self.is_meant(single.enter(SEQUENCE)?)?;
            let status = match single.next()?.tag {
                0x80 => Status::Good,
                0xa1 => Status::Revoked,
                0x82 => Status::Unknown,
                _ => return None,
            };
            let this_update = certificate::time(single.next()?)?;
            let next_update = match single.optional(0xa0) {
                Some(next) => Some(certificate::time(DerReader::new(next).next()?)?),
                None => None,
            };
            if is_it {
                return Some(Some(SingleResponse { status, this_update, next_update }));
            }
        }
        Some(None)
    }

    /// Whether a `CertID` identifies this certificate; `None` if it is malformed.
    fn is_meant(&self, mut id: DerReader<'_>) -> Option<bool> {
        let hash = id.enter(SEQUENCE)?.expect(OID)?;
        let hashed: fn(&[u8]) -> Vec<u8> = match hash {
            SHA1_ID => sha1,
            SHA256_ID => |bytes| digest::digest(&digest::SHA256, bytes).as_ref().to_vec(),
            _ => return Some(false),
        };
        let (name, key) = (id.expect(OCTET_STRING)?, id.expect(OCTET_STRING)?);
        let serial = id.expect(INTEGER)?;
        Some(serial == self.serial && name == hashed(&self.name) && key == hashed(&self.key))
    }
}

struct SingleResponse {
    status: Status,
    this_update: SystemTime,
    next_update: Option<SystemTime>,
}

fn sha1(bytes: &[u8]) -> Vec<u8> {
    digest::digest(&digest::SHA1_FOR_LEGACY_USE_ONLY, bytes).as_ref().to_vec()
}

/// The bits of a public key.
fn key_of<'a>(spki: &'a SubjectPublicKeyInfoDer<'_>) -> Option<&'a [u8]> {
    let mut spki = DerReader::new(spki).enter(SEQUENCE)?;
    spki.expect(SEQUENCE)?;
    spki.expect(BIT_STRING)?.get(1..)
}

/// A value in DER.
fn tagged(tag: u8, contents: &[u8]) -> Vec<u8> {
    let len = contents.len();
    let mut bytes = vec![tag];
    match len {
        0..0x80 => bytes.push(len as u8),
        _ => {
            let digits = len.to_be_bytes();
            let digits = &digits[digits.iter().take_while(|digit| **digit == 0).count()..];
            bytes.push(0x80 | digits.len() as u8);
            bytes.extend_from_slice(digits);
        }
    }
    bytes.extend_from_slice(contents);
    bytes
}
