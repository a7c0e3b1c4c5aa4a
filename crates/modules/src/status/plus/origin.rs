//! Requests that a page of another site makes a browser send.
//!
//! A browser adds passwords of its own accord, comes from an address that is allowed, and sends a POST to another
//! site without asking it first. So it must not change anything unless the page is of the same origin.
//! <https://www.w3.org/TR/fetch-metadata/#sec-fetch-site-header>
//!
//! nginx differs: NGINX Plus changes servers for any page.

use nowait_http::request::Request;
use nowait_message::Known;

/// Whether a page of another site sent the request. Programs send neither field.
pub(super) fn is_foreign(request: &Request) -> bool {
    let fields = request.head().fields();
    match (fields.named(b"Sec-Fetch-Site").next(), fields.first(Known::Origin)) {
        (Some(site), _) => site != b"same-origin" && site != b"none",
        // Browsers send that field to servers with TLS and to this machine only.
        (None, Some(origin)) => !is_of(origin, request.host(), request.host_port()),
        (None, None) => false,
    }
}

/// Whether an origin is the one of a host, in lower case, with this port.
fn is_of(origin: &[u8], host: &[u8], port: Option<u16>) -> bool {
    let authority = [&b"http://"[..], b"https://"].iter().find_map(|s| origin.strip_prefix(*s));
    let Some(authority) = authority else { return false };
    let mut expected = host.to_vec();
    if let Some(port) = port {
        expected.extend_from_slice(format!(":{port}").as_bytes());
    }
    !host.is_empty() && authority.eq_ignore_ascii_case(&expected)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn origins_of_a_host() {
        let is_same =
            |origin: &str, host: &str, port| is_of(origin.as_bytes(), host.as_bytes(), port);
        assert!(is_same("http://a.example", "a.example", None));
        assert!(is_same("https://a.example:9145", "a.example", Some(9145)));
        assert!(is_same("http://[::1]:80", "[::1]", Some(80)));
        for origin in
            ["null", "", "http://", "http://b.example", "http://a.example:80", "a.example"]
        {
            assert!(!is_same(origin, "a.example", None), "{origin}");
        }
        assert!(!is_same("http://", "", None));
    }
}
