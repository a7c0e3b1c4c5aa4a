//! Domain names as used by the cache.

use std::fmt;
use std::sync::Arc;

/// The longest name in text form without the final dot (RFC 1035, section 2.3.4: 255 bytes on the
/// wire).
pub const NAME_BYTES_MAX: usize = 253;

/// The longest label (RFC 1035, section 2.3.4).
pub const LABEL_BYTES_MAX: usize = 63;

/// A domain name in lower case, without the final dot, and valid in a query: labels of 1 to 63
/// bytes, 253 bytes in all. Cheap to clone.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DomainName(Arc<[u8]>);

impl DomainName {
    /// From text; `None` if it is not a valid domain name. A label may contain any bytes except
    /// dots, white space and control characters.
    pub fn new(text: &[u8]) -> Option<DomainName> {
        let text = text.strip_suffix(b".").unwrap_or(text);
        let fits = text.len() <= NAME_BYTES_MAX;
        let labels = text.split(|byte| *byte == b'.');
        let good = |label: &[u8]| (1..=LABEL_BYTES_MAX).contains(&label.len());
        let plain = !text.iter().any(|byte| byte.is_ascii_control() || *byte == b' ');
        (fits && plain && labels.into_iter().all(good))
            .then(|| DomainName(text.to_ascii_lowercase().into()))
    }

    /// From labels; `None` if there are none, or if one contains a dot: it could not be written as
    /// text.
    pub fn from_labels<'a>(labels: impl Iterator<Item = &'a [u8]>) -> Option<DomainName> {
        let mut text = Vec::with_capacity(64);
        for label in labels {
            if label.contains(&b'.') {
                return None;
            }
            text.extend_from_slice(label);
            text.push(b'.');
        }
        DomainName::new(&text)
    }

    /// The text, without the final dot.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The labels, the last one being the top-level domain.
    pub fn labels(&self) -> impl Iterator<Item = &[u8]> {
        self.0.split(|byte| *byte == b'.')
    }

    /// The name of a service below this name, built like nginx's `service=` parameter: a service
    /// without dots becomes `_service._tcp.name`, others are prepended unchanged.
    pub fn service(&self, service: &[u8]) -> Option<DomainName> {
        let plain = !service.contains(&b'.');
        let (before, after): (&[u8], &[u8]) = if plain { (b"_", b"._tcp") } else { (b"", b"") };
        DomainName::new(&[before, service, after, b".", self.as_bytes()].concat())
    }
}

impl fmt::Display for DomainName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.escape_ascii())
    }
}

impl fmt::Debug for DomainName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Name({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_checked_and_lowered() {
        let text = |text: &[u8]| DomainName::new(text).map(|name| name.to_string());
        assert_eq!(text(b"Example.COM.").as_deref(), Some("example.com"));
        assert_eq!(text(b"a").as_deref(), Some("a"));
        for bad in [&b""[..], b".", b"a..b", b".a", b"a b", b"a\n", &[b'x'; 64]] {
            assert_eq!(text(bad), None, "{}", bad.escape_ascii());
        }
        let long = [b"x".repeat(63).as_slice(); 4].join(&b'.');
        assert!(DomainName::new(&long).is_none() && DomainName::new(&long[2..]).is_some());
    }

    #[test]
    fn services_are_named_as_in_nginx() {
        let name = DomainName::new(b"example.com").unwrap();
        let service = |service: &[u8]| name.service(service).unwrap().to_string();
        assert_eq!(service(b"http"), "_http._tcp.example.com");
        assert_eq!(service(b"_a._udp"), "_a._udp.example.com");
    }
}
