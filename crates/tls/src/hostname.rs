//! The names of a certificate, also in a case not covered by webpki: old certificates without DNS names in
//! their extensions have the name in their subject (RFC 6125 section 6.4.4), which OpenSSL accepts.

use rustls::pki_types::{CertificateDer, ServerName};
use webpki::EndEntityCert;

use crate::certificate::Certificate;
use crate::der::{DerReader, OID, SEQUENCE, SET};

/// `id-at-commonName`
const COMMON_NAME: &[u8] = &[0x55, 4, 3];

/// `id-ce-subjectAltName`
const ALT_NAME: &[u8] = &[0x55, 0x1d, 0x11];

/// `dNSName` of `GeneralName`.
const DNS_NAME: u8 = 0x82;

/// Whether a certificate is for this name or address, by the names in its extensions. A wildcard
/// (`*.example.org`) has to be one of them.
pub fn is_for(certificate: &CertificateDer<'_>, name: &str) -> bool {
    if name.starts_with("*.") {
        let certificate = Certificate::parse(certificate);
        let names = certificate.and_then(|own| dns_names(own.extension(ALT_NAME)?));
        return names
            .is_some_and(|names| names.iter().any(|n| n.eq_ignore_ascii_case(name.as_bytes())));
    }
    let Ok(name) = ServerName::try_from(name) else { return false };
    let certificate = EndEntityCert::try_from(certificate);
    certificate.is_ok_and(|certificate| certificate.verify_is_valid_for_subject_name(&name).is_ok())
}

/// Whether a certificate without DNS names has this common name.
pub(crate) fn has_common_name(certificate: &CertificateDer<'_>, name: &ServerName<'_>) -> bool {
    let ServerName::DnsName(name) = name else { return false };
    let name = name.as_ref().as_bytes();
    let fits = |names: CertificateNames<'_>| {
        !names.has_dns && names.common.iter().any(|pattern| matches(pattern, name))
    };
    names(certificate).is_some_and(fits)
}

/// The names of a certificate.
struct CertificateNames<'a> {
    common: Vec<&'a [u8]>,
    /// There are DNS names in the extensions.
    has_dns: bool,
}

fn names<'a>(certificate: &'a CertificateDer<'_>) -> Option<CertificateNames<'a>> {
    let certificate = Certificate::parse(certificate)?;
    let mut subject = certificate.subject_parts();
    let mut common = Vec::new();
    while !subject.is_empty() {
        let mut parts = subject.enter(SET)?;
        while !parts.is_empty() {
            let mut part = parts.enter(SEQUENCE)?;
            if part.expect(OID)? == COMMON_NAME {
                common.push(part.next()?.contents);
            }
        }
    }
    let has_dns = match certificate.extension(ALT_NAME) {
        Some(names) => !dns_names(names)?.is_empty(),
        None => false,
    };
    Some(CertificateNames { common, has_dns })
}

fn dns_names(names: &[u8]) -> Option<Vec<&[u8]>> {
    let mut names = DerReader::new(names).enter(SEQUENCE)?;
    let mut found = Vec::new();
    while !names.is_empty() {
        let name = names.next()?;
        if name.tag == DNS_NAME {
            found.push(name.contents);
        }
    }
    Some(found)
}

/// Whether a name fits a pattern, whose first label may be an asterisk.
fn matches(pattern: &[u8], name: &[u8]) -> bool {
    if pattern.eq_ignore_ascii_case(name) {
        return true;
    }
    let Some(suffix) = pattern.strip_prefix(b"*") else { return false };
    let label = name.iter().position(|&byte| byte == b'.').unwrap_or(name.len());
    // Never for a whole top-level domain.
    suffix.first() == Some(&b'.')
        && suffix[1..].contains(&b'.')
        && label > 0
        && suffix.eq_ignore_ascii_case(&name[label..])
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, DnType, KeyPair};

    use super::*;

    fn certificate(common: &str, dns: &[&str]) -> CertificateDer<'static> {
        let dns: Vec<String> = dns.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(dns).unwrap();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, common);
        params.self_signed(&KeyPair::generate().unwrap()).unwrap().der().clone()
    }

    fn is_for(certificate: &CertificateDer<'_>, name: &str) -> bool {
        has_common_name(certificate, &ServerName::try_from(name.to_owned()).unwrap())
    }

    #[test]
    fn the_common_name_counts_without_others() {
        let old = certificate("Example.com", &[]);
        assert!(is_for(&old, "example.com") && is_for(&old, "EXAMPLE.COM"));
        assert!(!is_for(&old, "www.example.com") && !is_for(&old, "127.0.0.1"));
        assert!(!is_for(&certificate("example.com", &["example.org"]), "example.com"));
        // An address is no DNS name.
        assert!(is_for(&certificate("example.com", &["127.0.0.1"]), "example.com"));
    }

    #[test]
    fn a_wildcard_must_be_there_itself() {
        let wild = certificate("", &["a.test", "*.Example.com"]);
        assert!(super::is_for(&wild, "*.example.com") && super::is_for(&wild, "b.example.com"));
        for other in ["*.test", "*.a.test", "*.b.example.com", "*.com"] {
            assert!(!super::is_for(&wild, other), "{other}");
        }
        let plain = certificate("*.example.com", &["any.example.com"]);
        assert!(!super::is_for(&plain, "*.example.com"));
    }

    #[test]
    fn an_asterisk_stands_for_one_label() {
        let wild = certificate("*.example.com", &[]);
        assert!(is_for(&wild, "a.example.com"));
        assert!(!is_for(&wild, "a.b.example.com") && !is_for(&wild, "example.com"));
        assert!(!is_for(&certificate("*.com", &[]), "example.com"));
        assert!(!is_for(&certificate("a*.example.com", &[]), "ab.example.com"));
    }
}
