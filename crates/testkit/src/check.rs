//! The one-line black-box test: configuration, exchange, expected outcome.
//!
//! ```text
//! check(
//!     binary,
//!     "server { listen 127.0.0.1:%%PORT%%; location / { return 200 OK; } }",
//!     "GET / HTTP/1.1
//!      Host: a",
//!     "200 OK
//!      Content-Length: 2
//!      !Location
//!
//!      OK",
//! );
//! ```
//!
//! Both texts may be indented; the indentation of the first line or the smallest of the others is
//! removed. Several requests (sent at once, hence pipelined) and their responses are separated by a
//! line `---`. In a request, lines up to the first empty one are the head and end in CRLF; the rest
//! is the body, unchanged except for the last newline. In an expected response, the status line may
//! be a prefix (`200`, `200 OK`, `HTTP/1.1 200`), `Name: value` must be among the headers, `!Name`
//! must not; a body is compared if there is an empty line. `*` in a value or body matches anything.
//! The last line `closed` (after `---`) means that the server closes the connection.

use crate::client::Client;
use crate::response::Response;
use crate::server::{Binary, Server};

/// Starts a server with `http` as the contents of its `http` block, performs one exchange on one
/// connection, and stops it.
///
/// # Panics
/// If the outcome differs from the expected one, showing both.
#[track_caller]
pub fn check(binary: Binary, http: &str, exchange: &str, expected: &str) {
    let server = Server::of(binary).http(http).start();
    check_on(&server, exchange, expected);
    server.stop();
}

/// Like [`check`] on a running server.
///
/// # Panics
/// If the outcome differs from the expected one, showing both.
#[track_caller]
pub fn check_on(server: &Server, exchange: &str, expected: &str) {
    check_with(&mut server.client(), exchange, expected);
}

/// Like [`check`] on an open connection.
///
/// # Panics
/// If the outcome differs from the expected one, showing both.
#[track_caller]
pub fn check_with(client: &mut Client, exchange: &str, expected: &str) {
    let requests: Vec<String> = sections(exchange).iter().map(|s| wire(s)).collect();
    client.send(requests.concat());
    for (n, section) in sections(expected).iter().enumerate() {
        if section.trim() == "closed" {
            client.expect_closed();
            continue;
        }
        let to_head = requests.get(n).is_some_and(|r| r.starts_with("HEAD "));
        let response = match client.try_response(to_head) {
            Ok(response) => response,
            Err(why) => panic!("response {n}: {why}\n--- expected\n{section}"),
        };
        if let Err(why) = compare(&response, section) {
            panic!("response {n}: {why}\n--- expected\n{section}\n--- got\n{response}");
        }
    }
}

/// The sections between `---` lines, without their common indentation.
fn sections(text: &str) -> Vec<String> {
    let text = dedent(text);
    let mut all = vec![String::new()];
    for line in text.lines() {
        if line.trim_end() == "---" {
            all.push(String::new());
        } else if let Some(last) = all.last_mut() {
            last.push_str(line);
            last.push('\n');
        }
    }
    all
}

fn dedent(text: &str) -> String {
    let text = text.strip_prefix('\n').unwrap_or(text);
    let indent = |line: &str| line.len() - line.trim_start_matches(' ').len();
    let filled = |line: &&str| !line.trim().is_empty();
    // A first line that begins right after the quote has no indentation.
    let skip = usize::from(text.lines().next().is_some_and(|line| indent(line) == 0));
    let common = text.lines().skip(skip).filter(filled).map(indent).min().unwrap_or(0);
    let mut all = String::new();
    for (n, line) in text.lines().enumerate() {
        let cut = if n < skip { 0 } else { common.min(line.len()) };
        all.push_str(line.get(cut..).unwrap_or_default());
        all.push('\n');
    }
    all
}

/// A request in wire format.
fn wire(section: &str) -> String {
    let (head, body) = section.split_once("\n\n").unwrap_or((section.trim_end(), ""));
    let body = body.strip_suffix('\n').unwrap_or(body);
    format!("{}\r\n\r\n{body}", head.trim_end().replace('\n', "\r\n"))
}

fn compare(response: &Response, expected: &str) -> Result<(), String> {
    let (head, body) = match expected.split_once("\n\n") {
        Some((head, body)) => (head, Some(body.strip_suffix('\n').unwrap_or(body))),
        None => (expected.trim_end(), None),
    };
    let mut lines = head.lines();
    let status = lines.next().unwrap_or_default().trim();
    let got = format!("{} {} {}", response.version, response.status, response.reason);
    let short = format!("{} {}", response.status, response.reason);
    if !got.starts_with(status) && !short.starts_with(status) {
        return Err(format!("status {got:?} instead of {status:?}"));
    }
    for line in lines {
        compare_header(response, line.trim())?;
    }
    match body {
        Some(body) if !glob(body.as_bytes(), &response.body) => Err("body differs".to_owned()),
        _ => Ok(()),
    }
}

fn compare_header(response: &Response, line: &str) -> Result<(), String> {
    if let Some(name) = line.strip_prefix('!') {
        return match response.header(name) {
            Some(value) => Err(format!("unexpected header {name}: {value}")),
            None => Ok(()),
        };
    }
    let Some((name, value)) = line.split_once(':') else {
        return Err(format!("the test's own line {line:?} is no header"));
    };
    let value = value.trim();
    if response.all(name).any(|got| glob(value.as_bytes(), got.as_bytes())) {
        return Ok(());
    }
    let got: Vec<_> = response.all(name).collect();
    Err(format!("header {name}: {got:?} instead of {value:?}"))
}

/// Whether `text` matches `pattern`, in which `*` stands for any bytes.
fn glob(pattern: &[u8], text: &[u8]) -> bool {
    let mut parts = pattern.split(|&byte| byte == b'*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = text.strip_prefix(first) else {
        return false;
    };
    let mut parts = parts.peekable();
    if parts.peek().is_none() {
        return rest.is_empty();
    }
    while let Some(part) = parts.next() {
        if parts.peek().is_none() {
            return rest.ends_with(part);
        }
        match crate::response::find_or_start(rest, part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    fn response() -> Response {
        Response {
            version: "HTTP/1.1".to_owned(),
            status: 404,
            reason: "Not Found".to_owned(),
            headers: vec![("ETag".to_owned(), "\"abc-1\"".to_owned())],
            body: b"one\ntwo".to_vec(),
            trailers: Vec::new(),
        }
    }

    #[test]
    fn compares_status_headers_and_body() {
        for good in [
            "404\n",
            "HTTP/1.1 404\n",
            "404 Not Found\netag: \"abc-1\"\n!Location\n",
            "404\nETag: \"*-1\"\n\none\ntwo\n",
            "404\n\n*two\n",
        ] {
            assert_eq!(compare(&response(), good), Ok(()), "{good:?}");
        }
        for bad in ["200\n", "404\n!ETag\n", "404\nETag: x\n", "404\n\none\n", "404\n\n*three\n"] {
            assert!(compare(&response(), bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn writes_requests_as_they_go_over_the_wire() {
        let text = "GET / HTTP/1.1
                    Host: a
                    ---
                    POST / HTTP/1.1
                    Content-Length: 3

                    a
                    b";
        let wires: Vec<_> = sections(text).iter().map(|s| wire(s)).collect();
        assert_eq!(wires[0], "GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!(wires[1], "POST / HTTP/1.1\r\nContent-Length: 3\r\n\r\na\nb");
    }

    #[test]
    fn globs() {
        for (pattern, text, yes) in [
            ("", "", true),
            ("a", "a", true),
            ("a", "ab", false),
            ("*", "", true),
            ("a*c", "abbc", true),
            ("a*c", "abcd", false),
            ("*b*d", "abcd", true),
            ("*b*b", "ab", false),
            ("**", "x", true),
        ] {
            assert_eq!(glob(pattern.as_bytes(), text.as_bytes()), yes, "{pattern} {text}");
        }
    }
}
