//! Attacks by path: nothing outside of the root is ever served, and each oddity has its answer.

use nowait_testkit::check_on;

use crate::stage::{gets, on_each_driver, server};

#[test]
fn there_is_no_way_out_of_the_root() {
    let site = server(
        "location /alias/ { alias %%DIR%%/html/deep/; } location /al { alias %%DIR%%/html/deep/; }",
    )
    .file("secret", "SECRET")
    .file("html/a", "A")
    .file("html/secretive", "")
    .file("html/deep/b", "B");
    on_each_driver(&site, |server| {
        for target in [
            "/../secret",
            "/%2e%2e/secret",
            "/.%2e/secret",
            "/%2E%2E%2Fsecret",
            "/..%2fsecret",
            "/..%5csecret",
            "/..\\secret",
            "/a/../../secret",
            "/a/..%2f..%2fsecret",
            "/deep/../../secret",
            "/./../secret",
            "/.../secret",
            "/..;/secret",
            "/%252e%252e/secret",
            "/%c0%ae%c0%ae/secret",
            "/%u002e%u002e/secret",
            "/..%00/secret",
            "/a%00/../../secret",
            "//../secret",
            "/alias/../../secret",
            "/alias/%2e%2e/%2e%2e/secret",
            "/alias/..%2f..%2fsecret",
            "/al../../secret",
            "/al../../../secret",
            "/../../../../../../etc/passwd",
            "/%2e%2e/%2e%2e/%2e%2e/%2e%2e/etc/passwd",
            "http://x/../secret",
        ] {
            let mut client = server.client();
            client.send(format!("GET {target} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"));
            let response = client.response();
            assert!(matches!(response.status, 400 | 403 | 404), "{target}: {response}");
            assert!(!response.text().contains("SECRET"), "{target}");
        }
    });
}

#[test]
fn dots_and_slashes_are_resolved_before_anything_looks() {
    let site = server("location / { return 200 $uri; }");
    gets(
        &site,
        &[
            ("/a/./b", "200\n\n/a/b"),
            ("/a/.", "200\n\n/a/"),
            ("/a/..", "200\n\n/"),
            ("/a/b/../c", "200\n\n/a/c"),
            ("/a/...", "200\n\n/a/..."),
            ("/.a", "200\n\n/.a"),
            ("/..a", "200\n\n/..a"),
            ("/a%2fb", "200\n\n/a/b"),
            ("/%41%2e%2e", "200\n\n/A.."),
            ("/a%3fb?c", "200\n\n/a?b"),
            ("/a%23b", "200\n\n/a#b"),
            ("/a#b", "400"),
            ("/a?../x", "200\n\n/a"),
            ("/%", "400"),
            ("/%4", "400"),
            ("/%zz", "400"),
            ("/a%00b", "400"),
            ("/..", "400"),
            ("/a/../..", "400"),
        ],
    );
}

#[test]
fn odd_names_are_looked_for_as_they_are() {
    let long = "x".repeat(300);
    let deep = "/d".repeat(2000);
    let site = server("").file("html/back\\slash", "B").file("html/a b", "S").file("html/é", "E");
    on_each_driver(&site, |server| {
        for (target, expected) in [
            ("/back%5cslash", "200\n\nB"),
            ("/back\\slash", "200\n\nB"),
            ("/a%20b", "200\n\nS"),
            ("/%c3%a9", "200\n\nE"),
            ("/%ff%fe", "404"),
            ("/\u{e9}", "200\n\nE"),
            (&format!("/{long}"), "404"),
            (&deep, "404"),
            ("/a%0ab", "404"),
            ("/con", "404"),
            ("/a:b", "404"),
        ] {
            check_on(server, &format!("GET {target} HTTP/1.1\nHost: x"), expected);
        }
    });
}
