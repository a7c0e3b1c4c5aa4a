//! Purges right after a start, while the saved index is still being read.

mod common;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use nowait_cache::index::{How, Tag, What};
use nowait_cache::{Lookup, Steps, Store};
use nowait_testkit::TempDir;
use nowait_testkit::slow_disk::{DiskOptions, Ops, SlowDisk, quiet};

use common::*;

const OBJECTS: usize = 40;

/// How the previous process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ProcessEnd {
    /// It saved its index.
    Closed,
    /// It left nothing but the files.
    Killed,
}

/// Stores objects that share a tag and a prefix of their keys.
fn fill(path: &Path, end: ProcessEnd) {
    let path = path.to_owned();
    let (sender, receiver) = std::sync::mpsc::channel();
    on_worker(move || async move {
        let (store, io) = (store(&path), io(4));
        store.tend();
        until("the loader", || !store.statistics().loading).await;
        for n in 0..OBJECTS {
            let mut fill = begin(&store, &io, &target(&format!("key/{n}")));
            fill.head(state(), vec![Tag::new(b"all")]).unwrap();
            fill.write(body(n)).await.unwrap();
            fill.commit().await.unwrap();
        }
        sender.send(store).unwrap();
    });
    let store = receiver.recv().unwrap();
    if end == ProcessEnd::Closed {
        store.close(Duration::from_secs(30));
    }
}

/// The target of a purge, and the number of objects that match.
fn aims() -> [(What, usize); 4] {
    [
        (What::Key(target("key/7").main), 1),
        (What::Prefix(b"key/".as_slice().into()), OBJECTS),
        (What::Tag(Tag::new(b"all")), OBJECTS),
        (What::All, OBJECTS),
    ]
}

#[test]
fn a_purge_right_after_a_start_is_not_undone() {
    for end in [ProcessEnd::Closed, ProcessEnd::Killed] {
        for how in [How::Hard, How::Soft] {
            for (what, count) in aims() {
                let dir = TempDir::new("cache");
                fill(dir.path(), end);
                let path = dir.path().to_owned();
                eprintln!("{end:?}, {how:?}, {what:?}");
                on_worker(move || purge_at_once(path, end, what, how, count as u64));
                let path = dir.path().to_owned();
                on_worker(move || still_purged(path, how));
            }
        }
    }
}

/// The purge is acknowledged although the saved index can't be read, and run when the disk is back.
#[test]
fn a_purge_while_the_disk_hangs_is_made_up_for() {
    let _quiet = quiet();
    let aims =
        [(What::Tag(Tag::new(b"all")), How::Hard), (What::Key(target("key/7").main), How::Soft)];
    for (what, how) in aims {
        let Some(disk) = SlowDisk::or_skip(DiskOptions::default()) else { return };
        fill(&disk.path(), ProcessEnd::Closed);
        eprintln!("{how:?}, {what:?}");
        let disk = Arc::new(disk);
        // It is unmounted here, not on the worker.
        let shared = disk.clone();
        on_worker(move || async move {
            let gate = shared.hold(Ops::ALL);
            let store = store_with(&shared.path(), |options| {
                options.hang_after = Duration::from_secs(1);
            });
            store.tend();
            store.purge(what, how).await.unwrap();
            assert!(store.out_of_use().is_some());
            gate.open();
            until("the loader", || !store.statistics().loading).await;
            assert!(is_purged(&store, how).await, "it was not made up for");
        });
    }
}

/// The disk hangs when the saved index is read, which contains the purges of the earlier process.
#[test]
fn a_purge_of_an_earlier_process_outlives_a_hanging_disk() {
    let _quiet = quiet();
    let Some(disk) = SlowDisk::or_skip(DiskOptions::default()) else { return };
    let path = disk.path();
    fill(&path, ProcessEnd::Closed);
    let (sender, receiver) = std::sync::mpsc::channel();
    on_worker(move || async move {
        let store = store(&path);
        store.tend();
        until("the loader", || !store.statistics().loading).await;
        store.purge(What::Prefix(b"key/".as_slice().into()), How::Soft).await.unwrap();
        sender.send(store).unwrap();
    });
    receiver.recv().unwrap().close(Duration::from_secs(30));
    let disk = Arc::new(disk);
    // It is unmounted here, not on the worker.
    let shared = disk.clone();
    on_worker(move || async move {
        let gate = shared.hold(Ops::ALL.under(".nowait-index"));
        let store = store_with(&shared.path(), |options| {
            options.hang_after = Duration::from_secs(1);
        });
        store.tend();
        until("the disk to be out of use", || store.out_of_use().is_some()).await;
        gate.open();
        until("the loader", || !store.statistics().loading).await;
        assert!(is_purged(&store, How::Soft).await, "it was forgotten");
    });
}

/// The disk is walked so slowly that only the saved index and the files themselves can show which
/// objects exist.
async fn purge_at_once(path: PathBuf, end: ProcessEnd, what: What, how: How, count: u64) {
    let slow = Steps { files: 1, sleep: Duration::from_secs(600), ..Steps::NGINX };
    let store = store_with(&path, |options| options.loader = slow);
    store.tend();
    let purged = store.purge(what, how).await.unwrap();
    // The objects left by a killed process are not known yet.
    if end == ProcessEnd::Closed || count == 1 {
        assert_eq!(purged.objects, count);
    }
    assert!(is_purged(&store, how).await, "it was there right after the purge");
}

/// The next process remembers all of it.
async fn still_purged(path: PathBuf, how: How) {
    let swift = Steps { files: 1000, sleep: Duration::ZERO, ..Steps::NGINX };
    let store = store_with(&path, |options| options.loader = swift);
    store.tend();
    assert!(is_purged(&store, how).await, "it was there after the next start");
    until("the loader", || !store.statistics().loading).await;
    assert!(is_purged(&store, how).await, "it came back");
}

async fn is_purged(store: &Arc<Store>, how: How) -> bool {
    match store.lookup(&io(4), &target("key/7"), PLAIN).await {
        Lookup::File(hit) | Lookup::Memory(hit) => how == How::Soft && hit.soft_purged,
        Lookup::Absent { .. } => how == How::Hard,
        other => panic!("{other:?}"),
    }
}
