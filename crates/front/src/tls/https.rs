//! Requests that the server makes on its own behalf over HTTPS, and what is needed of the certificates
//! that it gets by them.
//!
//! Called by tasks of their own, never for a client's request. Each request has its own connection;
//! redirects are not followed.

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use nowait_conf::{Contents, Cx, Diagnostic, Word};
use nowait_h1::client::{Asked, Connection, HeadEvent};
use nowait_h1::{BodyEvent, Limits};
use nowait_message::response::ResponseBuilder;
use nowait_resolver::Resolver;
use nowait_runtime::net::{Address, SendOptions, Stream};
use nowait_runtime::pool::Pool;
use nowait_runtime::time::timeout;
use nowait_tls::pem::{self, PrivateKey};
use nowait_tls::{Certificate, Client, ClientSettings, Identity, Verifier};

use super::{Handshake, files};

/// Maximum time for a request and its response.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Maximum size of a response's head.
const HEAD_BYTES_MAX: u32 = 16 * 1024;

/// Certificates between that of a server and the trusted one, at most.
const DEPTH_MAX: usize = 8;

/// Where systems keep the certificates of authorities.
const BUNDLES: &[&str] = &[
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// A client of HTTPS servers.
#[derive(Clone, Debug)]
pub struct Https(Client);

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

/// What a request needs.
#[derive(Clone)]
pub struct Means {
    /// Finds the server.
    pub resolver: Resolver,
    /// How long that may take.
    pub resolver_timeout: Duration,
    /// Where handshakes run.
    pub pool: Pool,
}

/// A request.
pub struct Ask<'a> {
    /// The method.
    pub method: &'static str,
    /// The type of the body and the body, if there is one.
    pub body: Option<(&'static str, &'a str)>,
    /// Maximum size of the response's body.
    pub body_bytes_max: usize,
}

/// A response.
#[derive(Debug, Default)]
pub struct Answer {
    /// The status.
    pub status: u16,
    /// The fields, with names in lower case.
    pub fields: Vec<(String, String)>,
    /// The body.
    pub body: Vec<u8>,
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
        let settings = ClientSettings { verifier, sends_name: true, ..ClientSettings::default() };
        Client::new(settings).map(Self).map_err(failed)
    }

    /// Sends a request, and receives the response.
    ///
    /// # Errors
    /// Why there is none, for the log.
    pub async fn fetch(&self, url: &Url, ask: Ask<'_>, means: &Means) -> Result<Answer, String> {
        let fetched = timeout(TIMEOUT, self.exchange(url, ask, means)).await;
        fetched.unwrap_or_else(|_| Err("timed out".to_owned()))
    }

    async fn exchange(&self, url: &Url, ask: Ask<'_>, means: &Means) -> Result<Answer, String> {
        let host = &url.host;
        let found = means.resolver.resolve(host.as_bytes(), means.resolver_timeout).await;
        let found = found.map_err(|error| format!("{host} could not be resolved ({error})"))?;
        let mut stream = Err(format!("no address of {host}"));
        for address in found.sockets(url.port) {
            let connected = Stream::connect(&Address::Inet(address), TIMEOUT).await;
            stream = connected.map_err(|error| format!("connect() to {address} failed ({error})"));
            if stream.is_ok() {
                break;
            }
        }
        let stream = stream?;
        let session = self.0.connect(host).map_err(|error| error.to_string())?;
        let handshake = Handshake { timeout: TIMEOUT, pool: means.pool.clone(), client: 0 };
        super::connect(&stream, session, &handshake).await.map_err(|failure| match &failure {
            super::Failure::Tls(error) => match error.distrust() {
                Some(why) => format!("SSL certificate verify error: ({}:{why})", why.number()),
                None => failure.to_string(),
            },
            _ => failure.to_string(),
        })?;
        let failed = |error: std::io::Error| format!("connection failed ({error})");
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
        stream.send(Bytes::from(head), SendOptions::new(TIMEOUT)).await.map_err(failed)?;
        let mut response = Response::new(&ask);
        loop {
            let received = stream.recv(TIMEOUT).await.map_err(failed)?;
            if response.receive(&received)? {
                return Ok(response.answer);
            }
        }
    }
}

/// A response that is being received.
struct Response {
    connection: Connection,
    head: ResponseBuilder,
    has_head: bool,
    body_bytes_max: usize,
    answer: Answer,
}

impl Response {
    fn new(ask: &Ask<'_>) -> Self {
        let mut connection = Connection::new(Limits::one_buffer(HEAD_BYTES_MAX));
        connection.request_sent(if ask.method == "HEAD" { Asked::Head } else { Asked::Content });
        Self {
            connection,
            head: ResponseBuilder::new(),
            has_head: false,
            body_bytes_max: ask.body_bytes_max,
            answer: Answer::default(),
        }
    }

    /// Takes bytes, or without any the end of the connection; true: it is complete.
    fn receive(&mut self, mut input: &[u8]) -> Result<bool, String> {
        let malformed = |error: &dyn fmt::Display| format!("invalid response: {error}");
        if input.is_empty() {
            self.connection.receive_eof().map_err(|error| malformed(&error))?;
            return match self.has_head {
                true => Ok(true),
                false => Err("the server closed the connection".to_owned()),
            };
        }
        while !self.has_head {
            let step = self.connection.receive_head(&mut self.head, input);
            let step = step.map_err(|error| malformed(&error))?;
            input = &input[step.consumed..];
            match step.event {
                HeadEvent::NeedMore => return Ok(false),
                HeadEvent::Interim => self.head = ResponseBuilder::new(),
                HeadEvent::Final => {
                    let head = self.head.take();
                    self.answer.status = head.status;
                    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
                    let fields = head.fields();
                    let fields = fields.map(|f| (text(f.name).to_lowercase(), text(f.value)));
                    self.answer.fields = fields.collect();
                    self.has_head = true;
                }
            }
        }
        loop {
            let step = self.connection.receive_body(input).map_err(|error| malformed(&error))?;
            match step.event {
                BodyEvent::Data(range) => self.answer.body.extend_from_slice(&input[range]),
                BodyEvent::NeedMore => return Ok(false),
                BodyEvent::End => return Ok(true),
            }
            if self.answer.body.len() > self.body_bytes_max {
                return Err("the response is too large".to_owned());
            }
            input = &input[step.consumed..];
        }
    }
}

/// The facts of a certificate that decide when it is replaced, and by which chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// When it becomes valid.
    pub from: SystemTime,
    /// When it ceases to be valid.
    pub until: SystemTime,
    /// The issuer of the last certificate of the chain.
    pub root: String,
}

/// The facts of a file with a key and the chain of its certificate.
///
/// # Errors
/// It is malformed, or the key belongs to another certificate.
pub fn facts(file: &[u8]) -> Result<Facts, String> {
    let text = |error: nowait_tls::Error| error.to_string();
    let chain = pem::certificates(file).map_err(text)?;
    let key = PrivateKey::from_pem(file, &[]).map_err(text)?;
    let identity = Identity::new(chain, &key, None).map_err(text)?;
    let first = identity.chain().first().and_then(Certificate::parse);
    let last = identity.chain().last().and_then(Certificate::parse);
    let (Some(first), Some(last)) = (first, last) else { return Err("no certificate".to_owned()) };
    let (from, until) = first.dates().ok_or("malformed dates")?;
    Ok(Facts { from, until, root: last.issuer() })
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

    #[test]
    fn a_response_has_bounds() {
        let ask = || Ask { method: "POST", body: None, body_bytes_max: 4 };
        let mut response = Response::new(&ask());
        let head = b"HTTP/1.1 201 Created\r\nReplay-Nonce: x\r\nContent-Length: 3\r\n\r\nab";
        assert_eq!(response.receive(head), Ok(false));
        assert_eq!(response.receive(b"c"), Ok(true));
        let Answer { status, fields, body } = response.answer;
        assert_eq!((status, &body[..], &fields[0].0[..]), (201, &b"abc"[..], "replay-nonce"));
        let mut response = Response::new(&ask());
        assert!(response.receive(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nabcde").is_err());
        assert!(Response::new(&ask()).receive(b"").is_err());
    }
}
