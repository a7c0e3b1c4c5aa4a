//! `open_file_cache`: descriptors and metadata of files, and errors of look-ups, per worker.
//! nginx: `ngx_open_file_cache.c`.
//!
//! Descriptors are kept of what was opened, metadata of what was only looked at.
//!
//! Bounded by `max` entries, least recently used first out. An entry is used without asking the
//! disk for `open_file_cache_valid`; then the file is looked up again through `fs`, and the open
//! descriptor is kept if it is still the same file.

use std::cell::RefCell;
use std::io;
use std::time::{Duration, Instant};

use indexmap::{Equivalent, IndexMap};
use nowait_runtime::fs::{self, File, Io, Metadata, OpenOptions, Symlinks};
use nowait_runtime::now;
use rustc_hash::FxBuildHasher;

use crate::conf::files::{FileConf, OpenFileCacheSize};
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
    /// What a look at it said; it was not opened.
    Seen(Metadata),
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
    let name = Name { path, symlinks: symlinks_code(options.symlinks) };
    let old = match CACHE.with_borrow_mut(|cache| cache.look_up(&name, valid)) {
        LookUp::Fresh(result) => return result,
        LookUp::Stale(file) => file,
    };
    let key = Key { path: path.into(), symlinks: name.symlinks };
    let opened = fs::open(io, path, options).await;
    // The descriptor of an unchanged file is kept: other requests share it.
    let opened = opened.map(|new| match old {
        Some(old) if is_same(old.metadata(), new.metadata()) => old,
        _ => new,
    });
    let known = match &opened {
        Ok(file) => Ok(Known::File(file.without_head())),
        Err(error) => Err(error),
    };
    CACHE.with_borrow_mut(|cache| cache.store(key, known, size, files));
    opened
}

/// The cached result of a look-up that needs no check; `None`: [`open`] has to be asked.
pub fn try_open(request: &Request, path: &[u8], options: &OpenOptions) -> Option<io::Result<File>> {
    let valid = request.location().files.open_file_cache_valid.duration();
    let name = Name { path, symlinks: symlinks_code(options.symlinks) };
    CACHE.with_borrow_mut(|cache| cache.fresh(&name, valid))
}

/// Looks at a file through the cache.
///
/// # Errors
/// Those of the look-up, cached ones included.
pub async fn stat(
    request: &Request,
    io: &Io,
    path: &[u8],
    symlinks: Symlinks,
    size: OpenFileCacheSize,
) -> io::Result<Metadata> {
    let files = &request.location().files;
    let valid = files.open_file_cache_valid.duration();
    let name = Name { path, symlinks: symlinks_code(symlinks) };
    let old = match CACHE.with_borrow_mut(|cache| cache.seen(&name, valid)) {
        Seen::Fresh(result) => return result,
        Seen::Stale(file) => file,
    };
    let key = Key { path: path.into(), symlinks: name.symlinks };
    let found = fs::stat(io, path, symlinks).await;
    let known = match (&found, old) {
        (Ok(new), Some(old)) if is_same(old.metadata(), new) => Ok(Known::File(old)),
        (Ok(new), _) => Ok(Known::Seen(*new)),
        (Err(error), _) => Err(error),
    };
    CACHE.with_borrow_mut(|cache| cache.store(key, known, size, files));
    found
}

fn symlinks_code(symlinks: Symlinks) -> u64 {
    match symlinks {
        Symlinks::Follow => 0,
        Symlinks::Deny { from } => 1 + 2 * from as u64,
        Symlinks::IfNotOwner { from } => 2 + 2 * from as u64,
    }
}

fn is_same(old: &Metadata, new: &Metadata) -> bool {
    old.dev == new.dev
        && old.ino == new.ino
        && old.size == new.size
        && old.mtime == new.mtime
        && old.mtime_nsec == new.mtime_nsec
}

/// What the cache knows of an open file.
enum LookUp {
    Fresh(io::Result<File>),
    Stale(Option<File>),
}

/// What the cache knows of what is at a path.
enum Seen {
    Fresh(io::Result<Metadata>),
    Stale(Option<File>),
}

impl Cache {
    /// The entry of a path and whether it need not be checked; counts the use.
    fn entry(&mut self, name: &Name<'_>, valid: Duration) -> Option<(&Known, bool)> {
        let now = now();
        let entry = self.entries.get_mut(name)?;
        entry.uses = entry.uses.saturating_add(1);
        entry.used = now;
        Some((&entry.known, now.saturating_duration_since(entry.checked) < valid))
    }

    /// What is known and need not be checked. Anything else is no use yet: the caller asks again.
    fn fresh(&mut self, name: &Name<'_>, valid: Duration) -> Option<io::Result<File>> {
        let entry = self.entries.get(name)?;
        if now().saturating_duration_since(entry.checked) >= valid
            || matches!(entry.known, Known::Seen(_) | Known::Counted)
        {
            return None;
        }
        match self.look_up(name, valid) {
            LookUp::Fresh(result) => Some(result),
            LookUp::Stale(_) => None,
        }
    }

    fn look_up(&mut self, name: &Name<'_>, valid: Duration) -> LookUp {
        match self.entry(name, valid) {
            Some((Known::File(file), true)) => LookUp::Fresh(Ok(file.clone())),
            Some((Known::File(file), false)) => LookUp::Stale(Some(file.clone())),
            Some((Known::Error(code), true)) => {
                LookUp::Fresh(Err(io::Error::from_raw_os_error(*code)))
            }
            Some((Known::Seen(_) | Known::Counted | Known::Error(_), _)) | None => {
                LookUp::Stale(None)
            }
        }
    }

    fn seen(&mut self, name: &Name<'_>, valid: Duration) -> Seen {
        match self.entry(name, valid) {
            Some((Known::File(file), true)) => Seen::Fresh(Ok(*file.metadata())),
            Some((Known::Seen(metadata), true)) => Seen::Fresh(Ok(*metadata)),
            Some((Known::File(file), false)) => Seen::Stale(Some(file.clone())),
            Some((Known::Error(code), true)) => {
                Seen::Fresh(Err(io::Error::from_raw_os_error(*code)))
            }
            Some((Known::Seen(_) | Known::Counted | Known::Error(_), _)) | None => {
                Seen::Stale(None)
            }
        }
    }

    fn store(
        &mut self,
        key: Key,
        known: Result<Known, &io::Error>,
        size: OpenFileCacheSize,
        files: &FileConf,
    ) {
        let now = now();
        self.expire(now, size.inactive.duration());
        let uses = self.entries.get(&key).map_or(1, |entry| entry.uses);
        let known = match known {
            Ok(known) if uses >= files.open_file_cache_min_uses => known,
            Ok(_) => Known::Counted,
            Err(error) => match error.raw_os_error() {
                Some(code) if files.open_file_cache_errors => Known::Error(code),
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
