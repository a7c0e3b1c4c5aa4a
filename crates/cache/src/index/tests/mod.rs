//! The behaviour of the index, seen from outside. Random sequences against a model are in
//! [`model`].

mod model;

use super::*;

const NOW: UnixMs = UnixMs(1_000_000);

fn index() -> Arc<Index> {
    sized(1 << 20)
}

fn sized(bytes: usize) -> Arc<Index> {
    let config = Config { bytes, tag_bytes: 1 << 16, inactive: Duration::from_secs(600) };
    let index = Index::new(config).expect("large enough");
    index.set_warm();
    index
}

fn ask(now: UnixMs, min_uses: u16) -> LookupContext<'static> {
    LookupContext { now, min_uses, key_text: b"" }
}

fn after(seconds: u64) -> UnixMs {
    NOW.after(Duration::from_secs(seconds))
}

fn commit<'a>(main: &'a Key, text: &'a [u8], tags: &'a [Tag]) -> Commit<'a> {
    let names = PurgeNames { main, key_text: text, tags, created: NOW };
    Commit { names, length: 5000, blocks: 2, head_bytes: 500, valid_until: NOW }
}

fn store(index: &Arc<Index>, text: &str, tags: &[Tag], now: UnixMs) -> Key {
    let key = Key::new(text.as_bytes());
    let mut hold = index.hold(&key, now).expect("room");
    hold.commit(&commit(&key, text.as_bytes(), tags), now).expect("not purged");
    key
}

fn is_stored(index: &Index, key: &Key) -> bool {
    matches!(index.lookup(key, ask(NOW, 1)), LookupResult::Stored(_))
}

/// Runs a purge to its end; every head contains `names`. Returns the removed and the marked
/// objects.
fn run(mut purge: Purge, names: impl Fn(&Key) -> (Key, Vec<u8>, Vec<Tag>)) -> (usize, usize) {
    let (mut removed, mut marked) = (0, 0);
    loop {
        let step = purge.step(3);
        removed += step.victims.len();
        marked += step.marked;
        for key in step.verify {
            let (main, key_text, tags) = names(&key);
            let names = PurgeNames { main: &main, key_text: &key_text, tags: &tags, created: NOW };
            match purge.verified(&key, names) {
                Verified::Kept => {}
                Verified::Marked => marked += 1,
                Verified::Victim(_) => removed += 1,
            }
        }
        if step.done {
            purge.finish();
            return (removed, marked);
        }
    }
}

fn no_names(_: &Key) -> (Key, Vec<u8>, Vec<Tag>) {
    panic!("no head needs to be read")
}

#[test]
fn a_stored_object_is_found_and_evicted() {
    let index = index();
    let key = store(&index, "a", &[], NOW);
    assert!(matches!(
        index.lookup(&key, ask(NOW, 1)),
        LookupResult::Stored(Stored { length: 5000, .. })
    ));
    assert_eq!(index.blocks(), 2);
    let victims = index.evict(5);
    assert_eq!(victims.len(), 1);
    assert_eq!(index.blocks(), 0);
    assert!(!is_stored(&index, &key));
    assert!(matches!(index.hold(&key, NOW), Err(NoHold::Deleting)));
    drop(victims);
    assert_eq!(index.usage().keys, 0);
    store(&index, "a", &[], NOW);
}

/// nginx: a key is stored on its request number `min_uses`.
#[test]
fn uses_are_counted_up_to_the_first_store() {
    let index = index();
    let key = Key::new(b"a");
    for (uses, wanted) in [(1, false), (2, false), (3, true)] {
        let absent = AbsentKey { uses, wanted, updating: false };
        assert_eq!(index.lookup(&key, ask(NOW, 3)), LookupResult::Absent(absent));
    }
    drop(index.hold(&key, NOW).unwrap());
    assert_eq!(index.usage().keys, 1, "still counted");
    let other = Key::new(b"b");
    assert!(matches!(
        index.lookup(&other, ask(NOW, 1)),
        LookupResult::Absent(AbsentKey { wanted: true, .. })
    ));
    assert_eq!(index.usage().keys, 1, "nothing to count with min_uses 1");
}

#[test]
fn a_remembered_error_is_answered_until_its_time() {
    let index = index();
    let key = store(&index, "a", &[], NOW);
    index.hold(&key, NOW).unwrap().remember_error(504, after(5));
    let error = LookupResult::Error { status: 504, valid_until: after(5) };
    assert_eq!(index.lookup(&key, ask(after(4), 1)), error);
    assert!(matches!(index.lookup(&key, ask(after(5), 1)), LookupResult::Stored(_)), "still there");

    let absent = Key::new(b"b");
    index.hold(&absent, NOW).unwrap().remember_error(502, after(5));
    assert!(matches!(index.lookup(&absent, ask(NOW, 1)), LookupResult::Error { status: 502, .. }));
    assert!(matches!(index.lookup(&absent, ask(after(5), 1)), LookupResult::Absent(_)));
}

#[test]
fn fills_and_updates_are_visible_to_others() {
    let index = index();
    let key = store(&index, "a", &[], NOW);
    let hold = index.hold(&key, NOW).unwrap();
    assert!(index.peek(&key).unwrap().updating);
    let names = PurgeNames { main: &key, key_text: b"a", tags: &[], created: NOW };
    let stamp = index.peek(&key).unwrap().stamp;
    assert!(hold.revalidated(names, stamp, after(60)));
    let stored = index.peek(&key).unwrap();
    assert!(!stored.updating);
    assert_eq!((stored.valid_until, stored.stamp), (after(60), stamp));
    assert!(!index.hold(&key, NOW).unwrap().revalidated(names, stamp + 1, NOW));
}

#[test]
fn inactive_entries_go_and_held_ones_stay() {
    let index = index();
    let (old, held) = (store(&index, "old", &[], NOW), store(&index, "held", &[], NOW));
    index.lookup(&Key::new(b"counted"), ask(NOW, 2));
    let recent = store(&index, "recent", &[], after(100));
    let hold = index.hold(&held, NOW).unwrap();
    assert_eq!(index.expire(after(590), 100).next, Duration::from_secs(10));
    let expired = index.expire(after(600), 100);
    assert_eq!(expired.victims.iter().map(|victim| *victim.key()).collect::<Vec<_>>(), [old]);
    assert_eq!(expired.next, Duration::from_secs(10), "nginx's manager looks each 10 s");
    drop((expired, hold));
    assert!(is_stored(&index, &held) && is_stored(&index, &recent));
    assert_eq!(index.usage().keys, 2);
    let expired = index.expire(after(100_000), 1);
    assert_eq!((expired.victims.len(), expired.next), (1, Duration::ZERO));
}

#[test]
fn a_full_index_says_what_must_go() {
    let index = sized(BYTES_MIN);
    let keys = index.usage().keys_max;
    for number in 0..keys {
        store(&index, &number.to_string(), &[], after(number));
    }
    let waker = Waker::noop();
    assert!(index.poll_pressure(&mut Context::from_waker(waker)).is_ready());
    assert!(index.poll_pressure(&mut Context::from_waker(waker)).is_pending());
    let Err(NoHold::Full(Some(victim))) = index.hold(&Key::new(b"x"), NOW) else { panic!("room") };
    assert_eq!(*victim.key(), Key::new(b"0"));
    assert!(index.poll_pressure(&mut Context::from_waker(waker)).is_ready());
    assert!(matches!(index.hold(&Key::new(b"x"), NOW), Err(NoHold::Full(Some(_)))));
    drop(victim);
    store(&index, "x", &[], after(keys));

    let relieved = index.relieve(usize::MAX).len() as u64;
    assert!((keys / 20..keys / 10).contains(&relieved), "{relieved} of {keys}");
    assert_eq!(index.relieve(usize::MAX).len(), 0);
}

/// A crawler with `min_uses` above 1 must not push out stored objects.
#[test]
fn counted_keys_never_push_out_a_file() {
    let index = sized(BYTES_MIN);
    let stored = index.usage().keys_max / 2;
    let keys: Vec<_> = (0..stored).map(|n| store(&index, &n.to_string(), &[], NOW)).collect();
    for number in 0..10 * index.usage().keys_max {
        index.lookup(&Key::new(format!("scan{number}").as_bytes()), ask(after(number), 2));
    }
    assert!(keys.iter().all(|key| is_stored(&index, key)));
    store(&index, "more", &[], NOW);
}

#[test]
fn memory_stays_within_the_configured_size() {
    for bytes in [BYTES_MIN, 1 << 20, 10 << 20, (10 << 20) + 12_345] {
        let index = sized(bytes);
        let keys_max = index.usage().keys_max;
        let fixed =
            size_of::<Index>() + index.shards.len() * size_of::<CachePadded<Mutex<Shard>>>();
        assert!(fixed as u64 + keys_max * KEY_COST_BYTES as u64 <= bytes as u64);
        // nginx: one megabyte for about 8 thousand keys.
        assert!(keys_max * 128 > bytes as u64, "{keys_max} keys in {bytes}");
    }
    assert!(
        Index::new(Config { bytes: BYTES_MIN - 1, tag_bytes: 0, inactive: Duration::ZERO })
            .is_none()
    );
}

#[test]
fn a_key_is_purged_with_its_variants() {
    let index = index();
    let main = store(&index, "a", &[], NOW);
    let other = store(&index, "b", &[], NOW);
    let variant = main.variant(b"gzip");
    let mut hold = index.hold(&variant, NOW).unwrap();
    hold.commit(&commit(&main, b"a", &[]), NOW).unwrap();
    let purge = index.purge(What::Key(main), How::Soft, NOW).unwrap();
    assert_eq!(run(purge, no_names), (0, 2));
    assert!(index.peek(&variant).unwrap().soft_purged);
    assert_eq!(run(index.purge(What::Key(main), How::Soft, NOW).unwrap(), no_names), (0, 0));
    assert_eq!(run(index.purge(What::Key(main), How::Hard, NOW).unwrap(), no_names), (2, 0));
    assert!(!is_stored(&index, &variant) && is_stored(&index, &other));
}

#[test]
fn a_tag_is_purged_wherever_it_stands() {
    let index = index();
    let (news, sport) = (Tag::new(b"news"), Tag::new(b"sport"));
    let both = store(&index, "both", &[news, sport], NOW);
    let one = store(&index, "one", &[news], NOW);
    for number in 0..20 {
        store(&index, &number.to_string(), &[news], NOW);
    }
    assert_eq!(run(index.purge(What::Tag(sport), How::Soft, NOW).unwrap(), no_names), (0, 1));
    assert!(index.peek(&both).unwrap().soft_purged && !index.peek(&one).unwrap().soft_purged);
    store(&index, "both", &[news], NOW);
    assert!(!index.peek(&both).unwrap().soft_purged, "another object");
    assert_eq!(run(index.purge(What::Tag(sport), How::Hard, NOW).unwrap(), no_names), (0, 0));
    assert_eq!(run(index.purge(What::Tag(news), How::Hard, NOW).unwrap(), no_names), (22, 0));
    assert_eq!(index.usage(), Usage { keys: 0, stored: 0, blocks: 0, tags: 0, ..index.usage() });
}

#[test]
fn a_prefix_is_purged_at_once_and_then_from_disk() {
    let index = index();
    let text = |n: u64| format!("httporigin/{}/{n}", n % 2);
    for number in 0..20 {
        store(&index, &text(number), &[], NOW);
    }
    let find = |n: u64| {
        let text = text(n);
        let ask = LookupContext { now: NOW, min_uses: 1, key_text: text.as_bytes() };
        matches!(index.lookup(&Key::new(text.as_bytes()), ask), LookupResult::Stored(_))
    };
    let prefix = What::Prefix(b"httporigin/1/1".as_slice().into());
    let purge = index.purge(prefix, How::Hard, NOW).unwrap();
    // Before any step: 1, 11, 13, ... but not 3.
    assert!(!find(1) && !find(13) && find(3) && find(2));
    store(&index, &text(1), &[], NOW);
    assert!(find(1), "stored after the purge");
    let names = |key: &Key| {
        let number = (0..20).find(|&n| Key::new(text(n).as_bytes()) == *key).unwrap();
        assert_eq!(number % 2, 1, "the sketch tells the other directory");
        (*key, text(number).into_bytes(), Vec::new())
    };
    assert_eq!(run(purge, names), (5, 0));
    assert!(find(1) && find(3) && !find(11));
    assert!(index.unfinished_purges().is_empty());
}

#[test]
fn everything_is_purged_at_once() {
    let index = index();
    let key = store(&index, "a", &[], NOW);
    let purge = index.purge(What::All, How::Soft, NOW).unwrap();
    let LookupResult::Stored(stored) = index.lookup(&key, ask(NOW, 1)) else {
        panic!("not stored")
    };
    assert!(stored.soft_purged);
    let fresh = store(&index, "b", &[], NOW);
    assert_eq!(run(purge, no_names), (0, 1));
    assert!(index.peek(&key).unwrap().soft_purged && !index.peek(&fresh).unwrap().soft_purged);
    assert_eq!(run(index.purge(What::All, How::Hard, NOW).unwrap(), no_names), (2, 0));
}

/// The race of every purge: the origin's old answer is still on its way.
#[test]
fn a_fill_begun_before_a_purge_is_not_stored() {
    let tag = Tag::new(b"news");
    let key = Key::new(b"httporigin/a");
    let prefix = What::Prefix(b"httporigin/".as_slice().into());
    for what in [What::Key(key), What::Tag(tag), prefix, What::All] {
        let index = index();
        let mut before = index.hold(&key, NOW).unwrap();
        let mut soft = index.hold(&key, NOW).unwrap();
        run(index.purge(what.clone(), How::Soft, NOW).unwrap(), no_names);
        let object = commit(&key, b"httporigin/a", std::slice::from_ref(&tag));
        assert!(soft.commit(&object, NOW).unwrap().soft_purged, "{what:?}");
        assert!(before.check(object.names));
        drop(index.purge(what.clone(), How::Hard, NOW).unwrap());
        assert!(!before.check(object.names));
        assert_eq!(before.commit(&object, NOW), Err(CommitError::Purged));
        let mut after = index.hold(&key, NOW).unwrap();
        assert!(!after.commit(&object, NOW).unwrap().soft_purged);
    }
}

/// An old response must not be revalidated over a newer object unnoticed.
#[test]
fn one_file_at_a_time_gets_the_name() {
    let index = index();
    let key = Key::new(b"a");
    let object = commit(&key, b"a", &[]);
    let hold = || index.hold(&key, NOW).unwrap();
    let (mut old, mut late) = (hold(), hold());
    assert!(old.may_publish(object.names) && old.may_publish(object.names));
    run(index.purge(What::Key(key), How::Hard, NOW).unwrap(), no_names);
    assert!(!late.may_publish(object.names), "purged");
    let mut new = hold();
    assert!(!new.may_publish(object.names), "the old one may have the name at this moment");
    assert_eq!(old.commit(&object, NOW), Err(CommitError::Purged));
    drop(late);
    assert!(!new.may_publish(object.names), "its file is to be removed first");
    drop(old);
    assert!(new.may_publish(object.names));
    assert!(new.commit(&object, NOW).is_ok());
    drop(new);
    assert!(hold().may_publish(object.names));
}

#[test]
fn a_file_with_unknown_tags_is_checked_by_its_head() {
    let index = index();
    let tag = Tag::new(b"news");
    let key = Key::new(b"httporigin/a");
    let found = Record::found(key, 900, 2, NOW);
    assert_eq!(index.found(&found), LoadResult::Added);
    assert!(index.peek(&key).unwrap().names_in_file);
    let names = PurgeNames { main: &key, key_text: b"httporigin/a", tags: &[tag], created: NOW };
    let learn =
        Learn { key, names, length: 900, blocks: 2, head_bytes: 300, valid_until: after(9) };
    let Learned::Stored(stored) = index.learn(&learn, NOW) else { panic!("purged") };
    assert!(!stored.names_in_file && stored.head_bytes == 300 && stored.valid_until == after(9));
    assert_eq!(run(index.purge(What::Tag(tag), How::Soft, NOW).unwrap(), no_names), (0, 1));

    let other = Key::new(b"httporigin/b");
    assert_eq!(index.found(&Record::found(other, 900, 2, NOW)), LoadResult::Added);
    // On a hit that precedes the walk.
    drop(index.purge(What::Tag(tag), How::Hard, NOW).unwrap());
    let names = PurgeNames { main: &other, ..names };
    let learned = index.learn(&Learn { key: other, names, ..learn }, NOW);
    assert!(matches!(learned, Learned::Purged(Some(_))));

    // By the walk, which counts it.
    let third = Key::new(b"httporigin/c");
    assert_eq!(index.found(&Record::found(third, 900, 2, NOW)), LoadResult::Added);
    let names = |key: &Key| (*key, b"httporigin/c".to_vec(), vec![tag]);
    assert_eq!(run(index.purge(What::Tag(tag), How::Hard, NOW).unwrap(), names), (2, 0));
}

#[test]
fn tags_that_do_not_fit_are_left_to_the_files() {
    let config = Config { bytes: 1 << 20, tag_bytes: 200, inactive: Duration::from_secs(600) };
    let index = Index::new(config).unwrap();
    let tags = [Tag(1), Tag(2), Tag(3)];
    let one = store(&index, "one", &tags, NOW);
    let two = store(&index, "two", &tags, NOW);
    assert!(!index.peek(&one).unwrap().names_in_file);
    assert!(index.peek(&two).unwrap().names_in_file);
    let names = |key: &Key| (*key, b"two".to_vec(), tags.to_vec());
    assert_eq!(run(index.purge(What::Tag(Tag(4)), How::Hard, NOW).unwrap(), names), (0, 0));
    assert!(index.peek(&two).unwrap().names_in_file, "no room yet");
    assert_eq!(index.evict(1).len(), 1);
    assert_eq!(run(index.purge(What::Tag(Tag(4)), How::Hard, NOW).unwrap(), names), (0, 0));
    assert!(!index.peek(&two).unwrap().names_in_file, "what was read is known");
    let three = store(&index, "three", &tags, NOW);
    assert!(index.peek(&three).unwrap().names_in_file);
    assert_eq!(run(index.purge(What::Tag(Tag(2)), How::Hard, NOW).unwrap(), names), (2, 0));
}

/// A copy from another store is older than any object here.
#[test]
fn a_copy_takes_no_place() {
    let index = index();
    let key = Key::new(b"a");
    let object = commit(&key, b"a", &[]);
    let mut copy = index.hold(&key, NOW).unwrap();
    let mut fill = index.hold(&key, NOW).unwrap();
    assert!(fill.may_publish(object.names));
    assert!(!copy.may_publish_copy(object.names), "one is being stored");
    fill.commit(&object, NOW).unwrap();
    assert!(!copy.may_publish_copy(object.names), "one is there");
    // By its commit it has made way for the next one.
    let mut other = index.hold(&key, NOW).unwrap();
    assert!(other.may_publish(object.names));
    drop((copy, fill, other));
    let _ = index.evict(1);

    let mut copy = index.hold(&key, NOW).unwrap();
    copy.soften();
    assert!(copy.may_publish_copy(object.names));
    copy.commit(&object, NOW).unwrap();
    assert!(index.peek(&key).unwrap().soft_purged);
}

#[test]
fn what_purges_leave_of_an_object() {
    let index = index();
    let tag = Tag::new(b"news");
    let key = store(&index, "a", &[tag], NOW);
    let names = PurgeNames { main: &key, key_text: b"a", tags: &[tag], created: NOW };
    assert_eq!(index.standing(&key, names), Standing::Valid);
    assert_eq!(index.standing_of_victim(&key, names), Standing::Gone);
    drop(index.purge(What::Tag(tag), How::Soft, NOW).unwrap());
    assert_eq!(index.standing(&key, names), Standing::Stale);
    let victims = index.evict(1);
    assert_eq!(index.standing_of_victim(&key, names), Standing::Stale);
    drop(index.purge(What::Key(key), How::Hard, NOW).unwrap());
    assert_eq!(index.standing_of_victim(&key, names), Standing::Gone);
    drop(victims);
    assert_eq!(index.standing_of_victim(&key, names), Standing::Gone);
}

#[test]
fn while_cold_a_purge_waits_for_the_loader() {
    let config = Config { bytes: 1 << 20, tag_bytes: 0, inactive: Duration::from_secs(600) };
    let index = Index::new(config).unwrap();
    assert!(index.is_cold());
    run(index.purge(What::All, How::Hard, NOW).unwrap(), no_names);
    let key = Key::new(b"a");
    index.found(&Record::found(key, 900, 2, NOW));
    assert!(!is_stored(&index, &key), "from before the purge");
    index.set_warm();
    let again = index.unfinished_purges().pop().unwrap();
    assert_eq!(run(again, no_names), (1, 0));
    assert!(index.unfinished_purges().is_empty());
    store(&index, "a", &[], NOW);
}

/// The walk of a purge ends just after the loader has met a file that the walk has not.
#[test]
fn a_purge_begun_while_cold_stays_active_until_it_is_walked_again() {
    let config = Config { bytes: 1 << 20, tag_bytes: 0, inactive: Duration::from_secs(600) };
    let index = Index::new(config).unwrap();
    let mut purge =
        index.purge(What::Prefix(b"a".as_slice().into()), How::Hard, NOW).expect("room");
    assert!(purge.step(1000).done);
    let key = Key::new(b"a");
    index.found(&Record::found(key, 900, 2, NOW));
    index.set_warm();
    purge.finish();
    let hit = index.lookup(&key, LookupContext { key_text: b"a", ..ask(NOW, 1) });
    assert!(matches!(hit, LookupResult::Absent(_)), "{hit:?}");
    let again = index.unfinished_purges().pop().unwrap();
    assert_eq!(run(again, |key| (*key, b"a".to_vec(), Vec::new())), (1, 0));
    assert!(index.unfinished_purges().is_empty());
}

/// The walk of a purge reads the head of an object that another purge concerns, whose walk has not
/// met it.
#[test]
fn no_purge_vouches_for_an_object_of_another_purge() {
    let index = index();
    for how in [How::Hard, How::Soft] {
        let prefix = |text: &[u8]| index.purge(What::Prefix(text.into()), how, NOW).expect("room");
        let (mut first, mut second) = (prefix(b"b"), prefix(b"a"));
        assert!(second.step(1000).done);
        let key = Key::new(b"a");
        index.found(&Record::found(key, 900, 2, NOW));
        second.finish();
        assert_eq!(first.step(1000).verify, [key]);
        let names = PurgeNames { main: &key, key_text: b"a", tags: &[], created: NOW };
        assert!(matches!(first.verified(&key, names), Verified::Kept));
        first.finish();
        assert!(index.peek(&key).expect("found").names_in_file, "its head is not read on a hit");
        index.forget(&key, 0);
    }
}

/// The file exists, but the loader has not reached it.
#[test]
fn while_cold_the_file_of_a_key_is_purged() {
    let config = Config { bytes: 1 << 20, tag_bytes: 0, inactive: Duration::from_secs(600) };
    let index = Index::new(config).unwrap();
    assert!(index.must_keep_purges());
    let key = Key::new(b"a");
    let names = |key: &Key| (*key, b"a".to_vec(), Vec::new());
    assert_eq!(run(index.purge(What::Key(key), How::Soft, NOW).unwrap(), names), (0, 1));
    assert!(index.peek(&key).unwrap().soft_purged);
    assert_eq!(index.found(&Record::found(key, 900, 2, NOW)), LoadResult::Known);
    assert_eq!(index.blocks(), 2);
    index.forget(&key, 0);
    assert_eq!(run(index.purge(What::Key(key), How::Hard, NOW).unwrap(), names), (1, 0));
    assert_eq!(index.usage().keys, 0);
    index.set_warm();
    assert_eq!(run(index.purge(What::Key(key), How::Hard, NOW).unwrap(), no_names), (0, 0));
}

/// A purge, a crash, and files with unknown stamps.
#[test]
fn a_purge_of_an_earlier_process_spares_what_came_after_it() {
    for what in [What::All, What::Prefix(b"a".as_slice().into())] {
        let config = Config { bytes: 1 << 20, tag_bytes: 0, inactive: Duration::from_secs(600) };
        let index = Index::new(config).unwrap();
        let ban = Ban { stamp: 7, what, how: How::Hard, at: NOW, inherited: true };
        index.restore_purge(ban, true);
        let (old, new) = (Key::new(b"a"), Key::new(b"ab"));
        for key in [old, new] {
            index.found(&Record::found(key, 900, 2, NOW));
        }
        index.set_warm();
        let mut purge = index.unfinished_purges().pop().unwrap();
        let step = purge.step(1000);
        assert!(step.done && step.victims.is_empty() && step.verify.len() == 2);
        for key in step.verify {
            let created = if key == old { NOW } else { after(1) };
            let names = PurgeNames { main: &key, key_text: b"a", tags: &[], created };
            assert_eq!(matches!(purge.verified(&key, names), Verified::Victim(_)), key == old);
        }
        purge.finish();
        assert!(index.peek(&old).is_none() && index.peek(&new).is_some());
    }
}

#[test]
fn a_snapshot_is_verified_by_the_loader() {
    let index = index();
    let record = |text: &[u8], used| Record { used, ..Record::found(Key::new(text), 900, 2, NOW) };
    for text in [&b"here"[..], b"gone"] {
        assert_eq!(index.restore(&record(text, NOW), true), LoadResult::Added);
    }
    assert_eq!(index.found(&Record { blocks: 5, ..record(b"here", NOW) }), LoadResult::Known);
    assert_eq!(index.blocks(), 7);
    let mut keys = Vec::new();
    let mut cursor = Some(Cursor::default());
    while let Some(from) = cursor {
        cursor = index.unverified(from, 10, &mut keys);
    }
    assert_eq!(keys, [(Key::new(b"gone"), 0)]);
    index.forget(&keys[0].0, keys[0].1);
    assert_eq!((index.usage().keys, index.blocks()), (1, 5));
}

#[test]
fn loaded_entries_are_sorted_by_their_use() {
    let index = index();
    for seconds in [5, 1, 4, 2, 3] {
        let key = Key::new(&[seconds as u8]);
        index.restore(&Record::found(key, 900, 2, after(seconds)), true);
    }
    index.sort();
    let victims = index.evict(3);
    let keys: Vec<_> = victims.iter().map(|victim| *victim.key()).collect();
    assert_eq!(keys, [1u8, 2, 3].map(|n| Key::new(&[n])));
}

#[test]
fn an_entry_that_was_replaced_is_not_forgotten() {
    let index = index();
    let key = store(&index, "a", &[], NOW);
    let stamp = index.peek(&key).unwrap().stamp;
    store(&index, "a", &[], NOW);
    index.forget(&key, stamp);
    assert!(is_stored(&index, &key));
    index.forget(&key, index.peek(&key).unwrap().stamp);
    assert_eq!(index.usage().keys, 0);
}
