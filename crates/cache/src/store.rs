//! One disk cache: its parts, and the operations on it.
//!
//! A [`Store`] is one `proxy_cache_path`: index, files, memory tier, fills under way, the state of
//! its disk. It is shared by all workers and outlives reloads as long as zone and path stay the
//! same. Look-ups are in [`crate::lookup`], filling in [`crate::fill`], purging in
//! [`crate::purge`], background work in [`crate::background`].
//!
//! Called by the HTTP cache. It knows nothing of HTTP (heads and metadata are opaque), never blocks
//! a loop, and never shows half an object.
//!
//! # For callers
//! Everything that may wait for the disk takes an [`Io`]. Pass the result of [`Store::io`] for the
//! request's, so that a location without `aio threads=POOL` uses the store's own pool; use it also
//! for sending the bodies of [`Hit`]s. All futures must run on a worker.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use nowait_runtime::events::{self, EventKind};
use nowait_runtime::fs::{self, Aio, Io, ReadCache};
use nowait_runtime::mounts;
use nowait_runtime::pool::{Pool, PoolConfig};
use rustc_hash::FxHashSet;

use crate::commits::Commits;
use crate::fill_reader::FillReader;
use crate::fills::Fills;
use crate::format::HeadError;
pub use crate::health::Why;
use crate::health::{Access, ErrorClass, Health, HealthChange};
use crate::hit::OpenedObject;
pub use crate::hit::{Hit, HitBody};
use crate::index::{self, BYTES_MIN, Index, Victim};
use crate::key::Key;
use crate::lease::Lease;
use crate::leftovers::Leftovers;
use crate::memory::Memory;
use crate::names::ObjectPaths;
use crate::options::StoreOptions;
use crate::recall::Recall;
use crate::statistics::{Statistics, StoreCounters, count};
pub use crate::target::CacheKey;
use crate::tier::{Purges, Tiers};
use crate::time::UnixMs;

/// Threads of a store's own pool; started when first needed.
const OWN_THREADS: usize = 16;

/// Tasks that may wait for a thread of a store's own pool: nginx's limit of a pool.
const OWN_QUEUE_MAX: usize = 65_536;

/// Time without new fills after the disk was full; the manager makes room meanwhile.
const FULL_PAUSE_MS: u64 = 1_000;

/// The part of a cache that is removed when its disk has no room: one in this many bytes.
const ROOM_PART: u64 = 64;

/// After this many attempts to make room without a stored object in between, the disk must be full of other
/// data, and removing more objects would not help.
const ROOM_TRIES_MAX: u32 = 8;

/// The unit of `st_blocks`, in which the index counts.
pub(crate) const BLOCK_BYTES: u64 = 512;

/// The additional size of the side index of tags, as a fraction of the keys zone's size.
const TAG_SHARE: u64 = 8;

/// The options of a look-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LookupOptions {
    /// An object that is being filled and whose head is known counts as found: [`Lookup::Filling`].
    pub read_while_filling: bool,
    /// Except fills without data from the origin for this long (`proxy_cache_lock_age`).
    pub silence_max: Duration,
    /// `min_uses`: the number of requests for a key before it is [wanted](Lookup::Absent).
    pub min_uses: u16,
}

impl Default for LookupOptions {
    fn default() -> LookupOptions {
        LookupOptions { read_while_filling: false, silence_max: Duration::MAX, min_uses: 1 }
    }
}

/// The result of a look-up.
#[derive(Debug)]
pub enum Lookup {
    /// In memory.
    Memory(Hit),
    /// In a file.
    File(Hit),
    /// Being filled.
    Filling(FillReader),
    /// A remembered error of the origin ([`Fill::remember_error`](crate::Fill::remember_error)).
    Error {
        /// The status to respond with.
        status: u16,
        /// The end of its validity.
        valid_until: UnixMs,
    },
    /// Not there.
    Absent {
        /// Requested often enough to be stored (`min_uses`).
        wanted: bool,
    },
    /// The store can't be searched: bypass it.
    Unavailable(Why),
}

/// A disk cache.
pub struct Store {
    /// Distinguishes the stores of the process.
    id: u64,
    options: RwLock<Arc<StoreOptions>>,
    names: ObjectPaths,
    index: Arc<Index>,
    fills: Fills,
    pub(crate) commits: Commits,
    pub(crate) health: Health,
    pub(crate) counters: StoreCounters,
    /// The pool for locations without their own, and for the background work.
    pool: Pool,
    /// No fills begin before this time (ms since 1970), because the disk was full.
    full_until: AtomicU64,
    /// The device number of its directory; 0: not known yet.
    pub(crate) device: AtomicU64,
    /// Bytes that the manager has to remove, since the disk had no room.
    wanted_bytes: AtomicU64,
    /// The number of times room was made since an object was last stored.
    room_tries: AtomicU32,
    /// The memory tier.
    pub(crate) memory: Option<Memory<Arc<OpenedObject>>>,
    /// Objects that are being copied to the memory tier.
    copies: Mutex<FxHashSet<Key>>,
    /// The number of stored objects when the index was last saved.
    pub(crate) saved: AtomicU64,
    /// The stores before and behind this one.
    pub(crate) tiers: RwLock<Tiers>,
    pub(crate) has_slower: AtomicBool,
    pub(crate) purges: Purges,
    /// Decides which worker does the background work.
    pub(crate) lease: Lease,
    /// Purges are saved by one task at a time.
    pub(crate) keeping: Lease,
    /// Purges up to this stamp are saved.
    pub(crate) kept: AtomicU64,
    pub(crate) leftovers: Leftovers,
    /// The loader has to walk the directories.
    pub(crate) walk_wanted: AtomicBool,
    /// The purges of an earlier process.
    pub(crate) recall: Recall,
    log: Mutex<Option<Arc<dyn StoreLog>>>,
    /// The time of the last logged error (ms since 1970).
    logged: AtomicU64,
}

/// The destination of a store's messages: rare, and rate-limited by the store. Called on workers:
/// never waits.
pub trait StoreLog: Send + Sync {
    /// An error for the operator.
    fn error(&self, message: std::fmt::Arguments<'_>);
    /// Information for the operator.
    fn notice(&self, message: std::fmt::Arguments<'_>);
}

/// The minimum interval between log lines of one kind; events in between are only counted.
const LOG_INTERVAL_MS: u64 = 10_000;

/// Numbers the stores of the process.
static STORES: AtomicU64 = AtomicU64::new(1);

impl Store {
    /// A store with an empty index. Touches no disk: [background work](crate::background) does.
    pub fn new(options: StoreOptions) -> Arc<Store> {
        let config = index::Config {
            bytes: usize::try_from(options.zone_bytes).unwrap_or(usize::MAX).max(BYTES_MIN),
            tag_bytes: usize::try_from(options.zone_bytes / TAG_SHARE).unwrap_or(usize::MAX),
            inactive: options.inactive,
        };
        let index = Index::new(config).expect("at least the smallest index");
        let name = format!("cache {}", options.zone);
        let config = PoolConfig { name, threads: OWN_THREADS, max_queue: OWN_QUEUE_MAX };
        Arc::new(Store {
            id: STORES.fetch_add(1, Relaxed),
            names: ObjectPaths::new(&options.path, options.temp_path.as_deref(), options.levels),
            index,
            fills: Fills::new(),
            commits: Commits::default(),
            health: Health::new(options.hang_after),
            counters: StoreCounters::default(),
            pool: Pool::new(config),
            full_until: AtomicU64::new(0),
            device: AtomicU64::new(0),
            wanted_bytes: AtomicU64::new(0),
            room_tries: AtomicU32::new(0),
            memory: options
                .memory_bytes
                .and_then(|bytes| Memory::new(usize::try_from(bytes).unwrap_or(usize::MAX))),
            copies: Mutex::default(),
            saved: AtomicU64::new(0),
            tiers: RwLock::default(),
            has_slower: AtomicBool::new(false),
            purges: Purges::default(),
            lease: Lease::default(),
            keeping: Lease::default(),
            kept: AtomicU64::new(0),
            leftovers: Leftovers::default(),
            walk_wanted: AtomicBool::new(true),
            recall: Recall::default(),
            log: Mutex::default(),
            logged: AtomicU64::new(0),
            options: RwLock::new(Arc::new(options)),
        })
    }

    /// The settings.
    pub fn options(&self) -> Arc<StoreOptions> {
        self.options.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether this store can continue with other settings after a reload: zone, its size, path and
    /// levels are the same.
    pub fn fits(&self, options: &StoreOptions) -> bool {
        let own = self.options();
        let identity = |options: &StoreOptions| {
            (options.path.clone(), options.zone.clone(), options.zone_bytes, options.levels)
        };
        identity(&own) == identity(options)
            && own.temp_path == options.temp_path
            && own.memory_bytes == options.memory_bytes
    }

    /// Continues with these settings, which [fit](Store::fits).
    pub fn reconfigure(&self, options: StoreOptions) {
        self.index.set_inactive(options.inactive);
        *self.options.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(options);
    }

    /// The destination of messages from now on.
    pub fn set_log(&self, log: Arc<dyn StoreLog>) {
        *self.log.lock().unwrap_or_else(PoisonError::into_inner) = Some(log);
    }

    /// The settings of a request, for this store: a location that names no pool (`aio off`) uses
    /// the store's own, so that only this store's requests wait for its disk.
    pub fn io(&self, io: &Io) -> Io {
        match io.aio {
            Aio::Off => Io { pool: self.pool.clone(), ..io.clone() },
            Aio::Threads | Aio::On | Aio::Blocking => io.clone(),
        }
    }

    /// The pool for locations that name none, and for background work.
    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    /// Settings of background work. It reads each object once, and leaves none of them in the page cache.
    pub(crate) fn own_io(&self) -> Io {
        Io { read_cache: ReadCache::Off, ..Io::new(self.pool.clone()) }
    }

    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    pub(crate) fn names(&self) -> &ObjectPaths {
        &self.names
    }

    pub(crate) fn index(&self) -> &Arc<Index> {
        &self.index
    }

    pub(crate) fn lock_copies(&self) -> MutexGuard<'_, FxHashSet<Key>> {
        self.copies.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn fills(&self) -> &Fills {
        &self.fills
    }

    /// Runs an operation that may wait for the disk; see [`Health::watch`].
    pub(crate) async fn watch<T>(
        &self,
        operation: impl Future<Output = io::Result<T>>,
    ) -> io::Result<T> {
        let (result, change) = self.health.watch(Access::Read, operation).await;
        self.note_change(change);
        result
    }

    /// The same for an operation that creates a file without content.
    pub(crate) async fn watch_create<T>(
        &self,
        operation: impl Future<Output = io::Result<T>>,
    ) -> io::Result<T> {
        let (result, change) = self.health.watch(Access::Create, operation).await;
        self.note_change(change);
        result
    }

    /// The same for an operation that changes files or their names.
    pub(crate) async fn watch_write<T>(
        &self,
        operation: impl Future<Output = io::Result<T>>,
    ) -> io::Result<T> {
        let (result, change) = self.health.watch(Access::Write, operation).await;
        self.note_change(change);
        result
    }

    pub(crate) fn note_change(&self, change: HealthChange) {
        let path = || String::from_utf8_lossy(self.names.directory()).into_owned();
        match change {
            HealthChange::None => {}
            HealthChange::OutOfUse(why) => {
                count(&self.counters.outages);
                let (path, why) = (path(), why.name());
                let text = format_args!("cache \"{path}\" is out of use: its disk is {why}");
                events::record(EventKind::DiskOut, &path, text);
                self.error(text);
            }
            HealthChange::Sealed(is_read_only) => {
                let why = if is_read_only { "read-only" } else { "not writable" };
                let path = path();
                let text =
                    format_args!("cache \"{path}\" stores no new objects: its disk is {why}");
                events::record(EventKind::CacheSealed, &path, text);
                self.error(text);
                // The manager tries the disk from now on.
                self.index.wake_manager();
            }
        }
    }

    /// Whether new objects can be stored, as far as the disk is concerned.
    pub fn takes_objects(&self) -> bool {
        self.slower().is_some_and(|slower| slower.health.why_not_store().is_none())
            || self.health.why_not_store().is_none()
    }

    /// The disk recently had no room.
    pub(crate) fn is_short_of_space(&self) -> bool {
        now().0 < self.full_until.load(Relaxed)
    }

    /// Whether an object with a body of this size can't be kept.
    pub(crate) fn is_too_large(&self, body_length: u64) -> bool {
        self.options().max_bytes.is_some_and(|max| body_length > max)
    }

    /// Counts an error, and logs it if it matters and the last log line is old enough.
    pub(crate) fn note_error(&self, operation: &str, path: &[u8], error: &io::Error) {
        count(&self.counters.errors);
        // This was logged once, when the store was sealed.
        let is_known = ErrorClass::is_read_only(error) && self.health.why_not_store().is_some();
        if !is_known && self.may_log() {
            let path = String::from_utf8_lossy(path);
            self.error(format_args!("cache: {operation} \"{path}\" failed: {error}"));
        }
    }

    /// Logs that a limit was reached, if the last log line is old enough.
    pub(crate) fn note_limit(&self, what: &str) {
        if self.may_log() {
            let zone = self.options().zone.clone();
            self.error(format_args!("cache \"{zone}\": {what}"));
        }
    }

    fn may_log(&self) -> bool {
        let now = now().0;
        let last = self.logged.load(Relaxed);
        now.saturating_sub(last) >= LOG_INTERVAL_MS
            && self.logged.compare_exchange(last, now, Relaxed, Relaxed).is_ok()
    }

    /// A fill failed by this error.
    pub(crate) fn refused(&self, path: &[u8], error: &io::Error) {
        count(&self.counters.fills_refused);
        self.note_error("storing in", path, error);
        if ErrorClass::of(error) == ErrorClass::Limit {
            let now = now().0;
            // Others under way fail for the same lack of room.
            let is_new = self.full_until.swap(now + FULL_PAUSE_MS, Relaxed) <= now;
            if is_new && ErrorClass::is_lack_of_space(error) {
                self.want_room();
            }
            self.index.wake_manager();
        }
    }

    /// The disk is full: lets the manager remove the least recently used objects.
    fn want_room(&self) {
        if self.room_tries.fetch_add(1, Relaxed) < ROOM_TRIES_MAX {
            self.wanted_bytes.store((self.bytes() / ROOM_PART).max(1), Relaxed);
        }
    }

    /// An object was stored: there is room.
    pub(crate) fn note_stored(&self) {
        if self.room_tries.load(Relaxed) != 0 {
            self.room_tries.store(0, Relaxed);
        }
    }

    /// Bytes to be removed since the disk had no room; reported once.
    pub(crate) fn take_wanted_bytes(&self) -> u64 {
        self.wanted_bytes.swap(0, Relaxed)
    }

    /// The disk accepted no data for a while: a client continued without it.
    pub(crate) fn note_stall(&self) {
        count(&self.counters.fills_refused);
        self.note_limit("the disk accepts no data, an object is not stored");
    }

    pub(crate) fn error(&self, message: std::fmt::Arguments<'_>) {
        if let Some(log) = self.logger() {
            log.error(message);
        }
    }

    pub(crate) fn notice(&self, message: std::fmt::Arguments<'_>) {
        if let Some(log) = self.logger() {
            log.notice(message);
        }
    }

    fn logger(&self) -> Option<Arc<dyn StoreLog>> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// An object or its head exceeds a limit.
    pub(crate) fn refused_too_large(&self) {
        count(&self.counters.too_large);
    }

    /// A foreign or damaged file: it is removed.
    pub(crate) fn note_damaged(&self, path: &[u8], error: &HeadError) {
        count(&self.counters.damaged);
        let path = String::from_utf8_lossy(path);
        self.error(format_args!("cache file \"{path}\" is deleted: {error}"));
    }

    /// A file was removed because the disk can't read it.
    pub(crate) fn note_unreadable(&self, path: &[u8]) {
        count(&self.counters.damaged);
        let path = String::from_utf8_lossy(path);
        self.error(format_args!("cache file \"{path}\" is deleted: it can't be read"));
    }

    /// Wakes the manager if the files occupy more than `max_size`.
    pub(crate) fn feel_size(&self) {
        let options = self.options();
        if options.max_bytes.is_some_and(|max| self.bytes() > max) {
            self.index.wake_manager();
        }
    }

    /// Bytes that the files occupy.
    pub(crate) fn bytes(&self) -> u64 {
        self.index.usage().blocks * BLOCK_BYTES
    }

    /// Whether the index has the object, in any state. For callers whose look-up failed and who then got
    /// the right to store the object: another worker may have stored it in between.
    pub fn has(&self, target: &CacheKey) -> bool {
        let is_in = |store: &Store| store.index.peek(&target.key).is_some();
        is_in(self) || self.slower().is_some_and(|slower| is_in(&slower))
    }

    /// Removes a victim's file; then the key can be stored again. A file that can't be removed now
    /// is found by the next walk, and becomes an object again unless it was purged.
    pub(crate) async fn remove_victim(&self, io: &Io, victim: Victim) {
        let path = self.names.object(*victim.key());
        match self.watch_write(fs::unlink(io, &path)).await {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => {
                self.note_error("unlink", &path, &error);
                self.rescan();
            }
        }
        drop(victim);
    }

    /// The reason why the store is out of use; `None`: it is in use.
    pub fn out_of_use(&self) -> Option<Why> {
        self.health.why()
    }

    /// The store on whose disk an object is that was found in this store or in the slower one
    /// behind it.
    pub fn store_of(self: &Arc<Self>, hit: &Hit) -> Arc<Store> {
        self.this_or_slower(hit.store)
    }

    /// The store in which an object found here is being stored: this one or the slower one behind
    /// it.
    pub fn store_of_growing(self: &Arc<Self>, growing: &FillReader) -> Arc<Store> {
        self.this_or_slower(growing.store())
    }

    fn this_or_slower(self: &Arc<Self>, id: u64) -> Arc<Store> {
        self.slower().filter(|slower| slower.id() == id).unwrap_or_else(|| self.clone())
    }

    /// Resolves when a read of an object's body that begins now should be given up: the disk hangs,
    /// or the read takes so long that it might. Until then it counts as an operation of the disk.
    pub async fn hangs(&self) {
        match self.health.why() {
            Some(Why::Hanging) => {}
            // Data that a failing disk still returns is used.
            Some(_) => nowait_runtime::sleep(self.health.hang_after).await,
            None => drop(self.watch(std::future::pending::<io::Result<()>>()).await),
        }
    }

    /// A read of an object's body has completed.
    pub fn body_read(&self) {
        self.health.note_answer();
    }

    /// A reader of an object that could not be stored, or can't be read, gets the rest from the
    /// origin.
    pub fn note_resumed(&self) {
        count(&self.counters.resumed);
    }

    /// Counters and state.
    pub fn statistics(&self) -> Statistics {
        let usage = self.index.usage();
        let options = self.options();
        let mut statistics = Statistics {
            zone: options.zone.clone(),
            directory: String::from_utf8_lossy(self.names.directory()).into_owned(),
            device: match self.device.load(Relaxed) {
                0 => None,
                number => Some(mounts::device_name(number)),
            },
            entries: usage.stored,
            entries_max: usage.keys_max,
            bytes: usage.blocks * BLOCK_BYTES,
            bytes_max: options.max_bytes,
            filling: self.fills.count() as u64,
            under_way: self.health.under_way() as u64,
            loading: self.index.is_cold(),
            out_of_use: self.health.why(),
            stores_nothing: self.health.why_not_store(),
            memory: self.memory.as_ref().map(Memory::usage),
            ..Statistics::default()
        };
        statistics.add(&self.counters);
        statistics
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        self.lease.close();
        // The task detects that the store was dropped.
        self.index.wake_manager();
    }
}

/// The current time for the index.
pub(crate) fn now() -> UnixMs {
    UnixMs(nowait_runtime::clock().unix_ms())
}
