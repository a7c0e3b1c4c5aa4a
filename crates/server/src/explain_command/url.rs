//! The URL of `nowait explain`.

use std::net::Ipv6Addr;

/// The parts of a URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Url {
    /// `https`
    pub tls: bool,
    pub host: String,
    /// `None`: there is only a path.
    pub port: Option<u16>,
    /// The URL has a port other than the default.
    pub port_given: bool,
    /// Path and query string.
    pub target: String,
}

impl Url {
    /// Reads a URL, or a path.
    ///
    /// # Errors
    /// The reason why the URL is invalid.
    pub fn parse(url: &str) -> Result<Url, String> {
        // Fragments are not sent.
        let url = url.split('#').next().unwrap_or_default();
        if url.contains(|letter: char| letter.is_control() || letter == ' ') {
            return Err("it contains spaces or control characters".to_owned());
        }
        if url.starts_with('/') {
            let (host, target) = ("localhost".to_owned(), url.to_owned());
            return Ok(Url { tls: false, host, port: None, port_given: false, target });
        }
        let (tls, rest) = match url.split_once("://") {
            Some(("http", rest)) => (false, rest),
            Some(("https", rest)) => (true, rest),
            _ => return Err("expected http://, https:// or a path".to_owned()),
        };
        let at = rest.find(['/', '?']).unwrap_or(rest.len());
        let (authority, target) = rest.split_at(at);
        let (host, port) = authority_parts(authority)?;
        let target = match target.starts_with('/') {
            true => target.to_owned(),
            false => format!("/{target}"),
        };
        let default = if tls { 443 } else { 80 };
        let port_given = port.is_some_and(|port: u16| port != default);
        Ok(Url {
            tls,
            host: host.to_owned(),
            port: Some(port.unwrap_or(default)),
            port_given,
            target,
        })
    }
}

/// The host and the port of an authority.
fn authority_parts(authority: &str) -> Result<(&str, Option<u16>), String> {
    let (host, rest) = if authority.starts_with('[') {
        let Some(closed) = authority.find(']') else {
            return Err(format!(
                "the \"[\" in \"{authority}\" is not closed; expected [ADDRESS] or [ADDRESS]:PORT"
            ));
        };
        let (host, rest) = authority.split_at(closed + 1);
        if host[1..closed].parse::<Ipv6Addr>().is_err() {
            return Err(format!("\"{host}\" is not an IPv6 address"));
        }
        (host, rest)
    } else {
        if authority.parse::<Ipv6Addr>().is_ok() {
            return Err(format!("an IPv6 address needs brackets: [{authority}]"));
        }
        authority.split_at(authority.find(':').unwrap_or(authority.len()))
    };
    if host.is_empty() || authority.contains('@') {
        return Err("expected a host name or an address".to_owned());
    }
    if rest.is_empty() {
        return Ok((host, None));
    }
    let port = rest.strip_prefix(':').filter(|port| port.bytes().all(|b| b.is_ascii_digit()));
    match port.and_then(|port| port.parse().ok()) {
        Some(port) => Ok((host, Some(port))),
        None => Err(format!("expected a port instead of \"{rest}\" after \"{host}\"")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls() {
        let url = |text: &str| Url::parse(text);
        let expected = Url {
            tls: true,
            host: "[::1]".into(),
            port: Some(8443),
            port_given: true,
            target: "/?a=b".into(),
        };
        assert_eq!(url("https://[::1]:8443?a=b#c"), Ok(expected));
        let plain = url("http://example.org:80").unwrap();
        assert!(!plain.port_given && plain.port == Some(80) && plain.target == "/");
        assert_eq!(url("/a").unwrap().port, None);
        for wrong in
            ["", "example.org", "ftp://a/", "http://", "http://a:x/", "http://u@h/", "/a b"]
        {
            assert!(url(wrong).is_err(), "{wrong}");
        }
        for (wrong, message) in [
            (
                "http://[::1/",
                "the \"[\" in \"[::1\" is not closed; expected [ADDRESS] or [ADDRESS]:PORT",
            ),
            (
                "http://[::1:80",
                "the \"[\" in \"[::1:80\" is not closed; expected [ADDRESS] or \
                [ADDRESS]:PORT",
            ),
            ("http://[a]/", "\"[a]\" is not an IPv6 address"),
            ("http://[::1]80/", "expected a port instead of \"80\" after \"[::1]\""),
            ("http://::1/", "an IPv6 address needs brackets: [::1]"),
            ("http://a:+80/", "expected a port instead of \":+80\" after \"a\""),
        ] {
            assert_eq!(url(wrong), Err(message.to_owned()), "{wrong}");
        }
    }
}
