//! The certificates that servers use, for status pages and warnings about their end.
//!
//! A configuration, or a memory of certificates whose names have variables, keeps a [`CertificateUse`] for each
//! pair that it has loaded; [`snapshot`] lists those that still exist. Called when certificates are loaded. Never:
//! verifies, keeps keys, or is used by handshakes.

use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::SystemTime;

use nowait_runtime::events::{self, EventKind};
use nowait_tls::{Certificate, CertificateDer};

/// Certificates listed at most.
pub const CERTIFICATES_MAX: usize = 4096;

/// Names listed of a certificate at most.
const NAMES_MAX: usize = 16;

/// A certificate in use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateUse {
    /// The file; `data:` if its text stood in a variable.
    pub source: String,
    /// The DNS names that it is for; without any, its subject.
    pub names: Vec<String>,
    /// The issuer, in the form of RFC 2253.
    pub issuer: String,
    /// In hexadecimal.
    pub serial: String,
    /// The begin of its validity.
    pub begin: SystemTime,
    /// The end of its validity.
    pub end: SystemTime,
}

static CERTIFICATES: Mutex<Vec<Weak<CertificateUse>>> = Mutex::new(Vec::new());

/// Lists the first certificate of a chain while the result exists. `None`: it is malformed, or there are too many.
pub fn note(source: String, chain: &[CertificateDer<'static>]) -> Option<Arc<CertificateUse>> {
    let new = Arc::new(read(source, chain.first()?)?);
    let replaced = {
        let mut all = CERTIFICATES.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|one| one.strong_count() > 0);
        if all.len() >= CERTIFICATES_MAX {
            return None;
        }
        let has_newer = all.iter().filter_map(Weak::upgrade).any(|old| is_replaced(&old, &new));
        all.push(Arc::downgrade(&new));
        has_newer
    };
    if replaced {
        let (source, name) = (&new.source, new.name());
        let text = format_args!("the certificate for {name} in \"{source}\" was renewed");
        events::record(EventKind::CertificateRenewed, name, text);
    }
    Some(new)
}

/// Whether `new` is a later certificate from the same file.
fn is_replaced(old: &CertificateUse, new: &CertificateUse) -> bool {
    old.source == new.source && new.source != DATA && old.end < new.end
}

/// The source of certificates whose text is the value of a variable.
pub const DATA: &str = "data:";

/// The certificates in use, each once, by name and end.
pub fn snapshot() -> Vec<CertificateUse> {
    let all = {
        let all = CERTIFICATES.lock().unwrap_or_else(PoisonError::into_inner);
        all.iter().filter_map(Weak::upgrade).collect::<Vec<_>>()
    };
    let mut all: Vec<CertificateUse> = all.iter().map(|one| (**one).clone()).collect();
    all.sort_by(|a, b| (&a.names, a.end, &a.source).cmp(&(&b.names, b.end, &b.source)));
    all.dedup();
    all
}

impl CertificateUse {
    /// The first of its names.
    pub fn name(&self) -> &str {
        self.names.first().map_or("(without a name)", |name| name)
    }

    /// Seconds until it expires; negative since it has.
    pub fn seconds_left(&self, now: SystemTime) -> i64 {
        match self.end.duration_since(now) {
            Ok(left) => i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
            Err(error) => -i64::try_from(error.duration().as_secs()).unwrap_or(i64::MAX),
        }
    }
}

fn read(source: String, der: &CertificateDer<'_>) -> Option<CertificateUse> {
    let certificate = Certificate::parse(der)?;
    let (begin, end) = certificate.dates()?;
    let mut names: Vec<String> =
        certificate.dns_names().into_iter().take(NAMES_MAX).map(str::to_owned).collect();
    if names.is_empty() {
        names.push(certificate.subject());
    }
    let (issuer, serial) = (certificate.issuer(), certificate.serial());
    Some(CertificateUse { source, names, issuer, serial, begin, end })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn at(days: u64) -> CertificateUse {
        let end = SystemTime::UNIX_EPOCH + Duration::from_secs(days * 86_400);
        CertificateUse {
            source: "/etc/a.pem".to_owned(),
            names: vec!["a.example".to_owned()],
            issuer: String::new(),
            serial: String::new(),
            begin: SystemTime::UNIX_EPOCH,
            end,
        }
    }

    #[test]
    fn a_later_end_in_the_same_file_is_a_renewal() {
        assert!(is_replaced(&at(1), &at(2)));
        assert!(!is_replaced(&at(2), &at(2)) && !is_replaced(&at(3), &at(2)));
        let other = CertificateUse { source: "/etc/b.pem".to_owned(), ..at(2) };
        assert!(!is_replaced(&at(1), &other));
        let data = |days| CertificateUse { source: DATA.to_owned(), ..at(days) };
        assert!(!is_replaced(&data(1), &data(2)));
    }

    #[test]
    fn certificates_are_listed_while_they_are_used() {
        let names = vec!["listed.example".to_owned(), "www.listed.example".to_owned()];
        let made = rcgen::generate_simple_self_signed(names.clone()).unwrap();
        let chain = [made.cert.der().clone()];
        let listed = || snapshot().into_iter().filter(|one| one.names == names).count();
        let one = note("/etc/one.pem".to_owned(), &chain).unwrap();
        let again = note("/etc/one.pem".to_owned(), &chain).unwrap();
        assert_eq!((listed(), one.name()), (1, "listed.example"));
        assert!(one.seconds_left(SystemTime::now()) > 0);
        drop(one);
        assert_eq!(listed(), 1);
        drop(again);
        assert_eq!(listed(), 0);
        assert_eq!(note(DATA.to_owned(), &[CertificateDer::from(vec![1, 2])]), None);
    }
}
