//! curl as a client, where it is installed.

use std::process::{Command, Stdio};

use nowait_testkit::skip;

/// What curl has received.
pub struct CurlResponse {
    /// The status.
    pub status: u16,
    /// The heads of all responses, with `\n` as line ends.
    pub heads: String,
    /// The content, after curl has undone what `--compressed` allowed.
    pub content: Vec<u8>,
}

impl CurlResponse {
    /// The content as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.content).into_owned()
    }

    /// The last value of a header.
    pub fn header(&self, name: &str) -> Option<&str> {
        let lines = self.heads.lines().filter_map(|line| line.split_once(": "));
        lines.filter(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value).next_back()
    }
}

/// Whether curl is there; says that the test is not run in full otherwise.
pub fn is_installed() -> bool {
    let version = Command::new("curl").arg("--version").stdout(Stdio::null()).status();
    let installed = version.is_ok_and(|status| status.success());
    if !installed {
        skip::skip("curl", "curl is not installed");
    }
    installed
}

/// Asks for a URL whose host is this machine, regardless of its name.
#[track_caller]
pub fn curl(port: u16, url: &str, arguments: &[&str]) -> CurlResponse {
    let mut command = Command::new("curl");
    command.args(["--silent", "--show-error", "--max-time", "30", "--noproxy", "*"]);
    command.args(["--connect-to", &format!("::127.0.0.1:{port}"), "--dump-header", "-"]);
    command.args(["--write-out", "%{stderr}%{http_code}"]);
    let output = command.args(arguments).arg(url).output().expect("curl is installed");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "curl {url}: {said}");
    let status = said.trim().parse().unwrap_or_else(|_| panic!("curl {url}: {said}"));
    let (mut rest, mut heads) = (&output.stdout[..], String::new());
    while rest.starts_with(b"HTTP/") {
        let end = rest.windows(4).position(|part| part == b"\r\n\r\n").expect("a whole head");
        heads += &String::from_utf8_lossy(&rest[..end]).replace("\r\n", "\n");
        heads.push('\n');
        rest = &rest[end + 4..];
    }
    CurlResponse { status, heads, content: rest.to_vec() }
}
