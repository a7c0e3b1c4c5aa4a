//! `open_file_cache`: descriptors and metadata of files, and errors of look-ups, per worker.
//! nginx: `ngx_open_file_cache.c`.
//!
//! Bounded by `max` entries, least recently used first out. An entry is used without asking the
//! disk for `open_file_cache_valid`; then the file is looked up again through `fs`, and the open
//! descriptor is kept if it is still the same file.

use std::cell::RefCell;
use std::io;
use std::time::{Duration, Instant};

use indexmap::{Equivalent, IndexMap};
use nowait_runtime::fs::{self, File, Io, OpenOptions};
use nowait_runtime::now;
use rustc_hash::FxBuildHasher;

use crate::conf::files::OpenFileCacheSize;
use crate::request::Request;

/// Most entries looked at for expiry per look-up, so that cleaning never takes long.
const EXPIRE_STEPS: usize = 2;

thread_local! {
    /// One cache per worker for all locations, as nginx has one per `open_file_cache` directive of
    /// the same place; entries expire by the settings of the location that asks.
    static CACHE: RefCell<Cache> = RefCell::default();
}

/// What is known of a path.
enum Known {
    /// The open file (or directory).
    File(File),
    /// Used too rarely so far to stay open.
    Counted,
    /// The error number of the look-up.
    Error(i32),
}

struct Entry {
    known: Known,
    uses: u32,
    checked: Instant,
    used: Instant,
}

#[derive(Default)]
struct Cache {
    entries: IndexMap<Key, Entry, FxBuildHasher>,
}

/// A path and how its links are treated: the same path may be open to one location only.
#[derive(PartialEq, Eq, Hash, Clone)]
struct Key {
    path: Box<[u8]>,
    symlinks: u64,
}

/// A [`Key`] that is only looked up; hashes as the key does.
#[derive(Hash)]
struct Name<'a> {
    path: &'a [u8],
    symlinks: u64,
}

impl Equivalent<Key> for Name<'_> {
    fn equivalent(&self, key: &Key) -> bool {
        self.symlinks == key.symlinks && *self.path == *key.path
    }
}

/// Opens a file through the cache.
///
/// # Errors
/// Those of the look-up, cached ones included.
pub async fn open(
    request: &Request,
    io: &Io,
    path: &[u8],
    options: &OpenOptions,
    size: OpenFileCacheSize,
) -> io::Result<File> {
    let files = &request.location().files;
    let valid = files.open_file_cache_valid.duration();
    let name = Name { path, symlinks: symlinks_code(options) };
    let old = match CACHE.with_borrow_mut(|cache| cache.look_up(&name, valid)) {
        LookUp::Fresh(result) => return result,
        LookUp::Stale(file) => file,
    };
    let key = Key { path: path.into(), symlinks: name.symlinks };
    let opened = fs::open(io, path, options).await;
    // The descriptor of an unchanged file is kept: other requests share it.
    let opened = opened.map(|new| match old {
        Some(old) if is_same(&old, &new) => old,
        _ => new,
    });
    let min_uses = files.open_file_cache_min_uses;
    let errors = files.open_file_cache_errors;
    CACHE.with_borrow_mut(|cache| cache.store(key, &opened, size, min_uses, errors));
    opened
}

/// The cached result of a look-up that needs no check; `None`: [`open`] has to be asked.
pub fn try_open(request: &Request, path: &[u8], options: &OpenOptions) -> Option<io::Result<File>> {
    let valid = request.location().files.open_file_cache_valid.duration();
    let name = Name { path, symlinks: symlinks_code(options) };
    CACHE.with_borrow_mut(|cache| cache.fresh(&name, valid))
}

fn symlinks_code(options: &OpenOptions) -> u64 {
    use nowait_runtime::fs::Symlinks;
    match options.symlinks {
        Symlinks::Follow => 0,
        Symlinks::Deny { from } => 1 + 2 * from as u64,
        Symlinks::IfNotOwner { from } => 2 + 2 * from as u64,
    }
}

fn is_same(old: &File, new: &File) -> bool {
    let (old, new) = (old.metadata(), new.metadata());
    old.dev == new.dev
        && old.ino == new.ino
        && old.size == new.size
        && old.mtime == new.mtime
        && old.mtime_nsec == new.mtime_nsec
}

enum LookUp {
    Fresh(io::Result<File>),
    Stale(Option<File>),
}

impl Cache {
    /// What is known and need not be checked.
    fn fresh(&mut self, name: &Name<'_>, valid: Duration) -> Option<io::Result<File>> {
        let now = now();
        let entry = self.entries.get_mut(name)?;
        if now.saturating_duration_since(entry.checked) >= valid {
            return None;
        }
        let result = match &entry.known {
            Known::File(file) => Ok(file.clone()),
            Known::Error(code) => Err(io::Error::from_raw_os_error(*code)),
            Known::Counted => return None,
        };
        entry.uses = entry.uses.saturating_add(1);
        entry.used = now;
        Some(result)
    }

    fn look_up(&mut self, name: &Name<'_>, valid: Duration) -> LookUp {
        if let Some(result) = self.fresh(name, valid) {
            return LookUp::Fresh(result);
        }
        let Some(entry) = self.entries.get_mut(name) else { return LookUp::Stale(None) };
        entry.uses = entry.uses.saturating_add(1);
        entry.used = now();
        match &entry.known {
            Known::File(file) => LookUp::Stale(Some(file.clone())),
            Known::Counted | Known::Error(_) => LookUp::Stale(None),
        }
    }

    fn store(
        &mut self,
        key: Key,
        opened: &io::Result<File>,
        size: OpenFileCacheSize,
        min_uses: u32,
        errors: bool,
    ) {
        let now = now();
        self.expire(now, size.inactive.duration());
        let uses = self.entries.get(&key).map_or(1, |entry| entry.uses);
        let known = match opened {
            Ok(file) if uses >= min_uses => Known::File(file.without_head()),
            Ok(_) => Known::Counted,
            Err(error) => match error.raw_os_error() {
                Some(code) if errors => Known::Error(code),
                _ => {
                    self.entries.swap_remove(&key);
                    return;
                }
            },
        };
        self.entries.insert(key, Entry { known, uses, checked: now, used: now });
        while self.entries.len() > size.max {
            self.evict();
        }
    }

    /// Removes the entry that was used longest ago among a sample: nearly the oldest, at a cost that
    /// does not grow with the cache.
    fn evict(&mut self) {
        const SAMPLE: usize = 8;
        let len = self.entries.len();
        let start =
            usize::try_from(u128::from_le_bytes(crate::random::bytes()) % len.max(1) as u128)
                .unwrap_or_default();
        let oldest = (0..SAMPLE.min(len))
            .map(|n| (start + n) % len)
            .min_by_key(|&at| self.entries.get_index(at).map(|(_, entry)| entry.used));
        if let Some(at) = oldest {
            self.entries.swap_remove_index(at);
        }
    }

    fn expire(&mut self, now: Instant, inactive: Duration) {
        for _ in 0..EXPIRE_STEPS {
            let len = self.entries.len();
            if len == 0 {
                return;
            }
            let at = usize::try_from(u128::from_le_bytes(crate::random::bytes()) % len as u128)
                .unwrap_or_default();
            let unused = self
                .entries
                .get_index(at)
                .is_some_and(|(_, entry)| now.saturating_duration_since(entry.used) >= inactive);
            if unused {
                self.entries.swap_remove_index(at);
            }
        }
    }
}
