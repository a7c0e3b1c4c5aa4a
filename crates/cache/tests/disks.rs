//! Disks that are slow, hang, fail or are full affect only the objects on them.

mod common;

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use nowait_cache::index::{How, What};
use nowait_cache::{FillStart, Levels, Lookup, Steps, Why};
use nowait_runtime::{guard, spawn, yield_now};
use nowait_testkit::TempDir;
use nowait_testkit::slow_disk::{
    DiskImage, DiskOptions, EIO, ENOSPC, ImageOptions, Ops, SlowDisk, pin, quiet,
};

use common::*;

/// One for the worker, and one that keeps it until the worker has ended.
fn shared<T>(disk: T) -> (Arc<T>, Arc<T>) {
    let disk = Arc::new(disk);
    (disk.clone(), disk)
}

#[test]
fn a_disk_that_hangs_is_taken_out_of_use_and_comes_back() {
    let _quiet = quiet();
    let Some(disk) = SlowDisk::or_skip(DiskOptions::default()) else { return };
    let other = TempDir::new("cache");
    let (path, other_path) = (disk.path(), other.path().to_owned());
    // It is unmounted here, not on the worker.
    let (disk, _kept) = shared(disk);
    on_worker(move || async move {
        // Longer than a busy machine delays a thread.
        let hangs = store_with(&path, |options| options.hang_after = Duration::from_secs(4));
        let (good, io, good_io) = (store(&other_path), io(4), io(4));
        hangs.tend();
        until("the loader", || !hangs.statistics().loading).await;
        for n in 0..10 {
            put(&hangs, &io, &format!("key/{n}"), &body(5000)).await;
        }
        put(&good, &good_io, "good", &body(5000)).await;

        let gate = disk.hold(Ops::ALL);
        let lookups: Vec<_> = (0..6)
            .map(|n| {
                let (store, io) = (hangs.clone(), io.clone());
                spawn(async move { look(&store, &io, &format!("key/{n}")).await })
            })
            .collect();
        for _ in 0..50 {
            assert_eq!(look(&good, &good_io, "good").await.body(), body(5000));
            yield_now().await;
        }
        for lookup in lookups {
            assert_eq!(lookup.await.unwrap(), LookupOutcome::Unavailable(Why::Hanging));
        }
        assert_eq!(hangs.statistics().out_of_use, Some(Why::Hanging));
        assert_eq!(
            look(&hangs, &io, "key/9").await,
            LookupOutcome::Unavailable(Why::Hanging),
            "at once"
        );
        assert!(matches!(
            hangs.begin_fill(&io, &target("new"), LOCKED),
            FillStart::Unavailable(Why::Hanging)
        ));
        assert_eq!(look(&good, &good_io, "good").await.body(), body(5000));

        gate.open();
        until("the disk to be back in use", || hangs.statistics().out_of_use.is_none()).await;
        for n in 0..10 {
            assert_eq!(look(&hangs, &io, &format!("key/{n}")).await.body(), body(5000));
        }
        assert_eq!(hangs.statistics().outages, 1);
    });
}

/// A purge has its effect before it is written to the disk, which may take long.
#[test]
fn a_purge_has_effect_before_it_is_kept() {
    let _quiet = quiet();
    for (what, how) in [
        (What::Key(target("key").main), How::Hard),
        (What::Key(target("key").main), How::Soft),
        (What::Prefix(b"key".as_slice().into()), How::Hard),
    ] {
        let Some(disk) = SlowDisk::or_skip(DiskOptions::default()) else { return };
        let path = disk.path();
        let (disk, _kept) = shared(disk);
        on_worker(move || async move {
            // While it is walked, purges are written.
            let slow = Steps { files: 1, sleep: Duration::from_secs(600), ..Steps::NGINX };
            let (store, io) = (store_with(&path, |options| options.loader = slow), io(4));
            store.tend();
            put(&store, &io, "other", &body(5000)).await;
            put(&store, &io, "key", &body(5000)).await;
            let gate = disk.hold(Ops::CREATE);
            let purging = {
                let (store, what) = (store.clone(), what.clone());
                spawn(async move { store.purge(what, how).await })
            };
            let deadline = std::time::Instant::now() + nowait_testkit::wait::PATIENCE;
            loop {
                match store.lookup(&io, &target("key"), PLAIN).await {
                    Lookup::Absent { .. } => break,
                    Lookup::File(hit) | Lookup::Memory(hit) if hit.soft_purged => break,
                    _ => assert!(std::time::Instant::now() < deadline, "it is still served"),
                }
                nowait_runtime::sleep(Duration::from_millis(2)).await;
            }
            gate.open();
            purging.await.unwrap().unwrap();
        });
    }
}

/// Objects whose heads a purge could not read are still purged when the disk is back.
#[test]
fn a_purge_on_a_failing_disk_is_not_forgotten() {
    let _quiet = quiet();
    for how in [How::Hard, How::Soft] {
        let Some(disk) = SlowDisk::or_skip(DiskOptions::default()) else { return };
        let path = disk.path();
        let (disk, _kept) = shared(disk);
        on_worker(move || async move {
            let (store, io) = (store(&path), io(4));
            store.tend();
            until("the loader", || !store.statistics().loading).await;
            for n in 0..5 {
                put(&store, &io, &format!("key/{n}"), &body(5000)).await;
            }
            disk.fail(Ops::ALL, EIO);
            store.purge(What::Prefix(b"key/".as_slice().into()), how).await.unwrap();
            disk.heal();
            until("the disk to be back in use", || store.statistics().out_of_use.is_none()).await;
            for n in 0..5 {
                match store.lookup(&io, &target(&format!("key/{n}")), PLAIN).await {
                    Lookup::Absent { .. } => assert_eq!(how, How::Hard),
                    Lookup::File(hit) | Lookup::Memory(hit) => {
                        assert!(how == How::Soft && hit.soft_purged, "{n} was served");
                    }
                    other => panic!("{other:?}"),
                }
            }
        });
    }
}

#[test]
fn a_disk_that_fails_is_taken_out_of_use_and_comes_back() {
    let _quiet = quiet();
    let Some(disk) = SlowDisk::or_skip(DiskOptions::default()) else { return };
    let path = disk.path();
    let (disk, _kept) = shared(disk);
    on_worker(move || async move {
        let store = store_with(&path, |options| options.memory_bytes = Some(1 << 20));
        let io = io(4);
        store.tend();
        until("the loader", || !store.statistics().loading).await;
        put(&store, &io, "in memory", &body(100)).await;
        look(&store, &io, "in memory").await.body();
        for n in 0..5 {
            put(&store, &io, &format!("key/{n}"), &body(5000)).await;
        }
        until("the copy in memory", || store.statistics().memory.unwrap().objects == 1).await;
        disk.fail(Ops::ALL, EIO);
        for n in 0..5 {
            let found = look(&store, &io, &format!("key/{n}")).await;
            assert_eq!(found, LookupOutcome::Unavailable(Why::Failing), "{n}");
        }
        assert_eq!(store.statistics().out_of_use, Some(Why::Failing));
        assert_eq!(look(&store, &io, "in memory").await, LookupOutcome::Memory(body(100)));
        disk.heal();
        until("the disk to be back in use", || store.statistics().out_of_use.is_none()).await;
        for n in 0..5 {
            assert_eq!(look(&store, &io, &format!("key/{n}")).await.body(), body(5000));
        }
    });
}

/// Nothing writes them any more, but no walk removes files of a living process.
#[test]
fn temporary_files_go_when_the_disk_lets_them() {
    let _quiet = quiet();
    let Some(disk) = SlowDisk::or_skip(DiskOptions::default()) else { return };
    let (path, backing) = (disk.path(), disk.backing());
    let (disk, _kept) = shared(disk);
    on_worker(move || async move {
        let (store, io) = (store(&path), io(4));
        let number = || guard::exempt(|| files(&backing).len());
        store.tend();
        until("the loader", || !store.statistics().loading).await;
        disk.fail(Ops::UNLINK, EIO);
        for n in 0..3 {
            let mut fill = begin(&store, &io, &target(&format!("key/{n}")));
            fill.head(state(), Vec::new()).unwrap();
            fill.write(body(2_000_000)).await.unwrap();
            until("the file", || number() > n).await;
            drop(fill);
        }
        until("removals that fail", || store.statistics().errors >= 3).await;
        assert_eq!(number(), 3);
        disk.heal();
        until("their removal", || number() == 0).await;
        put(&store, &io, "key/0", &body(5000)).await;
        assert_eq!(look(&store, &io, "key/0").await.body(), body(5000));
    });
}

/// The client's response continues: the fill only reports that it has ended. Room is made for
/// others.
#[test]
fn a_full_disk_takes_nothing_and_breaks_nothing() {
    const OLD: usize = 20;
    let _quiet = quiet();
    let Some(disk) = SlowDisk::or_skip(DiskOptions::default()) else { return };
    let (path, backing) = (disk.path(), disk.backing());
    let (disk, _kept) = shared(disk);
    on_worker(move || async move {
        let (store, io) = (store(&path), io(4));
        store.tend();
        until("the loader", || !store.statistics().loading).await;
        for n in 0..OLD {
            put(&store, &io, &format!("old/{n}"), &body(5000)).await;
        }
        let kept = format!("old/{}", OLD - 1);
        disk.fail(Ops::WRITE, ENOSPC);
        let mut fill = begin(&store, &io, &target("new"));
        fill.head(state(), Vec::new()).unwrap();
        let mut refused = false;
        for _ in 0..100 {
            refused |= fill.write(body(100_000)).await.is_err();
        }
        assert!(refused && fill.commit().await.is_err());
        assert!(matches!(
            store.begin_fill(&io, &target("next"), LOCKED),
            FillStart::Unavailable(Why::Full)
        ));
        assert_eq!(look(&store, &io, "new").await, LookupOutcome::Absent);
        assert_eq!(look(&store, &io, &kept).await.body(), body(5000));
        until("room to be made", || store.statistics().evicted > 0).await;
        assert!(store.statistics().evicted < 5, "for one lack of room");
        assert_eq!(look(&store, &io, "old/0").await, LookupOutcome::Absent);
        assert_eq!(look(&store, &io, &kept).await.body(), body(5000));
        assert_eq!(store.statistics().out_of_use, None, "it can still be read");
        disk.heal();
        until("room", || {
            matches!(store.begin_fill(&io, &target("next"), LOCKED), FillStart::Fill(_))
        })
        .await;
        put(&store, &io, "next", &body(100)).await;
        assert_eq!(look(&store, &io, "next").await.body(), body(100));
    });
    let files = files(&backing);
    assert!((OLD / 2..=OLD).contains(&files.len()), "{files:?}");
    assert!(files.iter().all(|name| name.len() == 32), "temporary files: {files:?}");
}

/// The disk fills up midway: readers of the growing object get everything, but it is not stored.
#[test]
fn a_full_disk_cuts_nobody() {
    let _quiet = quiet();
    let Some(disk) = SlowDisk::or_skip(DiskOptions::default()) else { return };
    let (path, backing) = (disk.path(), disk.backing());
    let (disk, _kept) = shared(disk);
    on_worker(move || async move {
        let (store, io, whole) = (store(&path), io(4), body(3_000_000));
        let mut text = 0;
        for full_after in [0, 1, 12, 30] {
            text += 1;
            let target = target(&format!("key/{text}"));
            let (mut fill, growing) = begin_and_join(&store, &io, &target).await;
            let reader = spawn(read_along(growing, io.clone()));
            for (n, piece) in whole.chunks(100_000).enumerate() {
                if n == full_after {
                    disk.fail(Ops::WRITE | Ops::CREATE | Ops::RENAME, ENOSPC);
                }
                fill.write(whole.slice_ref(piece)).await.unwrap();
                yield_now().await;
            }
            disk.fail(Ops::WRITE | Ops::CREATE | Ops::RENAME, ENOSPC);
            assert!(fill.commit().await.is_err(), "{full_after}");
            assert_eq!(reader.await.unwrap(), Some(whole.clone()), "{full_after}");
            disk.heal();
            until("room", || matches!(store.begin_fill(&io, &target, LOCKED), FillStart::Fill(_)))
                .await;
        }
    });
    assert_eq!(files(&backing), Vec::<String>::new());
}

/// The client waits only briefly for the hanging disk, and nothing is left of the object.
#[test]
fn a_client_does_not_wait_for_a_disk_that_takes_nothing() {
    let _quiet = quiet();
    let Some(disk) = SlowDisk::or_skip(DiskOptions::default()) else { return };
    let (path, backing) = (disk.path(), disk.backing());
    let (disk, _kept) = shared(disk);
    on_worker(move || async move {
        let (store, io) = (store(&path), io(4));
        let mut fill = begin(&store, &io, &target("key"));
        fill.head(state(), Vec::new()).unwrap();
        let gate = disk.hold(Ops::WRITE);
        let mut refused = false;
        for _ in 0..100 {
            refused |= fill.write(body(100_000)).await.is_err();
        }
        assert!(refused);
        drop(fill);
        gate.open();
        assert_eq!(look(&store, &io, "key").await, LookupOutcome::Absent);
    });
    assert_eq!(files(&backing), Vec::<String>::new());
}

/// If it were killed in between, the server would find the file at its next start, with no record
/// of the purge.
#[test]
fn a_purge_is_not_done_while_its_object_gets_a_name() {
    let _quiet = quiet();
    let Some(disk) = SlowDisk::or_skip(DiskOptions::default()) else { return };
    let (path, backing) = (disk.path(), disk.backing());
    let (disk, _kept) = shared(disk);
    on_worker(move || async move {
        let (store, io) = (store(&path), io(4));
        store.tend();
        until("the loader", || !store.statistics().loading).await;
        for what in [What::Key(target("key").key), What::All] {
            let gate = disk.hold(Ops::RENAME);
            let mut fill = begin(&store, &io, &target("key"));
            fill.head(state(), Vec::new()).unwrap();
            fill.write(body(100)).await.unwrap();
            let fill = spawn(async move { fill.commit().await.is_ok() });
            while gate.waiting() == 0 {
                yield_now().await;
            }
            let other = store.purge(What::Key(target("other").key), How::Hard).await;
            assert_eq!(other.unwrap().fills, 0, "no other purge waits");
            let done = Rc::new(Cell::new(false));
            let (purging, is_done) = (store.clone(), done.clone());
            let purge = spawn(async move {
                let purged = purging.purge(what, How::Hard).await;
                is_done.set(true);
                purged
            });
            for _ in 0..1000 {
                yield_now().await;
            }
            assert!(!done.get());
            gate.open();
            let purged = purge.await.unwrap().unwrap();
            assert_eq!((purged.objects, purged.fills), (0, 1));
            assert!(!fill.await.unwrap());
            assert_eq!(look(&store, &io, "key").await, LookupOutcome::Absent);
        }
    });
    assert_eq!(files(&backing), Vec::<String>::new());
}

#[test]
fn what_is_in_memory_does_not_wait_for_its_disk() {
    let _quiet = quiet();
    let Some(mut image) = DiskImage::or_skip(ImageOptions::default()) else { return };
    let path = image.path().join("cache");
    let filled = path.clone();
    on_worker(move || async move {
        let (store, io) = (store(&filled), io(4));
        for n in 0..20 {
            put(&store, &io, &format!("key/{n}"), &body(50_000)).await;
        }
    });
    image.make_cold();
    let (image, _kept) = shared(image);
    on_worker(move || async move {
        let (store, io) = (store(&path), io(4));
        store.tend();
        until("the loader", || !store.statistics().loading).await;
        for n in 0..10 {
            assert_eq!(
                look(&store, &io, &format!("key/{n}")).await,
                LookupOutcome::File(body(50_000))
            );
        }
        let levels = Levels::new(&[1, 2]).unwrap();
        let hot = (0..10).map(|n| target(&format!("key/{n}")).key);
        let hot: Vec<_> = hot.map(|key| path.join(levels.file_name(&key).as_str())).collect();
        // Not on the loop: it opens files.
        let pinned =
            std::thread::spawn(move || hot.iter().map(|path| pin(path)).collect::<Vec<_>>());
        let _pinned = pinned.join().unwrap();
        let gate = image.hold();
        let cold: Vec<_> = (10..20)
            .map(|n| {
                let (store, io) = (store.clone(), io.clone());
                spawn(async move { look(&store, &io, &format!("key/{n}")).await })
            })
            .collect();
        while gate.waiting() == 0 {
            yield_now().await;
        }
        for n in (0..10).cycle().take(200) {
            let found = look(&store, &io, &format!("key/{n}")).await;
            assert_eq!(found.body(), body(50_000), "{n}");
        }
        gate.open();
        for one in cold {
            assert_eq!(one.await.unwrap(), LookupOutcome::File(body(50_000)));
        }
    });
}
