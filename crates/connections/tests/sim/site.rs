//! What the simulated site holds: its files, one directory per generation of the configuration.

use std::fs::{self, File, FileTimes};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::time::{Duration, SystemTime};

/// Generations that a run may use.
pub const GENERATIONS_MAX: u64 = 4;

/// Files by name and length: below, at and above the bounds of the sending paths.
pub const FILES: &[(&str, usize)] = &[
    ("empty", 0),
    ("one", 1),
    ("page", 4096),
    ("small", 10_000),
    ("edge", 65_536),
    ("above", 65_537),
    ("large", 300_000),
];

/// The modification time of all files, and as a date.
pub const MODIFIED: (u64, &str) = (1_700_000_000, "Tue, 14 Nov 2023 22:13:20 GMT");

static SITE: LazyLock<PathBuf> = LazyLock::new(make);

/// The directory of everything.
pub fn dir() -> &'static Path {
    &SITE
}

/// Deterministic bytes that differ between names and generations.
pub fn content(name: &str, generation: u64, len: usize) -> Vec<u8> {
    let seed = name.bytes().fold(generation + 1, |sum, byte| {
        (sum ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    let mut state = seed | 1;
    let next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    std::iter::repeat_with(next).take(len).collect()
}

/// Removes what this process has made.
pub fn remove() {
    let _ = fs::remove_dir_all(dir());
}

fn make() -> PathBuf {
    // In memory where possible: runs must not depend on a real disk.
    let base = Some(PathBuf::from("/dev/shm")).filter(|shm| shm.is_dir());
    let base = base.unwrap_or_else(std::env::temp_dir);
    let dir = base.join(format!("nowait-sim-{}", std::process::id()));
    let _ = fs::remove_dir_all(&dir);
    for generation in 1..=GENERATIONS_MAX {
        let root = dir.join(format!("g{generation}/files"));
        fs::create_dir_all(&root).unwrap();
        for (name, len) in FILES {
            let path = root.join(name);
            fs::write(&path, content(name, generation, *len)).unwrap();
            let modified = SystemTime::UNIX_EPOCH + Duration::from_secs(MODIFIED.0);
            let times = FileTimes::new().set_modified(modified);
            File::options().append(true).open(&path).unwrap().set_times(times).unwrap();
        }
    }
    dir
}
