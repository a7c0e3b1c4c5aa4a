//! One request, read with patience: what a response looks like, before the load generator
//! recognises it by its length alone.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use crate::load::Expect;

const TIMEOUT: Duration = Duration::from_secs(30);
const HEAD_BYTES_MAX: usize = 16 * 1024;

/// The header line that ends the connection after the response.
pub const CLOSE: &str = "Connection: close\r\n";

/// The text of a minimal request.
pub fn request(uri: &str, close: bool) -> Vec<u8> {
    request_with(uri, if close { CLOSE } else { "" })
}

/// A request with these header lines.
pub fn request_with(uri: &str, headers: &str) -> Vec<u8> {
    format!("GET {uri} HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n").into_bytes()
}

/// Sends one request on a new connection and reads the response to its end, which must be a 200
/// with a Content-Length or in chunks; the body of the latter is what was sent, frames included.
pub fn fetch(target: SocketAddr, request: &[u8]) -> Result<Expect, String> {
    exchange(target, request).map_err(|what| {
        let line = String::from_utf8_lossy(request);
        format!("{}: {what}", line.lines().next().unwrap_or_default())
    })
}

fn exchange(target: SocketAddr, request: &[u8]) -> Result<Expect, String> {
    let text = |error: std::io::Error| error.to_string();
    let mut stream = TcpStream::connect_timeout(&target, TIMEOUT).map_err(text)?;
    stream.set_read_timeout(Some(TIMEOUT)).map_err(text)?;
    stream.write_all(request).map_err(text)?;

    let mut head = Vec::new();
    let mut chunk = [0; 4096];
    let head_bytes = loop {
        if let Some(at) = head.windows(4).position(|window| window == b"\r\n\r\n") {
            break at + 4;
        }
        let read = stream.read(&mut chunk).map_err(text)?;
        if read == 0 || head.len() > HEAD_BYTES_MAX {
            return Err("no response head".to_owned());
        }
        head.extend_from_slice(&chunk[..read]);
    };
    let mut body = head.split_off(head_bytes);
    if is_chunked(&head) {
        while !body.ends_with(LAST_CHUNK) {
            let read = stream.read(&mut chunk).map_err(text)?;
            if read == 0 {
                return Err(format!("the body ended after {} bytes", body.len()));
            }
            body.extend_from_slice(&chunk[..read]);
        }
        return Ok(Expect { head: Arc::from(head), body: Arc::from(body) });
    }
    let length = content_length(&head)?;
    body.reserve_exact(length.saturating_sub(body.len()));
    while body.len() < length {
        let missing = (length - body.len()) as u64;
        let read = (&mut stream).take(missing).read_to_end(&mut body).map_err(text)?;
        if read == 0 {
            return Err(format!("the body ended after {} of {length} bytes", body.len()));
        }
    }
    if body.len() > length {
        return Err(format!("{} bytes after the body", body.len() - length));
    }
    Ok(Expect { head: Arc::from(head), body: Arc::from(body) })
}

/// What ends a body in chunks.
const LAST_CHUNK: &[u8] = b"\r\n0\r\n\r\n";

/// Whether a successful response comes in chunks.
fn is_chunked(head: &[u8]) -> bool {
    let head = String::from_utf8_lossy(head).to_ascii_lowercase();
    head.starts_with("http/1.1 200") && head.contains("\r\ntransfer-encoding: chunked\r\n")
}

/// The content of a response, without the frames of chunks.
pub fn content(response: &Expect) -> Option<Vec<u8>> {
    if !is_chunked(&response.head) {
        return Some(response.body.to_vec());
    }
    let (mut rest, mut content) = (&response.body[..], Vec::new());
    loop {
        let end = rest.windows(2).position(|pair| pair == b"\r\n")?;
        let size = usize::from_str_radix(std::str::from_utf8(&rest[..end]).ok()?, 16).ok()?;
        let data = rest.get(end + 2..)?;
        if size == 0 {
            return Some(content);
        }
        content.extend_from_slice(data.get(..size)?);
        rest = data.get(size + 2..)?;
    }
}

/// The Content-Length of a successful response.
fn content_length(head: &[u8]) -> Result<usize, String> {
    let head = String::from_utf8_lossy(head);
    let mut lines = head.lines();
    let status = lines.next().unwrap_or_default();
    if !status.starts_with("HTTP/1.1 200") {
        return Err(status.to_owned());
    }
    lines
        .filter_map(|line| line.split_once(':'))
        .find(|(name, _)| name.eq_ignore_ascii_case("content-length"))
        .and_then(|(_, value)| value.trim().parse().ok())
        .ok_or_else(|| "no Content-Length".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_are_put_together() {
        let head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
        let body = b"3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n";
        let response = Expect { head: Arc::from(&head[..]), body: Arc::from(&body[..]) };
        assert_eq!(content(&response).as_deref(), Some(&b"abcde"[..]));
    }

    #[test]
    fn heads_are_judged() {
        assert_eq!(content_length(b"HTTP/1.1 200 OK\r\ncontent-length: 12\r\n\r\n"), Ok(12));
        assert!(content_length(b"HTTP/1.1 404 Not Found\r\nContent-Length: 1\r\n\r\n").is_err());
        assert!(content_length(b"HTTP/1.1 200 OK\r\n\r\n").is_err());
    }
}
