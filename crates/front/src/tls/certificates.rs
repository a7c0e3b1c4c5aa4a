//! The certificates that servers use, for status pages and warnings about their end.
//!
//! A configuration, or a memory of certificates whose names have variables, keeps a [`CertificateUse`] for each
//! pair that it has loaded; [`snapshot`] lists those that still exist. Called when certificates are loaded. Never:
//! verifies, keeps keys, or is used by handshakes.

use std::collections::BTreeMap;
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

/// The certificates in use, by source. Servers and configurations with the same one share it, so that the bound is
/// one of certificates.
type Listed = BTreeMap<String, Vec<Weak<CertificateUse>>>;

static CERTIFICATES: Mutex<Listed> = Mutex::new(BTreeMap::new());

/// Lists the first certificate of a chain while the result exists. `None`: it is malformed, or there are too many.
pub fn note(source: String, chain: &[CertificateDer<'static>]) -> Option<Arc<CertificateUse>> {
    let new = read(source, chain.first()?)?;
    let (listed, is_renewal) = {
        let mut all = CERTIFICATES.lock().unwrap_or_else(PoisonError::into_inner);
        add(&mut all, new, CERTIFICATES_MAX)?
    };
    if is_renewal {
        let (source, name) = (&listed.source, listed.name());
        let text = format_args!("the certificate for {name} in \"{source}\" was renewed");
        events::record(EventKind::CertificateRenewed, name, text);
    }
    Some(listed)
}

/// Adds a certificate unless it is listed. Returns it, and whether it replaces an earlier one.
fn add(
    all: &mut Listed,
    new: CertificateUse,
    certificates_max: usize,
) -> Option<(Arc<CertificateUse>, bool)> {
    let in_use = |one: &Weak<CertificateUse>| one.strong_count() > 0;
    let same_source = all.get_mut(&new.source).map_or_else(Vec::new, |listed| {
        listed.retain(in_use);
        listed.iter().filter_map(Weak::upgrade).collect()
    });
    if let Some(listed) = same_source.iter().find(|listed| ***listed == new) {
        return Some((listed.clone(), false));
    }
    let count = |all: &Listed| all.values().map(Vec::len).sum::<usize>();
    if count(all) >= certificates_max {
        all.values_mut().for_each(|listed| listed.retain(in_use));
        all.retain(|_, listed| !listed.is_empty());
        if count(all) >= certificates_max {
            return None;
        }
    }
    let is_renewal = is_renewal(&same_source, &new);
    let new = Arc::new(new);
    all.entry(new.source.clone()).or_default().push(Arc::downgrade(&new));
    Some((new, is_renewal))
}

/// Whether a certificate is later than all those from the same file. A configuration that still has connections may
/// keep one of long ago.
fn is_renewal(same_source: &[Arc<CertificateUse>], new: &CertificateUse) -> bool {
    let last = same_source.iter().map(|old| old.end).max();
    new.source != DATA && last.is_some_and(|last| last < new.end)
}

/// The source of certificates whose text is the value of a variable.
pub const DATA: &str = "data:";

/// The certificates in use, each once, by name and end.
pub fn snapshot() -> Vec<CertificateUse> {
    let all = {
        let all = CERTIFICATES.lock().unwrap_or_else(PoisonError::into_inner);
        all.values().flatten().filter_map(Weak::upgrade).collect::<Vec<_>>()
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
        let mut all = Listed::new();
        let mut add = |one: CertificateUse| add(&mut all, one, 9).unwrap();
        let (first, is_renewal) = add(at(1));
        assert!(!is_renewal);
        let (second, is_renewal) = add(at(2));
        assert!(is_renewal);
        // Another server, or the next configuration: even while the first one is in use.
        let (same, is_renewal) = add(at(2));
        assert!(!is_renewal && Arc::ptr_eq(&same, &second));
        drop((same, second));
        assert!(!add(CertificateUse { source: "/etc/b.pem".to_owned(), ..at(3) }).1);
        assert!(add(at(3)).1);
        drop(first);
        let data = |days| CertificateUse { source: DATA.to_owned(), ..at(days) };
        let kept = add(data(1));
        assert!(!add(data(2)).1 && !kept.1);
    }

    #[test]
    fn the_bound_is_one_of_different_certificates_in_use() {
        let mut all = Listed::new();
        let named = |name: &str| CertificateUse { source: name.to_owned(), ..at(1) };
        let mut kept: Vec<_> = (0..20).map(|_| add(&mut all, named("a"), 2).unwrap()).collect();
        kept.extend(add(&mut all, named("b"), 2));
        assert_eq!(add(&mut all, named("c"), 2), None);
        assert!(add(&mut all, named("a"), 2).is_some());
        kept.pop();
        assert!(add(&mut all, named("c"), 2).is_some());
        assert_eq!(all.len(), 2, "{all:?}");
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
