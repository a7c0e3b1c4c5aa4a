//! A cache over three disks: one that hangs, fails or is full hurts only what is on it, and no client
//! gets an error for it.

use std::path::Path;

use nowait_testkit::slow_disk::{DiskOptions, EIO, ENOSPC, Gate, Ops, Quiet, SlowDisk, quiet};
use nowait_testkit::wait::{PATIENCE, until};
use nowait_testkit::{Binary, Driver, Server};

use crate::stage::{content, on_every_loop};

/// Objects per disk that are in the cache from the start.
const OBJECTS: usize = 8;

on_every_loop!(
    one_hangs,
    one_fails,
    one_is_full,
    only_writes_fail,
    writes_take_all_threads,
    eviction_hangs,
    eviction_fails,
    revalidation_hangs,
    revalidation_fails,
    a_purge_hangs,
);

/// Bytes of each cache: less than what a test asks for that wants evictions.
const MAX_SIZE: u64 = 2 << 20;
/// More objects than there is room for.
const MANY: usize = 40;
/// Objects that are too old as soon as they are stored. Fewer than a disk has threads: those that wait
/// for the disk leave some that read.
const OLD: usize = 2;

/// Three caches with [`OBJECTS`] each. Fields are dropped in order: the server goes before its
/// disks.
struct CacheNode {
    server: Server,
    disks: Vec<SlowDisk>,
    _quiet: Quiet,
}

impl CacheNode {
    fn start(driver: Driver, workers: usize) -> Option<CacheNode> {
        let disks: Option<Vec<_>> =
            (0..3).map(|_| SlowDisk::or_skip(DiskOptions::default())).collect();
        let (disks, quiet) = (disks?, quiet());
        let mut builder = Server::of(Binary::under_test(env!("CARGO_BIN_EXE_nowait")))
            .driver(driver)
            .workers(workers)
            .allow_log("cache");
        for (n, disk) in disks.iter().enumerate() {
            builder = builder.variable(&format!("DISK_{n}"), disk.path().display());
            builder = builder.file(&format!("origin/{n}/small"), content("hot/small"));
            let kept = (0..OBJECTS).map(|at| format!("{n}/{at}"));
            let many = (0..MANY).map(|at| format!("{n}/many/{at}"));
            let old = (0..OLD).map(|at| format!("{n}/old/{at}"));
            for name in kept.chain(many).chain(old).chain([format!("{n}/new")]) {
                builder = builder.file(&format!("origin/{name}"), content(&name));
            }
        }
        let server = builder
            .main("thread_pool pool_0 threads=4; thread_pool pool_1 threads=4; thread_pool pool_2 threads=4;")
            .http(
                "proxy_cache_path %%DISK_0%%/cache levels=1:2 keys_zone=cache_0:1m use_temp_path=off max_size=2m;
                proxy_cache_path %%DISK_1%%/cache levels=1:2 keys_zone=cache_1:1m use_temp_path=off max_size=2m;
                proxy_cache_path %%DISK_2%%/cache levels=1:2 keys_zone=cache_2:1m use_temp_path=off max_size=2m;
                map $request_method $purge { default ''; PURGE 1; }
                server {
                    listen 127.0.0.1:%%PORT_1%%;
                    root %%DIR%%/origin;
                    location ~ ^/[012]/old/ { add_header X-Accel-Expires @1; }
                }
                server {
                    listen 127.0.0.1:%%PORT%%;
                    location ~ ^/(?<disk>[012])/ {
                        proxy_pass http://127.0.0.1:%%PORT_1%%;
                        proxy_cache cache_$disk;
                        proxy_cache_key $uri;
                        proxy_cache_valid 200 1h;
                        proxy_cache_revalidate on;
                        proxy_cache_purge $purge;
                        aio threads=pool_$disk;
                        add_header X-Cache $upstream_cache_status;
                    }
                }",
            )
            .start();
        let node = CacheNode { server, disks, _quiet: quiet };
        for disk in 0..3 {
            node.hits(disk);
        }
        Some(node)
    }

    /// The response to a request, which must be right; how the cache took part in it.
    #[track_caller]
    fn get(&self, path: &str) -> String {
        let response = self.server.get(&format!("/{path}"));
        assert_eq!(response.status, 200, "{path}: {response}");
        assert!(response.body == content(path), "{path}: wrong content");
        response.header("X-Cache").unwrap_or("-").to_owned()
    }

    /// Waits until all objects of a disk come from its cache.
    #[track_caller]
    fn hits(&self, disk: usize) {
        for at in 0..OBJECTS {
            until("a hit", PATIENCE, || (self.get(&format!("{disk}/{at}")) == "HIT").then_some(()));
        }
    }

    /// Waits until the objects that are always too old are in a disk's cache.
    #[track_caller]
    fn revalidates(&self, disk: usize) {
        for at in 0..OLD {
            until("a revalidation", PATIENCE, || {
                (self.get(&format!("{disk}/old/{at}")) == "REVALIDATED").then_some(())
            });
        }
    }

    /// Fetches more than there is room for: each is answered, no matter what becomes of it.
    #[track_caller]
    fn fetch_many(&self, disk: usize) {
        for at in 0..MANY {
            self.get(&format!("{disk}/many/{at}"));
        }
    }

    /// Waits until a disk's cache is not larger than it may be.
    #[track_caller]
    fn shrinks(&self, disk: usize) {
        until("the cache to become smaller", PATIENCE, || {
            (bytes_below(&self.disks[disk].backing()) <= MAX_SIZE).then_some(())
        });
    }

    /// The other two disks serve what they have.
    #[track_caller]
    fn assert_others_hit(&self) {
        for at in 0..OBJECTS {
            for disk in [1, 2] {
                assert_eq!(self.get(&format!("{disk}/{at}")), "HIT");
            }
        }
    }
}

/// Requests that wait for the disk do so alone; what is not in its cache needs no disk.
fn one_hangs(driver: Driver, workers: usize) {
    let Some(node) = CacheNode::start(driver, workers) else { return };
    let gate: Gate = node.disks[0].hold(Ops::ALL);
    let mut cold: Vec<_> = Vec::new();
    // A worker serves from what it has open for a second.
    until("requests that need the disk", PATIENCE, || {
        for at in 0..OBJECTS {
            let mut client = node.server.client();
            client.send_get(&format!("/0/{at}"));
            cold.push((format!("0/{at}"), client));
        }
        (gate.waiting() >= 2).then_some(())
    });
    assert_eq!(node.get("0/new"), "MISS", "while its disk hangs");
    node.assert_others_hit();
    gate.open();
    for (path, client) in &mut cold {
        let response = client.response();
        assert!(response.status == 200 && response.body == content(path), "{path}: {response}");
    }
    node.hits(0);
    assert!(node.server.quit().success());
}

/// All threads of a disk's pool hang: what its workers have in memory is served, although its file would
/// have to be looked at again.
fn writes_take_all_threads(driver: Driver, workers: usize) {
    let Some(node) = CacheNode::start(driver, workers) else { return };
    // Both workers know it.
    let mut clients: Vec<_> = (0..8).map(|_| node.server.client()).collect();
    let hot = |client: &mut nowait_testkit::Client| {
        let response = client.get("/0/small");
        assert_eq!(response.status, 200);
        assert!(response.body == content("hot/small"), "wrong content");
        response.header("X-Cache").unwrap_or("-").to_owned()
    };
    for client in &mut clients {
        until("a hit", PATIENCE, || (hot(client) == "HIT").then_some(()));
    }
    let gate = node.disks[0].hold(Ops::ALL);
    // Four threads: those of objects that are stored, and of what is looked for.
    let mut waiting: Vec<_> = Vec::new();
    for at in 0..MANY {
        let mut client = node.server.client();
        client.send_get(&format!("/0/many/{at}"));
        waiting.push((format!("0/many/{at}"), client));
    }
    gate.wait_waiting(4);
    // Longer than a worker relies on a file that it has opened.
    std::thread::sleep(std::time::Duration::from_millis(1500));
    for client in &mut clients {
        let status = hot(client);
        // On an overloaded machine the disk may have hung for so long that its cache is bypassed.
        let given_up = status == "BYPASS" && node.server.log().contains("out of use");
        assert!(status == "HIT" || given_up, "{status}");
    }
    node.assert_others_hit();
    gate.open();
    for (path, client) in &mut waiting {
        let response = client.response();
        assert!(response.status == 200 && response.body == content(path), "{path}: {response}");
    }
    node.hits(0);
    assert!(node.server.quit().success());
}

/// Every request is answered by the origin, and the disk is used again when it is well.
fn one_fails(driver: Driver, workers: usize) {
    let Some(node) = CacheNode::start(driver, workers) else { return };
    node.disks[0].fail(Ops::ALL, EIO);
    until("the cache to go out of use", PATIENCE, || {
        for at in 0..OBJECTS {
            node.get(&format!("0/{at}"));
        }
        node.get("0/new");
        node.server.log().contains("out of use").then_some(())
    });
    assert_ne!(node.get("0/0"), "HIT");
    node.assert_others_hit();
    node.disks[0].heal();
    node.hits(0);
    assert!(node.server.quit().success());
}

fn one_is_full(driver: Driver, workers: usize) {
    let Some(node) = CacheNode::start(driver, workers) else { return };
    node.disks[0].fail(Ops::WRITE | Ops::CREATE, ENOSPC);
    for _ in 0..5 {
        node.get("0/new");
    }
    until("it to be noticed", PATIENCE, || {
        node.get("0/new");
        node.server.log().contains("No space left on device").then_some(())
    });
    // What makes room is not stored again yet.
    let is_hit = |at| node.get(&format!("0/{at}")) == "HIT";
    assert!((0..OBJECTS).rev().any(is_hit), "the disk can be read");
    node.assert_others_hit();
    node.disks[0].heal();
    node.hits(0);
    until("room", PATIENCE, || (node.get("0/new") == "HIT").then_some(()));
    assert!(node.server.quit().success());
}

/// What is there is served; what is new is fetched, and stored again when the disk is well.
fn only_writes_fail(driver: Driver, workers: usize) {
    let Some(node) = CacheNode::start(driver, workers) else { return };
    node.disks[0].fail(Ops::WRITE | Ops::FSYNC, EIO);
    until("it to be noticed", PATIENCE, || {
        node.fetch_many(0);
        node.server.log().contains("stores no new objects: its disk is not writable").then_some(())
    });
    for at in 0..OBJECTS {
        assert_eq!(node.get(&format!("0/{at}")), "HIT");
    }
    for _ in 0..5 {
        assert_eq!(node.get("0/new"), "MISS");
    }
    node.assert_others_hit();
    assert!(!node.server.log().contains("out of use"), "{}", node.server.log());
    node.disks[0].heal();
    until("room", PATIENCE, || (node.get("0/new") == "HIT").then_some(()));
    node.hits(0);
    assert!(node.server.quit().success());
}

/// Files that have to go can't be removed: new ones are stored and all are served meanwhile.
fn eviction_hangs(driver: Driver, workers: usize) {
    let Some(node) = CacheNode::start(driver, workers) else { return };
    let gate = node.disks[0].hold(Ops::UNLINK);
    node.fetch_many(0);
    gate.wait_waiting(1);
    node.fetch_many(0);
    node.assert_others_hit();
    // Now it does not answer at all.
    let all = node.disks[0].hold(Ops::ALL);
    assert_eq!(node.get("0/new"), "MISS", "while its disk hangs");
    node.assert_others_hit();
    all.open();
    gate.open();
    node.shrinks(0);
    node.hits(0);
    assert!(node.server.quit().success());
}

fn eviction_fails(driver: Driver, workers: usize) {
    let Some(node) = CacheNode::start(driver, workers) else { return };
    node.disks[0].fail(Ops::UNLINK, EIO);
    node.fetch_many(0);
    node.fetch_many(0);
    node.assert_others_hit();
    node.disks[0].heal();
    node.hits(0);
    node.fetch_many(0);
    node.shrinks(0);
    assert!(node.server.quit().success());
}

/// The origin says that what is stored is still good, and the disk can't be told.
fn revalidation_hangs(driver: Driver, workers: usize) {
    let Some(node) = CacheNode::start(driver, workers) else { return };
    node.revalidates(0);
    let gate = node.disks[0].hold(Ops::WRITE | Ops::SETATTR | Ops::CREATE | Ops::RENAME);
    let mut waiting: Vec<_> = Vec::new();
    for at in 0..OLD {
        let mut client = node.server.client();
        client.send_get(&format!("/0/old/{at}"));
        waiting.push((format!("0/old/{at}"), client));
    }
    gate.wait_waiting(1);
    node.assert_others_hit();
    // They do not wait for it for long.
    for (path, client) in &mut waiting {
        let response = client.response();
        assert!(response.status == 200 && response.body == content(path), "{path}: {response}");
    }
    gate.open();
    node.revalidates(0);
    assert!(node.server.quit().success());
}

fn revalidation_fails(driver: Driver, workers: usize) {
    let Some(node) = CacheNode::start(driver, workers) else { return };
    node.revalidates(0);
    node.disks[0].fail(Ops::ALL, EIO);
    for _ in 0..3 {
        for at in 0..OLD {
            node.get(&format!("0/old/{at}"));
        }
    }
    node.assert_others_hit();
    node.disks[0].heal();
    node.revalidates(0);
    assert!(node.server.quit().success());
}

/// What is purged is not served any more, although its file can't be removed yet.
fn a_purge_hangs(driver: Driver, workers: usize) {
    let Some(node) = CacheNode::start(driver, workers) else { return };
    let gate = node.disks[0].hold(Ops::UNLINK);
    let mut purging = node.server.client();
    purging.send("PURGE /0/0 HTTP/1.1\r\nHost: localhost\r\n\r\n");
    gate.wait_waiting(1);
    assert_eq!(node.get("0/0"), "MISS", "purged");
    node.assert_others_hit();
    let purge = |path: &str| {
        let mut client = node.server.client();
        client.send(format!("PURGE /{path} HTTP/1.1\r\nHost: localhost\r\n\r\n"));
        client.response().status
    };
    assert_eq!(purge("1/1"), 204, "another disk's");
    assert_eq!(node.get("1/1"), "MISS");
    gate.open();
    assert_eq!(purging.response().status, 204);
    node.hits(0);
    assert!(node.server.quit().success());
}

/// Bytes of all files below a directory.
fn bytes_below(directory: &Path) -> u64 {
    let Ok(entries) = std::fs::read_dir(directory) else { return 0 };
    let bytes = |entry: std::fs::DirEntry| match entry.metadata() {
        Ok(metadata) if metadata.is_dir() => bytes_below(&entry.path()),
        Ok(metadata) => metadata.len(),
        Err(_) => 0,
    };
    entries.flatten().map(bytes).sum()
}
