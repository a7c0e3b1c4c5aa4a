//! Common parts of the pages that the server makes for browsers: their style, the policy that allows only
//! this style, and the detection of browsers.
//!
//! Used by the built-in error pages and by listings of directories. Pages have no external resources: style
//! and script are in the page, and the policy has their hashes.

use sha2::{Digest, Sha256};

use crate::base64;

/// The style of every page; styles of single pages follow.
pub const STYLE: &str = include_str!("base.css");

/// The value of `Content-Security-Policy` for a page with exactly these elements: the content of
/// its `<style>` and of its `<script>`.
pub fn policy(style: &str, script: Option<&str>) -> String {
    let hash = |text: &str| {
        let hash = base64::encode(&Sha256::digest(text.as_bytes()));
        format!("'sha256-{}'", String::from_utf8_lossy(&hash))
    };
    let mut policy = format!("default-src 'none'; style-src {}; ", hash(style));
    if let Some(script) = script {
        policy.push_str(&format!("script-src {}; ", hash(script)));
    }
    // Browsers request /favicon.ico by default.
    policy.push_str("img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'self'");
    policy
}

/// Whether a client is a browser, by its `Accept`: browsers name `text/html` (or XHTML), while `curl`,
/// `wget` and libraries send `*/*` or no field. RFC 9110, section 12.5.1.
pub fn is_for_people(accept: Option<&[u8]>) -> bool {
    let is_refused = |parameters: &[u8]| {
        parameters.split(|&b| b == b';').any(|parameter| {
            let value = parameter.trim_ascii().strip_prefix(b"q=");
            value.is_some_and(|q| !q.is_empty() && q.iter().all(|b| b"0.".contains(b)))
        })
    };
    accept.unwrap_or_default().split(|&b| b == b',').any(|range| {
        let at = range.iter().position(|&b| b == b';').unwrap_or(range.len());
        let (kind, parameters) = range.split_at(at);
        let kind = kind.trim_ascii();
        (kind.eq_ignore_ascii_case(b"text/html")
            || kind.eq_ignore_ascii_case(b"application/xhtml+xml"))
            && !is_refused(parameters)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn browsers_name_html() {
        for accept in [
            "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8",
            "Text/HTML",
            "image/png, text/html;level=1;q=0.05",
            "application/xhtml+xml",
        ] {
            assert!(is_for_people(Some(accept.as_bytes())), "{accept}");
        }
        for accept in ["*/*", "", "text/*", "text/html;q=0", "text/html; q=0.00", "text/htmlx", ";"]
        {
            assert!(!is_for_people(Some(accept.as_bytes())), "{accept}");
        }
        assert!(!is_for_people(None));
    }

    #[test]
    fn policies_name_hashes() {
        // printf '' | openssl dgst -sha256 -binary | base64
        let empty = "'sha256-47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU='";
        let text = policy("", None);
        assert!(text.starts_with(&format!("default-src 'none'; style-src {empty}; img-src")));
        assert!(policy("a", Some("")).contains(&format!("; script-src {empty}; img-src")));
    }

    #[test]
    fn the_style_ends_no_element() {
        assert!(!STYLE.contains("</") && STYLE.contains("prefers-color-scheme: dark"));
    }
}
