//! WebDAV: `dav_methods` and what belongs to it.

mod access;
mod files;
mod hostile;
mod locks;
mod properties;

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use nowait_testkit::{Response, Server, ServerBuilder};

/// A server whose `www` is writable for everyone.
fn site(locations: &str) -> ServerBuilder {
    crate::stage::server(locations).file("html/.keep", "").allow_log("failed (")
}

/// Lets the server, which runs as nobody, change a directory.
fn open_to_all(path: &Path) {
    std::fs::create_dir_all(path).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o777)).unwrap();
}

/// The served directory, which is writable for everyone.
fn www(server: &Server) -> PathBuf {
    let path = server.dir().join("html");
    open_to_all(&path);
    path
}

/// A request with these header lines and this body, on a connection of its own.
#[track_caller]
fn request(
    server: &Server,
    method: &str,
    target: &str,
    lines: &[&str],
    body: impl AsRef<[u8]>,
) -> Response {
    let body = body.as_ref();
    let mut head = format!("{method} {target} HTTP/1.1\r\nHost: localhost\r\n");
    for line in lines {
        head.push_str(line);
        head.push_str("\r\n");
    }
    if !body.is_empty() || method == "PUT" {
        head.push_str(&format!("Content-Length: {}\r\n", body.len()));
    }
    head.push_str("\r\n");
    let mut client = server.client();
    client.send([head.as_bytes(), body].concat());
    client.response()
}

/// The status of a request without a body.
#[track_caller]
fn status(server: &Server, method: &str, target: &str, lines: &[&str]) -> u16 {
    request(server, method, target, lines, "").status
}

/// Stores a file.
#[track_caller]
fn put(server: &Server, target: &str, content: &str) -> u16 {
    request(server, "PUT", target, &[], content).status
}

/// What is in a directory, in order.
fn names(path: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(path).unwrap();
    let mut names: Vec<_> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}
