//! PROPFIND, PROPPATCH and OPTIONS.

use std::os::unix::fs::symlink;

use super::{open_to_all, put, request, site, status, www};
use crate::resident_changes::may_mount;
use crate::stage::{on_each_driver, refused};

const ALL: &str =
    "dav_methods PUT DELETE MKCOL COPY MOVE; dav_ext_methods PROPFIND PROPPATCH OPTIONS;";

fn find(server: &nowait_testkit::Server, target: &str, depth: &str, body: &str) -> (u16, String) {
    let response = request(server, "PROPFIND", target, &[&format!("Depth: {depth}")], body);
    (response.status, response.text())
}

/// Names in a namespace of their own.
fn named(names: &str) -> String {
    format!("<D:propfind xmlns:D=\"DAV:\"><D:prop xmlns:x=\"urn:x\">{names}</D:prop></D:propfind>")
}

#[test]
fn files_and_directories_are_described() {
    let builder =
        site(&format!("location / {{ {ALL} }} location /off/ {{ dav_ext_methods off; }}"));
    on_each_driver(&builder, |server| {
        let www = www(server);
        assert_eq!(status(server, "MKCOL", "/a/", &[]), 201);
        let time = "Date: Thu, 01 Jan 2026 00:00:00 GMT";
        assert_eq!(request(server, "PUT", "/a/b%20%26%3C.txt", &[time], "abc").status, 201);

        let (status_code, text) = find(server, "/a/", "1", "");
        assert_eq!(status_code, 207);
        for part in [
            "<D:href>/a/</D:href>",
            "<D:resourcetype><D:collection/></D:resourcetype>",
            "<D:href>/a/b%20&amp;%3C.txt</D:href>",
            "<D:displayname>b &amp;&lt;.txt</D:displayname>",
            "<D:getcontentlength>3</D:getcontentlength>",
            "<D:getlastmodified>Thu, 01 Jan 2026 00:00:00 GMT</D:getlastmodified>",
            "<D:creationdate>2026-01-01T00:00:00Z</D:creationdate>",
            "<D:getetag>&quot;6955b900-3&quot;</D:getetag>",
            "<D:resourcetype></D:resourcetype>",
            "<D:status>HTTP/1.1 200 OK</D:status>",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(text.ends_with("</D:multistatus>\n"), "{text}");
        let tag = server.get("/a/b%20%26%3C.txt");
        assert_eq!(tag.header("ETag"), Some("\"6955b900-3\""));

        let (_, text) = find(server, "/a", "0", &named("<D:resourcetype/><x:y/><D:getetag/>"));
        assert!(text.contains("<D:href>/a/</D:href>"), "{text}");
        assert!(text.contains("<y xmlns=\"urn:x\"/>"), "{text}");
        assert!(text.contains("<D:status>HTTP/1.1 404 Not Found</D:status>"), "{text}");
        let names = "<propfind xmlns=\"DAV:\"><propname/></propfind>";
        let (_, text) = find(server, "/a/", "0", names);
        assert!(text.contains("<D:creationdate/>") && !text.contains("getcontentlength"), "{text}");

        let (refused, text) = find(server, "/a/", "infinity", "");
        assert_eq!(refused, 403);
        assert!(text.contains("<D:propfind-finite-depth/>"), "{text}");
        assert_eq!(status(server, "PROPFIND", "/a/", &[]), 403);
        for (target, depth, body, expected) in [
            ("/none", "0", "", 404),
            ("/a/none/", "0", "", 404),
            ("/a/", "2", "", 400),
            ("/a/", "0", "<propfind", 400),
            ("/a/", "0", "<propfind/>", 400),
            ("/off/", "0", "", 405),
        ] {
            assert_eq!(find(server, target, depth, body).0, expected, "{target} {depth} {body}");
        }

        // A large directory comes in pieces.
        open_to_all(&www.join("large"));
        for n in 0..1000 {
            std::fs::write(www.join(format!("large/{n:04}")), "").unwrap();
        }
        let (_, text) = find(server, "/large/", "1", "");
        assert_eq!(text.matches("<D:response>").count(), 1001);
        assert_eq!(text.matches("<D:href>/large/0999</D:href>").count(), 1);

        let options = request(server, "OPTIONS", "/a/", &[], "");
        assert_eq!((options.status, options.header("DAV")), (200, Some("1")));
        let allow = "GET, HEAD, PUT, DELETE, MKCOL, COPY, MOVE, OPTIONS, PROPFIND, PROPPATCH";
        assert_eq!(options.header("Allow"), Some(allow));
    });
}

#[test]
fn links_are_described_as_the_operator_says() {
    let builder = site(&format!(
        "{ALL} location /strict/ {{ alias %%DIR%%/html/; disable_symlinks on from=%%DIR%%/html; }}"
    ));
    on_each_driver(&builder, |server| {
        let www = www(server);
        std::fs::write(server.dir().join("outside"), "secret").unwrap();
        symlink("../outside", www.join("link")).unwrap();
        symlink("nowhere", www.join("broken")).unwrap();
        let (_, text) = find(server, "/", "1", "");
        assert!(text.contains("<D:href>/link</D:href>") && !text.contains("broken"), "{text}");
        let (_, text) = find(server, "/strict/", "1", "");
        assert!(!text.contains("link"), "{text}");
        assert_eq!(find(server, "/strict/link", "0", "").0, 403);
    });
}

#[test]
fn properties_are_kept() {
    let builder = site(&format!("location / {{ {ALL} }}"));
    on_each_driver(&builder, |server| {
        www(server);
        assert_eq!(put(server, "/a", "1"), 201);
        let set = "<D:propertyupdate xmlns:D=\"DAV:\"><D:set><D:prop><x:p xmlns:x=\"urn:x\"><q/>1\
                   </x:p></D:prop></D:set></D:propertyupdate>";
        let patched = request(server, "PROPPATCH", "/a", &[], set);
        assert_eq!(patched.status, 207);
        let text = patched.text();
        if text.contains("403") {
            nowait_testkit::skip::skip_rare("xattr", "the file system has no extended attributes");
            return;
        }
        assert!(text.contains("<p xmlns=\"urn:x\"/>") && text.contains("200 OK"), "{text}");
        let kept = |target: &str| {
            let (_, text) = find(server, target, "0", &named("<x:p/>"));
            text.contains("<p xmlns=\"urn:x\"><q xmlns=\"\"/>1</p>")
        };
        assert!(kept("/a"));
        // They follow the file.
        assert_eq!(put(server, "/a", "2"), 204);
        assert_eq!(status(server, "COPY", "/a", &["Destination: /b"]), 201);
        assert_eq!(status(server, "MOVE", "/a", &["Destination: /c"]), 201);
        assert!(kept("/b") && kept("/c"));
        assert_eq!(status(server, "MKCOL", "/dir/", &[]), 201);
        assert_eq!(request(server, "PROPPATCH", "/dir/", &[], set).status, 207);
        assert_eq!(status(server, "MOVE", "/b", &["Destination: /dir/b"]), 201);
        assert_eq!(status(server, "COPY", "/dir/", &["Destination: /other/"]), 201);
        assert!(kept("/other/") && kept("/other/b"));
        let (_, text) = find(server, "/other/", "1", "");
        assert_eq!(text.matches("<p xmlns=\"urn:x\">").count(), 2, "{text}");

        // All, or nothing.
        let both = "<D:propertyupdate xmlns:D=\"DAV:\"><D:remove><D:prop><p xmlns=\"urn:x\"/></D:prop>\
                    </D:remove><D:set><D:prop><D:getetag>1</D:getetag></D:prop></D:set>\
                    </D:propertyupdate>";
        let text = request(server, "PROPPATCH", "/c", &[], both).text();
        assert!(text.contains("403 Forbidden") && text.contains("424 Failed Dependency"), "{text}");
        assert!(kept("/c"));
        // More than the file system holds.
        let large = set.replace(">1", &format!(">{}", "x".repeat(60_000)));
        let text = request(server, "PROPPATCH", "/c", &[], &large).text();
        let stored = text.contains("200 OK");
        assert!(stored || text.contains("507 Insufficient Storage"), "{text}");
        assert_eq!(kept("/c"), !stored);
        assert_eq!(request(server, "PROPPATCH", "/none", &[], set).status, 404);
        assert_eq!(request(server, "PROPPATCH", "/c", &[], "").status, 400);
    });
}

#[test]
fn uploads_from_a_file_system_without_attributes_keep_them() {
    if !may_mount() {
        return;
    }
    let builder = site(&format!("client_body_temp_path %%DIR%%/uploads; location / {{ {ALL} }}"));
    on_each_driver(&builder, |server| {
        www(server);
        let uploads = Mount::ramfs(server.dir().join("uploads"));
        assert_eq!(put(server, "/a", "1"), 201);
        let set = "<D:propertyupdate xmlns:D=\"DAV:\"><D:set><D:prop><p xmlns=\"urn:x\">1</p></D:prop>\
                   </D:set></D:propertyupdate>";
        let text = request(server, "PROPPATCH", "/a", &[], set).text();
        if text.contains("403") {
            nowait_testkit::skip::skip_rare("xattr", "the file system has no extended attributes");
            return;
        }
        assert_eq!(put(server, "/a", "2"), 204);
        assert_eq!(server.get("/a").text(), "2");
        let (_, text) = find(server, "/a", "0", &named("<x:p/>"));
        assert!(text.contains("<p xmlns=\"urn:x\">1</p>"), "{text}");
        drop(uploads);
    });
}

/// A file system that is mounted as long as this lives.
struct Mount(std::path::PathBuf);

impl Mount {
    fn ramfs(at: std::path::PathBuf) -> Mount {
        let mut mount = std::process::Command::new("mount");
        mount.args(["-t", "ramfs", "-o", "mode=1777", "none"]).arg(&at);
        assert!(mount.status().unwrap().success());
        Mount(at)
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

/// As RFC 4918 wants it: a slash at the end does not matter, and everything that is there is replaced.
#[test]
fn collections_need_no_slash() {
    let builder = site(&format!("location / {{ {ALL} }}"));
    on_each_driver(&builder, |server| {
        let www = www(server);
        assert_eq!(status(server, "MKCOL", "/a", &[]), 201);
        assert_eq!(put(server, "/a/x", "1"), 201);
        assert_eq!(put(server, "/f", "2"), 201);
        for (method, from, to, expected) in [
            ("COPY", "/a", "/b/", 201),
            ("COPY", "/a/", "/b", 204),
            ("COPY", "/f", "/b/", 204),
            ("MOVE", "/a", "/b", 204),
            ("COPY", "/b/x", "/b", 403),
            ("MOVE", "/b", "/b/x", 403),
            ("COPY", "/f/", "/c", 404),
        ] {
            let line = format!("Destination: {to}");
            assert_eq!(status(server, method, from, &[&line]), expected, "{method} {from} {to}");
        }
        assert_eq!(std::fs::read(www.join("b/x")).unwrap(), b"1");
        assert_eq!(status(server, "DELETE", "/b", &[]), 204);
        assert_eq!(super::names(&www), [".keep", "f"]);
    });
}

#[test]
fn hostile_bodies_cost_little() {
    let builder = site(&format!("client_max_body_size 0; location / {{ {ALL} }}"));
    on_each_driver(&builder, |server| {
        www(server);
        let bomb = "<!DOCTYPE a [<!ENTITY a \"aaaaaaaaaa\"><!ENTITY b \"&a;&a;&a;&a;&a;&a;&a;&a;\">]>\
                    <propfind xmlns=\"DAV:\"><prop><x>&b;</x></prop></propfind>";
        let file = "<!DOCTYPE a [<!ENTITY a SYSTEM \"file:///etc/passwd\">]>\
                    <propfind xmlns=\"DAV:\"><prop><x>&a;</x></prop></propfind>";
        let deep = "<a>".repeat(10_000);
        let many = named(&"<x:y/>".repeat(5_000));
        let wide = format!("<propfind xmlns=\"DAV:\" {}/>", "a='1' ".repeat(5_000));
        for body in [bomb, file, &deep, &many, &wide, "\u{1}", "<a>\u{ffff}</a>"] {
            assert_eq!(find(server, "/", "0", body).0, 400, "{body:.80}");
        }
        assert_eq!(find(server, "/", "0", &"x".repeat(100_000)).0, 413);
        let mut client = server.client();
        client.send("PROPFIND / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
        client.send(format!("{:x}\r\n{}\r\n", 70_000, "x".repeat(70_000)));
        assert_eq!(client.response().status, 413);
    });
}

#[test]
fn mistakes() {
    refused(&site("dav_ext_methods GET;"), "invalid value \"GET\"");
    refused(&site("dav_ext_lock locks;"), "invalid parameter \"locks\"");
    refused(&site("dav_ext_lock zone=locks;"), "zero size shared memory zone \"locks\"");
    let zone = |text: &str| crate::stage::site(&format!("dav_ext_lock_zone {text}; server {{ }}"));
    refused(&zone("zone=a"), "invalid zone size \"zone=a\"");
    refused(&zone("zone=a:1k"), "is too small");
    refused(&zone("zone=a:1m timeout=x"), "invalid timeout value");
    refused(&zone("timeout=1m"), "must have \"zone\" parameter");
    refused(&zone("zone=a:1m; dav_ext_lock_zone zone=a:1m"), "duplicate zone \"a\"");
}
