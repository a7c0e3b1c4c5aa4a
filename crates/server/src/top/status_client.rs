//! Fetches the report of `status_api` over HTTP/1.1, from an address or a Unix socket.
//!
//! The standard library's sockets suffice: one request per report, with a time limit. Called by [`super`]; never
//! follows redirects.

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::str::FromStr;
use std::time::{Duration, Instant};

use data_encoding::BASE64;
use serde_json::Value;

/// Time for a report.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Largest response, in bytes: thousands of zones.
const RESPONSE_BYTES_MAX: u64 = 64 << 20;

/// Shown with errors of a server that has no status.
const ENABLE: &str =
    "add to its configuration: server { listen 127.0.0.1:9145; location /status/ { status_api; } }";

/// A location with `status_api`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatusUrl {
    at: Place,
    target: String,
    /// The value of `Authorization`.
    credentials: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Place {
    /// `127.0.0.1:9145`
    Address(String),
    /// The path of a Unix socket.
    Socket(String),
}

impl FromStr for StatusUrl {
    type Err = String;

    fn from_str(url: &str) -> Result<StatusUrl, String> {
        if url.bytes().any(|byte| byte <= b' ' || byte == 0x7f) {
            return Err("the URL contains a space or a control character".to_owned());
        }
        if let Some(rest) = url.strip_prefix("unix:") {
            let (socket, target) = rest.split_once(":/").unwrap_or((rest, "status/"));
            if socket.is_empty() {
                return Err("the URL names no socket: unix:PATH:/status/".to_owned());
            }
            let at = Place::Socket(socket.to_owned());
            return Ok(StatusUrl { at, target: format!("/{target}"), credentials: None });
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
            None => (rest, "/status/"),
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
        Ok(StatusUrl { at: Place::Address(host), target: target.to_owned(), credentials })
    }
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

impl StatusUrl {
    /// As it is shown: without the password.
    pub fn shown(&self) -> String {
        match &self.at {
            Place::Address(host) => format!("http://{host}{}", self.target),
            Place::Socket(path) => format!("unix:{path}:{}", self.target),
        }
    }

    /// A report.
    ///
    /// # Errors
    /// The text for the user: what is wrong, and how a status is enabled.
    pub fn fetch(&self) -> Result<Value, String> {
        let url = self.shown();
        let response = self.response().map_err(|error| match error.kind() {
            io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound => {
                format!("{url}: no server listens there ({error})\n{ENABLE}")
            }
            _ => format!("{url}: {error}"),
        })?;
        let (status, body) =
            split(&response).ok_or_else(|| format!("{url}: the response is not HTTP"))?;
        let text = match status {
            200 => {
                std::str::from_utf8(&body).map_err(|_| format!("{url}: the response is no text"))?
            }
            401 => {
                return Err(format!(
                    "{url}: a password is needed: http://USER:PASSWORD@HOST/PATH/"
                ));
            }
            403 => return Err(format!("{url}: access is denied; allow this address there")),
            404 => return Err(format!("{url}: there is no such page (404)\n{ENABLE}")),
            301..=308 => {
                return Err(format!("{url}: the server redirects ({status}); name the final URL"));
            }
            status => return Err(format!("{url}: the server responds with {status}")),
        };
        let report: Value = serde_json::from_str(text)
            .map_err(|_| format!("{url}: that page is not the one of status_api\n{ENABLE}"))?;
        match report["thread_pools"].is_array() {
            true => Ok(report),
            false => Err(format!(
                "{url}: that is only a part of a status, or another program's\n{ENABLE}"
            )),
        }
    }

    fn response(&self) -> io::Result<Vec<u8>> {
        let deadline = Instant::now() + TIMEOUT;
        match &self.at {
            Place::Address(host) => {
                let mut failed = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
                for address in host.to_socket_addrs()? {
                    match TcpStream::connect_timeout(&address, TIMEOUT) {
                        Ok(stream) => {
                            stream.set_read_timeout(Some(TIMEOUT))?;
                            stream.set_write_timeout(Some(TIMEOUT))?;
                            return self.exchange(stream, host, deadline);
                        }
                        Err(error) => failed = error,
                    }
                }
                Err(failed)
            }
            Place::Socket(path) => {
                let stream = UnixStream::connect(path)?;
                stream.set_read_timeout(Some(TIMEOUT))?;
                stream.set_write_timeout(Some(TIMEOUT))?;
                self.exchange(stream, "localhost", deadline)
            }
        }
    }

    fn exchange(
        &self,
        mut stream: impl Read + Write,
        host: &str,
        deadline: Instant,
    ) -> io::Result<Vec<u8>> {
        let credentials = self.credentials.as_ref();
        let credentials =
            credentials.map_or_else(String::new, |value| format!("Authorization: {value}\r\n"));
        // HTTP/1.0: the body ends with the connection.
        let request = format!(
            "GET {} HTTP/1.0\r\nHost: {host}\r\nUser-Agent: nowait-top\r\nAccept: application/json\r\n\
             {credentials}Connection: close\r\n\r\n",
            self.target
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
            if response.len() as u64 > RESPONSE_BYTES_MAX {
                return Err(io::Error::other("the response is too large"));
            }
            if Instant::now() > deadline {
                return Err(io::Error::other("no response in time"));
            }
        }
    }
}

/// The status and the body of a response.
fn split(response: &[u8]) -> Option<(u16, Vec<u8>)> {
    let end = response.windows(4).position(|four| four == b"\r\n\r\n")?;
    let (head, body) = (std::str::from_utf8(&response[..end]).ok()?, &response[end + 4..]);
    let status = head.strip_prefix("HTTP/1.")?.get(2..5)?.parse().ok()?;
    Some((status, body.to_vec()))
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn urls() {
        let parts = |url: &str| {
            url.parse::<StatusUrl>().map(|url| (url.shown(), url.credentials)).map_err(|_| ())
        };
        let plain = |text: &str| Ok((text.to_owned(), None));
        assert_eq!(parts("http://localhost"), plain("http://localhost:80/status/"));
        assert_eq!(parts("http://[::1]:81/a/"), plain("http://[::1]:81/a/"));
        assert_eq!(parts("unix:/run/a.sock"), plain("unix:/run/a.sock:/status/"));
        assert_eq!(parts("unix:/run/a.sock:/b/"), plain("unix:/run/a.sock:/b/"));
        let (shown, credentials) = parts("http://a:b%40c@host/").unwrap();
        assert_eq!(shown, "http://host:80/");
        assert_eq!(credentials.as_deref(), Some("Basic YTpiQGM="));
        for wrong in
            ["https://a/", "a", "http://", "http://a/ b", "http://a/\r\nX: y", "unix:", "unix::/a"]
        {
            assert!(parts(wrong).is_err(), "{wrong}");
        }
        assert_eq!(decoded("%zz%4"), b"%zz%4");
    }

    #[test]
    fn errors_say_what_to_do() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url: StatusUrl =
            format!("http://{}/status/", listener.local_addr().unwrap()).parse().unwrap();
        let cases = [
            ("HTTP/1.1 404 Not Found\r\n\r\n", "status_api"),
            ("HTTP/1.1 401 x\r\n\r\n", "USER:PASSWORD"),
            ("HTTP/1.1 403 x\r\n\r\n", "denied"),
            ("HTTP/1.1 301 x\r\n\r\n", "redirects"),
            ("HTTP/1.1 500 x\r\n\r\n", "responds with 500"),
            ("HTTP/1.1 200 OK\r\n\r\n<html>", "not the one of status_api"),
            ("HTTP/1.1 200 OK\r\n\r\n{}", "only a part"),
            ("HTTP/1.1 200 OK\r\n\r\n\u{0}", "status_api"),
            ("SSH-2.0-x\r\n\r\n", "not HTTP"),
        ];
        let server = std::thread::spawn(move || {
            for (response, _) in cases {
                let (mut stream, _) = listener.accept().unwrap();
                let mut request = [0; 1024];
                let count = stream.read(&mut request).unwrap();
                assert!(request[..count].starts_with(b"GET /status/ HTTP/1.0\r\n"));
                stream.write_all(response.as_bytes()).unwrap();
            }
        });
        for (response, expected) in cases {
            let error = url.fetch().unwrap_err();
            assert!(error.contains(expected), "{response}: {error}");
        }
        server.join().unwrap();
        // Nobody listens any more.
        let error = url.fetch().unwrap_err();
        assert!(
            error.contains("no server listens there") && error.contains("status_api;"),
            "{error}"
        );
    }
}
