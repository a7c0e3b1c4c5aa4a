//! A fast store in front of a slow one.

mod common;

use std::sync::Arc;
use std::time::Duration;

use nowait_cache::index::{How, What};
use nowait_cache::{FillStart, Lookup, Steps, UnixMs};
use nowait_testkit::TempDir;

use common::*;

/// Stores an object through the fast store and uses it so often that it is copied there.
async fn promote(
    fast: &std::sync::Arc<nowait_cache::Store>,
    io: &nowait_runtime::fs::Io,
    text: &str,
    len: usize,
) {
    put(fast, io, text, &body(len)).await;
    let before = fast.statistics().promoted;
    for _ in 0..2 {
        assert_eq!(look(fast, io, text).await.body(), body(len), "behind it");
    }
    until("the copy", || fast.statistics().promoted > before).await;
}

/// The readers watch the disk on which it is stored.
#[test]
fn a_fill_is_that_of_the_slow_store() {
    let (fast_dir, slow_dir) = (TempDir::new("fast"), TempDir::new("slow"));
    let (fast_path, slow_path) = (fast_dir.path().to_owned(), slow_dir.path().to_owned());
    on_worker(move || async move {
        let (fast, slow, io) = (store(&fast_path), store(&slow_path), io(4));
        let (fill, growing) = begin_and_join(&fast, &io, &target("alone")).await;
        assert!(Arc::ptr_eq(&fast.store_of_growing(&growing), &fast));
        drop((fill, growing));
        fast.set_slower(Some(&slow));
        let (fill, growing) = begin_and_join(&fast, &io, &target("key")).await;
        assert!(Arc::ptr_eq(&fast.store_of_growing(&growing), &slow));
        drop((fill, growing));
    });
}

#[test]
fn what_is_used_twice_comes_forward_and_goes_back() {
    let (fast_dir, slow_dir) = (TempDir::new("fast"), TempDir::new("slow"));
    let (fast_path, slow_path) = (fast_dir.path().to_owned(), slow_dir.path().to_owned());
    on_worker(move || async move {
        let io = io(4);
        let steps = Steps { sleep: Duration::from_millis(1), ..Steps::NGINX };
        let fast = store_with(&fast_path, |options| {
            options.manager = steps;
            options.max_bytes = Some(4 << 20);
        });
        // The slow store gets no requests for objects of the fast one: it forgets this one.
        let slow = store_with(&slow_path, |options| {
            options.manager = steps;
            options.inactive = Duration::from_millis(300);
        });
        fast.set_slower(Some(&slow));
        fast.tend();
        slow.tend();
        until("the loaders", || !fast.statistics().loading && !slow.statistics().loading).await;

        promote(&fast, &io, "key", 100_000).await;
        assert_eq!((fast.statistics().entries, slow.statistics().entries), (1, 1));
        let hits = slow.statistics();
        assert_eq!(look(&fast, &io, "key").await.body(), body(100_000));
        assert_eq!(slow.statistics(), hits, "the slow one is not asked");

        // A new object removes the copy of the old one.
        put(&fast, &io, "key", &body(99)).await;
        assert_eq!(fast.statistics().entries, 0);
        assert_eq!(look(&fast, &io, "key").await.body(), body(99));

        // Forgotten by the slow store, and then evicted from the fast one.
        promote(&fast, &io, "moves", 100_000).await;
        until("the slow one to forget it", || slow.statistics().entries == 0).await;
        assert_eq!(look(&fast, &io, "moves").await.body(), body(100_000));
        for n in 0..45 {
            promote(&fast, &io, &format!("other/{n}"), 100_000).await;
        }
        until("it to go back", || fast.statistics().demoted >= 1).await;
    });
}

/// A softly purged object is stale wherever it is copied, and a purge of one of the two stores
/// applies to both.
#[test]
fn what_goes_back_stays_purged() {
    let (fast_dir, slow_dir) = (TempDir::new("fast"), TempDir::new("slow"));
    let (fast_path, slow_path) = (fast_dir.path().to_owned(), slow_dir.path().to_owned());
    on_worker(move || async move {
        let io = io(4);
        let fast = store_with(&fast_path, |options| {
            options.manager = Steps { sleep: Duration::from_millis(1), ..Steps::NGINX };
            options.max_bytes = Some(4 << 20);
        });
        let slow_dir = slow_path;
        let slow = store_with(&slow_dir, |options| {
            options.inactive = Duration::from_millis(300);
        });
        fast.set_slower(Some(&slow));
        fast.tend();
        slow.tend();
        until("the loaders", || !fast.statistics().loading && !slow.statistics().loading).await;
        promote(&fast, &io, "key", 100_000).await;
        // The slow store gets no requests for objects of the fast one.
        until("the slow one to forget it", || slow.statistics().entries == 0).await;
        slow.reconfigure(nowait_cache::StoreOptions::clone(&store(&slow_dir).options()));
        let key = What::Key(target("key").key);
        assert_eq!(fast.purge(key, How::Soft).await.unwrap().objects, 1);
        for n in 0..45 {
            promote(&fast, &io, &format!("other/{n}"), 100_000).await;
        }
        until("it to go back", || fast.statistics().demoted >= 1).await;
        let Lookup::File(hit) = slow.lookup(&io, &target("key"), PLAIN).await else {
            panic!("it is there")
        };
        assert!(hit.soft_purged, "it is still stale");

        promote(&fast, &io, "other", 1000).await;
        assert_eq!(slow.purge(What::All, How::Hard).await.unwrap().fills, 0);
        assert_eq!(look(&fast, &io, "other").await, LookupOutcome::Absent);
        assert_eq!(look(&fast, &io, "key").await, LookupOutcome::Absent);
    });
}

#[test]
fn purges_and_revalidations_reach_both() {
    let (fast_dir, slow_dir) = (TempDir::new("fast"), TempDir::new("slow"));
    let (fast_path, slow_path) = (fast_dir.path().to_owned(), slow_dir.path().to_owned());
    on_worker(move || async move {
        let (io, slow, fast) = (io(4), store(&slow_path), store(&fast_path));
        fast.set_slower(Some(&slow));
        for store in [&slow, &fast] {
            store.tend();
        }
        until("the loaders", || !fast.statistics().loading && !slow.statistics().loading).await;
        promote(&fast, &io, "key", 1000).await;
        let (Lookup::File(hit) | Lookup::Memory(hit)) =
            fast.lookup(&io, &target("key"), PLAIN).await
        else {
            panic!("it is there")
        };
        let FillStart::Fill(fill) = fast.begin_fill(&io, &target("key"), LOCKED) else {
            panic!("no other fill is running")
        };
        let next = nowait_cache::format::ObjectState { valid_until: UnixMs(12345), ..state() };
        let hit = fill.revalidated(&hit, next).await.unwrap();
        assert_eq!(hit.head().state.valid_until, UnixMs(12345));
        assert_eq!(read(&io, &hit).await, body(1000));
        let purged = fast.purge(What::All, How::Hard).await.unwrap();
        assert_eq!(purged.objects, 1, "the copy does not count");
        assert_eq!(look(&fast, &io, "key").await, LookupOutcome::Absent);
    });
    assert_eq!(files(fast_dir.path()).len() + files(slow_dir.path()).len(), 0);
}
