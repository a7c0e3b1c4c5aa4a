//! Objects in a worker's memory: how many there may be, and that changes of their files are noticed.

mod common;

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use nowait_cache::{Levels, Lookup, Store};
use nowait_runtime::fs::Io;
use nowait_testkit::TempDir;

use common::*;

/// Time until a changed file must have been noticed.
const PATIENCE: Duration = Duration::from_secs(30);

fn file_of(dir: &Path, text: &str) -> PathBuf {
    dir.join(Levels::new(&[1, 2]).unwrap().file_name(&target(text).key).as_str())
}

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

async fn found(store: &Arc<Store>, io: &Io, text: &str) -> Lookup {
    store.lookup(io, &target(text), PLAIN).await
}

#[test]
fn many_small_objects_stay_in_memory_without_descriptors() {
    const OBJECTS: usize = 2000;
    let dir = TempDir::new("cache");
    let store = store(dir.path());
    let before = descriptors();
    on_worker(move || async move {
        let io = io(4);
        for n in 0..OBJECTS {
            put(&store, &io, &format!("key/{n}"), &body(100)).await;
        }
        for round in 0..2 {
            for n in 0..OBJECTS {
                match found(&store, &io, &format!("key/{n}")).await {
                    Lookup::File(hit) if round == 0 => assert_eq!(read(&io, &hit).await, body(100)),
                    Lookup::Memory(hit) => assert_eq!(read(&io, &hit).await, body(100)),
                    other => panic!("{n} in round {round}: {other:?}"),
                }
            }
        }
        let open = blocking(&io, descriptors).await;
        assert!(open < before + 100, "{open} descriptors, {before} before");
    });
}

#[test]
fn descriptors_of_larger_objects_are_bounded() {
    const OBJECTS: usize = 200;
    let dir = TempDir::new("cache");
    let store = store(dir.path());
    let before = descriptors();
    on_worker(move || async move {
        let io = io(4);
        for n in 0..OBJECTS {
            put(&store, &io, &format!("key/{n}"), &body(100_000)).await;
        }
        let last = format!("key/{}", OBJECTS - 1);
        for _ in 0..2 {
            for n in 0..OBJECTS {
                let Lookup::File(hit) = found(&store, &io, &format!("key/{n}")).await else {
                    panic!("{n} is not in its file");
                };
                assert_eq!(read(&io, &hit).await, body(100_000));
            }
            // The most recently used one is still open.
            let lookup = found(&store, &io, &last).await;
            assert!(matches!(lookup, Lookup::Memory(_)), "{lookup:?}");
        }
        let open = blocking(&io, descriptors).await;
        assert!(open < before + 120, "{open} descriptors, {before} before");
    });
}

/// Runs what a loop must not run.
async fn blocking<T: Send + 'static>(io: &Io, run: impl FnOnce() -> T + Send + 'static) -> T {
    nowait_runtime::pool::blocking(&io.pool, run).await.expect("a free thread")
}

/// A change of an object's file by another program.
type Change = fn(&Path);

const CHANGES: [(&str, Change); 5] = [
    ("deleted", |file| std::fs::remove_file(file).unwrap()),
    ("moved", |file| std::fs::rename(file, file.with_extension("old")).unwrap()),
    ("its directory moved", |file| {
        let dir = file.parent().unwrap();
        std::fs::rename(dir, dir.with_extension("old")).unwrap();
    }),
    ("cut", |file| {
        std::fs::OpenOptions::new().write(true).open(file).unwrap().set_len(50).unwrap();
    }),
    ("replaced by something else", |file| {
        let other = file.with_extension("new");
        std::fs::write(&other, "something else").unwrap();
        std::fs::rename(other, file).unwrap();
    }),
];

#[test]
fn changed_files_are_noticed() {
    for memory in [None, Some(1 << 20)] {
        for length in [100, 100_000] {
            for (what, change) in CHANGES {
                eprintln!("{length} bytes, {what}, memory {memory:?}");
                let dir = TempDir::new("cache");
                let store = store_with(dir.path(), |options| options.memory_bytes = memory);
                let file = file_of(dir.path(), "key");
                on_worker(move || async move {
                    let io = io(4);
                    put(&store, &io, "key", &body(length)).await;
                    for _ in 0..3 {
                        let lookup = found(&store, &io, "key").await;
                        assert!(matches!(lookup, Lookup::File(_) | Lookup::Memory(_)));
                    }
                    blocking(&io, move || change(&file)).await;
                    let begun = Instant::now();
                    while !matches!(found(&store, &io, "key").await, Lookup::Absent { .. }) {
                        assert!(begun.elapsed() < PATIENCE, "still found");
                        nowait_runtime::sleep(Duration::from_millis(20)).await;
                    }
                });
            }
        }
    }
}

#[test]
fn a_touched_file_is_read_again() {
    let dir = TempDir::new("cache");
    let store = store(dir.path());
    let file = file_of(dir.path(), "key");
    on_worker(move || async move {
        let io = io(4);
        put(&store, &io, "key", &body(100)).await;
        assert!(matches!(found(&store, &io, "key").await, Lookup::File(_)));
        assert!(matches!(found(&store, &io, "key").await, Lookup::Memory(_)));
        let mode = std::fs::Permissions::from_mode(0o640);
        blocking(&io, move || std::fs::set_permissions(file, mode).unwrap()).await;
        let begun = Instant::now();
        let hit: Bytes = loop {
            match found(&store, &io, "key").await {
                Lookup::File(hit) => break read(&io, &hit).await,
                Lookup::Memory(_) => {}
                other => panic!("{other:?}"),
            }
            assert!(begun.elapsed() < PATIENCE, "not read again");
            nowait_runtime::sleep(Duration::from_millis(20)).await;
        };
        assert_eq!(hit, body(100));
    });
}
