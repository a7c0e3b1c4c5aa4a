//! An HTTP/1.x response as seen by a test, and the parser that extracts it from a byte stream.
//!
//! Strict where a server under test could be wrong (RFC 9112): a malformed status line, header or
//! chunk is an error, never repaired by guessing.

use std::fmt;

/// Maximum accepted size of a head.
const HEAD_BYTES_MAX: usize = 1 << 20;

/// One complete response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Response {
    /// `HTTP/1.1` or `HTTP/1.0`.
    pub version: String,
    pub status: u16,
    pub reason: String,
    /// In order, names as sent.
    pub headers: Vec<(String, String)>,
    /// With chunked framing removed.
    pub body: Vec<u8>,
    /// Trailer fields of a chunked body.
    pub trailers: Vec<(String, String)>,
}

impl Response {
    /// The first value of a header field; the name is case-insensitive.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .iter()
            .find(|(n, _)| n.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.as_str())
    }

    /// All values of a header field.
    pub fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.headers
            .iter()
            .filter(move |(n, _)| n.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.as_str())
    }

    /// The body as text, with invalid UTF-8 replaced.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

impl fmt::Display for Response {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} {} {}", self.version, self.status, self.reason)?;
        for (name, value) in &self.headers {
            writeln!(f, "{name}: {value}")?;
        }
        let shown = self.body.len().min(2000);
        write!(f, "\n{}", String::from_utf8_lossy(&self.body[..shown]))?;
        if shown < self.body.len() {
            write!(f, "… ({} bytes)", self.body.len())?;
        }
        Ok(())
    }
}

/// Why bytes are not a valid response. Always the server's fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Malformed(pub String);

/// How the end of the body is determined (RFC 9112, 6.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// No body follows: response to HEAD, 1xx, 204, 304.
    None,
    Length(usize),
    Chunked,
    /// Until the server closes.
    Close,
}

/// Head of a response and where its body starts in the buffer.
#[derive(Debug)]
pub struct Head {
    pub response: Response,
    pub framing: Framing,
    pub length: usize,
}

/// Parses a head from the start of `bytes`; `None` while it is incomplete.
///
/// # Errors
/// A description of what is malformed.
pub fn parse_head(bytes: &[u8], to_head_request: bool) -> Result<Option<Head>, Malformed> {
    let Some(end) = find(bytes, b"\r\n\r\n") else {
        if bytes.len() > HEAD_BYTES_MAX {
            return Err(Malformed(format!("no end of head in {HEAD_BYTES_MAX} bytes")));
        }
        return Ok(None);
    };
    let text = std::str::from_utf8(&bytes[..end])
        .map_err(|_| Malformed("head is not UTF-8".to_owned()))?;
    let mut lines = text.split("\r\n");
    let status_line = lines.next().unwrap_or_default();
    let mut words = status_line.splitn(3, ' ');
    let version = words.next().unwrap_or_default();
    let status = words.next().unwrap_or_default();
    let bad_status_line = || Malformed(format!("status line {status_line:?}"));
    if !matches!(version, "HTTP/1.1" | "HTTP/1.0") || status.len() != 3 {
        return Err(bad_status_line());
    }
    let status: u16 = status.parse().map_err(|_| bad_status_line())?;
    let response = Response {
        version: version.to_owned(),
        status,
        reason: words.next().unwrap_or_default().to_owned(),
        headers: parse_fields(lines)?,
        body: Vec::new(),
        trailers: Vec::new(),
    };
    let framing = framing(&response, to_head_request)?;
    Ok(Some(Head { response, framing, length: end + 4 }))
}

fn parse_fields<'a>(
    lines: impl Iterator<Item = &'a str>,
) -> Result<Vec<(String, String)>, Malformed> {
    lines
        .map(|line| {
            let (name, value) = line
                .split_once(':')
                .filter(|(name, _)| !name.is_empty() && !name.contains([' ', '\t']))
                .ok_or_else(|| Malformed(format!("header line {line:?}")))?;
            if value.contains(['\r', '\n', '\0']) {
                return Err(Malformed(format!("control byte in header line {line:?}")));
            }
            Ok((name.to_owned(), value.trim().to_owned()))
        })
        .collect()
}

fn framing(response: &Response, to_head_request: bool) -> Result<Framing, Malformed> {
    let codings: Vec<_> = response.all("transfer-encoding").collect();
    let lengths: Vec<_> = response.all("content-length").collect();
    if !codings.is_empty() && !lengths.is_empty() {
        // RFC 9112, 6.2: "A sender MUST NOT send a Content-Length header field in any message
        // that contains a Transfer-Encoding header field."
        return Err(Malformed("both Content-Length and Transfer-Encoding".to_owned()));
    }
    if lengths.len() > 1 || codings.len() > 1 {
        return Err(Malformed("repeated framing header".to_owned()));
    }
    let bodyless = matches!(response.status, 100..=199 | 204 | 304);
    if to_head_request || bodyless {
        return Ok(Framing::None);
    }
    match (codings.first(), lengths.first()) {
        (Some(&"chunked"), _) => Ok(Framing::Chunked),
        (Some(coding), _) => Err(Malformed(format!("transfer coding {coding:?}"))),
        (None, Some(length)) => length
            .parse()
            .map(Framing::Length)
            .map_err(|_| Malformed(format!("Content-Length {length:?}"))),
        (None, None) => Ok(Framing::Close),
    }
}

/// A decoded chunked body.
#[derive(Debug, PartialEq, Eq)]
pub struct Chunked {
    pub body: Vec<u8>,
    pub trailers: Vec<(String, String)>,
    /// Number of bytes it takes in the stream.
    pub length: usize,
}

/// Decodes a chunked body from the start of `bytes`; `None` while it is incomplete.
///
/// # Errors
/// A description of what is malformed.
pub fn parse_chunked(bytes: &[u8]) -> Result<Option<Chunked>, Malformed> {
    let mut body = Vec::new();
    let mut at = 0;
    loop {
        let Some(line_length) = find(&bytes[at..], b"\r\n") else {
            return Ok(None);
        };
        let line = String::from_utf8_lossy(&bytes[at..at + line_length]).into_owned();
        let digits = line.split(';').next().unwrap_or_default().trim_end();
        let size = usize::from_str_radix(digits, 16)
            .map_err(|_| Malformed(format!("chunk size line {line:?}")))?;
        at += line_length + 2;
        if size == 0 {
            return parse_trailers(bytes, at, body);
        }
        let Some(data) = bytes.get(at..at + size + 2) else {
            return Ok(None);
        };
        if &data[size..] != b"\r\n" {
            return Err(Malformed(format!("chunk of {size} bytes is not ended by CRLF")));
        }
        body.extend_from_slice(&data[..size]);
        at += size + 2;
    }
}

fn parse_trailers(bytes: &[u8], at: usize, body: Vec<u8>) -> Result<Option<Chunked>, Malformed> {
    if bytes[at..].starts_with(b"\r\n") {
        return Ok(Some(Chunked { body, trailers: Vec::new(), length: at + 2 }));
    }
    let Some(end) = find(&bytes[at..], b"\r\n\r\n") else {
        return Ok(None);
    };
    let text = String::from_utf8_lossy(&bytes[at..at + end]).into_owned();
    Ok(Some(Chunked { body, trailers: parse_fields(text.split("\r\n"))?, length: at + end + 4 }))
}

/// Position of the first `needle` in `haystack`.
pub(crate) fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    haystack.windows(needle.len()).position(|window| window == needle)
}

/// Like [`find`]; an empty `needle` is found at the start.
pub(crate) fn find_or_start(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    if needle.is_empty() {
        return Some(0);
    }
    find(haystack, needle)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(text: &str) -> Result<Option<Head>, Malformed> {
        parse_head(text.as_bytes(), false)
    }

    #[test]
    fn reads_a_head_and_its_framing() {
        let cases = [
            ("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", Framing::Length(5)),
            ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", Framing::Chunked),
            ("HTTP/1.0 200 OK\r\n\r\n", Framing::Close),
            ("HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n", Framing::None),
            ("HTTP/1.1 100 Continue\r\n\r\n", Framing::None),
        ];
        for (text, framing) in cases {
            let head = head(text).unwrap().unwrap();
            assert_eq!(head.framing, framing, "{text:?}");
            assert_eq!(head.length, text.len());
        }
    }

    #[test]
    fn refuses_what_no_server_may_send() {
        for text in [
            "HTTP/2 200 OK\r\n\r\n",
            "HTTP/1.1 20 OK\r\n\r\n",
            "HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
            "HTTP/1.1 200 OK\r\nA : b\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n",
        ] {
            assert!(head(text).is_err(), "{text:?}");
        }
        assert!(head("HTTP/1.1 200 OK\r\n").unwrap().is_none());
    }

    #[test]
    fn decodes_chunks_and_trailers() {
        let whole = b"3\r\nabc\r\n2;ext=1\r\nde\r\n0\r\nX: y\r\n\r\nrest";
        let chunked = parse_chunked(whole).unwrap().unwrap();
        assert_eq!(chunked.body, b"abcde");
        assert_eq!(chunked.trailers, [("X".to_owned(), "y".to_owned())]);
        assert_eq!(&whole[chunked.length..], b"rest");
        for cut in 0..chunked.length {
            assert_eq!(parse_chunked(&whole[..cut]), Ok(None), "cut at {cut}");
        }
        assert!(parse_chunked(b"3\r\nabcd\r\n").is_err());
        assert!(parse_chunked(b"g\r\n").is_err());
    }
}
