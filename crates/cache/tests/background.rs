//! The manager, the loader and purges.

mod common;

use std::time::Duration;

use nowait_cache::format::{self, ObjectIdentity};
use nowait_cache::index::{How, Tag, What};
use nowait_cache::{FillOptions, FillStart, Key, Levels, Lookup, Steps, UnixMs};
use nowait_testkit::TempDir;

use common::*;

const SWIFT: Steps =
    Steps { files: 100, sleep: Duration::from_millis(1), threshold: Duration::from_secs(1) };

#[test]
fn max_size_is_kept_by_removing_the_oldest() {
    let dir = TempDir::new("cache");
    let path = dir.path().to_owned();
    on_worker(move || async move {
        let store = store_with(&path, |options| {
            options.max_bytes = Some(100 * 4096);
            options.manager = SWIFT;
        });
        let io = io(4);
        store.tend();
        for n in 0..300 {
            put(&store, &io, &format!("key/{n}"), &body(3000)).await;
            // The first one stays in use.
            assert_eq!(look(&store, &io, "key/0").await.body(), body(3000), "{n}");
        }
        let limit = 100 * 4096;
        until("the size to come down", || store.statistics().bytes <= limit).await;
        let statistics = store.statistics();
        assert!(statistics.evicted >= 200, "{statistics:?}");
        assert!(statistics.entries >= 90, "no more than needed: {statistics:?}");
        assert_eq!(look(&store, &io, "key/0").await.body(), body(3000));
        assert_eq!(look(&store, &io, "key/1").await, LookupOutcome::Absent);
        assert_eq!(look(&store, &io, "key/299").await.body(), body(3000));
    });
    assert!(files(dir.path()).len() <= 100);
}

#[test]
fn what_is_not_used_goes() {
    let dir = TempDir::new("cache");
    let path = dir.path().to_owned();
    on_worker(move || async move {
        let store = store_with(&path, |options| {
            options.inactive = Duration::from_millis(50);
            options.manager = SWIFT;
        });
        let io = io(4);
        for n in 0..20 {
            put(&store, &io, &format!("key/{n}"), &body(100)).await;
        }
        store.tend();
        until("all to expire", || store.statistics().entries == 0).await;
        until("all to be removed", || store.statistics().expired == 20).await;
    });
    assert_eq!(files(dir.path()), Vec::<String>::new());
}

#[test]
fn the_loader_finds_what_was_stored_before() {
    let dir = TempDir::new("cache");
    let path = dir.path().to_owned();
    let key = Key::new(b"key/3");
    on_worker(move || async move {
        let (store, io) = (store(&path), io(4));
        for n in 0..200 {
            put(&store, &io, &format!("key/{n}"), &body(n)).await;
        }
        drop(store);
        // Another process, which has died.
        let hex = key.to_string();
        let level = path.join(&hex[31..]).join(&hex[29..31]);
        let us = std::process::id();
        std::thread::spawn(move || {
            std::fs::write(level.join(format!("{hex}.{us}-1.7.tmp")), b"left over").unwrap();
            std::fs::write(level.join(format!("{hex}.0000000007")), b"of nginx").unwrap();
            std::fs::write(level.join("readme"), b"not ours").unwrap();
            std::fs::write(path.join(&hex), b"of other levels").unwrap();
            let cut = std::fs::OpenOptions::new().write(true).open(level.join(&hex)).unwrap();
            cut.set_len(200).unwrap();
            path
        })
        .join()
        .map(|path| async move {
            let store = store_with(&path, |options| options.loader = SWIFT);
            assert_eq!(look(&store, &io, "key/7").await.body(), body(7), "before it is loaded");
            store.tend();
            until("the loader", || !store.statistics().loading).await;
            let statistics = store.statistics();
            assert_eq!((statistics.entries, statistics.leftovers), (200, 2), "{statistics:?}");
            for n in (0..200).filter(|n| *n != 3) {
                assert_eq!(look(&store, &io, &format!("key/{n}")).await.body(), body(n), "{n}");
            }
            assert_eq!(look(&store, &io, "key/3").await, LookupOutcome::Absent, "it was cut");
            assert_eq!(look(&store, &io, "key/200").await, LookupOutcome::Absent);
            until("the cut file to go", || store.statistics().damaged == 2).await;
        })
        .unwrap()
        .await;
    });
    let foreign: Vec<String> =
        files(dir.path()).into_iter().filter(|name| name.len() != 32).collect();
    assert_eq!(foreign, ["readme"], "what is not a cache's is left alone");
    assert_eq!(files(dir.path()).len(), 200, "199 objects and the stranger");
}

#[test]
fn purges_count_what_they_remove() {
    let dir = TempDir::new("cache");
    let path = dir.path().to_owned();
    on_worker(move || async move {
        let (store, io) = (store(&path), io(4));
        store.tend();
        until("the loader", || !store.statistics().loading).await;
        for n in 0..30 {
            let target = target(&format!("origin/{}/{n}", n % 3));
            let mut fill = begin(&store, &io, &target);
            let tags = vec![Tag::new(if n % 2 == 0 { b"even" } else { b"odd" })];
            fill.head(state(), tags).unwrap();
            fill.write(body(50)).await.unwrap();
            fill.commit().await.unwrap();
        }
        let variant = target("origin/0/0").variant(b"gzip");
        let mut fill = begin(&store, &io, &variant);
        fill.head(state(), Vec::new()).unwrap();
        fill.commit().await.unwrap();

        let purge = async |what, how| store.purge(what, how).await.unwrap().objects;
        let key = |text: &str| What::Key(target(text).main);
        assert_eq!(purge(key("origin/2/29"), How::Hard).await, 1);
        assert_eq!(purge(key("origin/2/29"), How::Hard).await, 0);
        assert_eq!(purge(key("origin/0/0"), How::Hard).await, 2, "with its variant");
        assert_eq!(look(&store, &io, "origin/0/0").await, LookupOutcome::Absent);
        // 1, 4, …, 28
        assert_eq!(purge(What::Prefix(b"origin/1/".as_slice().into()), How::Soft).await, 10);
        match store.lookup(&io, &target("origin/1/4"), PLAIN).await {
            Lookup::File(hit) | Lookup::Memory(hit) => assert!(hit.soft_purged),
            other => panic!("{other:?}"),
        }
        assert_eq!(purge(What::Prefix(b"origin/1/".as_slice().into()), How::Hard).await, 10);
        // Left of 0: 3, 6, …, 27; of 2: 2, 5, …, 26. Even of those: 6, 12, 18, 24; 2, 8, 14, 20, 26.
        assert_eq!(purge(What::Tag(Tag::new(b"even")), How::Hard).await, 9);
        assert_eq!(purge(What::Tag(Tag::new(b"none")), How::Hard).await, 0);
        assert_eq!(purge(What::All, How::Hard).await, 9);
        assert_eq!(store.statistics().entries, 0);
    });
    assert_eq!(files(dir.path()), [".nowait-purges"], "of the soft one");
}

#[test]
fn a_fill_that_is_purged_is_not_stored() {
    let dir = TempDir::new("cache");
    let path = dir.path().to_owned();
    on_worker(move || async move {
        let (store, io) = (store(&path), io(4));
        for len in [100, 1_500_000] {
            let (mut fill, growing) = begin_and_join(&store, &io, &target("purged")).await;
            let reader = nowait_runtime::spawn(read_along(growing, io.clone()));
            fill.write(body(len)).await.unwrap();
            let purged = store.purge(What::Key(target("purged").main), How::Hard).await.unwrap();
            assert_eq!((purged.objects, purged.fills), (0, 1));
            assert!(fill.commit().await.is_err());
            assert_eq!(reader.await.unwrap(), Some(body(len)), "it was not cut");
            assert_eq!(look(&store, &io, "purged").await, LookupOutcome::Absent);
        }
    });
    // Before the disk was checked: a crash must not undo it.
    assert_eq!(files(dir.path()), [".nowait-purges"]);
}

/// The object stays on the disk: the next process, which knows only the file, has to learn of the
/// purge.
#[test]
fn a_soft_purge_outlives_its_process() {
    let dir = TempDir::new("cache");
    let path = dir.path().to_owned();
    on_worker(move || async move {
        let store = store(&path);
        store.tend();
        until("the loader", || !store.statistics().loading).await;
        put(&store, &io(4), "key", &body(5000)).await;
        let purged = store.purge(What::Key(target("key").main), How::Soft).await.unwrap();
        assert_eq!(purged.objects, 1);
    });
    let path = dir.path().to_owned();
    on_worker(move || async move {
        let store = store(&path);
        store.tend();
        until("the loader", || !store.statistics().loading).await;
        match store.lookup(&io(4), &target("key"), PLAIN).await {
            Lookup::File(hit) | Lookup::Memory(hit) => assert!(hit.soft_purged),
            other => panic!("{other:?}"),
        }
    });
}

/// A process was killed between a purge and the removal of the file: the next one learns of the
/// purge before it finds any object.
#[test]
fn a_purge_of_an_earlier_process_comes_first() {
    let dir = TempDir::new("cache");
    let path = dir.path().to_owned();
    let file = path.join(Levels::new(&[1, 2]).unwrap().file_name(&target("key").key).as_str());
    let stored = path.clone();
    on_worker(move || async move {
        put(&store(&stored), &io(4), "key", &body(5000)).await;
    });
    let object = std::fs::read(&file).unwrap();
    let purged = path.clone();
    on_worker(move || async move {
        let store = store(&purged);
        assert_eq!(look(&store, &io(4), "key").await.body(), body(5000));
        store.purge(What::Key(target("key").main), How::Hard).await.unwrap();
    });
    assert!(!file.exists() && path.join(".nowait-purges").exists());
    for _ in 0..20 {
        std::fs::write(&file, &object).unwrap();
        let path = path.clone();
        on_worker(move || async move {
            let store = store(&path);
            store.tend();
            assert_eq!(look(&store, &io(4), "key").await, LookupOutcome::Absent);
        });
    }
}

/// As when the cache is bypassed: the fill begins with the origin's response.
#[test]
fn what_was_asked_for_before_a_purge_is_not_stored() {
    let dir = TempDir::new("cache");
    let path = dir.path().to_owned();
    on_worker(move || async move {
        let (store, io) = (store(&path), io(4));
        let asked = Some(store.moment());
        store.purge(What::Tag(Tag(7)), How::Hard).await.unwrap();
        for (tags, stored) in [(vec![Tag(7)], false), (vec![Tag(8)], true)] {
            let options = FillOptions { asked, ..LOCKED };
            let start = store.begin_fill(&io, &target("late"), options);
            let FillStart::Fill(mut fill) = start else { panic!("{start:?}") };
            assert_eq!(fill.head(state(), tags).is_ok(), stored);
        }
    });
}

#[test]
fn the_index_is_there_at_once_after_a_restart() {
    let dir = TempDir::new("cache");
    let (path, again) = (dir.path().to_owned(), dir.path().to_owned());
    let (sender, receiver) = std::sync::mpsc::channel();
    on_worker(move || async move {
        let (store, io) = (store(&path), io(4));
        store.tend();
        until("the loader", || !store.statistics().loading).await;
        for n in 0..500 {
            put(&store, &io, &format!("key/{n}"), &body(n)).await;
        }
        sender.send(store).unwrap();
    });
    receiver.recv().unwrap().close(Duration::from_secs(30));
    assert!(files(dir.path()).iter().any(|name| name == ".nowait-index"));
    on_worker(move || async move {
        let slow = Steps { files: 1, sleep: Duration::from_secs(1), ..SWIFT };
        let (store, io) = (store_with(&again, |options| options.loader = slow), io(4));
        store.tend();
        until("the saved index", || store.statistics().entries == 500).await;
        assert!(store.statistics().loading, "the disk is checked later");
        assert_eq!(look(&store, &io, "key/499").await.body(), body(499));
        assert_eq!(look(&store, &io, "key/0").await.body(), body(0));
    });
}

#[test]
fn what_is_asked_for_again_is_kept_in_memory() {
    let dir = TempDir::new("cache");
    let store = store_with(dir.path(), |options| options.memory_bytes = Some(8 << 20));
    let shared = store.clone();
    on_worker(move || async move {
        let (store, io) = (shared, io(4));
        for len in [100, 60_000] {
            let text = format!("key/{len}");
            put(&store, &io, &text, &body(len)).await;
            let objects = store.statistics().memory.unwrap().objects;
            assert_eq!(look(&store, &io, &text).await, LookupOutcome::File(body(len)));
            until("the copy", || store.statistics().memory.unwrap().objects > objects).await;
        }
    });
    // Another worker has no open file of it.
    on_worker(move || async move {
        let io = io(4);
        for (hits, len) in [(1, 100), (2, 60_000)] {
            let found = look(&store, &io, &format!("key/{len}")).await;
            assert_eq!(found, LookupOutcome::Memory(body(len)));
            assert_eq!(store.statistics().memory.unwrap().hits, hits);
        }
    });
}

/// 100,000 objects are found while they are being counted. They are on a memory file system, since
/// creating that many files takes minutes on the disk of a busy machine; without one there are
/// fewer. `NOWAIT_TEST_OBJECTS` sets another number, on the disk.
#[test]
fn a_large_cache_is_loaded_in_the_background() {
    let asked_for: Option<usize> =
        std::env::var("NOWAIT_TEST_OBJECTS").ok().and_then(|n| n.parse().ok());
    let (objects, dir) = match (asked_for, TempDir::in_memory("cache", 1 << 30, 200_000)) {
        (Some(objects), _) => (objects, TempDir::new("cache")),
        (None, Some(dir)) => (100_000, dir),
        (None, None) => (20_000, TempDir::new("cache")),
    };
    let path = dir.path().to_owned();
    let levels = Levels::new(&[1, 2]).unwrap();
    for n in 0..objects {
        let target = target(&format!("key/{n}"));
        let identity = ObjectIdentity {
            key: target.key,
            main: target.main,
            key_text: target.text,
            tags: Vec::new(),
            created: UnixMs(1),
        };
        let encoded = format::encode(&identity, &state()).unwrap();
        let mut file = encoded.bytes.to_vec();
        let patch = encoded.completed(4);
        file[..patch.bytes.len()].copy_from_slice(&patch.bytes);
        file.extend_from_slice(b"body");
        let name = path.join(levels.file_name(&target.key).as_str());
        if std::fs::write(&name, &file).is_err() {
            std::fs::create_dir_all(name.parent().unwrap()).unwrap();
            std::fs::write(&name, &file).unwrap();
        }
    }
    on_worker(move || async move {
        let steps = Steps { files: 1000, ..SWIFT };
        let store = store_with(&path, |options| {
            options.loader = steps;
            options.zone_bytes = 32 << 20;
        });
        let (io, mut looked) = (io(4), 0);
        store.tend();
        while store.statistics().loading {
            let text = format!("key/{}", looked * 7919 % objects);
            assert_eq!(look(&store, &io, &text).await.body(), &b"body"[..]);
            looked += 1;
            nowait_runtime::yield_now().await;
        }
        assert!(looked > 100, "the loader leaves the loop to others: {looked}");
        assert_eq!(store.statistics().entries, objects as u64);
    });
}
