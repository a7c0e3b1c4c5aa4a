//! Files of the cache that are damaged while they are in use.

use std::path::{Path, PathBuf};

use nowait_testkit::wait::{PATIENCE, until};

use super::{get, with_origin};

/// More than a worker keeps in memory.
const BYTES: usize = 300_000;

/// Spoils a file in place; open files are spoiled with it.
type Damage = fn(&std::fs::File, length: u64);

const DAMAGES: [Damage; 4] = [
    |file, _| file.set_len(0).unwrap(),
    |file, _| file.set_len(60).unwrap(),
    |file, length| file.set_len(length - 1).unwrap(),
    |file, length| file.set_len(length / 2).unwrap(),
];

/// The worker that finds the damage has the file open already, and its head in memory.
#[test]
fn a_response_is_not_cut_by_a_damaged_file() {
    let body = "0123456789".repeat(BYTES / 10);
    let reply = format!(
        "HTTP/1.1 200 OK\nCache-Control: max-age=600\nContent-Length: {BYTES}\nConnection: close\n\n{body}"
    );
    let content = "location / { proxy_pass http://%%ORIGIN%%; proxy_cache_key $uri; }";
    let replies = vec![&reply[..]; 1 + DAMAGES.len()];
    with_origin(content, &replies, |server, _| {
        server.allow_log("is deleted: ");
        let ask = |status: &str| {
            let response = get(server, "/a");
            assert_eq!(response.header("X-Cache"), Some(status));
            assert!(response.text() == body, "{status}: {} bytes", response.body.len());
        };
        ask("MISS");
        let mut length = None;
        for damage in DAMAGES {
            let (path, length) = until("the object to get its name", PATIENCE, || {
                let found = object(&server.dir().join("cache"))?;
                // Not the one that was damaged before.
                (*length.get_or_insert(found.1) == found.1).then_some(found)
            });
            ask("HIT");
            damage(&std::fs::OpenOptions::new().write(true).open(&path).unwrap(), length);
            ask("MISS");
        }
    });
}

/// The object in the cache's directory, and the length of its file.
fn object(dir: &Path) -> Option<(PathBuf, u64)> {
    for entry in std::fs::read_dir(dir).ok()?.flatten() {
        let path = entry.path();
        if path.is_dir() {
            if let Some(found) = object(&path) {
                return Some(found);
            }
        } else if path.file_name().is_some_and(|name| name.len() == 32) {
            let length = entry.metadata().ok()?.len();
            return Some((path, length));
        }
    }
    None
}
