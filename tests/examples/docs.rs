//! The configurations on the pages of `docs/`: complete ones have no finding, and those that protect something
//! do so.

use std::fs;
use std::path::Path;
use std::process::Command;

use nowait_testkit::{Origin, TempDir};

use super::example;
use super::php::php;

/// The configurations on all pages, with the names of these.
fn all() -> Vec<(String, String)> {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let mut found = Vec::new();
    for entry in fs::read_dir(docs).expect("the folder of the pages") {
        let path = entry.expect("an entry of it").path();
        if path.extension().is_none_or(|extension| extension != "md") {
            continue;
        }
        let page = path.file_name().expect("a name").to_string_lossy().into_owned();
        let text = fs::read_to_string(&path).expect("a readable page");
        for block in text.split("```nginx\n").skip(1) {
            let (block, _) = block.split_once("```").expect("the end of the block");
            found.push((page.clone(), block.to_owned()));
        }
    }
    found
}

/// The complete ones, which begin a block themselves.
fn complete() -> Vec<(String, String)> {
    let begins = |line: &str| ["http {", "stream {"].contains(&line);
    all().into_iter().filter(|(_, text)| text.lines().any(begins)).collect()
}

/// The configuration of a page in which this stands.
pub(super) fn of(page: &str, part: &str) -> String {
    let mut all = all().into_iter();
    let found = all.find(|(name, text)| name == page && text.contains(part));
    found.expect("a configuration on the page").1
}

#[test]
fn complete_ones_have_no_finding() {
    let dir = TempDir::new("docs");
    let found = complete();
    assert!(found.len() > 15, "{} configurations", found.len());
    for (page, text) in found {
        dir.write("nginx.conf", &text);
        let lint = Command::new(env!("CARGO_BIN_EXE_nowait"))
            .arg("lint")
            .arg(dir.path().join("nginx.conf"))
            .output()
            .expect("the program starts");
        let said = String::from_utf8_lossy(&lint.stderr);
        assert!(lint.status.success(), "{page}: {said}\n{text}");
    }
}

#[test]
fn films_of_members_need_a_link() {
    const LINK: &str = "md5=4US5MMEGn3FqG4CkGIatig&expires=4102444800";
    let thumbs = nowait_testkit::ports::free_port();
    let text = of("media.md", "/members/")
        .replace("listen 80;", "listen %%PORT%%;")
        .replace("127.0.0.1:8081", &format!("127.0.0.1:{thumbs}"))
        .replace("origin.example.org", "127.0.0.1:1");
    let server = example(&text)
        .file("srv/media/film.mp4", "free")
        .file("srv/media/members/film.mp4", "paid")
        .file("var/cache/.keep", "")
        .start();
    assert_eq!(server.get("/film.mp4").text(), "free");
    assert_eq!(server.get(&format!("/members/film.mp4?{LINK}")).text(), "paid");
    for path in
        ["/members/film.mp4", "//members/film.mp4", "/members/x/../film.mp4", "/members%2ffilm.mp4"]
    {
        assert_eq!(server.get(path).status, 403, "{path}");
    }
    // A link is valid for one file, and for one time.
    assert_eq!(server.get(&format!("/members/other.mp4?{LINK}")).status, 403);
    let later = LINK.replace("4102444800", "4102444801");
    assert_eq!(server.get(&format!("/members/film.mp4?{later}")).status, 403);
    assert!(server.quit().success());
}

/// Neither of these reaches PHP, or shows a script.
#[test]
fn scripts_that_nobody_may_run() {
    let pages = complete().into_iter().filter(|(page, _)| page == "fastcgi.md");
    for (at, (_, text)) in pages.enumerate() {
        let origin = Origin::start([Vec::new()]);
        let text = text
            .replace("listen 80;", "listen %%PORT%%;")
            .replace("unix:/run/php/php-fpm.sock", &origin.addr().to_string());
        let site = if at == 0 { "srv/app/public" } else { "srv/wordpress" };
        let server = example(&text)
            .file(&format!("{site}/index.php"), "<?php")
            .file(&format!("{site}/.hidden.php"), "<?php")
            .file(&format!("{site}/.git/hook.php"), "<?php")
            .file(&format!("{site}/uploads/2026/picture.jpg"), "picture")
            .file(&format!("{site}/uploads/2026/picture.php"), "<?php")
            .start();
        assert_eq!(server.get("/uploads/2026/picture.jpg").text(), "picture");
        for path in ["/.hidden.php", "/.git/hook.php", "/.git/"] {
            assert_eq!(server.get(path).status, 403, "{path} of {text}");
        }
        for path in ["/none.php", "/uploads/2026/picture.jpg/x.php"] {
            let status = server.get(path).status;
            assert!([403, 404].contains(&status), "{path}: {status} of {text}");
        }
        if at == 1 {
            assert_eq!(server.get("/uploads/2026/picture.php").status, 403);
        }
        assert!(origin.received().is_empty(), "{text}");
        server.stop();
    }
}

/// The cache for WordPress, put into the site as the page says.
#[test]
fn cookies_of_one_visitor() {
    let origin = Origin::start([php(&[
        "Set-Cookie: visitor=1\r\n\r\nfor one",
        "Set-Cookie: visitor=2\r\n\r\nfor another",
        "Cache-Control: no-cache\r\n\r\nfor all",
    ])]);
    let php = "include fastcgi.conf;\n";
    let text = of("fastcgi.md", "root /srv/wordpress")
        .replace("include mime.types;\n", &of("fastcgi.md", "fastcgi_cache_path"))
        .replace(php, &format!("{php}{}", of("fastcgi.md", "fastcgi_ignore_headers")))
        // The application takes one connection.
        .replace("php-fpm.sock;", "php-fpm.sock; keepalive 1;")
        .replace(php, &format!("{php}fastcgi_keep_conn on;\n"))
        .replace("listen 80;", "listen %%PORT%%;")
        .replace("unix:/run/php/php-fpm.sock", &origin.addr().to_string());
    let server = example(&text)
        .file("srv/wordpress/index.php", "<?php")
        .file("var/cache/wordpress/.keep", "")
        .start();
    for (path, text, cookie) in [
        ("/a/", "for one", Some("visitor=1")),
        ("/a/", "for another", Some("visitor=2")),
        ("/b/", "for all", None),
        ("/b/", "for all", None),
    ] {
        let response = server.get(path);
        assert_eq!((&*response.text(), response.header("set-cookie")), (text, cookie), "{path}");
    }
    server.stop();
}

#[test]
fn files_beside_those_of_an_application() {
    let text = of("uwsgi.md", "/media/").replace("listen 80;", "listen %%PORT%%;");
    let server = example(&text)
        .file("srv/site/media/a.txt", "of users")
        .file("srv/site/static/a.txt", "of the site")
        .file("srv/site/media-private/a.txt", "of nobody")
        .file("srv/site/settings.py", "secret")
        .start();
    assert_eq!(server.get("/media/a.txt").text(), "of users");
    assert_eq!(server.get("/static/a.txt").text(), "of the site");
    for path in ["/media-private/a.txt", "/media../settings.py", "/static/../settings.py"] {
        // The application's, which does not run.
        assert_eq!(server.get(path).status, 502, "{path}");
    }
    server.stop();
}
