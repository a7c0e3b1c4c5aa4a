//! A visitor of a site: keeps cookies, fills in forms, uploads files, follows redirects, as a browser does.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use nowait_testkit::{Client, Response, Server};

/// Ends the parts of a form with a file.
const BOUNDARY: &str = "------------------------d74496d66958873e";

/// A visitor.
pub struct Visitor {
    port: u16,
    client: Client,
    cookies: BTreeMap<String, String>,
}

impl Visitor {
    pub fn of(server: &Server) -> Visitor {
        Visitor { port: server.port(), client: server.client(), cookies: BTreeMap::new() }
    }

    /// The site's address.
    pub fn address(&self) -> String {
        format!("http://localhost:{}", self.port)
    }

    #[track_caller]
    pub fn get(&mut self, target: &str) -> Response {
        self.request("GET", target, "", b"")
    }

    /// GET, and then follows redirects.
    #[track_caller]
    pub fn visit(&mut self, target: &str) -> Response {
        let response = self.get(target);
        self.follow(response)
    }

    /// Follows redirects.
    #[track_caller]
    pub fn follow(&mut self, mut response: Response) -> Response {
        for _ in 0..10 {
            let Some(location) = response.header("location") else { return response };
            let target = location.strip_prefix(&self.address()).unwrap_or(location).to_owned();
            assert!(target.starts_with('/'), "a redirect to {location}");
            response = self.get(&target);
        }
        panic!("too many redirects: {response}");
    }

    /// POST of a form.
    #[track_caller]
    pub fn post(&mut self, target: &str, form: &[(&str, &str)]) -> Response {
        let pairs: Vec<_> = form.iter().map(|(k, v)| [encoded(k), encoded(v)].join("=")).collect();
        let lines = "Content-Type: application/x-www-form-urlencoded\r\n";
        self.request("POST", target, lines, pairs.join("&").as_bytes())
    }

    /// POST of a form with a file: the field's name, the file's, its content.
    #[track_caller]
    pub fn upload(
        &mut self,
        target: &str,
        form: &[(&str, &str)],
        (field, name, content): (&str, &str, &[u8]),
    ) -> Response {
        let mut head = String::new();
        let disposition = "Content-Disposition: form-data; name=";
        for (key, value) in form {
            // Writing to a string cannot fail.
            let _ = write!(head, "--{BOUNDARY}\r\n{disposition}\"{key}\"\r\n\r\n{value}\r\n");
        }
        let _ = write!(
            head,
            "--{BOUNDARY}\r\n{disposition}\"{field}\"; filename=\"{name}\"\r\n\
             Content-Type: text/plain\r\n\r\n"
        );
        let end = format!("\r\n--{BOUNDARY}--\r\n");
        let body = [head.as_bytes(), content, end.as_bytes()].concat();
        let lines = format!("Content-Type: multipart/form-data; boundary={BOUNDARY}\r\n");
        self.request("POST", target, &lines, &body)
    }

    /// A request with further lines of its head.
    #[track_caller]
    pub fn request(&mut self, method: &str, target: &str, lines: &str, body: &[u8]) -> Response {
        let mut head = format!("{method} {target} HTTP/1.1\r\nHost: localhost:{}\r\n", self.port);
        if !self.cookies.is_empty() {
            let cookies: Vec<_> = self.cookies.iter().map(|(k, v)| format!("{k}={v}")).collect();
            let _ = write!(head, "Cookie: {}\r\n", cookies.join("; "));
        }
        if method == "POST" {
            let _ = write!(head, "Content-Length: {}\r\n", body.len());
        }
        self.client.send(format!("{head}{lines}\r\n"));
        self.client.send(body);
        let response = self.client.response();
        for cookie in response.all("set-cookie") {
            let pair = cookie.split(';').next().unwrap_or_default();
            let (name, value) = pair.split_once('=').expect("a cookie has a value");
            // In the past: to be forgotten.
            match cookie.contains("Max-Age=0") || value.is_empty() || value == "deleted" {
                true => drop(self.cookies.remove(name)),
                false => drop(self.cookies.insert(name.to_owned(), value.to_owned())),
            }
        }
        if response.header("connection") == Some("close") {
            self.client = Client::to_port(self.port);
        }
        response
    }
}

/// As in forms.
pub fn encoded(text: &str) -> String {
    text.bytes().fold(String::new(), |mut encoded, byte| {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' => {
                encoded.push(byte.into());
            }
            _ => drop(write!(encoded, "%{byte:02X}")),
        }
        encoded
    })
}

/// The value of a form's field in a page of HTML.
#[track_caller]
pub fn field(page: &str, name: &str) -> String {
    let marks = [format!("name=\"{name}\""), format!("name='{name}'")];
    let found = page.split('<').find(|tag| marks.iter().any(|mark| tag.contains(mark)));
    let tag = found.unwrap_or_else(|| panic!("no field {name} in {page}"));
    let value = tag.split_once("value=").expect("the field has a value").1;
    value[1..].split(['"', '\'']).next().unwrap_or_default().to_owned()
}
