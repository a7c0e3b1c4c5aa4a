//! `proxy_set_header` and its relatives: header fields of requests to HTTP servers.

use bytes::Bytes;
use nowait_conf::{Cx, Diagnostic, Node, Setting, arity};
use nowait_http::request::Request;
use nowait_http::variables::complex::Complex;
use nowait_message::Known;

use super::names::NameSet;

/// Client header fields that are never passed on unchanged: they concern the connection to the client (RFC
/// 9110 section 7.6.1), or are written by the server.
const REPLACED: &[&[u8]] = &[
    b"Host",
    b"Connection",
    b"Proxy-Connection",
    b"Content-Length",
    b"Transfer-Encoding",
    b"TE",
    b"Keep-Alive",
    b"Expect",
    b"Upgrade",
];

/// Client header fields that are not passed on if the response is for the cache, which serves other
/// clients, too.
const REPLACED_FOR_CACHE: &[&[u8]] = &[
    b"If-Modified-Since",
    b"If-Unmodified-Since",
    b"If-None-Match",
    b"If-Match",
    b"Range",
    b"If-Range",
];

/// One `…_set_header`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetHeader {
    /// Name as sent.
    pub name: Bytes,
    /// Value; an empty one removes the field.
    pub value: Complex,
}

impl Setting for SetHeader {
    const ARITY: arity::Arity = arity::exactly(2);

    fn parse(node: &Node, cx: &mut Cx<'_>) -> Result<Self, Diagnostic> {
        let [name, value] = &node.args[..] else { return Err(node.arity_error()) };
        if let Some(bad) = name.text.iter().find(|b| matches!(b, b'\r' | b'\n' | 0 | b':' | b' ')) {
            let error = name.error(format!("invalid header name \"{name}\""));
            return Err(match name.text.strip_suffix(b":") {
                Some(plain) => error.hint(format!(
                    "write \"{}\": the colon is added when the field is sent",
                    String::from_utf8_lossy(plain)
                )),
                None => error.hint(format!("a field name cannot contain the byte 0x{bad:02x}")),
            });
        }
        let name = Bytes::copy_from_slice(&name.text);
        Ok(Self { name, value: nowait_http::conf::complex(value, cx)? })
    }
}

/// Construction of the request header.
#[derive(Debug, Clone, Default)]
pub struct RequestHeaders {
    /// `Host` in place of the server's name.
    pub host: Option<Complex>,
    /// The other fields that are set, except those with an empty text.
    pub lines: Vec<SetHeader>,
    /// Fields that are set: neither defaults nor the client's fields of these names are sent.
    set: NameSet,
    /// Client header fields that are not passed on.
    replaced: NameSet,
    /// The same if the response is for the cache.
    replaced_for_cache: NameSet,
}

impl RequestHeaders {
    /// Whether one that is set depends on the content of the request.
    pub fn depend_on_content(&self, request: &Request) -> bool {
        let values = self.lines.iter().map(|line| &line.value);
        values.chain(&self.host).any(|value| request.depends_on_content(value))
    }

    /// From the directives of a block.
    pub fn new(given: &[SetHeader]) -> Self {
        let is_host = |header: &&SetHeader| header.name.eq_ignore_ascii_case(b"host");
        let set: NameSet = given.iter().map(|header| &header.name[..]).collect();
        let given_names = given.iter().map(|header| &header.name[..]);
        let replaced: NameSet = REPLACED.iter().copied().chain(given_names.clone()).collect();
        let replaced_for_cache =
            REPLACED.iter().chain(REPLACED_FOR_CACHE).copied().chain(given_names).collect();
        Self {
            host: given.iter().rfind(is_host).map(|header| header.value.clone()),
            lines: given
                .iter()
                .filter(|header| !is_host(header) && !header.value.is_empty())
                .cloned()
                .collect(),
            set,
            replaced,
            replaced_for_cache,
        }
    }

    /// Whether a field is set by a directive, even to an empty value.
    pub fn sets(&self, known: Known) -> bool {
        self.set.contains(b"", Some(known))
    }

    /// Client header fields that are not passed on.
    pub fn replaced(&self, for_cache: bool) -> &NameSet {
        if for_cache { &self.replaced_for_cache } else { &self.replaced }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn set_fields_replace_the_clients() {
        let header = |name: &'static str, value: &'static str| SetHeader {
            name: Bytes::from_static(name.as_bytes()),
            value: Complex::from_literal(value),
        };
        let headers = RequestHeaders::new(&[
            header("HOST", "a"),
            header("X-Own", "1"),
            header("accept", ""),
            header("Content-Length", ""),
        ]);
        assert_eq!(headers.host, Some(Complex::from_literal("a")));
        assert_eq!(headers.lines.len(), 1);
        assert!(headers.sets(Known::ContentLength) && !headers.sets(Known::TransferEncoding));
        let replaced = headers.replaced(false);
        assert!(replaced.contains(b"x-own", None));
        assert!(replaced.contains(b"Accept", Some(Known::Accept)));
        assert!(replaced.contains(b"Upgrade", Some(Known::Upgrade)));
        assert!(!replaced.contains(b"Range", Some(Known::Range)));
        assert!(headers.replaced(true).contains(b"Range", Some(Known::Range)));
    }
}
