//! How the cache handled a request: `$upstream_cache_status`, and `Cache-Status` (RFC 9211).

/// The cache status of a request. nginx: `ngx_http_cache_status`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// Nothing was stored.
    Miss,
    /// `proxy_cache_bypass`: the cache was not searched.
    Bypass,
    /// The stored response was stale, and the origin's response was served.
    Expired,
    /// The stored response was stale and was served nevertheless.
    Stale,
    /// The same, while another request fetches a newer one.
    Updating,
    /// The origin confirmed the stored response.
    Revalidated,
    /// Served from the cache.
    Hit,
}

impl Status {
    /// All of them, in the order of their numbers.
    pub const ALL: [Status; 7] = [
        Self::Miss,
        Self::Bypass,
        Self::Expired,
        Self::Stale,
        Self::Updating,
        Self::Revalidated,
        Self::Hit,
    ];

    /// The value of the variable.
    #[inline]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Miss => "MISS",
            Self::Bypass => "BYPASS",
            Self::Expired => "EXPIRED",
            Self::Stale => "STALE",
            Self::Updating => "UPDATING",
            Self::Revalidated => "REVALIDATED",
            Self::Hit => "HIT",
        }
    }
}

/// The reason why a request was forwarded to the origin: the parameter `fwd` (RFC 9211 section 2.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Forward {
    /// "The cache was configured to not handle this request."
    Bypass,
    /// "The request method's semantics require the request to be forwarded."
    Method,
    /// "The cache did not contain any responses that matched the request URI."
    UriMiss,
    /// "The cache contained a response that matched the request URI, but could not select a response
    /// based upon this request's header fields and stored Vary header fields."
    VaryMiss,
    /// "The cache was able to select a fresh response for the request, but the request's semantics
    /// (e.g., Cache-Control request directives) did not allow its use."
    Request,
    /// "The cache was able to select a response for the request, but it was stale."
    Stale,
}

impl Forward {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Bypass => "bypass",
            Self::Method => "method",
            Self::UriMiss => "uri-miss",
            Self::VaryMiss => "vary-miss",
            Self::Request => "request",
            Self::Stale => "stale",
        }
    }
}

/// The contents of `Cache-Status` for a response.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CacheStatus {
    /// The reason why the request was forwarded; `None` is a hit.
    pub forward: Option<Forward>,
    /// The status of the origin, if it differs from the response's.
    pub forward_status: Option<u16>,
    /// Seconds for which the response stays fresh; negative when it is stale.
    pub ttl: Option<i64>,
    /// The response is being stored.
    pub stored: bool,
    /// The request was collapsed with another one.
    pub collapsed: bool,
}

impl CacheStatus {
    /// The member of this cache, whose name is a token or becomes a string.
    pub fn member(&self, name: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(name.len() + 48);
        push_name(name, &mut out);
        match self.forward {
            None => out.extend_from_slice(b"; hit"),
            Some(forward) => {
                out.extend_from_slice(b"; fwd=");
                out.extend_from_slice(forward.as_str().as_bytes());
                if let Some(status) = self.forward_status {
                    out.extend_from_slice(format!("; fwd-status={status}").as_bytes());
                }
            }
        }
        if let Some(ttl) = self.ttl {
            out.extend_from_slice(format!("; ttl={ttl}").as_bytes());
        }
        if self.stored {
            out.extend_from_slice(b"; stored");
        }
        if self.collapsed {
            out.extend_from_slice(b"; collapsed");
        }
        out
    }
}

/// RFC 9211 section 2: each member is a token or a string.
fn push_name(name: &[u8], out: &mut Vec<u8>) {
    let is_token = |b: &u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~:/".contains(b);
    let token = name.first().is_some_and(|b| b.is_ascii_alphabetic() || *b == b'*')
        && name.iter().all(is_token);
    if token {
        out.extend_from_slice(name);
        return;
    }
    out.push(b'"');
    for byte in name.iter().filter(|b| (0x20..0x7f).contains(*b)) {
        if b"\"\\".contains(byte) {
            out.push(b'\\');
        }
        out.push(*byte);
    }
    out.push(b'"');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members() {
        let member = |report: CacheStatus, name: &str| {
            String::from_utf8(report.member(name.as_bytes())).unwrap()
        };
        let hit = CacheStatus { ttl: Some(376), ..CacheStatus::default() };
        assert_eq!(member(hit, "edge.example.net"), "edge.example.net; hit; ttl=376");
        let miss =
            CacheStatus { forward: Some(Forward::UriMiss), stored: true, ..CacheStatus::default() };
        assert_eq!(member(miss, "a b\"c"), "\"a b\\\"c\"; fwd=uri-miss; stored");
        let stale = CacheStatus {
            forward: Some(Forward::Stale),
            forward_status: Some(304),
            ttl: Some(-5),
            collapsed: true,
            ..CacheStatus::default()
        };
        assert_eq!(member(stale, "1"), "\"1\"; fwd=stale; fwd-status=304; ttl=-5; collapsed");
    }
}
