//! Requests a page from a server's monitoring, for `nowait log`, `connections` and `top`: HTTP without TLS, over TCP or
//! a Unix-domain socket.
//!
//! Uses the standard library's sockets: no server runs in this process. Never follows redirects.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::str::FromStr;
use std::time::{Duration, Instant};

use data_encoding::BASE64;

/// Longest response, bytes: the status of thousands of zones.
const RESPONSE_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Where a page is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiUrl {
    at: Place,
    /// `/requests`
    target: String,
    /// The value of `Authorization`.
    credentials: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Place {
    /// `127.0.0.1:8080`
    Address(String),
    /// The path of a Unix-domain socket.
    Socket(String),
}

/// A response.
#[derive(Debug)]
pub struct ApiPage {
    /// The status.
    pub status: u16,
    /// The content.
    pub body: Vec<u8>,
}

impl FromStr for ApiUrl {
    type Err = String;

    fn from_str(url: &str) -> Result<ApiUrl, String> {
        let url = ApiUrl::parse(url, "/")?;
        if url.target.contains(['?', '#']) {
            return Err("the URL has arguments: name the location alone".to_owned());
        }
        Ok(url)
    }
}

impl ApiUrl {
    /// Reads a URL; without a path, it has this one. It may have arguments, unlike one that is parsed by `FromStr`,
    /// which the caller adds arguments to.
    ///
    /// # Errors
    /// The reason why it can't be used.
    pub fn parse(url: &str, path: &str) -> Result<ApiUrl, String> {
        if url.bytes().any(|byte| byte <= b' ' || byte == 0x7f) {
            return Err("the URL contains a space or a control character".to_owned());
        }
        if let Some(rest) = url.strip_prefix("unix:") {
            let (socket, target) = match rest.find(":/") {
                Some(at) => (&rest[..at], &rest[at + 1..]),
                None => (rest, path),
            };
            if socket.is_empty() {
                return Err(format!("the URL names no socket: unix:PATH:{path}"));
            }
            let at = Place::Socket(socket.to_owned());
            return Ok(ApiUrl { at, target: target.to_owned(), credentials: None });
        }
        if url.starts_with("https://") {
            let hint = "a location at an address of its own, such as 127.0.0.1:9145, needs no TLS; \
                        ssh -L reaches that of another machine";
            return Err(format!("https is not supported: {hint}"));
        }
        let rest =
            url.strip_prefix("http://").ok_or("the URL has to begin with http:// or unix:")?;
        let (authority, target) = match rest.find('/') {
            Some(at) => rest.split_at(at),
            None => (rest, path),
        };
        let (user, host) = match authority.rsplit_once('@') {
            Some((user, host)) => (Some(user), host),
            None => (None, authority),
        };
        if host.is_empty() {
            return Err("the URL names no host".to_owned());
        }
        let has_port = host.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
        let host = if has_port { host.to_owned() } else { format!("{host}:80") };
        let credentials = user.map(|user| format!("Basic {}", BASE64.encode(&decoded(user))));
        Ok(ApiUrl { at: Place::Address(host), target: target.to_owned(), credentials })
    }

    /// Requests the page with these arguments. The time limits connecting to an address, each pause of the server, and
    /// the whole response.
    ///
    /// # Errors
    /// There was no complete response in time, or it is too large.
    pub fn get(&self, arguments: &[(&str, &str)], time_max: Duration) -> io::Result<ApiPage> {
        let deadline = Instant::now() + time_max;
        let mut target = self.target.clone();
        for (at, (name, value)) in arguments.iter().enumerate() {
            target.push(if at == 0 { '?' } else { '&' });
            target.push_str(name);
            target.push('=');
            for byte in value.bytes() {
                match byte {
                    b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' => {
                        target.push(char::from(byte));
                    }
                    _ => target.push_str(&format!("%{byte:02X}")),
                }
            }
        }
        let response = match &self.at {
            Place::Address(host) => {
                let stream = connect(host, time_max)?;
                stream.set_read_timeout(Some(time_max))?;
                stream.set_write_timeout(Some(time_max))?;
                self.exchange(stream, &target, host, deadline)
            }
            Place::Socket(path) => {
                let stream = UnixStream::connect(path)?;
                stream.set_read_timeout(Some(time_max))?;
                stream.set_write_timeout(Some(time_max))?;
                self.exchange(stream, &target, "localhost", deadline)
            }
        };
        parse(response?).ok_or_else(|| io::Error::other("the response is not HTTP"))
    }

    fn exchange(
        &self,
        mut stream: impl Read + Write,
        target: &str,
        host: &str,
        deadline: Instant,
    ) -> io::Result<Vec<u8>> {
        let credentials = self.credentials.as_ref();
        let credentials =
            credentials.map_or_else(String::new, |value| format!("Authorization: {value}\r\n"));
        // HTTP/1.0: the response ends with the connection, and has no chunks.
        let request = format!(
            "GET {target} HTTP/1.0\r\nHost: {host}\r\nUser-Agent: nowait\r\nAccept: application/json\r\n\
             {credentials}Connection: close\r\n\r\n"
        );
        stream.write_all(request.as_bytes())?;
        let mut response = Vec::new();
        let mut piece = vec![0; 64 << 10];
        loop {
            let count = match stream.read(&mut piece) {
                Ok(0) => return Ok(response),
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return Err(io::Error::other("no response in time"));
                }
                Err(error) => return Err(error),
            };
            response.extend_from_slice(&piece[..count]);
            if response.len() > RESPONSE_BYTES_MAX {
                return Err(io::Error::other("the response is too large"));
            }
            if Instant::now() > deadline {
                return Err(io::Error::other("no response in time"));
            }
        }
    }
}

/// As it is shown: without the password.
impl fmt::Display for ApiUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.at {
            Place::Address(host) => write!(f, "http://{host}{}", self.target),
            Place::Socket(path) => write!(f, "unix:{path}:{}", self.target),
        }
    }
}

fn connect(host: &str, time_max: Duration) -> io::Result<TcpStream> {
    let mut failed = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
    for address in host.to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, time_max) {
            Ok(stream) => return Ok(stream),
            Err(error) => failed = error,
        }
    }
    Err(failed)
}

/// A part of a URL without its escapes.
fn decoded(text: &str) -> Vec<u8> {
    let mut bytes = text.as_bytes().iter();
    let mut out = Vec::with_capacity(text.len());
    while let Some(&byte) = bytes.next() {
        let rest = bytes.as_slice();
        let code = rest.get(..2).filter(|_| byte == b'%');
        let code = code.and_then(|digits| std::str::from_utf8(digits).ok());
        match code.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(code) => {
                out.push(code);
                bytes.nth(1);
            }
            None => out.push(byte),
        }
    }
    out
}

/// The status and the body of a response.
fn parse(mut response: Vec<u8>) -> Option<ApiPage> {
    let end = response.windows(4).position(|four| four == b"\r\n\r\n")?;
    let head = std::str::from_utf8(&response[..end]).ok()?;
    let status = head.strip_prefix("HTTP/1.")?.get(2..5)?.parse().ok()?;
    let body = response.split_off(end + 4);
    Some(ApiPage { status, body })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls() {
        let parts = |url: &str| {
            let url = ApiUrl::parse(url, "/status/").map_err(|_| ())?;
            Ok::<_, ()>((url.to_string(), url.credentials))
        };
        let plain = |text: &str| Ok((text.to_owned(), None));
        assert_eq!(parts("http://localhost"), plain("http://localhost:80/status/"));
        assert_eq!(parts("http://[::1]:81/a/"), plain("http://[::1]:81/a/"));
        assert_eq!(parts("unix:/run/a.sock"), plain("unix:/run/a.sock:/status/"));
        assert_eq!(parts("unix:/run/a.sock:/b/"), plain("unix:/run/a.sock:/b/"));
        let (shown, credentials) = parts("http://a:b%40c@host/").unwrap();
        assert_eq!(shown, "http://host:80/");
        assert_eq!(credentials.as_deref(), Some("Basic YTpiQGM="));
        for wrong in [
            "https://a/",
            "a",
            "http://",
            "http://u@/",
            "http://a/ b",
            "http://a/\r\nX: y",
            "unix:",
            "unix::/a",
        ] {
            assert!(parts(wrong).is_err(), "{wrong}");
        }
        assert_eq!(decoded("%zz%4"), b"%zz%4");
        let shown = |url: &str| url.parse::<ApiUrl>().map(|url| url.to_string());
        assert_eq!(shown("unix:/run/a.sock").unwrap(), "unix:/run/a.sock:/");
        assert_eq!(shown("http://[::1]").unwrap(), "http://[::1]:80/");
        for url in ["http://a/?b", "http://a/b#c", "unix:/run/a.sock:/?b"] {
            assert!(shown(url).unwrap_err().contains("arguments"), "{url}");
        }
    }

    #[test]
    fn responses() {
        let page = parse(b"HTTP/1.1 200 OK\r\nA: b\r\n\r\n{}".to_vec()).unwrap();
        assert_eq!((page.status, &page.body[..]), (200, &b"{}"[..]));
        for bad in [&b""[..], b"HTTP/1.1 200 OK", b"x\r\n\r\n", b"HTTP/1.1 2\r\n\r\n"] {
            assert!(parse(bad.to_vec()).is_none());
        }
    }
}
