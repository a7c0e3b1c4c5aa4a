//! The paths of a store's files and their permission bits: of objects and of temporary files, and
//! the owners of the latter.
//!
//! A temporary file is called `KEY.PID-RUN.N.tmp`: the process ID, a number that differs between
//! two processes with the same ID, and a counter. So files left by a dead process can be told from
//! those that a living one is writing ([`owner`]). Does no I/O.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::key::{Key, Levels};

/// Permission bits of objects and of level directories, as in nginx.
pub(crate) const FILE_MODE: u32 = 0o600;
pub(crate) const DIR_MODE: u32 = 0o700;

/// The directory of a store, and how names are spread over it.
#[derive(Clone, Debug)]
pub(crate) struct ObjectPaths {
    path: Vec<u8>,
    temp_path: Option<Vec<u8>>,
    levels: Levels,
}

/// The end of every temporary file's name.
const TEMP_END: &[u8] = b".tmp";

/// Purges that a crash must not undo, in the store's directory.
const PURGES: &[u8] = b".nowait-purges";

/// The saved index, in the store's directory.
const SNAPSHOT: &[u8] = b".nowait-index";

static NEXT: AtomicU64 = AtomicU64::new(0);

/// The time of start: differs between two processes with the same ID.
static RUN: LazyLock<u64> = LazyLock::new(|| {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(0)
});

/// The writer of a temporary file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    /// This process.
    Us,
    /// A process with this number, dead or alive.
    Process(u32),
    /// An earlier process with this process's ID, which has ended.
    Gone,
}

/// The owner of this temporary file, by its name; `None`: it is not such a file.
pub(crate) fn owner(name: &[u8]) -> Option<Owner> {
    let name = std::str::from_utf8(name.strip_suffix(TEMP_END)?).ok()?;
    let mut parts = name.split('.');
    let (hex, process, number) = (parts.next()?, parts.next()?, parts.next()?);
    Key::from_file_name(hex.as_bytes())?;
    if parts.next().is_some() || number.parse::<u64>().is_err() {
        return None;
    }
    let (pid, run) = process.split_once('-')?;
    let (pid, run) = (pid.parse::<u32>().ok()?, run.parse::<u64>().ok()?);
    Some(match (pid == std::process::id(), run == *RUN) {
        (true, true) => Owner::Us,
        (true, false) => Owner::Gone,
        (false, _) => Owner::Process(pid),
    })
}

impl ObjectPaths {
    pub(crate) fn new(path: &[u8], temp_path: Option<&[u8]>, levels: Levels) -> ObjectPaths {
        ObjectPaths { path: path.to_vec(), temp_path: temp_path.map(<[u8]>::to_vec), levels }
    }

    /// The store's directory.
    pub(crate) fn directory(&self) -> &[u8] {
        &self.path
    }

    /// The directory of temporary files, if they are not next to the objects.
    pub(crate) fn temp_directory(&self) -> Option<&[u8]> {
        self.temp_path.as_deref()
    }

    /// The levels below the store's directory.
    pub(crate) fn levels(&self) -> &Levels {
        &self.levels
    }

    /// The file of an object.
    pub(crate) fn object(&self, key: Key) -> Vec<u8> {
        let name = self.levels.file_name(&key);
        join(&self.path, name.as_str().as_bytes())
    }

    /// Like [`object`](Names::object), into a reusable buffer.
    pub(crate) fn write_object(&self, key: Key, path: &mut Vec<u8>) {
        path.clear();
        path.extend_from_slice(&self.path);
        path.push(b'/');
        path.extend_from_slice(self.levels.file_name(&key).as_str().as_bytes());
    }

    /// A new temporary file for the object.
    pub(crate) fn temp(&self, key: Key) -> Vec<u8> {
        match &self.temp_path {
            Some(directory) => with_temp_end(join(directory, &key.hex())),
            None => self.temp_beside(key),
        }
    }

    /// A new temporary file for the object, in its directory.
    pub(crate) fn temp_beside(&self, key: Key) -> Vec<u8> {
        with_temp_end(self.object(key))
    }

    /// A new temporary file at the top level, where the directory exists.
    pub(crate) fn temp_at_top(&self, key: Key) -> Vec<u8> {
        with_temp_end(join(&self.path, &key.hex()))
    }

    /// The saved purges.
    pub(crate) fn purges(&self) -> Vec<u8> {
        join(&self.path, PURGES)
    }

    /// The saved index.
    pub(crate) fn snapshot(&self) -> Vec<u8> {
        join(&self.path, SNAPSHOT)
    }
}

fn with_temp_end(mut path: Vec<u8>) -> Vec<u8> {
    let number = NEXT.fetch_add(1, Relaxed);
    path.extend_from_slice(format!(".{}-{}.{number}.tmp", std::process::id(), *RUN).as_bytes());
    path
}

/// `directory/name`.
pub(crate) fn join(directory: &[u8], name: &[u8]) -> Vec<u8> {
    let mut path = Vec::with_capacity(directory.len() + 1 + name.len() + 48);
    path.extend_from_slice(directory);
    path.push(b'/');
    path.extend_from_slice(name);
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn temporary_files_tell_who_writes_them() {
        let key = Key::new(b"abc");
        let levels = Levels::new(&[1, 2]).expect("two levels");
        let beside = ObjectPaths::new(b"/cache", None, levels);
        let temp = beside.temp(key);
        assert!(temp.starts_with(&beside.object(key)), "on the same file system, below its name");
        assert_ne!(temp, beside.temp(key));
        let name = |path: &[u8]| path.rsplit(|byte| *byte == b'/').next().unwrap_or(b"").to_vec();
        assert_eq!(owner(&name(&temp)), Some(Owner::Us));
        let elsewhere = ObjectPaths::new(b"/cache", Some(b"/temp"), levels);
        assert_eq!(owner(&name(&elsewhere.temp(key))), Some(Owner::Us));
        let hex = key.to_string();
        let us = std::process::id();
        for (name, expected) in [
            (format!("{hex}.{us}-1.5.tmp"), Some(Owner::Gone)),
            (format!("{hex}.{}-1.5.tmp", us + 1), Some(Owner::Process(us + 1))),
            (hex.clone(), None),
            (format!("{hex}.0000000001"), None),
            (format!("{hex}.1-1.tmp"), None),
            (format!("{hex}.1-1.5.5.tmp"), None),
            (format!("x{hex}.1-1.5.tmp"), None),
            (String::from(".nowait-index"), None),
        ] {
            assert_eq!(owner(name.as_bytes()), expected, "{name}");
        }
    }
}
