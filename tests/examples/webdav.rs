//! `examples/webdav.conf`: what people with a password and guests may do.

use std::os::unix::fs::PermissionsExt;

use nowait_testkit::{Response, Server};

use super::example;

/// One request, with the password or without.
fn ask(server: &Server, method: &str, path: &str, known: bool, more: &str, body: &str) -> Response {
    let password = if known { "Authorization: Basic bWU6c2VjcmV0\r\n" } else { "" };
    let length = body.len();
    let mut client = server.client();
    client.send(format!(
        "{method} {path} HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n{password}{more}\r\n{body}"
    ));
    client.response()
}

#[test]
fn webdav() {
    let server = example(include_str!("../../examples/webdav.conf"))
        .file("etc/users", "me:{PLAIN}secret\n")
        .file("srv/files/public/notice", "welcome")
        .file("srv/files/private", "mine")
        .file("log/kept", "")
        .start();
    // The worker processes may have another user than the test.
    for directory in ["srv/files", "srv/files/public"] {
        let all = std::fs::Permissions::from_mode(0o777);
        std::fs::set_permissions(server.dir().join(directory), all).expect("our own directory");
    }
    let known = |method: &str, path: &str, more: &str, body: &str| {
        ask(&server, method, path, true, more, body).status
    };
    let guest = |method: &str, path: &str, body: &str| {
        ask(&server, method, path, false, "Depth: 1\r\n", body).status
    };

    assert_eq!(known("PUT", "/2026/report.txt", "", "the report"), 201);
    assert_eq!(server.read("srv/files/2026/report.txt"), "the report");
    assert_eq!(known("MKCOL", "/old/", "", ""), 201);
    assert_eq!(known("MOVE", "/2026/report.txt", "Destination: /old/report.txt\r\n", ""), 201);
    assert_eq!(server.read("srv/files/old/report.txt"), "the report");
    let listing = ask(&server, "PROPFIND", "/old/", true, "Depth: 1\r\n", "");
    assert_eq!(listing.status, 207);
    assert!(listing.text().contains("report.txt"), "{}", listing.text());
    let lock = "<lockinfo xmlns=\"DAV:\"><lockscope><exclusive/></lockscope><locktype><write/></locktype></lockinfo>";
    assert_eq!(known("LOCK", "/private", "", lock), 200);
    assert_eq!(known("PUT", "/private", "", "changed"), 423);
    assert_eq!(known("DELETE", "/old/", "", ""), 204);
    assert_eq!(known("GET", "/.DS_Store", "", ""), 403);

    assert_eq!(guest("GET", "/private", ""), 401);
    assert_eq!(guest("PUT", "/new", "a"), 401);
    assert_eq!(guest("GET", "/public/notice", ""), 200);
    assert_eq!(guest("PROPFIND", "/public/", ""), 207);
    assert_eq!(guest("PUT", "/public/new", "a"), 401);
    assert_eq!(guest("DELETE", "/public/notice", ""), 401);
    assert_eq!(known("PUT", "/public/new", "", "a"), 201);
    assert!(server.quit().success());
}
