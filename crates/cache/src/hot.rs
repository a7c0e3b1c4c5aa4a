//! The hottest objects of one worker: open files with their decoded heads, and small bodies.
//!
//! Small objects are served from here without any system call, larger ones with the open
//! descriptor. The table belongs to one worker, without a lock. It is a copy: with every look-up
//! the index states the object's [version](Version), and an entry of another version is dropped. A
//! file removed by another program is noticed after [`CHECK_AFTER`]; if the check needs the pool,
//! small objects are served from here meanwhile.
//!
//! Bounded in entries (descriptors) and bytes. Entries unused for [`IDLE_MAX`] are closed, so that
//! the space of deleted files is freed. Called by look-ups. Does no I/O.

use std::cell::RefCell;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nowait_runtime::task::{Either, select};
use nowait_runtime::worker::stopping;
use rustc_hash::FxHashMap;

use crate::hit::OpenedObject;
use crate::index::Stored;
use crate::key::Key;
use crate::memory::Version;
use crate::target::Target;

/// The number of objects, and so descriptors, that one worker keeps.
pub const ENTRIES_MAX: usize = 256;

/// Bytes of small bodies (with their heads) that one worker keeps.
pub const BYTES_MAX: usize = 8 * 1024 * 1024;

/// The interval after which an object's file is reopened.
const CHECK_AFTER: Duration = Duration::from_secs(1);

/// Entries unused for this long are closed.
const IDLE_MAX: Duration = Duration::from_secs(5);

#[derive(Debug)]
struct HotEntry {
    object: Arc<OpenedObject>,
    version: Version,
    opened: Instant,
    used: Instant,
    /// Its file is being reopened.
    checking: bool,
    bytes: usize,
}

#[derive(Debug, Default)]
struct Hot {
    entries: FxHashMap<(u64, Key), HotEntry>,
    bytes: usize,
    swept: bool,
}

thread_local! {
    static HOT: RefCell<Hot> = RefCell::default();
}

/// The object in the store with number `store`, if it is still the one that the index describes.
/// With `check`, only if it was opened recently; otherwise the caller reopens it.
pub(crate) fn find(
    store: u64,
    target: &Target,
    stored: &Stored,
    check: bool,
) -> Option<Arc<OpenedObject>> {
    let (now, key, version) = (nowait_runtime::now(), target.key, Version::of(stored));
    let mut gone = None;
    let found = HOT.with_borrow_mut(|hot| {
        let entry = hot.entries.get_mut(&(store, key))?;
        if entry.version == version && entry.object.head.is_of(&key, &target.text) {
            let is_due = check && now.saturating_duration_since(entry.opened) >= CHECK_AFTER;
            return (!is_due).then(|| {
                entry.used = now;
                entry.object.clone()
            });
        }
        gone = hot.remove((store, key));
        None
    });
    // Closing a file may call the pool: not while the table is borrowed.
    drop(gone);
    found
}

/// Whether the caller has to reopen the file of the object that [`find`] returned: no other task
/// does. The caller reports the result by [`keep`] or [`checked`].
pub(crate) fn begin_check(store: u64, key: Key) -> bool {
    HOT.with_borrow_mut(|hot| {
        let entry = hot.entries.get_mut(&(store, key));
        entry.is_some_and(|entry| !std::mem::replace(&mut entry.checking, true))
    })
}

/// The file could not be opened; the next one may try again.
pub(crate) fn checked(store: u64, key: Key) {
    HOT.with_borrow_mut(|hot| {
        if let Some(entry) = hot.entries.get_mut(&(store, key)) {
            entry.checking = false;
        }
    });
}

/// Keeps an object that was just opened.
pub(crate) fn keep(store: u64, key: Key, stored: &Stored, object: &Arc<OpenedObject>) {
    let (now, version) = (nowait_runtime::now(), Version::of(stored));
    let bytes =
        object.body.as_ref().map_or(0, |body| body.len()) + object.head.layout.body_offset as usize;
    let mut gone = Vec::new();
    let start = HOT.with_borrow_mut(|hot| {
        gone.extend(hot.remove((store, key)));
        if hot.entries.len() >= ENTRIES_MAX || hot.bytes + bytes > BYTES_MAX {
            hot.make_room(now, &mut gone);
        }
        if hot.entries.len() >= ENTRIES_MAX || hot.bytes + bytes > BYTES_MAX {
            return false;
        }
        let entry = HotEntry {
            object: object.clone(),
            version,
            opened: now,
            used: now,
            checking: false,
            bytes,
        };
        hot.entries.insert((store, key), entry);
        hot.bytes += bytes;
        !std::mem::replace(&mut hot.swept, true)
    });
    drop(gone);
    if start {
        drop(nowait_runtime::spawn(sweep()));
    }
}

impl Hot {
    fn remove(&mut self, name: (u64, Key)) -> Option<HotEntry> {
        let entry = self.entries.remove(&name)?;
        self.bytes -= entry.bytes;
        Some(entry)
    }

    /// Removes entries unused for the last second, or else an eighth of all.
    fn make_room(&mut self, now: Instant, gone: &mut Vec<HotEntry>) {
        let before = self.entries.len();
        self.remove_idle(now, CHECK_AFTER, gone);
        if self.entries.len() == before {
            let names: Vec<_> = self.entries.keys().take(ENTRIES_MAX / 8).copied().collect();
            gone.extend(names.into_iter().filter_map(|name| self.remove(name)));
        }
    }

    fn remove_idle(&mut self, now: Instant, idle: Duration, gone: &mut Vec<HotEntry>) {
        let is_idle = |entry: &mut HotEntry| now.saturating_duration_since(entry.used) >= idle;
        for (_, entry) in self.entries.extract_if(|_, entry| is_idle(entry)) {
            self.bytes -= entry.bytes;
            gone.push(entry);
        }
    }
}

/// Closes idle entries, until nothing is left.
async fn sweep() {
    loop {
        let is_over =
            matches!(select(stopping(), nowait_runtime::sleep(IDLE_MAX)).await, Either::Left(()));
        let mut gone = Vec::new();
        let done = HOT.with_borrow_mut(|hot| {
            let idle = if is_over { Duration::ZERO } else { IDLE_MAX };
            hot.remove_idle(nowait_runtime::now(), idle, &mut gone);
            hot.swept = !(hot.entries.is_empty() || is_over);
            !hot.swept
        });
        drop(gone);
        if done {
            return;
        }
    }
}
