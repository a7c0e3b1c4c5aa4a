//! Resident files: small files in use are kept in memory, together with the directories, links and names
//! that led to them, and are served without a system call on the file. `look_up` decides on the loop, `admit` has a
//! thread of the location's pool read; the HTTP server calls them for every file.
//!
//! An entry is the result of a path's look-up: a small file with its content, another file with its
//! metadata, or none. The kernel reports everything that could change that ([`changes`]), so an
//! entry is never older than the request that it answers:
//!
//! * A pool thread makes an entry ([`walk`]). It watches each directory, link and file on the way
//!   *before* it looks further, so a change is either seen or reported.
//! * The kernel queues a report before the call that makes the change returns. A request sent after
//!   that call is received later. So a loop that has received something since it last looked
//!   ([`receive_epoch`](crate::receive_epoch)) looks for reports again before it uses an entry: after each group of receives
//!   with epoll, whose receives go on during a turn, and once per turn with io_uring, whose receives
//!   end before the turn begins.
//! * A report taken by one loop concerns all. The code that takes some is counted ([`Changes::applying`])
//!   before taking and until they are applied; meanwhile, no loop uses an entry.
//! * Mounting over a directory is reported by the list of mounts alone, to each loop: then all
//!   entries are in doubt, and are made again when they are wanted.
//!
//! The tests in `resident/model.rs` try every order of these steps: none leads to an old answer, and each
//! rule that is taken away does.
//!
//! What is not reported (stores through a shared mapping, asynchronous writes of `libaio`) changes
//! size or times: an entry is compared with them once a second while it is used. File systems with
//! other writers than this kernel have no entries at all.
//!
//! A caller that keeps an entry and allows older answers, such as `open_file_cache`, asks whether it
//! [is recent](is_recent), which mostly takes no system call.
//!
//! A path gets an entry when it is asked for a second time within a while, unless it changes too often
//! ([`path_history`]). When memory or watches are short, it must also be wanted twice as often as what it replaces, so
//! a scan displaces nothing. Of paths that are not hot, few get an entry per second ([`budget`]).
//!
//! Called by: http. Never waits: what may wait is done in the pool of the location.

mod budget;
mod build_set;
mod changes;
mod graph;
mod path_history;
mod sentinel;
mod table;
mod variants;
mod walk;

use std::fmt;
use std::io;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;

use self::budget::Budget;
use self::build_set::{BuildBusy, BuildSet, Permit};
use self::changes::{Changes, WalkFailure};
use self::graph::{Dependent, NodeId};
use self::table::ResidentTable;
use self::variants::Variants;
use super::open::try_stat;
use super::{Aio, Io, Metadata, Symlinks};
use crate::mounts::clock_ms;
use crate::pool::Op;
use crate::table as forgetful;

/// Time for which an entry is used without comparing it with the metadata of the file, in
/// milliseconds.
const CHECK_MS: u64 = 1000;

/// Memory of an entry beside its content, in bytes: path, watches, places in tables, texts.
const ENTRY_BYTES: usize = 1280;

/// Entries that are removed at once when watches run short, and how often that is tried for a path: it
/// may need one for each of its directories.
const FREED_AT_ONCE: usize = 8;
const WALKS_MAX: usize = 4;

/// Entries that are made per second for paths that are not yet [warm](path_history::WARM). Making one takes as
/// long as five to ten requests for the file.
const ADMITTED_MAX: u32 = 2000;

/// The same while each has to displace another; paths that are [hot](path_history::HOT) do not count. Paths
/// that are requested as often as those that have an entry would displace them forever.
const DISPLACED_MAX: u32 = 128;

/// An entry that changes within this time after it was made is short-lived ([`path_history`]), in milliseconds.
const SHORT_LIVED_MS: u64 = 2000;

/// Bounds of all resident files together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResidentLimits {
    /// Bytes of memory; 0 disables resident files.
    pub memory: usize,
    /// Number of files and directories that are watched, at most half of what the system allows each
    /// user (`fs.inotify.max_user_watches`).
    pub watches: usize,
}

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        #[derive(Debug, Default)]
        struct ResidentCounters { $($name: AtomicU64,)* }

        /// State and counters of resident files.
        #[derive(Clone, Debug, Default)]
        pub struct Snapshot {
            /// Entries.
            pub entries: usize,
            /// Bytes that they take.
            pub bytes: usize,
            /// Watched files and directories.
            pub watches: usize,
            $($(#[$doc])* pub $name: u64,)*
        }

        impl Snapshot {
            /// Names and values of the counters, for metrics.
            pub fn counters(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($name), self.$name)),*].into_iter()
            }
        }

        /// The current contents; all zero before [`configure`].
        pub fn snapshot() -> Snapshot {
            let Some(all) = ALL.get() else { return Snapshot::default() };
            Snapshot {
                entries: all.table.len(),
                bytes: all.table.bytes(),
                watches: all.changes.watches(),
                $($name: all.counters.$name.load(Relaxed),)*
            }
        }
    };
}

counters! {
    /// Look-ups that an entry answered.
    hits,
    /// Uses of another form of the content that was made before, such as a compressed one.
    variants,
    /// Entries made.
    admitted,
    /// Entries not made: too large, too busy, or the file system, a permission or a limit is in the
    /// way.
    refused,
    /// Entries removed because the kernel reported a change.
    changed,
    /// Entries removed because size or times had changed without a report.
    unreported,
    /// Entries removed for others.
    evicted,
    /// The number of times that all entries were dropped because reports were lost.
    overflows,
}

/// All resident entries, and their watches.
struct ResidentState {
    table: ResidentTable,
    changes: Changes,
    counters: ResidentCounters,
    making: BuildSet,
    admitting: Budget,
    displacing: Budget,
    /// All were dropped, and this is not reported yet.
    dropped: AtomicBool,
    /// Watches ran short, and this is not reported yet; or was, since they were last set.
    unwatched: AtomicBool,
    unwatched_told: AtomicBool,
}

static ALL: OnceLock<ResidentState> = OnceLock::new();

/// Sets the bounds; the first call with any memory begins to watch. Not for loops.
///
/// # Errors
/// The kernel refuses an inotify instance (`fs.inotify.max_user_instances`): nothing is resident.
pub fn configure(limits: ResidentLimits) -> io::Result<()> {
    if ALL.get().is_none() {
        if limits.memory == 0 {
            return Ok(());
        }
        let changes = Changes::new()?;
        let _ = ALL.set(ResidentState::new(changes));
    }
    if let Some(all) = ALL.get() {
        all.table.limit(limits.memory);
        all.changes.limit(limits.watches);
        all.unwatched_told.store(false, Relaxed);
        all.shrink();
    }
    Ok(())
}

/// Messages for the operator.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Notice {
    /// All entries were dropped, because reports were lost or too many came.
    pub(crate) dropped: bool,
    /// Entries were not made for lack of watches.
    pub(crate) unwatched: bool,
}

/// Events since the last call.
pub(crate) fn take_notice() -> Notice {
    let Some(all) = ALL.get() else { return Notice::default() };
    let take = |flag: &AtomicBool| flag.load(Relaxed) && flag.swap(false, Relaxed);
    Notice { dropped: take(&all.dropped), unwatched: take(&all.unwatched) }
}

/// The result of a path's look-up.
#[derive(Debug)]
enum PathOutcome {
    File(Metadata, Bytes),
    /// A directory, a large file, or a file of another type.
    Other(Metadata),
    /// The look-up's error number: there is no such file.
    Missing(i32),
}

/// An entry.
pub struct Resident {
    hash: u64,
    path: Box<[u8]>,
    symlinks: Symlinks,
    outcome: OnceLock<PathOutcome>,
    /// Whether there were no reports.
    valid: AtomicBool,
    /// The number of mount changes before it was made.
    age: u32,
    /// The previous entry was short-lived.
    is_second: bool,
    /// The time at which it was made, and last compared: [`clock_ms`].
    made_ms: u64,
    checked_ms: AtomicU64,
    uses: AtomicU32,
    variants: Variants,
    texts: OnceLock<[Bytes; 2]>,
    /// The node that reports its end.
    node: OnceLock<NodeId>,
}

impl Resident {
    fn new(wanted: &ResidentQuery, age: u32) -> Resident {
        let now = clock_ms();
        Resident {
            hash: wanted.hash,
            path: wanted.path.clone(),
            symlinks: wanted.symlinks,
            outcome: OnceLock::new(),
            valid: AtomicBool::new(true),
            age,
            is_second: wanted.is_second,
            made_ms: now,
            checked_ms: AtomicU64::new(now),
            uses: AtomicU32::new(0),
            variants: Variants::default(),
            texts: OnceLock::new(),
            node: OnceLock::new(),
        }
    }

    /// The metadata of a file, and its whole content; `None`: it has no content here.
    pub fn file(&self) -> Option<(&Metadata, &Bytes)> {
        match self.outcome.get() {
            Some(PathOutcome::File(metadata, content)) => Some((metadata, content)),
            _ => None,
        }
    }

    /// Two short texts that depend only on the metadata of a file, such as its validators: made by the first
    /// call, and kept with the entry, so every caller must make the same. `None`: it is not a file.
    pub fn texts(&self, make: impl FnOnce(&Metadata) -> [Bytes; 2]) -> Option<&[Bytes; 2]> {
        let (metadata, _) = self.file()?;
        Some(self.texts.get_or_init(|| make(metadata)))
    }

    /// Metadata of the path.
    ///
    /// # Errors
    /// The error of the look-up.
    pub fn metadata(&self) -> io::Result<&Metadata> {
        match self.outcome.get() {
            Some(PathOutcome::File(metadata, _) | PathOutcome::Other(metadata)) => Ok(metadata),
            Some(PathOutcome::Missing(code)) => Err(io::Error::from_raw_os_error(*code)),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }

    /// Whether the entry is valid.
    fn holds(&self, all: &ResidentState) -> bool {
        self.valid.load(SeqCst) && self.age == all.changes.age()
    }

    /// Whether it answers requests with these settings.
    fn is_for(&self, io: &Io) -> bool {
        match self.outcome.get() {
            Some(PathOutcome::File(metadata, _)) => {
                metadata.size <= io.resident as u64
                    && metadata.size < io.directio.unwrap_or(u64::MAX)
            }
            Some(PathOutcome::Other(metadata)) => metadata.is_dir(),
            Some(PathOutcome::Missing(_)) => true,
            None => false,
        }
    }

    /// Bytes of memory.
    fn bytes(&self) -> usize {
        let content = self.file().map_or(0, |(_, content)| content.len());
        ENTRY_BYTES + self.path.len() + content + self.variants.bytes()
    }

    /// Whether the file is now as it was when the entry was made.
    fn is_like(&self, found: &io::Result<Metadata>) -> bool {
        match (self.outcome.get(), found) {
            (Some(PathOutcome::File(old, _)), Ok(new)) => old == new,
            (Some(PathOutcome::Other(old)), Ok(new)) if old.is_dir() => {
                // A directory's times change with its contents.
                (old.dev, old.ino, old.mode, old.uid) == (new.dev, new.ino, new.mode, new.uid)
            }
            (Some(PathOutcome::Other(old)), Ok(new)) => old == new,
            (Some(PathOutcome::Missing(old)), Err(new)) => new.raw_os_error() == Some(*old),
            _ => false,
        }
    }

    /// Sets the number of recent uses. A new entry is worth as much as what displaced others for it; else it
    /// would be the next to go.
    fn set_uses(&self, count: u16, now: u16) {
        self.uses
            .store(u32::from(now) << 16 | u32::from(count.min(path_history::COUNT_MAX)), Relaxed);
    }

    /// Counts a use, in ticks of [`path_history`].
    fn used(&self, now: u16) {
        let known = self.uses.load(Relaxed);
        let (tick, count) = ((known >> 16) as u16, known as u16);
        let count = if tick == now { count } else { path_history::aged(count, tick, now) };
        // A hot entry is not written to all the time: workers share it.
        if tick != now || count < path_history::COUNT_MAX {
            self.set_uses(count + 1, now);
        }
    }

    /// The number of recent uses.
    fn frequency(&self, now: u16) -> u16 {
        let known = self.uses.load(Relaxed);
        path_history::aged(known as u16, (known >> 16) as u16, now)
    }
}

impl Dependent for Arc<Resident> {
    fn is_valid(&self) -> bool {
        self.valid.load(SeqCst)
    }
}

impl fmt::Debug for Resident {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Resident")
            .field("path", &String::from_utf8_lossy(&self.path))
            .finish_non_exhaustive()
    }
}

/// The requested data.
struct ResidentQuery {
    hash: u64,
    path: Box<[u8]>,
    symlinks: Symlinks,
    /// Longest content in bytes.
    size_max: usize,
    /// Whether metadata of a larger file are worth an entry.
    metadata: bool,
    /// The last entry was short-lived.
    is_second: bool,
}

/// The entry of `path`, for its content; `None`: there is none, and the file has to be opened.
pub fn find(io: &Io, path: &[u8], symlinks: Symlinks) -> Option<Arc<Resident>> {
    let found = look_up(io, path, symlinks, io.resident, false)?;
    found.is_for(io).then(|| {
        count_hit();
        found
    })
}

/// Whether an entry found before may answer a request that does not require the newest state: it is at most
/// a second old.
pub fn is_recent(io: &Io, entry: &Resident) -> bool {
    let Some(all) = ALL.get() else { return false };
    let now = clock_ms();
    if !entry.is_for(io) || !entry.holds(all) {
        return false;
    }
    let is_checked = now.saturating_sub(entry.checked_ms.load(Relaxed)) < CHECK_MS
        || sentinel::is_up_to_date(all, io) && entry.holds(all) && all.is_checked(io, entry);
    if is_checked {
        entry.used(path_history::tick(now));
        count_hit();
    }
    is_checked
}

/// The metadata of `path`, if there is an entry. One that is made has content of at most `size_max` bytes.
pub(super) fn find_metadata(
    io: &Io,
    path: &[u8],
    symlinks: Symlinks,
    size_max: usize,
) -> Option<io::Result<Metadata>> {
    let found = look_up(io, path, symlinks, size_max, true)?;
    count_hit();
    Some(found.metadata().copied())
}

fn look_up(
    io: &Io,
    path: &[u8],
    symlinks: Symlinks,
    size_max: usize,
    metadata: bool,
) -> Option<Arc<Resident>> {
    if io.resident == 0 || io.aio == Aio::Blocking || !io.open_in_pool {
        return None;
    }
    let all = ALL.get()?;
    if !all.table.is_open() || path.first() != Some(&b'/') || io.pool.world().is_some() {
        return None;
    }
    let hash = forgetful::hash((3u8, path, symlinks));
    let now = path_history::tick(clock_ms());
    let Some(entry) = all.table.get(hash, path, symlinks) else {
        let count = path_history::count(hash, now);
        if !path_history::is_wanted(count) {
            return None;
        }
        let permit = match all.permit(hash, count, now) {
            Ok(permit) => permit,
            Err(BuildBusy::WithThis | BuildBusy::NoRoom) => return None,
            Err(BuildBusy::WithOthers) => {
                path_history::postpone(hash, now, count);
                return None;
            }
        };
        let is_second = path_history::had_short_life(hash, now);
        let path = path.into();
        let wanted = ResidentQuery { hash, path, symlinks, size_max, metadata, is_second };
        all.make(io, permit, wanted, count);
        return None;
    };
    // Also if it can't be believed yet: a path without an entry is counted with each request.
    entry.used(now);
    if !sentinel::is_up_to_date(all, io) {
        return None;
    }
    if !entry.holds(all) {
        all.drop_entry(&entry);
        path_history::count(hash, now);
        return None;
    }
    all.is_checked(io, &entry).then_some(entry)
}

fn count_hit() {
    if let Some(all) = ALL.get() {
        all.counters.hits.fetch_add(1, Relaxed);
    }
}

impl ResidentState {
    fn new(changes: Changes) -> ResidentState {
        let (table, counters, making) = Default::default();
        let (dropped, unwatched, unwatched_told) = Default::default();
        ResidentState {
            table,
            changes,
            counters,
            making,
            admitting: Budget::per_second(ADMITTED_MAX),
            displacing: Budget::per_second(DISPLACED_MAX),
            dropped,
            unwatched,
            unwatched_told,
        }
    }

    /// Compares an entry with the file once in a while; false: they differ, or that needs the pool.
    fn is_checked(&self, io: &Io, entry: &Resident) -> bool {
        let now = clock_ms();
        if now.saturating_sub(entry.checked_ms.load(Relaxed)) < CHECK_MS {
            return true;
        }
        let Some(found) = try_stat(io, &entry.path, entry.symlinks) else {
            // The request looks the path up in the pool anyway; a new entry is as good as a check.
            self.drop_entry(entry);
            path_history::count(entry.hash, path_history::tick(now));
            return false;
        };
        if entry.is_like(&found) {
            entry.checked_ms.store(now, Relaxed);
            return true;
        }
        self.counters.unreported.fetch_add(1, Relaxed);
        self.drop_entry(entry);
        false
    }

    fn drop_entry(&self, entry: &Resident) {
        self.table.remove(entry);
        self.changes.forget_later(entry);
    }

    /// The right to make an entry for a path with this many recent requests. Most paths that get none are
    /// refused here, without any work in the pool.
    fn permit(
        &'static self,
        hash: u64,
        count: u16,
        now: u16,
    ) -> Result<Permit<'static>, BuildBusy> {
        let has_watches = self.changes.has_room();
        let is_full = !has_watches || !self.table.has_room(ENTRY_BYTES);
        if is_full {
            if !has_watches {
                self.tell_unwatched();
            }
            let may_displace = count >= path_history::HOT || self.displacing.has_more();
            if !may_displace || !self.table.has_colder(count, now) {
                self.counters.refused.fetch_add(1, Relaxed);
                return Err(BuildBusy::NoRoom);
            }
        }
        let budget = if is_full { &self.displacing } else { &self.admitting };
        if count < path_history::WARM && !budget.has_more() {
            return Err(BuildBusy::WithOthers);
        }
        let permit = self.making.begin(hash)?;
        budget.spend();
        Ok(permit)
    }

    /// Makes an entry in the pool.
    fn make(&'static self, io: &Io, permit: Permit<'static>, wanted: ResidentQuery, count: u16) {
        io.pool.run_detached(Op::Open, move || {
            let _permit = permit;
            self.admit(&wanted, count).remember(&wanted);
        });
    }

    /// Makes an entry, if there is room. May wait.
    fn admit(&self, wanted: &ResidentQuery, count: u16) -> Admission {
        self.changes.clean_up();
        let now = path_history::tick(clock_ms());
        let room = |bytes| self.table.make_room(bytes, count, now, |evicted| self.evict(evicted));
        let refuse = |admission| {
            self.counters.refused.fetch_add(1, Relaxed);
            admission
        };
        if !room(ENTRY_BYTES) {
            return refuse(Admission::NoRoom);
        }
        let entry = match self.walk(wanted, count, now) {
            Ok(entry) => entry,
            Err(WalkFailure::Impossible) => return refuse(Admission::Refused),
            Err(WalkFailure::Changed) => return refuse(Admission::Changed),
            Err(WalkFailure::Exhausted) => {
                self.tell_unwatched();
                return refuse(Admission::NoRoom);
            }
        };
        if !room(entry.bytes()) {
            self.changes.forget(&entry);
            return refuse(Admission::NoRoom);
        }
        // Requests went on while it was made.
        entry.set_uses(count.max(path_history::recent(wanted.hash, now)), now);
        self.counters.admitted.fetch_add(1, Relaxed);
        // Before it is found, and may end.
        path_history::forget(wanted.hash);
        if let Some(old) = self.table.insert(entry) {
            self.changes.forget(&old);
        }
        Admission::Done
    }

    /// The limit of watches is reached, which is reported once.
    fn tell_unwatched(&self) {
        if !self.unwatched_told.swap(true, Relaxed) {
            self.unwatched.store(true, Relaxed);
        }
    }

    fn evict(&self, entry: &Resident) {
        self.counters.evicted.fetch_add(1, Relaxed);
        self.changes.forget(entry);
    }

    /// Removes entries beyond new bounds.
    fn shrink(&self) {
        while self.table.is_beyond_limit()
            && let Some(victim) = self.table.take_colder(u16::MAX, path_history::tick(clock_ms()))
        {
            self.evict(&victim);
        }
        self.changes.clean_up();
    }

    /// Walks a path; while watches run short, those of entries that were used less make room.
    fn walk(
        &self,
        wanted: &ResidentQuery,
        count: u16,
        now: u16,
    ) -> Result<Arc<Resident>, WalkFailure> {
        for _ in 0..WALKS_MAX {
            match walk::walk(&self.changes, wanted) {
                Err(WalkFailure::Exhausted) if self.free_watches(count, now) => {}
                walked => return walked,
            }
        }
        Err(WalkFailure::Exhausted)
    }

    /// Removes entries that were used less than `count` times lately, with their watches; false: there are
    /// none.
    fn free_watches(&self, count: u16, now: u16) -> bool {
        let mut freed = 0;
        while freed < FREED_AT_ONCE
            && let Some(victim) = self.table.take_colder(count, now)
        {
            self.evict(&victim);
            freed += 1;
        }
        self.changes.clean_up();
        freed > 0
    }

    /// An entry of which the kernel reported a change.
    fn report(&self, entry: &Resident) {
        if entry.valid.swap(false, SeqCst) {
            self.counters.changed.fetch_add(1, Relaxed);
            if clock_ms().saturating_sub(entry.made_ms) < SHORT_LIVED_MS {
                path_history::short_life(entry.hash, entry.is_second);
            }
        }
        self.table.remove(entry);
    }

    /// Drops all entries: reports were lost, or there are too many.
    fn drop_all(&self) {
        self.counters.overflows.fetch_add(1, Relaxed);
        self.dropped.store(true, Relaxed);
        self.changes.doubt();
    }
}

/// The result of an attempt to make an entry.
enum Admission {
    Done,
    /// Memory or watches are exhausted by entries that are used as often.
    NoRoom,
    /// Something changed meanwhile.
    Changed,
    /// The path can't have an entry.
    Refused,
}

impl Admission {
    /// For the next request for the path.
    fn remember(&self, wanted: &ResidentQuery) {
        match self {
            // Requested repeatedly, the path displaces others.
            Admission::Done | Admission::NoRoom => {}
            Admission::Changed => path_history::short_life(wanted.hash, wanted.is_second),
            Admission::Refused => path_history::refuse(wanted.hash),
        }
    }
}

#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;
