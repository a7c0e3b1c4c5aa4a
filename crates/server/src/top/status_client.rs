//! Fetches the report of `status_api`, and says what to do if there is none. Called by [`super`].

use std::fmt;
use std::io;
use std::str::FromStr;
use std::time::Duration;

use serde_json::Value;

use crate::api_client::ApiUrl;

/// Time for a report.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Shown with errors of a server that has no status.
const ENABLE: &str =
    "add to its configuration: server { listen 127.0.0.1:9145; location /status/ { status_api; } }";

/// A location with `status_api`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatusUrl(ApiUrl);

impl FromStr for StatusUrl {
    type Err = String;

    fn from_str(url: &str) -> Result<StatusUrl, String> {
        ApiUrl::parse(url, "/status/").map(StatusUrl)
    }
}

/// As it is shown: without the password.
impl fmt::Display for StatusUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl StatusUrl {
    /// A report.
    ///
    /// # Errors
    /// The text for the user: what is wrong, and how a status is enabled.
    pub fn fetch(&self) -> Result<Value, String> {
        let url = &self.0;
        let page = url.get(&[], TIMEOUT).map_err(|error| match error.kind() {
            io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound => {
                format!("{url}: no server listens there ({error})\n{ENABLE}")
            }
            _ => format!("{url}: {error}"),
        })?;
        let text = match page.status {
            200 => std::str::from_utf8(&page.body)
                .map_err(|_| format!("{url}: the response is no text"))?,
            401 => {
                return Err(format!(
                    "{url}: a password is needed: http://USER:PASSWORD@HOST/PATH/"
                ));
            }
            403 => return Err(format!("{url}: access is denied; allow this address there")),
            404 => return Err(format!("{url}: there is no such page (404)\n{ENABLE}")),
            status @ 301..=308 => {
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
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;

    use super::*;

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
