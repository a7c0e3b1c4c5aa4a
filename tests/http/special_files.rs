//! What is no file, and what may not be read: each has a defined answer, and none blocks.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::process::Command;

use nowait_testkit::check_on;

use crate::stage::{on_each_driver, server};

#[test]
fn what_is_no_file_is_not_found() {
    let site = server(
        "location /try { try_files /fifo /socket /dir /ok; }
         location /index/ { index fifo index.html; }",
    )
    .file("html/ok", "OK")
    .file("html/dir/x", "")
    .file("html/index/index.html", "I")
    .allow_log("is not a regular file");
    on_each_driver(&site, |server| {
        let html = server.dir().join("html");
        for name in ["fifo", "index/fifo"] {
            let made = Command::new("mkfifo").arg(html.join(name)).status().unwrap();
            assert!(made.success());
        }
        let socket = UnixListener::bind(html.join("socket")).unwrap();
        check_on(server, "GET /fifo HTTP/1.1\nHost: x", "404");
        // A socket can't be opened at all.
        let status = server.get("/socket").status;
        assert!(matches!(status, 404 | 500), "{status}");
        check_on(server, "GET /ok HTTP/1.1\nHost: x", "200\n\nOK");
        drop(socket);
        if fs::metadata("/dev/null").is_ok() {
            std::os::unix::fs::symlink("/dev/zero", html.join("zero")).unwrap();
            check_on(server, "GET /zero HTTP/1.1\nHost: x", "404");
        }
    });
}

#[test]
fn permissions_are_respected() {
    let site = server("location /try/ { try_files $uri /ok; }")
        .file("html/denied", "D")
        .file("html/closed/file", "F")
        .file("html/unlisted/x", "")
        .file("html/index/index.html", "I")
        .file("html/try/denied", "T")
        .file("html/ok", "OK");
    on_each_driver(&site, |server| {
        let html = server.dir().join("html");
        let set = |name: &str, mode: u32| {
            fs::set_permissions(html.join(name), fs::Permissions::from_mode(mode)).unwrap();
        };
        set("denied", 0o000);
        set("closed", 0o000);
        set("unlisted", 0o711);
        set("index/index.html", 0o000);
        set("try/denied", 0o000);
        check_on(server, "GET /denied HTTP/1.1\nHost: x", "403");
        check_on(server, "GET /closed/file HTTP/1.1\nHost: x", "403");
        check_on(server, "GET /closed/ HTTP/1.1\nHost: x", "403");
        check_on(server, "GET /index/ HTTP/1.1\nHost: x", "403");
        check_on(server, "GET /unlisted/ HTTP/1.1\nHost: x", "403");
        // `try_files` only looks whether there is a file.
        check_on(server, "GET /try/denied HTTP/1.1\nHost: x", "403");
        check_on(server, "GET /ok HTTP/1.1\nHost: x", "200\n\nOK");
        server.wait_log("failed (13: Permission denied)");
        // Let the directory be removed.
        set("closed", 0o755);
    });
}
