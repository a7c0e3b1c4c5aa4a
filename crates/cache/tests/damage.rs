//! Files damaged from outside: the look-up that finds one is a miss, and the file is removed.

mod common;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use nowait_cache::format::{self, ObjectIdentity};
use nowait_cache::{Levels, Store, UnixMs};
use nowait_testkit::TempDir;

use common::*;

/// Damages a valid file; `other` is the file of another key.
type Damage = fn(file: &Path, other: &Path);

const DAMAGES: [(&str, Damage); 9] = [
    ("no bytes", |file, _| cut(file, 0)),
    ("half of the fixed part", |file, _| cut(file, 50)),
    ("half of the head", |file, _| cut(file, 150)),
    ("body without its end", |file, _| cut(file, std::fs::metadata(file).unwrap().len() - 1)),
    ("longer body", |file, _| edit(file, |bytes| bytes.push(b'x'))),
    ("garbage at the start", |file, _| edit(file, |bytes| bytes[..64].fill(0x55))),
    ("garbage in the key", |file, _| edit(file, |bytes| bytes[97] ^= 0x55)),
    ("another key's object", |file, other| {
        edit(file, |bytes| *bytes = std::fs::read(other).unwrap())
    }),
    ("a head that claims more", |file, _| edit(file, |bytes| *bytes = claims_more())),
];

fn cut(file: &Path, length: u64) {
    std::fs::OpenOptions::new().write(true).open(file).unwrap().set_len(length).unwrap();
}

/// Changes the file in place.
fn edit(file: &Path, change: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = std::fs::read(file).unwrap();
    change(&mut bytes);
    std::fs::write(file, bytes).unwrap();
}

/// A file with a valid head that promises ten bytes more than there are.
fn claims_more() -> Vec<u8> {
    let target = target("key");
    let identity = ObjectIdentity {
        key: target.key,
        main: target.main,
        key_text: target.text,
        tags: Vec::new(),
        created: UnixMs(1),
    };
    let encoded = format::encode(&identity, &state()).unwrap();
    let mut file = encoded.bytes.to_vec();
    let patch = encoded.completed(110);
    file[..patch.bytes.len()].copy_from_slice(&patch.bytes);
    file.extend_from_slice(&body(100));
    file
}

fn file_of(dir: &Path, text: &str) -> PathBuf {
    dir.join(Levels::new(&[1, 2]).unwrap().file_name(&target(text).key).as_str())
}

#[test]
fn a_damaged_file_is_a_miss_and_goes() {
    for length in [100, 200_000] {
        for (what, damage) in DAMAGES {
            for is_known in [true, false] {
                eprintln!("{length} bytes, {what}, known to the index: {is_known}");
                let dir = TempDir::new("cache");
                let store = store(dir.path());
                let first = store.clone();
                on_worker(move || async move {
                    for text in ["key", "other"] {
                        put(&first, &io(4), text, &body(length)).await;
                    }
                });
                let file = file_of(dir.path(), "key");
                damage(&file, &file_of(dir.path(), "other"));
                let next = if is_known { store } else { common::store(dir.path()) };
                on_worker(move || meets_it(next, file, length));
            }
        }
    }
}

async fn meets_it(store: Arc<Store>, file: PathBuf, length: usize) {
    assert_eq!(look(&store, &io(4), "key").await, LookupOutcome::Absent);
    assert_eq!(store.statistics().damaged, 1);
    until("the file to go", || !exists(&file)).await;
    put(&store, &io(4), "key", &body(length)).await;
    assert_eq!(look(&store, &io(4), "key").await.body(), body(length));
    assert_eq!(look(&store, &io(4), "other").await.body(), body(length));
}

/// Called on another thread: workers are watched for such calls.
fn exists(file: &Path) -> bool {
    let file = file.to_owned();
    std::thread::spawn(move || file.exists()).join().unwrap()
}
