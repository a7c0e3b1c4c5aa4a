//! The URL of `proxy_pass`, `grpc_pass` and their relatives: scheme, server, and URI. nginx: `ngx_parse_url`.
//!
//! Pure: used when the configuration is read, and for each request where the URL has variables.

use bytes::Bytes;

/// The schemes of a protocol: the beginning of URLs, without and with TLS.
#[derive(Debug, Clone, Copy)]
pub struct Schemes {
    /// `http://`
    pub plain: &'static str,
    /// `https://`, if the protocol has TLS.
    pub tls: Option<&'static str>,
    /// Whether the plain one may be left out, and there are no URIs.
    pub bare: bool,
}

impl Schemes {
    /// The hint for an invalid URL whose scheme was taken for a host: `grp://a`.
    pub fn advice(&self, text: &[u8]) -> Option<String> {
        let begins = |scheme: &str| {
            text.get(..scheme.len()).is_some_and(|it| it.eq_ignore_ascii_case(scheme.as_bytes()))
        };
        let is_known = begins(self.plain) || self.tls.is_some_and(begins);
        if !self.bare || is_known || !text.windows(3).any(|part| part == b"://") {
            return None;
        }
        Some(match self.tls {
            Some(tls) => format!("HOST:PORT or unix:PATH, behind {}, {tls} or nothing", self.plain),
            None => "HOST:PORT or unix:PATH, without a scheme".to_owned(),
        })
    }
}

/// The default ports, without and with TLS.
const PORTS: [&str; 2] = ["80", "443"];

/// A URL, taken apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Url {
    /// Host and port, or `unix:` and a path, as written.
    pub server: Bytes,
    /// The host without its port; the path of a Unix-domain socket.
    pub host: Bytes,
    /// The port, if there is one.
    pub port: Option<u16>,
    /// The port of the scheme.
    pub default_port: u16,
    /// The values for requests to this URL.
    pub destination: Destination,
}

/// Values that requests to a URL use.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Destination {
    /// Whether connections have TLS.
    pub tls: bool,
    /// The host, against which certificates are verified by default.
    pub host: Bytes,
    /// `$proxy_host`, which is `Host` by default.
    pub host_header: Bytes,
    /// `$proxy_port`
    pub port: Bytes,
    /// Path and query string; may be empty.
    pub uri: Bytes,
    /// Scheme and server: the beginning of the default key of a cache.
    pub key_start: Bytes,
}

/// The fault of a URL, in nginx's words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UrlError {
    /// The URL begins with none of the schemes.
    Prefix,
    /// The text is followed by `in upstream "…"` in the message.
    Server(&'static str),
}

impl Url {
    /// Reads a URL.
    ///
    /// # Errors
    /// [`UrlError`]
    pub fn parse(text: &Bytes, schemes: Schemes) -> Result<Self, UrlError> {
        let begins = |prefix: &str| {
            let start = text.get(..prefix.len());
            start.is_some_and(|start| start.eq_ignore_ascii_case(prefix.as_bytes()))
        };
        let (start, tls) = match schemes.tls {
            _ if begins(schemes.plain) => (schemes.plain.len(), false),
            Some(tls) if begins(tls) => (tls.len(), true),
            _ if schemes.bare => (0, false),
            _ => return Err(UrlError::Prefix),
        };
        let default_port = PORTS[usize::from(tls)];
        let rest = text.slice(start..);
        let unix = rest.get(..5).is_some_and(|start| start.eq_ignore_ascii_case(b"unix:"));
        let mut url = match unix {
            true => Self::unix(text, &rest),
            false => Self::inet(text, &rest, default_port),
        }?;
        if schemes.bare && !url.destination.uri.is_empty() {
            return Err(UrlError::Server("unexpected URI"));
        }
        url.default_port = port(default_port.as_bytes())?;
        url.destination.tls = tls;
        url.destination.host = url.host.clone();
        Ok(url)
    }

    /// `unix:PATH` or `unix:PATH:URI`.
    fn unix(text: &Bytes, rest: &Bytes) -> Result<Self, UrlError> {
        let colon = rest[5..].iter().position(|&b| b == b':').map(|at| at + 5);
        let end = colon.unwrap_or(rest.len());
        if end == 5 {
            return Err(UrlError::Server("no path in the unix domain socket"));
        }
        // The key includes the colon, as in nginx.
        let key_end = colon.map_or(end, |at| at + 1);
        Ok(Self {
            server: rest.slice(..end),
            host: rest.slice(5..end),
            port: None,
            destination: Destination {
                host_header: Bytes::from_static(b"localhost"),
                port: Bytes::new(),
                uri: colon.map_or_else(Bytes::new, |at| rest.slice(at + 1..)),
                key_start: text.slice(..text.len() - rest.len() + key_end),
                ..Destination::default()
            },
            default_port: 0,
        })
    }

    fn inet(text: &Bytes, rest: &Bytes, default_port: &'static str) -> Result<Self, UrlError> {
        let uri = rest.iter().position(|b| matches!(b, b'/' | b'?')).unwrap_or(rest.len());
        let server = rest.slice(..uri);
        let host_end = if server.first() == Some(&b'[') {
            let close = server.iter().position(|&b| b == b']');
            close.ok_or(UrlError::Server("invalid host"))? + 1
        } else {
            server.iter().position(|&b| b == b':').unwrap_or(server.len())
        };
        let host = server.slice(..host_end);
        if host.is_empty() {
            return Err(UrlError::Server("no host"));
        }
        let port = match server.get(host_end) {
            None => None,
            Some(b':') => Some(port(&server[host_end + 1..])?),
            Some(_) => return Err(UrlError::Server("invalid host")),
        };
        let is_default = port
            .is_none_or(|port| nowait_conf::number(default_port.as_bytes()) == Some(port.into()));
        let host_header = if is_default { host.clone() } else { server.clone() };
        Ok(Self {
            destination: Destination {
                key_start: text.slice(..text.len() - rest.len() + host_header.len()),
                host_header,
                port: match port {
                    Some(_) if !is_default => server.slice(host_end + 1..),
                    _ => Bytes::from_static(default_port.as_bytes()),
                },
                uri: rest.slice(uri..),
                ..Destination::default()
            },
            default_port: 0,
            server,
            host,
            port,
        })
    }
}

/// The part of a URL after its scheme.
pub fn after_scheme(url: &[u8]) -> &[u8] {
    let end = url.windows(3).position(|three| three == b"://");
    end.map_or(&[], |end| &url[end + 3..])
}

fn port(text: &[u8]) -> Result<u16, UrlError> {
    match nowait_conf::number(text) {
        Some(port @ 1..=65535) => Ok(u16::try_from(port).unwrap_or(u16::MAX)),
        _ => Err(UrlError::Server("invalid port")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HTTP: Schemes = Schemes { plain: "http://", tls: Some("https://"), bare: false };
    const GRPC: Schemes = Schemes { plain: "grpc://", tls: Some("grpcs://"), bare: true };

    fn url(text: &'static str) -> Url {
        Url::parse(&Bytes::from_static(text.as_bytes()), HTTP).unwrap()
    }

    fn error(text: &'static str) -> UrlError {
        Url::parse(&Bytes::from_static(text.as_bytes()), HTTP).expect_err(text)
    }

    #[test]
    fn schemes_may_be_left_out() {
        let grpc = |text: &'static str| Url::parse(&Bytes::from_static(text.as_bytes()), GRPC);
        for text in ["127.0.0.1:50051", "grpc://127.0.0.1:50051"] {
            let url = grpc(text).unwrap();
            assert_eq!((&url.server[..], url.destination.tls), (&b"127.0.0.1:50051"[..], false));
            assert_eq!(url.destination.host_header, "127.0.0.1:50051");
        }
        assert!(grpc("grpcs://backend").unwrap().destination.tls);
        assert_eq!(grpc("unix:/run/app.sock").unwrap().destination.host_header, "localhost");
        assert_eq!(grpc("grpc://backend/uri").unwrap_err(), UrlError::Server("unexpected URI"));
    }

    #[test]
    fn parts() {
        let plain = url("http://backend");
        assert_eq!((&plain.server[..], plain.port), (&b"backend"[..], None));
        assert_eq!(plain.destination.host_header, "backend");
        assert_eq!(plain.destination.port, "80");
        assert_eq!(plain.destination.uri, "");
        assert_eq!(plain.destination.key_start, "http://backend");

        let full = url("HTTP://127.0.0.1:8080/a?b:c");
        assert_eq!((&full.host[..], full.port), (&b"127.0.0.1"[..], Some(8080)));
        assert_eq!(full.destination.host_header, "127.0.0.1:8080");
        assert_eq!(full.destination.port, "8080");
        assert_eq!(full.destination.uri, "/a?b:c");
        assert_eq!(full.destination.key_start, "HTTP://127.0.0.1:8080");

        let usual = url("http://a:80?x");
        assert_eq!(usual.destination.host_header, "a");
        assert_eq!(usual.destination.uri, "?x");
        assert_eq!(usual.server, "a:80");
    }

    #[test]
    fn other_families() {
        let six = url("http://[::1]:8080/x");
        assert_eq!((&six.host[..], six.port), (&b"[::1]"[..], Some(8080)));
        assert_eq!(six.destination.host_header, "[::1]:8080");
        let unix = url("http://unix:/tmp/a.sock:/uri/");
        assert_eq!(unix.server, "unix:/tmp/a.sock");
        assert_eq!(unix.destination.host_header, "localhost");
        assert_eq!(unix.destination.uri, "/uri/");
        assert_eq!(unix.destination.key_start, "http://unix:/tmp/a.sock:");
        assert_eq!(url("http://unix:/tmp/a.sock").destination.uri, "");
    }

    #[test]
    fn tls() {
        let usual = url("https://a:443/x");
        assert_eq!((usual.default_port, usual.destination.tls), (443, true));
        assert_eq!(usual.destination.host_header, "a");
        assert_eq!(usual.destination.port, "443");
        assert_eq!(usual.destination.key_start, "https://a");
        let other = url("https://[::1]:80");
        assert_eq!(other.destination.host_header, "[::1]:80");
        assert_eq!(other.destination.host, "[::1]");
        assert_eq!(other.destination.key_start, "https://[::1]:80");
        assert_eq!(url("https://unix:/a:/b").destination.key_start, "https://unix:/a:");
        assert!(!url("http://a").destination.tls);
    }

    #[test]
    fn mistakes() {
        assert_eq!(error("ftp://a"), UrlError::Prefix);
        assert_eq!(error("backend"), UrlError::Prefix);
        assert_eq!(error("http://"), UrlError::Server("no host"));
        assert_eq!(error("http://:80"), UrlError::Server("no host"));
        assert_eq!(error("http://a:0"), UrlError::Server("invalid port"));
        assert_eq!(error("http://a:65536/"), UrlError::Server("invalid port"));
        assert_eq!(error("http://a:b"), UrlError::Server("invalid port"));
        assert_eq!(error("http://[::1"), UrlError::Server("invalid host"));
        assert_eq!(error("http://[::1]x"), UrlError::Server("invalid host"));
        assert_eq!(error("http://unix:"), UrlError::Server("no path in the unix domain socket"));
    }
}
