//! A node that starts while a disk of its caches hangs or is slow: it starts all the same, and what is
//! on the other disks is loaded and served.

use std::fs;
use std::path::Path;

use nowait_testkit::slow_disk::{DiskOptions, Ops, Quiet, SlowDisk, quiet};
use nowait_testkit::wait::{PATIENCE, until};
use nowait_testkit::{Binary, Driver, Server};

use crate::stage::{content, on_every_loop};

/// Objects per disk.
const OBJECTS: usize = 8;
/// Objects of a large cache, unless `NOWAIT_TEST_OBJECTS` says otherwise: a disk that is a program takes
/// a busy machine a minute and a half for 100,000.
const MANY: usize = 20_000;
/// Names that one inode may have.
const LINKS_MAX: usize = 30_000;

on_every_loop!(one_hangs_at_the_start, one_is_large_and_slow);

/// Two disks with caches; servers come and go.
struct LoaderNode {
    disks: Vec<SlowDisk>,
    driver: Driver,
    workers: usize,
    _quiet: Quiet,
}

impl LoaderNode {
    fn new(driver: Driver, workers: usize) -> Option<LoaderNode> {
        let disks: Option<Vec<_>> =
            (0..2).map(|_| SlowDisk::or_skip(DiskOptions::default())).collect();
        Some(LoaderNode { disks: disks?, driver, workers, _quiet: quiet() })
    }

    fn start(&self) -> Server {
        let mut builder = Server::of(Binary::under_test(env!("CARGO_BIN_EXE_nowait")))
            .driver(self.driver)
            .workers(self.workers)
            .allow_log("cache");
        for (n, disk) in self.disks.iter().enumerate() {
            builder = builder.variable(&format!("DISK_{n}"), disk.path().display());
            for name in (0..OBJECTS).map(|at| format!("{n}/{at}")) {
                builder = builder.file(&format!("origin/{name}"), content(&name));
            }
        }
        builder
            .main("thread_pool pool_0 threads=4; thread_pool pool_1 threads=4;")
            .http(
                "proxy_cache_path %%DISK_0%%/cache levels=1:2 keys_zone=cache_0:16m
                     loader_files=1000 loader_sleep=1ms;
                 proxy_cache_path %%DISK_1%%/cache levels=1:2 keys_zone=cache_1:1m;
                 server { listen 127.0.0.1:%%PORT_1%%; root %%DIR%%/origin; }
                 server {
                     listen 127.0.0.1:%%PORT%%;
                     location /status/ { status_api; }
                     location ~ ^/(?<disk>[01])/ {
                         proxy_pass http://127.0.0.1:%%PORT_1%%;
                         proxy_cache cache_$disk;
                         proxy_cache_key $uri;
                         proxy_cache_valid 200 1h;
                         aio threads=pool_$disk;
                         add_header X-Cache $upstream_cache_status;
                     }
                 }",
            )
            .start()
    }

    /// Puts objects on both disks. What the next server finds is their files, no index.
    fn fill(&self) {
        let server = self.start();
        for disk in 0..self.disks.len() {
            hits(&server, disk);
        }
        assert!(server.quit().success());
        for disk in &self.disks {
            fs::remove_file(disk.backing().join("cache/.nowait-index")).unwrap();
        }
    }
}

/// The response to a request, which must be right; how the cache took part in it.
#[track_caller]
fn get(server: &Server, path: &str) -> String {
    let response = server.get(&format!("/{path}"));
    assert_eq!(response.status, 200, "{path}: {response}");
    assert!(response.body == content(path), "{path}: wrong content");
    response.header("X-Cache").unwrap_or("-").to_owned()
}

/// Waits until all objects of a disk come from its cache.
#[track_caller]
fn hits(server: &Server, disk: usize) {
    for at in 0..OBJECTS {
        until("a hit", PATIENCE, || (get(server, &format!("{disk}/{at}")) == "HIT").then_some(()));
    }
}

fn state(server: &Server, disk: usize) -> serde_json::Value {
    let text = server.get(&format!("/status/caches/cache_{disk}")).text();
    serde_json::from_str(&text).unwrap()
}

#[track_caller]
fn loaded(server: &Server, disk: usize, objects: usize) {
    // 100,000 objects of a disk that is a program take their time on a busy machine.
    until("the loader", 4 * PATIENCE, || (state(server, disk)["cold"] == false).then_some(()));
    assert_eq!(state(server, disk)["objects"], objects);
}

/// Neither the start nor what is on the other disk waits for it.
fn one_hangs_at_the_start(driver: Driver, workers: usize) {
    let Some(node) = LoaderNode::new(driver, workers) else { return };
    node.fill();
    let gate = node.disks[0].hold(Ops::ALL);
    let mut server = node.start();
    server.allow_log("does not answer; going on without it");
    loaded(&server, 1, OBJECTS);
    for at in 0..OBJECTS {
        assert_eq!(get(&server, &format!("1/{at}")), "HIT");
    }
    // The first ones find out that it hangs.
    assert_eq!(get(&server, "0/0"), "BYPASS");
    server.wait_log("is out of use: its disk is hanging");
    for at in 0..OBJECTS {
        assert_eq!(get(&server, &format!("0/{at}")), "BYPASS");
        assert_eq!(get(&server, &format!("1/{at}")), "HIT");
    }
    assert_eq!(state(&server, 0)["cold"], true);
    // Neither does a reload.
    server.reload();
    assert_eq!(get(&server, "1/0"), "HIT");
    gate.open();
    hits(&server, 0);
    loaded(&server, 0, OBJECTS);
    assert!(server.quit().success());
}

/// What is asked for is found while it is being loaded.
fn one_is_large_and_slow(driver: Driver, workers: usize) {
    let Some(node) = LoaderNode::new(driver, workers) else { return };
    node.fill();
    let cache = node.disks[0].backing().join("cache");
    let before = objects_below(&cache);
    let many = std::env::var("NOWAIT_TEST_OBJECTS").ok().and_then(|n| n.parse().ok());
    let many = many.unwrap_or(MANY);
    add_many(&cache, many);
    node.disks[0].delay(Ops::READDIR, std::time::Duration::from_millis(1));
    let server = node.start();
    let mut asked = 0;
    until("the loader", 4 * PATIENCE, || {
        let is_cold = state(&server, 0)["cold"] == true;
        for disk in 0..2 {
            assert_eq!(get(&server, &format!("{disk}/{}", asked % OBJECTS)), "HIT");
        }
        asked += 1;
        (!is_cold).then_some(())
    });
    assert!(asked > 5, "{asked}");
    loaded(&server, 0, before + many);
    assert!(server.quit().success());
}

/// Adds files to a cache that look like objects to the loader, which reads no contents.
fn add_many(cache: &Path, many: usize) {
    let mut source = cache.join("source");
    for n in 0..many {
        let name =
            format!("{:032x}", (n as u128).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835));
        let directory = cache.join(&name[31..]).join(&name[29..31]);
        let path = directory.join(&name);
        if n % LINKS_MAX == 0 {
            fs::create_dir_all(&directory).unwrap();
            fs::write(&path, [0; 200]).unwrap();
            source = path;
        } else if fs::hard_link(&source, &path).is_err() {
            fs::create_dir_all(&directory).unwrap();
            fs::hard_link(&source, &path).unwrap();
        }
    }
}

/// Files of objects in a cache.
fn objects_below(directory: &Path) -> usize {
    let entries = fs::read_dir(directory).unwrap().flatten();
    let count = |entry: fs::DirEntry| match entry.file_type().unwrap().is_dir() {
        true => objects_below(&entry.path()),
        false => usize::from(entry.file_name().len() == 32),
    };
    entries.map(count).sum()
}
