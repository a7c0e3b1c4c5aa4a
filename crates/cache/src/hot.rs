//! The hottest objects of one worker: open files with their decoded heads, and small bodies.
//!
//! What stands here is served without any system call (small objects) or with the open descriptor
//! (larger ones). It belongs to one worker: no lock. It is a copy: the index says with every look-up
//! which [version](Version) the object has, and an entry of another one is dropped. A file
//! that was removed behind our back is noticed after [`CHECK_AFTER`]; where looking at it takes the pool,
//! small objects are served from here meanwhile.
//!
//! Bounded in entries (descriptors) and bytes; entries that were not used for [`IDLE_MAX`] are
//! closed, so that the space of deleted files comes free. Called by look-ups. Never: any I/O.

use std::cell::RefCell;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nowait_runtime::task::{Either, select};
use nowait_runtime::worker::stopping;
use rustc_hash::FxHashMap;

use crate::index::Stored;
use crate::key::Key;
use crate::memory::Version;
use crate::object::Object;
use crate::store::Target;

/// Objects, and so descriptors, that one worker keeps.
pub const ENTRIES_MAX: usize = 256;

/// Bytes of small bodies (with their heads) that one worker keeps.
pub const BYTES_MAX: usize = 8 * 1024 * 1024;

/// After so long an object's file is opened anew.
const CHECK_AFTER: Duration = Duration::from_secs(1);

/// Entries that were not used for so long are closed.
const IDLE_MAX: Duration = Duration::from_secs(5);

#[derive(Debug)]
struct Entry {
    object: Arc<Object>,
    version: Version,
    opened: Instant,
    used: Instant,
    /// Its file is being opened anew.
    checking: bool,
    bytes: usize,
}

#[derive(Debug, Default)]
struct Hot {
    entries: FxHashMap<(u64, Key), Entry>,
    bytes: usize,
    swept: bool,
}

thread_local! {
    static HOT: RefCell<Hot> = RefCell::default();
}

/// The object in the store with number `store`, if it is still what the index says. `check`: not one that
/// was opened some time ago: the caller opens it anew.
pub(crate) fn find(
    store: u64,
    target: &Target,
    stored: &Stored,
    check: bool,
) -> Option<Arc<Object>> {
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

/// Whether the caller has to open the file of what [`find`] has found anew: nobody does. It tells how that
/// ended: by [`keep`], or by [`checked`].
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

/// Keeps an object that was opened just now.
pub(crate) fn keep(store: u64, key: Key, stored: &Stored, object: &Arc<Object>) {
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
        let entry = Entry {
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
    fn remove(&mut self, name: (u64, Key)) -> Option<Entry> {
        let entry = self.entries.remove(&name)?;
        self.bytes -= entry.bytes;
        Some(entry)
    }

    /// Takes out what was not used in the last second, or else an eighth of all.
    fn make_room(&mut self, now: Instant, gone: &mut Vec<Entry>) {
        let before = self.entries.len();
        self.remove_idle(now, CHECK_AFTER, gone);
        if self.entries.len() == before {
            let names: Vec<_> = self.entries.keys().take(ENTRIES_MAX / 8).copied().collect();
            gone.extend(names.into_iter().filter_map(|name| self.remove(name)));
        }
    }

    fn remove_idle(&mut self, now: Instant, idle: Duration, gone: &mut Vec<Entry>) {
        let is_idle = |entry: &mut Entry| now.saturating_duration_since(entry.used) >= idle;
        for (_, entry) in self.entries.extract_if(|_, entry| is_idle(entry)) {
            self.bytes -= entry.bytes;
            gone.push(entry);
        }
    }
}

/// Closes what is idle, until nothing is left.
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
