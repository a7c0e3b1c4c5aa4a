//! `resident_files`: small files in use stay in memory, and nothing outdated is ever sent.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use nowait_testkit::{Server, wait};
use serde_json::Value;

use crate::stage::{ask, on_each_driver, refused, server, site};

const STATUS: &str = "location /status/ { status_api; }";

fn counter(server: &Server, name: &str) -> u64 {
    let all: Value = serde_json::from_str(&server.get("/status/resident_files").text()).unwrap();
    all[name].as_u64().unwrap_or_else(|| panic!("no {name} in {all}"))
}

/// Asks until responses come from memory.
fn settle(server: &Server, target: &str) {
    let before = counter(server, "hits");
    let look = || {
        server.get(target);
        (counter(server, "hits") > before).then_some(())
    };
    wait::until("a resident file", wait::PATIENCE, look);
}

#[test]
fn a_request_after_a_change_sees_it() {
    let builder = server(&format!(
        "keepalive_requests 100000; {STATUS} location /tried/ {{ try_files $uri /fallback =404; }}"
    ))
    .file("html/site/one/a", "first")
    .file("html/site/two/a", "second")
    .file("html/fallback", "fallback");
    on_each_driver(&builder, |server| {
        let html = server.dir().join("html");
        symlink("one", html.join("site/now")).unwrap();
        fs::create_dir(html.join("tried")).unwrap();
        let page = html.join("site/now/a");
        let mut client = server.client();
        let mut from_memory = 0;
        for round in 0..300 {
            // Some rounds change what has just been read from the disk, the others what is resident.
            for _ in 0..round % 4 {
                let before = counter(server, "hits");
                client.get("/site/now/a");
                client.get("/tried/b");
                from_memory += counter(server, "hits") - before;
            }
            change(&html, &page, round);
            let response = client.get("/site/now/a");
            match fs::read_to_string(&page) {
                Ok(text) => assert_eq!((response.status, response.text()), (200, text), "{round}"),
                Err(_) => assert_eq!(response.status, 404, "{round}"),
            }
            let tried = html.join("tried/b");
            let text = fs::read_to_string(&tried).unwrap_or_else(|_| "fallback".into());
            assert_eq!(client.get("/tried/b").text(), text, "{round}");
        }
        assert!(from_memory > 10, "{from_memory} responses came from memory");
    });
}

fn change(html: &Path, page: &Path, round: usize) {
    let text = format!("of round {round}");
    let link = |to: &str| {
        symlink(to, html.join("site/.new")).unwrap();
        fs::rename(html.join("site/.new"), html.join("site/now")).unwrap();
    };
    match round % 9 {
        0 => fs::write(page, text).unwrap(),
        1 => {
            fs::write(html.join(".new"), text).unwrap();
            fs::rename(html.join(".new"), page).unwrap();
        }
        2 => link("two"),
        3 => fs::remove_file(page).unwrap(),
        4 => fs::write(page, text).unwrap(),
        5 => {
            fs::hard_link(page, html.join("other")).unwrap();
            fs::write(html.join("other"), text).unwrap();
            fs::remove_file(html.join("other")).unwrap();
        }
        6 => fs::write(html.join("tried/b"), text).unwrap(),
        7 => fs::remove_file(html.join("tried/b")).unwrap(),
        _ => link("one"),
    }
}

#[test]
fn everything_that_serves_a_file_works_from_memory() {
    let page = "<p>0123456789</p>".repeat(40);
    let builder = server(&format!(
        "{STATUS} gzip on; gzip_min_length 1; gzip_static on; location /ssi/ {{ ssi on; }}"
    ))
    .file("html/dir/index.html", page.clone())
    .file("html/a.html.gz", "not really gzip")
    .file("html/ssi/a.html", "<!--#include virtual=\"/dir/index.html\" -->!")
    .file("html/empty.html", "");
    on_each_driver(&builder, |server| {
        for target in ["/dir/index.html", "/ssi/a.html", "/empty.html"] {
            settle(server, target);
        }
        settle(server, "/dir/");
        settle(server, "/dir");
        settle(server, "/none");
        for _ in 0..2 {
            assert_eq!(server.get("/dir/").text(), page);
            assert_eq!(server.get("/dir").status, 301);
            assert_eq!(server.get("/none").status, 404);
            assert_eq!(server.get("/ssi/a.html").text(), format!("{page}!"));
            assert_eq!(server.get("/empty.html").text(), "");
            let part = ask(server, "/dir/index.html", &["Range: bytes=3-5"]);
            assert_eq!((part.status, part.text()), (206, "012".into()));
            let gzip = ask(server, "/dir/index.html", &["Accept-Encoding: gzip"]);
            assert_eq!(gzip.header("content-encoding"), Some("gzip"));
            let whole = server.get("/dir/index.html");
            let etag = whole.header("etag").unwrap().to_owned();
            let again = ask(server, "/dir/index.html", &[&format!("If-None-Match: {etag}")]);
            assert_eq!(again.status, 304);
        }
    });
}

#[test]
fn a_text_is_compressed_once() {
    let text = "<p>0123456789</p>".repeat(400);
    let settings = "gzip_min_length 1; gzip_comp_level";
    let builder = server(&format!(
        "{STATUS} location /one/ {{ alias %%DIR%%/html/; gzip on; {settings} 1; }}
         location /nine/ {{ alias %%DIR%%/html/; gzip on; {settings} 9; }}
         location /both/ {{ alias %%DIR%%/html/; gzip on; ssi on; {settings} 1; }}
         location /br/ {{ alias %%DIR%%/html/; brotli on; }}"
    ))
    .file("html/page.html", text.clone())
    .file("html/large.html", text.repeat(8));
    on_each_driver(&builder, |server| {
        let gzip = |target: &str| ask(server, target, &["Accept-Encoding: gzip, br"]);
        let settled = |target: &str| {
            let before = counter(server, "variants");
            wait::until("a compressed text from memory", wait::PATIENCE, || {
                let response = gzip(target);
                (counter(server, "variants") > before).then_some(response)
            })
        };
        let first = gzip("/one/page.html");
        let kept = settled("/one/page.html");
        assert_eq!(kept.header("content-encoding"), Some("gzip"));
        assert_eq!(kept.body, first.body);
        assert_eq!(kept.header("etag"), first.header("etag"));
        assert_ne!(settled("/nine/page.html").body, kept.body, "a level of its own");
        assert_eq!(settled("/br/page.html").header("content-encoding"), Some("br"));
        settled("/one/large.html");

        // Parts, heads and other clients are not concerned; nor is what a filter changes.
        assert_eq!(server.get("/one/page.html").text(), text);
        let part = ask(server, "/one/page.html", &["Range: bytes=3-5"]);
        assert_eq!((part.status, part.text()), (206, "012".into()));
        let variants = counter(server, "variants");
        assert_eq!(gzip("/both/page.html").header("content-encoding"), Some("gzip"));
        assert_eq!(counter(server, "variants"), variants);

        // It goes with the file.
        let path = server.dir().join("html/page.html");
        fs::write(&path, &text[..1700]).unwrap();
        let changed = gzip("/one/page.html");
        assert!(changed.body.len() < kept.body.len(), "{}", changed.body.len());
        assert_ne!(changed.header("etag"), kept.header("etag"));
        fs::write(&path, &text).unwrap();
    });
}

#[test]
fn permissions_count_at_once() {
    let builder = server(STATUS).file("html/a", "text");
    on_each_driver(&builder, |server| {
        settle(server, "/a");
        let path = server.dir().join("html/a");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        let changed = counter(server, "changed");
        server.get("/a");
        assert!(counter(server, "changed") > changed);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    });
}

#[test]
fn what_is_kept_can_be_restricted() {
    let builder = server(&format!(
        "{STATUS} resident_files_max_size 10; location /off/ {{ resident_files off; }}"
    ))
    .file("html/off/a", "text")
    .file("html/small", "text")
    .file("html/large", "longer than ten bytes");
    on_each_driver(&builder, |server| {
        settle(server, "/small");
        let hits = counter(server, "hits");
        for _ in 0..5 {
            server.get("/off/a");
            server.get("/large");
        }
        assert_eq!(counter(server, "hits"), hits);
    });
    let none = site(&format!(
        "resident_files_memory 0; server {{ listen 127.0.0.1:%%PORT%%; root %%DIR%%/html; {STATUS} }}"
    ))
    .file("html/a", "text");
    on_each_driver(&none, |server| {
        for _ in 0..5 {
            server.get("/a");
        }
        assert_eq!(counter(server, "admitted"), 0);
    });
}

/// A loop logs what has happened while it is awake.
fn is_logged(server: &Server, text: &str) {
    wait::until(text, wait::PATIENCE, || {
        server.get("/status/");
        server.log().contains(text).then_some(())
    });
}

#[test]
fn shortages_are_logged_and_harm_nobody() {
    let few = site(&format!(
        "resident_files_watches 1;
         server {{ listen 127.0.0.1:%%PORT%%; root %%DIR%%/html; {STATUS} }}"
    ))
    .file("html/one/a", "of one")
    .file("html/two/a", "of two");
    on_each_driver(&few, |server| {
        wait::until("refused entries", wait::PATIENCE, || {
            assert_eq!(server.get("/one/a").text(), "of one");
            assert_eq!(server.get("/two/a").text(), "of two");
            (counter(server, "refused") > 0).then_some(())
        });
        is_logged(server, "resident_files_watches or fs.inotify.max_user_watches are not enough");
    });

    // More end with one change than a loop takes at a time.
    let site = server(&format!("{STATUS} keepalive_requests 1000000;"));
    let many = (0..300).fold(site, |all, n| all.file(&format!("html/site/{n}"), "old"));
    on_each_driver(&many, |server| {
        let mut client = server.client();
        wait::until("resident files", wait::PATIENCE, || {
            (0..300).for_each(|n| drop(client.get(&format!("/site/{n}"))));
            (counter(server, "entries") >= 300).then_some(())
        });
        let site = server.dir().join("html/site");
        fs::rename(&site, site.with_file_name("away")).unwrap();
        for n in 0..300 {
            assert_eq!(client.get(&format!("/site/{n}")).status, 404, "{n}");
        }
        assert!(counter(server, "overflows") > 0);
        is_logged(server, "all resident files were dropped");
        fs::rename(site.with_file_name("away"), &site).unwrap();
        assert_eq!(client.get("/site/7").text(), "old");
    });
}

#[test]
fn mistakes_are_told() {
    for (line, reason) in [
        ("resident_files maybe;", "\"resident_files\""),
        ("resident_files_max_size x;", "\"resident_files_max_size\""),
        ("resident_files_memory 1m;", "\"resident_files_memory\""),
    ] {
        refused(&server(line), reason);
    }
}
