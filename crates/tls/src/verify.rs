//! Verification of certificate chains, of clients and of servers.
//!
//! nginx lets every handshake with a client's certificate succeed, and decides by the result what
//! the request gets. So the handshake here only checks that the client has the key of the
//! certificate that it presents ([`AnyClientVerifier`]); the chain is verified afterwards, by
//! [`Verifier::verify`], which also knows what rustls does not: the depth of chains, and the words
//! of OpenSSL. Verifying takes several signature checks: for clients, do it in a pool.

use std::cell::Cell;
use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

use aws_lc_rs::digest;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{
    WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature,
    verify_tls13_signature_with_raw_key,
};
use rustls::pki_types::{
    CertificateDer, CertificateRevocationListDer, ServerName, SignatureVerificationAlgorithm,
    SubjectPublicKeyInfoDer, TrustAnchor, UnixTime,
};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, OtherError, SignatureScheme,
};
use webpki::{
    CertRevocationList, EndEntityCert, ExpirationPolicy, KeyUsage, OwnedCertRevocationList,
    RawPublicKeyEntity, RevocationCheckDepth, RevocationOptionsBuilder, UnknownStatusPolicy,
    VerifiedPath,
};

use crate::certificate::{Certificate, Validity};
use crate::der::{BIT_STRING, DerReader, SEQUENCE};
use crate::error::Error;
use crate::hostname;
use crate::list::List;
use crate::path::Search;
use crate::transcript;

/// The owner of the certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// A client's, presented to a server.
    Client,
    /// A server's, presented to a client.
    Server,
}

/// The reason why a chain is not trusted, in OpenSSL's wording (`X509_verify_cert_error_string`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Distrust(pub &'static str);

impl Distrust {
    /// There is no path from the certificate to a trusted one.
    pub(crate) const NO_ISSUER: Distrust = Distrust("unable to get local issuer certificate");
    pub(crate) const NO_ISSUER_AT_ALL: Distrust =
        Distrust("unable to verify the first certificate");
    pub(crate) const SELF_SIGNED: Distrust = Distrust("self-signed certificate");
    pub(crate) const TOO_LONG: Distrust = Distrust("certificate chain too long");
    pub(crate) const EXPIRED: Distrust = Distrust("certificate has expired");
    pub(crate) const NOT_YET: Distrust = Distrust("certificate is not yet valid");
    pub(crate) const SIGNATURE: Distrust = Distrust("certificate signature failure");
    pub(crate) const PATH_LEN: Distrust = Distrust("path length constraint exceeded");
    pub(crate) const PURPOSE: Distrust = Distrust("unsuitable certificate purpose");
    pub(crate) const UNHANDLED: Distrust = Distrust("unhandled critical extension");
    pub(crate) const NO_AUTHORITY: Distrust = Distrust("invalid CA certificate");
    pub(crate) const UNSPECIFIED: Distrust = Distrust("unspecified certificate verification error");

    /// Whether `ssl_verify_client optional_no_ca` ignores it.
    pub fn is_missing_ca(self) -> bool {
        [Distrust::NO_ISSUER, Distrust::NO_ISSUER_AT_ALL, Distrust::SELF_SIGNED].contains(&self)
    }

    /// OpenSSL's number of the reason (`X509_V_ERR_…`); 1: none of its own.
    pub fn number(self) -> u32 {
        match self.0 {
            "unable to get certificate CRL" => 3,
            "certificate signature failure" => 7,
            "CRL signature failure" => 8,
            "certificate is not yet valid" => 9,
            "certificate has expired" => 10,
            "CRL has expired" => 12,
            "self-signed certificate" => 18,
            "unable to get local issuer certificate" => 20,
            "unable to verify the first certificate" => 21,
            "certificate chain too long" => 22,
            "certificate revoked" => 23,
            "path length constraint exceeded" => 25,
            "unsuitable certificate purpose" => 26,
            "unhandled critical extension" => 34,
            "permitted subtree violation" => 47,
            "invalid CA certificate" => 79,
            _ => 1,
        }
    }

    fn of(error: &webpki::Error) -> Distrust {
        use webpki::Error as E;
        match error {
            E::CertExpired { .. } => Distrust::EXPIRED,
            E::CertNotValidYet { .. } => Distrust::NOT_YET,
            E::CertRevoked => Distrust("certificate revoked"),
            E::CrlExpired { .. } => Distrust("CRL has expired"),
            E::UnknownRevocationStatus => Distrust("unable to get certificate CRL"),
            E::InvalidCrlSignatureForPublicKey => Distrust("CRL signature failure"),
            E::InvalidSignatureForPublicKey => Distrust::SIGNATURE,
            E::MaximumPathDepthExceeded => Distrust::TOO_LONG,
            E::PathLenConstraintViolated => Distrust::PATH_LEN,
            E::NameConstraintViolation => Distrust("permitted subtree violation"),
            E::EndEntityUsedAsCa => Distrust::NO_AUTHORITY,
            E::RequiredEkuNotFoundContext(_) => Distrust::PURPOSE,
            E::UnsupportedCriticalExtension => Distrust::UNHANDLED,
            E::UnknownIssuer => Distrust::NO_ISSUER,
            _ => Distrust::UNSPECIFIED,
        }
    }
}

impl fmt::Display for Distrust {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for Distrust {}

/// The trusted certificates and lists for verification.
pub struct Verifier {
    trusted: Vec<CertificateDer<'static>>,
    anchors: Vec<TrustAnchor<'static>>,
    revoked: Vec<CertRevocationList<'static>>,
    /// Lists of version 1.
    old_lists: Vec<List>,
    /// Lists of both versions, for certificates that webpki does not read.
    lists: Vec<List>,
    /// Maximum number of certificates between a peer's and a trusted one.
    depth: usize,
    /// Of all of this.
    digest: [u8; 32],
}

impl fmt::Debug for Verifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (trusted, revoked) = (self.trusted.len(), self.revoked.len() + self.old_lists.len());
        write!(f, "Verifier({trusted} trusted, {revoked} lists, depth {})", self.depth)
    }
}

impl Verifier {
    /// Trusts the given certificates, and those that are signed by the authorities among them. With revocation lists, each issuer of a chain needs one, as
    /// with `ssl_crl`.
    ///
    /// # Errors
    /// A certificate or a list is malformed.
    pub fn new(
        trusted: Vec<CertificateDer<'static>>,
        lists: &[CertificateRevocationListDer<'_>],
        depth: usize,
    ) -> Result<Verifier, Error> {
        let malformed =
            |_: webpki::Error| Error::Pem("X509_STORE_add_cert()", "malformed certificate");
        let mut anchors = Vec::with_capacity(trusted.len());
        for certificate in &trusted {
            let anchor = webpki::anchor_from_trusted_cert(certificate).map_err(malformed)?;
            // webpki takes every anchor for an authority.
            if Certificate::parse(certificate).is_some_and(|trusted| trusted.may_sign()) {
                anchors.push(anchor.to_owned());
            }
        }
        let malformed =
            |_: webpki::Error| Error::Pem("X509_STORE_add_crl()", "malformed or unsupported list");
        let (mut revoked, mut old_lists, mut all) = (Vec::new(), Vec::new(), Vec::new());
        for list in lists {
            let parsed = List::parse(list);
            match (OwnedCertRevocationList::from_der(list), &parsed) {
                (Ok(list), _) => revoked.push(list.into()),
                (Err(_), Some(parsed)) if parsed.is_version_1() => old_lists.push(parsed.clone()),
                (Err(error), _) => return Err(malformed(error)),
            }
            all.extend(parsed);
        }
        let digest = digest_of(&trusted, lists, depth);
        Ok(Verifier { trusted, anchors, revoked, old_lists, lists: all, depth, digest })
    }

    /// Distinguishes it from verifiers with other results: a hash of all its parts.
    pub fn digest(&self) -> &[u8; 32] {
        &self.digest
    }

    /// Verifies a chain: the peer's own certificate, and the others that it sent.
    ///
    /// # Errors
    /// The reason why it is not trusted.
    pub fn verify(
        &self,
        chain: &[CertificateDer<'_>],
        role: Role,
        now: SystemTime,
    ) -> Result<(), Distrust> {
        let Some(own) = chain.first() else { return Err(Distrust::NO_ISSUER) };
        // webpki has no notion of a trusted certificate that is its own root.
        if self.trusted.iter().any(|trusted| **trusted == **own) {
            let validity = Certificate::parse(own).map(|certificate| certificate.validity(now));
            return match validity {
                Some(Validity::Now) => self.not_revoked(own, now),
                Some(Validity::NotYet) => Err(Distrust::NOT_YET),
                Some(Validity::Expired) | None => Err(Distrust::EXPIRED),
            };
        }
        self.find_path(chain, role, now).map(drop)
    }

    /// Like [`verify`](Self::verify); returns the path: the peer's certificate, those above it, and a
    /// trusted one.
    ///
    /// # Errors
    /// The reason why it is not trusted.
    pub fn find_path(
        &self,
        chain: &[CertificateDer<'_>],
        role: Role,
        now: SystemTime,
    ) -> Result<Vec<CertificateDer<'static>>, Distrust> {
        let Some((own, others)) = chain.split_first() else { return Err(Distrust::NO_ISSUER) };
        let search = self.search(others, role, now);
        let owned = |path: Vec<Certificate<'_>>| {
            let owned = |one: &Certificate<'_>| CertificateDer::from(one.der().to_vec());
            path.iter().map(owned).collect()
        };
        // The part not verified by webpki begins with its last certificate.
        let mut path = Vec::new();
        let mut seen = 0;
        let known;
        if self.trusted.iter().any(|trusted| **trusted == **own) {
            self.verify(chain, role, now)?;
            path.extend(Certificate::parse(own));
        } else {
            let by_webpki = match key_of_version_1(own) {
                Some(_) => Err(webpki::Error::UnsupportedCertVersion),
                None => self.verify_path(own, others, role, now),
            };
            match by_webpki {
                Ok(found) => {
                    known = found;
                    path.extend(known.iter().filter_map(Certificate::parse));
                    seen = path.len().saturating_sub(1);
                }
                Err(webpki::Error::UnsupportedCertVersion | webpki::Error::CaUsedAsEndEntity) => {
                    path = search.find(own)?
                }
                Err(webpki::Error::UnknownIssuer) if is_self_issued(own) => {
                    return Err(Distrust::SELF_SIGNED);
                }
                Err(webpki::Error::UnknownIssuer) if others.is_empty() => {
                    return Err(Distrust::NO_ISSUER_AT_ALL);
                }
                Err(error) => return Err(Distrust::of(&error)),
            }
        }
        search.complete(&mut path);
        search.not_revoked(&path[seen..])?;
        Ok(owned(path))
    }

    fn search<'a>(
        &'a self,
        others: &'a [CertificateDer<'a>],
        role: Role,
        now: SystemTime,
    ) -> Search<'a> {
        let (trusted, lists, depth) = (&self.trusted, &self.lists, self.depth);
        let has_lists = !self.revoked.is_empty() || !self.old_lists.is_empty();
        Search { trusted, others, lists, has_lists, role, depth, now }
    }

    /// Searches for a trusted certificate in the list of its issuer, which webpki does not check.
    fn not_revoked(&self, own: &CertificateDer<'_>, now: SystemTime) -> Result<(), Distrust> {
        const UNKNOWN: Distrust = Distrust("unable to get certificate CRL");
        if self.revoked.is_empty() && self.old_lists.is_empty() {
            return Ok(());
        }
        let own = Certificate::parse(own).ok_or(UNKNOWN)?;
        let is_known = self.find_in_old_lists(&own, None, now).map_err(|e| Distrust::of(&e))?;
        let mut lists =
            self.revoked.iter().filter(|list| list.issuer() == own.issuer_der()).peekable();
        if lists.peek().is_none() && !is_known {
            return Err(UNKNOWN);
        }
        for list in lists {
            match list.find_serial(own.serial_der()) {
                Ok(None) => {}
                Ok(Some(_)) => return Err(Distrust("certificate revoked")),
                Err(_) => return Err(UNKNOWN),
            }
        }
        Ok(())
    }

    /// Searches for a certificate in its issuer's lists of version 1. False if there is no list.
    fn find_in_old_lists(
        &self,
        certificate: &Certificate<'_>,
        key: Option<&SubjectPublicKeyInfoDer<'_>>,
        now: SystemTime,
    ) -> Result<bool, webpki::Error> {
        let mut is_known = false;
        for list in self.old_lists.iter().filter(|list| list.issuer() == certificate.issuer_der()) {
            if key.is_some_and(|key| !is_signed_by(list.der(), key)) {
                return Err(webpki::Error::InvalidCrlSignatureForPublicKey);
            }
            if list.has_expired(now) {
                let time = unix_time(now);
                return Err(webpki::Error::CrlExpired { time, next_update: time });
            }
            if list.has(certificate.serial_der()) {
                return Err(webpki::Error::CertRevoked);
            }
            is_known = true;
        }
        Ok(is_known)
    }

    /// Checks the certificates of a path by the lists of version 1; each of them needs a list.
    fn check_old_lists(
        &self,
        path: &VerifiedPath<'_>,
        now: SystemTime,
    ) -> Result<(), webpki::Error> {
        if self.old_lists.is_empty() {
            return Ok(());
        }
        let mut chain = vec![path.end_entity().der()];
        chain.extend(path.intermediate_certificates().map(|certificate| certificate.der()));
        chain.extend(self.trusted_of(path.anchor()).cloned());
        let all: Vec<_> = chain.iter().filter_map(Certificate::parse).collect();
        for pair in all.windows(2) {
            let is_known = self.find_in_old_lists(&pair[0], Some(&pair[1].public_key()), now)?;
            if !is_known && !self.revoked.iter().any(|list| list.issuer() == pair[0].issuer_der()) {
                return Err(webpki::Error::UnknownRevocationStatus);
            }
        }
        Ok(())
    }

    /// The trusted certificate that an anchor was made of.
    fn trusted_of(&self, anchor: &TrustAnchor<'_>) -> Option<&CertificateDer<'static>> {
        self.trusted.iter().find(|trusted| {
            Certificate::parse(trusted).is_some_and(|trusted| {
                trusted.subject_der() == anchor.subject.as_ref()
                    && trusted.public_key().ends_with(&anchor.subject_public_key_info)
            })
        })
    }

    fn verify_path(
        &self,
        own: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        role: Role,
        now: SystemTime,
    ) -> Result<Vec<CertificateDer<'static>>, webpki::Error> {
        let own = EndEntityCert::try_from(own)?;
        let usage = match role {
            Role::Client => KeyUsage::client_auth(),
            Role::Server => KeyUsage::server_auth(),
        };
        let lists: Vec<&CertRevocationList<'_>> = self.revoked.iter().collect();
        let revocation = RevocationOptionsBuilder::new(&lists).ok().map(|builder| {
            builder
                .with_depth(RevocationCheckDepth::Chain)
                .with_status_policy(match self.old_lists.is_empty() {
                    true => UnknownStatusPolicy::Deny,
                    false => UnknownStatusPolicy::Allow,
                })
                .with_expiration_policy(ExpirationPolicy::Enforce)
                .build()
        });
        let check = |path: &VerifiedPath<'_>| match path.intermediate_certificates().count()
            <= self.depth
        {
            true => self.check_old_lists(path, now),
            false => Err(webpki::Error::MaximumPathDepthExceeded),
        };
        let path = own.verify_for_usage(
            webpki::ALL_VERIFICATION_ALGS,
            &self.anchors,
            others,
            unix_time(now),
            usage,
            revocation,
            Some(&check),
        )?;
        let between = path.intermediate_certificates().map(|one| one.der().into_owned());
        let mut all = vec![path.end_entity().der().into_owned()];
        all.extend(between);
        all.extend(self.trusted_of(path.anchor()).cloned());
        Ok(all)
    }
}

fn digest_of(
    trusted: &[CertificateDer<'_>],
    lists: &[CertificateRevocationListDer<'_>],
    depth: usize,
) -> [u8; 32] {
    let mut hash = digest::Context::new(&digest::SHA256);
    let mut add = |parts: &mut dyn ExactSizeIterator<Item = &[u8]>| {
        hash.update(&(parts.len() as u64).to_be_bytes());
        for part in parts {
            hash.update(&(part.len() as u64).to_be_bytes());
            hash.update(part);
        }
    };
    add(&mut trusted.iter().map(AsRef::as_ref));
    add(&mut lists.iter().map(AsRef::as_ref));
    add(&mut std::iter::once(&(depth as u64).to_be_bytes()[..]));
    let mut digest = [0; 32];
    digest.copy_from_slice(hash.finish().as_ref());
    digest
}

fn unix_time(time: SystemTime) -> UnixTime {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    UnixTime::since_unix_epoch(since)
}

fn is_self_issued(certificate: &CertificateDer<'_>) -> bool {
    Certificate::parse(certificate).is_some_and(|certificate| certificate.is_self_issued())
}

/// The encoded subjects of certificates, by which clients choose theirs.
pub(crate) fn subjects(certificates: &[CertificateDer<'_>]) -> Vec<DistinguishedName> {
    let subject = |certificate| {
        let anchor = webpki::anchor_from_trusted_cert(certificate).ok()?;
        Some(DistinguishedName::in_sequence(anchor.subject.as_ref()))
    };
    let mut all: Vec<DistinguishedName> = Vec::new();
    for name in certificates.iter().filter_map(subject) {
        if !all.iter().any(|other| other.as_ref() == name.as_ref()) {
            all.push(name);
        }
    }
    all
}

/// Verifies the signature of a handshake. Certificates of version 1, which webpki does not read, are
/// allowed, as by OpenSSL.
fn signature_of_tls12(
    message: &[u8],
    certificate: &CertificateDer<'_>,
    signed: &DigitallySignedStruct,
    algorithms: &WebPkiSupportedAlgorithms,
) -> Result<HandshakeSignatureValid, rustls::Error> {
    let Some(key) = key_of_version_1(certificate) else {
        return verify_tls12_signature(message, certificate, signed, algorithms);
    };
    let bad = || rustls::Error::InvalidCertificate(CertificateError::BadSignature);
    let key = RawPublicKeyEntity::try_from(&key)
        .map_err(|_| rustls::Error::InvalidCertificate(CertificateError::BadEncoding))?;
    let fitting = algorithms.mapping.iter().find(|(scheme, _)| *scheme == signed.scheme);
    let (_, fitting) = fitting.ok_or_else(bad)?;
    let is_valid = |algorithm: &&dyn SignatureVerificationAlgorithm| {
        key.verify_signature(*algorithm, message, signed.signature()).is_ok()
    };
    match fitting.iter().any(is_valid) {
        true => Ok(HandshakeSignatureValid::assertion()),
        false => Err(bad()),
    }
}

/// The same for TLS 1.3.
fn signature_of_tls13(
    message: &[u8],
    certificate: &CertificateDer<'_>,
    signed: &DigitallySignedStruct,
    algorithms: &WebPkiSupportedAlgorithms,
) -> Result<HandshakeSignatureValid, rustls::Error> {
    match key_of_version_1(certificate) {
        None => verify_tls13_signature(message, certificate, signed, algorithms),
        Some(key) => verify_tls13_signature_with_raw_key(message, &key, signed, algorithms),
    }
}

/// Whether the signature of a certificate, or of a revocation list, was made with this key.
pub(crate) fn is_signed_by(signed: &[u8], key: &SubjectPublicKeyInfoDer<'_>) -> bool {
    let check = || {
        let mut parts = DerReader::new(signed).enter(SEQUENCE)?;
        let (signed, algorithm) = (parts.next()?, parts.next()?);
        let signature = parts.expect(BIT_STRING)?.strip_prefix(&[0])?;
        let key = RawPublicKeyEntity::try_from(key).ok()?;
        let is_valid = |known: &&dyn SignatureVerificationAlgorithm| {
            known.signature_alg_id().as_ref() == algorithm.contents
                && key.verify_signature(*known, signed.whole, signature).is_ok()
        };
        Some(webpki::ALL_VERIFICATION_ALGS.iter().any(is_valid))
    };
    check().unwrap_or(false)
}

/// The public key of a certificate that webpki does not read.
fn key_of_version_1<'a>(
    certificate: &'a CertificateDer<'_>,
) -> Option<SubjectPublicKeyInfoDer<'a>> {
    match EndEntityCert::try_from(certificate) {
        Err(webpki::Error::UnsupportedCertVersion) => {
            Certificate::parse(certificate).map(|certificate| certificate.public_key())
        }
        _ => None,
    }
}

thread_local! {
    /// The algorithm of the signature that was verified last on this thread, which rustls does not expose.
    static VERIFIED: Cell<Option<SignatureScheme>> = const { Cell::new(None) };
}

/// Takes the algorithm of a client's signature that was verified on this thread since the last call.
pub(crate) fn take_verified() -> Option<SignatureScheme> {
    VERIFIED.take()
}

/// Accepts any certificate of a client that has its key; it is verified later.
#[derive(Debug)]
pub(crate) struct AnyClientVerifier {
    pub(crate) algorithms: WebPkiSupportedAlgorithms,
    /// Names of acceptable issuers.
    pub(crate) hints: Vec<DistinguishedName>,
}

impl ClientCertVerifier for AnyClientVerifier {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &self.hints
    }

    fn verify_client_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        VERIFIED.set(Some(dss.scheme));
        // It begins with the client's hello.
        let mut sent = Vec::with_capacity(message.len());
        transcript::restored(message, |part| sent.extend_from_slice(part));
        signature_of_tls12(&sent, cert, dss, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        VERIFIED.set(Some(dss.scheme));
        signature_of_tls13(message, cert, dss, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

/// Verifies servers (`proxy_ssl_verify`), or with `None` accepts any that has its key.
#[derive(Debug)]
pub(crate) struct ServerVerifier {
    pub(crate) algorithms: WebPkiSupportedAlgorithms,
    pub(crate) verifier: Option<Arc<Verifier>>,
}

impl ServerCertVerifier for ServerVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let Some(verifier) = &self.verifier else { return Ok(ServerCertVerified::assertion()) };
        let now = SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(now.as_secs());
        let chain: Vec<_> = std::iter::once(end_entity).chain(intermediates).cloned().collect();
        let refused = |error| rustls::Error::InvalidCertificate(error);
        verifier
            .verify(&chain, Role::Server, now)
            .map_err(|why| refused(CertificateError::Other(OtherError(Arc::new(why)))))?;
        let is_for_name = EndEntityCert::try_from(end_entity)
            .is_ok_and(|own| own.verify_is_valid_for_subject_name(server_name).is_ok());
        if is_for_name || hostname::has_common_name(end_entity, server_name) {
            Ok(ServerCertVerified::assertion())
        } else {
            Err(refused(CertificateError::NotValidForName))
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        signature_of_tls12(message, cert, dss, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        signature_of_tls13(message, cert, dss, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}
