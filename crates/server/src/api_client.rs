//! Requests a page from a server's monitoring, for `nowait log` and `nowait connections`: HTTP without TLS, over TCP.
//!
//! Uses the standard library's sockets: no server runs in this process.

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::str::FromStr;
use std::time::Duration;

use data_encoding::BASE64;

/// Longest pause of the server.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Longest response, bytes.
const RESPONSE_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// Where a page is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiUrl {
    /// `127.0.0.1:8080`
    authority: String,
    /// `/requests`
    path: String,
    /// The value of `Authorization`.
    credentials: Option<String>,
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
        let rest = url.strip_prefix("http://").ok_or("the URL has to begin with http://")?;
        if url.bytes().any(|byte| byte <= b' ' || byte == 0x7f) {
            return Err("the URL contains a space or a control character".to_owned());
        }
        if rest.contains(['?', '#']) {
            return Err("the URL has arguments: name the location alone".to_owned());
        }
        let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let (credentials, host) = match authority.rsplit_once('@') {
            Some((user, host)) => (Some(format!("Basic {}", BASE64.encode(user.as_bytes()))), host),
            None => (None, authority),
        };
        if host.is_empty() {
            return Err("the URL names no host".to_owned());
        }
        let has_port = host.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
        let authority = if has_port { host.to_owned() } else { format!("{host}:80") };
        let path = if path.is_empty() { "/" } else { path }.to_owned();
        Ok(ApiUrl { authority, path, credentials })
    }
}

impl ApiUrl {
    /// Requests the page with these arguments.
    ///
    /// # Errors
    /// There was no response.
    pub fn get(&self, arguments: &[(&str, &str)]) -> io::Result<ApiPage> {
        let mut stream = self.connect()?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        stream.set_write_timeout(Some(TIMEOUT))?;
        let mut target = self.path.clone();
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
        let authorization = self.credentials.as_ref();
        let authorization =
            authorization.map_or_else(String::new, |value| format!("Authorization: {value}\r\n"));
        // HTTP/1.0: the response ends with the connection, and has no chunks.
        let request = format!(
            "GET {target} HTTP/1.0\r\nHost: {}\r\nUser-Agent: nowait\r\n{authorization}\r\n",
            self.authority
        );
        stream.write_all(request.as_bytes())?;
        let mut response = Vec::new();
        stream.take(RESPONSE_BYTES_MAX).read_to_end(&mut response)?;
        parse(response).ok_or_else(|| io::Error::other("the response is not HTTP"))
    }

    fn connect(&self) -> io::Result<TcpStream> {
        let mut failed = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
        for address in self.authority.to_socket_addrs()? {
            match TcpStream::connect_timeout(&address, TIMEOUT) {
                Ok(stream) => return Ok(stream),
                Err(error) => failed = error,
            }
        }
        Err(failed)
    }
}

impl std::fmt::Display for ApiUrl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "http://{}{}", self.authority, self.path)
    }
}

fn parse(mut response: Vec<u8>) -> Option<ApiPage> {
    let end = response.windows(4).position(|four| four == b"\r\n\r\n")?;
    let rest = response.strip_prefix(b"HTTP/1.")?.get(1..)?.strip_prefix(b" ")?;
    let status = std::str::from_utf8(rest.get(..3)?).ok()?.parse().ok()?;
    let body = response.split_off(end + 4);
    Some(ApiPage { status, body })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls() {
        let url: ApiUrl = "http://me:secret@localhost/requests".parse().unwrap();
        assert_eq!((&*url.authority, &*url.path), ("localhost:80", "/requests"));
        assert_eq!(url.credentials.as_deref(), Some("Basic bWU6c2VjcmV0"));
        let url: ApiUrl = "http://[::1]:81".parse().unwrap();
        assert_eq!((&*url.authority, &*url.path, &url.credentials), ("[::1]:81", "/", &None));
        for wrong in ["https://a/", "a", "http://", "http://u@/", "http://a/ b", "http://a/?b"] {
            assert!(wrong.parse::<ApiUrl>().is_err(), "{wrong}");
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
