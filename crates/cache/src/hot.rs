//! The hottest objects of one worker: small ones whole, with their decoded heads, and larger ones as
//! open files.
//!
//! Small objects are served from here without any system call, larger ones with the open
//! descriptor. The table belongs to one worker, without a lock. It is a copy: with every look-up
//! the index states the object's [version](Version), and an entry of another version is dropped.
//! Whether the file still has its name is for the caller to [check](crate::hit::LastCheck).
//!
//! Bounded in entries, descriptors and bytes: a share of what the process may use
//! ([`settle`]), divided by the number of workers that have a table. The least recently used
//! entries make room, but only for objects that were requested before, so a crawler that reads
//! everything once displaces nothing. Idle entries are removed, files soon, so that the space of
//! deleted ones is freed. Called by look-ups. Does no I/O.

use std::cell::RefCell;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use hashlink::LinkedHashMap;
use nowait_runtime::task::{Either, select};
use nowait_runtime::worker::stopping;
use nowait_sys::{limits, memory};
use rustc_hash::FxBuildHasher;

use crate::hit::OpenedObject;
use crate::index::Stored;
use crate::key::Key;
use crate::memory::Version;
use crate::policy::PROMOTE_USES;
use crate::target::CacheKey;

/// The share of the memory that this process may use, for all workers together.
const MEMORY_SHARE: u64 = 32;

/// Bytes of each worker, at least.
const BYTES_MIN: usize = 8 << 20;

/// The share of the limit of open files, for all workers together.
const DESCRIPTORS_SHARE: u64 = 8;

/// Descriptors of each worker, at least and at most. More would cost kernel memory, and save little:
/// large objects take longer to send than to open.
const DESCRIPTORS_MIN: usize = 64;
const DESCRIPTORS_MAX: usize = 8192;

/// Objects of each worker whose content is in memory, at most.
const WHOLE_MAX: usize = 1 << 18;

/// Entries that make room for a new one, at most: more do so only when another worker has begun to keep
/// objects.
const EVICTED_MAX: usize = 128;

/// No object takes fewer bytes: determines the size of the table.
const OBJECT_BYTES_MIN: usize = 1024;

/// Memory of an entry in the tables: key, links, places.
const PLACE_BYTES: usize = size_of::<HotEntry>() + size_of::<(u64, Key)>() + 48;

/// Open files that are unused for this long are closed.
const FILE_IDLE_MAX: Duration = Duration::from_secs(5);

/// Contents that are unused for this long are freed.
const WHOLE_IDLE_MAX: Duration = Duration::from_secs(120);

/// Idle entries that are removed at a time, and the pause until more are.
const SWEPT_MAX: usize = 256;
const SWEEP_PAUSE: Duration = Duration::from_millis(20);

/// The bounds of all workers together.
#[derive(Clone, Copy, Debug)]
struct HotLimits {
    bytes: usize,
    descriptors: usize,
}

static LIMITS: OnceLock<HotLimits> = OnceLock::new();

/// Workers that have a table.
static WORKERS: AtomicUsize = AtomicUsize::new(0);

/// Determines how much memory and how many descriptors the tables of all workers may take; until then,
/// each takes the least. Reads files: not for loops.
pub fn settle() {
    LIMITS.get_or_init(|| {
        let share = |all: u64, share: u64| usize::try_from(all / share).unwrap_or(usize::MAX);
        HotLimits {
            bytes: share(memory::available_max(), MEMORY_SHARE),
            descriptors: share(limits::open_files().0.unwrap_or(u64::MAX), DESCRIPTORS_SHARE),
        }
    });
}

impl HotLimits {
    /// The bounds of one worker.
    fn of_worker() -> HotLimits {
        let all = LIMITS.get().copied().unwrap_or(HotLimits { bytes: 0, descriptors: 0 });
        let workers = WORKERS.load(Relaxed).max(1);
        HotLimits {
            bytes: (all.bytes / workers).max(BYTES_MIN),
            descriptors: (all.descriptors / workers).clamp(DESCRIPTORS_MIN, DESCRIPTORS_MAX),
        }
    }

    /// Objects whose content is in memory.
    fn whole(&self) -> usize {
        (self.bytes / OBJECT_BYTES_MIN).min(WHOLE_MAX)
    }
}

#[derive(Debug)]
struct HotEntry {
    object: Arc<OpenedObject>,
    version: Version,
    used: Instant,
    bytes: usize,
}

/// The least recently used entry is the first one.
type Entries = LinkedHashMap<(u64, Key), HotEntry, FxBuildHasher>;

#[derive(Debug)]
struct Hot {
    /// Objects whose content is in memory.
    whole: Entries,
    /// Others, with open files.
    open: Entries,
    /// Of both.
    bytes: usize,
    swept: bool,
}

thread_local! {
    static HOT: RefCell<Option<Hot>> = const { RefCell::new(None) };
}

/// The object in the store with number `store`, if it is still the one that the index describes.
pub(crate) fn find(store: u64, target: &CacheKey, stored: &Stored) -> Option<Arc<OpenedObject>> {
    let (name, version) = ((store, target.key), Version::of(stored));
    let mut gone = None;
    let found = HOT.with_borrow_mut(|hot| {
        let hot = hot.as_mut()?;
        let entry = match hot.whole.to_back(&name) {
            Some(entry) => entry,
            None => hot.open.to_back(&name)?,
        };
        if entry.version == version && entry.object.head.is_of(&target.key, &target.text) {
            entry.used = nowait_runtime::now();
            return Some(entry.object.clone());
        }
        gone = hot.remove(name);
        None
    });
    // Closing a file may call the pool: not while the table is borrowed.
    drop(gone);
    found
}

/// Drops the object: its file has changed.
pub(crate) fn forget(store: u64, key: Key) {
    let gone = HOT.with_borrow_mut(|hot| hot.as_mut()?.remove((store, key)));
    drop(gone);
}

/// Keeps an object that was just opened.
pub(crate) fn keep(store: u64, key: Key, stored: &Stored, object: &Arc<OpenedObject>) {
    let entry = HotEntry {
        object: object.clone(),
        version: Version::of(stored),
        used: nowait_runtime::now(),
        bytes: PLACE_BYTES + object.heap_bytes(),
    };
    let is_wanted = stored.uses >= PROMOTE_USES;
    let mut gone = Vec::new();
    let start = HOT.with_borrow_mut(|hot| {
        let hot = hot.get_or_insert_with(Hot::new);
        gone.extend(hot.remove((store, key)));
        let kept = hot.make_room(&entry, is_wanted, &mut gone);
        if kept {
            hot.insert((store, key), entry);
        }
        kept && !std::mem::replace(&mut hot.swept, true)
    });
    drop(gone);
    if start {
        drop(nowait_runtime::spawn(sweep()));
    }
}

impl Hot {
    fn new() -> Hot {
        WORKERS.fetch_add(1, Relaxed);
        let limits = HotLimits::of_worker();
        // Made for the largest number of entries, and larger: growing a table, or tidying up a full one, would
        // take the loop milliseconds.
        let entries = |count| Entries::with_capacity_and_hasher(count + count / 2, FxBuildHasher);
        Hot {
            whole: entries(limits.whole()),
            open: entries(limits.descriptors),
            bytes: 0,
            swept: false,
        }
    }

    fn insert(&mut self, name: (u64, Key), entry: HotEntry) {
        self.bytes += entry.bytes;
        match entry.object.file {
            None => self.whole.insert(name, entry),
            Some(_) => self.open.insert(name, entry),
        };
    }

    fn remove(&mut self, name: (u64, Key)) -> Option<HotEntry> {
        let entry = self.whole.remove(&name).or_else(|| self.open.remove(&name))?;
        self.bytes -= entry.bytes;
        Some(entry)
    }

    /// Removes as many of the least recently used entries as the new one needs; false: it is not worth it.
    fn make_room(&mut self, new: &HotEntry, is_wanted: bool, gone: &mut Vec<HotEntry>) -> bool {
        let limits = HotLimits::of_worker();
        let is_open = new.object.file.is_some();
        loop {
            let (same, other, count_max) = match is_open {
                true => (&mut self.open, &mut self.whole, limits.descriptors),
                false => (&mut self.whole, &mut self.open, limits.whole()),
            };
            let fits = self.bytes + new.bytes <= limits.bytes;
            if fits && same.len() < count_max {
                return true;
            }
            if !is_wanted || new.bytes > limits.bytes || gone.len() >= EVICTED_MAX {
                return false;
            }
            let Some((_, entry)) = same.pop_front().or_else(|| other.pop_front()) else {
                return false;
            };
            self.bytes -= entry.bytes;
            gone.push(entry);
        }
    }

    /// Removes some of the idle entries.
    fn remove_idle(&mut self, now: Instant, gone: &mut Vec<HotEntry>) {
        for (entries, idle_max) in
            [(&mut self.open, FILE_IDLE_MAX), (&mut self.whole, WHOLE_IDLE_MAX)]
        {
            let is_idle = |entry: &HotEntry| now.saturating_duration_since(entry.used) >= idle_max;
            while gone.len() < SWEPT_MAX
                && entries.front().is_some_and(|(_, entry)| is_idle(entry))
                && let Some((_, entry)) = entries.pop_front()
            {
                self.bytes -= entry.bytes;
                gone.push(entry);
            }
        }
    }

    fn is_empty(&self) -> bool {
        self.whole.is_empty() && self.open.is_empty()
    }
}

impl Drop for Hot {
    fn drop(&mut self) {
        WORKERS.fetch_sub(1, Relaxed);
    }
}

/// Removes idle entries until none is left.
async fn sweep() {
    let mut pause = FILE_IDLE_MAX;
    loop {
        if let Either::Left(()) = select(stopping(), nowait_runtime::sleep(pause)).await {
            drop(HOT.take());
            return;
        }
        let mut gone = Vec::new();
        let done = HOT.with_borrow_mut(|hot| {
            let Some(hot) = hot else { return true };
            hot.remove_idle(nowait_runtime::now(), &mut gone);
            hot.swept = !hot.is_empty();
            !hot.swept
        });
        pause = if gone.len() < SWEPT_MAX { FILE_IDLE_MAX } else { SWEEP_PAUSE };
        drop(gone);
        if done {
            return;
        }
    }
}
