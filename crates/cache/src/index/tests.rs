//! What the index does, seen from outside.

use super::*;

const NOW: UnixMs = UnixMs(1_000_000);

fn index() -> Arc<Index> {
    let config = Config { bytes: 1 << 20, tag_bytes: 1 << 16, inactive: Duration::from_secs(600) };
    Index::new(config).expect("large enough")
}

fn ask(min_uses: u16) -> Ask<'static> {
    Ask { now: NOW, min_uses, key_text: b"" }
}

fn store(index: &Arc<Index>, text: &str, tags: &[Tag]) -> Key {
    let key = Key::new(text.as_bytes());
    let commit = Commit {
        names: Names { main: &key, key_text: text.as_bytes(), tags },
        length: 5000,
        blocks: 2,
        head_bytes: 500,
        valid_until: NOW,
    };
    index.hold(&key, NOW).expect("room").commit(&commit, NOW).expect("not purged");
    key
}

#[test]
fn a_stored_object_is_found_and_evicted() {
    let index = index();
    let key = store(&index, "a", &[]);
    assert!(matches!(index.lookup(&key, ask(1)), Found::Stored(Stored { length: 5000, .. })));
    assert_eq!(index.usage().blocks, 2);
    let victims = index.evict(5);
    assert_eq!(victims.len(), 1);
    assert_eq!(index.usage().blocks, 0);
    assert!(matches!(index.hold(&key, NOW), Err(NoHold::Deleting)));
    drop(victims);
    assert_eq!(index.usage().keys, 0);
}
