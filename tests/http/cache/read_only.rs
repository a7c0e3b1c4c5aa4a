//! A cache whose file system has become read-only, as after an error of its disk: what it has is served.

use std::path::{Path, PathBuf};
use std::process::Command;

use nowait_testkit::skip::skip;
use nowait_testkit::{Driver, Origin, Server, ServerBuilder, TempDir, wait};
use serde_json::Value;

use super::{Backend, get};
use crate::stage::{asks_nginx, site};
use crate::transport::Transport;

const REPLY: &str =
    "HTTP/1.1 200 OK\nCache-Control: max-age=600\nContent-Length: 3\nConnection: close\n\nabc";

/// A file system of its own, which can be made read-only.
struct Mounted(PathBuf);

impl Mounted {
    fn or_skip(at: &Path) -> Option<Self> {
        std::fs::create_dir_all(at).unwrap();
        let mounted = Self(at.to_owned());
        if mount(&["-t", "tmpfs", "-o", "size=16m,mode=1777", "tmpfs"], at) {
            return Some(mounted);
        }
        std::mem::forget(mounted);
        skip("root", "only root may mount");
        None
    }

    fn set(&self, mode: &str) {
        // Files that are being written keep it writable.
        wait::until("the file system to change", wait::PATIENCE, || {
            mount(&["-o", &format!("remount,{mode}")], &self.0).then_some(())
        });
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

fn mount(options: &[&str], at: &Path) -> bool {
    let output = Command::new("mount").args(options).arg(at).output();
    output.is_ok_and(|output| output.status.success())
}

/// How the cache took part in a response, which must be right.
#[track_caller]
fn status(server: &Server, path: &str) -> String {
    let response = get(server, path);
    assert_eq!(response.status, 200, "{path}");
    response.header("X-Cache").unwrap_or_default().to_owned()
}

/// Waits until this is in the cache.
#[track_caller]
fn hits(server: &Server, path: &str) {
    wait::until("the object", wait::PATIENCE, || (status(server, path) == "HIT").then_some(()));
}

/// Whether a cache stores new objects, and why not.
fn stores(server: &Server, name: &str) -> (bool, Value) {
    // It may change between the two pages.
    wait::until("both pages to agree", wait::PATIENCE, || {
        let text = server.get(&format!("/status/caches/{name}")).text();
        let state: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(state["in_use"], true, "{state}");
        let stores = state["stores"].as_bool().unwrap();
        let line = format!("nowait_cache_stores{{cache=\"{name}\"}} {}\n", u8::from(stores));
        let agrees = server.get("/metrics").text().contains(&line);
        agrees.then(|| (stores, state["stores_nothing_because"].clone()))
    })
}

#[test]
fn hits_are_served_and_nothing_is_stored() {
    if asks_nginx() {
        return;
    }
    for backend in Backend::of("") {
        for driver in [Driver::Epoll, Driver::IoUring] {
            eprintln!("backend: {backend:?}, driver: {driver:?}");
            let dir = TempDir::new("read-only");
            let Some(disk) = Mounted::or_skip(&dir.path().join("disk")) else { return };
            // Larger than what workers keep of an object.
            let (body, large) = ("b".repeat(200_000), REPLY.replace("3\n", "200000\n"));
            let large = large.replace("abc", &body);
            let new: Vec<&str> = vec![REPLY; 12];
            let replies = [&[&large[..], REPLY][..], &new].concat();
            let origin = Origin::start(backend.scripts(&replies));
            let content = "proxy_cache_path %%DISK%%/cache keys_zone=disk:1m;
                %%SERVER%%
                location / { proxy_pass http://%%ORIGIN%%; proxy_cache disk; proxy_cache_lock on; }
                location /status/ { status_api; }
                location /metrics { metrics; }";
            let site = backend.builder_for_all(content, &origin.addr().to_string());
            let mut server =
                site.variable("DISK", disk.0.display()).driver(driver).workers(2).start();
            for path in ["/large", "/small"] {
                assert_eq!(status(&server, path), "MISS");
                hits(&server, path);
            }
            assert_eq!(stores(&server, "disk"), (true, Value::Null));
            disk.set("ro");
            server.allow_log("stores no new objects");
            for round in 0..5 {
                assert_eq!(status(&server, &format!("/new/{round}")), "MISS");
                for transport in Transport::ALL {
                    let hit = transport.get(&server, "/large");
                    assert_eq!(hit.header("X-Cache"), Some("HIT"), "round {round}, {transport:?}");
                    assert!(hit.text() == body, "{transport:?}");
                    let small = transport.get(&server, "/small");
                    assert_eq!(small.header("X-Cache"), Some("HIT"), "{transport:?}");
                }
            }
            assert_eq!(status(&server, "/new/0"), "MISS", "it was not stored");
            server.wait_log("stores no new objects: its disk is read-only");
            let log = server.log();
            assert_eq!(log.matches("stores no new objects").count(), 1, "{log}");
            assert_eq!(stores(&server, "disk"), (false, "not writable".into()));
            assert!(!log.contains("Read-only file system"), "{log}");
            // The descriptors that workers keep are for recent objects; others are opened.
            std::thread::sleep(std::time::Duration::from_millis(1100));
            for transport in Transport::ALL {
                assert!(transport.get(&server, "/large").text() == body, "{transport:?}");
            }
            disk.set("rw");
            server.wait_log("stores objects again");
            assert_eq!(stores(&server, "disk"), (true, Value::Null));
            assert_eq!(status(&server, "/again"), "MISS");
            hits(&server, "/again");
            server.stop();
        }
    }
}

/// A server with an origin of its own, which has everything.
fn endless(http: &str, location: &str) -> ServerBuilder {
    site(&format!(
        "{http}
         server {{
             listen 127.0.0.1:%%PORT%%;
             location / {{
                 proxy_pass http://127.0.0.1:%%PORT_1%%;
                 proxy_cache_key $uri;
                 proxy_cache_valid 1h;
                 add_header X-Cache $upstream_cache_status;
                 {location}
             }}
             location /status/ {{ status_api; }}
             location /metrics {{ metrics; }}
         }}
         server {{ listen 127.0.0.1:%%PORT_1%%; return 200 $uri; }}"
    ))
}

/// The server starts, and its cache serves what an earlier one has stored, whether it finds the index of
/// that one or not.
#[test]
fn a_server_starts_on_a_read_only_disk() {
    if asks_nginx() {
        return;
    }
    for driver in [Driver::Epoll, Driver::IoUring] {
        for saved in [true, false] {
            eprintln!("driver: {driver:?}, index saved: {saved}");
            let dir = TempDir::new("read-only");
            let Some(disk) = Mounted::or_skip(&dir.path().join("disk")) else { return };
            let zone = "proxy_cache_path %%DISK%%/cache levels=1:2 keys_zone=disk:1m;";
            let builder = endless(zone, "proxy_cache disk;")
                .variable("DISK", disk.0.display())
                .driver(driver)
                .workers(2);
            let server = builder.clone().start();
            for path in ["/a", "/b"] {
                assert_eq!(status(&server, path), "MISS");
                hits(&server, path);
            }
            assert!(server.quit().success());
            if !saved {
                std::fs::remove_file(disk.0.join("cache/.nowait-index")).unwrap();
            }
            disk.set("ro");
            let server = builder.clone().allow_log("stores no new objects").start();
            for path in ["/a", "/b"] {
                hits(&server, path);
            }
            // Until it is noticed, another client may share what is being fetched.
            assert_eq!(status(&server, "/new"), "MISS");
            server.wait_log("stores no new objects: its disk is read-only");
            assert_eq!(stores(&server, "disk"), (false, "not writable".into()));
            wait::until("the fetch to end", wait::PATIENCE, || {
                (status(&server, "/new") == "MISS").then_some(())
            });
            assert_eq!(status(&server, "/new"), "MISS");
            assert!(!server.log().contains("Read-only file system"), "{}", server.log());
            disk.set("rw");
            server.wait_log("stores objects again");
            hits(&server, "/new");
            assert!(server.quit().success());
        }
    }
}

/// Either tier serves what it has; new objects go to the one that can be written.
#[test]
fn a_tier_of_which_one_is_read_only() {
    if asks_nginx() {
        return;
    }
    for driver in [Driver::Epoll, Driver::IoUring] {
        for sealed in ["fast", "slow"] {
            eprintln!("driver: {driver:?}, read-only: {sealed}");
            let dir = TempDir::new("read-only");
            let Some(disk) = Mounted::or_skip(&dir.path().join("disk")) else { return };
            let path = |name: &str| if name == sealed { "%%DISK%%" } else { "%%DIR%%" };
            let zones = format!(
                "proxy_cache_path {}/fast keys_zone=fast:1m tier=slow;
                 proxy_cache_path {}/slow keys_zone=slow:1m;",
                path("fast"),
                path("slow")
            );
            let server = endless(&zones, "proxy_cache fast;")
                .variable("DISK", disk.0.display())
                .driver(driver)
                .workers(2)
                .allow_log("stores no new objects")
                .start();
            for path in ["/a", "/b"] {
                assert_eq!(status(&server, path), "MISS");
                hits(&server, path);
            }
            // It is copied forward at its second use.
            let objects = |name: &str| {
                let text = server.get(&format!("/status/caches/{name}/objects")).text();
                text.trim().parse::<u64>().unwrap()
            };
            wait::until("a copy", wait::PATIENCE, || {
                assert_eq!(status(&server, "/a"), "HIT");
                (objects("fast") > 0).then_some(())
            });
            disk.set("ro");
            for round in 0..5 {
                for path in ["/a", "/b"] {
                    assert_eq!(status(&server, path), "HIT", "{path}");
                }
                status(&server, &format!("/new/{round}"));
            }
            hits(&server, "/new");
            // The slow one is asked to store at once, the fast one when there is something to copy.
            wait::until("it to be noticed", wait::PATIENCE, || {
                let round = objects("slow") + objects("fast");
                hits(&server, &format!("/more/{round}"));
                (!stores(&server, sealed).0).then_some(())
            });
            let other = if sealed == "fast" { "slow" } else { "fast" };
            assert_eq!(stores(&server, other), (true, Value::Null));
            disk.set("rw");
            server.wait_log("stores objects again");
            hits(&server, "/again");
            assert!(server.quit().success());
        }
    }
}
