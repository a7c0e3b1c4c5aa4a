//! `open_file_cache` and its family.

use std::fs;

use nowait_testkit::wait;

use crate::stage::{asks_nginx, on_each_driver, server};

const LONG: &str = "open_file_cache max=100 inactive=100s; open_file_cache_valid 100s;";

/// Replaces a file as a careful deployment does: by another file, in one step.
fn replace(server: &nowait_testkit::Server, name: &str, content: &str) {
    let new = server.write("html/.new", content);
    fs::rename(new, server.dir().join("html").join(name)).unwrap();
}

#[test]
fn an_open_file_is_used_until_it_has_to_be_checked() {
    let site = server(LONG).file("html/a", "old");
    on_each_driver(&site, |server| {
        assert_eq!(server.get("/a").text(), "old");
        replace(server, "a", "newer");
        assert_eq!(server.get("/a").text(), "old");
        fs::remove_file(server.dir().join("html/a")).unwrap();
        assert_eq!(server.get("/a").text(), "old");
    });
}

#[test]
fn an_open_file_that_is_in_memory_is_used_as_long() {
    let builder =
        server(&format!("{LONG} location /status/ {{ open_file_cache off; status_api; }}"))
            .file("html/a", "old");
    let hits = |server: &nowait_testkit::Server| {
        let all = server.get("/status/resident_files").text();
        let all: serde_json::Value = serde_json::from_str(&all).unwrap();
        all["hits"].as_u64().unwrap()
    };
    on_each_driver(&builder, |server| {
        let from_memory = || {
            let before = hits(server);
            assert_eq!(server.get("/a").text(), "old");
            (hits(server) > before).then_some(())
        };
        wait::until("a response from memory", wait::PATIENCE, from_memory);
        replace(server, "a", "newer");
        for _ in 0..3 {
            assert_eq!(server.get("/a").text(), "old");
        }
        fs::remove_file(server.dir().join("html/a")).unwrap();
        assert_eq!(server.get("/a").text(), "old");
    });
}

#[test]
fn a_replaced_file_is_noticed_when_it_is_checked() {
    let site = server("open_file_cache max=100 inactive=100s; open_file_cache_valid 1s;")
        .file("html/a", "old");
    on_each_driver(&site, |server| {
        assert_eq!(server.get("/a").text(), "old");
        replace(server, "a", "newer");
        let look = || (server.get("/a").text() == "newer").then_some(());
        wait::until("the new file", wait::PATIENCE, look);
        // Never half of one and half of the other.
        let response = server.get("/a");
        assert_eq!(response.header("content-length"), Some("5"));
        fs::remove_file(server.dir().join("html/a")).unwrap();
        let look = || (server.get("/a").status == 404).then_some(());
        wait::until("the file to be gone", wait::PATIENCE, look);
    });
}

#[test]
fn errors_are_kept_if_wanted() {
    let site = server(&format!(
        "{LONG} location /kept/ {{ open_file_cache_errors on; }} location /not/ {{ }}"
    ))
    .file("html/kept/x", "")
    .file("html/not/x", "");
    on_each_driver(&site, |server| {
        for dir in ["kept", "not"] {
            assert_eq!(server.get(&format!("/{dir}/a")).status, 404);
            server.write(&format!("html/{dir}/a"), "A");
        }
        assert_eq!(server.get("/kept/a").status, 404);
        assert_eq!(server.get("/not/a").text(), "A");
    });
}

#[test]
fn a_file_must_be_used_often_enough() {
    let site = server(&format!("{LONG} open_file_cache_min_uses 3;")).file("html/a", "old");
    on_each_driver(&site, |server| {
        assert_eq!(server.get("/a").text(), "old");
        assert_eq!(server.get("/a").text(), "old");
        assert_eq!(server.get("/a").text(), "old");
        // From the third use on it is kept open.
        replace(server, "a", "newer");
        assert_eq!(server.get("/a").text(), "old");
    });
}

#[test]
fn the_cache_can_be_off_in_one_place() {
    let site = server(&format!("{LONG} location /off/ {{ open_file_cache off; }}"))
        .file("html/off/a", "old");
    on_each_driver(&site, |server| {
        assert_eq!(server.get("/off/a").text(), "old");
        replace(server, "off/a", "newer");
        assert_eq!(server.get("/off/a").text(), "newer");
    });
}

#[test]
fn the_number_of_entries_is_limited() {
    let mut site = server("open_file_cache max=10 inactive=100s; open_file_cache_valid 100s;");
    for n in 0..100 {
        site = site.file(&format!("html/{n}"), n.to_string());
    }
    on_each_driver(&site, |server| {
        let mut client = server.client();
        for n in (0..100).chain(0..100) {
            assert_eq!(client.get(&format!("/{n}")).text(), n.to_string());
        }
        let Some(open) = open_files(server, "/html/") else { return };
        assert!(open <= 12, "{open} files are open");
    });
}

/// How many descriptors the server's processes have for paths with this part, if that can be seen.
fn open_files(server: &nowait_testkit::Server, part: &str) -> Option<usize> {
    let open = server.descriptors()?;
    Some(open.iter().filter(|file| file.target.to_string_lossy().contains(part)).count())
}

#[test]
fn directories_and_indexes_go_through_it() {
    let site = server(&format!("{LONG} location /t/ {{ try_files $uri /t/file =404; }}"))
        .file("html/index.html", "index")
        .file("html/t/file", "T");
    on_each_driver(&site, |server| {
        for _ in 0..3 {
            assert_eq!(server.get("/").text(), "index");
            assert_eq!(server.get("/t").status, 301);
            assert_eq!(server.get("/t/x").text(), "T");
        }
    });
}

#[test]
fn each_line_has_a_cache_of_its_own() {
    let site = server(
        "open_file_cache max=100 inactive=100s; open_file_cache_valid 100s;
         location /small/ { open_file_cache max=1 inactive=100s; }
         location /large/ { }
         location /also/ { }",
    )
    .file("html/small/a", "a")
    .file("html/small/b", "b")
    .file("html/large/a", "old")
    .file("html/also/a", "old");
    on_each_driver(&site, |server| {
        for path in ["/large/a", "/also/a"] {
            assert_eq!(server.get(path).text(), "old");
        }
        for _ in 0..5 {
            assert_eq!(server.get("/small/a").text(), "a");
            assert_eq!(server.get("/small/b").text(), "b");
        }
        for path in ["large/a", "also/a"] {
            replace(server, path, "newer");
            assert_eq!(server.get(&format!("/{path}")).text(), "old", "nothing took its place");
        }
        // In the small one only the last file is left.
        replace(server, "small/b", "newer");
        assert_eq!(server.get("/small/b").text(), "b");
        replace(server, "small/a", "newer");
        assert_eq!(server.get("/small/a").text(), "newer");
    });
}

#[test]
fn locations_below_a_line_share_its_cache() {
    let site = server(
        "open_file_cache max=1 inactive=100s; open_file_cache_valid 100s;
         location /x/ { } location /y/ { }",
    )
    .file("html/x/a", "old")
    .file("html/y/a", "y");
    on_each_driver(&site, |server| {
        assert_eq!(server.get("/x/a").text(), "old");
        assert_eq!(server.get("/y/a").text(), "y");
        replace(server, "x/a", "newer");
        assert_eq!(server.get("/x/a").text(), "newer");
    });
}

#[test]
fn the_entry_that_was_used_last_stays() {
    let mut site = server("open_file_cache max=2 inactive=100s; open_file_cache_valid 100s;")
        .file("html/hot", "old");
    for n in 0..20 {
        site = site.file(&format!("html/{n}"), "x");
    }
    on_each_driver(&site, |server| {
        assert_eq!(server.get("/hot").text(), "old");
        replace(server, "hot", "newer");
        for n in 0..20 {
            assert_eq!(server.get(&format!("/{n}")).text(), "x");
            assert_eq!(server.get("/hot").text(), "old", "after {n} others");
        }
    });
}

#[test]
fn files_that_nobody_asks_for_are_closed() {
    // nginx closes them when it is asked for something else.
    if asks_nginx() {
        return;
    }
    let mut site = server("open_file_cache max=1000 inactive=1s; open_file_cache_valid 100s;");
    for n in 0..300 {
        site = site.file(&format!("html/{n}"), "x");
    }
    on_each_driver(&site, |server| {
        let mut client = server.client();
        for n in 0..300 {
            assert_eq!(client.get(&format!("/{n}")).text(), "x");
            fs::remove_file(server.dir().join(format!("html/{n}"))).unwrap();
        }
        drop(client);
        let closed = || open_files(server, "/html/").is_none_or(|open| open == 0).then_some(());
        wait::until("all files to be closed", wait::PATIENCE, closed);
    });
}

#[test]
fn a_reload_begins_anew() {
    let site = server(LONG).file("html/a", "old");
    on_each_driver(&site, |server| {
        assert_eq!(server.get("/a").text(), "old");
        fs::remove_file(server.dir().join("html/a")).unwrap();
        server.reload();
        let gone = || (server.get("/a").status == 404).then_some(());
        wait::until("the file to be gone", wait::PATIENCE, gone);
        let closed = || open_files(server, "/html/").is_none_or(|open| open == 0).then_some(());
        wait::until("its descriptor to be closed", wait::PATIENCE, closed);
    });
}
