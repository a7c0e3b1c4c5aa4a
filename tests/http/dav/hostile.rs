//! Requests that try to reach files of others.

use std::os::unix::fs::symlink;

use super::{names, open_to_all, put, request, site, status, www};
use crate::stage::on_each_driver;

const ALL: &str = "dav_methods PUT DELETE MKCOL COPY MOVE;";

#[test]
fn destinations_lead_nowhere_else() {
    let builder = site(ALL);
    on_each_driver(&builder, |server| {
        let www = www(server);
        assert_eq!(put(server, "/a", "1"), 201);
        for destination in [
            "http://other/b",
            "http://localhost.other/b",
            "http://localhost@other/b",
            "ftp://localhost/b",
            "http://localhost",
            "//",
            "b",
            "",
            "/../b",
            "/x/../../b",
            "/%2e%2e/b",
            "/%2e%2e%2fb",
            "/..%2fb",
            "/.%2e/b",
            "http://localhost/%2e%2e/b",
            "/b%00",
        ] {
            let line = format!("Destination: {destination}");
            for method in ["COPY", "MOVE"] {
                let status = status(server, method, "/a", &[&line]);
                assert!(matches!(status, 400 | 409), "{method} {destination}: {status}");
            }
        }
        assert_eq!(names(&www), [".keep", "a"]);
        assert!(!server.dir().join("b").exists());
        for (method, path) in [
            ("PUT", "/../b"),
            ("PUT", "/%2e%2e/b"),
            ("PUT", "/..%2fb"),
            ("PUT", "/x%2f..%2f..%2fb"),
            ("PUT", "/b%00"),
            ("DELETE", "/%2e%2e/nginx.conf"),
            ("MKCOL", "/%2e%2e/b/"),
        ] {
            let status = request(server, method, path, &[], "").status;
            assert!(matches!(status, 400 | 404), "{method} {path}: {status}");
        }
        assert!(!server.dir().join("b").exists());
    });
}

#[test]
fn links_are_not_followed_by_what_removes_and_replaces() {
    let builder = site(ALL);
    on_each_driver(&builder, |server| {
        let www = www(server);
        let outside = server.dir().join("outside");
        open_to_all(&outside);
        std::fs::write(outside.join("precious"), "P").unwrap();
        let link = |to: &str, at: &str| symlink(to, www.join(at)).unwrap();
        link("../outside", "dir");
        link("../outside/precious", "file");
        assert_eq!(status(server, "MKCOL", "/t/", &[]), 201);
        link("../../outside", "t/dir");
        link("../../outside/precious", "t/file");

        // A tree with links.
        assert_eq!(status(server, "COPY", "/t/", &["Destination: /u/"]), 201);
        assert!(names(&www.join("u")).is_empty());
        assert_eq!(status(server, "DELETE", "/t/", &[]), 204);
        // A link in place of a directory.
        assert_eq!(status(server, "DELETE", "/dir/", &[]), 409);
        assert_eq!(status(server, "MOVE", "/u/", &["Destination: /dir/"]), 201);
        assert!(www.join("dir").symlink_metadata().unwrap().is_dir());
        // A link in place of a file.
        assert_eq!(put(server, "/new", "N"), 201);
        assert_eq!(status(server, "COPY", "/new", &["Destination: /file"]), 204);
        assert!(www.join("file").symlink_metadata().unwrap().is_file());
        link("../outside/precious", "other");
        assert_eq!(put(server, "/other", "O"), 204);
        assert!(www.join("other").symlink_metadata().unwrap().is_file());
        link("../outside/precious", "last");
        assert_eq!(status(server, "DELETE", "/last", &[]), 204);
        assert_eq!(std::fs::read(outside.join("precious")).unwrap(), b"P");
    });
}

/// The destination is in the original by way of a link: the copy does not contain itself.
#[test]
fn a_copy_does_not_copy_itself() {
    let builder = site(ALL);
    on_each_driver(&builder, |server| {
        let www = www(server);
        for path in ["/a/", "/a/b/"] {
            assert_eq!(status(server, "MKCOL", path, &[]), 201);
        }
        symlink("a", www.join("link")).unwrap();
        assert_eq!(status(server, "COPY", "/a/", &["Destination: /link/c/"]), 201);
        assert_eq!(names(&www.join("a")), ["b", "c"]);
        assert_eq!(names(&www.join("a/c")), ["b"]);
        // What replaces a directory that it is in would be removed with it.
        assert_eq!(put(server, "/a/b/precious", "P"), 201);
        for (method, from, to) in
            [("COPY", "/link/b/", "/a/"), ("MOVE", "/link/b/", "/a/"), ("MOVE", "/a/", "/link/b/")]
        {
            let line = format!("Destination: {to}");
            assert_eq!(status(server, method, from, &[&line]), 403, "{method} {from} {to}");
        }
        assert_eq!(std::fs::read(www.join("a/b/precious")).unwrap(), b"P");
        assert_eq!(status(server, "DELETE", "/a/", &[]), 204);
    });
}

#[test]
fn links_are_refused_where_the_operator_says_so() {
    let builder = site(&format!("{ALL} disable_symlinks on from=%%DIR%%/html;"));
    on_each_driver(&builder, |server| {
        let www = www(server);
        let outside = server.dir().join("outside");
        open_to_all(&outside);
        std::fs::write(outside.join("precious"), "P").unwrap();
        symlink("../outside", www.join("dir")).unwrap();
        assert_eq!(put(server, "/a", "1"), 201);
        for (method, path, lines) in [
            ("PUT", "/dir/new", &[][..]),
            ("PUT", "/dir/precious", &[]),
            ("DELETE", "/dir/precious", &[]),
            ("MKCOL", "/dir/new/", &[]),
            ("COPY", "/a", &["Destination: /dir/new"]),
            ("MOVE", "/a", &["Destination: /dir/new"]),
            ("COPY", "/dir/precious", &["Destination: /b"]),
        ] {
            assert_eq!(status(server, method, path, lines), 403, "{method} {path}");
        }
        assert_eq!(names(&outside), ["precious"]);
        assert_eq!(std::fs::read(outside.join("precious")).unwrap(), b"P");
        assert_eq!(names(&www), [".keep", "a", "dir"]);
    });
}

/// A tree deeper than the server walks stays as it is as far as it is too deep.
#[test]
fn trees_have_a_greatest_depth() {
    let builder = site(ALL);
    on_each_driver(&builder, |server| {
        let www = www(server);
        let mut path = www.join("deep");
        for _ in 0..140 {
            open_to_all(&path);
            path.push("d");
        }
        assert_eq!(status(server, "DELETE", "/deep/", &[]), 404);
        server.wait_log("File name too long");
        // What is deeper can be removed by itself.
        let lower = format!("/deep/{}", "d/".repeat(100));
        assert_eq!(status(server, "DELETE", &lower, &[]), 204);
        assert_eq!(status(server, "DELETE", "/deep/", &[]), 204);
        assert_eq!(names(&www), [".keep"]);
    });
}
