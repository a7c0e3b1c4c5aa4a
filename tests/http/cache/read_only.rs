//! A cache whose file system has become read-only, as after an error of its disk: what it has is served.

use std::path::{Path, PathBuf};
use std::process::Command;

use nowait_testkit::skip::skip;
use nowait_testkit::{Driver, Origin, TempDir, wait};

use super::{Backend, get};
use crate::stage::asks_nginx;
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
                location / { proxy_pass http://%%ORIGIN%%; proxy_cache disk; proxy_cache_lock on; }";
            let site = backend.builder_for_all(content, &origin.addr().to_string());
            let mut server =
                site.variable("DISK", disk.0.display()).driver(driver).workers(2).start();
            let status = |server: &_, path: &str| {
                let response = get(server, path);
                assert_eq!(response.status, 200);
                response.header("X-Cache").unwrap_or_default().to_owned()
            };
            for path in ["/large", "/small"] {
                assert_eq!(status(&server, path), "MISS");
                wait::until("the object", wait::PATIENCE, || {
                    (status(&server, path) == "HIT").then_some(())
                });
            }
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
            assert!(!log.contains("Read-only file system"), "{log}");
            // The descriptors that workers keep are for recent objects; others are opened.
            std::thread::sleep(std::time::Duration::from_millis(1100));
            for transport in Transport::ALL {
                assert!(transport.get(&server, "/large").text() == body, "{transport:?}");
            }
            disk.set("rw");
            server.wait_log("stores objects again");
            assert_eq!(status(&server, "/again"), "MISS");
            wait::until("the object", wait::PATIENCE, || {
                (status(&server, "/again") == "HIT").then_some(())
            });
            server.stop();
        }
    }
}
