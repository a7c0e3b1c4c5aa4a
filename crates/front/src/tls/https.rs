//! Requests that the server makes on its own behalf over HTTPS, or over plain HTTP to itself, and functions
//! for the certificates that it obtains.
//!
//! Called by separate tasks, never for a client's request. Each request has its own connection; redirects
//! are not followed.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use nowait_conf::{Contents, Cx, Diagnostic, Errno, Word};
use nowait_resolver::Resolver;
use nowait_runtime::net::{Address, Stream};
use nowait_runtime::pool::Pool;
use nowait_runtime::time::timeout;
use nowait_tls::pem::{self, PrivateKey};
use nowait_tls::{Certificate, ClientSettings, Identity, TlsClient, Verifier};

pub use super::fetch::FetchedResponse;
use super::fetch::{self, TIMEOUT};
use super::{Handshake, files};

/// Certificates between that of a server and the trusted one, at most.
const DEPTH_MAX: usize = 8;

/// Paths of the systems' CA certificates.
const BUNDLES: &[&str] = &[
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// The file with the certificates of authorities that the system trusts, if it has one.
pub fn bundle() -> Option<&'static str> {
    BUNDLES.iter().copied().find(|path| std::path::Path::new(path).exists())
}

/// A client of HTTPS servers.
#[derive(Clone, Debug)]
pub struct Https(TlsClient);

/// A URL of the scheme `https`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Url {
    /// The host, without the brackets of an address.
    pub host: String,
    authority: String,
    port: u16,
    path: String,
}

impl Url {
    /// Reads a URL. `None`: it is not one of this scheme.
    pub fn parse(url: &str) -> Option<Self> {
        let rest = url.strip_prefix("https://")?;
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(end);
        let colon = authority.rfind(':').filter(|colon| authority[*colon..].find(']').is_none());
        let (host, port) = match colon {
            Some(colon) => (&authority[..colon], authority[colon + 1..].parse().ok()?),
            None => (authority, 443),
        };
        let bare = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(host);
        let path = path.split('#').next().unwrap_or_default();
        let slash = if path.starts_with('/') { "" } else { "/" };
        let is_safe = url.bytes().all(|byte| byte.is_ascii_graphic()) && !authority.contains('@');
        (is_safe && !bare.is_empty() && port > 0).then(|| Self {
            host: bare.to_owned(),
            authority: authority.to_owned(),
            port,
            path: format!("{slash}{path}"),
        })
    }
}

/// The dependencies of a request.
#[derive(Clone)]
pub struct Means {
    /// Finds the server.
    pub resolver: Resolver,
    /// Time limit of the request.
    pub resolver_timeout: Duration,
    /// The pool for handshakes.
    pub pool: Pool,
}

/// A request.
pub struct HttpsRequest<'a> {
    /// The method.
    pub method: &'static str,
    /// Type and content of the body, if any.
    pub body: Option<(&'static str, &'a str)>,
    /// Maximum size of the response's body.
    pub body_bytes_max: usize,
}

impl Https {
    /// A client that trusts the authorities of a file, by default those of the system; without
    /// `verifies`, any server.
    ///
    /// # Errors
    /// The file can't be used, or the system has none.
    pub fn new(
        cx: &mut Cx<'_>,
        trusted: Option<&Word>,
        verifies: bool,
    ) -> Result<Self, Diagnostic> {
        Self::offering(cx, trusted, verifies, &[])
    }

    /// The same for a client that offers these application protocols.
    ///
    /// # Errors
    /// The file can't be used, or the system has none.
    pub fn offering(
        cx: &mut Cx<'_>,
        trusted: Option<&Word>,
        verifies: bool,
        protocols: &[&[u8]],
    ) -> Result<Self, Diagnostic> {
        let verifier = match (verifies, trusted) {
            (false, _) => None,
            (true, Some(file)) => Some(files::certificates(cx, file)?),
            (true, None) => {
                let found = BUNDLES.iter().find_map(|path| cx.read_named(Path::new(path)).ok());
                let found = found.and_then(|file| pem::certificates(&file).ok());
                Some(found.ok_or_else(|| {
                    Diagnostic::emerg("the system has no file with certificates of authorities")
                        .hint("install ca-certificates, or name a file by ssl_trusted_certificate")
                })?)
            }
        };
        let failed = |error: nowait_tls::Error| Diagnostic::emerg(error.to_string());
        let verifier = match verifier {
            None => None,
            Some(all) => Some(Arc::new(Verifier::new(all, &[], DEPTH_MAX).map_err(failed)?)),
        };
        let alpn = protocols.iter().map(|protocol| protocol.to_vec()).collect();
        let settings =
            ClientSettings { verifier, alpn, sends_name: true, ..ClientSettings::default() };
        TlsClient::new(settings).map(Self).map_err(failed)
    }

    /// Sends a request, and receives the response.
    ///
    /// # Errors
    /// The reason why there is no response, for the log.
    pub async fn fetch(
        &self,
        url: &Url,
        ask: HttpsRequest<'_>,
        means: &Means,
    ) -> Result<FetchedResponse, String> {
        let fetched = timeout(TIMEOUT, self.exchange(url, ask, means)).await;
        fetched.unwrap_or_else(|_| Err("timed out".to_owned()))
    }

    async fn exchange(
        &self,
        url: &Url,
        ask: HttpsRequest<'_>,
        means: &Means,
    ) -> Result<FetchedResponse, String> {
        let stream = open(&url.host, url.port, Some(self), means).await?;
        let Url { authority, path, .. } = url;
        let mut head = format!(
            "{} {path} HTTP/1.1\r\nHost: {authority}\r\nUser-Agent: nowait/{}\r\n\
             Accept: */*\r\nConnection: close\r\n",
            ask.method,
            env!("CARGO_PKG_VERSION"),
        );
        if let Some((kind, body)) = ask.body {
            let len = body.len();
            head.push_str(&format!("Content-Type: {kind}\r\nContent-Length: {len}\r\n"));
        }
        head.push_str("\r\n");
        head.push_str(ask.body.map_or("", |(_, body)| body));
        fetch::exchange(&stream, head, ask.method == "HEAD", ask.body_bytes_max).await
    }
}

/// Connects to a host, with TLS if there is a client for it. The caller limits the time.
///
/// # Errors
/// The reason why there is no connection, for the log.
pub async fn open(
    host: &str,
    port: u16,
    tls: Option<&Https>,
    means: &Means,
) -> Result<Stream, String> {
    let stream = fetch::open(&means.resolver, means.resolver_timeout, host, port).await?;
    if let Some(Https(client)) = tls {
        let session = client.connect(host).map_err(|error| error.to_string())?;
        let handshake = Handshake { timeout: TIMEOUT, pool: means.pool.clone(), client: 0 };
        super::connect(&stream, session, &handshake).await.map_err(|failure| match &failure {
            super::HandshakeError::Tls(error) => match error.distrust() {
                Some(why) => format!("SSL certificate verify error: ({}:{why})", why.number()),
                None => failure.to_string(),
            },
            _ => failure.to_string(),
        })?;
    }
    Ok(stream)
}

/// Sends a request of HTTP/1.1, and receives its response. The caller limits the time.
///
/// # Errors
/// The reason why there is no response, for the log.
pub async fn exchange(
    stream: &Stream,
    request: Bytes,
    body_bytes_max: usize,
) -> Result<FetchedResponse, String> {
    fetch::exchange(stream, request, false, body_bytes_max).await
}

/// Requests a path from a server by HTTP without TLS. The caller limits the time.
///
/// # Errors
/// The reason why there is no response.
pub async fn plain(
    address: SocketAddr,
    host: &str,
    path: &str,
    body_bytes_max: usize,
) -> Result<FetchedResponse, String> {
    let connected = Stream::connect(&Address::Inet(address), TIMEOUT).await;
    let stream = connected.map_err(|error| format!("connect() failed ({})", Errno(&error)))?;
    let head = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    fetch::exchange(&stream, head, false, body_bytes_max).await
}

/// The facts of a certificate that decide when it is replaced, and by which chain; and what names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// The key identifier of its issuer; empty: it has none.
    pub authority_key: Vec<u8>,
    /// The contents of its serial number, in DER.
    pub serial: Vec<u8>,
    /// The beginning of its validity.
    pub from: SystemTime,
    /// The end of its validity.
    pub until: SystemTime,
    /// The issuer of the last certificate of the chain.
    pub root: String,
}

/// A certificate with its key, as a file has them.
#[derive(Debug)]
pub struct CertificatePair {
    /// Facts of the certificate.
    pub facts: Facts,
    identity: Identity,
}

impl CertificatePair {
    /// Whether the certificate is for this name or address.
    pub fn is_for(&self, name: &str) -> bool {
        self.identity.chain().first().is_some_and(|own| nowait_tls::is_for(own, name))
    }
}

/// Reads a file with a key and the chain of its certificate.
///
/// # Errors
/// It is malformed, or the key belongs to another certificate.
pub fn pair(file: &[u8]) -> Result<CertificatePair, String> {
    let text = |error: nowait_tls::Error| error.to_string();
    let chain = pem::certificates(file).map_err(text)?;
    let key = PrivateKey::from_pem(file, &[]).map_err(text)?;
    let identity = Identity::new(chain, &key, None).map_err(text)?;
    let first = identity.chain().first().and_then(Certificate::parse);
    let last = identity.chain().last().and_then(Certificate::parse);
    let (Some(first), Some(last)) = (first, last) else { return Err("no certificate".to_owned()) };
    let (from, until) = first.dates().ok_or("malformed dates")?;
    let authority_key = first.authority_key_der().unwrap_or_default().to_vec();
    let serial = first.serial_der().to_vec();
    let facts = Facts { authority_key, serial, from, until, root: last.issuer() };
    Ok(CertificatePair { facts, identity })
}

/// The private key of a file, in DER.
///
/// # Errors
/// It is malformed.
pub fn key(file: &[u8]) -> Result<Contents, String> {
    let key = PrivateKey::from_pem(file, &[]).map_err(|error| error.to_string())?;
    Ok(Contents::new(key.der().to_vec()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls() {
        let parse = |text| Url::parse(text).map(|url| (url.host, url.port, url.path));
        let is = |host: &str, port, path: &str| Some((host.to_owned(), port, path.to_owned()));
        assert_eq!(parse("https://a.test"), is("a.test", 443, "/"));
        assert_eq!(parse("https://a.test:14000/dir?x#y"), is("a.test", 14000, "/dir?x"));
        assert_eq!(parse("https://[::1]/dir"), is("::1", 443, "/dir"));
        assert_eq!(parse("https://a.test?x"), is("a.test", 443, "/?x"));
        for bad in ["http://a", "https://", "https://a:x/", "https://u@a/", "https://a/\r\n"] {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }
}
