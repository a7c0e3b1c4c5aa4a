//! Paths from certificates that webpki refuses to trusted ones: those of version 1, which many a guide
//! to client certificates makes, and those of peers that are marked as authorities, as every
//! certificate of `openssl req -x509` is. OpenSSL accepts both.
//!
//! Called by `verify.rs` when webpki has refused such a certificate. The rules are those of RFC 5280,
//! 6.1, without what needs more than a look: certificates with critical extensions other than the
//! ones below, or with name constraints, are never accepted on this way.

use std::time::SystemTime;

use rustls::pki_types::CertificateDer;

use crate::certificate::{Certificate, Usage, Validity};
use crate::list::List;
use crate::verify::{Distrust, Role, is_signed_by};

/// Maximum number of signatures checked for one peer, which may send many certificates of one name.
const SIGNATURES_MAX: usize = 64;

/// Certificates of a path, at most.
const PATH_MAX: usize = 16;

/// The candidates of a path, and the rules.
pub(crate) struct Search<'a> {
    /// Trusted certificates.
    pub(crate) trusted: &'a [CertificateDer<'static>],
    /// The certificates sent by the peer besides its own.
    pub(crate) others: &'a [CertificateDer<'a>],
    /// Revocation lists; if there is any, each issuer of the path needs one.
    pub(crate) lists: &'a [List],
    pub(crate) has_lists: bool,
    pub(crate) role: Role,
    /// Maximum number of certificates between the peer's and a trusted one.
    pub(crate) depth: usize,
    pub(crate) now: SystemTime,
}

/// A search under way.
struct PathSearch<'a> {
    path: Vec<Certificate<'a>>,
    signatures: usize,
    /// The reason why the last candidate was rejected.
    why: Option<Distrust>,
}

impl<'a> Search<'a> {
    /// The path of a peer's certificate: from its own to a trusted one, and on to a root.
    pub(crate) fn find(
        &self,
        own: &'a CertificateDer<'_>,
    ) -> Result<Vec<Certificate<'a>>, Distrust> {
        let parsed = Certificate::parse(own).ok_or(Distrust::UNSPECIFIED)?;
        self.check_own(&parsed)?;
        let is_self_issued = parsed.is_self_issued();
        let mut state = PathSearch { path: vec![parsed], signatures: 0, why: None };
        if !self.extend(&mut state) {
            return Err(state.why.unwrap_or(match (is_self_issued, self.others.is_empty()) {
                (true, _) => Distrust::SELF_SIGNED,
                (false, true) => Distrust::NO_ISSUER_AT_ALL,
                (false, false) => Distrust::NO_ISSUER,
            }));
        }
        let mut path = state.path;
        self.complete(&mut path);
        // Without the peer's certificate and the last one.
        match path.len() - 2 > self.depth {
            true => Err(Distrust::TOO_LONG),
            false => Ok(path),
        }
    }

    /// Appends the issuers of a trusted certificate that are trusted, too, up to a root: OpenSSL
    /// regards them as parts of the path.
    pub(crate) fn complete(&self, path: &mut Vec<Certificate<'a>>) {
        while path.len() < PATH_MAX
            && let Some(last) = path.last()
            && !last.is_self_issued()
        {
            let mut all = self.trusted.iter().filter_map(Certificate::parse);
            let above = all.find(|above| {
                above.subject_der() == last.issuer_der()
                    && above.may_sign()
                    && is_signed_by(last.der(), &above.public_key())
            });
            let Some(above) = above else { return };
            path.push(above);
        }
    }

    /// Checks certificates, each followed by its issuer. The last reason counts, as in nginx, which lets
    /// OpenSSL continue.
    pub(crate) fn not_revoked(&self, path: &[Certificate<'_>]) -> Result<(), Distrust> {
        let mut checks = path.windows(2).map(|pair| self.check_revocation(&pair[0], &pair[1]));
        checks.rfind(Result::is_err).unwrap_or(Ok(()))
    }

    fn check_own(&self, own: &Certificate<'_>) -> Result<(), Distrust> {
        self.check_dates(own)?;
        if own.has_unknown_demands() {
            return Err(Distrust::UNHANDLED);
        }
        let usage = match self.role {
            Role::Client => Usage::Client,
            Role::Server => Usage::Server,
        };
        match own.allows(usage) && own.is_for_handshakes() {
            true => Ok(()),
            false => Err(Distrust::PURPOSE),
        }
    }

    fn check_dates(&self, certificate: &Certificate<'_>) -> Result<(), Distrust> {
        match certificate.validity(self.now) {
            Validity::Now => Ok(()),
            Validity::NotYet => Err(Distrust::NOT_YET),
            Validity::Expired => Err(Distrust::EXPIRED),
        }
    }

    /// Continues a path until a trusted certificate is reached.
    fn extend(&self, state: &mut PathSearch<'a>) -> bool {
        let trusted = self.trusted.iter().map(|one| (one, true));
        let candidates = trusted.chain(self.others.iter().map(|one| (one, false)));
        for (candidate, is_trusted) in candidates {
            let Some(issuer) = Certificate::parse(candidate) else { continue };
            let last = state.path.last().expect("a path begins with the peer's certificate");
            if issuer.subject_der() != last.issuer_der() {
                continue;
            }
            if let Err(why) = self.check_issuer(&issuer, is_trusted, state) {
                state.why = Some(why);
                continue;
            }
            state.path.push(issuer);
            if is_trusted || self.extend(state) {
                return true;
            }
            state.path.pop();
        }
        false
    }

    /// Whether a certificate may have signed the last one of the path.
    fn check_issuer(
        &self,
        issuer: &Certificate<'a>,
        is_trusted: bool,
        state: &mut PathSearch<'a>,
    ) -> Result<(), Distrust> {
        let last = state.path.last().expect("a path begins with the peer's certificate");
        let between = state.path.len() - usize::from(is_trusted);
        if between > self.depth || state.path.len() >= PATH_MAX {
            return Err(Distrust::TOO_LONG);
        }
        // Only a trusted certificate may be older than the mark of authorities.
        if !issuer.may_sign() || !is_trusted && issuer.is_version_1() {
            return Err(Distrust::NO_AUTHORITY);
        }
        if issuer.has_unknown_demands() {
            return Err(Distrust::UNHANDLED);
        }
        let usage = match self.role {
            Role::Client => Usage::Client,
            Role::Server => Usage::Server,
        };
        if !issuer.allows(usage) {
            return Err(Distrust::PURPOSE);
        }
        // RFC 5280, 4.2.1.9: "the maximum number of non-self-issued intermediate certificates that
        // may follow this certificate".
        let below = state.path[1..].iter().filter(|one| !one.is_self_issued()).count();
        if issuer.path_len().is_some_and(|max| below > max) {
            return Err(Distrust::PATH_LEN);
        }
        self.check_dates(issuer)?;
        state.signatures += 1;
        if state.signatures > SIGNATURES_MAX {
            return Err(Distrust::TOO_LONG);
        }
        match is_signed_by(last.der(), &issuer.public_key()) {
            true => Ok(()),
            false => Err(Distrust::SIGNATURE),
        }
    }

    fn check_revocation(
        &self,
        certificate: &Certificate<'_>,
        issuer: &Certificate<'_>,
    ) -> Result<(), Distrust> {
        if !self.has_lists {
            return Ok(());
        }
        let lists = self.lists.iter().filter(|list| list.issuer() == certificate.issuer_der());
        let mut is_known = false;
        for list in lists {
            if !issuer.may_sign_lists() || !is_signed_by(list.der(), &issuer.public_key()) {
                return Err(Distrust("CRL signature failure"));
            }
            if list.has_expired(self.now) {
                return Err(Distrust("CRL has expired"));
            }
            if list.has(certificate.serial_der()) {
                return Err(Distrust("certificate revoked"));
            }
            is_known = true;
        }
        if is_known { Ok(()) } else { Err(Distrust("unable to get certificate CRL")) }
    }
}
