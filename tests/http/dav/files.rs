//! The methods that change files, as nginx has them.

use std::os::unix::fs::{MetadataExt, PermissionsExt};

use nowait_testkit::TempDir;
use nowait_testkit::http2::Http2;

use super::{names, open_to_all, put, request, site, status, www};
use crate::stage::{on_each_driver, pattern, refused};

const ALL: &str = "dav_methods PUT DELETE MKCOL COPY MOVE;";

#[test]
fn files_are_put_and_removed() {
    let builder = site(
        "client_max_body_size 4m;
         dav_methods PUT DELETE;
         location /off/ { dav_methods off; }
         location /full/ { create_full_put_path on; dav_access group:rw all:r; }",
    );
    on_each_driver(&builder, |server| {
        let www = www(server);
        let created =
            request(server, "PUT", "/a%20b", &["Date: Thu, 01 Jan 2026 00:00:00 GMT"], "1");
        assert_eq!(created.status, 201);
        assert!(created.header("Location").unwrap().ends_with("/a%20b"), "{created}");
        assert_eq!(created.header("Content-Length"), Some("0"));
        let meta = std::fs::metadata(www.join("a b")).unwrap();
        assert_eq!((meta.mtime(), meta.mode() & 0o777), (1_767_225_600, 0o600));
        let replaced = request(server, "PUT", "/a%20b", &["Date: nonsense"], "");
        assert_eq!((replaced.status, replaced.header("Content-Length")), (204, None));
        assert_eq!(std::fs::read(www.join("a b")).unwrap(), b"");

        // One that goes to the disk in pieces, and one whose length is not known.
        let large = pattern(3_000_000);
        assert_eq!(request(server, "PUT", "/large", &[], &large).status, 201);
        assert!(std::fs::read(www.join("large")).unwrap() == large);
        let mut client = server.client();
        client.send("PUT /chunked HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
        client.send("3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n");
        assert_eq!(client.response().status, 201);
        assert_eq!(std::fs::read(www.join("chunked")).unwrap(), b"abcde");
        // Without any length there is no content.
        assert_eq!(status(server, "DELETE", "/chunked", &[]), 204);
        client.send("PUT /chunked HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!(client.response().status, 201);

        assert_eq!(put(server, "/full/x/y/z", "deep"), 201);
        let mode = |name: &str| std::fs::metadata(www.join(name)).unwrap().mode() & 0o777;
        assert_eq!(mode("full/x/y/z"), 0o664);
        assert_eq!(mode("full/x") & 0o755, 0o755);
        assert_eq!(put(server, "/none/x", "deep"), 409);
        assert_eq!(put(server, "/full", "a directory"), 409);
        assert_eq!(put(server, "/full/", "a directory"), 409);
        assert_eq!(put(server, "/large/x", "through a file"), 409);
        assert_eq!(request(server, "PUT", "/b", &["Content-Range: bytes 0-0/2"], "1").status, 501);
        assert_eq!(put(server, "/off/a", "1"), 405);
        assert_eq!(status(server, "MKCOL", "/b/", &[]), 405);

        assert_eq!(request(server, "DELETE", "/large", &[], "body").status, 415);
        assert_eq!(status(server, "DELETE", "/large", &["Depth: 1"]), 400);
        assert_eq!(status(server, "DELETE", "/large/", &[]), 409);
        assert_eq!(status(server, "DELETE", "/large", &["Depth: 0"]), 204);
        assert_eq!(status(server, "DELETE", "/large", &[]), 404);
        assert_eq!(status(server, "DELETE", "/full", &[]), 409);
        assert_eq!(status(server, "DELETE", "/full/", &["Depth: 0"]), 400);
        assert_eq!(status(server, "DELETE", "/full/", &["Depth: bogus"]), 400);
        assert_eq!(status(server, "DELETE", "/full/", &[]), 204);
        assert_eq!(names(&www), [".keep", "a b", "chunked"]);
        server.wait_log("client sent invalid \"Depth\" header: \"bogus\"");
        server.wait_log("PUT with range is unsupported");
        server.wait_log("(21: Is a directory)");
        // No temporary file is left.
        let temp = server.dir().join("client_body_temp");
        let left = || names(&temp).is_empty().then_some(());
        nowait_testkit::wait::until(
            "the temporary files to go",
            nowait_testkit::wait::PATIENCE,
            left,
        );
    });
}

#[test]
fn short_paths_are_not_removed() {
    let builder = site(
        "dav_methods PUT DELETE MKCOL;
         location /min/ { min_delete_depth 3; }",
    );
    on_each_driver(&builder, |server| {
        www(server);
        for path in ["/min/", "/min/a/", "/min/a/b/"] {
            assert_eq!(status(server, "MKCOL", path, &[]), 201, "{path}");
        }
        for (path, expected) in [("/min/a/b/", 204), ("/min/a/", 409), ("/min/", 409)] {
            assert_eq!(status(server, "DELETE", path, &[]), expected, "{path}");
        }
        server.wait_log("insufficient URI depth:2 to DELETE");
    });
}

#[test]
fn trees_are_copied_moved_and_removed() {
    let builder = site(ALL);
    on_each_driver(&builder, |server| {
        let www = www(server);
        assert_eq!(status(server, "MKCOL", "/a/", &[]), 201);
        assert_eq!(status(server, "MKCOL", "/a/", &[]), 405);
        assert_eq!(status(server, "MKCOL", "/a", &[]), 409);
        assert_eq!(status(server, "MKCOL", "/none/b/", &[]), 409);
        assert_eq!(request(server, "MKCOL", "/b/", &[], "body").status, 415);
        assert_eq!(status(server, "MKCOL", "/a/deep/", &[]), 201);
        // More names than one step handles.
        for n in 0..300 {
            std::fs::write(www.join(format!("a/deep/{n:03}")), format!("{n}")).unwrap();
        }
        let large = pattern(9_000_000);
        std::fs::write(www.join("a/large"), &large).unwrap();
        std::fs::set_permissions(www.join("a/large"), PermissionsExt::from_mode(0o640)).unwrap();
        std::os::unix::fs::chown(www.join("a/large"), Some(65534), None).unwrap();
        std::os::unix::fs::symlink("large", www.join("a/link")).unwrap();

        assert_eq!(status(server, "COPY", "/a/", &["Destination: http://localhost/b/"]), 201);
        assert_eq!(names(&www.join("b/deep")), names(&www.join("a/deep")));
        assert_eq!(std::fs::read(www.join("b/deep/299")).unwrap(), b"299");
        assert!(std::fs::read(www.join("b/large")).unwrap() == large);
        let (from, to) = (www.join("a/large").metadata(), www.join("b/large").metadata());
        let (from, to) = (from.unwrap(), to.unwrap());
        assert_eq!((from.mtime(), from.mode()), (to.mtime(), to.mode()));
        // As in nginx, links are left out.
        assert_eq!(names(&www.join("b")), ["deep", "large"]);

        assert_eq!(status(server, "COPY", "/a/", &["Destination: /c/", "Depth: 0"]), 201);
        assert!(names(&www.join("c")).is_empty());
        let keep = ["Destination: /c/", "Overwrite: F"];
        assert_eq!(status(server, "MOVE", "/b/", &keep), 412);
        assert_eq!(status(server, "MOVE", "/b/", &["Destination: /c/"]), 201);
        assert_eq!(names(&www), [".keep", "a", "c"]);

        for (method, from, lines, expected) in [
            ("COPY", "/a/", &["Destination: /a/"][..], 403),
            ("COPY", "/a/", &["Destination: /a/deep/x/"], 403),
            ("MOVE", "/a/deep/", &["Destination: /a/"], 403),
            ("COPY", "/a/", &["Destination: /b"], 409),
            ("COPY", "/a/large", &["Destination: /b/"], 409),
            ("COPY", "/a/large", &["Destination: /c"], 409),
            ("COPY", "/a", &["Destination: /b"], 400),
            ("COPY", "/a/large/", &["Destination: /b/"], 404),
            ("COPY", "/none", &["Destination: /b"], 404),
            ("COPY", "/a/large", &["Destination: /none/b"], 409),
            ("COPY", "/a/large", &[], 400),
            ("COPY", "/a/large", &["Destination: /b", "Overwrite: TRUE"], 400),
            ("COPY", "/a/large", &["Destination: /b", "Depth: 1"], 400),
            ("MOVE", "/a/large", &["Destination: /b", "Depth: 0"], 400),
            ("COPY", "/a/large", &["Destination: /b"], 204),
            ("MOVE", "/b", &["Destination: /made/on/the/way"], 204),
        ] {
            assert_eq!(status(server, method, from, lines), expected, "{method} {from} {lines:?}");
        }
        assert_eq!(request(server, "COPY", "/a/large", &["Destination: /b"], "x").status, 415);
        assert!(std::fs::read(www.join("made/on/the/way")).unwrap() == large);
        for path in ["/a/", "/c/", "/made/"] {
            assert_eq!(status(server, "DELETE", path, &[]), 204, "{path}");
        }
        assert_eq!(names(&www), [".keep"]);
    });
}

#[test]
fn what_cannot_be_copied_is_not_removed() {
    // Root may read everything; the server runs as nobody then.
    let builder = site(ALL);
    on_each_driver(&builder, |server| {
        let www = www(server);
        assert_eq!(status(server, "MKCOL", "/a/", &[]), 201);
        assert_eq!(put(server, "/a/ours", "1"), 201);
        std::fs::write(www.join("a/secret"), "root's").unwrap();
        std::fs::set_permissions(www.join("a/secret"), PermissionsExt::from_mode(0o600)).unwrap();
        assert_eq!(status(server, "COPY", "/a/", &["Destination: /b/"]), 403);
        assert_eq!(names(&www.join("b")), ["ours"]);
        assert_eq!(status(server, "COPY", "/a/secret", &["Destination: /c"]), 403);
        server.wait_log("open() ");
        assert_eq!(names(&www.join("a")), ["ours", "secret"]);
    });
}

/// The temporary file and the destination are on different file systems.
#[test]
fn files_are_copied_from_other_file_systems() {
    let Some(temp) = TempDir::in_memory("dav", 4 << 20, 100) else { return };
    open_to_all(temp.path());
    let builder = site(&format!(
        "location / {{ {ALL} client_body_temp_path {0}/body; create_full_put_path on; }}
         location /shm/ {{ {ALL} alias {0}/files/; }}",
        temp.path().display()
    ));
    on_each_driver(&builder, |server| {
        let www = www(server);
        let time = "Date: Thu, 01 Jan 2026 00:00:00 GMT";
        assert_eq!(request(server, "PUT", "/x/a", &[time], "abc").status, 201);
        assert_eq!(std::fs::read(www.join("x/a")).unwrap(), b"abc");
        assert_eq!(std::fs::metadata(www.join("x/a")).unwrap().mtime(), 1_767_225_600);
        assert_eq!(names(&www.join("x")), ["a"]);
        assert_eq!(request(server, "PUT", "/x/a", &[], "def").status, 204);
        assert_eq!(std::fs::read(www.join("x/a")).unwrap(), b"def");
        assert_eq!(put(server, "/x", "a directory"), 409);
    });
}

#[test]
fn an_alias_replaces_the_same_part_of_both_uris() {
    let builder = site(&format!("location /i/ {{ alias %%DIR%%/html/; {ALL} }}"));
    on_each_driver(&builder, |server| {
        let www = www(server);
        assert_eq!(put(server, "/i/a", "1"), 201);
        assert_eq!(status(server, "COPY", "/i/a", &["Destination: /i/b"]), 204);
        assert_eq!(status(server, "COPY", "/i/a", &["Destination: /x"]), 400);
        assert_eq!(status(server, "COPY", "/i/a", &["Destination: /xxx/c"]), 400);
        assert_eq!(names(&www), [".keep", "a", "b"]);
    });
}

#[test]
fn content_over_http2() {
    let builder = crate::stage::server("http2 on; location / { dav_methods PUT DELETE; }")
        .file("html/.keep", "");
    on_each_driver(&builder, |server| {
        let www = www(server);
        let mut client = Http2::to_port(server.port());
        let stream = client.open("PUT", "/a", &[], false);
        client.data(stream, b"abc", true);
        assert_eq!(client.response(stream).status, 201);
        assert_eq!(std::fs::read(www.join("a")).unwrap(), b"abc");
        let stream = client.open("DELETE", "/a", &[], true);
        assert_eq!(client.response(stream).status, 204);
    });
}

#[test]
fn mistakes() {
    refused(&site("dav_methods GET;"), "invalid value \"GET\"");
    refused(&site("dav_access world:rw;"), "invalid value \"world:rw\"");
    refused(&site("create_full_put_path yes;"), "it must be \"on\" or \"off\"");
    refused(&site("min_delete_depth x;"), "invalid");
}

/// `put_overwrite off`, and the same asked for by a client.
#[test]
fn files_are_replaced_only_where_that_is_allowed() {
    let site = site(
        "location / { dav_methods PUT; }
         location /new/ { dav_methods PUT; put_overwrite off; create_full_put_path on; }",
    );
    on_each_driver(&site, |server| {
        let dir = www(server);
        let put = |target: &str, lines: &[&str], text: &str| {
            request(server, "PUT", target, lines, text).status
        };
        let read = |name: &str| std::fs::read_to_string(dir.join(name)).unwrap();
        let only_new = ["If-None-Match: *"];
        assert_eq!(put("/a", &only_new, "one"), 201);
        assert_eq!(put("/a", &only_new, "two"), 412);
        assert_eq!(read("a"), "one");
        assert_eq!(put("/a", &["If-None-Match: \"x\""], "two"), 204);
        assert_eq!(put("/a", &[], "three"), 204);
        assert_eq!(read("a"), "three");
        assert_eq!(put("/new/dir/b", &[], "one"), 201);
        assert_eq!(put("/new/dir/b", &[], "two"), 412);
        assert_eq!(put("/new/dir", &[], "two"), 409);
        assert_eq!(read("new/dir/b"), "one");
        // Of two uploads at the same time, the first one to be complete counts.
        let mut clients = [server.client(), server.client()];
        let head = "PUT /new/c HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\n\r\n";
        for (n, client) in clients.iter_mut().enumerate() {
            client.send(format!("{head}{n}{n}"));
        }
        for (n, expected) in [(1, 201), (0, 412)] {
            clients[n].send(format!("{n}{n}"));
            assert_eq!(clients[n].response().status, expected);
        }
        assert_eq!(read("new/c"), "1111");
        std::fs::remove_dir_all(&dir).unwrap();
    });
}
