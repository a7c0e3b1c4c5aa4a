//! `open_file_cache`: descriptors and metadata of files, and errors of look-ups, per worker.
//! nginx: `ngx_open_file_cache.c`.
//!
//! Each line of the configuration has its own cache, shared by the locations below it. A reload
//! begins with empty caches. Opened files keep their descriptors; files that were only examined
//! keep their metadata.
//!
//! Bounded by `max` entries; the least recently used is removed first. An entry is used without
//! accessing the disk for `open_file_cache_valid`; then the file is looked up again through `fs`,
//! and the open descriptor is kept if it is still the same file. The content of a small file comes from
//! the resident files, as long as that is what the descriptor would give. Entries that were not used for
//! `inactive` are removed even without requests: a deleted file takes its space until it is closed.

use std::cell::RefCell;
use std::hash::BuildHasher;
use std::io;
use std::rc::{self, Rc};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use hashlink::LinkedHashMap;
use hashlink::linked_hash_map::RawEntryMut;
use nowait_runtime::fs::resident::{self, Resident};
use nowait_runtime::fs::{self, File, Io, Metadata, OpenOptions, Symlinks};
use nowait_runtime::task::{Either, select};
use nowait_runtime::worker::stopping;
use nowait_runtime::{JoinHandle, now, sleep, spawn, yield_now};
use rustc_hash::FxBuildHasher;

use crate::conf::files::{FileConf, OpenFileCacheConf};
use crate::files::OpenedFile;

/// Maximum number of entries that a look-up removes because they have expired, as in nginx.
const EXPIRE_STEPS: usize = 2;

/// Like [`EXPIRE_STEPS`], for the sweeper, which yields to other tasks after this many.
const SWEEP_STEPS: usize = 64;

/// Shortest sleep of the sweeper.
const SWEEP_INTERVAL_MIN: Duration = Duration::from_secs(1);

/// The caches of one worker and one configuration, by their numbers.
#[derive(Default)]
pub struct Caches(RefCell<Vec<Rc<Shared>>>);

impl Caches {
    /// The cache of a location with these settings, if it uses one.
    pub fn of<'a>(&'a self, files: &'a FileConf) -> Option<CacheView<'a>> {
        let conf = files.open_file_cache.0.as_ref()?;
        Some(CacheView { caches: self, files, conf })
    }

    fn get(&self, conf: &OpenFileCacheConf) -> Rc<Shared> {
        let mut caches = self.0.borrow_mut();
        while caches.len() <= conf.number {
            caches.push(Rc::default());
        }
        caches[conf.number].clone()
    }
}

/// One cache, and the task that removes entries which expire unused.
#[derive(Default)]
struct Shared {
    cache: RefCell<Cache>,
    /// Runs while there are entries.
    sweeper: RefCell<Option<JoinHandle<()>>>,
}

impl Drop for Shared {
    fn drop(&mut self) {
        if let Some(sweeper) = self.sweeper.get_mut().take() {
            sweeper.abort();
        }
    }
}

impl Shared {
    /// Makes sure that entries are removed in time.
    fn sweep(self: &Rc<Self>, inactive: Duration) {
        let mut sweeper = self.sweeper.borrow_mut();
        if sweeper.as_ref().is_none_or(JoinHandle::is_finished) {
            *sweeper = Some(spawn(sweep(Rc::downgrade(self), inactive)));
        }
    }
}

/// Removes expired entries until none is left or the worker stops.
async fn sweep(shared: rc::Weak<Shared>, inactive: Duration) {
    let next = |now: Instant| {
        let shared = shared.upgrade()?;
        let mut cache = shared.cache.borrow_mut();
        let removed = cache.expire(now, inactive, SWEEP_STEPS);
        if removed == SWEEP_STEPS {
            return Some(Duration::ZERO);
        }
        let used = cache.entries.front()?.1.used;
        Some(inactive.saturating_sub(now.saturating_duration_since(used)).max(SWEEP_INTERVAL_MIN))
    };
    while let Some(wait) = next(now()) {
        if wait.is_zero() {
            yield_now().await;
        } else if let Either::Right(()) = select(sleep(wait), stopping()).await {
            return;
        }
    }
}

/// The state of a path.
enum EntryState {
    /// The open file (or directory).
    File(File),
    /// The metadata of a path that was not opened.
    Seen(Metadata),
    /// Not used often enough yet to stay open.
    Counted,
    /// The error number of the look-up.
    Error(i32),
}

struct Entry {
    known: EntryState,
    /// The resident form of an open file.
    resident: Weak<Resident>,
    uses: u32,
    checked: Instant,
    used: Instant,
}

#[derive(Default)]
struct Cache {
    /// In the order of their last use.
    entries: LinkedHashMap<Key, Entry, FxBuildHasher>,
}

/// A path with the rules for links: a path may be accessible to one location only.
#[derive(PartialEq, Eq, Hash, Clone)]
struct Key {
    path: Box<[u8]>,
    symlinks: u64,
}

/// A borrowed [`Key`] for look-ups; hashes like the key.
#[derive(Hash)]
struct Name<'a> {
    path: &'a [u8],
    symlinks: u64,
}

impl Name<'_> {
    fn is(&self, key: &Key) -> bool {
        self.symlinks == key.symlinks && *self.path == *key.path
    }
}

/// A cache as a location uses it.
pub struct CacheView<'a> {
    caches: &'a Caches,
    files: &'a FileConf,
    conf: &'a OpenFileCacheConf,
}

impl CacheView<'_> {
    fn shared(&self) -> Rc<Shared> {
        self.caches.get(self.conf)
    }

    fn valid(&self) -> Duration {
        self.files.open_file_cache_valid.duration()
    }

    fn inactive(&self) -> Duration {
        self.conf.inactive.duration()
    }

    fn store(&self, shared: &Rc<Shared>, key: Key, known: Result<EntryState, &io::Error>) {
        shared.cache.borrow_mut().store(key, known, self.conf, self.files);
        shared.sweep(self.inactive());
    }

    /// Opens a file through the cache, on behalf of a client.
    ///
    /// # Errors
    /// Those of the look-up, cached ones included.
    pub async fn open(
        &self,
        io: &Io,
        client: u64,
        path: &[u8],
        options: &OpenOptions,
    ) -> io::Result<File> {
        let name = Name { path, symlinks: symlinks_code(options.symlinks) };
        let shared = self.shared();
        let found = shared.cache.borrow_mut().look_up(&name, self.valid(), self.inactive());
        match found {
            FileLookUp::Fresh(result) => result,
            FileLookUp::Stale(old) => self.renew(&shared, (io, client), path, options, old).await,
        }
    }

    /// Like [`open`](Self::open); a small file that is open already may be in memory.
    ///
    /// # Errors
    /// Those of the look-up, cached ones included.
    pub async fn get(
        &self,
        io: &Io,
        client: u64,
        path: &[u8],
        options: &OpenOptions,
    ) -> io::Result<OpenedFile> {
        let name = Name { path, symlinks: symlinks_code(options.symlinks) };
        let shared = self.shared();
        let found = shared.cache.borrow_mut().look_up(&name, self.valid(), self.inactive());
        match found {
            FileLookUp::Fresh(file) => {
                let file = file?;
                let find = || resident::find(io, path, options.symlinks);
                let resident = shared.cache.borrow_mut().resident(&name, &file, io, find);
                Ok(resident.map_or(OpenedFile::File(file), OpenedFile::Resident))
            }
            FileLookUp::Stale(old) => {
                let renewed = self.renew(&shared, (io, client), path, options, old).await;
                renewed.map(OpenedFile::File)
            }
        }
    }

    /// Opens a file that no entry has, or whose entry has to be checked.
    async fn renew(
        &self,
        shared: &Rc<Shared>,
        (io, client): (&Io, u64),
        path: &[u8],
        options: &OpenOptions,
        old: Option<File>,
    ) -> io::Result<File> {
        let key = Key { path: path.into(), symlinks: symlinks_code(options.symlinks) };
        let opened = fs::open_for(io, client, path, options).await;
        // The descriptor of an unchanged file is kept, because other requests share it.
        let opened = opened.map(|new| match old {
            Some(old) if is_same(old.metadata(), new.metadata()) => old,
            _ => new,
        });
        let known = match &opened {
            Ok(file) => Ok(EntryState::File(file.without_head())),
            Err(error) => Err(error),
        };
        self.store(shared, key, known);
        opened
    }

    /// Returns a file's metadata through the cache.
    ///
    /// # Errors
    /// Those of the look-up, cached ones included.
    pub async fn stat(&self, io: &Io, path: &[u8], symlinks: Symlinks) -> io::Result<Metadata> {
        let name = Name { path, symlinks: symlinks_code(symlinks) };
        let shared = self.shared();
        let found = shared.cache.borrow_mut().seen(&name, self.valid(), self.inactive());
        let old = match found {
            MetadataLookUp::Fresh(result) => return result,
            MetadataLookUp::Stale(file) => file,
        };
        let key = Key { path: path.into(), symlinks: name.symlinks };
        let found = fs::stat(io, path, symlinks).await;
        let known = match (&found, old) {
            (Ok(new), Some(old)) if is_same(old.metadata(), new) => Ok(EntryState::File(old)),
            (Ok(new), _) => Ok(EntryState::Seen(*new)),
            (Err(error), _) => Err(error),
        };
        self.store(&shared, key, known);
        found
    }
}

fn symlinks_code(symlinks: Symlinks) -> u64 {
    match symlinks {
        Symlinks::Follow => 0,
        Symlinks::Deny { from } => 1 + 4 * from as u64,
        Symlinks::IfNotOwner { from } => 2 + 4 * from as u64,
        Symlinks::Inside { from, hidden } => 3 + u64::from(hidden) + 4 * from as u64,
    }
}

fn is_same(old: &Metadata, new: &Metadata) -> bool {
    old.dev == new.dev
        && old.ino == new.ino
        && old.size == new.size
        && old.mtime == new.mtime
        && old.mtime_nsec == new.mtime_nsec
}

/// Result of looking up an open file.
enum FileLookUp {
    Fresh(io::Result<File>),
    Stale(Option<File>),
}

/// Result of looking up metadata.
enum MetadataLookUp {
    Fresh(io::Result<Metadata>),
    Stale(Option<File>),
}

impl Cache {
    /// An entry, which becomes the one used last.
    fn get(&mut self, name: &Name<'_>) -> Option<&mut Entry> {
        let hash = self.entries.hasher().hash_one(name);
        match self.entries.raw_entry_mut().from_hash(hash, |key| name.is(key)) {
            RawEntryMut::Occupied(mut found) => {
                found.to_back();
                Some(found.into_mut())
            }
            RawEntryMut::Vacant(_) => None,
        }
    }

    /// The entry of a path and whether it need not be checked; counts the use.
    fn entry(&mut self, name: &Name<'_>, valid: Duration) -> Option<(&EntryState, bool)> {
        let now = now();
        let entry = self.get(name)?;
        entry.uses = entry.uses.saturating_add(1);
        entry.used = now;
        Some((&entry.known, now.saturating_duration_since(entry.checked) < valid))
    }

    /// The resident form of an open file. It is looked for with each use, and so becomes resident; what has
    /// changed since the file was opened is not used.
    fn resident(
        &mut self,
        name: &Name<'_>,
        file: &File,
        io: &Io,
        find: impl FnOnce() -> Option<Arc<Resident>>,
    ) -> Option<Arc<Resident>> {
        if !file.metadata().is_file() || file.metadata().size > io.resident as u64 {
            return None;
        }
        let entry = self.get(name)?;
        if let Some(known) = entry.resident.upgrade()
            && resident::is_recent(io, &known)
        {
            return Some(known);
        }
        let is_it = |found: &Arc<Resident>| {
            found.file().is_some_and(|(metadata, _)| is_same(metadata, file.metadata()))
        };
        let found = find().filter(is_it);
        entry.resident = found.as_ref().map_or_else(Weak::new, Arc::downgrade);
        found
    }

    fn look_up(&mut self, name: &Name<'_>, valid: Duration, inactive: Duration) -> FileLookUp {
        let found = match self.entry(name, valid) {
            Some((EntryState::File(file), true)) => FileLookUp::Fresh(Ok(file.clone())),
            Some((EntryState::File(file), false)) => FileLookUp::Stale(Some(file.clone())),
            Some((EntryState::Error(code), true)) => {
                FileLookUp::Fresh(Err(io::Error::from_raw_os_error(*code)))
            }
            Some((EntryState::Seen(_) | EntryState::Counted | EntryState::Error(_), _)) | None => {
                FileLookUp::Stale(None)
            }
        };
        self.expire(now(), inactive, EXPIRE_STEPS);
        found
    }

    fn seen(&mut self, name: &Name<'_>, valid: Duration, inactive: Duration) -> MetadataLookUp {
        let found = match self.entry(name, valid) {
            Some((EntryState::File(file), true)) => MetadataLookUp::Fresh(Ok(*file.metadata())),
            Some((EntryState::Seen(metadata), true)) => MetadataLookUp::Fresh(Ok(*metadata)),
            Some((EntryState::File(file), false)) => MetadataLookUp::Stale(Some(file.clone())),
            Some((EntryState::Error(code), true)) => {
                MetadataLookUp::Fresh(Err(io::Error::from_raw_os_error(*code)))
            }
            Some((EntryState::Seen(_) | EntryState::Counted | EntryState::Error(_), _)) | None => {
                MetadataLookUp::Stale(None)
            }
        };
        self.expire(now(), inactive, EXPIRE_STEPS);
        found
    }

    fn store(
        &mut self,
        key: Key,
        known: Result<EntryState, &io::Error>,
        conf: &OpenFileCacheConf,
        files: &FileConf,
    ) {
        let now = now();
        let uses = self.entries.get(&key).map_or(1, |entry| entry.uses);
        let known = match known {
            Ok(known) if uses >= files.open_file_cache_min_uses => known,
            Ok(_) => EntryState::Counted,
            Err(error) => match error.raw_os_error() {
                Some(code) if files.open_file_cache_errors => EntryState::Error(code),
                _ => {
                    self.entries.remove(&key);
                    return;
                }
            },
        };
        self.entries
            .insert(key, Entry { known, resident: Weak::new(), uses, checked: now, used: now });
        while self.entries.len() > conf.max {
            self.entries.pop_front();
        }
    }

    /// Removes up to `steps` entries that were not used for `inactive`. Returns their number.
    fn expire(&mut self, now: Instant, inactive: Duration, steps: usize) -> usize {
        let is_unused = |entry: &Entry| now.saturating_duration_since(entry.used) >= inactive;
        for removed in 0..steps {
            if !self.entries.front().is_some_and(|(_, entry)| is_unused(entry)) {
                return removed;
            }
            self.entries.pop_front();
        }
        steps
    }
}
