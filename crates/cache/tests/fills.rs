//! Objects are stored, found, and read while they are being stored.

mod common;

use nowait_cache::{FillOptions, FillResult, FillStart, Lookup, WaitResult};
use nowait_runtime::{spawn, yield_now};
use nowait_testkit::TempDir;

use common::*;

/// Every size around the limits that select another way of writing or reading.
#[test]
fn what_was_stored_is_found() {
    let dir = TempDir::new("cache");
    let path = dir.path().to_owned();
    on_worker(move || async move {
        let (store, io) = (store(&path), io(4));
        for len in [0, 1, 100, 9_999, 16_384, 32_000, 32_768, 70_000, 600_000, 3_000_000] {
            let (text, body) = (format!("key/{len}"), body(len));
            assert_eq!(look(&store, &io, &text).await, LookupOutcome::Absent, "{len}");
            put(&store, &io, &text, &body).await;
            for _ in 0..3 {
                assert_eq!(look(&store, &io, &text).await.body(), body, "{len}");
            }
        }
        let statistics = store.statistics();
        assert_eq!((statistics.entries, statistics.stored), (10, 10));
        assert!(statistics.bytes > 3_700_000, "{statistics:?}");
    });
    let temporary = files(dir.path()).into_iter().filter(|name| name.ends_with(".tmp"));
    assert_eq!(temporary.collect::<Vec<_>>(), Vec::<String>::new());
}

#[test]
fn readers_join_at_any_time_and_get_every_byte() {
    let dir = TempDir::new("cache");
    let path = dir.path().to_owned();
    on_worker(move || async move {
        let (store, io) = (store(&path), io(4));
        let (target, whole) = (target("grows"), body(2_500_000));
        let mut fill = begin(&store, &io, &target);
        let FillStart::Busy(waiter) = store.begin_fill(&io, &target, LOCKED) else {
            panic!("one fills it already")
        };
        fill.head(state(), Vec::new()).unwrap();
        let WaitResult::Filling(first) = waiter.await else { panic!("the head is known") };
        let mut readers = vec![spawn(read_along(first, io.clone()))];
        for piece in whole.chunks(100_000) {
            fill.write(whole.slice_ref(piece)).await.unwrap();
            match store.lookup(&io, &target, ALONG).await {
                Lookup::Filling(growing) => readers.push(spawn(read_along(growing, io.clone()))),
                other => panic!("{other:?}"),
            }
        }
        fill.commit().await.unwrap();
        for reader in readers {
            assert_eq!(reader.await.unwrap(), Some(whole.clone()));
        }
        assert_eq!(look(&store, &io, "grows").await.body(), whole);
    });
}

#[test]
fn an_abandoned_fill_leaves_nothing() {
    let dir = TempDir::new("cache");
    let path = dir.path().to_owned();
    on_worker(move || async move {
        let (store, io) = (store(&path), io(4));
        let target = target("abandoned");
        for len in [0, 100, 2_000_000] {
            let mut fill = begin(&store, &io, &target);
            let waiter = match store.begin_fill(&io, &target, common::LOCKED) {
                FillStart::Busy(waiter) => waiter,
                other => panic!("{other:?}"),
            };
            fill.head(state(), Vec::new()).unwrap();
            let WaitResult::Filling(growing) = waiter.await else { panic!("the head is known") };
            let reader = spawn(read_along(growing, io.clone()));
            fill.write(body(len)).await.unwrap();
            yield_now().await;
            drop(fill);
            assert_eq!(reader.await.unwrap(), None, "the reader is cut");
            assert_eq!(look(&store, &io, "abandoned").await, LookupOutcome::Absent);
        }
    });
    assert_eq!(files(dir.path()), Vec::<String>::new());
}

#[test]
fn those_who_wait_learn_how_it_ended() {
    let dir = TempDir::new("cache");
    let path = dir.path().to_owned();
    on_worker(move || async move {
        let (store, io) = (store(&path), io(4));
        type End = fn(nowait_cache::Fill);
        let cases: [(End, FillResult); 3] = [
            (|fill| fill.decline(), FillResult::Declined),
            (drop, FillResult::Failed),
            (|fill| fill.remember_error(502, nowait_cache::UnixMs::NEVER), FillResult::Stored),
        ];
        for (end, expected) in cases {
            let target = target("waited for");
            let fill = begin(&store, &io, &target);
            let FillStart::Busy(waiter) = store.begin_fill(&io, &target, LOCKED) else {
                panic!("one fills it already")
            };
            end(fill);
            match waiter.await {
                WaitResult::Ended(ended) => assert_eq!(ended, expected),
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(look(&store, &io, "waited for").await, LookupOutcome::Error(502));
    });
}

/// Without the lock several requests fetch at the same time: the object completed last stays.
#[test]
fn the_last_of_several_stays() {
    let dir = TempDir::new("cache");
    let path = dir.path().to_owned();
    on_worker(move || async move {
        let (store, io) = (store(&path), io(8));
        for round in 0..30 {
            let target = target(&format!("key/{round}"));
            let mut commits = Vec::new();
            for n in 1..=4 {
                let FillStart::Fill(mut fill) =
                    store.begin_fill(&io, &target, nowait_cache::FillOptions::default())
                else {
                    panic!("there is no lock")
                };
                fill.head(state(), Vec::new()).unwrap();
                fill.write(body(n * 1000)).await.unwrap();
                commits.push(fill.commit());
            }
            for commit in commits {
                commit.await.unwrap();
            }
            assert_eq!(look(&store, &io, &format!("key/{round}")).await.body(), body(4000));
        }
    });
}

/// Several fill one key at the same time: the object completed last is found long before it has its
/// name.
#[test]
fn the_last_of_several_is_found_at_once() {
    let dir = TempDir::new("fills");
    let path = dir.path().to_owned();
    on_worker(move || async move {
        let (io, store) = (io(2), store(&path));
        store.tend();
        until("the loader", || !store.statistics().loading).await;
        let options = FillOptions { lock: false, ..LOCKED };
        let whole = |len: usize| {
            let FillStart::Fill(mut fill) = store.begin_fill(&io, &target("key"), options) else {
                panic!("without the lock each one fills")
            };
            fill.head(state(), Vec::new()).unwrap();
            fill.push(body(len)).unwrap();
            fill
        };
        let fills = [whole(10), whole(20), whole(30)];
        for fill in fills {
            drop(fill.commit());
        }
        let Lookup::Filling(growing) = store.lookup(&io, &target("key"), PLAIN).await else {
            panic!("none has its name yet")
        };
        assert_eq!(growing.received(), (30, true));
        until("the last one", || store.statistics().filling == 0).await;
        assert_eq!(look(&store, &io, "key").await.body(), body(30));
    });
}
