//! A process killed at any moment leaves whole objects or none.

mod common;

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use nowait_cache::{Lookup, Steps};
use nowait_testkit::TempDir;

use common::*;

/// Set in the process that will be killed: the directory of its cache.
const VICTIM: &str = "NOWAIT_TEST_CACHE_VICTIM";
const ROUNDS: usize = 8;
const OBJECTS: usize = 400;

/// Small objects are written in one trip, large ones in several.
fn length(n: usize) -> usize {
    if n.is_multiple_of(5) { 900_000 + n } else { n * 97 % 40_000 }
}

/// Not a test itself: the work of the killed process.
#[test]
fn victim() {
    let Some(path) = std::env::var_os(VICTIM) else { return };
    let path = PathBuf::from(path);
    on_worker(move || async move {
        let (store, io) = (store(&path), io(4));
        store.tend();
        for n in (0..OBJECTS).cycle() {
            put(&store, &io, &format!("key/{n}"), &body(length(n))).await;
            println!("stored");
        }
    });
}

#[test]
fn a_killed_process_leaves_no_half_objects() {
    let dir = TempDir::new("cache");
    for round in 1..=ROUNDS {
        let mut victim = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "victim", "--nocapture"])
            .env(VICTIM, dir.path())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(victim.stdout.take().unwrap()).lines();
        let stored = lines.map(Result::unwrap).filter(|line| line.ends_with("stored"));
        // Killed at a different point each time, in the middle of any operation.
        assert_eq!(stored.take(round * 7).count(), round * 7);
        victim.kill().unwrap();
        victim.wait().unwrap();

        let path = dir.path().to_owned();
        on_worker(move || async move {
            let loader = Steps { files: 1000, sleep: Duration::ZERO, ..Steps::NGINX };
            let (store, io) = (store_with(&path, |options| options.loader = loader), io(4));
            store.tend();
            until("the loader", || !store.statistics().loading).await;
            let mut found = 0;
            for n in 0..OBJECTS {
                let text = format!("key/{n}");
                match store.lookup(&io, &target(&text), PLAIN).await {
                    Lookup::File(hit) | Lookup::Memory(hit) => {
                        assert_eq!(read(&io, &hit).await, body(length(n)), "{n}");
                        found += 1;
                    }
                    Lookup::Absent { .. } => {}
                    other => panic!("{other:?}"),
                }
            }
            assert!(found >= round * 7, "{found} of what was said to be stored");
            assert_eq!(store.statistics().damaged, 0);
        });
        let temporary = files(dir.path()).into_iter().filter(|name| name.ends_with(".tmp"));
        assert_eq!(temporary.count(), 0, "round {round}");
    }
}
