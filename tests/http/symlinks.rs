//! `disable_symlinks`.

use std::os::unix::fs::{chown, lchown, symlink};

use nowait_testkit::check_on;

use crate::stage::{on_each_driver, server};

#[test]
fn links_are_refused_where_the_operator_says_so() {
    let site = server(
        r#"
        location /off/ { alias %%DIR%%/www/; }
        location /on/ { alias %%DIR%%/www/; disable_symlinks on; }
        location /from/ { alias %%DIR%%/www/; disable_symlinks on from=%%DIR%%/www/linked; }
        location /fromvar/ { alias %%DIR%%/www/; disable_symlinks on from=$arg_from; }
        location /owner/ { alias %%DIR%%/www/; disable_symlinks if_not_owner; }
        location /try/ { root %%DIR%%/none; disable_symlinks on; try_files /x =404; }
        "#,
    )
    .file("www/file", "F")
    .file("www/dir/file", "D")
    .file("elsewhere/secret", "S")
    .file("www/index/x", "");
    on_each_driver(&site, |server| {
        let www = server.dir().join("www");
        symlink("../elsewhere/secret", www.join("link")).unwrap();
        symlink("dir", www.join("linked")).unwrap();
        symlink("nowhere", www.join("broken")).unwrap();
        symlink("loop", www.join("loop")).unwrap();
        symlink("../file", www.join("dir/up")).unwrap();
        symlink("../../elsewhere/secret", www.join("index/index.html")).unwrap();
        let root = rustix_is_root();
        if root {
            // A link of one user to a file of another.
            lchown(www.join("link"), Some(65534), None).unwrap();
            chown(server.dir().join("elsewhere/secret"), Some(1), None).unwrap();
        }
        let on_the_way = if crate::stage::asks_nginx() { "404" } else { "403" };
        for (path, expected) in [
            ("/off/link", "200\n\nS"),
            ("/off/linked/file", "200\n\nD"),
            ("/off/broken", "404"),
            ("/on/file", "200\n\nF"),
            ("/on/dir/file", "200\n\nD"),
            ("/on/link", "403"),
            ("/on/linked/file", on_the_way),
            ("/on/linked/", on_the_way),
            ("/on/index/", "403"),
            ("/on/none", "404"),
            ("/on/dir/", "403"),
            ("/from/linked/file", "200\n\nD"),
            ("/from/link", "403"),
            ("/from/linked/up", "403"),
            ("/owner/file", "200\n\nF"),
            ("/owner/linked/file", "200\n\nD"),
            ("/try/a", "404"),
        ] {
            eprintln!("{path}");
            check_on(server, &format!("GET {path} HTTP/1.1\nHost: x"), expected);
        }
        if root {
            check_on(server, "GET /owner/link HTTP/1.1\nHost: x", "403");
        }
        let from = format!("{}/linked", www.display());
        for (from, expected) in
            [(from.as_str(), "200\n\nD"), ("/other", on_the_way), ("", on_the_way)]
        {
            let exchange = format!("GET /fromvar/linked/file?from={from} HTTP/1.1\nHost: x");
            check_on(server, &exchange, expected);
        }
        // A loop is an error of the operator's, and no endless one.
        let status = server.get("/off/loop").status;
        assert!(matches!(status, 403 | 404 | 500), "{status}");
    });
}

#[test]
fn links_may_stay_inside() {
    let site = server(
        r#"
        location / { root %%DIR%%/www; disable_symlinks outside; autoindex on; }
        location /hidden/ { alias %%DIR%%/www/; disable_symlinks outside hidden; autoindex on; }
        location /cached/ { alias %%DIR%%/www/; disable_symlinks outside hidden;
                            open_file_cache max=10; }
        location /from/ { alias %%DIR%%/www/; disable_symlinks outside from=%%DIR%%; }
        location /other/ { alias %%DIR%%/www/; disable_symlinks outside from=/other; }
        location /random/ { alias %%DIR%%/random/; disable_symlinks outside; random_index on; }
        location ~ ^/captured/(.+)$ { alias %%DIR%%/www/$1; disable_symlinks outside; }
        "#,
    )
    .file("www/file", "F")
    .file("www/dir/file", "D")
    .file("www/.secret/file", "H")
    .file("random/.keep", "")
    .file("elsewhere/secret", "S");
    on_each_driver(&site, |server| {
        let www = server.dir().join("www");
        symlink("../elsewhere/secret", www.join("out")).unwrap();
        symlink("../elsewhere", www.join("out-dir")).unwrap();
        symlink("dir", www.join("linked")).unwrap();
        symlink(www.join("dir/file"), www.join("absolute")).unwrap();
        symlink(".secret/file", www.join("dotted")).unwrap();
        symlink("nowhere", www.join("broken")).unwrap();
        symlink("../elsewhere/secret", server.dir().join("random/only")).unwrap();
        for (path, expected) in [
            ("/file", "200\n\nF"),
            ("/linked/file", "200\n\nD"),
            ("/absolute", "200\n\nD"),
            ("/dotted", "200\n\nH"),
            ("/broken", "404"),
            ("/out", "403"),
            ("/out-dir/secret", "403"),
            ("/out-dir/", "403"),
            ("/hidden/absolute", "200\n\nD"),
            ("/hidden/dotted", "403"),
            ("/hidden/out", "403"),
            ("/cached/linked/file", "200\n\nD"),
            ("/cached/dotted", "403"),
            ("/cached/out", "403"),
            ("/from/out", "200\n\nS"),
            ("/other/file", "200\n\nF"),
            ("/other/linked/file", "403"),
            // Links in the root are trusted: here, all.
            ("/captured/out", "200\n\nS"),
            ("/random/", "403"),
        ] {
            eprintln!("{path}");
            // Once from the disk, then from memory.
            for _ in 0..3 {
                check_on(server, &format!("GET {path} HTTP/1.1\nHost: x"), expected);
            }
        }
        let names = |path: &str| {
            let list = server.get(path).text();
            ["out", "out-dir/", "linked/", "absolute", "dotted", "broken"]
                .map(|name| list.contains(&format!("\"{name}\"")))
        };
        assert_eq!(names("/"), [false, false, true, true, true, true]);
        assert_eq!(names("/hidden/"), [false, false, true, true, false, true]);
        // A changed link takes effect at once.
        std::fs::remove_file(www.join("absolute")).unwrap();
        symlink("../elsewhere/secret", www.join("absolute")).unwrap();
        check_on(server, "GET /absolute HTTP/1.1\nHost: x", "403");
    });
}

#[test]
fn the_whole_path_can_be_trusted_and_a_slash_wants_a_directory() {
    let site = server(
        r#"
        location ~ ^/exact/(.+)$ { alias %%DIR%%/www/$1; disable_symlinks on from=$document_root; }
        location ~ ^/slash/(.+)$ { alias %%DIR%%/www/$1/; disable_symlinks if_not_owner; }
        "#,
    )
    .file("www/file", "F")
    .allow_log("is not a directory");
    on_each_driver(&site, |server| {
        symlink("file", server.dir().join("www/link")).unwrap();
        check_on(server, "GET /exact/link HTTP/1.1\nHost: x", "200\n\nF");
        check_on(server, "GET /slash/file HTTP/1.1\nHost: x", "404");
        check_on(server, "GET /slash/link HTTP/1.1\nHost: x", "404");
    });
}

fn rustix_is_root() -> bool {
    std::fs::metadata("/proc/self").is_ok_and(|m| std::os::unix::fs::MetadataExt::uid(&m) == 0)
}
