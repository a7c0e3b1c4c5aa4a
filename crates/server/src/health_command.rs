//! `nowait check-health URL`: requests a page from a server. For containers, whose images have no other
//! client.
//!
//! Called by `main`. Uses the standard library's sockets: no server runs in this process.

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::str::FromStr;
use std::time::{Duration, Instant};

/// Time for all of it.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Longest status line in bytes.
const LINE_BYTES_MAX: usize = 1024;

/// The page to request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HealthCommand {
    /// `127.0.0.1:8080`
    authority: String,
    /// `/`
    target: String,
    /// The lowest status that counts as a failure.
    failure: u16,
}

impl Default for HealthCommand {
    /// Whether the server answers at all: its front page may be missing, or for certain users only.
    fn default() -> HealthCommand {
        HealthCommand {
            authority: "127.0.0.1:8080".to_owned(),
            target: "/".to_owned(),
            failure: 500,
        }
    }
}

impl FromStr for HealthCommand {
    type Err = String;

    fn from_str(url: &str) -> Result<HealthCommand, String> {
        let rest = url.strip_prefix("http://").ok_or("the URL has to begin with http://")?;
        let (host, target) = match rest.find('/') {
            Some(at) => rest.split_at(at),
            None => (rest, "/"),
        };
        if url.bytes().any(|byte| byte <= b' ' || byte == 0x7f) {
            return Err("the URL contains a space or a control character".to_owned());
        }
        if host.is_empty() {
            return Err("the URL names no host".to_owned());
        }
        let has_port = host.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
        let authority = if has_port { host.to_owned() } else { format!("{host}:80") };
        Ok(HealthCommand { authority, target: target.to_owned(), failure: 400 })
    }
}

impl HealthCommand {
    /// Sends the request.
    ///
    /// # Errors
    /// There was no response in time, or an error.
    pub fn run(&self) -> Result<(), String> {
        let url = format!("http://{}{}", self.authority, self.target);
        match self.status() {
            Ok(status) if status < self.failure => Ok(()),
            Ok(status) => Err(format!("[error] {url} is answered with {status}")),
            Err(error) => Err(format!("[error] {url} is not answered: {error}")),
        }
    }

    fn status(&self) -> io::Result<u16> {
        let deadline = Instant::now() + TIMEOUT;
        let left = || {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() { Err(io::ErrorKind::TimedOut) } else { Ok(left) }
        };
        let mut stream = self.connect(TIMEOUT)?;
        let HealthCommand { authority, target, .. } = self;
        stream.set_write_timeout(Some(left()?))?;
        let request = format!(
            "GET {target} HTTP/1.1\r\nHost: {authority}\r\nUser-Agent: nowait-check-health\r\n\
             Connection: close\r\n\r\n"
        );
        stream.write_all(request.as_bytes())?;
        let mut line = Vec::new();
        while !line.contains(&b'\n') && line.len() < LINE_BYTES_MAX {
            stream.set_read_timeout(Some(left()?))?;
            let mut buffer = [0; 256];
            match stream.read(&mut buffer)? {
                0 => break,
                length => line.extend_from_slice(&buffer[..length]),
            }
        }
        status(&line).ok_or_else(|| io::Error::other("the response is not HTTP"))
    }

    fn connect(&self, timeout: Duration) -> io::Result<TcpStream> {
        let mut failed = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
        for address in self.authority.to_socket_addrs()? {
            match TcpStream::connect_timeout(&address, timeout) {
                Ok(stream) => return Ok(stream),
                Err(error) => failed = error,
            }
        }
        Err(failed)
    }
}

/// The status of a status line.
fn status(line: &[u8]) -> Option<u16> {
    let rest = line.strip_prefix(b"HTTP/1.")?.get(1..)?.strip_prefix(b" ")?;
    let digits = rest.get(..3)?;
    std::str::from_utf8(digits).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn urls() {
        let parts = |url: &str| {
            url.parse::<HealthCommand>()
                .map(|HealthCommand { authority, target, .. }| (authority, target))
        };
        let pair = |authority: &str, target: &str| Ok((authority.to_owned(), target.to_owned()));
        assert_eq!(parts("http://localhost"), pair("localhost:80", "/"));
        assert_eq!(parts("http://[::1]:81/a?b"), pair("[::1]:81", "/a?b"));
        for wrong in ["https://a/", "a", "http://", "http://a/ b", "http://a/\r\nX: y"] {
            assert!(parts(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_server_that_fails_is_unhealthy() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let server = std::thread::spawn(move || {
            for answer in [
                "HTTP/1.1 204 No Content\r\n\r\n",
                "HTTP/1.1 403 x\r\n\r\n",
                "HTTP/1.1 403 x\r\n\r\n",
                "HTTP/1.1 503 x\r\n\r\n",
                "x\n",
            ] {
                let (mut stream, _) = listener.accept().unwrap();
                let mut request = Vec::new();
                while !request.ends_with(b"\r\n\r\n") {
                    let mut byte = [0];
                    stream.read_exact(&mut byte).unwrap();
                    request.push(byte[0]);
                }
                stream.write_all(answer.as_bytes()).unwrap();
            }
        });
        let check: HealthCommand = format!("http://{address}/").parse().unwrap();
        assert_eq!(check.run(), Ok(()));
        assert!(check.run().unwrap_err().contains("is answered with 403"));
        // Without a URL, the page itself does not matter.
        let check = HealthCommand { authority: address.to_string(), ..HealthCommand::default() };
        assert_eq!(check.run(), Ok(()));
        assert!(check.run().unwrap_err().contains("is answered with 503"));
        assert!(check.run().unwrap_err().contains("is not HTTP"));
        server.join().unwrap();
        assert!(check.run().unwrap_err().contains("is not answered"));
    }
}
